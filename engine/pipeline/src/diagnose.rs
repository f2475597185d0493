//! DataFusion's errors, with a caret and names that would be right.

use crate::{
    error::{PipelineError, Result, did_you_mean, listed},
    relation::OperatorFailure,
    source::Span,
    statement::Statement,
    variables::{lower_first, raw_tokens},
};
use datafusion::{
    common::{Column, SchemaError},
    error::DataFusionError,
    sql::sqlparser::tokenizer::{Location, Span as TokenSpan, Token, TokenWithSpan},
};
use voxelflow_dataset::StageError;

/// Names that a statement could have meant.
#[derive(Debug, Default)]
pub(crate) struct KnownNames {
    pub(crate) tables: Vec<String>,
    pub(crate) functions: Vec<String>,
    pub(crate) operators: Vec<String>,
    pub(crate) models: Vec<String>,
}

/// What DataFusion refused, at its place in the statement.
pub(crate) fn diagnose(statement: &Statement, known: &KnownNames, error: DataFusionError) -> PipelineError {
    let (root, reported) = root(&error);
    let place = reported.and_then(|span| statement.source.span(span));
    let report = match root {
        DataFusionError::SchemaError(e, _) => schema_error(statement, place, e),
        DataFusionError::External(e) => match e.downcast_ref::<OperatorFailure>() {
            Some(failure) => {
                let place = failure.place(&statement.source).or(place);
                refused(statement, place, &failure.error)
            }
            None => {
                let text = root.message();
                plain(statement, place.or_else(|| called(statement, known, &text)), &text)
            }
        },
        DataFusionError::Plan(text) => plan_error(statement, place, known, text),
        other => plain(statement, place, &other.message()),
    };
    let report = if is_input(root) { report } else { report.not_input() };
    report.caused_by(error)
}

/// Where the function is called that a message begins with, as in `encode: its second argument is …`.
fn called(statement: &Statement, known: &KnownNames, text: &str) -> Option<Span> {
    let (name, _) = text.split_once(": ")?;
    let function = known.functions.iter().find(|function| *function == name)?;
    locate(statement, function)
}

/// What somebody else than the planner finds wrong with a statement, at `place` or at its first word: `said`, of which what
/// follows its first line or `; ` is help.
pub fn refusal(statement: &Statement, place: Option<Span>, said: &str) -> PipelineError {
    plain(statement, place, said)
}

/// What a stage refused.
pub(crate) fn refused(statement: &Statement, place: Option<Span>, error: &StageError) -> PipelineError {
    plain(statement, place, &error.to_string())
}

fn is_input(root: &DataFusionError) -> bool {
    !matches!(
        root,
        DataFusionError::Internal(_)
            | DataFusionError::IoError(_)
            | DataFusionError::ObjectStore(_)
            | DataFusionError::ResourcesExhausted(_)
            | DataFusionError::ExecutionJoin(_)
    )
}

/// The innermost error and the first place that one of its wrappers names.
fn root(error: &DataFusionError) -> (&DataFusionError, Option<TokenSpan>) {
    let (mut error, mut place) = (error, None);
    loop {
        error = match error {
            DataFusionError::Context(_, inner) => inner,
            DataFusionError::Diagnostic(diagnostic, inner) => {
                let span = diagnostic.span.map(|span| {
                    let at = |l: datafusion::common::Location| Location::new(l.line, l.column);
                    TokenSpan::new(at(span.start), at(span.end))
                });
                place = place.or(span);
                inner
            }
            DataFusionError::Collection(all) => match all.first() {
                Some(first) => first,
                None => return (error, place),
            },
            DataFusionError::Shared(inner) => inner,
            DataFusionError::External(inner) => match inner.downcast_ref::<DataFusionError>() {
                Some(inner) => inner,
                None => return (error, place),
            },
            _ => return (error, place),
        };
    }
}

