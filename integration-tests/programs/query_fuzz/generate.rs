//! Random queries over random tables. Every answer is determined: limits stand over total orders, windows that number
//! rows too.

use crate::{
    random::Random,
    tables::{Kind, Table},
};
use std::collections::BTreeSet;

/// A query.
pub struct Query {
    /// As our engine writes it; [`Query::for_duckdb`] is the same for DuckDB.
    pub sql: String,
    /// Its rows come in a total order.
    pub ordered: bool,
    /// What it is made of, by name.
    pub features: BTreeSet<&'static str>,
}

impl Query {
    /// The query in the words of DuckDB.
    pub fn for_duckdb(&self) -> String {
        self.sql.replace("LEFT SEMI JOIN", "SEMI JOIN").replace("LEFT ANTI JOIN", "ANTI JOIN")
    }
}

/// A column that an expression may use.
#[derive(Clone)]
struct Column {
    sql: String,
    kind: Kind,
}

/// Something to select from, under an alias.
struct Relation {
    sql: String,
    columns: Vec<Column>,
}

/// A query without its order, whose columns are c0, c1, ….
struct Select {
    sql: String,
    kinds: Vec<Kind>,
}

/// Writes queries.
pub struct Generator<'a> {
    tables: &'a [Table],
    random: &'a mut Random,
    features: BTreeSet<&'static str>,
    aliases: usize,
    /// Common table expressions that may be read here.
    named: Vec<(String, Vec<Kind>)>,
}

const KINDS: &[Kind] = &[Kind::Int, Kind::Int, Kind::Int, Kind::Float, Kind::Text, Kind::Bool];

impl<'a> Generator<'a> {
    pub fn new(tables: &'a [Table], random: &'a mut Random) -> Self {
        Self { tables, random, features: BTreeSet::new(), aliases: 0, named: Vec::new() }
    }

    /// A query.
    pub fn query(mut self) -> Query {
        let mut prefix = String::new();
        if self.random.chance(15) {
            self.features.insert("cte");
            let inner = self.select(1, None);
            if self.random.chance(15) {
                self.features.insert("recursive cte");
                let most = self.random.within(2..6);
                prefix = format!(
                    "WITH RECURSIVE w0(c0) AS (SELECT 1 UNION ALL SELECT c0 + 1 FROM w0 WHERE c0 < {most}) "
                );
                self.named.push(("w0".into(), vec![Kind::Int]));
            } else {
                prefix = format!("WITH w0 AS ({}) ", inner.sql);
                self.named.push(("w0".into(), inner.kinds));
            }
        }
        let select = self.select(2, None);
        let (body, ordered) = match self.random.below(10) {
            0..4 => {
                let sql = self.in_order(&select, true);
                (sql, true)
            }
            4 => {
                self.features.insert("limit");
                let most = 1 + self.random.below(20);
                (
                    format!(
                        "SELECT count(*) AS c0 FROM (SELECT * FROM ({}) AS q LIMIT {most}) AS q",
                        select.sql
                    ),
                    false,
                )
            }
            5 => {
                let sql = self.in_order(&select, false);
                (sql, true)
            }
            _ => (select.sql, false),
        };
        Query { sql: format!("{prefix}{body}"), ordered, features: self.features }
    }

    fn alias(&mut self) -> String {
        self.aliases += 1;
        format!("t{}", self.aliases)
    }

    /// `select` in a total order; rows that are alike in all columns may change places.
    fn in_order(&mut self, select: &Select, limited: bool) -> String {
        let keys: Vec<String> = (0..select.kinds.len())
            .map(|at| {
                let direction = self.random.pick(&["ASC", "DESC"]);
                let nulls = self.random.pick(&["NULLS FIRST", "NULLS LAST"]);
                format!("c{at} {direction} {nulls}")
            })
            .collect();
        let limit = match (limited, self.random.below(4)) {
            (false, _) => String::new(),
            (true, 0) => format!(" OFFSET {}", self.random.below(8)),
            (true, 1) => format!(" LIMIT {} OFFSET {}", self.random.below(15), self.random.below(8)),
            (true, _) => format!(" LIMIT {}", self.random.below(20)),
        };
        self.features.insert(if limited { "order and limit" } else { "order" });
        format!("SELECT * FROM ({}) AS q ORDER BY {}{limit}", select.sql, keys.join(", "))
    }

