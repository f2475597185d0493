"""Responses of the HCP-like motor design, by nilearn 0.14, for connectors/synth/tests/fixtures/hcp_design.json.

Run: python integration-tests/reference/hcp_design.py   (nilearn 0.14, numpy)
"""

import json
import pathlib

import nilearn
import numpy as np
from nilearn.glm.first_level.hemodynamic_models import compute_regressor

T_R, TIME_POINTS = 0.72, 284
NAMES = ["visual_cue", "left_hand", "right_hand", "left_foot", "right_foot", "tongue"]
CYCLE = [1, 4, 5, 2, 3, 0, 5, 2, 0, 3, 1, 4, 0]

events = [[] for _ in NAMES]
now, n = 8.0, 0
while now + 3.0 + 6.0 <= T_R * TIME_POINTS:
    block = CYCLE[n % len(CYCLE)]
    n += 1
    if block == 0:
        now += 15.0
        continue
    events[0].append((now, 3.0))
    events[block].append((now + 3.0, 12.0))
    now += 15.0

frames = np.arange(TIME_POINTS) * T_R
regressors = {}
for name, blocks in zip(NAMES, events):
    onsets, durations = np.array(blocks).T
    values, _ = compute_regressor((onsets, durations, np.ones(len(blocks))), "spm", frames, oversampling=50)
    regressors[name] = [round(float(v), 6) for v in values[:, 0]]

root = pathlib.Path(__file__).resolve().parents[2]
out = root / "connectors/synth/tests/fixtures/hcp_design.json"
out.write_text(json.dumps({"nilearn": nilearn.__version__, "regressors": regressors}) + "\n")
