//! `WITH`, `SELECT`, sets, `ORDER BY`, `LIMIT`.

use super::{Admission, Refusal, Result};
use datafusion::sql::sqlparser::{
    ast::{
        ConnectByKind, Cte, Distinct, ExcludeSelectItem, Expr, ExprWithAliasAndOrderBy, Fetch, GroupByExpr,
        Join, LimitClause, Offset, OrderBy, OrderByExpr, OrderByKind, OrderByOptions, PipeOperator, Query,
        Select, SelectFlavor, SelectItem, SetExpr, SetOperator, SetQuantifier, Spanned, TableAlias,
        TableFactor, TableWithJoins, Value, Values, WildcardAdditionalOptions, With,
    },
    tokenizer::Span,
};

impl Admission<'_> {
    pub(super) fn query(&self, query: &mut Query) -> Result<()> {
        let body_span = query.body.span();
        let Query {
            with,
            body,
            order_by,
            limit_clause,
            fetch,
            locks,
            for_clause,
            settings,
            format_clause,
            pipe_operators,
        } = query;
        if let Some(with) = with {
            self.with(with)?;
        }
        self.set(body)?;
        let ends = order_by.as_ref().map_or(body_span, |order| body_span.union(&order.span()));
        if let Some(order) = order_by {
            by_all(order);
            self.order(order, body_span)?;
        }
        if let Some(limit) = limit_clause {
            self.limit(limit, ends)?;
        }
        if let Some(fetch) = fetch.take() {
            self.fetch(fetch, limit_clause, ends)?;
        }
        self.without(
            !locks.is_empty(),
            "FOR",
            ends,
            "tables are files, of which no row can be locked: leave it out",
        )?;
        self.without(for_clause.is_some(), "FOR", ends, "rows are written by `voxelflow sql --format json`")?;
        self.without(
            settings.is_some(),
            "SETTINGS",
            ends,
            "a setting is a statement of its own: SET name = value",
        )?;
        self.without(
            format_clause.is_some(),
            "FORMAT",
            ends,
            "rows are written by COPY … TO '…' STORED AS …",
        )?;
        pipe_operators.iter_mut().try_for_each(|operator| self.pipe(operator, ends))
    }

    fn with(&self, with: &With) -> Result<()> {
        let With { with_token: _, recursive: _, cte_tables } = with;
        cte_tables.iter().try_for_each(|cte| {
            // Whether it is computed once or where it is read makes no difference to the rows.
            let Cte { alias, query, from, materialized: _, closing_paren_token: _ } = cte;
            self.alias(Some(alias))?;
            self.without(from.is_some(), "FROM", query.span(), "write FROM within the parentheses")
        })
    }

    fn set(&self, mut set: &mut SetExpr) -> Result<()> {
        while let SetExpr::SetOperation { left, op, set_quantifier, right } = set {
            let (before, word) = (left.span(), op.to_string());
            if *op == SetOperator::Minus {
                *op = SetOperator::Except;
            }
            let counted = match set_quantifier {
                SetQuantifier::Distinct | SetQuantifier::None => false,
                SetQuantifier::All => true,
                SetQuantifier::ByName | SetQuantifier::AllByName | SetQuantifier::DistinctByName => {
                    let by_name = *op != SetOperator::Union;
                    self.without(
                        by_name,
                        "BY NAME",
                        before,
                        "only UNION goes by names: put the columns in one order",
                    )?;
                    false
                }
            };
            if counted && *op != SetOperator::Union {
                let help = "rows that are there several times are not counted against each other; number them with \
                            row_number() OVER (PARTITION BY …) on both sides, or leave ALL out";
                return Err(self.refusal(&format!("{word} ALL"), before, help));
            }
            self.set(right)?;
            set = left;
        }
        match set {
            SetExpr::Select(_) | SetExpr::Query(_) | SetExpr::SetOperation { .. } => Ok(()),
            SetExpr::Values(Values { explicit_row: _, value_keyword: _, rows: _ }) => Ok(()),
            SetExpr::Table(table) => {
                let name = table.table_name.clone().unwrap_or_default();
                Err(self.refusal("TABLE", Span::empty(), &format!("write SELECT * FROM {name}")))
            }
            SetExpr::Insert(change)
            | SetExpr::Update(change)
            | SetExpr::Delete(change)
            | SetExpr::Merge(change) => {
                let message = "a query that changes a table is not understood".into();
                let help = "a query reads tables only; make the change a statement of its own".into();
                Err(Refusal { message, help, span: self.known(change.span()) })
            }
        }
    }

    /// `after` is what stands before it.
    fn order(&self, order: &OrderBy, after: Span) -> Result<()> {
        let OrderBy { kind, interpolate } = order;
        self.without(
            interpolate.is_some(),
            "INTERPOLATE",
            after,
            "join the rows with generate_series instead",
        )?;
        match kind {
            OrderByKind::All(OrderByOptions { asc: _, nulls_first: _ }) => Ok(()),
            OrderByKind::Expressions(all) => self.orders(all),
        }
    }

    /// Expressions to sort by, wherever they stand.
    pub(super) fn orders(&self, all: &[OrderByExpr]) -> Result<()> {
        all.iter().try_for_each(|order| {
            let OrderByExpr { expr, options: OrderByOptions { asc: _, nulls_first: _ }, with_fill } = order;
            let help = "join the rows with generate_series instead";
            self.without(with_fill.is_some(), "WITH FILL", expr.span(), help)
        })
    }

    fn limit(&self, limit: &LimitClause, after: Span) -> Result<()> {
        match limit {
            LimitClause::LimitOffset { limit: _, offset, limit_by } => {
                if let Some(Offset { value: _, rows: _ }) = offset {}
                let help = "write QUALIFY row_number() OVER (PARTITION BY … ORDER BY …) <= n";
                let Some(first) = limit_by.first() else { return Ok(()) };
                let mut refusal = self.refusal("LIMIT", after, help);
                refusal.message = "LIMIT … BY is not understood".into();
                refusal.span = refusal.span.union(&first.span());
                Err(refusal)
            }
            LimitClause::OffsetCommaLimit { offset: _, limit: _ } => Ok(()),
        }
    }

    /// `FETCH FIRST n ROWS ONLY` is `LIMIT n`.
    fn fetch(&self, fetch: Fetch, limit: &mut Option<LimitClause>, after: Span) -> Result<()> {
        let Fetch { with_ties, percent, quantity } = fetch;
        let ties = "write QUALIFY rank() OVER (ORDER BY …) <= n";
        self.without(with_ties, "WITH TIES", after, ties)?;
        self.without(percent, "PERCENT", after, "write QUALIFY percent_rank() OVER (ORDER BY …) <= …")?;
        let quantity = quantity.unwrap_or_else(|| Expr::value(Value::Number("1".into(), false)));
        match limit {
            None => {
                *limit = Some(LimitClause::LimitOffset {
                    limit: Some(quantity),
                    offset: None,
                    limit_by: Vec::new(),
                });
                Ok(())
            }
            Some(LimitClause::LimitOffset { limit: limit @ None, .. }) => {
                *limit = Some(quantity);
                Ok(())
            }
            Some(_) => Err(self.refusal("FETCH", after, "there is a LIMIT already: give one of them")),
        }
    }

    fn pipe(&self, operator: &mut PipeOperator, after: Span) -> Result<()> {
        let unknown = |words: &str| Err(self.refusal(words, after, "write the whole as SELECT … FROM …"));
        match operator {
            PipeOperator::Limit { expr: _, offset: _ }
            | PipeOperator::Where { expr: _ }
            | PipeOperator::As { alias: _ } => Ok(()),
            PipeOperator::OrderBy { exprs } => self.orders(exprs),
            PipeOperator::Select { exprs } | PipeOperator::Extend { exprs } => self.items(exprs),
            PipeOperator::Aggregate { full_table_exprs, group_by_expr } => {
                let mut all = full_table_exprs.iter().chain(group_by_expr.iter());
                let is_sorted = |given: &ExprWithAliasAndOrderBy| {
                    let ExprWithAliasAndOrderBy { expr: _, order_by: OrderByOptions { asc, nulls_first } } =
                        given;
                    asc.is_some() || nulls_first.is_some()
                };
                let help = "write |> ORDER BY … behind it";
                self.without(all.any(is_sorted), "AGGREGATE", after, help)
            }
            PipeOperator::Union { set_quantifier: _, queries: _ } => Ok(()),
            PipeOperator::Intersect { set_quantifier, queries: _ }
            | PipeOperator::Except { set_quantifier, queries: _ } => match set_quantifier {
                SetQuantifier::Distinct | SetQuantifier::None => Ok(()),
                SetQuantifier::All
                | SetQuantifier::ByName
                | SetQuantifier::AllByName
                | SetQuantifier::DistinctByName => {
                    Err(self.refusal(&set_quantifier.to_string(), after, "write DISTINCT, or leave it out"))
                }
            },
            PipeOperator::Join(join) => self.join(join),
            PipeOperator::Set { .. } => unknown("SET"),
            PipeOperator::Drop { .. } => unknown("DROP"),
            PipeOperator::TableSample { .. } => unknown("TABLESAMPLE"),
            PipeOperator::Rename { .. } => unknown("RENAME"),
            PipeOperator::Call { .. } => unknown("CALL"),
            PipeOperator::Pivot { .. } => unknown("PIVOT"),
            PipeOperator::Unpivot { .. } => unknown("UNPIVOT"),
        }
    }

    pub(super) fn select(&self, select: &mut Select) -> Result<()> {
        let start = select.select_token.0.span;
        let Select {
            select_token: _,
            // A comment.
            optimizer_hints: _,
            distinct,
            select_modifiers,
            top,
            top_before_distinct: _,
            projection,
            exclude,
            into,
            from,
            lateral_views,
            prewhere,
            selection,
            connect_by,
            group_by,
            cluster_by,
            distribute_by,
            sort_by,
            having: _,
            // Both are put into words by `windows`.
            named_window: _,
            qualify: _,
            window_before_qualify: _,
            value_table_mode,
            flavor,
        } = select;
        match distinct {
            None | Some(Distinct::All | Distinct::Distinct | Distinct::On(_)) => {}
        }
        if let Some(modifiers) = select_modifiers {
            let words = modifiers.to_string();
            self.without(true, words.trim(), start, "it is for another database's planner: leave it out")?;
        }
        self.without(top.is_some(), "TOP", start, "write LIMIT at the end")?;
        if matches!(flavor, SelectFlavor::FromFirstNoSelect) && projection.is_empty() {
            projection.push(SelectItem::Wildcard(WildcardAdditionalOptions::default()));
        }
        if projection.is_empty() {
            let message = "SELECT without columns is not understood".into();
            let span = self.known(start);
            return Err(Refusal { message, help: "name the columns, or write SELECT *".into(), span });
        }
        self.items(projection)?;
        let listed = projection.last().map_or(start, |item| item.span());
        self.without(exclude.is_some(), "EXCLUDE", listed, "write SELECT * EXCLUDE (…) at the star")?;
        self.without(into.is_some(), "INTO", listed, "write CREATE TABLE … AS SELECT …")?;
        from.iter_mut().try_for_each(|from| self.from(from))?;
        let read = from.last().map_or(listed, Spanned::span);
        let unnest = "write SELECT id, unnest(column) AS value FROM t";
        self.without(!lateral_views.is_empty(), "LATERAL VIEW", read, unnest)?;
        self.without(prewhere.is_some(), "PREWHERE", read, "write WHERE")?;
        let filtered = selection.as_ref().map_or(read, |condition| read.union(&condition.span()));
        let recursive = "write WITH RECURSIVE …";
        let connect = match connect_by.first() {
            Some(ConnectByKind::StartWith { start_token: _, condition: _ }) => "START WITH",
            Some(ConnectByKind::ConnectBy { connect_token: _, nocycle: _, relationships: _ }) | None => {
                "CONNECT BY"
            }
        };
        self.without(!connect_by.is_empty(), connect, filtered, recursive)?;
        self.groups(group_by, filtered)?;
        let grouped = filtered.union(&group_by.span());
        let order =
            "rows of a table are in no order, and spread over partitions as it is best: write ORDER BY";
        self.without(!cluster_by.is_empty(), "CLUSTER BY", grouped, order)?;
        self.without(!distribute_by.is_empty(), "DISTRIBUTE BY", grouped, order)?;
        self.without(!sort_by.is_empty(), "SORT BY", grouped, order)?;
        self.without(value_table_mode.is_some(), "AS", start, "write SELECT named_struct('a', a, …)")
    }

    fn groups(&self, group: &GroupByExpr, after: Span) -> Result<()> {
        let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) = group;
        let Some(modifier) = modifiers.first() else { return Ok(()) };
        let words = modifier.to_string();
        let words: Vec<&str> = words.split(' ').take(2).collect();
        Err(self.refusal(&words.join(" "), after, "write GROUP BY ROLLUP (…), CUBE (…) or GROUPING SETS (…)"))
    }

    fn items(&self, items: &mut [SelectItem]) -> Result<()> {
        items.iter().try_for_each(|item| match item {
            SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { expr: _, alias: _ } => Ok(()),
            SelectItem::ExprWithAliases { expr, aliases: _ } => {
                let message = "a column with several names is not understood".into();
                let help = "give each column a name of its own".into();
                Err(Refusal { message, help, span: self.known(expr.span()) })
            }
            SelectItem::QualifiedWildcard(_, options) | SelectItem::Wildcard(options) => self.star(options),
        })
    }

    pub(super) fn star(&self, options: &WildcardAdditionalOptions) -> Result<()> {
        let WildcardAdditionalOptions {
            wildcard_token,
            opt_ilike,
            opt_exclude,
            opt_except: _,
            opt_replace: _,
            opt_rename,
            opt_alias,
        } = options;
        let star = wildcard_token.0.span;
        match opt_exclude {
            None | Some(ExcludeSelectItem::Single(_) | ExcludeSelectItem::Multiple(_)) => {}
        }
        self.without(opt_ilike.is_some(), "ILIKE", star, "name the columns")?;
        self.without(opt_rename.is_some(), "RENAME", star, "write SELECT * EXCLUDE (a), a AS b")?;
        self.without(opt_alias.is_some(), "AS", star, "a star stands for several columns: give each its name")
    }

    fn from(&self, from: &mut TableWithJoins) -> Result<()> {
        let TableWithJoins { relation, joins } = from;
        // Its name is looked at first: it may be the beginning of a join.
        if let TableFactor::Table { alias, .. } | TableFactor::Derived { alias, .. } = relation {
            self.alias(alias.as_ref())?;
        }
        joins.iter_mut().try_for_each(|join: &mut Join| self.join(join))
    }

    /// A name of a relation that was not meant as one is refused.
    pub(super) fn alias(&self, alias: Option<&TableAlias>) -> Result<()> {
        let Some(TableAlias { explicit, name, columns, at }) = alias else { return Ok(()) };
        if !explicit && name.quote_style.is_none() && NO_NAMES.contains(&name.value.to_uppercase().as_str()) {
            let word = name.value.to_uppercase();
            let message = format!("{word} is not understood");
            let help =
                format!("leave it out; if it is meant as the name of the table, write AS {}", name.value);
            return Err(Refusal { message, help, span: self.known(name.span) });
        }
        if let Some(typed) = columns.iter().find(|column| column.data_type.is_some()) {
            let message = "a type behind a column's name is not understood".into();
            let help = "give the columns their names only, and CAST them in SELECT".into();
            return Err(Refusal { message, help, span: self.known(typed.name.span) });
        }
        self.without(at.is_some(), "AT", name.span, "write row_number() OVER () for the number of an element")
    }
}

/// The parser takes the `ALL` of `ORDER BY ALL` for a column.
fn by_all(order: &mut OrderBy) {
    if let OrderByKind::Expressions(all) = &order.kind
        && let [OrderByExpr { expr: Expr::Identifier(name), options, with_fill: None }] = all.as_slice()
        && name.quote_style.is_none()
        && name.value.eq_ignore_ascii_case("all")
    {
        order.kind = OrderByKind::All(*options);
    }
}

/// Words of other databases that sqlparser takes for the name of the table before them.
const NO_NAMES: [&str; 20] = [
    "ALL",
    "ANTI",
    "ANY",
    "APPLY",
    "ASOF",
    "FINAL",
    "FORMAT",
    "GLOBAL",
    "MATCH_RECOGNIZE",
    "PASTE",
    "PIVOT",
    "POSITIONAL",
    "PREWHERE",
    "SAMPLE",
    "SEMI",
    "SETTINGS",
    "STREAM",
    "TABLESAMPLE",
    "UNPIVOT",
    "WINDOW",
];