    fn kinds(&mut self) -> Vec<Kind> {
        (0..1 + self.random.below(3)).map(|_| *self.random.one(KINDS)).collect()
    }

    fn select(&mut self, depth: usize, kinds: Option<&[Kind]>) -> Select {
        let kinds = kinds.map_or_else(|| self.kinds(), <[Kind]>::to_vec);
        let shape = if depth == 0 { self.random.below(60) } else { self.random.below(100) };
        match shape {
            0..35 => self.plain(depth, kinds),
            35..55 => self.grouped(depth, kinds),
            55..60 => self.distinct_on(kinds),
            60..75 => self.windowed(depth, kinds),
            75..90 => self.set_operation(depth, kinds),
            90..95 => {
                let inner = self.select(depth - 1, Some(&kinds));
                let sql = self.in_order(&inner, true);
                Select { sql, kinds }
            }
            _ => self.unnested(kinds),
        }
    }

    /// `c0, c1, …` for the expressions.
    fn listed(expressions: &[String]) -> String {
        expressions.iter().enumerate().map(|(at, e)| format!("{e} AS c{at}")).collect::<Vec<_>>().join(", ")
    }

    fn plain(&mut self, depth: usize, kinds: Vec<Kind>) -> Select {
        let (from, scope, clause) = self.from(depth);
        let expressions: Vec<String> =
            kinds.iter().map(|kind| self.projected(*kind, &scope, depth)).collect();
        let distinct = if self.random.chance(15) {
            self.features.insert("distinct");
            "DISTINCT "
        } else {
            ""
        };
        Select { sql: format!("SELECT {distinct}{} FROM {from}{clause}", Self::listed(&expressions)), kinds }
    }

    fn projected(&mut self, kind: Kind, scope: &[Column], depth: usize) -> String {
        if depth > 0 && self.random.chance(8) && matches!(kind, Kind::Int | Kind::Float) {
            return self.scalar_subquery(kind, scope);
        }
        self.value(kind, scope, 1)
    }

    fn grouped(&mut self, depth: usize, kinds: Vec<Kind>) -> Select {
        self.features.insert("aggregate");
        let (from, scope, clause) = self.from(depth);
        let keys: Vec<Column> = (0..self.random.below(4))
            .filter_map(|_| self.column_of(&[Kind::Int, Kind::Text, Kind::Bool, Kind::Float], &scope))
            .fold(Vec::new(), |mut keys: Vec<Column>, key| {
                if keys.iter().all(|known| known.sql != key.sql) {
                    keys.push(key);
                }
                keys
            });
        let expressions: Vec<String> = kinds
            .iter()
            .map(|kind| {
                let fitting: Vec<&Column> = keys.iter().filter(|key| key.kind == *kind).collect();
                if !fitting.is_empty() && self.random.chance(50) {
                    self.random.one(&fitting).sql.clone()
                } else {
                    self.aggregate(*kind, &scope)
                }
            })
            .collect();
        let names: Vec<&str> = keys.iter().map(|key| key.sql.as_str()).collect();
        let group = match (names.len(), self.random.below(10)) {
            (0, _) => String::new(),
            (_, 0) => {
                self.features.insert("rollup");
                format!(" GROUP BY ROLLUP ({})", names.join(", "))
            }
            (_, 1) => {
                self.features.insert("cube");
                format!(" GROUP BY CUBE ({})", names.join(", "))
            }
            (_, 2) => {
                self.features.insert("grouping sets");
                format!(" GROUP BY GROUPING SETS (({}), ({}), ())", names.join(", "), names[0])
            }
            _ => format!(" GROUP BY {}", names.join(", ")),
        };
        let having = if !names.is_empty() && self.random.chance(20) {
            format!(" HAVING count(*) > {}", self.random.below(3))
        } else {
            String::new()
        };
        Select {
            sql: format!("SELECT {} FROM {from}{clause}{group}{having}", Self::listed(&expressions)),
            kinds,
        }
    }

