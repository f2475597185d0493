//! `encode(dca, series)`: functions of models in queries.
//!
//! The stage's function takes the model's folder, so the name becomes the folder before a statement is
//! planned, for table operators of models as well. A model that is only declared (checking, not running) has no folder yet: its functions are
//! replaced by [`DeclaredFunction`]s, which have a type but cannot be run.

use crate::{
    error::{PipelineError, Result, did_you_mean, listed},
    model_relation::{give_folder, rename_call, take_model},
    options::ident_name,
    relation::{RelationNames, rewrite_operator, single_name},
    source::Source,
};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::{
    common::{Result as DataFusionResult, exec_err, plan_err},
    error::DataFusionError,
    logical_expr::{
        ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    },
    sql::{
        parser::{CopyToSource, Statement as SqlStatement},
        sqlparser::ast::{
            Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Select, SelectItem,
            TableFactor, Value, ValueWithSpan, VisitMut, VisitorMut, visit_expressions,
        },
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
    ops::ControlFlow,
    path::PathBuf,
    sync::Arc,
};
use voxelflow_dataset::{StagePlanner, TrainRequest};

/// A model that statements can name.
#[derive(Clone, Debug)]
pub(crate) enum ModelEntry {
    /// Trained, in this folder.
    Trained(PathBuf),
    /// To be trained by an earlier statement, which did not run.
    Declared(Arc<TrainRequest>),
}

/// What a name of a model stands for.
enum NamedModel {
    /// Its folder, as an expression.
    Folder(Box<Expr>),
    /// It has none yet: its name.
    Declared(String),
}

/// Replaces names of models by folders and makes inputs of table operators subqueries; notes what is read.
pub(crate) struct Rewriter<'a> {
    pub(crate) source: &'a Source,
    pub(crate) relations: RelationNames,
    pub(crate) functions: BTreeSet<String>,
    pub(crate) models: &'a BTreeMap<String, ModelEntry>,
    /// Models that were named.
    pub(crate) read: BTreeSet<String>,
    /// Models that were given by their folder.
    pub(crate) read_folders: BTreeSet<String>,
    /// Functions of declared models that were called: (function, model).
    pub(crate) declared: BTreeSet<(String, String)>,
    /// The same of table operators.
    pub(crate) declared_operators: BTreeSet<(String, String)>,
}

impl Rewriter<'_> {
    /// Rewrites `node`.
    pub(crate) fn rewrite<V: VisitMut>(&mut self, node: &mut V) -> Result<()> {
        match node.visit(self) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(e) => Err(e),
        }
    }

    /// Rewrites a statement of DataFusion.
    pub(crate) fn rewrite_sql(&mut self, statement: &mut SqlStatement) -> Result<()> {
        match statement {
            SqlStatement::Statement(statement) => self.rewrite(statement.as_mut()),
            SqlStatement::CopyTo(copy) => match &mut copy.source {
                CopyToSource::Query(query) => self.rewrite(query.as_mut()),
                CopyToSource::Relation(_) => Ok(()),
            },
            SqlStatement::Explain(explain) => self.rewrite_sql(explain.statement.as_mut()),
            SqlStatement::CreateExternalTable(_) | SqlStatement::Reset(_) => Ok(()),
        }
    }

    fn model_function(&self, function: &Function) -> Option<String> {
        single_name(&function.name).filter(|name| self.functions.contains(name))
    }

    fn calls_model(&self, expr: &Expr) -> bool {
        let found = visit_expressions(expr, |e| match e {
            Expr::Function(function) if self.model_function(function).is_some() => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        found.is_break()
    }

    fn rewrite_call(&mut self, function: &mut Function) -> Result<()> {
        let Some(name) = self.model_function(function) else { return Ok(()) };
        let FunctionArguments::List(list) = &mut function.args else { return Ok(()) };
        let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(first))) = list.args.first_mut() else {
            return Ok(());
        };
        match self.model_named(&name, first)? {
            NamedModel::Folder(folder) => *first = *folder,
            NamedModel::Declared(model) => {
                list.args.remove(0);
                rename_call(&mut function.name, declared_name(&name, &model));
                self.declared.insert((name, model));
            }
        }
        Ok(())
    }

    fn rewrite_relation(&mut self, relation: &mut TableFactor) -> Result<()> {
        let model = take_model(self.source, &self.relations, relation)?;
        let model = match model {
            Some((operator, expr)) => Some((self.model_named(&operator, &expr)?, operator)),
            None => None,
        };
        rewrite_operator(self.source, &self.relations, relation)?;
        match (model, relation) {
            (Some((NamedModel::Folder(folder), _)), relation) => give_folder(relation, *folder),
            (Some((NamedModel::Declared(model), operator)), TableFactor::Table { name, .. }) => {
                rename_call(name, declared_name(&operator, &model));
                self.declared_operators.insert((operator, model));
            }
            _ => {}
        }
        Ok(())
    }

    /// The model that `expr` names as the first argument of `call`.
    fn model_named(&mut self, call: &str, expr: &Expr) -> Result<NamedModel> {
        // A string is the folder itself: a model that no statement of this file trains.
        let Expr::Identifier(ident) = expr else {
            if let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(folder), .. }) = expr {
                self.read_folders.insert(folder.clone());
            }
            return Ok(NamedModel::Folder(Box::new(expr.clone())));
        };
        let model = ident_name(self.source, ident);
        let Some(entry) = self.models.get(&model.text) else {
            let known: Vec<String> = self.models.keys().cloned().collect();
            let message =
                format!("unknown model `{}` in {call}(…){}", model.text, did_you_mean(&model.text, &known));
            let help = listed("the models", "no model is trained before this statement", &known);
            return Err(PipelineError::new(self.source, model.span, message).help(format!(
                "{help}\na model of another run is named by its folder: {call}('path/to/model', …)"
            )));
        };
        self.read.insert(model.text.clone());
        Ok(match entry {
            ModelEntry::Trained(folder) => {
                let value = Value::SingleQuotedString(folder.to_string_lossy().into_owned());
                NamedModel::Folder(Box::new(Expr::Value(ValueWithSpan { value, span: ident.span })))
            }
            ModelEntry::Declared(_) => NamedModel::Declared(model.text),
        })
    }
}

