//! Advice that can be followed: every option that a message names is one where it is named.

use crate::program::{root, run_text};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const BOLD: &str = "examples/data/ds003_sub-01_mc.nii.gz";

/// What is listed for an option that there is not, by what stands before and after its name.
fn options_of(before: &str, after: &str) -> BTreeSet<String> {
    let out = tempfile::tempdir().unwrap();
    let table =
        format!("CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{BOLD}' OPTIONS (mask 'none', t_r 2);");
    let ended = run_text(&format!("{table}\n{before}no_such_option{after};"), out.path()).expect_code(2);
    let (_, list) = ended.stderr.split_once("the options are: ").expect(&ended.stderr);
    let line = list.lines().next().unwrap_or_default();
    let names = line.split([',', ' ']).map(|word| word.trim().to_owned());
    names.take_while(|word| !word.starts_with('(')).filter(|word| !word.is_empty()).collect()
}

fn tables() -> BTreeSet<String> {
    let fixtures =
        |file: &str| root().join("connectors/tables/tests/fixtures").join(file).display().to_string();
    let kinds = [
        ("NIFTI", BOLD.to_owned()),
        ("BIDS", fixtures("layouts")),
        ("HCP", fixtures("layouts")),
        ("GIFTI", fixtures("layouts/nilearn_hemi-L.gii")),
        ("NPY", fixtures("precision/float64.npy")),
    ];
    let of = |(kind, location): &(&str, String)| {
        options_of(
            &format!("CREATE EXTERNAL TABLE t STORED AS {kind} LOCATION '{location}' OPTIONS ("),
            " 1)",
        )
    };
    kinds.iter().flat_map(of).collect()
}

fn operators() -> BTreeSet<String> {
    let of = |operator: &&str| options_of(&format!("SELECT * FROM {operator}(bold, "), " => 1)");
    // Before its options predict asks for a model, which there is none of here.
    let of_predict = ["time_points".to_owned()];
    ["clean", "design", "split", "concatenate"].iter().flat_map(of).chain(of_predict).collect()
}

fn stages() -> BTreeSet<String> {
    let of = |stage: &&str| options_of(&format!("TRAIN MODEL m USING {stage} ("), " => 1) ON bold");
    let settings = options_of("TRAIN MODEL m USING dist_dca (hidden => 4) ON bold WITH (", " => 1)");
    ["dist_dca", "ridge_cv", "banded_ridge_cv"].iter().flat_map(of).chain(settings).collect()
}

/// The texts in quotes of a source file, tests and comments left out, each with its line.
fn literals(source: &str) -> Vec<(usize, String)> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let (mut found, mut line) = (Vec::new(), 1);
    let mut letters = source.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\n' => line += 1,
            '/' if letters.peek() == Some(&'/') => {
                // The line's end is met next.
                while letters.peek().is_some_and(|next| *next != '\n') {
                    letters.next();
                }
            }
            // A letter in quotes may be a double quote.
            '\'' if letters.peek() == Some(&'"') => {
                letters.next();
            }
            '"' => {
                let (mut text, start) = (String::new(), line);
                while let Some(letter) = letters.next().filter(|letter| *letter != '"') {
                    line += usize::from(letter == '\n');
                    match letter {
                        '\\' => {
                            if letters.next() == Some('\n') {
                                line += 1;
                                while letters.peek().is_some_and(|next| next.is_whitespace()) {
                                    line += usize::from(letters.next() == Some('\n'));
                                }
                            }
                        }
                        letter => text.push(letter),
                    }
                }
                found.push((start, text));
            }
            _ => {}
        }
    }
    found
}

/// Options that a text names: `OPTIONS (name`, `name => `, and `give`, `set` or `raise` before a name of several words.
fn named(text: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.chars().take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_').collect()
    };
    let mut names: Vec<String> = text.split("OPTIONS (").skip(1).map(word).collect();
    for part in text.split(" => ").collect::<Vec<_>>().windows(2) {
        let start = part[0].rfind(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
        names.push(part[0][start.map_or(0, |at| at + 1)..].to_owned());
    }
    for verb in ["give ", "set ", "raise ", "option ", "lower "] {
        let own = text.split(verb).skip(1).map(word);
        names.extend(own.filter(|name| name.contains('_')));
    }
    names.retain(|name| !name.is_empty());
    names
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, into),
            false if path.extension().is_some_and(|end| end == "rs") => into.push(path),
            false => {}
        }
    }
}

/// Names of the faults in the messages of the crates under `folders`, whose options are `known`.
fn unknown(folders: &[&str], known: &BTreeSet<String>) -> Vec<String> {
    let mut files = Vec::new();
    folders.iter().for_each(|folder| sources(&root().join(folder).join("src"), &mut files));
    let mut faults = Vec::new();
    for file in files {
        for (line, text) in literals(&fs::read_to_string(&file).unwrap()) {
            for name in named(&text).into_iter().filter(|name| !known.contains(name)) {
                faults.push(format!("{}:{line}: `{name}` in {text:?}", file.display()));
            }
        }
    }
    faults
}

#[test]
fn every_option_that_a_message_names_exists() {
    let (tables, operators, stages) = (tables(), operators(), stages());
    for (known, name) in
        [(&tables, "memory_limit"), (&tables, "xform"), (&operators, "not_finite"), (&stages, "alphas")]
    {
        assert!(known.contains(name), "{name} is not in {known:?}");
    }
    let all: BTreeSet<String> = operators.union(&tables).cloned().collect();
    let mut faults = unknown(&["connectors/formats", "connectors/tables"], &tables);
    faults.extend(unknown(&["ml/signal", "ml/operators"], &all.union(&stages).cloned().collect()));
    faults.extend(unknown(&["ml/encoding", "ml/ridge", "ml/nn"], &stages));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn names_are_found_in_messages() {
    let source = "let a = 'x'; // \"OPTIONS (left out\"\nfail(\"give OPTIONS (mask 'a' | 'none'), \\\n  or raise memory_limit; write not_finite => 'drop'\");";
    let found = literals(source);
    assert_eq!(found.len(), 1);
    assert_eq!(named(&found[0].1), ["mask", "not_finite", "memory_limit"]);
}
