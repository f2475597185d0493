"""A whole-brain run (80x80x35x156) to clean series: voxelflow (to Parquet) beside nilearn's NiftiMasker (to an array).

    python integration-tests/bench/whole_brain_clean.py [VOXELFLOW_BINARY] [RUNS]
"""

import os
import sys
import tempfile
from pathlib import Path

from measure import compare

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("VOXELFLOW_DATA", ROOT / "../shared/data")).resolve()
BOLD = DATA / "fmri/studyforrest/sub-02_task-visloc_bold.nii.gz"

NILEARN = """
import sys, warnings
warnings.simplefilter("ignore")
from nilearn.maskers import NiftiMasker
options = dict(mask_strategy="epi", detrend=True, standardize="zscore_sample", t_r=2.0)
if len(sys.argv) > 2:
    options["high_pass"] = float(sys.argv[2])
series = NiftiMasker(**options).fit_transform(sys.argv[1])
print(series.shape)
"""

PIPELINE = """
CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{bold}' OPTIONS (mask 'auto');
CREATE TABLE series AS SELECT * FROM clean(bold, detrend => true, standardize => 'zscore_sample'{extra});
"""


def main():
    binary = sys.argv[1] if len(sys.argv) > 1 else "target/debug/voxelflow"
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as folder:
        for title, extra, peer_extra in (
            ("detrend + z-score", "", []),
            ("Butterworth high-pass 0.008 Hz + detrend + z-score", ", high_pass => 0.008", ["0.008"]),
        ):
            pipeline = Path(folder) / "clean.vf"
            pipeline.write_text(PIPELINE.format(bold=BOLD, extra=extra))
            ours = [binary, "run", pipeline, "--out", Path(folder) / "out", "--fresh"]
            compare(title, ours, [sys.executable, "-c", NILEARN, BOLD, *peer_extra], runs)


if __name__ == "__main__":
    main()
