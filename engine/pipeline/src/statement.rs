//! What a pipeline file says, statement by statement, before any name is looked up.

use crate::source::{Source, Span};
use datafusion::sql::{parser::Statement as SqlStatement, sqlparser::ast};
use serde_json::Value;
use std::sync::Arc;
use voxelflow_dataset::OptionMap;

/// One statement of a pipeline file.
#[derive(Clone, Debug)]
pub struct Statement {
    /// What it asks for.
    pub kind: StatementKind,
    /// Where it stands, without the `;`.
    pub span: Span,
    /// As written, comments and variables included.
    pub text: String,
    pub(crate) source: Arc<Source>,
    pub(crate) normalised: String,
}

impl Statement {
    /// The file that it stands in.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The line that it starts on, from 1.
    pub fn line(&self) -> usize {
        self.source.line_column(self.span.start).0
    }

    /// The statement with comments and white space dropped, unquoted words in lower case and variables
    /// filled in: equal for two texts that ask for the same.
    pub fn normalised(&self) -> &str {
        &self.normalised
    }

    /// The first words, for progress lines and logs, for example `TRAIN MODEL dca`.
    pub fn title(&self) -> String {
        self.kind.title()
    }
}

/// What a statement asks for.
#[derive(Clone, Debug)]
pub enum StatementKind {
    /// `TRAIN MODEL …`
    Train(Box<Train>),
    /// `EXPORT MAPS FROM … TO '…'`
    ExportMaps(ExportMaps),
    /// `REPORT '…'`
    Report(Report),
    /// `EXPLAIN` of a statement that DataFusion cannot explain: `TRAIN`, `EXPORT`, `CREATE TABLE … AS`.
    Explain(Explain),
    /// Everything else, in DataFusion's words.
    Sql(Box<SqlStatement>),
}

impl StatementKind {
    fn title(&self) -> String {
        match self {
            Self::Train(train) => format!("TRAIN MODEL {}", train.model.text),
            Self::ExportMaps(export) => format!("EXPORT MAPS TO '{}'", export.target.text),
            Self::Report(report) => format!("REPORT '{}'", report.path.text),
            Self::Explain(explain) => format!("EXPLAIN {}", explain.statement.title()),
            Self::Sql(sql) => sql_title(sql),
        }
    }
}

fn sql_title(sql: &SqlStatement) -> String {
    match sql {
        SqlStatement::CreateExternalTable(table) => format!("CREATE EXTERNAL TABLE {}", table.name),
        SqlStatement::Statement(statement) => match statement.as_ref() {
            ast::Statement::CreateTable(table) => format!("CREATE TABLE {}", table.name),
            ast::Statement::CreateView(view) => format!("CREATE VIEW {}", view.name),
            other => first_words(&other.to_string()),
        },
        other => first_words(&other.to_string()),
    }
}

fn first_words(text: &str) -> String {
    const SHOWN: usize = 40;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= SHOWN {
        return line;
    }
    line.chars().take(SHOWN - 1).chain(['…']).collect()
}

/// A name or a string and where it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name: lower case unless it was quoted, as tables are named.
    pub text: String,
    /// Where it is written.
    pub span: Span,
}

/// `name => value`.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedOption {
    /// The option's name, in lower case unless it was quoted.
    pub name: String,
    /// Its value: a string, number, boolean, null, an array of those, or an object of those by name.
    pub value: Value,
    /// Where the name is written.
    pub span: Span,
    /// Where the value is written.
    pub value_span: Span,
}

/// Options by name, in the order written; a name is there once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedOptions(pub Vec<NamedOption>);

impl NamedOptions {
    /// As a map, which is what a stage takes.
    pub fn to_map(&self) -> OptionMap {
        self.0.iter().map(|o| (o.name.clone(), o.value.clone())).collect()
    }

    /// The option of that name.
    pub fn get(&self, name: &str) -> Option<&NamedOption> {
        self.0.iter().find(|o| o.name == name)
    }
}

/// Rows that a statement reads: a table, a table operator's result or a query.
#[derive(Clone, Debug)]
pub struct Relation {
    /// The query; for a table `t` it is `SELECT * FROM t`.
    pub query: Box<ast::Query>,
    /// The name alone, where that is all that was written: it may be a model's.
    pub name: Option<Name>,
    /// Where it is written.
    pub span: Span,
}

/// `TRAIN MODEL model USING stage (options) ON train [FEATURES features] [VALIDATE ON validation] [PER column]
/// [WITH (settings)]`.
#[derive(Clone, Debug)]
pub struct Train {
    /// The model's name.
    pub model: Name,
    /// The stage's name.
    pub stage: Name,
    /// Options of the stage.
    pub options: NamedOptions,
    /// Rows to train on.
    pub train: Relation,
    /// What the series are to be explained by.
    pub features: Option<Relation>,
    /// Rows to validate on.
    pub validation: Option<Relation>,
    /// A model for each value of this column.
    pub per: Option<Name>,
    /// Settings of the loop and the gang.
    pub settings: NamedOptions,
}

/// `EXPORT MAPS FROM source TO 'target' [WITH (options)]`.
#[derive(Clone, Debug)]
pub struct ExportMaps {
    /// A table, a query or a model.
    pub source: Relation,
    /// A path, in which `{column}` stands for a key column's value.
    pub target: Name,
    /// `fill`.
    pub options: NamedOptions,
}

/// `REPORT 'path'`.
#[derive(Clone, Debug)]
pub struct Report {
    /// The file to write.
    pub path: Name,
}

/// `EXPLAIN [VERBOSE] statement`.
#[derive(Clone, Debug)]
pub struct Explain {
    /// Show the unoptimised plan too.
    pub verbose: bool,
    /// What is explained.
    pub statement: Box<StatementKind>,
}
