"""Lists of one length as pyarrow lays them out in Parquet: reference for engine/dataset/src/parquet_lists.

Unlike the writer of the parquet crate, pyarrow begins pages in the middle of lists, and begins a column chunk with
pages of indices and goes on with plain ones when its dictionary is full.
Made with pyarrow 26.0.1, numpy 2.4.6. Writes engine/dataset/tests/fixtures/lists-*.parquet.
Run: python integration-tests/reference/parquet_lists.py
"""

from pathlib import Path

import numpy
import pyarrow
import pyarrow.parquet

FOLDER = Path(__file__).resolve().parents[2] / "engine" / "dataset" / "tests" / "fixtures"
ROWS, LENGTH = 60, 7
KINDS = {
    "plain": {"use_dictionary": False, "data_page_version": "1.0"},
    "dictionary": {"dictionary_pagesize_limit": 400, "data_page_version": "1.0"},
    "split": {
        "use_dictionary": False,
        "column_encoding": {"series.list.element": "BYTE_STREAM_SPLIT"},
        "compression": "zstd",
        "data_page_version": "2.0",
    },
}

values = pyarrow.array(numpy.arange(ROWS * LENGTH, dtype=numpy.float32) / 2)
table = pyarrow.table(
    {
        "voxel": pyarrow.array(numpy.arange(ROWS, dtype=numpy.uint32)),
        "series": pyarrow.FixedSizeListArray.from_arrays(values, LENGTH),
    }
)
FOLDER.mkdir(parents=True, exist_ok=True)
for name, options in KINDS.items():
    options = {"compression": "none", **options}
    path = FOLDER / f"lists-{name}.parquet"
    pyarrow.parquet.write_table(table, path, row_group_size=40, data_page_size=100, write_batch_size=10, **options)