impl VisitorMut for Rewriter<'_> {
    type Break = PipelineError;

    /// Gives a column that a model computes the name under which it was written, not one with a folder.
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<PipelineError> {
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item
                && self.calls_model(expr)
            {
                let alias = Ident::with_quote('"', expr.to_string());
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, relation: &mut TableFactor) -> ControlFlow<PipelineError> {
        flow(self.rewrite_relation(relation))
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<PipelineError> {
        match expr {
            Expr::Function(function) => flow(self.rewrite_call(function)),
            _ => ControlFlow::Continue(()),
        }
    }
}

fn flow(result: Result<()>) -> ControlFlow<PipelineError> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(e) => ControlFlow::Break(e),
    }
}

/// What a call of a function or table operator of a declared model is called instead.
pub(crate) fn declared_name(function: &str, model: &str) -> String {
    format!("{function} of {model}")
}

/// A function of a model that is declared and not trained: it has a type and refuses to run.
#[derive(Debug)]
pub(crate) struct DeclaredFunction {
    name: String,
    function: String,
    request: Arc<TrainRequest>,
    stages: Arc<dyn StagePlanner>,
    signature: Signature,
}

impl DeclaredFunction {
    pub(crate) fn udf(
        function: &str,
        request: Arc<TrainRequest>,
        stages: Arc<dyn StagePlanner>,
    ) -> ScalarUDF {
        let name = declared_name(function, &request.model);
        // Volatile, lest the optimiser runs it on constant arguments.
        let signature = Signature::variadic_any(Volatility::Volatile);
        ScalarUDF::from(Self { name, function: function.into(), request, stages, signature })
    }
}

impl PartialEq for DeclaredFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.request, &other.request)
    }
}

impl Eq for DeclaredFunction {}

impl Hash for DeclaredFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for DeclaredFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DataFusionResult<DataType> {
        plan_err!("the type of {} depends on its model: it is known from the arguments only", self.function)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let known = self.stages.declared_output(&self.request, &self.function, args.arg_fields);
        let known = known.map_err(|e| DataFusionError::External(Box::new(e)))?;
        let output = known.unwrap_or_else(|| DataType::new_list(DataType::Float32, true));
        Ok(Arc::new(Field::new(&self.name, output, true)))
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        exec_err!(
            "model {} is declared, not trained: {} has nothing to compute with",
            self.request.model,
            self.function
        )
    }
}
