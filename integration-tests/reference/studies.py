"""Random small studies, from files to maps: nilearn 0.14.1, scikit-learn 1.9.1, numpy 2.4.6.

    servers/nilearn.sh python reference/studies.py PROGRAM FIRST COUNT [--keep FOLDER]     (in integration-tests)

makes a study of every seed from FIRST on (random_study.py), has PROGRAM, voxelflow, import, clean, make designs, fit,
predict and export maps, and compares all numbers with those of nilearn and scikit-learn. A stage is compared, and what
it gave is the next stage's input, so that rounding does not add up and no penalty is chosen by a last digit.
"""

import argparse
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

# Threads cost more than they give in products as small as these.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import nibabel  # noqa: E402
import nilearn.signal  # noqa: E402
import numpy as np  # noqa: E402
import pyarrow.parquet  # noqa: E402
from nilearn.glm.first_level import make_first_level_design_matrix  # noqa: E402
from nilearn.interfaces.fmriprep import load_confounds, load_confounds_strategy  # noqa: E402
from random_study import KEYS, SPACE, Study, write_confounds  # noqa: E402
from scipy.interpolate import CubicSpline  # noqa: E402
from sklearn.linear_model import Ridge, RidgeCV  # noqa: E402
from sklearn.metrics import make_scorer, mean_squared_error, r2_score  # noqa: E402
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneGroupOut  # noqa: E402

warnings.filterwarnings("ignore")

# The largest difference that is allowed, relative to the largest number of the same series, coefficients or map.
# Cleaned series, regressors, predictions and maps are computed in 64 bits and kept in 32, which rounds by 6e-8.
SINGLE = 1e-6
# Fits with precision 'f64' stay in 64 bits (1e-16); with penalties from 0.1 on, their condition is 1e6 at most.
DOUBLE = 1e-8
# So many seeds must have every option.
ENOUGH = 30

# Two functions of nilearn 0.14.1 do other things than they say.


def interpolated(volumes, sample_mask, t_r, extrapolate):
    """Fills the volumes that are missing: `volumes[~sample_mask]` of indices are other ones (confounds.py)."""
    times = np.arange(len(volumes)) * t_r
    missing = np.setdiff1d(np.arange(len(volumes)), sample_mask)
    spline = CubicSpline(times[sample_mask], volumes[sample_mask], extrapolate=extrapolate)
    volumes[missing] = spline(times[missing])
    return volumes


def with_drifts(confounds, drifts):
    """The cosine filter: nilearn drops it where any confound, drifting motion too, is like a cosine (r > 0.9)."""
    return drifts if confounds is None else np.hstack((confounds, drifts))


nilearn.signal._interpolate_volumes, nilearn.signal._check_cosine_by_user = interpolated, with_drifts


class Comparison:
    def __init__(self):
        self.numbers, self.differences = 0, []

    def same(self, what, found, expected):
        """Names, keys, voxels."""
        found, expected = list(found), list(expected)
        if found != expected:
            self.differences.append(f"{what}: {found}, the reference has {expected}")
        return found == expected

    def near(self, what, found, expected, tolerance, rows, row="voxel", scale=None):
        """Numbers, [rows, …]. The scale is the largest of each row, if it is not given."""
        found, expected = np.asarray(found, float), np.asarray(expected, float)
        if not self.same(f"shape of {what}", found.shape, expected.shape):
            return
        self.numbers += found.size
        if scale is None:
            scale = np.nanmax(np.abs(expected), axis=-1, keepdims=True, initial=0)
        error = np.abs(found - expected)
        far = ~((error <= tolerance * scale) | (np.isnan(found) & np.isnan(expected)))
        if far.any():
            relative = np.where(far, np.nan_to_num(error / np.maximum(scale, 1e-300), nan=np.inf), 0)
            at = np.unravel_index(np.argmax(relative), far.shape)
            place = ", ".join([f"{row} {rows[at[0]]}", *(f"number {number}" for number in at[1:])])
            self.differences.append(
                f"{what}, {place}: {float(found[at])!r}, the reference has {float(expected[at])!r} "
                f"({relative[at]:.1e} of the scale, allowed {tolerance:.0e}; {far.sum()} of {far.size} differ)"
            )


