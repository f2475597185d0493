//! Statements: which there are, and what those that define something may say.

use super::{Admission, Refusal, Result};
use datafusion::sql::{
    parser::CreateExternalTable,
    sqlparser::{
        ast::{
            ColumnDef, ColumnOption, ColumnOptionDef, CreateTable, CreateTableOptions, CreateView,
            DescribeAlias, ObjectType, Set, Spanned, Statement, TableConstraint,
        },
        tokenizer::Span,
    },
};

/// Formats whose tables have the columns that are given; those of others say themselves what they have.
const GIVEN_COLUMNS: [&str; 5] = ["ARROW", "CSV", "JSON", "NDJSON", "PARQUET"];

impl Admission<'_> {
    pub(super) fn statement(&self, statement: &Statement) -> Result<()> {
        let start = Span::empty();
        match statement {
            Statement::Query(_) | Statement::Deallocate { .. } => Ok(()),
            // DataFusion's planner takes these apart itself, and refuses what it does not do.
            Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)
            | Statement::Execute { .. }
            | Statement::ShowVariable { .. }
            | Statement::ShowTables { .. }
            | Statement::ShowColumns { .. }
            | Statement::ShowCreate { .. }
            | Statement::ShowFunctions { .. }
            | Statement::Truncate(_) => Ok(()),
            Statement::Prepare { name: _, data_types: _, statement: _ } => Ok(()),
            Statement::CreateTable(table) => self.table(table),
            Statement::CreateView(view) => self.view(view),
            Statement::Drop {
                object_type,
                if_exists: _,
                names,
                cascade,
                restrict,
                purge,
                temporary,
                table,
            } => {
                self.without(*cascade, "CASCADE", start, "drop what depends on it before")?;
                self.without(*restrict, "RESTRICT", start, "leave it out")?;
                self.without(*purge, "PURGE", start, "leave it out")?;
                self.without(*temporary, "TEMPORARY", start, "leave it out")?;
                self.without(table.is_some(), "ON", start, "leave it out")?;
                if let [_, second, ..] = names.as_slice() {
                    let message = "more than one name behind DROP is not understood".into();
                    let help = "write a DROP for each".into();
                    return Err(Refusal { message, help, span: self.known(second.span()) });
                }
                let is_known =
                    matches!(object_type, ObjectType::Table | ObjectType::View | ObjectType::Schema);
                let words = format!("DROP {object_type}");
                self.without(!is_known, &words, start, "what can be dropped are tables, views and schemas")
            }
            Statement::Explain {
                describe_alias,
                analyze: _,
                verbose: _,
                query_plan,
                estimate,
                statement: _,
                format: _,
                options,
            } => {
                let is_explain = matches!(describe_alias, DescribeAlias::Explain);
                self.without(*query_plan, "QUERY PLAN", start, "write EXPLAIN")?;
                self.without(*estimate, "ESTIMATE", start, "write EXPLAIN")?;
                self.without(
                    is_explain && options.is_some(),
                    "EXPLAIN",
                    start,
                    "write EXPLAIN or EXPLAIN VERBOSE",
                )
            }
            Statement::ExplainTable {
                describe_alias: _,
                hive_format,
                has_table_keyword: _,
                table_name: _,
            } => {
                self.without(hive_format.is_some(), "DESCRIBE", start, "write DESCRIBE and the table's name")
            }
            Statement::CreateSchema {
                schema_name: _,
                if_not_exists: _,
                with,
                options,
                default_collate_spec,
                clone,
            } => {
                self.without(with.is_some(), "WITH", start, "leave it out")?;
                self.without(options.is_some(), "OPTIONS", start, "leave it out")?;
                self.without(default_collate_spec.is_some(), "DEFAULT COLLATE", start, "leave it out")?;
                self.without(clone.is_some(), "CLONE", start, "leave it out")
            }
            Statement::Set(set) => self.setting(set),
            other => {
                let message = format!("{} is not understood", first_words(&other.to_string()));
                let help =
                    "a statement is a query, CREATE, DROP, INSERT, COPY, SET, SHOW, DESCRIBE or EXPLAIN"
                        .into();
                Err(Refusal { message, help, span: self.known(Span::empty()) })
            }
        }
    }

    fn setting(&self, set: &Set) -> Result<()> {
        let start = Span::empty();
        match set {
            Set::SingleAssignment { scope, hivevar, variable: _, values } => {
                let words = scope.as_ref().map(ToString::to_string).unwrap_or_default();
                self.without(scope.is_some(), words.trim(), start, "write SET name = value")?;
                self.without(*hivevar, "HIVEVAR", start, "write SET name = value")?;
                self.without(values.len() != 1, "SET", start, "a setting has one value: SET name = value")
            }
            Set::SetTimeZone { local, value: _ } => {
                self.without(*local, "LOCAL", start, "write SET TIME ZONE = '+00:00'")
            }
            Set::ParenthesizedAssignments { .. }
            | Set::MultipleAssignments { .. }
            | Set::SetSessionAuthorization(_)
            | Set::SetSessionParam(_)
            | Set::SetRole { .. }
            | Set::SetNames { .. }
            | Set::SetNamesDefault {}
            | Set::SetTransaction { .. } => Err(self.refusal("SET", start, "write SET name = value")),
        }
    }

    /// What else a `CREATE TABLE` may say DataFusion's planner takes apart itself, field by field.
    fn table(&self, table: &CreateTable) -> Result<()> {
        let CreateTable { name, columns, constraints, table_options, query, .. } = table;
        let named = name.span();
        self.columns(columns)?;
        self.constraints(constraints, named)?;
        let options = !matches!(table_options, CreateTableOptions::None);
        self.without(
            options,
            "WITH",
            named,
            "a table of a query has no options: write CREATE TABLE name AS SELECT …",
        )?;
        let empty = columns.is_empty() && query.is_none();
        self.without(empty, "CREATE TABLE", Span::empty(), "write CREATE TABLE name AS SELECT …")
    }

    fn view(&self, view: &CreateView) -> Result<()> {
        let CreateView {
            or_alter,
            or_replace: _,
            materialized,
            secure,
            name,
            name_before_not_exists: _,
            columns: _,
            query: _,
            options,
            cluster_by,
            comment,
            with_no_schema_binding,
            if_not_exists,
            temporary,
            copy_grants,
            to,
            params,
        } = view;
        let (start, named) = (Span::empty(), name.span());
        self.without(*or_alter, "OR ALTER", start, "write CREATE OR REPLACE VIEW")?;
        self.without(*materialized, "MATERIALIZED", start, "write CREATE TABLE … AS, which keeps its rows")?;
        self.without(*secure, "SECURE", start, "leave it out")?;
        self.without(*if_not_exists, "IF NOT EXISTS", start, "write CREATE OR REPLACE VIEW")?;
        self.without(*temporary, "TEMPORARY", start, "leave it out: a view is of its session")?;
        let options = !matches!(options, CreateTableOptions::None);
        self.without(options, "WITH", named, "leave it out")?;
        self.without(!cluster_by.is_empty(), "CLUSTER BY", named, "leave it out")?;
        self.without(comment.is_some(), "COMMENT", named, "leave it out")?;
        self.without(*with_no_schema_binding, "WITH NO SCHEMA BINDING", named, "leave it out")?;
        self.without(*copy_grants, "COPY GRANTS", named, "leave it out")?;
        self.without(to.is_some(), "TO", named, "leave it out")?;
        self.without(params.is_some(), "CREATE", start, "write CREATE VIEW name AS SELECT …")
    }

    pub(super) fn external_table(&self, table: &CreateExternalTable) -> Result<()> {
        let CreateExternalTable {
            name,
            columns,
            file_type,
            locations: _,
            table_partition_cols,
            order_exprs,
            if_not_exists: _,
            or_replace: _,
            temporary,
            unbounded,
            options: _,
            constraints,
        } = table;
        let (start, named) = (Span::empty(), name.span());
        self.without(*temporary, "TEMPORARY", start, "leave it out: a table over files is of its session")?;
        self.without(*unbounded, "UNBOUNDED", start, "files have an end: leave it out")?;
        self.columns(columns)?;
        self.constraints(constraints, named)?;
        if GIVEN_COLUMNS.contains(&file_type.to_uppercase().as_str()) {
            return Ok(());
        }
        let help = format!("tables STORED AS {file_type} know their columns and their order: leave it out");
        if let Some(column) = columns.first() {
            let message = "columns of such a table are not understood".into();
            return Err(Refusal { message, help, span: self.known(column.name.span) });
        }
        self.without(!table_partition_cols.is_empty(), "PARTITIONED BY", named, &help)?;
        self.without(!order_exprs.is_empty(), "WITH ORDER", named, &help)
    }

    fn columns(&self, columns: &[ColumnDef]) -> Result<()> {
        for ColumnDef { name, data_type: _, options } in columns {
            for ColumnOptionDef { name: _, option } in options {
                match option {
                    ColumnOption::Null | ColumnOption::NotNull => {}
                    other => {
                        let message = format!("{} is not understood", first_words(&other.to_string()));
                        let help =
                            "a column has a name, a type, and may be NOT NULL; values are given by SELECT"
                                .into();
                        let words = other.to_string();
                        let word = words.split([' ', '(']).next().unwrap_or_default();
                        return Err(Refusal { message, help, span: self.place(word, name.span) });
                    }
                }
            }
        }
        Ok(())
    }

    fn constraints(&self, constraints: &[TableConstraint], after: Span) -> Result<()> {
        let Some(constraint) = constraints.first() else { return Ok(()) };
        let message = format!("{} is not understood", first_words(&constraint.to_string()));
        let help =
            "rows are not checked when they are written: look with SELECT … HAVING count(*) > 1".into();
        let words = constraint.to_string();
        let word = words.split([' ', '(']).next().unwrap_or_default();
        Err(Refusal { message, help, span: self.place(word, after) })
    }
}

/// The words in capitals that a text begins with.
fn first_words(text: &str) -> String {
    let capitals = |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let words: Vec<&str> = text.split([' ', '(', '\n']).take_while(capitals).take(3).collect();
    if words.is_empty() { "this".to_owned() } else { words.join(" ") }
}
