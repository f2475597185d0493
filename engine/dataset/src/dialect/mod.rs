//! What of SQL is understood: whatever is not is refused at its place, nothing is passed over.
//!
//! sqlparser reads the words of many databases, and DataFusion's planner passes over those that it does not know. So
//! statements are looked at between the two. Nodes are taken apart field by field, without `..`: a field that a new
//! version of sqlparser brings does not compile until it is decided here. Of alternatives those are named that are
//! understood.
//!
//! A few that DataFusion lacks are put in other words: `FETCH FIRST`, `MINUS`, `SEMI JOIN`, `FROM t` alone, windows by
//! name.

mod expressions;
mod precedence;
mod query;
mod relations;
mod statements;
mod windows;

use datafusion::{
    error::DataFusionError,
    execution::SessionState,
    sql::{
        parser::{
            CopyToSource, CopyToStatement, ExplainStatement, ResetStatement, Statement as SqlStatement,
        },
        sqlparser::{
            ast::{Expr, Query, Select, Statement, TableFactor, VisitMut, VisitorMut},
            dialect::GenericDialect,
            parser::ParserError,
            tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer, Word},
        },
    },
};
use std::{fmt, ops::ControlFlow};

/// Result of this module.
type Result<T, E = Refusal> = std::result::Result<T, E>;

/// A part of a statement that is not understood.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// What it is.
    pub message: String,
    /// What to do instead.
    pub help: String,
    /// Where it stands, as sqlparser counts.
    pub span: Span,
}

impl Refusal {
    /// What the parser says of a text that it cannot read, with the place that it names.
    fn of_parser(text: &str, error: &ParserError) -> Self {
        let said = match error {
            ParserError::TokenizerError(said) | ParserError::ParserError(said) => said.as_str(),
            ParserError::RecursionLimitExceeded => "the statement is nested too deeply",
        };
        let (message, place) = match said.rsplit_once(" at Line: ") {
            Some((message, place)) => (message, place.split_once(", Column: ")),
            None => (said, None),
        };
        let place = place.and_then(|(line, column)| {
            Some(Location { line: line.parse().ok()?, column: column.trim().parse().ok()? })
        });
        let last = (text.lines().count().max(1), text.lines().last().map_or(0, |line| line.chars().count()));
        let place = place.unwrap_or(Location { line: last.0 as u64, column: last.1 as u64 + 1 });
        let token = tokens(text).into_iter().find(|token| token.span.start == place);
        let span = token.map_or(Span::new(place, place), |token| token.span);
        Self { message: message.to_owned(), help: String::new(), span }
    }

    /// The refusal with the line of `text` at which it stands, and a caret.
    pub fn within(&self, text: &str) -> String {
        let Refusal { message, help, span } = self;
        let number = usize::try_from(span.start.line).unwrap_or(1).max(1);
        let line = text.lines().nth(number - 1).unwrap_or_default();
        let indent = usize::try_from(span.start.column).unwrap_or(1).saturating_sub(1);
        let indent: String = line.chars().take(indent).map(|c| if c == '\t' { c } else { ' ' }).collect();
        let same_line = span.end.line == span.start.line;
        let width = span.end.column.saturating_sub(span.start.column).max(1);
        let caret = "^".repeat(if same_line { usize::try_from(width).unwrap_or(1) } else { 1 });
        let margin = " ".repeat(number.to_string().len());
        let help = if help.is_empty() { String::new() } else { format!("; {help}") };
        format!("{message}{help}\n {margin} |\n {number} | {line}\n {margin} | {indent}{caret}")
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.help)
    }
}

/// Refuses what is not understood of `statement`, which was parsed of `tokens`, and puts some of the rest in DataFusion's
/// words. `is_scalar` says which functions are of single rows.
///
/// # Errors
/// The first part that is not understood.
pub fn admit(
    statement: &mut SqlStatement,
    tokens: &[TokenWithSpan],
    is_scalar: &dyn Fn(&str) -> bool,
) -> Result<()> {
    let mut admission = Admission { tokens, is_scalar };
    admission.admit(statement)
}

