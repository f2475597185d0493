//! `FROM clean(series, detrend => true)`: a table operator of a stage as a relation of a query.
//!
//! The first argument may be a table, a subquery or another operator. Before a statement is planned it is
//! rewritten to a subquery, `clean((SELECT * FROM series), …)`, so that DataFusion looks up the table where
//! it looks up all others (common table expressions included); [`OperatorRelations`] then plans the call.

use crate::{
    error::{PipelineError, Result, did_you_mean, listed},
    model_relation::DeclaredOperators,
    options::{ident_text, named_options, place},
    source::{Source, Span},
};
use datafusion::{
    common::{Result as DataFusionResult, plan_err},
    error::DataFusionError,
    logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning},
    sql::{
        parser::DFParserBuilder,
        sqlparser::{
            ast::{
                Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, ObjectNamePart,
                Query, SetExpr, Spanned, TableFactor, TableFunctionArgs,
            },
            parser::ParserError,
        },
    },
};
use std::{error::Error, fmt, sync::Arc};
use voxelflow_dataset::{StageError, StagePlanner};

/// The relations that [`StagePlanner::table_operators`] names.
#[derive(Debug)]
pub(crate) struct OperatorRelations {
    stages: Arc<dyn StagePlanner>,
    declared: DeclaredOperators,
}

impl OperatorRelations {
    pub(crate) fn new(stages: Arc<dyn StagePlanner>, declared: DeclaredOperators) -> Self {
        Self { stages, declared }
    }
}

impl RelationPlanner for OperatorRelations {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<RelationPlanning> {
        let operators = self.stages.table_operators();
        let TableFactor::Table { name, args: Some(args), alias, .. } = &relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let call = single_name(name);
        let declared = call.as_deref().and_then(|call| self.declared.get(call));
        let operator = match &declared {
            Some((operator, _)) => Some(operator.clone()),
            None => call.filter(|name| operators.contains(name)),
        };
        let Some(operator) = operator else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let Some((FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Subquery(input))), options)) =
            args.args.split_first()
        else {
            return plan_err!("{operator} needs a table or a subquery as its first argument");
        };
        let input = context.plan(input_relation(input))?;
        // The places were checked when the statement was rewritten: only values are needed here.
        let values = named_options(&Source::new("", ""), Span::default(), &operator, options)
            .map_err(|e| DataFusionError::External(Box::new(e)))?
            .to_map();
        let planned = match declared {
            Some((_, request)) => self.stages.plan_declared_operator(&operator, &request, input, &values),
            None => self.stages.plan_table_operator(&operator, input, &values),
        };
        let plan = planned.map_err(|error| {
            let failure = OperatorFailure { operator: name.clone(), arguments: options.to_vec(), error };
            DataFusionError::External(Box::new(failure))
        })?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias.clone()))))
    }
}

/// What a table operator refused, with the call, so that the option at fault can be underlined.
#[derive(Debug)]
pub(crate) struct OperatorFailure {
    operator: ObjectName,
    arguments: Vec<FunctionArg>,
    pub(crate) error: StageError,
}

impl OperatorFailure {
    /// The option at fault, or else the operator's name.
    pub(crate) fn place(&self, source: &Source) -> Option<Span> {
        let option = self.error.option.as_deref().and_then(|option| {
            self.arguments.iter().find_map(|argument| match argument {
                FunctionArg::Named { name, .. }
                | FunctionArg::ExprNamed { name: Expr::Identifier(name), .. }
                    if ident_text(name) == option =>
                {
                    source.span(name.span)
                }
                _ => None,
            })
        });
        option.or_else(|| source.span(self.operator.span()))
    }
}

impl fmt::Display for OperatorFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for OperatorFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.error.source.as_ref())
    }
}

/// What relations with arguments may be called.
#[derive(Debug, Clone)]
pub(crate) struct RelationNames {
    pub(crate) operators: Vec<String>,
    /// Those of them that have a model before the table.
    pub(crate) of_models: Vec<String>,
    /// DataFusion's own, for example `generate_series`.
    pub(crate) functions: Vec<String>,
}

