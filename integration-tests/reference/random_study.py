"""Random small studies on disk, as fMRIPrep writes them, and the pipeline that runs each; studies.py compares.

    seed ─► SPACE: layout, masks, images, … ─► raw/, fmriprep/, features.parquet, study.vf

Every choice is a turn of its options: so many seeds in a row as there are options have each of them once, in an order
that is random. Where two choices cannot go together, one gives way, and `chosen` says what became of it.
"""

import gzip
import json

import nibabel
import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
from nilearn.masking import load_mask_img
from nilearn.signal import create_cosine_drift

KEYS = ["subject", "session", "run"]
MOTION = ["trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z"]
# Options of `load_confounds`, and besides them: `columns`, a pattern instead of the strategy; `marked`, whether columns
# of outliers drop the volumes that they mark; `keep`, whether volumes before the steady state stay.
FEW = {
    "none": {},
    "motion": {"strategy": ["motion"], "motion": "basic"},
    "columns": {"strategy": ["motion"], "motion": "basic", "columns": "trans_?"},
    "wm_csf full": {"strategy": ["wm_csf"], "wm_csf": "full"},
    "global_signal": {"strategy": ["global_signal", "wm_csf"], "global_signal": "power2"},
    "scrub": {"strategy": ["motion", "scrub"], "motion": "basic"},
    "scrub, no segments": {"strategy": ["motion", "scrub"], "motion": "basic", "scrub": 0, "fd_threshold": 0.4},
    "marked volumes": {"strategy": ["motion"], "motion": "basic", "marked": True},
    "unsteady kept": {"strategy": ["motion"], "motion": "basic", "keep": True},
}
# More than a filter leaves freedom for, or with a filter among them.
MANY = {
    "motion full": {"strategy": ["motion", "wm_csf"], "motion": "full"},
    "anat_separated": {"strategy": ["motion", "high_pass", "compcor"], "motion": "derivatives",
                       "compcor": "anat_separated", "n_compcor": 2},
    "temporal": {"strategy": ["high_pass", "compcor", "scrub"], "compcor": "temporal_anat_combined", "scrub": 3},
    "simple": {"preset": "simple"},
    "scrubbing": {"preset": "scrubbing"},
    "compcor": {"preset": "compcor"},
}
SPACE = {
    "subjects": [2, 3],
    # Sessions and runs; an empty text: names have none.
    "layout": [("", ""), ("", "1 2"), ("", "01 02 03"), ("a b", ""), ("pre post", "1 2"), ("01 02", "01 02"),
               ("a", "3")],
    "echo": ["none", "beside", "chosen"],
    "resolution": [False, True],
    "other task": [False, True],
    "lengths": ["one", "several"],
    "t_r": [0.72, 1.35, 2.0, 2.5],
    "t_r from": ["sidecar", "sidecar of all", "raw sidecar", "header", "header in ms"],
    "moment": ["volume begins", "StartTime", "slice_time_ref"],
    "numbers": ["int16", "int16 far", "uint16", "float32", "float32 scaled", "float64", "mixed"],
    "byte order": ["<", ">"],
    "affine": ["sform", "sform flipped", "qform"],
    "masks": ["brain", "brain, NaN", "brain, other values", "one file", "none"],
    "mask differs": ["no", "by run"],
    "constant voxels": ["none", "in all runs", "in one run", "in kept volumes"],
    "NaN in images": ["no", "drop", "zero"],
    "unsteady": [0, 2, 3],
    "confounds": [*FEW, *MANY],
    "filter": ["none", "high", "low", "band", "cosine"],
    "detrend": [True, False],
    "standardize": ["zscore_sample", "psc", False],
    "hrf_model": ["spm", "spm + derivative", "spm + derivative + dispersion", "glover", "glover + derivative",
                  "glover + derivative + dispersion", "fir", None],
    "drift_model": ["cosine", "polynomial", None],
    "design of": ["bold", "series"],
    "oversampling": [50, 16],
    "events": ["plain", "modulated", "without trial_type", "for all runs"],
    "features": ["columns", "lists", "design", "design of the cleaned"],
    "keys": ["all", "needed"],
    "delays": [[], [1, 2], [0, 1, 3]],
    "cv": ["run", "run, gap", "loo", 3, 4],
    "scoring": ["r2", "pearson", "neg_mean_squared_error"],
    "alpha_per_target": [False, True],
    "ranks": [1, 2],
    "fill": [None, 0],
}