# Cleaning and designs, by nilearn.


def choose_confounds(study, run):
    """Sets the confounds of a run, and the volumes that are kept."""
    run.taken, run.kept = None, np.arange(run.volumes)
    strategy = dict(study.strategy)
    if not strategy:
        return
    columns, marked, keep, preset = (strategy.pop(name, None) for name in ("columns", "marked", "keep", "preset"))
    table = run.confounds[[name for name in run.confounds if not (keep and name.startswith("non_steady"))]]
    with tempfile.TemporaryDirectory() as folder:
        write_confounds(Path(folder) / run.table, table)
        image = f"{folder}/{run.image.name}"
        taken, kept = load_confounds_strategy(image, preset) if preset else load_confounds(image, **strategy)
    if kept is not None:
        run.kept = np.array(kept)
    if marked:
        marks = table[[name for name in table if name.startswith("motion_outlier")]].to_numpy().any(axis=1)
        run.kept = np.setdiff1d(run.kept, np.flatnonzero(marks))
    run.taken = taken[[name for name in taken if name.startswith("trans_") or not columns]].to_numpy()


def cleaned(study, run):
    """Voxels, and their series, [voxels, kept volumes]."""
    settings, values = study.clean_settings(), run.values[run.mask]
    own = values[:, run.kept]
    broken = ~np.isfinite(own).all(axis=1)
    constant = (own == own[:, :1]).all(axis=1)
    series = np.zeros(own.shape)
    high_pass = settings.get("filter") == "butterworth" and "high_pass" in settings
    if not (settings["detrend"] or settings["standardize"] or high_pass):
        # nilearn would scale what rounding leaves of a constant to unit variance; it is zero where its mean is removed.
        series[constant] = own[constant]
    live = ~broken & ~constant
    settings = {"filter": False} | settings | {"standardize": settings["standardize"] or None}
    # `clean` changes the mask that it is given.
    mask = None if len(run.kept) == run.volumes else run.kept.copy()
    series[live] = nilearn.signal.clean(
        values[live].T, confounds=run.taken, sample_mask=mask, t_r=study.t_r, **settings
    ).T
    stays = ~broken | (study.chosen["NaN in images"] == "zero")
    return run.mask[stays], series[stays]


def design(study, run, settings):
    times = study.start + np.arange(run.volumes) * study.t_r
    with contextlib.redirect_stdout(io.StringIO()):
        return make_first_level_design_matrix(times, run.events, **settings)


# What the program made.


def table(out, name):
    [folder] = [path for path in (out / "tables" / name).iterdir() if path.is_dir()]
    return pyarrow.parquet.read_table(folder).to_pandas()


def by_run(frame, keys=KEYS):
    """Rows of each run, those without a key having the empty text."""
    frame = frame.assign(**{key: frame[key].fillna("") for key in keys})
    groups = frame.groupby(keys, sort=False) if keys else [((), frame)]
    return {key: rows for key, rows in groups}


def tensors(path):
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    kinds, found = {"F64": "<f8", "F32": "<f4"}, {}
    for name, about in header.items():
        first, last = about["data_offsets"]
        values = np.frombuffer(data[begin + first : begin + last], kinds[about["dtype"]])
        found[name] = values.reshape(about["shape"])
    return found


def compare_series(study, out, report):
    """Sets each run's voxels and series as the program has them."""
    rows = by_run(table(out, "series"))
    report.same("runs of series", sorted(rows), sorted(run.keys for run in study.runs))
    for run in study.runs:
        own = rows[run.keys].sort_values("voxel")
        run.voxels, run.series = own["voxel"].to_numpy(), np.stack(own["series"]).astype(float)
        voxels, series = cleaned(study, run)
        if report.same(f"voxels of {run.stem}", run.voxels, voxels):
            report.near(f"series of {run.stem}", run.series, series, SINGLE, voxels)


