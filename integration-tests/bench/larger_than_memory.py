"""Sort, join, group and window of series that are larger than memory: voxelflow beside DuckDB with the same limit.

    pip install -r integration-tests/bench/requirements.txt
    python integration-tests/bench/larger_than_memory.py [VOXELFLOW_BINARY] [GIGABYTES] [FOLDER] [--memory MB]

Rows are 1,200 random float32 and their keys, 4.8 kB, as a table of series has them: half in `test`, half in `retest`,
each in a random order. The join pairs these halves; the other queries read both. Every result is written as Parquet
and read back batch by batch: its rows, and sums over its columns, must be equal. Where DuckDB fails within the limit
that is said, and its answer is made without one. Both tools have the same two cores; the peak is that of the process,
as the kernel counts it, and ours should be at most 1.5 times the limit. FOLDER (a temporary one if not given) needs
room for four times the GIGABYTES: the rows, a result, and what is spilled.
"""

import argparse
import contextlib
import io
import math
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy
import pyarrow
import pyarrow.compute
import pyarrow.parquet

from measure import run

POINTS = 1200
SESSIONS = ("test", "retest")
SUBJECTS, RUNS = 5, 2
ROW_GROUP = 8192
# Seconds after which a query counts as failed.
PATIENCE = 3600

# The series of the last row of a group, as each tool does it best; max(series) is element by element in ours only.
OUR_LAST = "last_value(series ORDER BY subject, run, session)"
DUCKDB_LAST = "arg_max(series, (subject, run, session))"
BOTH = "(SELECT * FROM {test} UNION ALL SELECT * FROM {retest})"
QUERIES = {
    "sort": f"SELECT * FROM {BOTH} AS s ORDER BY voxel, subject, run, session",
    "join": "SELECT t.subject, t.run, t.voxel, t.series AS test, r.series AS retest FROM {test} AS t "
    "JOIN {retest} AS r ON t.subject = r.subject AND t.run = r.run AND t.voxel = r.voxel",
    "group": "SELECT voxel, count(*) AS rows, sum(series[1]) AS sum, avg(series[600]) AS mean, {last} AS last "
    f"FROM {BOTH} AS s GROUP BY voxel",
    "window": f"SELECT *, row_number() OVER w AS place, lag(series[1]) OVER w AS before FROM {BOTH} AS s "
    "WINDOW w AS (PARTITION BY subject, session, run ORDER BY voxel)",
}

# Row groups and compression are those of voxelflow; without an order to keep it needs less memory.
DUCKDB = """
import sys, duckdb
query, out, spill, memory, rows = sys.argv[1:]
duckdb.execute("SET threads = 2")
if memory != "any":
    duckdb.execute(f"SET memory_limit = '{memory}MB'")
duckdb.execute(f"SET temp_directory = '{spill}'")
duckdb.execute("SET preserve_insertion_order = false")
options = f"FORMAT parquet, ROW_GROUP_SIZE {rows}, COMPRESSION zstd, COMPRESSION_LEVEL 1"
duckdb.execute(f"COPY ({query}) TO '{out}' ({options})")
"""