/// Turns the input of a table operator into a subquery and checks the call; other relations stay.
pub(crate) fn rewrite_operator(
    source: &Source,
    names: &RelationNames,
    relation: &mut TableFactor,
) -> Result<()> {
    let TableFactor::Table { name, args: Some(call), .. } = relation else { return Ok(()) };
    let place_of_name = source.span(name.span()).unwrap_or_default();
    let Some(operator) = single_name(name) else { return Ok(()) };
    if !names.operators.contains(&operator) {
        return if names.functions.contains(&operator) {
            Ok(())
        } else {
            Err(unknown_operator(source, place_of_name, &operator, names))
        };
    }
    let model = if names.of_models.contains(&operator) { "model, " } else { "" };
    let Some((input, options)) = call.args.split_first_mut() else {
        let message = format!("{operator} needs a table");
        let help = format!("write {operator}({model}table, …) or {operator}({model}(SELECT …), …)");
        return Err(PipelineError::new(source, place_of_name, message).help(help));
    };
    named_options(source, place_of_name, &operator, options)?;
    let wrong = |expr: Option<&Expr>| {
        let span = expr.and_then(|e| place(source, e)).unwrap_or(place_of_name);
        let which = if model.is_empty() { "first" } else { "second" };
        let message = format!("the {which} argument of {operator} is not a table");
        let help = format!(
            "write {operator}({model}table, …), {operator}({model}(SELECT …), …) or {operator}({model}other(table), …)"
        );
        Err(PipelineError::new(source, span, message).help(help))
    };
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = input else { return wrong(None) };
    let Some(factor) = input_factor(expr) else { return wrong(Some(expr)) };
    if let Some(factor) = factor {
        let query = select_all_from(factor)
            .map_err(|e| PipelineError::new(source, place_of_name, e.to_string()).not_input())?;
        *expr = Expr::Subquery(query);
    }
    Ok(())
}

/// The relation that an operator's first argument names: `None` if it is none, `Some(None)` for a subquery.
fn input_factor(expr: &Expr) -> Option<Option<TableFactor>> {
    match expr {
        Expr::Subquery(_) => Some(None),
        Expr::Identifier(name) => Some(Some(table(vec![name.clone()], None))),
        Expr::CompoundIdentifier(names) => Some(Some(table(names.clone(), None))),
        Expr::Function(function) => {
            let FunctionArguments::List(list) = &function.args else { return None };
            let name = function.name.0.iter().map(ObjectNamePart::as_ident).collect::<Option<Vec<_>>>()?;
            let args = TableFunctionArgs { args: list.args.clone(), settings: None };
            Some(Some(table(name.into_iter().cloned().collect(), Some(args))))
        }
        _ => None,
    }
}

fn table(name: Vec<Ident>, args: Option<TableFunctionArgs>) -> TableFactor {
    TableFactor::Table {
        name: ObjectName::from(name),
        alias: None,
        args,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

fn unknown_operator(source: &Source, span: Span, name: &str, names: &RelationNames) -> PipelineError {
    let all: Vec<String> = names.operators.iter().chain(&names.functions).cloned().collect();
    PipelineError::new(source, span, format!("unknown table operator `{name}`{}", did_you_mean(name, &all)))
        .help(listed("the table operators", "there are no table operators", &names.operators))
}

/// A relation's name, if it has one part.
pub(crate) fn single_name(name: &ObjectName) -> Option<String> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(ident)] => Some(ident_text(ident)),
        _ => None,
    }
}

/// `SELECT * FROM factor`.
pub(crate) fn select_all_from(factor: TableFactor) -> Result<Box<Query>, ParserError> {
    let unbuilt = |e: DataFusionError| ParserError::ParserError(e.to_string());
    let mut parser = DFParserBuilder::new("SELECT * FROM t").build().map_err(unbuilt)?.parser;
    let mut query = parser.parse_query()?;
    if let SetExpr::Select(select) = query.body.as_mut()
        && let Some(from) = select.from.first_mut()
    {
        from.relation = factor;
    }
    Ok(query)
}

/// The relation of a subquery that is nothing but `SELECT * FROM relation`, else the subquery itself: spares
/// the plan a projection that changes nothing.
fn input_relation(query: &Query) -> TableFactor {
    if let SetExpr::Select(select) = query.body.as_ref()
        && let [from] = select.from.as_slice()
        && from.joins.is_empty()
        && let Ok(plain) = select_all_from(from.relation.clone())
        && *query == *plain
    {
        return from.relation.clone();
    }
    TableFactor::Derived { lateral: false, subquery: Box::new(query.clone()), alias: None, sample: None }
}
