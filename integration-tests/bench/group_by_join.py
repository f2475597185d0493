"""Group-by and join over 20 million rows of keys, on the same Parquet: voxelflow in one process beside DuckDB and
Polars, and on two executors beside Spark's local[2].

    pip install -r integration-tests/bench/requirements.txt
    python integration-tests/bench/group_by_join.py [VOXELFLOW_BINARY] [RUNS] [ROWS]

Every tool is a whole process that starts, reads the Parquet and writes the same CSV, and all have the same two cores.
The answers of all are compared before anything is timed. Peers are duckdb, polars, and pyspark with a JDK; one that is
missing is named, and the others are timed. The peak memory is that of the process that is started: neither our
executors nor Spark's JVM are in it, so only the times compare there.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import compare, run

QUERIES = {
    "group by": "SELECT k, count(*) AS rows, sum(v) AS sum, max(n) AS last FROM {facts} GROUP BY k ORDER BY k",
    "join": "SELECT d.name, count(*) AS rows, sum(f.v) AS sum FROM {facts} f JOIN {names} d ON f.k = d.k "
    "GROUP BY d.name ORDER BY d.name",
}

FACTS = (
    "SELECT value AS n, (value * 2654435761) % 1000003 AS k, value % 1000 AS v FROM generate_series({first}, {last})"
)
NAMES = "SELECT value AS k, value % 997 AS name FROM generate_series(0, 1000002)"

DUCKDB = """
import sys, duckdb
facts, names, out, query = sys.argv[1:]
duckdb.execute("SET threads = 2")
duckdb.execute(f"CREATE VIEW facts AS FROM read_parquet('{facts}/*.parquet')")
duckdb.execute(f"CREATE VIEW names AS FROM read_parquet('{names}/*.parquet')")
duckdb.execute(f"COPY ({query}) TO '{out}' (FORMAT csv, HEADER)")
"""

# Its streaming engine, which is the faster one here; written with expressions the plan is the same.
POLARS = """
import os, sys
os.environ["POLARS_MAX_THREADS"] = "2"
import polars
facts, names, out, query = sys.argv[1:]
tables = {"facts": polars.scan_parquet(f"{facts}/*.parquet"), "names": polars.scan_parquet(f"{names}/*.parquet")}
polars.SQLContext(tables).execute(query).sink_csv(out, engine="streaming")
"""

SPARK = """
import sys
from pyspark.sql import SparkSession
facts, names, out, query = sys.argv[1:]
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
         .config("spark.driver.memory", "3g").config("spark.sql.shuffle.partitions", "4").getOrCreate())
spark.sparkContext.setLogLevel("ERROR")
spark.read.parquet(facts).createOrReplaceTempView("facts")
spark.read.parquet(names).createOrReplaceTempView("names")
rows = spark.sql(query).collect()
with open(out, "w") as file:
    file.write(",".join(rows[0].asDict()) + "\\n")
    file.writelines(",".join(map(str, row)) + "\\n" for row in rows)
"""


# What each peer is compared with, its program, and its package.
PEERS = {
    "DuckDB": ("in one process", DUCKDB, "duckdb"),
    "Polars": ("in one process", POLARS, "polars"),
    "Spark local[2]": ("on two executors", SPARK, "pyspark"),
}


def peers():
    """Those that are here; the others are named."""
    here = {}
    for name, (where, script, package) in PEERS.items():
        if importlib.util.find_spec(package) is None:
            print(f"{package} is not installed: {name} is no peer")
        elif package == "pyspark" and not ("JAVA_HOME" in os.environ or shutil.which("java")):
            print(f"there is no JDK: {name} is no peer")
        else:
            here[name] = (where, script)
    return here


def parquet(binary, query, folder):
    command = [binary, "sql", query, "--format", "parquet", "--output", folder]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def make(binary, folder, rows, files=4):
    """The rows in `files` files, and the names."""
    facts = folder / "facts"
    facts.mkdir()
    for file in range(files):
        first, last = rows * file // files, rows * (file + 1) // files - 1
        part = folder / f"part-{file}"
        parquet(binary, FACTS.format(first=first, last=last), part)
        for number, path in enumerate(sorted(part.glob("*.parquet"))):
            path.rename(facts / f"{file}-{number}.parquet")
    parquet(binary, NAMES, folder / "names")
    return facts, folder / "names"


def main():
    binary = sys.argv[1] if len(sys.argv) > 1 else "target/debug/voxelflow"
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    rows = int(sys.argv[3]) if len(sys.argv) > 3 else 20_000_000
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    here = peers()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        facts, names = make(binary, folder, rows)
        for title, query in QUERIES.items():
            answers, commands = {}, {}
            for where, place in (("in one process", []), ("on two executors", ["--executors", "2"])):
                answers[where] = folder / f"{where}.csv"
                text = query.format(facts=f"'{facts}'", names=f"'{names}'")
                commands[where] = [binary, "sql", text, "--format", "csv", "--output", answers[where], *place]
            for name, (_, script) in here.items():
                answers[name] = folder / f"{name}.csv"
                text = query.format(facts="facts", names="names")
                commands[name] = [sys.executable, "-c", script, facts, names, answers[name], text]
            seconds = {who: run(command)[0] for who, command in commands.items()}
            expected = answers["in one process"].read_bytes()
            for who, answer in answers.items():
                assert answer.read_bytes() == expected, f"{title}: the answer of {who} differs"
            told = ", ".join(f"{who} {took:.2f} s" for who, took in seconds.items())
            print(f"\n{title}, {rows:,} rows: equal answers; {told}")
            for name, (where, _) in here.items():
                compare(f"{title}: voxelflow {where} beside {name}", commands[where], commands[name], runs)


if __name__ == "__main__":
    main()
