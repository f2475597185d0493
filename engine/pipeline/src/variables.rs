//! Tokens of a pipeline file, with `$name` and, within strings, `${name}` filled from `--set`.
//!
//! A variable is a value, never a piece of syntax: a number stays a number, `true`, `false` and `null` stay
//! those, everything else becomes a string. So a value cannot change what a statement does.

use crate::{
    error::{PipelineError, Result, did_you_mean, listed},
    source::{Source, Span},
};
use datafusion::sql::sqlparser::{
    dialect::GenericDialect,
    tokenizer::{Token, TokenWithSpan, Tokenizer},
};
use std::collections::BTreeMap;

/// Values of `$name`, as given by `--set name=value`.
pub type Variables = BTreeMap<String, String>;

/// The file's tokens without whitespace and comments, variables filled in; each keeps the place where it,
/// or the variable that it came from, is written.
pub(crate) fn tokens(source: &Source, variables: &Variables) -> Result<Vec<TokenWithSpan>> {
    let mut tokens = Vec::new();
    for token in raw_tokens(source)? {
        match &token.token {
            Token::Placeholder(name) => match name.strip_prefix('$') {
                Some(name) if is_variable(name) => {
                    let span = source.span(token.span).unwrap_or_default();
                    let value = variables.get(name).ok_or_else(|| unknown(source, span, name, variables))?;
                    let filled = literal(value).into_iter();
                    tokens.extend(filled.map(|t| TokenWithSpan { token: t, span: token.span }));
                }
                _ => tokens.push(token),
            },
            Token::SingleQuotedString(text) if text.contains("${") => {
                let filled = fill(source, source.span(token.span).unwrap_or_default(), text, variables)?;
                tokens.push(TokenWithSpan { token: Token::SingleQuotedString(filled), span: token.span });
            }
            _ => tokens.push(token),
        }
    }
    Ok(tokens)
}

/// The file's tokens as written, without whitespace and comments.
pub(crate) fn raw_tokens(source: &Source) -> Result<Vec<TokenWithSpan>> {
    let mut tokens =
        Tokenizer::new(&GenericDialect {}, source.text()).tokenize_with_location().map_err(|e| {
            let start = source.offset(e.location.line, e.location.column);
            PipelineError::new(source, Span { start, end: start }, lower_first(&e.message))
        })?;
    tokens.retain(|t| !matches!(t.token, Token::Whitespace(_) | Token::EOF));
    Ok(tokens)
}

/// `Cannot coerce` → `cannot coerce`; `UNION needs` stays.
pub(crate) fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    let Some(first) = chars.next() else { return String::new() };
    if chars.clone().next().is_some_and(char::is_uppercase) {
        return text.to_string();
    }
    first.to_lowercase().chain(chars).collect()
}

/// `$1` is a parameter of a prepared statement, not a variable.
fn is_variable(name: &str) -> bool {
    name.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

fn unknown(source: &Source, span: Span, name: &str, variables: &Variables) -> PipelineError {
    let names: Vec<String> = variables.keys().cloned().collect();
    let set = listed("the variables that are set", "no variable is set", &names);
    PipelineError::new(source, span, format!("unknown variable `{name}`{}", did_you_mean(name, &names)))
        .help(format!("give its value with --set {name}=…; {set}"))
}

fn literal(value: &str) -> Vec<Token> {
    let unsigned = value.strip_prefix('-').unwrap_or(value);
    // `01` is a subject's label, not the number one.
    let label = unsigned.len() > 1 && unsigned.starts_with('0') && !unsigned.starts_with("0.");
    let digit = unsigned.starts_with(|c: char| c.is_ascii_digit());
    let number = digit && !label && unsigned.parse::<f64>().is_ok();
    if number {
        let sign = value.starts_with('-').then_some(Token::Minus);
        return sign.into_iter().chain([Token::Number(unsigned.into(), false)]).collect();
    }
    if ["true", "false", "null"].contains(&value.to_lowercase().as_str()) {
        return vec![Token::make_keyword(value)];
    }
    vec![Token::SingleQuotedString(value.into())]
}

fn fill(source: &Source, span: Span, text: &str, variables: &Variables) -> Result<String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        filled.push_str(before);
        match after.split_once('}') {
            Some((name, tail)) if is_variable(name) => {
                let value = variables.get(name).ok_or_else(|| {
                    let written = format!("${{{name}}}");
                    let found = source.slice(span).find(&written).map(|at| span.start + at);
                    let place = found.map_or(span, |start| Span { start, end: start + written.len() });
                    unknown(source, place, name, variables)
                })?;
                filled.push_str(value);
                rest = tail;
            }
            _ => {
                filled.push_str("${");
                rest = after;
            }
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn filled(text: &str, set: &[(&str, &str)]) -> Result<String> {
        let variables = set.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let tokens = tokens(&Source::new("f.vf", text), &variables)?;
        Ok(tokens.iter().map(|t| t.token.to_string()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_variable_becomes_a_literal() {
        let set = [
            ("n", "-3.5"),
            ("dir", "it's"),
            ("on", "true"),
            ("version", "1.2.3"),
            ("inf", "inf"),
            ("s", "01"),
        ];
        assert_eq!(
            filled("SELECT $n, $dir, $on, $version, $inf, $s, $1 -- $x\n", &set).unwrap(),
            "SELECT - 3.5 , 'it's' , true , '1.2.3' , 'inf' , '01' , $1"
        );
    }

    #[test]
    fn strings_are_filled_only_where_braces_say_so() {
        let set = [("dir", "out")];
        assert_eq!(
            filled("'$dir ${dir}/{subject} ${dir' '${1}'", &set).unwrap(),
            "'$dir out/{subject} ${dir' '${1}'"
        );
        let e = filled("SELECT 'a/${dirr}/b'", &set).unwrap_err();
        assert_eq!(e.column(), 11);
        assert!(e.message().contains("did you mean `dir`?"), "{e}");
    }

    #[test]
    fn an_unknown_variable_answers_with_what_is_set() {
        let e = filled("SELECT $subject", &[]).unwrap_err();
        assert_eq!((e.line(), e.column()), (1, 8));
        assert!(e.help_text().unwrap().contains("--set subject="), "{e}");
    }
}
