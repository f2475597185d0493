//! `FROM predict(enc, features)`: table operators that have a model before the table.
//!
//! The model's folder becomes their option [`MODEL_OPTION`]. A model that is only declared (checking, not running) has no
//! folder yet: the call is renamed, and [`DeclaredOperators`] knows what it means when it is planned.

use crate::{
    error::{PipelineError, Result},
    options::place,
    relation::{RelationNames, single_name},
    source::Source,
};
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArgOperator, Ident, ObjectName, Spanned, TableFactor,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};
use voxelflow_dataset::{MODEL_OPTION, TrainRequest};

/// Operators of models that are not trained yet, by the names that their calls were given.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeclaredOperators(Arc<Mutex<BTreeMap<String, DeclaredOperator>>>);

/// The operator, and its model.
type DeclaredOperator = (String, Arc<TrainRequest>);

impl DeclaredOperators {
    pub(crate) fn insert(&self, call: String, operator: &str, request: Arc<TrainRequest>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(call, (operator.to_owned(), request));
    }

    pub(crate) fn get(&self, call: &str) -> Option<DeclaredOperator> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(call).cloned()
    }
}

/// Takes the first argument of an operator of models out of its call: the operator, and the model as it is written.
pub(crate) fn take_model(
    source: &Source,
    names: &RelationNames,
    relation: &mut TableFactor,
) -> Result<Option<(String, Expr)>> {
    let TableFactor::Table { name, args: Some(call), .. } = relation else { return Ok(None) };
    let Some(operator) = single_name(name).filter(|name| names.of_models.contains(name)) else {
        return Ok(None);
    };
    let model = match call.args.first() {
        Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(model @ (Expr::Identifier(_) | Expr::Value(_))))) => {
            model.clone()
        }
        other => {
            let span = match other {
                Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))) => place(source, expr),
                _ => None,
            };
            let span = span.or_else(|| source.span(name.span())).unwrap_or_default();
            let message = format!("the first argument of {operator} is not a model");
            return Err(PipelineError::new(source, span, message).help(format!(
                "write {operator}(model, table, …), with the name of a model or its folder, {operator}('path/to/model', \
                 table, …)"
            )));
        }
    };
    call.args.remove(0);
    Ok(Some((operator, model)))
}

/// Gives an operator of models the folder of its model, as an option.
pub(crate) fn give_folder(relation: &mut TableFactor, folder: Expr) {
    if let TableFactor::Table { args: Some(call), .. } = relation {
        call.args.push(FunctionArg::Named {
            name: Ident::new(MODEL_OPTION),
            arg: FunctionArgExpr::Expr(folder),
            operator: FunctionArgOperator::RightArrow,
        });
    }
}

/// Gives a call another name, at the place of the one that it had.
pub(crate) fn rename_call(name: &mut ObjectName, new: String) {
    let mut ident = Ident::with_quote('"', new);
    ident.span = name.0.first().and_then(|part| part.as_ident()).map_or(ident.span, |old| old.span);
    *name = ObjectName::from(vec![ident]);
}
