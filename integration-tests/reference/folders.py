"""Folders of Parquet as other tools write them: reference for tests/dialect.rs.

Written by pyarrow, pandas, polars, DuckDB and dask; those of Spark and Hive by hand, as these lay them out. Answered by
DuckDB 1.4.1, which is told which files have rows. Writes golden/folders/ and golden/folders.json.
Run: pip install pyarrow pandas polars dask duckdb==1.4.1, then python integration-tests/reference/folders.py
"""

import datetime
import json
import shutil
import sys
from pathlib import Path

import dask
import dask.dataframe
import duckdb
import pandas
import polars
import pyarrow
import pyarrow.parquet

TESTS = Path(__file__).resolve().parents[1]
FOLDER = TESTS / "golden" / "folders"
sys.path.insert(0, str(TESTS / "servers"))
from duckdb_lines import text  # noqa: E402

assert duckdb.__version__ == "1.4.1", duckdb.__version__


def write(path, columns, metadata=None, **options):
    path = FOLDER / path
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pyarrow.table(columns)
    if metadata:
        table = table.replace_schema_metadata(metadata)
    pyarrow.parquet.write_table(table, path, **options)
    return path


def int32(*values):
    return pyarrow.array(values, pyarrow.int32())


def int64(*values):
    return pyarrow.array(values, pyarrow.int64())


def spark():
    """`df.write.partitionBy("subject", "year").parquet("spark")`."""
    word = "org.apache.spark.sql.parquet.row.metadata"
    parts = [("01", "2026", (1, 2)), ("02", "2026", (3,)), ("02", "__HIVE_DEFAULT_PARTITION__", (4,))]
    for number, (subject, year, ids) in enumerate(parts):
        folder = f"spark/subject={subject}/year={year}"
        name = f"part-{number:05}-5a3c.c000.snappy.parquet"
        write(f"{folder}/{name}", {"id": int32(*ids), "x": pyarrow.array([i / 2 for i in ids])}, {word: f"{{{number}}}"})
        (FOLDER / folder / f".{name}.crc").write_bytes(b"crc\0")
    (FOLDER / "spark/_SUCCESS").touch()
    (FOLDER / "spark/._SUCCESS.crc").write_bytes(b"crc\0")
    left = FOLDER / "spark/_temporary/0/part-00009.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"PAR1 half")


