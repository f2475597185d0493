//! A training that runs, noted beside its model's folder: a driver that is started again finds what its
//! predecessor has left, two drivers do not train into one folder, and people find which process is which rank.
//!
//! ```text
//!   .dca.run.json   whose training it is, its job on the cluster, its spooled rows, its gang; removed when it ends
//! ```

use super::rank::host_name;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};
use voxelflow_dataset::PlanRunner;
use voxelflow_sync::protocol::GangState;

/// What is noted of a training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RunRecord {
    /// Its driver.
    driver: Driver,
    /// Where its rows are spooled.
    pub spool: Option<String>,
    /// The model's folder as long as it is written.
    pub writing: Option<PathBuf>,
    /// Its gang's job on the cluster.
    pub job: Option<String>,
    /// The members of its gang, with their processes, as they were when one came or went last.
    pub gang: Option<GangState>,
}

/// A process that drives a training.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Driver {
    host: String,
    pid: u32,
    /// When the process began, in the kernel's ticks: numbers of processes come again.
    began: Option<u64>,
    /// The start of the machine that ticks are counted from.
    boot: String,
}

impl Driver {
    fn this() -> Self {
        let pid = process::id();
        Self { host: host_name(), pid, began: began(pid), boot: boot() }
    }

    /// Whether it still runs: of a process of another machine nothing is known.
    fn lives(&self) -> Option<bool> {
        let here = Self::this();
        if self.host != here.host {
            return None;
        }
        Some(self.boot == here.boot && self.began.is_some() && self.began == began(self.pid))
    }
}

/// When the process `pid` began; nothing where there is none.
fn began(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold anything; the 20th field after it is the start.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Ends the jobs on `runner`'s cluster of trainings into folders of `models` whose drivers have died on this machine:
/// their ranks wait for them, and have slots that whoever starts anew needs. What cannot be ended leaves by itself.
pub async fn end_cut_off(models: &Path, runner: &dyn PlanRunner) {
    for job in cut_off(models) {
        match runner.cancel(&job).await {
            Ok(()) => log::info!("job {job} is ended: the driver of its training has died"),
            Err(e) => log::warn!("job {job} of a training whose driver has died cannot be ended: {e}"),
        }
    }
}

/// Jobs of trainings into folders of `models` whose drivers have died on this machine.
fn cut_off(models: &Path) -> Vec<String> {
    let notes = fs::read_dir(models).into_iter().flatten().flatten().map(|entry| entry.path());
    let notes = notes.filter(|path| path.to_string_lossy().ends_with(NOTE));
    let records = notes.filter_map(|note| serde_json::from_slice::<RunRecord>(&fs::read(note).ok()?).ok());
    records.filter(|record| record.driver.lives() == Some(false)).filter_map(|record| record.job).collect()
}

/// What the name of a note ends with.
const NOTE: &str = ".run.json";

/// The right to train into a folder, and the note of it; both end when it is dropped.
#[derive(Debug)]
pub(super) struct RunClaim {
    path: PathBuf,
    record: Mutex<RunRecord>,
}

/// Notes of trainings of this process: their drivers live, but they are not all the same training.
static OWN: LazyLock<Mutex<BTreeSet<PathBuf>>> = LazyLock::new(Mutex::default);

fn own() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RunClaim {
    /// Claims the folder `model`. Also gives what a training that was cut off has noted there.
    ///
    /// # Errors
    /// A training that still runs, a note that cannot be written.
    pub fn take(model: &Path) -> Result<(Self, Option<RunRecord>)> {
        let model = std::path::absolute(model).map_err(|e| unwritable(model, &e))?;
        let name = model.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let path = model.with_file_name(format!(".{name}{NOTE}"));
        let left = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<RunRecord>(&bytes).ok());
        let busy = |whose: String| Error::ModelFolder {
            path: model.display().to_string(),
            reason: format!(
                "{whose} is training this model; wait until it has ended, or train under another name"
            ),
        };
        if let Some(RunRecord { driver, .. }) = &left
            && driver.pid != process::id()
            && driver.lives() == Some(true)
        {
            return Err(busy(format!("process {} of this machine", driver.pid)));
        }
        if !own().insert(path.clone()) {
            return Err(busy("this program".into()));
        }
        let record = RunRecord { driver: Driver::this(), spool: None, writing: None, job: None, gang: None };
        let claim = Self { path, record: Mutex::new(record) };
        claim.note(|_| {})?;
        Ok((claim, left))
    }

    /// Notes what `change` says.
    ///
    /// # Errors
    /// A note that cannot be written.
    pub fn note(&self, change: impl FnOnce(&mut RunRecord)) -> Result<()> {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut record);
        self.write(&record)
    }

    fn write(&self, record: &RunRecord) -> Result<()> {
        let failed = |e: std::io::Error| unwritable(&self.path, &e);
        let partial = self.path.with_extension("json.partial");
        let mut options = fs::OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let text = serde_json::to_vec_pretty(record).map_err(|e| failed(e.into()))?;
        let mut file = options.open(&partial).map_err(failed)?;
        file.write_all(&text).and_then(|()| fs::rename(&partial, &self.path)).map_err(failed)
    }
}

impl Drop for RunClaim {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        own().remove(&self.path);
    }
}

fn unwritable(path: &Path, e: &dyn std::fmt::Display) -> Error {
    let reason = format!("cannot be written: {e}; choose another folder with --out, or make room");
    Error::ModelFolder { path: path.display().to_string(), reason }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn one_training_at_a_time_and_nothing_is_left_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("dca");
        let note = folder.path().join(".dca.run.json");
        let (claim, left) = RunClaim::take(&model).unwrap();
        assert_eq!(left, None);
        claim.note(|record| record.job = Some("xyz".into())).unwrap();
        assert_eq!(fs::metadata(&note).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(RunClaim::take(&model).unwrap_err().to_string().contains("this program is training"));
        drop(claim);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        drop(RunClaim::take(&model).unwrap());
    }

    #[test]
    fn what_was_cut_off_is_found_and_what_runs_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("dca");
        let note = folder.path().join(".dca.run.json");
        let record = |driver: Driver| RunRecord {
            driver,
            spool: Some("rows".into()),
            writing: None,
            job: Some("xyz".into()),
            gang: None,
        };
        let mut child = process::Command::new("sleep").arg("60").spawn().unwrap();
        let driver = Driver { pid: child.id(), began: began(child.id()), ..Driver::this() };
        let text = serde_json::to_vec(&record(driver.clone())).unwrap();
        fs::write(&note, &text).unwrap();
        let busy = RunClaim::take(&model).unwrap_err().to_string();
        assert!(busy.contains(&format!("process {} of this machine", child.id())), "{busy}");
        assert!(cut_off(folder.path()).is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(cut_off(folder.path()), ["xyz"]);
        let (claim, left) = RunClaim::take(&model).unwrap();
        assert_eq!(left, Some(record(driver.clone())));
        drop(claim);

        // Of another machine, of another start of this one, damaged.
        let elsewhere = Driver { host: "elsewhere".into(), ..Driver::this() };
        let before = Driver { boot: "before".into(), pid: 1, began: began(1), ..Driver::this() };
        for driver in [elsewhere, before] {
            fs::write(&note, serde_json::to_vec(&record(driver)).unwrap()).unwrap();
            assert!(RunClaim::take(&model).unwrap().1.is_some());
        }
        fs::write(&note, b"{").unwrap();
        assert_eq!(RunClaim::take(&model).unwrap().1, None);
    }
}