def turn(seed, name):
    """The option of `name` whose turn it is."""
    options = SPACE[name]
    order = np.random.default_rng([seed // len(options), *name.encode()]).permutation(len(options))
    return options[order[seed % len(options)]]


def named(options):
    """`name => value, …`"""

    def written(value):
        return f"'{value}'" if isinstance(value, str) else str(value).lower()

    return ", ".join(f"{name} => {written(value)}" for name, value in options.items())


class Run:
    """The keys of a run, as tables have them, and what its files are called."""

    def __init__(self, subject, session, label):
        self.keys = (subject, session, label.lstrip("0"))
        self.subject = subject
        parts = [f"sub-{subject}", f"ses-{session}" if session else "", "task-x", f"run-{label}" if label else ""]
        self.stem = "_".join(filter(None, parts))
        self.folder = "/".join(filter(None, parts[:2])) + "/func"

    def where(self, keys=KEYS):
        return " AND ".join(f"{key} = '{value}'" for key, value in zip(KEYS, self.keys) if key in keys)


class Study:
    """What a seed makes: files, statements, and everything that the references need."""

    def __init__(self, seed, folder):
        self.seed, self.folder, self.rng = seed, folder, np.random.default_rng(seed)
        self.raw, self.derivatives, self.mask_file = folder / "raw", folder / "fmriprep", folder / "mask.nii.gz"
        self.chosen = {name: turn(seed, name) for name in SPACE}
        sessions, labels = (names.split() or [""] for names in self.chosen["layout"])
        people = ["01", "2", "B3"][: self.chosen["subjects"]]
        self.runs = [Run(subject, session, label) for subject in people for session in sessions for label in labels]
        self.subject = people[self.rng.integers(len(people))]
        # A fit takes runs in the order of their keys: `pre` comes after `post`.
        self.own = sorted((run for run in self.runs if run.subject == self.subject), key=lambda run: run.keys)
        self.give_way()
        by_runs = str(self.chosen["cv"]).startswith("run")
        self.held = self.own[-1] if len(self.own) > 1 + by_runs else None
        self.fitted = [run for run in self.own if run is not self.held]
        self.predicted = self.own[seed % len(self.own)]
        self.alphas = [0.1, 1.0, 10.0, 100.0, 1000.0][: 4 + seed % 2]
        self.t_r = self.chosen["t_r"]
        if self.chosen["t_r from"] == "header":
            self.t_r = float(np.float32(self.t_r))
        self.start = 0.0 if self.chosen["moment"] == "volume begins" else self.t_r / 2
        self.write()

    def give_way(self):
        own = self.chosen
        self.strategy = (FEW | MANY)[own["confounds"]]
        if own["confounds"] in MANY:
            own["filter"] = "none"
        if own["moment"] == "StartTime" and own["t_r from"].startswith("header"):
            own["moment"] = "slice_time_ref"
        if own["features"] == "design of the cleaned" or own["hrf_model"] == "fir":
            own["delays"] = []
        single = own["events"] == "without trial_type" or own["hrf_model"] is None
        if self.designed() and single and own["scoring"] == "pearson":
            # One regressor, or one that is not zero, predicts with the same r under every penalty.
            own["scoring"] = "r2"
        if own["masks"] in ("one file", "none"):
            own["mask differs"] = "no"
        if "int" in own["numbers"]:
            own["NaN in images"] = "no"
        if len(self.own) < 2 and str(own["cv"]).startswith("run"):
            own["cv"] = 4

    def designed(self):
        """Whether features are a design."""
        return self.chosen["features"].startswith("design")

    def numbers(self, run):
        numbers, place = self.chosen["numbers"], self.of_subject(run)
        return ["float32", "int16", "float64"][place % 3] if numbers == "mixed" else numbers

    def of_subject(self, run):
        """The place of a run among those of its subject."""
        return [other for other in self.runs if other.subject == run.subject].index(run)

    # Files.

    def write(self):
        rng, own = self.rng, self.chosen
        for root, kind in [(self.raw, "raw"), (self.derivatives, "derivative")]:
            root.mkdir(parents=True)
            about = {"Name": "study", "BIDSVersion": "1.9.0", "DatasetType": kind}
            (root / "dataset_description.json").write_text(json.dumps(about))
        self.shape = tuple(rng.integers(3, 7, 3))
        self.voxels = int(np.prod(self.shape))
        # Numbers that 32 bits hold.
        self.affine = np.diag([-3.0 if own["affine"] == "sform flipped" else 3.0, 2.5, 4.0, 1])
        self.affine[:3, 3] = rng.integers(-160, 160, 3) / 2
        self.base = rng.uniform(300, 2000, self.voxels) + (30_000 if own["numbers"] == "int16 far" else 0)
        self.weights = rng.normal(size=(3, self.voxels)) * rng.uniform(0, 4, self.voxels)
        self.brain = rng.random(self.voxels) < 0.7
        special = rng.choice(np.flatnonzero(self.brain), 4, replace=False)
        self.constant, self.broken = special[:3], special[3:]
        self.save(self.mask_file, self.brain.astype(np.uint8))
        length = int(rng.integers(52, 64))
        for run in self.runs:
            run.volumes = length + (int(rng.integers(9)) if own["lengths"] == "several" else 0)
        events = self.events(length)
        for run in self.runs:
            run.features = rng.normal(size=(run.volumes, 3))
            run.events = events if own["events"] == "for all runs" else self.events(run.volumes)
            self.write_run(run)
        if own["events"] == "for all runs":
            events.to_csv(self.raw / "task-x_events.tsv", sep="\t", index=False)
        above = {"raw sidecar": self.raw, "sidecar of all": self.derivatives}.get(own["t_r from"])
        if above:
            (above / "task-x_bold.json").write_text(json.dumps({"RepetitionTime": own["t_r"]}))
        self.write_features()

    def write_run(self, run):
        own, beside, raw = self.chosen, self.derivatives / run.folder, self.raw / run.folder
        beside.mkdir(parents=True, exist_ok=True)
        raw.mkdir(parents=True, exist_ok=True)
        space = "space-MNI152NLin2009cAsym" + ("_res-2" if own["resolution"] else "")

        def path(end, stem=run.stem, echo=""):
            return beside / f"{stem}{echo}_{space}_desc-{end}"

        run.image = path("preproc_bold.nii.gz", echo="_echo-2" if own["echo"] == "chosen" else "")
        run.confounds = self.confounds(run)
        self.save_bold(run, self.values(run))
        run.mask = self.mask(path("brain_mask.nii.gz"))
        run.table = f"{run.stem}_desc-confounds_timeseries.tsv"
        write_confounds(beside / run.table, run.confounds)
        if own["events"] != "for all runs":
            run.events.to_csv(raw / f"{run.stem}_events.tsv", sep="\t", index=False)
        about = {"RepetitionTime": own["t_r"]} if own["t_r from"] == "sidecar" else {}
        about |= {"StartTime": self.start} if own["moment"] == "StartTime" else {}
        run.image.with_name(run.image.name.replace(".nii.gz", ".json")).write_text(json.dumps(about))
        # What is not asked for.
        others = [path("preproc_bold.nii.gz", echo=echo) for echo in ["", "_echo-1", "_echo-2"]]
        for other in others if own["echo"] != "none" else []:
            if other != run.image:
                self.save(other, np.ones((self.voxels, run.volumes), np.int16))
        if own["other task"]:
            rest = run.stem.replace("task-x", "task-rest")
            self.save(path("preproc_bold.nii.gz", rest), np.ones((self.voxels, 7), np.int16), t_r=3.25)
            self.save(path("brain_mask.nii.gz", rest), np.ones(self.voxels, np.uint8))

    def values(self, run):
        """[voxels, volumes]: a baseline with drifts, features, motion and noise."""
        rng, own, t = self.rng, self.chosen, np.linspace(-1, 1, run.volumes)
        noise = rng.normal(size=(self.voxels, run.volumes)) * 6
        noise[:, 1:] += noise[:, :-1] * 0.5
        motion = run.confounds[MOTION].to_numpy()
        motion = rng.normal(size=(self.voxels, 6)) @ (motion / motion.std(axis=0)).T * 3
        drift = rng.normal(0, 15, (self.voxels, 1)) * t + rng.normal(0, 8, (self.voxels, 1)) * np.sin(4 * t)
        values = self.base[:, None] + (run.features @ self.weights).T + motion + drift + noise
        values[:, : own["unsteady"]] += 300
        place = self.of_subject(run)
        if own["constant voxels"] == "in all runs" or own["constant voxels"] == "in one run" and place in (0, 2):
            values[self.constant] = [[0.0], [700.0], [1234.5]]
        if own["constant voxels"] == "in kept volumes":
            values[self.constant, own["unsteady"] :] = 700.0
        if own["NaN in images"] != "no" and "float" in self.numbers(run) and place % 2 == self.seed % 2:
            values[self.broken, rng.integers(run.volumes)] = np.nan
        return values

    def save_bold(self, run, values):
        """Stores the values; those of the run are what the file says then."""
        dtype, slope, inter = {
            "int16": (np.int16, self.rng.uniform(0.07, 0.3), self.rng.choice([0.0, 1000.0, -37.5])),
            "int16 far": (np.int16, self.rng.uniform(0.07, 0.3), 31_000.0),
            "uint16": (np.uint16, self.rng.uniform(0.07, 0.3), -20.0),
            "float32": (np.float32, 1.0, 0.0),
            "float32 scaled": (np.float32, 0.37, 12.0),
            "float64": (np.float64, 1.0, 0.0),
        }[self.numbers(run)]
        stored = (values - inter) / slope
        stored = np.rint(stored) if np.issubdtype(dtype, np.integer) else stored
        stored = np.clip(stored, 0, None) if dtype is np.uint16 else stored
        self.save(run.image, stored.astype(dtype), slope, inter)
        run.values = nibabel.load(run.image).get_fdata().reshape(-1, run.volumes, order="F")
        if all(self.numbers(other) in ("int16", "uint16", "float32") for other in self.runs):
            # Tables of such images are read in 32 bits, those in which one needs it in 64.
            run.values = run.values.astype(np.float32).astype(float)

    def save(self, path, stored, slope=1.0, inter=0.0, t_r=None):
        """An image of [voxels] or [voxels, volumes], in the order of the file."""
        order, source = self.chosen["byte order"], self.chosen["t_r from"]
        header = nibabel.Nifti1Header(endianness=order)
        header.set_data_dtype(stored.dtype)
        header.set_data_shape(self.shape + stored.shape[1:])
        header.set_qform(self.affine, 1)
        header.set_sform(self.affine, 4)
        if self.chosen["affine"] == "qform":
            header["sform_code"] = 0
            header["srow_x"] = header["srow_y"] = header["srow_z"] = 0
        if stored.ndim > 1:
            # A sidecar outranks the header, which says something else then.
            seconds = t_r or (self.chosen["t_r"] if source.startswith("header") else 1.0)
            unit, many = ("msec", 1000) if source == "header in ms" else ("sec", 1)
            header.set_xyzt_units("mm", unit)
            header["pixdim"][4] = seconds * many
        header["scl_slope"], header["scl_inter"] = slope, inter
        header["vox_offset"], header["magic"] = 352, b"n+1"
        data = stored.astype(stored.dtype.newbyteorder(order)).tobytes(order="F")
        path.write_bytes(gzip.compress(header.binaryblock + bytes(4) + data, 1))

    def mask(self, path):
        """Writes the brain of a run; gives the voxels of its rows, as nilearn reads masks."""
        kind, brain = self.chosen["masks"], self.brain.copy()
        special = np.r_[self.constant, self.broken]
        if self.chosen["mask differs"] == "by run":
            brain ^= self.rng.random(self.voxels) < 0.05
            brain[special] = True
        values = brain.astype(np.uint8)
        if kind == "brain, NaN":
            values = np.where(self.rng.random(self.voxels) < 0.1, np.nan, values).astype(np.float32)
            values[special] = 1
        if kind == "brain, other values":
            values = brain * 0.25
        self.save(path, values)
        if kind == "none":
            return np.arange(self.voxels)
        used = self.mask_file if kind == "one file" else path
        return np.flatnonzero(load_mask_img(str(used))[0].ravel(order="F"))

    def events(self, volumes):
        """Three conditions, before the run, in it, at its end, and after it."""
        rng, kind, end = self.rng, self.chosen["events"], volumes * self.chosen["t_r"]
        onsets = np.r_[-3.0, 0.5, np.sort(rng.uniform(4, end - 3, 10)).round(2), end + 50]
        table = pd.DataFrame({"onset": onsets, "duration": rng.choice([0, 1, 2.5], len(onsets))})
        if kind != "without trial_type":
            table["trial_type"] = [["face", "house", "Word"][n % 3] for n in range(len(onsets))]
        if kind == "modulated":
            table["modulation"] = rng.uniform(0.2, 2, len(onsets)).round(3)
            table = pd.concat([table, table.iloc[[4]]])
        return table

    def confounds(self, run):
        rng, n, table = self.rng, run.volumes, {}
        sizes = {"csf": (900, 2), "white_matter": (410, 2), "global_signal": (480, 2)}
        sizes |= {name: (0, 0.02 if name.startswith("trans") else 0.0005) for name in MOTION}
        for name, (base, size) in sizes.items():
            values = base + size * np.cumsum(rng.normal(size=n))
            slopes = np.r_[np.nan, np.diff(values)]
            table |= {name: values, f"{name}_derivative1": slopes}
            table |= {f"{name}_power2": values**2, f"{name}_derivative1_power2": slopes**2}
        table["framewise_displacement"] = np.r_[np.nan, rng.uniform(0.05, 0.3, n - 1)]
        table["std_dvars"] = np.r_[np.nan, rng.uniform(0.8, 1.2, n - 1)]
        # A gap, a short segment behind it, and in half of the runs the last volume.
        moved = np.array([18, 19, 30, 33 + rng.integers(4), n - 1][: 4 + rng.integers(2)])
        table["framewise_displacement"][moved] = rng.uniform(0.45, 0.9, len(moved)).round(3)
        table["std_dvars"][18] = 1.7
        table |= {f"{kind}_comp_cor_{k:02}": rng.normal(size=n) / np.sqrt(n) for kind, count in [("t", 3), ("a", 7)]
                  for k in range(count)}
        drifts = create_cosine_drift(0.008, np.arange(n) * self.chosen["t_r"])[:, :-1]
        table |= {f"cosine{k:02}": drift for k, drift in enumerate(drifts.T)}
        marks = np.eye(n, dtype=int)
        table |= {f"non_steady_state_outlier{k:02}": marks[k] for k in range(self.chosen["unsteady"])}
        return pd.DataFrame(table | {f"motion_outlier{k:02}": marks[v] for k, v in enumerate(moved)})

    def write_features(self):
        """A row a volume of the images, in any order."""
        runs = self.runs if self.chosen["keys"] == "all" else self.own
        columns = {key: [run.keys[KEYS.index(key)] for run in runs for _ in range(run.volumes)]
                   for key in self.feature_keys()}
        columns["tr"] = np.concatenate([np.arange(run.volumes) for run in runs])
        values = np.vstack([run.features for run in runs])
        if self.chosen["features"] == "lists":
            columns |= {"first": values[:, 0], "rest": list(values[:, 1:])}
        else:
            columns |= dict(zip("abc", values.T))
        rows = pyarrow.table(columns)
        pyarrow.parquet.write_table(rows.take(self.rng.permutation(len(rows))), self.folder / "features.parquet")

    def feature_keys(self):
        """All keys, or those that tell the runs of the subject apart."""
        if self.chosen["keys"] == "all":
            return KEYS
        return [key for at, key in enumerate(KEYS) if at > 0 and any(run.keys[at] for run in self.own)]

    # Settings, as nilearn and scikit-learn call them.

    def clean_settings(self):
        half = 0.5 / self.t_r
        cuts = {"none": {}, "high": {"high_pass": 0.01}, "low": {"low_pass": round(0.6 * half, 3)},
                "band": {"high_pass": 0.012, "low_pass": round(0.7 * half, 3)}, "cosine": {"high_pass": 0.015}}
        own = self.chosen
        kind = {} if own["filter"] == "none" else {"filter": "cosine" if own["filter"] == "cosine" else "butterworth"}
        return {"detrend": own["detrend"], "standardize": own["standardize"]} | kind | cuts[own["filter"]]

    def response(self):
        own = self.chosen
        return {"hrf_model": own["hrf_model"]} | ({"fir_delays": [0, 2, 3]} if own["hrf_model"] == "fir" else {})

    def design_settings(self):
        drifts = {"cosine": {"high_pass": 0.02}, "polynomial": {"drift_order": 2}, None: {}}
        model, fine = self.chosen["drift_model"], {"oversampling": self.chosen["oversampling"]}
        # A finite impulse response has no finer bins than volumes: there the option is refused.
        fine = {} if self.chosen["hrf_model"] == "fir" else fine
        return self.response() | {"drift_model": model} | fine | drifts[model]

    # The pipeline.

    def statements(self):
        own = self.chosen
        table = {"raw": self.raw, "task": "x"}
        table["mask"] = {"one file": self.mask_file, "none": "none"}.get(own["masks"], "brain")
        table |= {"echo": "2" if own["echo"] == "chosen" else "none"} if own["echo"] != "none" else {}
        columns = ["intercept", "alpha", "score"] + (["r", "r2"] if self.held else [])
        of_subject = f"subject = '{self.subject}'"
        series = f"SELECT * FROM series WHERE {of_subject}"
        validate, fitted = "", series
        if self.held:
            validate = f"VALIDATE ON (SELECT * FROM series WHERE {self.held.where()})"
            fitted = f"{series} AND NOT ({self.held.where()})"
        points = "" if self.designed() else f", time_points => {self.predicted.volumes}"
        whole = of_subject if "subject" in self.feature_keys() else "true"
        fill = "" if own["fill"] is None else " WITH (fill => 0)"
        return f"""
CREATE EXTERNAL TABLE bold STORED AS BIDS LOCATION '{self.derivatives}'
  OPTIONS ({", ".join(f"{name} '{value}'" for name, value in table.items())});
CREATE TABLE series AS SELECT * FROM clean(bold, {named(self.clean_options())});
CREATE TABLE d AS SELECT * FROM {self.design(own["design of"], self.design_settings())};
TRAIN MODEL enc USING ridge_cv ({named(self.fit_options())})
  ON ({fitted})
  FEATURES ({self.features(whole)})
  {validate}
  WITH (ranks => {own["ranks"]}, voxels => 'intersection');
CREATE TABLE predicted AS
  SELECT * FROM predict(enc, ({self.features(self.predicted.where(self.feature_keys()) or "true")}){points});
EXPORT MAPS FROM (SELECT voxel, i, j, k, {", ".join(columns)} FROM enc) TO 'maps/{{column}}.nii.gz'{fill};
EXPORT MAPS FROM (SELECT voxel, i, j, k, arrow_cast(series, 'FixedSizeList({{kept}}, Float32)') AS cleaned
                    FROM series WHERE {self.predicted.where()}) TO 'maps/{{column}}.nii.gz'{fill};
""".replace("{kept}", str(len(self.predicted.kept)))

    def clean_options(self):
        strategy = dict(self.strategy)
        names, columns, marked, keep, preset = (strategy.pop(name, None) for name in
                                                ("strategy", "columns", "marked", "keep", "preset"))
        # Columns by name are of no group whose expansion could be asked for.
        options = self.clean_settings() | ({} if columns else strategy)
        if names:
            options["confounds"] = columns or ", ".join(names + (["motion_outlier*"] if marked else []))
        options |= {"denoise_strategy": preset} if preset else {}
        options |= {"non_steady_state": "keep"} if keep else {}
        broken = self.chosen["NaN in images"]
        return options | ({} if broken == "no" else {"not_finite": broken})

    def design(self, table, settings):
        """`design(…)` with settings of nilearn."""
        settings = {name: "none" if value is None else value for name, value in settings.items()}
        settings |= {"slice_time_ref": 0.5} if self.chosen["moment"] == "slice_time_ref" else {}
        return f"design({table}, {named(settings)})"

    def features(self, where):
        if not self.designed():
            return f"SELECT * FROM '{self.folder}/features.parquet' WHERE {where}"
        table = "series" if self.chosen["features"] == "design of the cleaned" else "bold"
        design = self.design(table, self.response() | {"drift_model": None})
        return f"SELECT * FROM {design} WHERE regressor <> 'constant' AND subject = '{self.subject}'"

    def fit_options(self):
        own = self.chosen
        options = {"alphas": self.alphas, "scoring": own["scoring"], "precision": "f64"}
        options |= {"cv": "run", "gap": 3} if own["cv"] == "run, gap" else {"cv": own["cv"]}
        options |= {"alpha_per_target": True} if own["alpha_per_target"] else {}
        return options | ({"delays": own["delays"]} if own["delays"] else {})


def write_confounds(path, table):
    """With a sidecar that says from which mask a component comes."""
    table.to_csv(path, sep="\t", na_rep="n/a", index=False)
    masks = ["combined"] * 3 + ["CSF"] * 2 + ["WM"] * 2
    about = {f"a_comp_cor_{k:02}": {"Method": "aCompCor", "Mask": mask} for k, mask in enumerate(masks)}
    about |= {f"t_comp_cor_{k:02}": {"Method": "tCompCor"} for k in range(3)}
    path.with_suffix(".json").write_text(json.dumps(about))