def make(folder, voxels, seed, files=4):
    """Rows of a session, which the folder is named after."""
    folder.mkdir()
    random = numpy.random.default_rng(seed)
    order = random.permutation(SUBJECTS * RUNS * voxels)
    item = pyarrow.field("item", pyarrow.float32(), nullable=False)
    for file, rows_of_file in enumerate(numpy.array_split(order, files)):
        writer, path = None, folder / f"{file}.parquet"
        for start in range(0, len(rows_of_file), ROW_GROUP):
            run, voxel = numpy.divmod(rows_of_file[start : start + ROW_GROUP], voxels)
            values = pyarrow.array(random.random(len(voxel) * POINTS, dtype=numpy.float32))
            columns = {
                "subject": pyarrow.array([f"{subject + 1:02}" for subject in run // RUNS]),
                "session": pyarrow.array([folder.name] * len(voxel)),
                "run": pyarrow.array((run % RUNS + 1).astype(numpy.int32)),
                "voxel": pyarrow.array(voxel),
                "series": pyarrow.FixedSizeListArray.from_arrays(values, type=pyarrow.list_(item, POINTS)),
            }
            table = pyarrow.table(columns)
            if writer is None:
                texts = ["subject", "session"]
                options = {"compression": "zstd", "use_dictionary": texts}
                writer = pyarrow.parquet.ParquetWriter(path, table.schema, **options)
            writer.write_table(table)
        writer.close()


def account(path, ordered):
    """How many rows there are, and sums of their numbers, each times its voxel, and its position if that counts."""
    rows, sums = 0, {}
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    for file in files:
        for batch in pyarrow.parquet.ParquetFile(file, pre_buffer=False).iter_batches(1024):
            weight = batch["voxel"].to_numpy() + 1.0
            if ordered:
                weight *= numpy.arange(rows, rows + batch.num_rows)
            for name in batch.schema.names:
                for title, values in numbers(name, batch[name]):
                    sums[title] = sums.get(title, 0.0) + float(weight @ values)
            rows += batch.num_rows
    return {"rows": rows, **sums}


def numbers(name, column):
    """What of a column is added up: nulls count as 0, of lists the first and the 600th value."""
    if pyarrow.types.is_list(column.type) or pyarrow.types.is_fixed_size_list(column.type):
        for place in (1, 600):
            yield from numbers(f"{name}[{place}]", pyarrow.compute.list_element(column, place - 1))
    elif not pyarrow.types.is_string(column.type):
        yield name, pyarrow.compute.fill_null(column.cast(pyarrow.float64()), 0.0).to_numpy()


def measured(command):
    """Seconds and MiB of a process, or how it failed."""
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            return run(["timeout", PATIENCE, *command])
    except SystemExit:
        lines = [line.strip() for line in told.getvalue().splitlines()]
        errors = (line for line in lines if "Error:" in line or line.startswith("error"))
        return next(errors, f"killed, or not done in {PATIENCE} s")


def shown(took):
    return f"fails: {took}" if isinstance(took, str) else f"{took[0]:8.2f} s {took[1]:6.0f} MiB"


def remove(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


class Bench:
    """The rows, in a folder that spilled rows and results come into as well."""

    def __init__(self, binary, gigabytes, folder, memory):
        self.binary, self.folder, self.memory = binary, folder, memory
        self.spill, self.out = folder / "spill", folder / "result.parquet"
        os.environ["TMPDIR"] = str(self.spill)
        voxels = int(gigabytes * 1e9 / (2 * SUBJECTS * RUNS * POINTS * 4))
        for seed, session in enumerate(SESSIONS):
            make(folder / session, voxels, seed)
        self.rows = 2 * SUBJECTS * RUNS * voxels

    def ours(self, query):
        folders = {session: f"'{self.folder / session}'" for session in SESSIONS}
        text = query.format(last=OUR_LAST, **folders)
        limit = ["--memory", f"{self.memory}MB"]
        return [self.binary, "sql", text, "--format", "parquet", "--output", self.out, *limit]

    def duckdb(self, query, memory):
        files = {session: f"read_parquet('{self.folder / session}/*.parquet')" for session in SESSIONS}
        text = query.format(last=DUCKDB_LAST, **files)
        return [sys.executable, "-c", DUCKDB, text, self.out, self.spill, memory, ROW_GROUP]

    def answer(self, command, ordered):
        """What a command took, or how it failed, and the account of its result, which is removed."""
        self.spill.mkdir()
        took = measured(command)
        told = None if isinstance(took, str) else account(self.out, ordered)
        remove(self.out)
        remove(self.spill)
        return took, told

    def compare(self, name, query):
        """Prints a line, and gives the peak of ours, which has no end if it fails."""
        ordered = name == "sort"
        ours, answer = self.answer(self.ours(query), ordered)
        peer, expected = self.answer(self.duckdb(query, self.memory), ordered)
        ratio = f"   ratio {ours[0] / peer[0]:.3f}" if answer and expected else ""
        print(f"{name:8}ours {shown(ours)}   DuckDB {shown(peer)}{ratio}", flush=True)
        if answer is None:
            return math.inf
        if expected is None:
            peer, expected = self.answer(self.duckdb(query, "any"), ordered)
        assert expected, f"{name}: there is nothing to compare with: {peer}"
        assert answer.keys() == expected.keys(), f"{name}: {answer} and {expected} differ"
        for what, value in answer.items():
            assert math.isclose(value, expected[what], rel_tol=1e-9), f"{name}: {what} is {value}, not {expected[what]}"
        return ours[1]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("binary", nargs="?", default="target/debug/voxelflow")
    options.add_argument("gigabytes", nargs="?", type=float, default=10)
    options.add_argument("folder", nargs="?", type=Path)
    options.add_argument("--memory", type=int, default=500, metavar="MB")
    given = options.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    if given.folder:
        given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        bench = Bench(given.binary, given.gigabytes, Path(folder).resolve(), given.memory)
        what = f"{bench.rows:,} rows of {POINTS:,} values, {given.gigabytes:g} GB"
        print(f"{what}; limit of memory {given.memory} MB", flush=True)
        peak = max(bench.compare(name, query) for name, query in QUERIES.items())
    bound = 1.5 * given.memory * 1e6 / 2**20
    verdict = "every query is" if peak <= bound else "not every query is"
    print(f"rows and sums of what was done are equal; {verdict} done within 1.5 times the limit ({bound:.0f} MiB)")


if __name__ == "__main__":
    main()
