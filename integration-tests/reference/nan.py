"""NaN in Parquet, whose statistics leave it out: reference for tests/dialect.rs.

Made with pyarrow, and answered by DuckDB 1.4.1 of rows in its memory: of the file with statistics it loses rows itself
(`one <> 1` gives none, `one = 1` all). Writes golden/nan/*.parquet and golden/nan.json.
Run: pip install pyarrow duckdb==1.4.1, then python integration-tests/reference/nan.py
"""

import json
import sys
from pathlib import Path

import duckdb
import numpy
import pyarrow
import pyarrow.parquet

FOLDER = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(FOLDER / "servers"))
from duckdb_lines import text  # noqa: E402

assert duckdb.__version__ == "1.4.1", duckdb.__version__

nan = float("nan")
ONE = [1.0, nan, 1.0, 1.0, 1.0, nan, 1.0, 1.0]
MANY = [0.5, nan, 3.0, 2.0, -1.0, -2.0, nan, nan]
NULLS = [1.0, nan, None, 1.0, None, None, nan, nan]
table = pyarrow.table(
    {
        "id": pyarrow.array(range(8), pyarrow.int64()),
        "one": pyarrow.array(ONE, pyarrow.float64()),
        "single": pyarrow.array(ONE, pyarrow.float32()),
        "many": pyarrow.array(MANY, pyarrow.float64()),
        "nulls": pyarrow.array(NULLS, pyarrow.float64()),
        "deep": pyarrow.array([{"x": x} for x in ONE], pyarrow.struct([("x", pyarrow.float64())])),
        "series": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(numpy.repeat(ONE, 3), pyarrow.float32()), 3),
    }
)

QUERIES = [
    "SELECT id, one, single, many, nulls FROM {t}",
    "SELECT id, one + single AS s FROM {t}",
    *[
        "SELECT id FROM {t} WHERE " + condition.format(x=x)
        for x in ("one", "single", "many", "nulls", "deep.x")
        for condition in (
            "{x} < 1",
            "{x} <= 1",
            "{x} <> 1",
            "{x} > 1",
            "{x} >= 1",
            "{x} = 1",
            "NOT ({x} = 1)",
            "{x} > 5",
            "isnan({x})",
            "NOT isnan({x})",
            "{x} IS NULL",
            "{x} NOT IN (1, 2)",
            "{x} BETWEEN 0 AND 2",
            "{x} NOT BETWEEN 0 AND 2",
            "{x} IS DISTINCT FROM 1",
        )
    ],
    "SELECT count(*) AS n, count(nulls) AS k FROM {t} WHERE one <> 1",
    "SELECT sum(id) AS s FROM {t} WHERE one > 1 AND id > 3",
    "SELECT id FROM {t} WHERE id > 5",
    "SELECT id, many FROM {t} ORDER BY many DESC, id LIMIT 2",
    "SELECT id, many FROM {t} WHERE many > 2 ORDER BY many, id LIMIT 3",
    "SELECT a.id AS a, b.id AS b FROM {t} AS a JOIN {t} AS b ON a.many = b.many",
    "SELECT one, count(*) AS n FROM {t} GROUP BY one",
    "SELECT DISTINCT single FROM {t}",
    "SELECT id FROM {t} WHERE single > 1 OR many < -1",
    "SELECT id, series FROM {t} WHERE single <> 1",
]


def main():
    connection = duckdb.connect(config={"threads": 1})
    connection.register("arrow_rows", table)
    names = []
    for name, options in {
        "with": {"write_statistics": True, "write_page_index": True},
        "without": {"write_statistics": False},
    }.items():
        path = FOLDER / "golden" / "nan" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(table, path, row_group_size=4, data_page_size=16, **options)
        connection.execute(f"CREATE TABLE {name}_statistics AS SELECT * FROM arrow_rows")
        names.append((f"{name}_statistics", f"nan/{name}.parquet"))
    # Rows of ours, by our own writer.
    select = "SELECT id, one, single, many, nulls, deep, series FROM with_statistics"
    connection.execute(f"CREATE TABLE ours AS {select}")
    cases = []
    for name in [name for name, _ in names] + ["ours"]:
        for query in QUERIES:
            query = query.format(t=name)
            rows = connection.execute(query).fetchall()
            case = {"query": query, "rows": [[text(value) for value in row] for row in rows]}
            cases.append({**case, "ordered": True} if "ORDER BY" in query else case)
    golden = {
        "duckdb": duckdb.__version__,
        "pyarrow": pyarrow.__version__,
        "files": [{"name": name, "path": path} for name, path in names],
        "tables": [{"name": "ours", "query": select}],
    }
    lines = ",\n".join("    " + json.dumps(case) for case in cases)
    head = json.dumps(golden, indent=2)[:-2]
    (FOLDER / "golden" / "nan.json").write_text(f'{head},\n  "cases": [\n{lines}\n  ]\n}}\n')
    print(len(cases), "queries")


main()
