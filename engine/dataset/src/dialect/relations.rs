//! What stands in `FROM`, and how it is joined.

use super::{Admission, Refusal, Result};
use datafusion::sql::sqlparser::{
    ast::{
        Expr, FunctionArg, Join, JoinConstraint, JoinOperator, Spanned, TableFactor, TableFunctionArgs,
        TableSampleKind, TableSampleModifier, TableWithJoins, visit_expressions,
    },
    dialect::GenericDialect,
    parser::Parser,
    tokenizer::Span,
};

use std::ops::ControlFlow;

const SAMPLE: &str = "write WHERE random() < 0.1 for a tenth of the rows, or ORDER BY random() LIMIT n";
const ORDINALITY: &str = "write SELECT row_number() OVER () beside it, or join with generate_series";
const PIVOTED: &str = "write sum(x) FILTER (WHERE name = 'a') AS a, … GROUP BY …";

impl Admission<'_> {
    pub(super) fn relation(&self, relation: &mut TableFactor) -> Result<()> {
        if let Some((lists, numbered)) = numbered(relation) {
            self.without_columns(&lists)?;
            *relation = numbered;
        }
        let whole = relation.span();
        let unknown = |words: &str, help: &str| Err(self.refusal(words, start_of(whole), help));
        match relation {
            TableFactor::Table {
                name,
                alias,
                args,
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
            } => {
                let named = name.span();
                if let Some(TableFunctionArgs { args: _, settings }) = args {
                    self.without(settings.is_some(), "SETTINGS", named, "options are written name => value")?;
                }
                self.without(
                    !with_hints.is_empty(),
                    "WITH",
                    named,
                    "hints are for other databases: leave it out",
                )?;
                self.without(
                    version.is_some(),
                    "FOR",
                    named,
                    "there is one version of a table: leave it out",
                )?;
                self.without(*with_ordinality, "WITH ORDINALITY", named, ORDINALITY)?;
                self.without(
                    !partitions.is_empty(),
                    "PARTITION",
                    named,
                    "write WHERE with the partition's column",
                )?;
                if json_path.is_some() {
                    let message = format!("a path into `{name}` is not understood");
                    let help = "select the field of a column: SELECT column['field'] FROM …".into();
                    return Err(Refusal { message, help, span: self.known(named) });
                }
                self.sampled(sample.as_ref(), named)?;
                if let Some(hint) = index_hints.first() {
                    let words = hint.hint_type.to_string();
                    return Err(self.refusal(&words, named, "there are no indexes: leave it out"));
                }
                self.alias(alias.as_ref())
            }
            TableFactor::Derived { lateral: _, subquery, alias, sample } => {
                self.sampled(sample.as_ref(), subquery.span())?;
                self.alias(alias.as_ref())
            }
            TableFactor::Function { lateral: _, name, args, with_ordinality, alias } => {
                self.without(*with_ordinality, "WITH ORDINALITY", name.span(), ORDINALITY)?;
                let named = args.iter().any(|arg| !matches!(arg, FunctionArg::Unnamed(_)));
                if named {
                    let message = format!("a name before an argument of {name} is not understood");
                    let help = "give the arguments in their order, without names".into();
                    return Err(Refusal { message, help, span: self.known(name.span()) });
                }
                self.alias(alias.as_ref())
            }
            TableFactor::UNNEST {
                alias,
                array_exprs,
                with_offset,
                with_offset_alias: _,
                with_ordinality,
            } => {
                let inside = array_exprs.last().map_or(whole, Spanned::span);
                self.without(*with_offset, "WITH OFFSET", inside, ORDINALITY)?;
                self.without(*with_ordinality, "WITH ORDINALITY", inside, ORDINALITY)?;
                self.without_columns(array_exprs)?;
                self.alias(alias.as_ref())
            }
            TableFactor::NestedJoin { table_with_joins, alias } => {
                let TableWithJoins { relation: _, joins } = table_with_joins.as_mut();
                joins.iter_mut().try_for_each(|join| self.join(join))?;
                self.alias(alias.as_ref())
            }
            TableFactor::TableFunction { .. } => {
                unknown("TABLE", "write FROM function(…), or FROM UNNEST(…)")
            }
            TableFactor::JsonTable { .. } => unknown("JSON_TABLE", "read the file as a table STORED AS JSON"),
            TableFactor::OpenJsonTable { .. } => {
                unknown("OPENJSON", "read the file as a table STORED AS JSON")
            }
            TableFactor::XmlTable { .. } => {
                unknown("XMLTABLE", "there is no XML here: make a table of it before")
            }
            TableFactor::Pivot { .. } => unknown("PIVOT", PIVOTED),
            TableFactor::Unpivot { .. } => unknown(
                "UNPIVOT",
                "write SELECT 'a' AS name, a AS value FROM t UNION ALL SELECT 'b', b FROM t",
            ),
            TableFactor::MatchRecognize { .. } => {
                unknown("MATCH_RECOGNIZE", "compare rows with lag(…) and lead(…) OVER (ORDER BY …)")
            }
            TableFactor::SemanticView { .. } => unknown("SEMANTIC_VIEW", "write SELECT … FROM … GROUP BY …"),
        }
    }

    /// DataFusion's planner takes a column in `UNNEST` behind `FROM`, and its executor does not.
    fn without_columns(&self, lists: &[Expr]) -> Result<()> {
        let column = |expr: &Expr| match expr {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(expr.span()),
            _ => ControlFlow::Continue(()),
        };
        let span = lists.iter().find_map(|list| visit_expressions(list, column).break_value());
        let Some(span) = span else { return Ok(()) };
        let message = "UNNEST of a column behind FROM is not understood".into();
        let help = "write SELECT t.id, unnest(t.list) AS value FROM t; numbers of the values are \
                    unnest(range(0, array_length(t.list)))";
        Err(Refusal { message, help: help.into(), span: self.known(span) })
    }

    fn sampled(&self, sample: Option<&TableSampleKind>, after: Span) -> Result<()> {
        let Some(TableSampleKind::BeforeTableAlias(sample) | TableSampleKind::AfterTableAlias(sample)) =
            sample
        else {
            return Ok(());
        };
        let word = match sample.modifier {
            TableSampleModifier::Sample => "SAMPLE",
            TableSampleModifier::TableSample => "TABLESAMPLE",
        };
        Err(self.refusal(word, after, SAMPLE))
    }

    pub(super) fn join(&self, join: &mut Join) -> Result<()> {
        let (whole, relation) = (join.span(), join.relation.span());
        let Join { relation: _, global, join_operator } = join;
        let before = start_of(self.joined(relation, whole));
        let unknown = |words: &str, help: &str| Err(self.refusal(words, before, help));
        self.without(*global, "GLOBAL", before, "leave it out: joins are spread by themselves")?;
        match join_operator {
            JoinOperator::Semi(constraint) => {
                *join_operator = JoinOperator::LeftSemi(std::mem::replace(constraint, NONE))
            }
            JoinOperator::Anti(constraint) => {
                *join_operator = JoinOperator::LeftAnti(std::mem::replace(constraint, NONE))
            }
            _ => {}
        }
        match join_operator {
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint)
            | JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint)
            | JoinOperator::LeftSemi(constraint)
            | JoinOperator::RightSemi(constraint)
            | JoinOperator::LeftAnti(constraint)
            | JoinOperator::RightAnti(constraint) => match constraint {
                JoinConstraint::On(_) | JoinConstraint::Using(_) | JoinConstraint::Natural => Ok(()),
                JoinConstraint::None => {
                    let message = "JOIN without ON or USING is not understood".into();
                    let help = "say by which columns rows belong together, or write CROSS JOIN".into();
                    Err(Refusal { message, help, span: self.known(relation) })
                }
            },
            JoinOperator::CrossJoin(constraint) => match constraint {
                JoinConstraint::None => Ok(()),
                JoinConstraint::On(_) | JoinConstraint::Using(_) | JoinConstraint::Natural => {
                    unknown("CROSS JOIN", "it joins all rows with all; write JOIN … ON …")
                }
            },
            JoinOperator::AsOf { .. } => unknown(
                "ASOF",
                "write JOIN … ON a.t >= b.t QUALIFY row_number() OVER (PARTITION BY … ORDER BY b.t DESC) = 1",
            ),
            JoinOperator::CrossApply => unknown("CROSS APPLY", "write CROSS JOIN LATERAL (…)"),
            JoinOperator::OuterApply => unknown("OUTER APPLY", "write LEFT JOIN LATERAL (…) ON true"),
            JoinOperator::StraightJoin(_) => unknown("STRAIGHT_JOIN", "write JOIN"),
            JoinOperator::ArrayJoin | JoinOperator::LeftArrayJoin | JoinOperator::InnerArrayJoin => {
                unknown("ARRAY JOIN", "write SELECT id, unnest(column) AS value FROM t")
            }
            JoinOperator::Semi(_) | JoinOperator::Anti(_) => Ok(()),
        }
    }

    /// The words of a join, which stand before its relation.
    fn joined(&self, relation: Span, whole: Span) -> Span {
        let behind =
            self.tokens.iter().position(|token| token.span.start >= relation.start).unwrap_or_default();
        let words = self.tokens[..behind].iter().rev().take(4).map(|token| token.span);
        if relation.start.line > 0 { Span::union_iter(words) } else { whole }
    }
}

/// `UNNEST(list) WITH ORDINALITY` as a query of a list and its numbers.
fn numbered(relation: &TableFactor) -> Option<(Vec<Expr>, TableFactor)> {
    let TableFactor::UNNEST {
        alias,
        array_exprs,
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: true,
    } = relation
    else {
        return None;
    };
    let [list] = array_exprs.as_slice() else { return None };
    let text = format!(
        "SELECT unnest({list}) AS unnest, unnest(range(1, CAST(array_length({list}) + 1 AS BIGINT))) AS ordinality"
    );
    let query =
        Parser::new(&GenericDialect {}).try_with_sql(&text).and_then(|mut parser| parser.parse_query());
    let query =
        TableFactor::Derived { lateral: false, subquery: query.ok()?, alias: alias.clone(), sample: None };
    Some((array_exprs.clone(), query))
}

const NONE: JoinConstraint = JoinConstraint::None;

/// The place where `span` begins.
fn start_of(span: Span) -> Span {
    Span::new(span.start, span.start)
}
