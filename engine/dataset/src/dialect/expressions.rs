//! Expressions and calls of functions.

use super::{Admission, Refusal, Result, precedence::regroup};
use datafusion::sql::sqlparser::{
    ast::{
        BinaryOperator, CastKind, CeilFloorKind, DateTimeField, DuplicateTreatment, Expr, Function,
        FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArgumentList, FunctionArguments, Ident,
        Interval, LambdaFunction, LambdaFunctionParameter, LambdaSyntax, NullTreatment, ObjectName,
        ObjectNamePart, OneOrManyWithParens, Spanned, WindowFrame, WindowSpec, WindowType,
    },
    tokenizer::Span,
};

impl Admission<'_> {
    /// Spark's names of what is `unnest` here, `x -> x + 1` as a function, `= ANY (SELECT …)` as `IN`.
    pub(super) fn in_other_words(&self, expr: &mut Expr) -> Result<()> {
        regroup(expr);
        if let Some(list) = in_list(expr) {
            *expr = list;
            return Ok(());
        }
        let Expr::Function(function) = expr else { return Ok(()) };
        if let Some(name) = called(&function.name).and_then(|name| of_functions(&name)) {
            function.name = ObjectName::from(vec![Ident::with_span(function.name.span(), name)]);
            make_lambdas(&mut function.args);
            return Ok(());
        }
        let name = match called(&function.name).as_deref() {
            Some("explode") => "unnest",
            Some("explode_outer") => "unnest_outer",
            Some("posexplode" | "posexplode_outer") => {
                let help = "write unnest(x) AS col, unnest(range(0, array_length(x))) AS pos";
                return Err(self.at("a function that gives two columns", function.name.span(), help));
            }
            _ => return Ok(()),
        };
        let span = function.name.span();
        function.name = ObjectName::from(vec![Ident::with_span(span, name)]);
        Ok(())
    }

    pub(super) fn expression(&self, expr: &Expr) -> Result<()> {
        let place = expr.span();
        let unknown =
            |words: &str, help: &str| Err(self.refusal(words, Span::new(place.start, place.start), help));
        match expr {
            Expr::Identifier(_)
            | Expr::CompoundIdentifier(_)
            | Expr::CompoundFieldAccess { root: _, access_chain: _ }
            | Expr::IsFalse(_)
            | Expr::IsNotFalse(_)
            | Expr::IsTrue(_)
            | Expr::IsNotTrue(_)
            | Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::IsUnknown(_)
            | Expr::IsNotUnknown(_)
            | Expr::IsDistinctFrom(..)
            | Expr::IsNotDistinctFrom(..)
            | Expr::InList { expr: _, list: _, negated: _ }
            | Expr::InSubquery { expr: _, subquery: _, negated: _ }
            | Expr::Between { expr: _, negated: _, low: _, high: _ }
            | Expr::BinaryOp { left: _, op: _, right: _ }
            | Expr::UnaryOp { op: _, expr: _ }
            | Expr::Extract { field: _, syntax: _, expr: _ }
            | Expr::Position { expr: _, r#in: _ }
            | Expr::Substring { expr: _, substring_from: _, substring_for: _, special: _, shorthand: _ }
            | Expr::Trim { trim_where: _, trim_what: _, expr: _, trim_characters: _ }
            | Expr::Overlay { expr: _, overlay_what: _, overlay_from: _, overlay_for: _ }
            | Expr::Nested(_)
            | Expr::Value(_)
            | Expr::TypedString(_)
            | Expr::Case { case_token: _, end_token: _, operand: _, conditions: _, else_result: _ }
            | Expr::Exists { subquery: _, negated: _ }
            | Expr::Subquery(_)
            | Expr::GroupingSets(_)
            | Expr::Cube(_)
            | Expr::Rollup(_)
            | Expr::Tuple(_)
            | Expr::Named { expr: _, name: _ }
            | Expr::Dictionary(_)
            | Expr::Map(_)
            | Expr::Array(_)
            | Expr::Lambda(_)
            | Expr::Wildcard(_)
            | Expr::QualifiedWildcard(..) => Ok(()),
            Expr::Like { negated: _, any, expr: _, pattern: _, escape_char: _ }
            | Expr::ILike { negated: _, any, expr: _, pattern: _, escape_char: _ } => self.without(
                *any,
                "ANY",
                Span::new(place.start, place.start),
                "write LIKE 'a%' OR … LIKE 'b%'",
            ),
            Expr::Cast { kind, expr: inner, data_type: _, array, format } => {
                match kind {
                    CastKind::Cast | CastKind::TryCast | CastKind::SafeCast | CastKind::DoubleColon => {}
                }
                self.without(*array, "ARRAY", inner.span(), "write CAST(… AS type[])")?;
                self.without(
                    format.is_some(),
                    "FORMAT",
                    inner.span(),
                    "write to_timestamp(text, format) or to_char(…)",
                )
            }
            Expr::Ceil { expr: inner, field } | Expr::Floor { expr: inner, field } => {
                let whole = matches!(field, CeilFloorKind::DateTimeField(DateTimeField::NoDateTime));
                let help = "write date_trunc('day', …), or multiply and divide";
                if whole { Ok(()) } else { Err(self.at(expr_words(expr), inner.span(), help)) }
            }
            Expr::AtTimeZone { timestamp, time_zone } => {
                let is_text = matches!(time_zone.as_ref(), Expr::Value(_));
                self.without(
                    !is_text,
                    "AT TIME ZONE",
                    timestamp.span(),
                    "give the time zone as text: 'Europe/Berlin'",
                )
            }
            Expr::Struct { values, fields } => {
                let inside = values.first().map_or(place, Spanned::span);
                let help = "write named_struct('a', 1, 'b', 2)";
                if fields.is_empty() { Ok(()) } else { Err(self.at("a struct with types", inside, help)) }
            }
            Expr::Interval(Interval {
                value,
                leading_field: _,
                leading_precision,
                last_field,
                fractional_seconds_precision,
            }) => {
                let narrow = leading_precision.is_some()
                    || last_field.is_some()
                    || fractional_seconds_precision.is_some();
                let help = "write INTERVAL '1 day 2 hours'";
                if narrow {
                    Err(self.at("an interval from one unit to another", value.span(), help))
                } else {
                    Ok(())
                }
            }
            Expr::Function(function) => self.function(function),
            Expr::AnyOp { left: _, compare_op: _, right, is_some: _ } => {
                let help = "compare with (SELECT min(…) …) or (SELECT max(…) …)";
                let is_query = matches!(right.as_ref(), Expr::Subquery(_));
                if is_query { Err(self.at("ANY of a query, but = ANY,", place, help)) } else { Ok(()) }
            }
            Expr::AllOp { left: _, compare_op: _, right } => {
                let help = "compare with (SELECT min(…) …) or (SELECT max(…) …)";
                let is_query = matches!(right.as_ref(), Expr::Subquery(_));
                if is_query { Err(self.at("ALL of a query, but <> ALL,", place, help)) } else { Ok(()) }
            }
            Expr::SimilarTo { .. } => unknown("SIMILAR TO", "write regexp_like(text, '^(…)$')"),
            Expr::RLike { regexp, .. } => {
                unknown(if *regexp { "REGEXP" } else { "RLIKE" }, "write regexp_like(text, '…')")
            }
            Expr::Collate { .. } => {
                unknown("COLLATE", "texts are compared by their bytes: write lower(text)")
            }
            Expr::InUnnest { .. } => unknown("UNNEST", "write array_has(list, value)"),
            Expr::Convert { .. } => unknown("CONVERT", "write CAST(value AS type)"),
            Expr::IsNormalized { .. } => unknown("IS", "texts are compared by their bytes"),
            Expr::JsonAccess { .. } => {
                Err(self.at("a path into JSON", place, "read the file as a table STORED AS JSON"))
            }
            Expr::Prefixed { prefix, .. } => {
                Err(self.at("a text with a prefix", prefix.span, "write the text in quotes: '…'"))
            }
            Expr::MatchAgainst { .. } => unknown("MATCH", "write regexp_like(text, '…')"),
            Expr::OuterJoin(inner) => Err(self.at("(+)", inner.span(), "write LEFT JOIN … ON …")),
            Expr::Prior(_) => unknown("PRIOR", "write WITH RECURSIVE …"),
            Expr::MemberOf(_) => unknown("MEMBER OF", "write array_has(list, value)"),
        }
    }

    fn at(&self, what: &str, place: Span, help: &str) -> Refusal {
        Refusal { message: format!("{what} is not understood"), help: help.into(), span: self.known(place) }
    }

    fn function(&self, function: &Function) -> Result<()> {
        let Function {
            name,
            uses_odbc_syntax: _,
            parameters,
            args,
            filter,
            null_treatment,
            over,
            within_group,
        } = function;
        let named = name.span();
        if *parameters != FunctionArguments::None {
            let help = "a function has one pair of parentheses: quantiles are approx_percentile_cont(x, 0.5)";
            return Err(self.at("a second pair of parentheses", named, help));
        }
        let mut only_many = None;
        match args {
            FunctionArguments::None => {}
            FunctionArguments::Subquery(query) => {
                let help = format!(
                    "write {name}((SELECT …)) for a single value, or SELECT array_agg(…) FROM … for a list"
                );
                return Err(self.at("a query as all arguments", query.span(), &help));
            }
            FunctionArguments::List(FunctionArgumentList { duplicate_treatment, args, clauses }) => {
                match duplicate_treatment {
                    Some(DuplicateTreatment::Distinct) => only_many = Some("DISTINCT"),
                    Some(DuplicateTreatment::All) => only_many = Some("ALL"),
                    None => {}
                }
                args.iter().try_for_each(|arg| self.argument(arg))?;
                for clause in clauses {
                    match clause {
                        FunctionArgumentClause::OrderBy(orders) => {
                            self.orders(orders)?;
                            only_many = Some("ORDER BY");
                        }
                        FunctionArgumentClause::IgnoreOrRespectNulls(treatment) => {
                            only_many = Some(nulls(treatment))
                        }
                        FunctionArgumentClause::Limit(_)
                        | FunctionArgumentClause::OnOverflow(_)
                        | FunctionArgumentClause::Having(_)
                        | FunctionArgumentClause::Separator(_)
                        | FunctionArgumentClause::JsonNullClause(_)
                        | FunctionArgumentClause::JsonReturningClause(_) => {
                            let words = clause.to_string();
                            let word = words.split(' ').next().unwrap_or_default();
                            let help = "leave it out: a separator is an argument, rows are chosen by FILTER (WHERE …)";
                            return Err(self.refusal(word, named, help));
                        }
                    }
                }
            }
        }
        if let Some(treatment) = null_treatment {
            only_many = Some(nulls(treatment));
        }
        if filter.is_some() {
            only_many = Some("FILTER");
        }
        if !within_group.is_empty() {
            self.orders(within_group)?;
            only_many = Some("WITHIN GROUP");
        }
        if let Some(over) = over {
            only_many = Some("OVER");
            match over {
                WindowType::NamedWindow(_) => {}
                WindowType::WindowSpec(WindowSpec {
                    window_name: _,
                    partition_by: _,
                    order_by,
                    window_frame,
                }) => {
                    self.orders(order_by)?;
                    if let Some(WindowFrame { units: _, start_bound: _, end_bound: _ }) = window_frame {}
                }
            }
        }
        match (only_many, called(name)) {
            (Some(words), Some(called)) if called.starts_with("unnest") || (self.is_scalar)(&called) => {
                let help = format!("{called} is given one row at a time: leave it out");
                Err(self.refusal(words, named, &help))
            }
            _ => Ok(()),
        }
    }

    fn argument(&self, argument: &FunctionArg) -> Result<()> {
        let (FunctionArg::Named { name: _, arg, operator: _ }
        | FunctionArg::ExprNamed { name: _, arg, operator: _ }
        | FunctionArg::Unnamed(arg)) = argument;
        match arg {
            FunctionArgExpr::Expr(_) | FunctionArgExpr::QualifiedWildcard(_) | FunctionArgExpr::Wildcard => {
                Ok(())
            }
            FunctionArgExpr::WildcardWithOptions(options) => {
                let star = options.wildcard_token.0.span;
                Err(self.at("a star with a choice of columns", star, "name the columns"))
            }
        }
    }
}

