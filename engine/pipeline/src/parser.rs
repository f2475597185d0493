//! Text → statements. Our few statements are parsed here, with sqlparser's tokens and expressions; all
//! others are DataFusion's.

use crate::{
    error::{PipelineError, Result, did_you_mean, nearest},
    options::{ident_name, named_options},
    relation::select_all_from,
    source::{Source, Span},
    statement::{Explain, ExportMaps, Name, NamedOptions, Relation, Report, Statement, StatementKind, Train},
    variables::{Variables, lower_first, tokens},
};
use datafusion::{
    error::DataFusionError,
    sql::{
        parser::{DFParser, DFParserBuilder, Statement as SqlStatement},
        sqlparser::{
            ast,
            parser::ParserError,
            tokenizer::{Token, TokenWithSpan, Word},
        },
    },
};
use std::sync::Arc;

/// Words that start a statement: ours, then the usual ones of SQL.
const STATEMENTS: [&str; 22] = [
    "TRAIN",
    "EXPORT",
    "REPORT",
    "SELECT",
    "WITH",
    "CREATE",
    "EXPLAIN",
    "SET",
    "RESET",
    "INSERT",
    "COPY",
    "DROP",
    "DESCRIBE",
    "SHOW",
    "VALUES",
    "DELETE",
    "UPDATE",
    "TRUNCATE",
    "ANALYZE",
    "PREPARE",
    "EXECUTE",
    "DEALLOCATE",
];

/// Splits a pipeline file into its statements.
///
/// # Errors
/// The first thing that is not a statement, an option or a known variable, at its place.
pub fn parse(source: &Arc<Source>, variables: &Variables) -> Result<Vec<Statement>> {
    let tokens = tokens(source, variables)?;
    let statements = tokens.split(|t| t.token == Token::SemiColon).filter(|tokens| !tokens.is_empty());
    statements.map(|tokens| StatementParser::new(source, tokens)?.statement()).collect()
}

struct StatementParser<'a> {
    source: &'a Arc<Source>,
    tokens: &'a [TokenWithSpan],
    span: Span,
    sql: DFParser<'static>,
}

impl<'a> StatementParser<'a> {
    fn new(source: &'a Arc<Source>, tokens: &'a [TokenWithSpan]) -> Result<Self> {
        let spans = tokens.iter().filter_map(|t| source.span(t.span));
        let span = spans.reduce(Span::to).unwrap_or_default();
        let sql = sql_parser(tokens).map_err(|e| from_sql_error(source, span, tokens, e))?;
        Ok(Self { source, tokens, span, sql })
    }

    fn statement(mut self) -> Result<Statement> {
        let kind = self.kind()?;
        self.expect_end()?;
        Ok(Statement {
            kind,
            span: self.span,
            text: self.source.slice(self.span).to_string(),
            source: Arc::clone(self.source),
            normalised: crate::key::normalise(self.tokens),
        })
    }

    fn kind(&mut self) -> Result<StatementKind> {
        if self.take("TRAIN") {
            return self.train().map(|train| StatementKind::Train(Box::new(train)));
        }
        if self.take("EXPORT") {
            return self.export().map(StatementKind::ExportMaps);
        }
        if self.take("REPORT") {
            let path = self.string("the report's path")?;
            return Ok(StatementKind::Report(Report { path }));
        }
        if self.at(0, "EXPLAIN") {
            return self.explain();
        }
        self.sql_statement()
    }

    fn sql_statement(&mut self) -> Result<StatementKind> {
        let first = self.sql.parser.index();
        match self.sql.parse_statement() {
            Ok(statement) => Ok(StatementKind::Sql(Box::new(statement))),
            Err(e) => Err(self.unknown_statement(first).unwrap_or_else(|| self.sql_error(e))),
        }
    }

    /// The error for a first word that starts no statement.
    fn unknown_statement(&self, first: usize) -> Option<PipelineError> {
        let token = self.tokens.get(first)?;
        let Token::Word(Word { value, quote_style: None, .. }) = &token.token else { return None };
        let upper = value.to_uppercase();
        if STATEMENTS.contains(&upper.as_str()) {
            return None;
        }
        let known = STATEMENTS.map(String::from);
        // sqlparser knows more words than we list; its own message is better for those.
        let known_to_sql = ast_keyword_starts_statement(&upper);
        let nearest = did_you_mean(&upper, &known);
        if known_to_sql && nearest.is_empty() {
            return None;
        }
        let message = format!("unknown statement `{value}`{nearest}");
        let help = "a statement starts with TRAIN MODEL, EXPORT MAPS, REPORT, or a word of SQL such as SELECT, \
                    CREATE, EXPLAIN or SET";
        Some(PipelineError::new(self.source, self.place(token), message).help(help))
    }

