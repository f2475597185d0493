//! Windows by name: `WINDOW w AS (…)`, `OVER w`, `OVER (w ORDER BY …)`. DataFusion knows them in the list of columns
//! only, and passes over a name within parentheses. Here every name gives way to what it stands for.

use super::{Admission, Refusal, Result};
use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, Ident, NamedWindowDefinition, NamedWindowExpr, Query, Select, SelectItem, SetExpr,
    VisitMut, WindowSpec, WindowType, visit_expressions_mut,
};
use std::ops::ControlFlow;

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
            ControlFlow::Continue(())
        });
        match replaced {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(refusal) => Err(refusal),
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
