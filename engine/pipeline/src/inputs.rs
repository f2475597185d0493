//! Which tables and models a statement reads.

use crate::{
    error::{PipelineError, Result},
    parser::table_query,
    planner::{Planner, PlannerContext},
    statement::{Statement, StatementKind},
};
use datafusion::{
    error::DataFusionError,
    sql::{
        parser::Statement as SqlStatement,
        resolve::resolve_table_references,
        sqlparser::ast::{
            Ident, ObjectName, Query, Statement as AstStatement, TableFactor, VisitMut, VisitorMut,
        },
    },
};
use std::{collections::BTreeSet, ops::ControlFlow};

/// What a statement reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// Tables and views by name.
    pub tables: BTreeSet<String>,
    /// Models by name.
    pub models: BTreeSet<String>,
    /// Models that are given by their folder or location.
    pub model_folders: BTreeSet<String>,
}

impl Planner {
    /// The tables and models that a statement reads, by the names that it uses (not those of its own common
    /// table expressions).
    ///
    /// # Errors
    /// Unknown table operators and models.
    pub fn inputs(&self, statement: &Statement) -> Result<Inputs> {
        let mut inputs = Inputs::default();
        self.context.collect(statement, &statement.kind, &mut inputs)?;
        Ok(inputs)
    }
}

impl PlannerContext {
    fn collect(&self, statement: &Statement, kind: &StatementKind, inputs: &mut Inputs) -> Result<()> {
        match kind {
            StatementKind::Train(train) => {
                let others = [train.features.as_ref(), train.validation.as_ref()];
                for relation in [&train.train].into_iter().chain(others.into_iter().flatten()) {
                    self.collect_sql(statement, query(&relation.query), inputs)?;
                }
                Ok(())
            }
            StatementKind::ExportMaps(export) => match self.model_source(export)? {
                Some(model) => {
                    inputs.models.insert(model);
                    Ok(())
                }
                None => self.collect_sql(statement, query(&export.source.query), inputs),
            },
            StatementKind::Report(_) => Ok(()),
            StatementKind::Explain(explained) => self.collect(statement, &explained.statement, inputs),
            StatementKind::Sql(sql) => match read_by(sql) {
                Some(sql) => self.collect_sql(statement, sql, inputs),
                None => Ok(()),
            },
        }
    }

    fn collect_sql(&self, statement: &Statement, mut sql: SqlStatement, inputs: &mut Inputs) -> Result<()> {
        let mut rewriter = self.rewriter(statement);
        rewriter.rewrite_sql(&mut sql)?;
        inputs.models.append(&mut rewriter.read);
        inputs.model_folders.append(&mut rewriter.read_folders);
        let refused = |e: DataFusionError| {
            PipelineError::new(&statement.source, statement.span, e.message().into_owned()).caused_by(e)
        };
        hide_calls(&mut sql);
        let (tables, _) = resolve_table_references(&sql, true).map_err(refused)?;
        inputs.tables.extend(tables.iter().map(ToString::to_string).filter(|name| !name.contains(CALL)));
        Ok(())
    }
}

fn query(query: &Query) -> SqlStatement {
    SqlStatement::Statement(Box::new(AstStatement::Query(Box::new(query.clone()))))
}

/// The part of a statement that reads: not the table that it makes.
fn read_by(sql: &SqlStatement) -> Option<SqlStatement> {
    if let Some(made_of) = table_query(sql) {
        return Some(query(made_of));
    }
    match sql {
        SqlStatement::CreateExternalTable(_) | SqlStatement::Reset(_) => None,
        SqlStatement::Statement(statement) => match statement.as_ref() {
            AstStatement::CreateView(view) => Some(query(&view.query)),
            AstStatement::CreateTable(_) | AstStatement::Drop { .. } | AstStatement::Set(_) => None,
            _ => Some(sql.clone()),
        },
        _ => Some(sql.clone()),
    }
}

/// A name that no table can have: a letter that no one writes.
const CALL: &str = "\u{1}call";

/// Renames relations with arguments, so that they are not taken for tables.
fn hide_calls(sql: &mut SqlStatement) {
    struct Calls;
    impl VisitorMut for Calls {
        type Break = ();
        fn pre_visit_table_factor(&mut self, relation: &mut TableFactor) -> ControlFlow<()> {
            if let TableFactor::Table { name, args: Some(_), .. } = relation {
                *name = ObjectName::from(vec![Ident::with_quote('"', CALL)]);
            }
            ControlFlow::Continue(())
        }
    }
    match sql {
        SqlStatement::Statement(statement) => {
            let _: ControlFlow<()> = statement.visit(&mut Calls);
        }
        SqlStatement::Explain(explain) => hide_calls(explain.statement.as_mut()),
        SqlStatement::CopyTo(copy) => {
            if let datafusion::sql::parser::CopyToSource::Query(query) = &mut copy.source {
                let _: ControlFlow<()> = query.visit(&mut Calls);
            }
        }
        SqlStatement::CreateExternalTable(_) | SqlStatement::Reset(_) => {}
    }
}
