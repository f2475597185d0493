"""What the dialect does, clause by clause: reference for tests/dialect.rs.

Each clause is done, and gives what DuckDB 1.4.1 gives, or is refused at a word. Writes golden/dialect.json.
Run: integration-tests/servers/duckdb.sh install, then
~/.cache/voxelflow/servers/duckdb-1.4.1/bin/python integration-tests/reference/dialect.py
"""

import json
import sys
from pathlib import Path

import duckdb

FOLDER = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(FOLDER / "servers"))
from duckdb_lines import text  # noqa: E402

assert duckdb.__version__ == "1.4.1", duckdb.__version__

TABLES = {
    "runs": "SELECT * FROM (VALUES (1, 'rest', 1.5, 10), (2, 'rest', 2.5, 20), (3, 'motor', 0.5, 10), "
    "(4, 'motor', NULL, 30), (5, 'motor', 4.0, 30), (6, NULL, 4.0, 40)) AS v (id, task, score, age)",
    "events": "SELECT * FROM (VALUES (1, 'left', 0.5), (1, 'right', 4.5), (2, 'left', 1.0), (2, 'left', 1.0), "
    "(7, 'rest', 9.0)) AS v (id, trial, onset)",
    "twice": "SELECT * FROM (VALUES (1), (1), (1), (2), (3), (NULL), (NULL)) AS v (n)",
    "once": "SELECT * FROM (VALUES (1), (1), (2), (4), (NULL)) AS v (n)",
    "lists": "SELECT * FROM (VALUES (1, [1.0, 2.0, 4.0]), (2, [3.0, 5.0, 7.0]), (3, [8.0, 0.0, 1.0])) AS v (id, series)",
}