def compare_designs(study, out, report):
    rows = by_run(table(out, "d"))
    report.same("runs of designs", sorted(rows), sorted(run.keys for run in study.runs))
    for run in study.runs:
        expected, own = design(study, run, study.design_settings()), rows[run.keys]
        if study.chosen["design of"] == "series":
            expected = expected.iloc[run.kept]
        if report.same(f"regressors of {run.stem}", own["regressor"], expected.columns):
            values, found = expected.to_numpy().T, np.stack(own["series"])
            # A regressor that is nothing but rounding is measured by the others.
            scale = np.maximum(np.abs(values).max(axis=1, keepdims=True), 1e-6 * np.abs(values).max())
            report.near(f"design of {run.stem}", found, values, SINGLE, expected.columns, "regressor", scale)


# The fit, by scikit-learn.


def samples(study, run):
    """Features with their delays, of all volumes of a run."""
    x = run.features
    if study.designed():
        x = design(study, run, study.response() | {"drift_model": None}).drop(columns="constant")
        # Regressors are kept in 32 bits.
        x = x.to_numpy().astype(np.float32).astype(float)
    delays = study.chosen["delays"] or [0]
    return np.hstack([np.vstack([np.zeros((delay, x.shape[1])), x[: len(x) - delay]]) for delay in delays])


def ridge(alpha, x, y):
    return Ridge(alpha, solver="svd").fit(x, y)


def pearson(actual, predicted):
    a, p = actual - actual.mean(axis=0), predicted - predicted.mean(axis=0)
    return (a * p).sum(axis=0) / np.sqrt((a**2).sum(axis=0) * (p**2).sum(axis=0))


def score(name, actual, predicted):
    """Of each target."""
    if name == "neg_mean_squared_error":
        return -mean_squared_error(actual, predicted, multioutput="raw_values")
    return r2_score(actual, predicted, multioutput="raw_values") if name == "r2" else pearson(actual, predicted)


def flat(values, whole):
    """Whether targets do not vary there, beside the whole: then they have neither R² nor r (ridge_folds.py)."""
    return values.std(axis=0) <= 1e-5 * whole.std(axis=0)


def folds_of(study):
    """Samples that are fitted to, and those that are predicted."""
    cv, groups = study.chosen["cv"], np.repeat(np.arange(len(study.fitted)), [len(run.kept) for run in study.fitted])
    if isinstance(cv, int):
        return list(KFold(cv).split(groups))
    parts = list(LeaveOneGroupOut().split(groups, groups=groups))
    if cv == "run":
        return parts
    near = [np.add.outer(held, np.arange(-3, 4)) for _, held in parts]
    return [(np.setdiff1d(train, beside), held) for (train, held), beside in zip(parts, near)]


def alone(alpha, x, y):
    """What each sample is predicted to be by all others: what scikit-learn gives to a scorer."""
    seen = []
    scorer = make_scorer(lambda actual, predicted: seen.append(predicted - actual) or 0.0)
    RidgeCV([alpha], scoring=scorer).fit(x, y)
    return y + seen[0]


def scores(study, x, y):
    """Of each fold, penalty and target; NaN where it has none. Leave-one-out is one fold."""
    name = study.chosen["scoring"]
    if study.chosen["cv"] == "loo":
        return np.array([[score(name, y, alone(alpha, x, y)) for alpha in study.alphas]])

    def of_fold(train, held, alpha):
        found = score(name, y[held], ridge(alpha, x[train], y[train]).predict(x[held]))
        if name != "neg_mean_squared_error":
            found = np.where(flat(y[held], y), np.nan, found)
        return np.where(flat(y[train], y), np.nan, found) if name == "pearson" else found

    return np.array([[of_fold(*part, alpha) for alpha in study.alphas] for part in folds_of(study)])


def searched(study, x, y, complete):
    """The penalties that scikit-learn's own searches find, which are of targets with a score in every fold."""
    own, alphas = study.chosen, study.alphas
    scorer = own["scoring"]
    if scorer == "pearson":
        scorer = make_scorer(lambda actual, predicted: np.mean(pearson(actual, predicted)))
    if own["cv"] == "loo":
        search = RidgeCV(alphas, scoring=scorer, alpha_per_target=own["alpha_per_target"])
        return np.broadcast_to(search.fit(x, y).alpha_, y.shape[1])
    if own["alpha_per_target"] or not complete:
        return None
    search = GridSearchCV(Ridge(solver="svd"), {"alpha": alphas}, scoring=scorer, cv=folds_of(study), refit=False)
    return np.full(y.shape[1], search.fit(x, y).best_params_["alpha"])


