//! `(name => literal, …)`: from the parser's arguments to options with their places.

use crate::{
    error::{PipelineError, Result},
    source::{Source, Span},
    statement::{Name, NamedOption, NamedOptions},
};
use datafusion::sql::sqlparser::ast::{
    Array, BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArgOperator, Ident, Spanned,
    UnaryOperator, Value as SqlValue,
};
use serde_json::{Map, Number, Value};

/// How an unquoted name is read: in lower case, as DataFusion reads names of tables and columns.
pub(crate) fn ident_text(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

pub(crate) fn ident_name(source: &Source, ident: &Ident) -> Name {
    Name { text: ident_text(ident), span: source.span(ident.span).unwrap_or_default() }
}

/// Reads the arguments of `what`; `around` is underlined where an argument has no place of its own.
pub(crate) fn named_options(
    source: &Source,
    around: Span,
    what: &str,
    args: &[FunctionArg],
) -> Result<NamedOptions> {
    let mut options: Vec<NamedOption> = Vec::with_capacity(args.len());
    for arg in args {
        let option = named_option(source, around, what, arg)?;
        if options.iter().any(|o| o.name == option.name) {
            let message = format!("option `{}` of {what} is given twice", option.name);
            return Err(PipelineError::new(source, option.span, message).help("give it once"));
        }
        options.push(option);
    }
    Ok(NamedOptions(options))
}

fn named_option(source: &Source, around: Span, what: &str, arg: &FunctionArg) -> Result<NamedOption> {
    let (ident, arg, operator) = match arg {
        FunctionArg::Named { name, arg, operator } => (name, arg, operator),
        FunctionArg::ExprNamed { name: Expr::Identifier(name), arg, operator } => (name, arg, operator),
        other => return Err(not_named(source, around, what, other)),
    };
    let Name { text: name, span } = ident_name(source, ident);
    if *operator != FunctionArgOperator::RightArrow {
        let message = format!("`{operator}` after option `{name}` of {what}");
        return Err(PipelineError::new(source, span, message).help(format!("write {name} => {arg}")));
    }
    let FunctionArgExpr::Expr(expr) = arg else {
        let message = format!("`{arg}` is not a value of option `{name}`");
        return Err(PipelineError::new(source, span, message).help(VALUES));
    };
    let value_span = place(source, expr).unwrap_or(span);
    let value = literal(source, value_span, &name, expr)?;
    Ok(NamedOption { name, value, span, value_span })
}

const VALUES: &str =
    "a value is a string 'a', a number, true, false, null, an array of those, [1, 2], or by name, {'a': 1}";

fn not_named(source: &Source, around: Span, what: &str, arg: &FunctionArg) -> PipelineError {
    let expr = match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        FunctionArg::ExprNamed { name, .. } => Some(name),
        _ => None,
    };
    let span = expr.and_then(|e| place(source, e)).unwrap_or(around);
    let help = match expr {
        Some(Expr::BinaryOp { left, op: BinaryOperator::Eq, right }) => format!("write {left} => {right}"),
        _ => "write name => value".to_string(),
    };
    PipelineError::new(source, span, format!("the options of {what} are given by name")).help(help)
}

/// Where an expression is written.
pub(crate) fn place(source: &Source, expr: &Expr) -> Option<Span> {
    source.span(expr.span())
}

fn literal(source: &Source, around: Span, name: &str, expr: &Expr) -> Result<Value> {
    let wrong = |help: String| {
        let span = place(source, expr).unwrap_or(around);
        Err(PipelineError::new(source, span, format!("`{expr}` is not a value of option `{name}`"))
            .help(help))
    };
    match expr {
        Expr::Value(value) => match &value.value {
            SqlValue::SingleQuotedString(text) => Ok(Value::String(text.clone())),
            SqlValue::Boolean(on) => Ok(Value::Bool(*on)),
            SqlValue::Null => Ok(Value::Null),
            SqlValue::Number(digits, _) => match number(digits) {
                Some(number) => Ok(Value::Number(number)),
                None => wrong(VALUES.into()),
            },
            _ => wrong(VALUES.into()),
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner } => match inner.as_ref() {
            Expr::Value(value) => match &value.value {
                SqlValue::Number(digits, _) => match number(&format!("-{digits}")) {
                    Some(number) => Ok(Value::Number(number)),
                    None => wrong(VALUES.into()),
                },
                _ => wrong(VALUES.into()),
            },
            _ => wrong(VALUES.into()),
        },
        Expr::Nested(inner) => literal(source, around, name, inner),
        Expr::Array(Array { elem, .. }) => {
            let values = elem.iter().map(|e| literal(source, around, name, e)).collect::<Result<_>>()?;
            Ok(Value::Array(values))
        }
        Expr::Dictionary(fields) => {
            let mut values = Map::new();
            for field in fields {
                let value = literal(source, around, name, &field.value)?;
                if values.insert(field.key.value.clone(), value).is_some() {
                    return wrong(format!("`{}` is in it twice; give it once", field.key.value));
                }
            }
            Ok(Value::Object(values))
        }
        Expr::Identifier(ident) => wrong(format!("a string is written in quotes: '{}'", ident.value)),
        _ => wrong(VALUES.into()),
    }
}

fn number(digits: &str) -> Option<Number> {
    if let Ok(whole) = digits.parse::<i64>() {
        return Some(whole.into());
    }
    if let Ok(whole) = digits.parse::<u64>() {
        return Some(whole.into());
    }
    digits.parse::<f64>().ok().and_then(Number::from_f64)
}
