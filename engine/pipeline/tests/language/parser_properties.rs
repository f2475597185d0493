//! Whatever text comes in, the parser answers: it does not panic, and an error's caret stands on its line.

use proptest::prelude::*;
use std::{fs, sync::Arc};
use voxelflow_pipeline::{PipelineError, Source, Variables, parse};

fn check(text: &str) -> Result<(), TestCaseError> {
    let variables = Variables::from([("subject".to_string(), "01".to_string())]);
    match parse(&Arc::new(Source::new("any.vf", text)), &variables) {
        Ok(statements) => {
            for statement in statements {
                prop_assert_eq!(statement.source().slice(statement.span), statement.text.as_str());
                prop_assert!(!statement.title().is_empty());
            }
        }
        Err(e) => caret_is_on_the_line(text, &e)?,
    }
    Ok(())
}

fn caret_is_on_the_line(text: &str, e: &PipelineError) -> Result<(), TestCaseError> {
    let line = text.split('\n').nth(e.line() - 1).unwrap_or_default().trim_end_matches('\r');
    prop_assert_eq!(line, e.source_line());
    let length = line.chars().count();
    prop_assert!(e.column() >= 1 && e.column() <= length + 1, "{}", e);
    let shown = e.to_string();
    let caret = shown.lines().find(|l| l.trim_start().starts_with("| ") && l.trim_end().ends_with('^'));
    let carets = caret.expect("an underline").chars().filter(|c| *c == '^').count();
    prop_assert!(carets >= 1 && e.column() - 1 + carets <= length.max(e.column()), "{}", e);
    prop_assert!(!e.message().is_empty());
    Ok(())
}

/// All golden files: the texts that mutations start from.
fn corpus() -> Vec<String> {
    let files = fs::read_dir("tests/golden").unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|p| p.extension().is_some_and(|e| e == "vf"))
        .map(|p| fs::read_to_string(p).unwrap())
        .collect()
}

const PIECES: [&str; 34] = [
    "TRAIN",
    "MODEL",
    "USING",
    "ON",
    "VALIDATE",
    "PER",
    "WITH",
    "EXPORT",
    "MAPS",
    "FROM",
    "TO",
    "REPORT",
    "EXPLAIN",
    "SELECT",
    "CREATE TABLE",
    "AS",
    "(",
    ")",
    "[",
    "]",
    ",",
    ";",
    "=>",
    "=",
    "'",
    "\"",
    "$subject",
    "${",
    "/*",
    "--",
    "\n",
    "é",
    "-1",
    "dca",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text(text in "\\PC{0,80}") {
        check(&text)?;
    }

    #[test]
    fn words_of_the_language_in_any_order(words in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..24)) {
        check(&words.join(" "))?;
        check(&words.concat())?;
    }

    #[test]
    fn mutated_files(
        (text, cut, length, piece) in (
            prop::sample::select(corpus()), any::<prop::sample::Index>(), 0usize..12, prop::sample::select(&PIECES[..]),
        )
    ) {
        let chars: Vec<char> = text.chars().collect();
        let at = cut.index(chars.len());
        let head: String = chars[..at].iter().collect();
        let tail: String = chars[(at + length).min(chars.len())..].iter().collect();
        check(&format!("{head}{tail}"))?;
        check(&format!("{head}{piece}{tail}"))?;
        check(&head)?;
    }
}

/// Brackets in brackets must end in an error, and soon.
#[test]
fn deep_nesting_is_refused() {
    for depth in [10, 100, 10_000] {
        for (before, open) in
            [("SELECT ", "("), ("SELECT * FROM ", "("), ("TRAIN MODEL a USING b (c => ", "[")]
        {
            let text = format!("{before}{}", open.repeat(depth));
            assert!(parse(&Arc::new(Source::new("deep.vf", text)), &Variables::new()).is_err());
        }
    }
}