def chosen_penalties(study, each, found):
    """Numbers of the best penalties of targets, which have `found`."""
    means = np.nanmean(each, axis=0)
    if not study.chosen["alpha_per_target"]:
        means = np.broadcast_to(np.nanmean(each, axis=(0, 2))[:, None], means.shape)
    means, columns = np.where(np.isnan(means), -np.inf, means), np.arange(means.shape[1])
    best = means.argmax(axis=0)
    # Where scores are equal up to what they may differ by, because fits were to a constant, no penalty is the best.
    found = np.searchsorted(study.alphas, found) % len(study.alphas)
    equal = np.isclose(means[found, columns], means[best, columns], rtol=DOUBLE, atol=DOUBLE)
    return np.where(equal, found, best)


def compare_model(study, out, report):
    """Gives the voxels, which of them are fitted, the fit and the numbers of each voxel, as they should be."""
    model = pyarrow.parquet.read_table(out / "models/enc/targets.parquet").to_pandas()
    common = study.own[0].voxels
    for run in study.fitted + ([study.held] if study.held else []):
        common = np.intersect1d(common, run.voxels)
    if not report.same("voxels of the model", model["voxel"], common):
        return None

    def targets(run):
        return run.series[np.isin(run.voxels, common)].T

    x = np.vstack([samples(study, run)[run.kept] for run in study.fitted])
    y = np.vstack([targets(run) for run in study.fitted])
    live = y.std(axis=0) > 1e-12 * np.abs(y).max(axis=0)
    each = scores(study, x, y[:, live])
    best = chosen_penalties(study, each, model["alpha"].to_numpy(float)[live])
    alphas = np.array(study.alphas)[best]
    own_search = searched(study, x, y[:, live], np.isfinite(each).all())
    if own_search is not None:
        report.near("alpha of scikit-learn's own search", alphas, own_search, 0, common[live], scale=1)
    fit = ridge(alphas, x, y[:, live])
    expected = {name: np.full(len(common), np.nan) for name in ("intercept", "alpha", "score", "r", "r2")}
    expected["intercept"][live], expected["alpha"][live] = fit.intercept_, alphas
    expected["score"][live] = np.nanmean(each, axis=0)[best, np.arange(len(best))]
    if study.held:
        actual = targets(study.held)[:, live]
        predicted, none = fit.predict(samples(study, study.held)[study.held.kept]), flat(actual, y[:, live])
        for name, scoring in [("r", "pearson"), ("r2", "r2")]:
            expected[name][live] = np.where(none, np.nan, score(scoring, actual, predicted))
    for name, values in expected.items():
        # Intercepts are made of means of the series; other numbers than scores under 1 are their own measure.
        scale = np.abs(y).max(axis=0) if name == "intercept" else np.fmax(1, np.abs(values))
        report.near(name, model[name], values, DOUBLE if name != "alpha" else 0, common, scale=scale)
    coefficients = np.full((len(common), x.shape[1]), np.nan)
    coefficients[live] = fit.coef_
    found = tensors(out / "models/enc/model.safetensors")["coefficients"]
    # Coefficients that are nothing but rounding are measured by what the targets hold.
    scale = np.fmax(np.abs(coefficients).max(axis=1), 1e-6 * np.abs(y).max(axis=0))[:, None]
    report.near("coefficients", found, coefficients, DOUBLE, common, scale=scale)
    return common, live, fit, expected


def compare_predictions(study, out, report, common, live, fit):
    rows = table(out, "predicted")
    keys = KEYS if study.designed() else study.feature_keys()
    rows = by_run(rows, keys)
    runs = {tuple(value for key, value in zip(KEYS, run.keys) if key in keys): run
            for run in (study.own if study.designed() else [study.predicted])}
    report.same("runs of predictions", sorted(rows), sorted(runs))
    for key, run in runs.items():
        own = rows[key].sort_values("voxel")
        kept = run.kept if study.chosen["features"] == "design of the cleaned" else slice(None)
        if report.same(f"voxels of predictions of {run.stem}", own["voxel"], common):
            report.same(f"predictions of {run.stem} that are not null", own["series"].notna(), live)
            found, expected = np.stack(own["series"].dropna()), fit.predict(samples(study, run)[kept]).T
            report.near(f"predictions of {run.stem}", found, expected, SINGLE, common[live])