    fn aggregate(&mut self, kind: Kind, scope: &[Column]) -> String {
        let filter = if self.random.chance(15) {
            format!(" FILTER (WHERE {})", self.comparison(scope))
        } else {
            String::new()
        };
        let of = |generator: &mut Self, kind| generator.value(kind, scope, 0);
        let call = match kind {
            Kind::Int => match self.random.below(7) {
                0 => "count(*)".to_owned(),
                1 => {
                    let counted = *self.random.one(&[Kind::Int, Kind::Text, Kind::Float]);
                    format!("count({})", of(self, counted))
                }
                2 => {
                    let counted = *self.random.one(&[Kind::Int, Kind::Text]);
                    format!("count(DISTINCT {})", of(self, counted))
                }
                3 => format!("min({})", of(self, kind)),
                4 => format!("max({})", of(self, kind)),
                _ => format!("sum({})", of(self, kind)),
            },
            Kind::Float => match self.random.below(5) {
                0 => format!("avg({})", of(self, Kind::Int)),
                1 => format!("min({})", of(self, kind)),
                2 => format!("max({})", of(self, kind)),
                3 => format!("avg({})", of(self, kind)),
                _ => format!("sum({})", of(self, kind)),
            },
            Kind::Text if self.random.chance(25) => {
                let text = of(self, kind);
                format!("string_agg({text}, '+' ORDER BY {text})")
            }
            Kind::Text => format!("{}({})", self.random.pick(&["min", "max"]), of(self, kind)),
            Kind::Bool => format!("{}({})", self.random.pick(&["bool_and", "bool_or"]), of(self, kind)),
            Kind::List => {
                let value = of(self, Kind::Int);
                format!("array_agg({value} ORDER BY {value} NULLS LAST)")
            }
        };
        format!("{call}{filter}")
    }

    fn distinct_on(&mut self, kinds: Vec<Kind>) -> Select {
        self.features.insert("distinct on");
        let table = self.table();
        let alias = self.alias();
        let scope = scope_of(table, &alias);
        let (key, name) = (format!("{alias}.k"), &table.name);
        let expressions: Vec<String> = kinds.iter().map(|kind| self.value(*kind, &scope, 0)).collect();
        let direction = self.random.pick(&["ASC", "DESC"]);
        let sql = format!(
            "SELECT DISTINCT ON ({key}) {} FROM {name} AS {alias} ORDER BY {key} NULLS LAST, {alias}.id {direction}",
            Self::listed(&expressions)
        );
        Select { sql: format!("SELECT * FROM ({sql}) AS q"), kinds }
    }

