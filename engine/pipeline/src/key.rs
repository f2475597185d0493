//! The identity of a statement: what it says and what it reads. Equal keys, equal results, so a statement
//! whose key has not changed need not run again.

use crate::statement::Statement;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};
use std::collections::BTreeMap;

/// The key of a statement, 64 hexadecimal digits (BLAKE3).
///
/// `inputs` holds, for each table and model that the statement reads (`Planner::inputs`), the key of the
/// statement that made it, or the identity of its files (path, size, time or entity tag).
pub fn statement_key(statement: &Statement, inputs: &BTreeMap<String, String>) -> String {
    key_of(&statement.normalised, inputs)
}

fn key_of(normalised: &str, inputs: &BTreeMap<String, String>) -> String {
    let mut hash = blake3::Hasher::new_derive_key("voxelflow pipeline statement v1");
    let mut field = |text: &str| {
        // Lengths keep two fields from running into one another.
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    field(normalised);
    for (name, key) in inputs {
        field(name);
        field(key);
    }
    hash.finalize().to_hex().to_string()
}

/// One space between tokens, unquoted words in lower case, strings in a form that cannot be mistaken.
pub(crate) fn normalise(tokens: &[TokenWithSpan]) -> String {
    let words = tokens.iter().map(|t| match &t.token {
        Token::Word(Word { value, quote_style: None, .. }) => value.to_lowercase(),
        Token::SingleQuotedString(text) => format!("'{}'", text.replace('\'', "''")),
        Token::Word(Word { value, quote_style: Some(_), .. }) => {
            format!("\"{}\"", value.replace('"', "\"\""))
        }
        token => token.to_string(),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::{Source, Variables, parse};
    use std::sync::Arc;

    fn key(text: &str, set: &[(&str, &str)], inputs: &[(&str, &str)]) -> String {
        let owned = |pairs: &[(&str, &str)]| -> Variables {
            pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
        };
        let source = Arc::new(Source::new("f.vf", text));
        let statements = parse(&source, &owned(set)).unwrap();
        statement_key(&statements[0], &owned(inputs))
    }

    const TRAIN: &str = "TRAIN MODEL dca USING dist_dca (lambda => 0.006) ON series WITH (seed => $seed)";

    #[test]
    fn layout_comments_and_case_do_not_count() {
        let other =
            "train model dca -- why\n using dist_dca(lambda=>0.006)\n/* rows */ ON Series with (seed => 7);";
        let inputs = [("series", "k1")];
        assert_eq!(key(TRAIN, &[("seed", "7")], &inputs), key(other, &[], &inputs));
    }

    #[test]
    fn values_variables_and_inputs_count() {
        let base = key(TRAIN, &[("seed", "7")], &[("series", "k1")]);
        assert_eq!(base.len(), 64);
        assert_ne!(base, key(TRAIN, &[("seed", "8")], &[("series", "k1")]));
        assert_ne!(base, key(TRAIN, &[("seed", "7")], &[("series", "k2")]));
        assert_ne!(base, key(TRAIN, &[("seed", "7")], &[("seriesk", "1")]));
        assert_ne!(key("SELECT 'A'", &[], &[]), key("SELECT 'a'", &[], &[]));
        assert_ne!(key("SELECT \"A\"", &[], &[]), key("SELECT \"a\"", &[], &[]));
        assert_ne!(key("SELECT 'a', 'b'", &[], &[]), key("SELECT 'a'', ''b'", &[], &[]));
    }
}