    /// `EXPLAIN [VERBOSE] …`, ours where DataFusion has no answer.
    fn explain(&mut self) -> Result<StatementKind> {
        let verbose = self.at(1, "VERBOSE");
        let inner = if verbose { 2 } else { 1 };
        let ours = ["TRAIN", "EXPORT", "REPORT"].iter().any(|word| self.at(inner, word));
        if ours || self.at(inner, "CREATE") {
            let start = self.sql.parser.index();
            self.skip(inner);
            let statement = self.kind()?;
            let table_as = matches!(&statement, StatementKind::Sql(sql) if table_query(sql).is_some());
            if ours || table_as {
                return Ok(StatementKind::Explain(Explain { verbose, statement: Box::new(statement) }));
            }
            while self.sql.parser.index() > start {
                self.sql.parser.prev_token();
            }
        }
        self.sql_statement()
    }

    /// After `TRAIN`.
    fn train(&mut self) -> Result<Train> {
        self.expect("MODEL")?;
        let model = self.name("the model's name")?;
        self.expect("USING")?;
        let stage = self.name("the stage's name")?;
        let options = self.options(&stage.text)?;
        self.expect("ON")?;
        let train = self.relation()?;
        let (mut features, mut validation, mut per, mut settings) = (None, None, None, None);
        loop {
            let clause = self.next_place();
            let twice = if self.take("VALIDATE") {
                self.expect("ON")?;
                validation.replace(self.relation()?).is_some()
            } else if self.take("FEATURES") {
                features.replace(self.relation()?).is_some()
            } else if self.take("PER") {
                per.replace(self.name("a column")?).is_some()
            } else if self.take("WITH") {
                let given = self.options("TRAIN")?;
                settings.replace(given).is_some()
            } else if self.sql.parser.peek_token_ref().token == Token::EOF {
                break;
            } else {
                return Err(self.expected(&["FEATURES", "VALIDATE ON", "PER", "WITH"]));
            };
            if twice {
                let message = format!("{} is given twice", self.source.slice(clause).to_uppercase());
                return Err(PipelineError::new(self.source, clause, message).help("give it once"));
            }
        }
        let settings = settings.unwrap_or_default();
        Ok(Train { model, stage, options, train, features, validation, per, settings })
    }

    /// After `EXPORT`.
    fn export(&mut self) -> Result<ExportMaps> {
        self.expect("MAPS")?;
        self.expect("FROM")?;
        let source = self.relation()?;
        self.expect("TO")?;
        let target = self.string("the path of the maps")?;
        let options = if self.take("WITH") { self.options("EXPORT MAPS")? } else { NamedOptions::default() };
        Ok(ExportMaps { source, target, options })
    }

    /// `(name => value, …)`, or nothing.
    fn options(&mut self, what: &str) -> Result<NamedOptions> {
        let open = self.next_place();
        if !self.sql.parser.consume_token(&Token::LParen) {
            return Ok(NamedOptions::default());
        }
        let args = self.sql.parser.parse_optional_args().map_err(|e| self.parser_error(e))?;
        named_options(self.source, open, what, &args)
    }

