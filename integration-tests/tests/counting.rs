//! Trainings whose result tells whether every series was visited once an epoch: the stage `histogram` counts what it is
//! trained on.

use crate::{
    processes::{Running, wait_for},
    program::program,
};
use arrow::{
    array::{ArrayRef, FixedSizeListArray, Float32Array, StringArray, UInt32Array},
    datatypes::{DataType, Field, Schema},
    record_batch::RecordBatch,
};
use parquet::arrow::ArrowWriter;
use rustix::process::Pid;
use serde_json::Value;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
};
use tempfile::TempDir;

const BINS: usize = 16;
const ROWS: usize = 1_600;

/// Series of two points whose first value is the voxel's bin, in several files.
fn write_series(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let value = Arc::new(Field::new_list_field(DataType::Float32, false));
    let schema = Arc::new(Schema::new(vec![
        Field::new("subject", DataType::Utf8, false),
        Field::new("voxel", DataType::UInt32, false),
        Field::new("series", DataType::FixedSizeList(value.clone(), 2), false),
    ]));
    for file in 0..4 {
        let voxels: Vec<u32> = (0..ROWS as u32).filter(|v| v % 4 == file).collect();
        let values: Float32Array = voxels.iter().flat_map(|v| [(*v as usize % BINS) as f32, 0.5]).collect();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(vec!["01"; voxels.len()])),
            Arc::new(UInt32Array::from(voxels)),
            Arc::new(FixedSizeListArray::new(value.clone(), 2, Arc::new(values), None)),
        ];
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
        let out = File::create(folder.join(format!("part-{file}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(out, Arc::clone(&schema), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
}

/// A training of the histogram in a folder of its own.
pub struct Counting {
    folder: TempDir,
    epochs: usize,
}

/// A member of a gang at work.
#[derive(Clone, Debug)]
pub struct Member {
    pub number: u64,
    /// It trains, and does not only hold shards.
    pub trains: bool,
    pub pid: i32,
    pub standing: String,
}

impl Member {
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.pid).unwrap()
    }
}

impl Counting {
    pub fn new(epochs: usize, with: &str) -> Self {
        let counting = Self { folder: tempfile::tempdir().unwrap(), epochs };
        write_series(&counting.folder.path().join("series"));
        counting.set(with);
        counting
    }

    /// The same training with other settings.
    pub fn set(&self, with: &str) {
        let text = format!(
            "TRAIN MODEL counts USING histogram (bins => {BINS}) ON (SELECT * FROM '{}/') \
             WITH (optimizer => 'sgd', learning_rate => 1, reduction => 'sum', consistency => 'sync', \
                   minibatch => 4, epochs => {}, seed => 3, {with});",
            self.folder.path().join("series").display(),
            self.epochs
        );
        fs::write(self.folder.path().join("counts.vf"), text).unwrap();
    }

    pub fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// Starts it with these flags. Who comes and goes is in the log.
    pub fn start<S: AsRef<std::ffi::OsStr>>(&self, flags: &[S]) -> Running {
        let mut command = program("voxelflow");
        command.arg("run").arg(self.folder.path().join("counts.vf")).arg("--out").arg(self.out());
        command.arg("--json").args(flags).env("VOXELFLOW_LOG", "warn,voxelflow_sync=info");
        Running::start(command)
    }

    /// What is noted of it while it runs.
    pub fn noted(&self) -> String {
        fs::read_to_string(self.out().join("models/.counts.run.json")).unwrap_or_default()
    }

    fn note(&self) -> Option<Value> {
        serde_json::from_str(&self.noted()).ok()
    }

    /// The members of its gang, when it has begun.
    #[track_caller]
    pub fn members(&self) -> Vec<Member> {
        wait_for("the gang to be noted", || {
            let note = self.note()?;
            let members = note["gang"]["members"].as_array()?.iter().map(|member| Member {
                number: member["member"].as_u64().unwrap(),
                trains: member["role"] == "Rank",
                pid: i32::try_from(member["pid"].as_i64().unwrap()).unwrap(),
                standing: member["standing"].as_str().unwrap().to_owned(),
            });
            Some(members.collect())
        })
    }

    /// Its job on the cluster.
    #[track_caller]
    pub fn job(&self) -> String {
        wait_for("the job to be noted", || {
            Some(self.note()?["job"].as_str()?.rsplit('/').next().unwrap().to_owned())
        })
    }

    /// Rounds of the checkpoints that are there.
    pub fn checkpoints(&self) -> Vec<u64> {
        checkpoints_in(&self.out().join("models"))
    }

    /// The members of the gang that trained the model.
    pub fn gang(&self) -> Vec<Value> {
        self.gang_file()["members"].as_array().unwrap().clone()
    }

    /// Its ranks that trained to the end.
    pub fn ranks_at_end(&self) -> u64 {
        self.gang_file()["ranks_at_end"].as_u64().unwrap()
    }

    fn gang_file(&self) -> Value {
        let gang = fs::read(self.out().join("models/counts/gang.json")).unwrap();
        serde_json::from_slice(&gang).unwrap()
    }

    /// Fails unless every series was counted once an epoch.
    #[track_caller]
    pub fn assert_every_series_once_an_epoch(&self) {
        let file = fs::read(self.out().join("models/counts/model.safetensors")).unwrap();
        let counts = safetensors_values(&file);
        let expected = -((self.epochs * ROWS / BINS) as f32);
        assert_eq!(
            counts,
            [expected; BINS],
            "each bin has {} series and there were {} epochs",
            ROWS / BINS,
            self.epochs
        );
    }
}

/// Rounds of the checkpoints in hidden folders of `models`, in order.
pub fn checkpoints_in(models: &Path) -> Vec<u64> {
    let folders = fs::read_dir(models).into_iter().flatten().flatten();
    let folders = folders.filter(|f| f.file_name().to_string_lossy().contains(".checkpoints-"));
    let files = folders.flat_map(|f| fs::read_dir(f.path()).into_iter().flatten().flatten());
    let mut rounds: Vec<u64> = files
        .filter_map(|file| {
            let name = file.file_name().into_string().ok()?;
            name.strip_prefix("round-")?.strip_suffix(".json")?.parse().ok()
        })
        .collect();
    rounds.sort_unstable();
    rounds
}

/// The 32-bit numbers of a safetensors file of one tensor.
fn safetensors_values(file: &[u8]) -> Vec<f32> {
    let header = usize::try_from(u64::from_le_bytes(file[..8].try_into().unwrap())).unwrap();
    file[8 + header..].as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}