# A query, and what DuckDB is asked where it writes the same otherwise.
DONE = {
    "SELECT": [
        "SELECT id, task FROM runs",
        "SELECT ALL id FROM runs",
        "SELECT DISTINCT task FROM runs",
        "SELECT DISTINCT ON (task) task, id FROM runs ORDER BY task, id DESC",
        "SELECT *, id + 1 AS next FROM runs",
        "SELECT runs.* FROM runs",
        "SELECT * EXCLUDE (age) FROM runs",
        ("SELECT * EXCEPT (age) FROM runs", "SELECT * EXCLUDE (age) FROM runs"),
        "SELECT * REPLACE (age + 2 AS age) FROM runs",
        "SELECT 1 AS one, 'a' AS text, NULL AS nothing, TRUE AS yes",
        "SELECT id AS \"Id\" FROM runs",
        "FROM runs SELECT id, age",
        "FROM runs",
        "SELECT id, FROM runs",
        "VALUES (1, 'a'), (2, 'b')",
        "SELECT CASE WHEN score > 2 THEN 'high' WHEN score IS NULL THEN 'none' ELSE 'low' END AS c FROM runs",
        "SELECT CASE task WHEN 'rest' THEN 1 ELSE 0 END AS c FROM runs",
        "SELECT id FROM runs WHERE age BETWEEN 10 AND 20",
        "SELECT id FROM runs WHERE age NOT BETWEEN 10 AND 20",
        "SELECT id FROM runs WHERE task LIKE 'm%'",
        "SELECT id FROM runs WHERE task ILIKE 'RE%'",
        "SELECT id FROM runs WHERE task NOT LIKE '%t' ",
        "SELECT 'a_b' LIKE 'a\\_b' ESCAPE '\\' AS e, 'axb' LIKE 'a\\_b' ESCAPE '\\' AS f",
        "SELECT id FROM runs WHERE id IN (1, 3, 9)",
        "SELECT id FROM runs WHERE id NOT IN (1, 3)",
        "SELECT id FROM runs WHERE id IN (SELECT id FROM events)",
        "SELECT id FROM runs WHERE id NOT IN (SELECT id FROM events)",
        "SELECT id FROM runs AS r WHERE EXISTS (SELECT 1 FROM events AS e WHERE e.id = r.id)",
        "SELECT id FROM runs AS r WHERE NOT EXISTS (SELECT 1 FROM events AS e WHERE e.id = r.id)",
        "SELECT id, (SELECT max(onset) FROM events) AS last FROM runs",
        "SELECT id, (SELECT count(*) FROM events AS e WHERE e.id = r.id) AS n FROM runs AS r",
        "SELECT id FROM runs WHERE age = ANY (SELECT 10)",
        ("SELECT id FROM runs WHERE age <> ALL (SELECT 10)", "SELECT id FROM runs WHERE age NOT IN (SELECT 10)"),
        "SELECT id FROM runs WHERE task IS NULL",
        "SELECT id FROM runs WHERE task IS NOT DISTINCT FROM NULL",
        "SELECT id FROM runs WHERE task IS DISTINCT FROM 'rest'",
        "SELECT id FROM runs WHERE (score > 2) IS TRUE",
        "SELECT id FROM runs WHERE (score > 2) IS NOT TRUE",
        ("SELECT id FROM runs WHERE (score > 2) IS UNKNOWN", "SELECT id FROM runs WHERE (score > 2) IS NULL"),
        "SELECT CAST(age AS DOUBLE) AS c, score::VARCHAR AS t, TRY_CAST('x' AS INTEGER) AS n FROM runs WHERE id = 1",
        "SELECT EXTRACT(year FROM DATE '2026-11-30') AS y",
        "SELECT POSITION('b' IN 'abc') AS p, SUBSTRING('abcd' FROM 2 FOR 2) AS s, TRIM(BOTH 'x' FROM 'xax') AS t",
        ("SELECT OVERLAY('abcd' PLACING 'xy' FROM 2 FOR 2) AS o", "SELECT 'axyd' AS o"),
        "SELECT CEIL(1.2) AS c, FLOOR(1.8) AS f",
        "SELECT DATE '2026-01-31' + INTERVAL '1 month' > DATE '2026-02-27' AS later",
        "SELECT 7 / 2.0 AS d, 7 % 3 AS m, 2 & 3 AS a, 2 | 1 AS o, 1 << 3 AS l",
        "SELECT 'a' || 'b' AS c",
        # PostgreSQL's operator, which DuckDB takes for a match of the whole.
        ("SELECT 'abc' ~ 'b' AS m", "SELECT regexp_matches('abc', 'b') AS m"),
        "SELECT [1, 2, 3][2] AS second, [1, 2, 3][1:2] AS two",
        ("SELECT {'a': 1}['a'] AS a", "SELECT 1 AS a"),
    ],
    "FROM": [
        "SELECT r.id FROM runs AS r",
        "SELECT x.a FROM runs AS x (a, b, c, d)",
        "SELECT s.n FROM (SELECT count(*) AS n FROM runs) AS s",
        "SELECT v.a FROM (VALUES (1), (2)) AS v (a)",
        "SELECT a.id, b.id FROM runs AS a, events AS b WHERE a.id = b.id",
        "SELECT u.x FROM UNNEST([1, 2, 3]) AS u (x)",
        "SELECT id, unnest(series) AS x FROM lists",
        ("SELECT value FROM generate_series(1, 3)", "SELECT generate_series AS value FROM generate_series(1, 3)"),
        ("SELECT value FROM range(1, 3)", "SELECT range AS value FROM range(1, 3)"),
        "SELECT r.id, l.n FROM runs AS r CROSS JOIN LATERAL (SELECT count(*) AS n FROM events AS e WHERE e.id = r.id) AS l",
    ],
    "JOIN": [
        "SELECT r.id, e.trial FROM runs AS r JOIN events AS e ON r.id = e.id",
        "SELECT r.id, e.trial FROM runs AS r INNER JOIN events AS e USING (id)",
        "SELECT r.id, e.trial FROM runs AS r LEFT JOIN events AS e ON r.id = e.id",
        "SELECT e.id, r.task FROM runs AS r RIGHT OUTER JOIN events AS e ON r.id = e.id",
        "SELECT r.id, e.id FROM runs AS r FULL OUTER JOIN events AS e ON r.id = e.id",
        "SELECT count(*) AS n FROM runs CROSS JOIN events",
        "SELECT id, trial FROM runs NATURAL JOIN events",
        "SELECT r.id FROM runs AS r SEMI JOIN events AS e ON r.id = e.id",
        "SELECT r.id FROM runs AS r ANTI JOIN events AS e ON r.id = e.id",
        ("SELECT r.id FROM runs AS r LEFT SEMI JOIN events AS e ON r.id = e.id",
         "SELECT r.id FROM runs AS r SEMI JOIN events AS e ON r.id = e.id"),
        ("SELECT r.id FROM runs AS r LEFT ANTI JOIN events AS e ON r.id = e.id",
         "SELECT r.id FROM runs AS r ANTI JOIN events AS e ON r.id = e.id"),
        "SELECT r.id, e.trial FROM runs AS r JOIN events AS e ON e.onset BETWEEN r.score AND r.score + 3",
        "SELECT a.id FROM (runs AS a JOIN events AS b ON a.id = b.id)",
    ],
    "GROUP BY": [
        "SELECT task, count(*) AS n FROM runs GROUP BY task",
        "SELECT task, count(*) AS n FROM runs GROUP BY 1",
        "SELECT task, count(*) AS n FROM runs GROUP BY ALL",
        "SELECT task, count(*) AS n FROM runs GROUP BY task HAVING count(*) > 1",
        "SELECT task, age, count(*) AS n FROM runs GROUP BY ROLLUP (task, age)",
        "SELECT task, age, count(*) AS n FROM runs GROUP BY CUBE (task, age)",
        "SELECT task, age, count(*) AS n FROM runs GROUP BY GROUPING SETS ((task), (age), ())",
        "SELECT count(DISTINCT age) AS n, sum(age) FILTER (WHERE score > 1) AS s FROM runs",
        "SELECT task, array_agg(id ORDER BY id DESC) AS ids FROM runs GROUP BY task",
        "SELECT string_agg(task, ',' ORDER BY id) AS tasks FROM runs",
        "SELECT avg(score) AS a, min(age) AS l, max(age) AS h, stddev(age) AS s, var_pop(age) AS v FROM runs",
        ("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY age) AS m FROM runs", "SELECT quantile_cont(age, 0.5) AS m FROM runs"),
        "SELECT count(*) AS n FROM runs HAVING count(*) > 10",
    ],
    "WINDOW": [
        "SELECT id, row_number() OVER (ORDER BY id DESC) AS n FROM runs",
        "SELECT id, rank() OVER (PARTITION BY task ORDER BY age) AS n FROM runs",
        "SELECT id, sum(age) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM runs",
        "SELECT id, sum(age) OVER (ORDER BY age RANGE BETWEEN 10 PRECEDING AND CURRENT ROW) AS s FROM runs",
        "SELECT id, sum(age) OVER (ORDER BY age GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM runs",
        "SELECT id, lag(age) OVER (ORDER BY id) AS l, lead(age, 1, 0) OVER (ORDER BY id) AS f FROM runs",
        ("SELECT id, first_value(score) IGNORE NULLS OVER (ORDER BY id DESC) AS f FROM runs",
         "SELECT id, first_value(score IGNORE NULLS) OVER (ORDER BY id DESC) AS f FROM runs"),
        "SELECT id, count(*) FILTER (WHERE score > 1) OVER (ORDER BY id) AS c FROM runs",
        "SELECT id, sum(age) OVER w AS s FROM runs WINDOW w AS (PARTITION BY task)",
        "SELECT id, sum(age) OVER (w ORDER BY id) AS s FROM runs WINDOW w AS (PARTITION BY task)",
        ("SELECT id, sum(age) OVER v AS s FROM runs WINDOW w AS (PARTITION BY task), v AS (w ORDER BY id)",
         "SELECT id, sum(age) OVER (PARTITION BY task ORDER BY id) AS s FROM runs"),
        "SELECT id FROM runs WINDOW w AS (PARTITION BY task ORDER BY id DESC) ORDER BY row_number() OVER w, id",
        "SELECT id, task FROM runs QUALIFY row_number() OVER (PARTITION BY task ORDER BY id) = 1",
        "SELECT id, task FROM runs WINDOW w AS (PARTITION BY task ORDER BY id) QUALIFY row_number() OVER w = 1",
        "SELECT id, ntile(2) OVER (ORDER BY id) AS n, percent_rank() OVER (ORDER BY age) AS p FROM runs",
    ],
    "sets": [
        "SELECT n FROM twice UNION SELECT n FROM once",
        "SELECT n FROM twice UNION ALL SELECT n FROM once",
        "SELECT n FROM twice UNION DISTINCT SELECT n FROM once",
        "SELECT n FROM twice INTERSECT SELECT n FROM once",
        "SELECT n FROM twice EXCEPT SELECT n FROM once",
        ("SELECT n FROM twice MINUS SELECT n FROM once", "SELECT n FROM twice EXCEPT SELECT n FROM once"),
        "SELECT id, age FROM runs UNION BY NAME SELECT onset, id FROM events",
        "SELECT id, age FROM runs UNION ALL BY NAME SELECT onset, id FROM events",
        "(SELECT n FROM twice LIMIT 0) UNION ALL (SELECT n FROM once)",
    ],
    "ORDER BY, LIMIT": [
        "SELECT id FROM runs ORDER BY age DESC, id",
        "SELECT id, score FROM runs ORDER BY score NULLS FIRST, id",
        "SELECT id, score FROM runs ORDER BY 2 DESC NULLS LAST, 1",
        "SELECT age, id FROM runs ORDER BY ALL",
        "SELECT id FROM runs ORDER BY id LIMIT 2",
        "SELECT id FROM runs ORDER BY id LIMIT 2 OFFSET 3",
        "SELECT id FROM runs ORDER BY id OFFSET 4",
        ("SELECT id FROM runs ORDER BY id LIMIT 1, 2", "SELECT id FROM runs ORDER BY id LIMIT 2 OFFSET 1"),
        ("SELECT id FROM runs ORDER BY id FETCH FIRST 2 ROWS ONLY", "SELECT id FROM runs ORDER BY id LIMIT 2"),
        ("SELECT id FROM runs ORDER BY id OFFSET 1 ROW FETCH NEXT ROW ONLY", "SELECT id FROM runs ORDER BY id LIMIT 1 OFFSET 1"),
    ],
    "WITH": [
        "WITH a AS (SELECT id FROM runs), b AS (SELECT id + 1 AS id FROM a) SELECT * FROM b",
        "WITH a (x) AS (SELECT id FROM runs) SELECT x FROM a",
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4) SELECT i FROM n",
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION SELECT i % 3 + 1 FROM n) SELECT i FROM n",
    ],
    "pipes": [
        ("FROM runs |> WHERE age > 10 |> SELECT id", "SELECT id FROM runs WHERE age > 10"),
        ("FROM runs |> AGGREGATE count(*) AS n GROUP BY task", "SELECT task, count(*) AS n FROM runs GROUP BY task"),
        ("FROM runs |> EXTEND age + 1 AS next |> ORDER BY id |> LIMIT 2", "SELECT *, age + 1 AS next FROM runs ORDER BY id LIMIT 2"),
    ],
    "lists": [
        ("SELECT id, explode(series) AS x FROM lists", "SELECT id, unnest(series) AS x FROM lists"),
        "SELECT u.x, u.n FROM UNNEST([10, 20, 40]) WITH ORDINALITY AS u (x, n)",
        ("SELECT id, unnest(series) AS x, unnest(range(0, array_length(series))) AS n FROM lists",
         "SELECT id, unnest(series) AS x, unnest(range(0, len(series))) AS n FROM lists"),
        ("SELECT id, series * 2 AS d FROM lists", "SELECT id, [x * 2.0 FOR x IN series] AS d FROM lists"),
        ("SELECT id, 1 - series / 4 AS d FROM lists", "SELECT id, [1 - x / 4 FOR x IN series] AS d FROM lists"),
        ("SELECT a.id, a.series + b.series AS s FROM lists AS a JOIN lists AS b ON b.id = a.id % 3 + 1",
         "SELECT a.id, [z[1] + z[2] FOR z IN list_zip(a.series, b.series)] AS s FROM lists AS a JOIN lists AS b ON b.id = a.id % 3 + 1"),
        *[
            (f"SELECT {name}(series) AS s FROM lists",
             f"SELECT list(s ORDER BY n) FROM (SELECT n, {name}(x) AS s FROM (SELECT unnest(series)::DOUBLE AS x, "
             "generate_subscripts(series, 1) AS n FROM lists) GROUP BY n)")
            for name in ("avg", "sum", "min", "max", "stddev", "stddev_pop", "var_pop", "var_samp")
        ],
        ("SELECT id % 2 AS g, avg(series) AS s FROM lists GROUP BY id % 2",
         "SELECT g, list(s ORDER BY n) FROM (SELECT g, n, avg(x) AS s FROM (SELECT id % 2 AS g, unnest(series)::DOUBLE AS x, "
         "generate_subscripts(series, 1) AS n FROM lists) GROUP BY g, n) GROUP BY g"),
        ("SELECT id, array_transform(series, x -> x * 2) AS d FROM lists", "SELECT id, list_transform(series, lambda x: x * 2) AS d FROM lists"),
        ("SELECT id, list_transform(series, x -> x + 1) AS d FROM lists", "SELECT id, list_transform(series, lambda x: x + 1) AS d FROM lists"),
    ],
}