def compare_maps(study, out, report, common, expected):
    fill = np.nan if study.chosen["fill"] is None else float(study.chosen["fill"])
    names = ["intercept", "alpha", "score"] + (["r", "r2"] if study.held else [])
    maps = {name: (common, expected[name][:, None]) for name in names}
    for name, (voxels, values) in (maps | {"cleaned": cleaned(study, study.predicted)}).items():
        image = nibabel.load(out / f"maps/{name}.nii.gz")
        volumes = np.full((study.voxels, values.shape[1]), fill)
        volumes[voxels] = np.where(np.isnan(values), fill, values)
        found = image.get_fdata().reshape(volumes.shape, order="F")
        scale = None if name == "cleaned" else np.nanmax(np.abs(volumes))
        report.near(f"map of {name}", found, volumes, SINGLE, range(study.voxels), scale=scale)
        report.near(f"affine of the map of {name}", image.affine, study.affine, SINGLE, range(4), "row")


def run_study(program, seed, folder):
    """The study, what was compared, and how long the program ran."""
    study, report = Study(seed, folder), Comparison()
    for run in study.runs:
        choose_confounds(study, run)
    file, out = folder / "study.vf", folder / "out"
    file.write_text(study.statements())
    begun = time.monotonic()
    ended = subprocess.run([program, "run", file, "--out", out], capture_output=True, text=True)
    took = time.monotonic() - begun
    if ended.returncode:
        report.differences.append(f"voxelflow ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
        return study, report, took
    try:
        compare_series(study, out, report)
        compare_designs(study, out, report)
        model = compare_model(study, out, report)
        if model:
            common, live, fit, expected = model
            compare_predictions(study, out, report, common, live, fit)
            compare_maps(study, out, report, common, expected)
    except Exception:
        # A table that lacks what is looked for, for example.
        report.differences.append(traceback.format_exc())
    return study, report, took


def main():
    parser = argparse.ArgumentParser(description="Compares random small studies with nilearn and scikit-learn.")
    parser.add_argument("program", help="the program voxelflow")
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("count", type=int, help="how many seeds")
    parser.add_argument("--keep", type=Path, help="a folder in which the files of each study stay")
    arguments = parser.parse_args()
    occurred, numbers, differ = Counter(), 0, 0
    for seed in range(arguments.first, arguments.first + arguments.count):
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(arguments.keep or temporary).resolve() / f"seed-{seed}"
            shutil.rmtree(folder, ignore_errors=True)
            study, report, took = run_study(arguments.program, seed, folder)
        numbers += report.numbers
        occurred.update((name, str(value)) for name, value in study.chosen.items())
        print(f"seed {seed}: {report.numbers} numbers compared, {len(report.differences)} quantities differ, "
              f"{time.monotonic() - begun:.1f} s, of which voxelflow {took:.1f} s", flush=True)
        if report.differences:
            differ += 1
            print("  " + ", ".join(f"{name}: {value}" for name, value in study.chosen.items()))
            print("  " + "\n  ".join(report.differences[:8]))
            print(f"  again: {sys.executable} {Path(__file__).resolve()} {arguments.program} {seed} 1 --keep study",
                  flush=True)
    never = []
    for name, options in SPACE.items():
        print(f"{name}: " + "; ".join(f"{option} {occurred[name, str(option)]}" for option in options))
        never += [f"{name} {option}" for option in options if not occurred[name, str(option)]]
    missed = bool(never) and arguments.count >= ENOUGH
    if missed:
        print(f"never occurred: {'; '.join(never)}")
    print(f"{arguments.count} studies, {numbers} numbers compared, {differ} differ")
    sys.exit(bool(differ) or missed)


if __name__ == "__main__":
    main()