    /// `table`, `operator(table, …)` or `(query)`.
    fn relation(&mut self) -> Result<Relation> {
        let start = self.sql.parser.index();
        if self.sql.parser.consume_token(&Token::LParen) {
            if let Token::Word(word) = &self.sql.parser.peek_token_ref().token
                && self.sql.parser.peek_nth_token_ref(1).token == Token::RParen
            {
                let message = format!("`({word})` is not a query");
                let help = format!("write {word}, or (SELECT * FROM {word})");
                return Err(PipelineError::new(self.source, self.next_place(), message).help(help));
            }
            let query = self.sql.parser.parse_query().map_err(|e| self.parser_error(e))?;
            self.sql.parser.expect_token(&Token::RParen).map_err(|e| self.parser_error(e))?;
            return Ok(Relation { query, name: None, span: self.span_from(start) });
        }
        let object = self.sql.parser.parse_object_name(false).map_err(|e| self.parser_error(e))?;
        let end = self.past_arguments();
        while self.sql.parser.index() < end {
            self.sql.parser.advance_token();
        }
        // Parsed apart from what follows, else `VALIDATE` and `PER` would be read as the table's alias.
        let tokens = self.tokens.get(start..end).unwrap_or_default();
        let factor = sql_parser(tokens)
            .and_then(|mut sql| sql.parser.parse_table_factor().map_err(DataFusionError::from_parser))
            .map_err(|e| self.sql_error(e))?;
        let name = match (object.0.as_slice(), end == start + 1) {
            ([ast::ObjectNamePart::Identifier(ident)], true) => Some(ident_name(self.source, ident)),
            _ => None,
        };
        let query = select_all_from(factor).map_err(|e| self.parser_error(e))?;
        Ok(Relation { query, name, span: self.span_from(start) })
    }

    /// Index of the token after the parentheses that start here, or of this token where none start.
    fn past_arguments(&self) -> usize {
        let here = self.sql.parser.index();
        let mut depth = 0usize;
        for (at, token) in self.tokens.iter().enumerate().skip(here) {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen if depth > 0 => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return if at == here { here } else { at + 1 };
            }
        }
        self.tokens.len()
    }

    fn name(&mut self, what: &str) -> Result<Name> {
        match &self.sql.parser.peek_token_ref().token {
            Token::Word(_) => {
                let ident = self.sql.parser.parse_identifier().map_err(|e| self.parser_error(e))?;
                Ok(ident_name(self.source, &ident))
            }
            _ => Err(self.expected(&[what])),
        }
    }

    fn string(&mut self, what: &str) -> Result<Name> {
        let span = self.next_place();
        if let Token::SingleQuotedString(text) = self.sql.parser.peek_token_ref().token.clone() {
            self.sql.parser.advance_token();
            return Ok(Name { text, span });
        }
        let e = self.expected(&[what]);
        Err(if e.help_text().is_none() {
            e.help("a path is written in quotes: 'out/report.html'")
        } else {
            e
        })
    }

    /// True if the `n`th token from here is this word, unquoted.
    fn at(&self, n: usize, word: &str) -> bool {
        matches!(&self.sql.parser.peek_nth_token_ref(n).token,
            Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
    }

    fn take(&mut self, word: &str) -> bool {
        let there = self.at(0, word);
        if there {
            self.sql.parser.advance_token();
        }
        there
    }

    fn expect(&mut self, word: &str) -> Result<()> {
        if self.take(word) { Ok(()) } else { Err(self.expected(&[word])) }
    }

    fn skip(&mut self, n: usize) {
        for _ in 0..n {
            self.sql.parser.advance_token();
        }
    }

    fn expect_end(&self) -> Result<()> {
        match self.sql.parser.peek_token_ref().token {
            Token::EOF => Ok(()),
            _ => Err(self.expected(&["`;` or the end of the file"])),
        }
    }

    /// The error for the next token, where one of `wanted` should be.
    fn expected(&self, wanted: &[&str]) -> PipelineError {
        expected(
            self.source,
            self.next_place(),
            self.sql.parser.peek_token_ref(),
            &wanted.join(" or "),
            wanted,
        )
    }

    fn place(&self, token: &TokenWithSpan) -> Span {
        self.source.span(token.span).unwrap_or_else(|| self.end())
    }

    fn next_place(&self) -> Span {
        self.place(self.sql.parser.peek_token_ref())
    }

    fn end(&self) -> Span {
        Span { start: self.span.end, end: self.span.end }
    }

    fn span_from(&self, start: usize) -> Span {
        let tokens = self.tokens.get(start..self.sql.parser.index()).unwrap_or_default();
        tokens.iter().map(|t| self.place(t)).reduce(Span::to).unwrap_or_else(|| self.end())
    }

    fn parser_error(&self, error: ParserError) -> PipelineError {
        from_parser_error(self.source, self.span, self.tokens, &error)
    }

    fn sql_error(&self, error: DataFusionError) -> PipelineError {
        from_sql_error(self.source, self.span, self.tokens, error)
    }
}