/// Parses one statement.
///
/// # Errors
/// A text that is no statement.
pub fn parse(text: &str, state: &SessionState) -> Result<SqlStatement> {
    let parsed = state.sql_to_statement(text, &state.config_options().sql_parser.dialect);
    parsed.map_err(|error| match error.find_root() {
        DataFusionError::SQL(error, _) => Refusal::of_parser(text, error),
        other => Refusal::of_parser(text, &ParserError::ParserError(other.message().into_owned())),
    })
}

/// The tokens of `text`, without white space and comments; none of a text that has no tokens of SQL.
pub fn tokens(text: &str) -> Vec<TokenWithSpan> {
    let mut tokens = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location().unwrap_or_default();
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF));
    tokens
}

/// Looks through a statement.
struct Admission<'a> {
    tokens: &'a [TokenWithSpan],
    is_scalar: &'a dyn Fn(&str) -> bool,
}

impl Admission<'_> {
    fn admit(&mut self, statement: &mut SqlStatement) -> Result<()> {
        match statement {
            SqlStatement::Statement(statement) => self.look(statement.as_mut()),
            SqlStatement::CreateExternalTable(table) => self.external_table(table),
            SqlStatement::CopyTo(CopyToStatement {
                source,
                target: _,
                partitioned_by: _,
                stored_as: _,
                options: _,
            }) => match source {
                CopyToSource::Query(query) => self.look(query.as_mut()),
                CopyToSource::Relation(_) => Ok(()),
            },
            SqlStatement::Explain(ExplainStatement { options: _, statement }) => self.admit(statement),
            SqlStatement::Reset(ResetStatement::Variable(_)) => Ok(()),
        }
    }

    fn look<V: VisitMut>(&mut self, node: &mut V) -> Result<()> {
        match node.visit(self) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(refusal) => Err(refusal),
        }
    }

    /// Refuses `words`, if they are there: the first of them behind `after`.
    fn without(&self, there: bool, words: &str, after: Span, help: &str) -> Result<()> {
        if there { Err(self.refusal(words, after, help)) } else { Ok(()) }
    }

    /// The refusal of `words`, which stand behind `after`.
    fn refusal(&self, words: &str, after: Span, help: &str) -> Refusal {
        let message = format!("{words} is not understood");
        Refusal { message, help: help.into(), span: self.place(words, after) }
    }

    /// Where `words` stand behind `after`, or else anywhere, or else the whole statement.
    fn place(&self, words: &str, after: Span) -> Span {
        let words: Vec<&str> = words.split(' ').collect();
        let begins = |at: &usize| {
            let found = self.tokens[*at..].iter().zip(&words);
            self.tokens.len() - at >= words.len() && found.clone().all(|(token, word)| is_word(token, word))
        };
        let behind = self.tokens.iter().position(|token| token.span.start >= after.end).unwrap_or_default();
        let at = (behind..self.tokens.len()).find(begins).or_else(|| (0..self.tokens.len()).find(begins));
        let found = match at {
            Some(at) => &self.tokens[at..at + words.len()],
            None => self.tokens,
        };
        Span::union_iter(found.iter().map(|token| token.span))
    }

    /// `span`, or that of the whole statement where sqlparser knows none.
    fn known(&self, span: Span) -> Span {
        if span.start.line > 0 { span } else { Span::union_iter(self.tokens.iter().map(|token| token.span)) }
    }
}

fn is_word(token: &TokenWithSpan, word: &str) -> bool {
    matches!(&token.token, Token::Word(Word { value, quote_style: None, .. }) if value.eq_ignore_ascii_case(word))
}

impl VisitorMut for Admission<'_> {
    type Break = Refusal;

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<Refusal> {
        flow(self.statement(statement))
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Refusal> {
        flow(self.query(query))
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Refusal> {
        flow(self.windows_of_order(query))
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Refusal> {
        flow(self.select(select))
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Refusal> {
        flow(self.windows_of_select(select))
    }

    fn pre_visit_table_factor(&mut self, relation: &mut TableFactor) -> ControlFlow<Refusal> {
        flow(self.relation(relation))
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Refusal> {
        flow(self.in_other_words(expr).and_then(|()| self.expression(expr)))
    }
}

fn flow(result: Result<()>) -> ControlFlow<Refusal> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(refusal) => ControlFlow::Break(refusal),
    }
}