def hive():
    """A table of Hive, PARTITIONED BY (day date): its files have no ending."""
    write("hive/day=2026-11-29/000000_0", {"id": int64(1, 2)})
    write("hive/day=2026-11-30/000000_0", {"id": int64(3)})


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    spark()
    hive()
    frame = pandas.DataFrame({"id": [1, 2, 3, 4], "task": ["rest", "rest", "motor", "motor"], "x": [0.5, 1.0, 1.5, 2.0]})
    frame.to_parquet(FOLDER / "pandas_parts", partition_cols=["task"])
    (FOLDER / "pandas_files").mkdir()
    frame[:1].to_parquet(FOLDER / "pandas_files" / "a.parquet")
    frame[1:].set_index("id").to_parquet(FOLDER / "pandas_files" / "b.parquet")
    polars.from_pandas(frame).write_parquet(polars.PartitionBy(FOLDER / "polars", key="task", include_key=False), mkdir=True)
    connection = duckdb.connect(config={"threads": 1})
    arrow = pyarrow.Table.from_pandas(frame)
    connection.register("frame", arrow)
    connection.execute(f"COPY frame TO '{FOLDER}/duckdb' (FORMAT parquet, PARTITION_BY (task))")
    dask.dataframe.from_pandas(frame, npartitions=2).to_parquet(FOLDER / "dask", write_metadata_file=True)
    write("nested/a.parquet", {"id": int64(1)})
    write("nested/deep/b.parquet", {"id": int64(2)})
    write("nested/deep/_x.parquet", {"id": int64(3)})
    write("nested/deep/.x.parquet", {"id": int64(4)})
    write("nested/.hidden/c.parquet", {"id": int64(5)})
    write("mixed/a.parquet", {"id": int32(1, -2), "x": pyarrow.array([0.5, 1.5], pyarrow.float32()), "only_a": int32(7, 8)})
    write("mixed/b.parquet", {"id": int64(1 << 40), "x": pyarrow.array([0.1], pyarrow.float64())})
    write("unlike/a.parquet", {"id": int64(1)})
    write("unlike/b.parquet", {"id": pyarrow.array(["one"])})
    times = [datetime.datetime(year, 6, 1, 12) for year in (1, 1500, 1970, 2026, 9999)]
    stamps = pyarrow.array(times, pyarrow.timestamp("us"))
    write("int96.parquet", {"id": int64(*range(5)), "t": stamps}, use_deprecated_int96_timestamps=True)
    write("large.parquet", {"x": int64(2**63 - 1, 2**63 - 1, -(2**63), 5), "g": int64(1, 1, 2, 2)})

    def files(pattern):
        names = sorted(str(path) for path in FOLDER.glob(pattern) if path.is_file())
        return "read_parquet([" + ", ".join(f"'{name}'" for name in names) + "], hive_partitioning=true, union_by_name=true)"

    tables = {
        "spark": "(SELECT id, x, subject, NULLIF(year, '__HIVE_DEFAULT_PARTITION__')::BIGINT AS year FROM "
        + files("spark/subject=*/year=*/part-*").replace("hive_partitioning=true", "hive_partitioning=true, hive_types_autocast=false")
        + ")",
        "hive": files("hive/day=*/0*"),
        "pandas_parts": files("pandas_parts/*/*.parquet"),
        "pandas_files": files("pandas_files/*.parquet"),
        "polars": files("polars/*/*.parquet"),
        "duckdb": files("duckdb/*/*.parquet"),
        "dask": files("dask/part.*.parquet"),
        "nested": f"read_parquet(['{FOLDER}/nested/a.parquet', '{FOLDER}/nested/deep/b.parquet'])",
        "mixed": files("mixed/*.parquet"),
        "int96": files("int96.parquet"),
        "large": files("large.parquet"),
    }
    queries = [
        "SELECT id, x, subject, year FROM spark",
        "SELECT id, subject FROM spark WHERE subject = '02'",
        "SELECT id FROM spark WHERE year = 2026",
        "SELECT id FROM spark WHERE year IS NULL",
        "SELECT year, count(*) AS n FROM spark GROUP BY year",
        "SELECT id FROM hive WHERE day = DATE '2026-11-30'",
        "SELECT count(DISTINCT day) AS n FROM hive",
        "SELECT id, x, task FROM pandas_parts",
        "SELECT id, task, x FROM pandas_files",
        "SELECT id, x, task FROM polars WHERE task = 'rest'",
        "SELECT id, x, task FROM duckdb",
        "SELECT id, x, task FROM dask",
        "SELECT id FROM nested",
        "SELECT id, x, only_a FROM mixed",
        "SELECT id FROM mixed WHERE id > 5",
        "SELECT id FROM mixed WHERE x < 0.2",
        "SELECT id, CAST(EXTRACT(year FROM t) AS BIGINT) AS y, CAST(EXTRACT(hour FROM t) AS BIGINT) AS h FROM int96",
        "SELECT CAST(sum(x) AS BIGINT) AS s FROM large WHERE g = 2",
        "SELECT CAST(sum(x) AS BIGINT) AS s FROM large WHERE x <> 9223372036854775807 OR x IS NULL",
        "SELECT g, count(*) AS n, max(x) AS m FROM large GROUP BY g",
    ]
    refused = [
        ("SELECT sum(x) FROM large WHERE g = 1", ["18446744073709551614", "no whole number of 64 bits"]),
        ("SELECT g, sum(x) FROM large GROUP BY g", ["no whole number of 64 bits"]),
        ("SELECT * FROM '{here}/folders/unlike'", ["`id`", "unlike/a.parquet", "unlike/b.parquet"]),
    ]
    for name, source in tables.items():
        connection.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM {source}")
    cases = []
    for query in queries:
        rows = connection.execute(query).fetchall()
        cases.append({"query": query, "rows": [[text(value) for value in row] for row in rows]})
    cases += [{"query": query, "says": says} for query, says in refused]
    globs = {
        "SELECT id FROM '{here}/folders/nested/*.parquet'": "SELECT id FROM nested WHERE id = 1",
        "SELECT id FROM '{here}/folders/nested/**/*.parquet'": "SELECT id FROM nested",
        "SELECT id FROM '{here}/folders/pandas_parts/task=*/*.parquet'": "SELECT id FROM pandas_parts",
    }
    for query, asked in globs.items():
        rows = connection.execute(asked).fetchall()
        cases.append({"query": query, "rows": [[text(value) for value in row] for row in rows]})
    paths = {name: name for name in tables}
    paths |= {name: f"{name}.parquet" for name in ("int96", "large")}
    golden = {
        "duckdb": duckdb.__version__,
        "pyarrow": pyarrow.__version__,
        "pandas": pandas.__version__,
        "polars": polars.__version__,
        "dask": dask.__version__,
        "files": [{"name": name, "path": f"folders/{path}"} for name, path in paths.items()],
    }
    lines = ",\n".join("    " + json.dumps(case) for case in cases)
    head = json.dumps(golden, indent=2)[:-2]
    (TESTS / "golden" / "folders.json").write_text(f'{head},\n  "cases": [\n{lines}\n  ]\n}}\n')
    print(len(cases), "queries")


main()