/// The query of `CREATE TABLE … AS query`.
pub(crate) fn table_query(sql: &SqlStatement) -> Option<&ast::Query> {
    let SqlStatement::Statement(statement) = sql else { return None };
    let ast::Statement::CreateTable(table) = statement.as_ref() else { return None };
    table.query.as_deref()
}

fn sql_parser(tokens: &[TokenWithSpan]) -> Result<DFParser<'static>, DataFusionError> {
    DFParserBuilder::new(tokens.to_vec()).build()
}

/// Words that sqlparser starts a statement with and that a pipeline file hardly ever has.
fn ast_keyword_starts_statement(word: &str) -> bool {
    const MORE: [&str; 24] = [
        "ALTER", "ATTACH", "BEGIN", "CACHE", "CALL", "COMMIT", "DECLARE", "DESC", "DISCARD", "FETCH", "FROM",
        "GRANT", "KILL", "LOAD", "LOCK", "MERGE", "MSCK", "PRAGMA", "REVOKE", "ROLLBACK", "START", "TABLE",
        "UNCACHE", "USE",
    ];
    MORE.contains(&word)
}

trait FromParser {
    fn from_parser(error: ParserError) -> Self;
}

impl FromParser for DataFusionError {
    fn from_parser(error: ParserError) -> Self {
        Self::SQL(Box::new(error), None)
    }
}

fn from_sql_error(
    source: &Source,
    statement: Span,
    tokens: &[TokenWithSpan],
    error: DataFusionError,
) -> PipelineError {
    match error.find_root() {
        DataFusionError::SQL(error, _) => from_parser_error(source, statement, tokens, error),
        other => {
            let text = other.message().into_owned();
            from_parser_error(source, statement, tokens, &ParserError::ParserError(text))
        }
    }
}

/// sqlparser writes the place into its message: it is taken out again, to put the caret there.
fn from_parser_error(
    source: &Source,
    statement: Span,
    tokens: &[TokenWithSpan],
    error: &ParserError,
) -> PipelineError {
    let text = match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text.as_str(),
        ParserError::RecursionLimitExceeded => {
            return PipelineError::new(source, statement, "the statement is nested too deeply")
                .help("split it with CREATE VIEW or WITH");
        }
    };
    let (message, place) = match text.rsplit_once(" at Line: ") {
        Some((message, place)) => (message, line_column(place)),
        None => (text, None),
    };
    let offset = place.map(|(line, column)| source.offset(line, column));
    let token =
        offset.and_then(|at| tokens.iter().find(|t| source.span(t.span).is_some_and(|s| s.start == at)));
    let span = match (token, offset) {
        (Some(token), _) => source.span(token.span).unwrap_or(statement),
        (None, Some(at)) => Span { start: at, end: at },
        (None, None) => Span { start: statement.end, end: statement.end },
    };
    match message.strip_prefix("Expected: ").and_then(|m| m.split_once(", found: ")) {
        Some((wanted, _)) => {
            let end = TokenWithSpan::new_eof();
            expected(source, span, token.unwrap_or(&end), wanted, &[wanted])
        }
        None => PipelineError::new(source, span, lower_first(message)),
    }
}

fn line_column(place: &str) -> Option<(u64, u64)> {
    let (line, column) = place.split_once(", Column: ")?;
    Some((line.parse().ok()?, column.trim().parse().ok()?))
}

fn expected(
    source: &Source,
    span: Span,
    found: &TokenWithSpan,
    text: &str,
    wanted: &[&str],
) -> PipelineError {
    let shown = match &found.token {
        Token::EOF => "the statement ends".to_string(),
        token => format!("found `{token}`"),
    };
    let mut message = format!("expected {text}, {shown}");
    let mut help = None;
    if let Token::Word(Word { value, quote_style: None, .. }) = &found.token {
        let upper = value.to_uppercase();
        let words: Vec<String> = wanted
            .iter()
            .flat_map(|w| w.split(' '))
            .filter(|w| !w.is_empty() && w.chars().all(|c| c.is_ascii_uppercase()))
            .map(String::from)
            .collect();
        if let Some(word) = nearest(&upper, &words) {
            message = format!("{message}, did you mean `{word}`?");
        } else if STATEMENTS.contains(&upper.as_str()) && !text.ends_with("statement") {
            help = Some(format!("is a `;` missing before {upper}?"));
        }
    }
    let e = PipelineError::new(source, span, message);
    match help {
        Some(help) => e.help(help),
        None => e,
    }
}
