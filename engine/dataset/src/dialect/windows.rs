//! Windows by name: `WINDOW w AS (…)`, `OVER w`, `OVER (w ORDER BY …)`. DataFusion knows them in the list of columns
//! only, and passes over a name within parentheses. Here every name gives way to what it stands for.
//!
//! `f(x) FILTER (WHERE …) OVER (…)`: plans that travel leave the condition behind (datafusion-proto 55). Here it goes into the
//! argument.

use super::{Admission, Refusal, Result};
use datafusion::sql::sqlparser::ast::{
    CaseWhen, Distinct, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    NamedWindowDefinition, NamedWindowExpr, Query, Select, SelectItem, SetExpr, Spanned, Value, VisitMut,
    WindowSpec, WindowType, helpers::attached_token::AttachedToken, visit_expressions_mut,
};
use std::ops::ControlFlow;

/// Aggregates to which a null is no row.
const PASS_OVER_NULLS: [&str; 24] = [
    "count",
    "sum",
    "avg",
    "mean",
    "min",
    "max",
    "median",
    "stddev",
    "stddev_samp",
    "stddev_pop",
    "var",
    "var_samp",
    "var_pop",
    "var_population",
    "var_sample",
    "bool_and",
    "bool_or",
    "bit_and",
    "bit_or",
    "bit_xor",
    "corr",
    "covar",
    "covar_samp",
    "covar_pop",
];

impl Admission<'_> {
    /// Queries within are done before.
    pub(super) fn windows_of_select(&self, select: &mut Select) -> Result<()> {
        let named = self.named(&select.named_window)?;
        for item in &mut select.projection {
            match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, alias: _ } => {
                    self.replace(expr, &named)?;
                }
                SelectItem::ExprWithAliases { .. }
                | SelectItem::QualifiedWildcard(..)
                | SelectItem::Wildcard(_) => {}
            }
        }
        if let Some(Distinct::On(all)) = &mut select.distinct {
            all.iter_mut().try_for_each(|expr| self.replace(expr, &named))?;
        }
        if let Some(qualify) = &mut select.qualify {
            self.replace(qualify, &named)?;
        }
        // ORDER BY stands outside and has its turn in `windows_of_order`.
        let whole = |(name, spec)| NamedWindowDefinition(name, NamedWindowExpr::WindowSpec(spec));
        select.named_window = named.into_iter().map(whole).collect();
        Ok(())
    }

    pub(super) fn windows_of_order(&self, query: &mut Query) -> Result<()> {
        let SetExpr::Select(select) = query.body.as_mut() else { return Ok(()) };
        let named = self.named(&select.named_window)?;
        query.order_by.as_mut().map_or(Ok(()), |order| self.replace(order, &named))
    }

    /// The windows of a `WINDOW` clause, each without the name of another.
    fn named(&self, windows: &[NamedWindowDefinition]) -> Result<Vec<(Ident, WindowSpec)>> {
        let mut known: Vec<(Ident, WindowSpec)> = Vec::new();
        for NamedWindowDefinition(name, window) in windows {
            let spec = match window {
                NamedWindowExpr::NamedWindow(other) => self.find(other, &known)?,
                NamedWindowExpr::WindowSpec(spec) => self.whole(spec, &known)?,
            };
            known.push((name.clone(), spec));
        }
        Ok(known)
    }

    fn replace<V: VisitMut>(&self, node: &mut V, named: &[(Ident, WindowSpec)]) -> Result<()> {
        let replaced = visit_expressions_mut(node, |expr: &mut Expr| {
            let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
            let spec = match &function.over {
                None => return ControlFlow::Continue(()),
                Some(WindowType::NamedWindow(name)) => self.find(name, named),
                Some(WindowType::WindowSpec(spec)) => self.whole(spec, named),
            };
            match spec {
                Ok(spec) => function.over = Some(WindowType::WindowSpec(spec)),
                Err(refusal) => return ControlFlow::Break(refusal),
            }
            match self.filter_by_argument(function) {
                Ok(()) => ControlFlow::Continue(()),
                Err(refusal) => ControlFlow::Break(refusal),
            }
        });
        match replaced {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(refusal) => Err(refusal),
        }
    }

    /// An aggregate that passes over nulls gives the same of `CASE WHEN condition THEN x END` as of x under the condition.
    fn filter_by_argument(&self, function: &mut Function) -> Result<()> {
        let Some(condition) = function.filter.take() else { return Ok(()) };
        let name = function.name.to_string().to_lowercase();
        let first = match &mut function.args {
            FunctionArguments::List(list) => list.args.first_mut(),
            FunctionArguments::None | FunctionArguments::Subquery(_) => None,
        };
        let only_if = |result: Expr| Expr::Case {
            case_token: AttachedToken::empty(),
            end_token: AttachedToken::empty(),
            operand: None,
            conditions: vec![CaseWhen { condition: *condition, result }],
            else_result: None,
        };
        match first {
            Some(FunctionArg::Unnamed(argument)) if PASS_OVER_NULLS.contains(&name.as_str()) => {
                let value = match argument {
                    FunctionArgExpr::Expr(value) => value.clone(),
                    _ => Expr::value(Value::Number("1".into(), false)),
                };
                *argument = FunctionArgExpr::Expr(only_if(value));
                Ok(())
            }
            _ => Err(Refusal {
                message: format!("FILTER of `{name}` over a window is not understood"),
                help: "choose rows in a query below, or write CASE WHEN … THEN … END as the argument".into(),
                span: self.known(function.name.span()),
            }),
        }
    }

    /// `spec` with what the window that it names has.
    fn whole(&self, spec: &WindowSpec, named: &[(Ident, WindowSpec)]) -> Result<WindowSpec> {
        let WindowSpec { window_name: Some(name), partition_by, order_by, window_frame } = spec else {
            return Ok(spec.clone());
        };
        let base = self.find(name, named)?;
        let again = if !partition_by.is_empty() {
            Some("PARTITION BY")
        } else if !order_by.is_empty() && !base.order_by.is_empty() {
            Some("ORDER BY")
        } else if base.window_frame.is_some() {
            Some("a frame")
        } else {
            None
        };
        if let Some(again) = again {
            let message = format!("{again} of the window `{name}` cannot be changed");
            return Err(Refusal {
                message,
                help: "write the whole window".into(),
                span: self.known(name.span),
            });
        }
        let order_by = if order_by.is_empty() { base.order_by } else { order_by.clone() };
        let window_frame = window_frame.clone();
        Ok(WindowSpec { window_name: None, partition_by: base.partition_by, order_by, window_frame })
    }

    fn find(&self, name: &Ident, named: &[(Ident, WindowSpec)]) -> Result<WindowSpec> {
        let text = |ident: &Ident| match ident.quote_style {
            Some(_) => ident.value.clone(),
            None => ident.value.to_lowercase(),
        };
        let found = named.iter().find(|(known, _)| text(known) == text(name));
        found.map(|(_, spec)| spec.clone()).ok_or_else(|| Refusal {
            message: format!("there is no window `{name}`"),
            help: format!("write WINDOW {name} AS (…) behind FROM, before ORDER BY"),
            span: self.known(name.span),
        })
    }
}