    /// Windows that number rows go over rows of one table, or over whole rows, so that ties do not matter.
    fn windowed(&mut self, depth: usize, kinds: Vec<Kind>) -> Select {
        self.features.insert("window");
        let inner_kinds = vec![Kind::Int, Kind::Int, Kind::Float, Kind::Text];
        let inner = self.select(depth.saturating_sub(1), Some(&inner_kinds));
        let total = "q.c0 NULLS LAST, q.c1 DESC NULLS FIRST, q.c2 NULLS LAST, q.c3 NULLS FIRST";
        let scope: Vec<Column> = inner_kinds
            .iter()
            .enumerate()
            .map(|(at, kind)| Column { sql: format!("q.c{at}"), kind: *kind })
            .collect();
        let expressions: Vec<String> = kinds
            .iter()
            .map(|kind| {
                let by = if self.random.chance(60) {
                    format!("PARTITION BY {} ", self.random.pick(&["q.c0", "q.c1", "q.c3", "q.c1 % 3"]))
                } else {
                    String::new()
                };
                let rows = self.random.pick(&[
                    "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
                    "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
                    "ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING",
                    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
                ]);
                match (kind, self.random.below(8)) {
                    (Kind::Int, 0) => format!("row_number() OVER ({by}ORDER BY {total})"),
                    (Kind::Int, 1) => format!("rank() OVER ({by}ORDER BY q.c1 NULLS LAST)"),
                    (Kind::Int, 2) => format!("dense_rank() OVER ({by}ORDER BY q.c3 DESC NULLS LAST)"),
                    (Kind::Int, 3) => {
                        format!("lag(q.c0, {}) OVER ({by}ORDER BY {total})", self.random.within(1..3))
                    }
                    (Kind::Int, 4) => format!("count(*) OVER ({})", by.trim()),
                    (Kind::Int, 5) => format!("sum(q.c1) OVER ({by}ORDER BY q.c0 NULLS FIRST)"),
                    (Kind::Int, _) => format!("sum(q.c1) OVER ({by}ORDER BY {total} {rows})"),
                    (Kind::Float, 0) => format!("max(q.c2) OVER ({})", by.trim()),
                    (Kind::Float, _) => "q.c2".to_owned(),
                    (Kind::Text, 0) => format!("first_value(q.c3) OVER ({by}ORDER BY {total})"),
                    (Kind::Text, 1) => format!("last_value(q.c3) OVER ({by}ORDER BY {total} {rows})"),
                    (Kind::Text, 2) => format!("lead(q.c3) OVER ({by}ORDER BY {total})"),
                    (kind, _) => self.value(*kind, &scope, 1),
                }
            })
            .collect();
        Select { sql: format!("SELECT {} FROM ({}) AS q", Self::listed(&expressions), inner.sql), kinds }
    }

    fn set_operation(&mut self, depth: usize, kinds: Vec<Kind>) -> Select {
        let word = self.random.pick(&[
            "UNION ALL",
            "UNION ALL",
            "UNION ALL",
            "UNION",
            "UNION",
            "INTERSECT",
            "EXCEPT",
        ]);
        self.features.insert(word);
        let depth = depth.saturating_sub(1);
        let (left, right) = (self.select(depth, Some(&kinds)), self.select(depth, Some(&kinds)));
        let mut sql = format!("SELECT * FROM ({}) AS l {word} SELECT * FROM ({}) AS r", left.sql, right.sql);
        if word == "UNION ALL" && self.random.chance(30) {
            let third = self.select(0, Some(&kinds));
            sql = format!("{sql} UNION ALL SELECT * FROM ({}) AS s", third.sql);
        }
        Select { sql: format!("SELECT * FROM ({sql}) AS q"), kinds }
    }

    fn unnested(&mut self, kinds: Vec<Kind>) -> Select {
        let Some(table) = self.tables.iter().find(|t| t.columns.iter().any(|(_, kind)| *kind == Kind::List))
        else {
            return self.plain(0, kinds);
        };
        self.features.insert("unnest");
        let name = &table.name;
        let scope =
            [Column { sql: "u.id".into(), kind: Kind::Int }, Column { sql: "u.v".into(), kind: Kind::Int }];
        let expressions: Vec<String> = kinds.iter().map(|kind| self.value(*kind, &scope, 0)).collect();
        let inner = format!("SELECT id, unnest(l) AS v FROM {name} WHERE l IS NOT NULL");
        Select { sql: format!("SELECT {} FROM ({inner}) AS u", Self::listed(&expressions)), kinds }
    }