# A query, and the word at which it is refused.
REFUSED = {
    "SELECT": [
        ("SELECT TOP 2 id FROM runs", "TOP"),
        ("SELECT id INTO copy FROM runs", "INTO"),
        ("SELECT * ILIKE '%a%' FROM runs", "ILIKE"),
        ("SELECT * RENAME (id AS number) FROM runs", "RENAME"),
        ("SELECT AS STRUCT id FROM runs", "id"),
        ("SELECT FROM runs", "SELECT"),
        ("SELECT id FROM runs PREWHERE age > 10", "PREWHERE"),
        ("SELECT id FROM runs START WITH id = 1 CONNECT BY PRIOR id = age", "START"),
        ("SELECT id FROM runs CONNECT BY PRIOR id = age", "CONNECT"),
        ("SELECT id FROM runs CLUSTER BY id", "CLUSTER"),
        ("SELECT id FROM runs DISTRIBUTE BY id", "DISTRIBUTE"),
        ("SELECT id FROM runs SORT BY id", "SORT"),
        ("SELECT id FROM runs LATERAL VIEW explode(task) t AS x", "LATERAL"),
        ("SELECT id FROM runs WHERE task SIMILAR TO 'r%'", "SIMILAR"),
        ("SELECT id FROM runs WHERE task RLIKE 'r.*'", "RLIKE"),
        ("SELECT id FROM runs WHERE task LIKE ANY ('r%', 'm%')", "ANY"),
        ("SELECT task COLLATE \"de\" FROM runs", "COLLATE"),
        ("SELECT CAST('2026' AS DATE FORMAT 'YYYY')", "FORMAT"),
        ("SELECT id FROM runs WHERE id IN UNNEST([1, 2])", "UNNEST"),
        ("SELECT id FROM runs WHERE age >= ALL (SELECT age FROM runs)", "age >="),
        ("SELECT id FROM runs WHERE age > ANY (SELECT age FROM runs)", "age >"),
        ("SELECT CEIL(score TO DAY) FROM runs", "score"),
        ("SELECT quantile(0.5)(score) FROM runs", "quantile"),
        ("SELECT ARRAY(SELECT id FROM runs)", "SELECT id"),
        ("SELECT abs(DISTINCT age) FROM runs", "DISTINCT"),
        ("SELECT abs(age) FILTER (WHERE age > 1) FROM runs", "FILTER"),
        ("SELECT abs(age) OVER () FROM runs", "OVER"),
        ("SELECT string_agg(task, ',' LIMIT 2) FROM runs", "LIMIT"),
        ("SELECT sum(age) OVER missing FROM runs", "missing"),
        ("SELECT posexplode(series) FROM lists", "posexplode"),
    ],
    "FROM": [
        ("SELECT id FROM runs TABLESAMPLE BERNOULLI (10)", "TABLESAMPLE"),
        ("SELECT id FROM runs TABLESAMPLE SYSTEM (10) REPEATABLE (1)", "TABLESAMPLE"),
        ("SELECT id FROM runs TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        ("SELECT id FROM runs AS r TABLESAMPLE (2 ROWS)", "TABLESAMPLE"),
        ("SELECT id FROM (SELECT id FROM runs) TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        ("SELECT id FROM runs SAMPLE 0.1", "SAMPLE"),
        ("SELECT id FROM runs USING SAMPLE 3", "USING"),
        ("SELECT id FROM runs FINAL", "FINAL"),
        ("SELECT id FROM runs FOR SYSTEM_TIME AS OF '2026-01-01'", "SYSTEM_TIME"),
        ("SELECT id FROM runs WITH (NOLOCK)", "WITH"),
        ("SELECT x FROM UNNEST([1, 2]) AS x WITH OFFSET", "WITH"),
        ("SELECT * FROM TABLE(generate_series(1, 3))", "TABLE"),
        ("SELECT * FROM runs PIVOT (sum(age) FOR task IN ('rest', 'motor'))", "PIVOT"),
        ("SELECT * FROM runs UNPIVOT (value FOR name IN (age, score))", "UNPIVOT"),
        ("SELECT * FROM runs MATCH_RECOGNIZE (ORDER BY id MEASURES a.id AS x PATTERN (a+) DEFINE a AS age > 10)", "MATCH_RECOGNIZE"),
        ("SELECT * FROM JSON_TABLE('[1]', '$[*]' COLUMNS (a INT PATH '$'))", "JSON_TABLE"),
        ("SELECT x.a FROM runs AS x (a INT, b TEXT)", "a INT"),
        ("SELECT l.id, u.x FROM lists AS l, UNNEST(l.series) AS u (x)", "l.series"),
        ("SELECT l.id, u.x FROM lists AS l, UNNEST(l.series) WITH ORDINALITY AS u (x, n)", "l.series"),
    ],
    "JOIN": [
        ("SELECT r.id FROM runs AS r JOIN events AS e", "events"),
        ("SELECT r.id FROM runs AS r GLOBAL JOIN events AS e ON r.id = e.id", "GLOBAL"),
        ("SELECT r.id FROM runs AS r ASOF JOIN events AS e MATCH_CONDITION (r.score >= e.onset) ON r.id = e.id", "ASOF"),
        ("SELECT r.id FROM runs r ASOF JOIN events e ON r.id = e.id AND r.score >= e.onset", "ON"),
        ("SELECT runs.id FROM runs POSITIONAL JOIN events", "POSITIONAL"),
        ("SELECT runs.id FROM runs ANY LEFT JOIN events ON runs.id = events.id", "ANY"),
        ("SELECT * FROM runs AS r CROSS APPLY (SELECT 1) AS x", "CROSS"),
        ("SELECT * FROM runs AS r OUTER APPLY (SELECT 1) AS x", "OUTER"),
        ("SELECT * FROM runs AS r STRAIGHT_JOIN events AS e ON r.id = e.id", "STRAIGHT_JOIN"),
        ("SELECT * FROM lists ARRAY JOIN series", "ARRAY"),
    ],
    "GROUP BY": [
        ("SELECT task, count(*) FROM runs GROUP BY task WITH ROLLUP", "WITH"),
        ("SELECT task, count(*) FROM runs GROUP BY task WITH CUBE", "WITH"),
        ("SELECT task, count(*) FROM runs GROUP BY task WITH TOTALS", "WITH"),
    ],
    "sets": [
        ("SELECT n FROM twice INTERSECT ALL SELECT n FROM once", "INTERSECT"),
        ("SELECT n FROM twice EXCEPT ALL SELECT n FROM once", "EXCEPT"),
        ("SELECT n FROM twice MINUS ALL SELECT n FROM once", "MINUS"),
        ("SELECT n FROM twice INTERSECT BY NAME SELECT n FROM once", "BY"),
        ("TABLE runs", "TABLE"),
    ],
    "ORDER BY, LIMIT": [
        ("SELECT id FROM runs LIMIT 1 BY task", "LIMIT"),
        ("SELECT id FROM runs ORDER BY id FETCH FIRST 2 ROWS WITH TIES", "WITH"),
        ("SELECT id FROM runs ORDER BY id FETCH FIRST 10 PERCENT ROWS ONLY", "PERCENT"),
        ("SELECT id FROM runs ORDER BY id WITH FILL FROM 1 TO 9", "WITH"),
        ("SELECT id FROM runs FOR UPDATE", "FOR"),
        ("SELECT id FROM runs FOR SHARE NOWAIT", "FOR"),
        ("SELECT id FROM runs FOR JSON AUTO", "FOR"),
        ("SELECT id FROM runs SETTINGS max_threads = 1", "SETTINGS"),
        ("SELECT id FROM runs FORMAT CSV", "FORMAT"),
    ],
    "WITH": [
        ("WITH a AS MATERIALIZED (SELECT id FROM runs) SELECT * FROM a", "MATERIALIZED"),
        ("WITH a AS NOT MATERIALIZED (SELECT id FROM runs) SELECT * FROM a", "NOT"),
    ],
    "pipes": [
        ("FROM runs |> DROP age", "DROP"),
        ("FROM runs |> TABLESAMPLE BERNOULLI (10)", "TABLESAMPLE"),
        ("FROM runs |> RENAME id AS number", "RENAME"),
    ],
    "statements": [
        ("CREATE TEMPORARY VIEW v AS SELECT 1 AS one", "TEMPORARY"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1 AS one", "MATERIALIZED"),
        ("CREATE VIEW IF NOT EXISTS v AS SELECT 1 AS one", "IF"),
        ("CREATE TABLE t (a INT PRIMARY KEY)", "PRIMARY"),
        ("CREATE TABLE t (a INT DEFAULT 3)", "DEFAULT"),
        ("CREATE TABLE t (a INT CHECK (a > 0))", "CHECK"),
        ("CREATE TABLE t (a INT, UNIQUE (a))", "UNIQUE"),
        ("CREATE TABLE t (a INT) WITH (x = 1)", "WITH"),
        ("CREATE UNBOUNDED EXTERNAL TABLE t STORED AS CSV LOCATION 'x.csv'", "UNBOUNDED"),
        ("CREATE INDEX i ON runs (id)", "CREATE"),
        ("CREATE SEQUENCE s", "CREATE"),
        ("DROP TABLE runs CASCADE", "CASCADE"),
        ("DROP TABLE runs, events", "events"),
        ("DROP INDEX i", "DROP"),
        ("BEGIN", "BEGIN"),
        ("COMMIT", "COMMIT"),
        ("MERGE INTO runs USING events ON runs.id = events.id WHEN MATCHED THEN DELETE", "MERGE"),
        ("GRANT SELECT ON runs TO somebody", "GRANT"),
        ("SET SESSION x = 1", "SESSION"),
        ("WITH d AS (DELETE FROM runs) SELECT 1", "DELETE"),
    ],
}


def column(query, word):
    """Where `word` stands, from 1; `a b` is the place of `b` behind `a`."""
    at = query.find(word)
    assert at >= 0, (query, word)
    while at and word[0].isalnum() and (query[at - 1].isalnum() or query[at - 1] == "_"):
        at = query.find(word, at + 1)
        assert at >= 0, (query, word)
    return at + 1


def main():
    connection = duckdb.connect(config={"threads": 1})
    for name, query in TABLES.items():
        connection.execute(f"CREATE TABLE {name} AS {query}")
    cases = []
    for clause, queries in DONE.items():
        for query in queries:
            query, asked = query if isinstance(query, tuple) else (query, query)
            rows = connection.execute(asked).fetchall()
            ordered = "ORDER BY" in query.split(" OVER ")[-1].split("WINDOW")[-1] and "QUALIFY" not in query
            case = {"clause": clause, "query": query, "rows": [[text(value) for value in row] for row in rows]}
            if ordered and query.rstrip().rfind("ORDER BY") > query.rfind(")"):
                case["ordered"] = True
            cases.append(case)
    for clause, queries in REFUSED.items():
        cases += [{"clause": clause, "query": query, "refused_at": column(query, word)} for query, word in queries]
    tables = [{"name": name, "query": query} for name, query in TABLES.items()]
    golden = {"duckdb": duckdb.__version__, "tables": tables, "cases": cases}
    lines = ",\n".join("    " + json.dumps(case, ensure_ascii=False) for case in cases)
    head = json.dumps({"duckdb": golden["duckdb"]})[:-1]
    tables = ",\n".join("    " + json.dumps(table, ensure_ascii=False) for table in tables)
    (FOLDER / "golden").mkdir(exist_ok=True)
    (FOLDER / "golden" / "dialect.json").write_text(f'{head},\n  "tables": [\n{tables}\n  ],\n  "cases": [\n{lines}\n  ]\n}}\n')
    print(len(cases), "clauses")


main()
