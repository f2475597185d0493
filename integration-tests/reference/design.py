"""Reference designs of ml/signal: nilearn 0.14.1, numpy 2.4.6, scipy 1.17.1, pandas 3.1.1.

    python integration-tests/reference/design.py DATA_FOLDER

writes ml/signal/tests/fixtures/design. DATA_FOLDER holds fmri/studyforrest/sub-02_task-visloc_events.tsv
(studyforrest, PDDL) and fmri/haxby2001/sub001 (OpenfMRI ds105, PDDL).

Every case is a call of make_first_level_design_matrix: its settings, its events and the names of its columns are in
index.json, its values, float64 [columns, volumes], in CASE.npy. series.npy holds float32 series [7, 156], noise on
responses of the studyforrest run, and correlation.npy numpy's corrcoef of each with every regressor as float32
(NaN for the constant), [7, columns].
"""

import json
import sys
import warnings
from pathlib import Path

import nilearn
import numpy as np
import pandas as pd
from nilearn.glm.first_level import make_first_level_design_matrix

DATA = Path(sys.argv[1])
OUT = Path(__file__).resolve().parents[2] / "ml/signal/tests/fixtures/design"
MODELS = [
    "glover",
    "glover + derivative",
    "glover + derivative + dispersion",
    "spm",
    "spm + derivative",
    "spm + derivative + dispersion",
    "fir",
    None,
]


def mixed():
    """Overlaps, impulses, heights, onsets on and beside the grid, before the run and after it, and a duplicate."""
    rows = [
        ("house", -5.0, 2.0, 1.0),
        ("face", 0.0, 0.0, 1.0),
        ("face", 10.0, 4.0, 2.0),
        ("face", 12.0, 4.0, -0.5),
        ("house", 13.37, 0.5, 1.0),
        ("house", 20.0, 3.0, 1.0),
        ("house", 20.0, 3.0, 0.25),
        ("tool", 30.72, 12.0, 1.5),
        ("tool", 31.7, 0.0, 1.0),
        ("face", 55.55, 1.0, 1.0),
        ("tool", 70.0, 30.0, 1.0),
        ("house", 9999.0, 1.0, 1.0),
    ]
    return pd.DataFrame(rows, columns=["trial_type", "onset", "duration", "modulation"])


def plain():
    """No trial_type, no modulation."""
    return pd.DataFrame({"onset": [4.0, 17.3, 40.0], "duration": [1.0, 0.0, 6.5]})


def numbered():
    """Conditions that are numbers, which pandas sorts as such."""
    return pd.DataFrame({"onset": [4.0, 17.3, 40.0], "duration": [1.0, 0.0, 6.5], "trial_type": [10, 2, 1]})


def studyforrest():
    return pd.read_csv(DATA / "fmri/studyforrest/sub-02_task-visloc_events.tsv", sep="\t")[
        ["onset", "duration", "trial_type"]
    ]


def haxby():
    """Three-column files of run 1, a condition each."""
    folder = DATA / "fmri/haxby2001/sub001/model/model001/onsets/task001_run001"
    parts = []
    for path in sorted(folder.glob("cond*.txt")):
        part = pd.DataFrame(np.loadtxt(path, ndmin=2), columns=["onset", "duration", "modulation"])
        parts.append(part.assign(trial_type=path.stem))
    return pd.concat(parts, ignore_index=True)


def settings(**given):
    defaults = dict(hrf_model="glover", drift_model="cosine", high_pass=0.01, drift_order=1, fir_delays=[0])
    return defaults | dict(min_onset=-24, oversampling=50) | given


def cases():
    """Name, events, volumes, t_r, start_time, settings, names of extra regressors."""
    for model in MODELS:
        name = (model or "none").replace(" + ", "_")
        yield name, mixed(), 60, 2.0, 0.0, settings(hrf_model=model, fir_delays=[0, 1, 3]), 0
    full = "spm + derivative + dispersion"
    yield "multiband", mixed(), 150, 0.72, 0.0, settings(hrf_model=full, high_pass=0.008), 0
    yield "start_time", mixed(), 60, 2.0, 0.98, settings(hrf_model="glover + derivative"), 0
    yield "half_t_r", mixed(), 60, 2.0, 1.0, settings(hrf_model="fir", fir_delays=[0, 2]), 0
    yield "rounded_t_r", mixed(), 100, 1.024, 0.512, settings(hrf_model="glover + derivative + dispersion"), 0
    yield "polynomial", mixed(), 60, 2.0, 0.0, settings(drift_model="polynomial", drift_order=5), 0
    yield "polynomial_start", mixed(), 60, 2.5, 1.25, settings(drift_model="polynomial", drift_order=2), 0
    yield "no_drift", plain(), 60, 2.0, 0.0, settings(drift_model=None), 0
    yield "extra", plain(), 60, 2.0, 0.0, settings(hrf_model="spm"), 2
    yield "no_events", None, 60, 2.0, 0.0, settings(), 1
    yield "numbered", numbered(), 60, 2.0, 0.0, settings(), 0
    yield "coarse", mixed(), 60, 2.0, 0.0, settings(hrf_model=full, oversampling=1), 0
    yield "fine", mixed(), 60, 1.37, 0.1, settings(hrf_model="spm + derivative", oversampling=16, min_onset=-10), 0
    yield "studyforrest", studyforrest(), 156, 2.0, 0.0, settings(high_pass=0.008), 0
    yield "studyforrest_half", studyforrest(), 156, 2.0, 1.0, settings(high_pass=0.008), 0
    yield "haxby", haxby(), 121, 2.5, 0.0, settings(hrf_model="spm + derivative"), 0


def listed(events):
    if events is None:
        return []
    columns = [events["onset"], events["duration"]]
    columns.append(events["trial_type"].astype(str) if "trial_type" in events else [None] * len(events))
    columns.append(events["modulation"] if "modulation" in events else [1.0] * len(events))
    return [[float(o), float(d), t, float(m)] for o, d, t, m in zip(*columns)]


warnings.simplefilter("ignore")
OUT.mkdir(parents=True, exist_ok=True)
rng = np.random.default_rng(5)
index = {"nilearn": nilearn.__version__, "cases": []}
for name, events, volumes, t_r, start_time, options, extra in cases():
    times = start_time + np.arange(volumes) * t_r
    names = [f"motion_{k}" for k in range(extra)]
    values = rng.standard_normal((volumes, extra))
    more = dict(add_regs=values, add_reg_names=names) if extra else {}
    design = make_first_level_design_matrix(times, events, **options, **more)
    np.save(OUT / f"{name}.npy", np.ascontiguousarray(design.to_numpy().T))
    options = {key: "none" if value is None else value for key, value in options.items()}
    index["cases"].append(
        dict(name=name, volumes=volumes, t_r=t_r, start_time=start_time, settings=options, extra=names)
        | dict(events=listed(events), columns=[str(column) for column in design.columns])
    )
(OUT / "index.json").write_text(json.dumps(index, indent=None) + "\n")

design = np.load(OUT / "studyforrest.npy").astype("f4")
series = (rng.standard_normal((7, len(design))) @ design + rng.standard_normal((7, 156))).astype("f4")
with np.errstate(all="ignore"):
    correlation = np.array([[np.corrcoef(x.astype("f8"), d.astype("f8"))[0, 1] for d in design] for x in series])
np.save(OUT / "series.npy", series)
np.save(OUT / "correlation.npy", correlation)