/// `x = ANY (SELECT …)` is `x IN (SELECT …)`, `x <> ALL (SELECT …)` is `x NOT IN (SELECT …)`.
fn in_list(expr: &Expr) -> Option<Expr> {
    let (left, right, negated) = match expr {
        Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, is_some: _ } => (left, right, false),
        Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => (left, right, true),
        _ => return None,
    };
    let Expr::Subquery(subquery) = right.as_ref() else { return None };
    Some(Expr::InSubquery { expr: left.clone(), subquery: subquery.clone(), negated })
}

/// DataFusion's name of a function that is given a function: `transform(list, x -> x + 1)`.
fn of_functions(name: &str) -> Option<&'static str> {
    match name {
        "array_transform" | "list_transform" | "list_apply" | "transform" => Some("array_transform"),
        "array_filter" | "list_filter" | "filter" => Some("array_filter"),
        "array_any_match" | "list_any_match" | "any_match" => Some("array_any_match"),
        _ => None,
    }
}

/// The parser takes the arrow of `x -> x + 1` for an operator of JSON.
fn make_lambdas(arguments: &mut FunctionArguments) {
    let FunctionArguments::List(list) = arguments else { return };
    for argument in &mut list.args {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument else { continue };
        let Expr::BinaryOp { left, op: BinaryOperator::Arrow, right } = expr else { continue };
        let parameter = |expr: &Expr| match expr {
            Expr::Identifier(name) => Some(LambdaFunctionParameter { name: name.clone(), data_type: None }),
            _ => None,
        };
        let params = match left.as_ref() {
            Expr::Tuple(all) => {
                all.iter().map(parameter).collect::<Option<Vec<_>>>().map(OneOrManyWithParens::Many)
            }
            Expr::Nested(one) => parameter(one).map(OneOrManyWithParens::One),
            one => parameter(one).map(OneOrManyWithParens::One),
        };
        if let Some(params) = params {
            *expr = Expr::Lambda(LambdaFunction { params, body: right.clone(), syntax: LambdaSyntax::Arrow });
        }
    }
}

fn expr_words(expr: &Expr) -> &'static str {
    if matches!(expr, Expr::Ceil { .. }) { "CEIL to a unit" } else { "FLOOR to a unit" }
}

fn nulls(treatment: &NullTreatment) -> &'static str {
    match treatment {
        NullTreatment::IgnoreNulls => "IGNORE NULLS",
        NullTreatment::RespectNulls => "RESPECT NULLS",
    }
}

/// How a function of one name is found.
fn called(name: &ObjectName) -> Option<String> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(ident)] if ident.quote_style.is_some() => Some(ident.value.clone()),
        [ObjectNamePart::Identifier(ident)] => Some(ident.value.to_lowercase()),
        _ => None,
    }
}
