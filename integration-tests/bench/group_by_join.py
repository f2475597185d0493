"""Group-by and join over 20 million rows of keys: voxelflow on two executors beside Spark's local[2], on the same Parquet.

    python integration-tests/bench/group_by_join.py [VOXELFLOW_BINARY] [RUNS] [ROWS]

The answer on executors is compared with the answer in one process, and with Spark's, before anything is timed.
Needs pyspark and a JDK for the peer; without them ours is timed alone. The peak memory is that of the process that is
started: neither our executors nor Spark's JVM are in it, so only the times compare.
"""

import importlib.util
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
    peer_is_there = importlib.util.find_spec("pyspark") is not None
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        facts, names = make(binary, folder, rows)
        for title, query in QUERIES.items():
            answers = {}

            def ours(where, *place):
                path = folder / f"{where}.csv"
                text = query.format(facts=f"'{facts}'", names=f"'{names}'")
                answers[where] = path
                return [binary, "sql", text, "--format", "csv", "--output", path, *place]

            here, there = ours("here"), ours("executors", "--executors", "2")
            seconds = {"in one process": run(here)[0], "on two executors": run(there)[0]}
            assert answers["here"].read_bytes() == answers["executors"].read_bytes(), "the answers differ"
            print(f"\n{title}, {rows:,} rows: equal answers; " + ", ".join(f"{k} {v:.2f} s" for k, v in seconds.items()))
            if not peer_is_there:
                print("  pyspark is not installed: no peer")
                continue
            out = folder / "spark.csv"
            peer = [sys.executable, "-c", SPARK, facts, names, out, query.format(facts="facts", names="names")]
            run(peer)
            assert out.read_bytes() == answers["executors"].read_bytes(), "Spark's answer differs"
            compare(f"{title}: voxelflow --executors 2 beside Spark local[2]", there, peer, runs)


if __name__ == "__main__":
    main()
