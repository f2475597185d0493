//! `a IS DISTINCT FROM b AND c`: sqlparser takes all that follows as the right side, `b AND c`. Here it is
//! `(a IS DISTINCT FROM b) AND c`, as in the standard.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value};

/// Puts AND, OR and NOT of `expr` in their order, if a comparison has swallowed some of them.
pub(super) fn regroup(expr: &mut Expr) {
    if swallows(expr) {
        let whole = std::mem::replace(expr, Expr::value(Value::Null));
        *expr = grouped(flat(whole));
    }
}

/// Conditions in the order in which they are written, each but the last with the word behind it.
type Flat = (Vec<(Expr, BinaryOperator)>, Expr);

fn is_logic(op: &BinaryOperator) -> bool {
    matches!(op, BinaryOperator::And | BinaryOperator::Or)
}

fn swallows(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryOp { left, op, right } if is_logic(op) => swallows(left) || swallows(right),
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => swallows(expr),
        Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right) => {
            matches!(right.as_ref(), Expr::BinaryOp { op, .. } if is_logic(op)) || swallows(right)
        }
        _ => false,
    }
}

/// What `expr` is made of, within no parentheses.
fn flat(expr: Expr) -> Flat {
    match expr {
        Expr::BinaryOp { left, op, right } if is_logic(&op) => {
            let (mut before, last) = flat(*left);
            let (behind, end) = flat(*right);
            before.push((last, op));
            before.extend(behind);
            (before, end)
        }
        Expr::UnaryOp { op: op @ UnaryOperator::Not, expr } => {
            first(*expr, |expr| Expr::UnaryOp { op, expr: Box::new(expr) })
        }
        Expr::IsDistinctFrom(left, right) => {
            first(*right, |right| Expr::IsDistinctFrom(left, Box::new(right)))
        }
        Expr::IsNotDistinctFrom(left, right) => {
            first(*right, |right| Expr::IsNotDistinctFrom(left, Box::new(right)))
        }
        other => (Vec::new(), other),
    }
}

/// What `expr` is made of, the first part within `around`.
fn first(expr: Expr, around: impl FnOnce(Expr) -> Expr) -> Flat {
    let (mut parts, last) = flat(expr);
    if parts.is_empty() {
        return (parts, around(last));
    }
    let (first, op) = parts.remove(0);
    parts.insert(0, (around(first), op));
    (parts, last)
}

/// AND before OR.
fn grouped((parts, last): Flat) -> Expr {
    let join = |left: Option<Expr>, op: BinaryOperator, right: Expr| match left {
        Some(left) => Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) },
        None => right,
    };
    let (mut either, mut both) = (None, None);
    for (part, op) in parts {
        let all = join(both.take(), BinaryOperator::And, part);
        match op {
            BinaryOperator::And => both = Some(all),
            _ => either = Some(join(either.take(), BinaryOperator::Or, all)),
        }
    }
    join(either, BinaryOperator::Or, join(both, BinaryOperator::And, last))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::{dialect::GenericDialect, parser::Parser};

    /// With parentheses around everything.
    fn shown(expr: &Expr) -> String {
        match expr {
            Expr::BinaryOp { left, op, right } => format!("({} {op} {})", shown(left), shown(right)),
            Expr::UnaryOp { op, expr } => format!("({op} {})", shown(expr)),
            Expr::IsDistinctFrom(left, right) => format!("({} <> {})", shown(left), shown(right)),
            Expr::IsNotDistinctFrom(left, right) => format!("({} == {})", shown(left), shown(right)),
            other => other.to_string(),
        }
    }

    #[test]
    fn words_behind_a_comparison_stand_outside_of_it() {
        for (text, meant) in [
            ("a IS DISTINCT FROM b AND c", "((a <> b) AND c)"),
            ("p AND a IS DISTINCT FROM b OR c", "((p AND (a <> b)) OR c)"),
            ("p OR a IS NOT DISTINCT FROM b AND c = 1", "(p OR ((a == b) AND (c = 1)))"),
            ("NOT a IS DISTINCT FROM b OR c AND d", "((NOT (a <> b)) OR (c AND d))"),
            ("a IS DISTINCT FROM b AND c IS DISTINCT FROM d OR e", "(((a <> b) AND (c <> d)) OR e)"),
            ("a IS DISTINCT FROM (b AND c)", "(a <> (b AND c))"),
            ("a AND b OR c", "((a AND b) OR c)"),
            ("a IS DISTINCT FROM b", "(a <> b)"),
        ] {
            let mut expr = Parser::new(&GenericDialect {}).try_with_sql(text).unwrap().parse_expr().unwrap();
            regroup(&mut expr);
            assert_eq!(shown(&expr), meant, "{text}");
        }
    }
}