    fn table(&mut self) -> &'a Table {
        let tables = self.tables;
        self.random.one(tables)
    }

    fn relation(&mut self, depth: usize) -> Relation {
        let alias = self.alias();
        if !self.named.is_empty() && self.random.chance(35) {
            let (name, kinds) = self.random.one(&self.named).clone();
            return Relation { sql: format!("{name} AS {alias}"), columns: columns_of(&kinds, &alias) };
        }
        match self.random.below(20) {
            0 if depth > 0 => {
                self.features.insert("values");
                let row = |random: &mut Random| {
                    let number =
                        if random.chance(20) { "NULL".into() } else { random.within(0..6).to_string() };
                    format!("({number}, {})", random.within(-5..5))
                };
                let rows: Vec<String> = (0..1 + self.random.below(4)).map(|_| row(self.random)).collect();
                let columns = columns_of(&[Kind::Int, Kind::Int], &alias);
                // NULL alone would have no type.
                let sql = format!(
                    "(VALUES (CAST(1 AS BIGINT), CAST(0 AS BIGINT)), {}) AS {alias}(c0, c1)",
                    rows.join(", ")
                );
                Relation { sql, columns }
            }
            1 if depth > 0 => {
                self.features.insert("series");
                let most = self.random.within(1..8);
                let columns = columns_of(&[Kind::Int], &alias);
                Relation { sql: format!("generate_series(1, {most}) AS {alias}(c0)"), columns }
            }
            2 => {
                self.features.insert("empty");
                let table = self.table();
                let sql = format!("(SELECT * FROM {} WHERE 1 = 0) AS {alias}", table.name);
                Relation { sql, columns: scope_of(table, &alias) }
            }
            3..7 if depth > 0 => {
                let inner = self.select(depth - 1, None);
                Relation {
                    sql: format!("({}) AS {alias}", inner.sql),
                    columns: columns_of(&inner.kinds, &alias),
                }
            }
            _ => {
                let table = self.table();
                Relation { sql: format!("{} AS {alias}", table.name), columns: scope_of(table, &alias) }
            }
        }
    }

    /// What is selected from, the columns that it has, and a WHERE clause.
    fn from(&mut self, depth: usize) -> (String, Vec<Column>, String) {
        let Relation { mut sql, columns: mut scope } = self.relation(depth);
        let joins = match self.random.below(10) {
            0..4 => 0,
            4..8 => 1,
            _ => 2,
        };
        for _ in 0..joins {
            let right = self.relation(depth.saturating_sub(1));
            let words = [
                "INNER JOIN",
                "INNER JOIN",
                "LEFT JOIN",
                "LEFT JOIN",
                "RIGHT JOIN",
                "RIGHT JOIN",
                "FULL JOIN",
                "CROSS JOIN",
                "LEFT SEMI JOIN",
                "LEFT ANTI JOIN",
            ];
            let word = *self.random.one(&words);
            self.features.insert(word);
            if word == "CROSS JOIN" {
                sql = format!("{sql} CROSS JOIN {}", right.sql);
                scope.extend(right.columns);
                continue;
            }
            let condition = self.condition(&scope, &right.columns);
            sql = format!("{sql} {word} {} ON {condition}", right.sql);
            if !word.starts_with("LEFT SEMI") && !word.starts_with("LEFT ANTI") {
                scope.extend(right.columns);
            }
        }
        let clause = if self.random.chance(60) {
            let mut conditions = vec![self.predicate(&scope, depth, true)];
            if self.random.chance(25) {
                conditions.push(self.predicate(&scope, depth, true));
            }
            format!(" WHERE {}", conditions.join(" AND "))
        } else {
            String::new()
        };
        (sql, scope, clause)
    }

    /// When rows of two sides go together.
    fn condition(&mut self, left: &[Column], right: &[Column]) -> String {
        let shared = [Kind::Int, Kind::Int, Kind::Int, Kind::Text, Kind::Float, Kind::Bool];
        let mut kind = *self.random.one(&shared);
        let has = |columns: &[Column], kind| columns.iter().any(|column| column.kind == kind);
        if !has(left, kind) || !has(right, kind) {
            kind = Kind::Int;
        }
        let (Some(l), Some(r)) = (self.column_of(&[kind], left), self.column_of(&[kind], right)) else {
            return self.random.pick(&["true", "1 = 1"]).to_owned();
        };
        let (l, r) = (l.sql, r.sql);
        let equality = format!("{l} = {r}");
        let both: Vec<Column> = left.iter().chain(right).cloned().collect();
        match self.random.below(12) {
            0..4 => equality,
            4 | 5 => {
                self.features.insert("join filter");
                format!("{equality} AND {}", self.comparison(&both))
            }
            6 => {
                self.features.insert("null-safe join");
                format!("{l} IS NOT DISTINCT FROM {r}")
            }
            7 => format!("({equality} OR {})", self.comparison(&both)),
            8 | 9 => {
                self.features.insert("interval");
                let ints = |columns: &[Column], generator: &mut Self| generator.value(Kind::Int, columns, 0);
                let (low, high, at) = (ints(right, self), ints(right, self), ints(left, self));
                format!("{at} BETWEEN {low} AND {high}")
            }
            10 => format!("{l} {} {r}", self.random.pick(&["<", "<=", ">", ">=", "<>"])),
            _ => self.random.pick(&["true", "1 = 0"]).to_owned(),
        }
    }

    fn column_of(&mut self, kinds: &[Kind], scope: &[Column]) -> Option<Column> {
        let fitting: Vec<&Column> = scope.iter().filter(|column| kinds.contains(&column.kind)).collect();
        (!fitting.is_empty()).then(|| (*self.random.one(&fitting)).clone())
    }

    fn literal(&mut self, kind: Kind) -> String {
        match kind {
            Kind::Int => format!("CAST({} AS BIGINT)", self.random.within(-5..12)),
            Kind::Float => format!("CAST({} AS DOUBLE)", self.random.within(-4..5) as f64 * 0.5),
            Kind::Text => format!("'{}'", self.random.pick(&["a", "b", "ab", ""])),
            Kind::Bool => self.random.pick(&["true", "false"]).to_owned(),
            Kind::List => "[1, 2]".to_owned(),
        }
    }

    fn value(&mut self, kind: Kind, scope: &[Column], depth: usize) -> String {
        if depth > 0 && self.random.chance(35) {
            let (a, b) = (self.value(kind, scope, depth - 1), self.value(kind, scope, depth - 1));
            let choice = self.random.below(5);
            return match (kind, choice) {
                (_, 0) => format!("CASE WHEN {} THEN {a} ELSE {b} END", self.comparison(scope)),
                (_, 1) => format!("coalesce({a}, {b})"),
                (Kind::Int, 2) => format!("abs({a})"),
                (Kind::Int, 3) => format!("({a} % 7)"),
                (Kind::Int, _) => format!("({a} + {b})"),
                (Kind::Float, 2) => format!("CAST({} AS DOUBLE)", self.value(Kind::Int, scope, 0)),
                (Kind::Float, _) => format!("({a} + {b})"),
                (Kind::Text, 2) => format!("upper({a})"),
                (Kind::Text, _) => format!("({a} || {b})"),
                (Kind::Bool, _) => format!("({})", self.comparison(scope)),
                (Kind::List, _) => a,
            };
        }
        match self.column_of(&[kind], scope) {
            Some(column) if !self.random.chance(7) => column.sql,
            _ => self.literal(kind),
        }
    }

    /// A condition without subqueries.
    fn comparison(&mut self, scope: &[Column]) -> String {
        let kind = *self.random.one(&[Kind::Int, Kind::Int, Kind::Int, Kind::Float, Kind::Text]);
        let (a, b) = (self.value(kind, scope, 0), self.value(kind, scope, 0));
        match self.random.below(12) {
            0 => format!("{a} IS NULL"),
            1 => format!("{a} IS NOT NULL"),
            2 => {
                self.features.insert("IS DISTINCT FROM");
                format!("{a} IS DISTINCT FROM {b}")
            }
            3 => format!("{a} IN ({b}, {})", self.literal(kind)),
            4 => format!("{a} NOT IN ({b}, {})", self.literal(kind)),
            5 => format!("NOT ({a} = {b})"),
            6 if kind == Kind::Text => format!("{a} LIKE '{}%'", self.random.pick(&["a", "b"])),
            7 => format!("{a} BETWEEN {b} AND {}", self.value(kind, scope, 0)),
            _ => format!("{a} {} {b}", self.random.pick(&["=", "<", "<=", ">", ">=", "<>"])),
        }
    }

    /// A condition, with subqueries where it stands at the top of a WHERE clause.
    fn predicate(&mut self, scope: &[Column], depth: usize, top: bool) -> String {
        match self.random.below(20) {
            0..6 => self.comparison(scope),
            6 => format!("({} OR {})", self.comparison(scope), self.comparison(scope)),
            7 if depth > 0 => {
                self.features.insert("subquery within OR");
                format!("({} OR {})", self.comparison(scope), self.within(scope, depth))
            }
            8..12 if depth > 0 && top => self.within(scope, depth),
            12..16 if depth > 0 && top => self.exists(scope),
            16 | 17 if depth > 0 => {
                let kind = *self.random.one(&[Kind::Int, Kind::Float]);
                let (a, b) = (self.value(kind, scope, 0), self.scalar_subquery(kind, scope));
                format!("{a} {} {b}", self.random.pick(&["=", "<", ">=", "<>"]))
            }
            _ => self.comparison(scope),
        }
    }

    /// `x [NOT] IN (SELECT …)`.
    fn within(&mut self, scope: &[Column], depth: usize) -> String {
        let word = self.random.pick(&["IN", "NOT IN", "NOT IN"]);
        self.features.insert(word);
        let kind = *self.random.one(&[Kind::Int, Kind::Int, Kind::Text, Kind::Float]);
        let value = self.value(kind, scope, 0);
        if self.random.chance(15) {
            self.features.insert("correlated IN");
            let (table, alias) = (self.table(), self.alias());
            let inner = scope_of(table, &alias);
            let (of, outer) = (self.value(kind, &inner, 0), self.value(Kind::Int, scope, 0));
            return format!(
                "{value} {word} (SELECT {of} FROM {} AS {alias} WHERE {alias}.k = {outer})",
                table.name
            );
        }
        let inner = self.select(depth.saturating_sub(1), Some(&[kind]));
        format!("{value} {word} ({})", inner.sql)
    }

    fn exists(&mut self, scope: &[Column]) -> String {
        let word = self.random.pick(&["EXISTS", "NOT EXISTS"]);
        self.features.insert(word);
        let (table, alias) = (self.table(), self.alias());
        let inner = scope_of(table, &alias);
        let condition = match self.random.below(4) {
            0 => {
                let (a, b) = (self.value(Kind::Int, &inner, 0), self.value(Kind::Int, scope, 0));
                format!("{a} {} {b}", self.random.pick(&["<", ">", "<>"]))
            }
            1 => {
                let at = self.value(Kind::Int, scope, 0);
                format!(
                    "{at} BETWEEN {} AND {}",
                    self.value(Kind::Int, &inner, 0),
                    self.value(Kind::Int, &inner, 0)
                )
            }
            2 => {
                let outer = self.value(Kind::Int, scope, 0);
                format!("{alias}.k = {outer} AND {}", self.comparison(&inner))
            }
            _ => format!("{alias}.k = {}", self.value(Kind::Int, scope, 0)),
        };
        format!("{word} (SELECT 1 FROM {} AS {alias} WHERE {condition})", table.name)
    }

    fn scalar_subquery(&mut self, kind: Kind, scope: &[Column]) -> String {
        self.features.insert("scalar subquery");
        let (table, alias) = (self.table(), self.alias());
        let inner = scope_of(table, &alias);
        let call = match kind {
            Kind::Int => self.random.pick(&["max", "min", "sum", "count"]),
            _ => self.random.pick(&["max", "min"]),
        };
        let of = self.value(kind, &inner, 0);
        let condition = if self.random.chance(50) {
            self.features.insert("correlated scalar subquery");
            format!(" WHERE {alias}.k = {}", self.value(Kind::Int, scope, 0))
        } else {
            String::new()
        };
        format!("(SELECT {call}({of}) FROM {} AS {alias}{condition})", table.name)
    }
}

fn scope_of(table: &Table, alias: &str) -> Vec<Column> {
    table.columns.iter().map(|(name, kind)| Column { sql: format!("{alias}.{name}"), kind: *kind }).collect()
}

fn columns_of(kinds: &[Kind], alias: &str) -> Vec<Column> {
    kinds.iter().enumerate().map(|(at, kind)| Column { sql: format!("{alias}.c{at}"), kind: *kind }).collect()
}
