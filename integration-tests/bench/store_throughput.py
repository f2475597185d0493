"""A whole-brain run (80x80x35x156) to clean series, from S3 on loopback beside the same file on disk.

    python integration-tests/bench/store_throughput.py [VOXELFLOW_BINARY] [PAIRS]

Both write the same Parquet to disk; only where the image is read from differs. The server is a SeaweedFS of
`integration-tests/servers`, started here and ended with this process; it shares the cores with what is measured.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import compare

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("VOXELFLOW_DATA", ROOT / "../shared/data")).resolve()
BOLD = DATA / "fmri/studyforrest/sub-02_task-visloc_bold.nii.gz"
SECRET = "of-the-bench"

PIPELINE = """
CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{bold}' OPTIONS (mask 'auto', t_r 2);
CREATE TABLE series AS SELECT * FROM clean(bold, detrend => true, standardize => 'zscore_sample');
"""


class Server:
    """An S3 server that lives as long as the pipe to its script."""

    def __enter__(self):
        script = ROOT / "integration-tests/servers/s3.sh"
        environment = os.environ | {"VOXELFLOW_TEST_SECRET": SECRET}
        self.process = subprocess.Popen(
            [script, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        word, *addresses = self.process.stdout.readline().split() or [""]
        if word != "ready":
            raise SystemExit("the S3 server did not start: its words are above")
        self.endpoint, self.files = addresses
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def main():
    binary = sys.argv[1] if len(sys.argv) > 1 else "target/debug/voxelflow"
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    with tempfile.TemporaryDirectory() as folder, Server() as server:
        key = f"tests/bench/{BOLD.name}"
        # A server that has just started may still be allotting volumes.
        send = ["curl", "-sf", "--retry", "5", "--retry-all-errors", "-o", "/dev/null", "-T", BOLD]
        subprocess.run([*send, f"{server.files}/buckets/{key}"], check=True)
        os.environ |= {
            "AWS_ENDPOINT_URL": server.endpoint,
            "AWS_ACCESS_KEY_ID": "voxelflow",
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

        def command(name, bold):
            pipeline = Path(folder) / f"{name}.vf"
            pipeline.write_text(PIPELINE.format(bold=bold))
            return [binary, "run", pipeline, "--out", Path(folder) / name, "--fresh"]

        mib = BOLD.stat().st_size / 2**20
        compare(
            f"{mib:.0f} MiB of NIfTI to clean series: from S3 on loopback (ours) and from disk (peer)",
            command("s3", f"s3://{key}"),
            command("disk", BOLD),
            pairs,
        )


if __name__ == "__main__":
    main()
