"""Reference values of example 02: nilearn 0.14.1, nibabel 5.4.2, numpy 2.4.6, scipy 1.17.1.

    examples/data/lemon.sh && python integration-tests/reference/example_02.py

writes integration-tests/reference/example_02.npy: every 512th vertex of both hemispheres, left first, as
`nilearn.signal.clean` leaves it, float32 `[vertices, time points]`.
"""

from pathlib import Path

import nibabel
import numpy as np
from nilearn.signal import clean

ROOT = Path(__file__).resolve().parents[2]
STEM = ROOT / "examples/data/lemon/sub-010188_ses-02_task-rest_acq-AP_run-01"

confounds = np.loadtxt(f"{STEM}_confounds.txt")
rows = []
for side in ["lh", "rh"]:
    series = nibabel.load(f"{STEM}.fsa5.{side}.mgz").get_fdata(dtype=np.float64).squeeze()
    # Vertices of the medial wall have no signal, and the example leaves them out.
    kept = [v for v in range(0, len(series), 512) if series[v].std() > 0]
    rows.append(
        clean(
            series[kept].T, confounds=confounds, t_r=1.4, high_pass=0.01, low_pass=0.1, filter="butterworth",
            detrend=True, standardize="zscore_sample",
        ).T
    )
rows = np.concatenate(rows).astype("<f4")
print(rows.shape)
np.save(Path(__file__).with_suffix(".npy"), np.ascontiguousarray(rows))