fn schema_error(statement: &Statement, place: Option<Span>, error: &SchemaError) -> PipelineError {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let place = place.or_else(|| locate(statement, &field.name));
            let columns = column_names(valid_fields);
            let of = field.relation.as_ref().map(|r| format!(" of `{r}`")).unwrap_or_default();
            let near = did_you_mean(&field.name, &columns);
            at(statement, place, format!("unknown column `{}`{of}{near}", field.name)).help(listed(
                "the columns",
                "there are no columns here",
                &columns,
            ))
        }
        SchemaError::AmbiguousReference { field } => {
            let place = place.or_else(|| locate(statement, &field.name));
            at(statement, place, format!("column `{}` is in more than one table", field.name))
                .help(format!("write which one: table.{}", field.name))
        }
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => {
            let place = place.or_else(|| locate(statement, name));
            plain(statement, place, &error.to_string())
        }
    }
}

/// Names without their table where that is clear.
fn column_names(fields: &[Column]) -> Vec<String> {
    let clear = |c: &Column| fields.iter().filter(|o| o.name == c.name).count() == 1;
    fields.iter().map(|c| if clear(c) { c.name.clone() } else { c.flat_name() }).collect()
}

fn plan_error(statement: &Statement, place: Option<Span>, known: &KnownNames, text: &str) -> PipelineError {
    if let Some(name) = between(text, "table '", "' not found") {
        let name = name.rsplit('.').next().unwrap_or(name);
        let place = place.or_else(|| locate(statement, name));
        let near = did_you_mean(name, &known.tables);
        let help = if known.models.iter().any(|m| m == name) {
            format!("`{name}` is a model; a query reads tables")
        } else {
            listed("the tables", "there are no tables yet: CREATE EXTERNAL TABLE makes one", &known.tables)
        };
        return at(statement, place, format!("unknown table `{name}`{near}")).help(help);
    }
    if let Some(name) = between(text, "Invalid function '", "'") {
        let place = place.or_else(|| locate(statement, name));
        let near = did_you_mean(name, &known.functions);
        let e = at(statement, place, format!("unknown function `{name}`{near}"));
        return if known.operators.iter().any(|o| o == name) {
            e.help(format!("{name} makes a table of a table: write FROM {name}(table, …)"))
        } else {
            e
        };
    }
    plain(statement, place, text)
}

fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(name, _)| name)
}

/// A message as it is; what follows its first line or `; ` is help.
fn plain(statement: &Statement, place: Option<Span>, text: &str) -> PipelineError {
    let text = text.trim();
    let text = text.strip_prefix("Schema error: ").unwrap_or(text);
    let text = text.strip_prefix("Error during planning: ").unwrap_or(text);
    let line_end = text.find('\n').map(|at| (at, 1));
    let clause_end = text.find("; ").map(|at| (at, 2));
    let cut = [line_end, clause_end].into_iter().flatten().min();
    let (message, help) = match cut {
        Some((at, skip)) => (text.get(..at).unwrap_or(text), text.get(at + skip..)),
        None => (text, None),
    };
    let e = at(statement, place, lower_first(message.trim_end_matches('.')));
    match help.map(str::trim).filter(|h| !h.is_empty()) {
        Some(help) => e.help(help),
        None => e,
    }
}

fn at(statement: &Statement, place: Option<Span>, message: String) -> PipelineError {
    let place = place.filter(|p| p.start >= statement.span.start && p.end <= statement.span.end);
    PipelineError::new(&statement.source, place.unwrap_or_else(|| first_word(statement)), message)
}

fn first_word(statement: &Statement) -> Span {
    let length = statement.text.find(|c: char| !c.is_alphanumeric()).unwrap_or(statement.text.len());
    Span { start: statement.span.start, end: statement.span.start + length }
}

/// Where a name first stands in a statement.
pub(crate) fn locate(statement: &Statement, name: &str) -> Option<Span> {
    tokens_of(statement).ok()?.iter().find_map(|token| match &token.token {
        Token::Word(word) if word.value.eq_ignore_ascii_case(name) => statement.source.span(token.span),
        _ => None,
    })
}

/// The tokens of a statement as they are written.
pub(crate) fn tokens_of(statement: &Statement) -> Result<Vec<TokenWithSpan>> {
    let mut tokens = raw_tokens(&statement.source)?;
    tokens.retain(|token| {
        let span = statement.source.span(token.span);
        span.is_some_and(|span| span.start >= statement.span.start && span.end <= statement.span.end)
    });
    Ok(tokens)
}
