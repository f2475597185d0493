//! The folder of a fitted model: written beside its place, then renamed, so that it is whole or not there.

use crate::{
    Error, Result,
    train::{Statistics, TrainJob},
};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;
use voxelflow_stage::Fitted;

/// Version of the folder's layout.
const VERSION: u32 = 1;

/// A folder that is being written; gone when dropped before [`Self::finish`].
#[derive(Debug)]
pub(super) struct ModelFolder {
    parent: PathBuf,
    place: PathBuf,
    name: String,
    writing: TempDir,
}

impl ModelFolder {
    /// Before any work is done: finds out whether the place can be written to.
    ///
    /// # Errors
    /// A place that cannot be written to.
    pub fn prepare(place: &Path) -> Result<Self> {
        let name = place.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let parent = place.parent().map(Path::to_owned).unwrap_or_default();
        let parent = if parent.as_os_str().is_empty() { PathBuf::from(".") } else { parent };
        if name.is_empty() {
            return Err(Error::ModelFolder {
                path: place.display().to_string(),
                reason: "it has no name".into(),
            });
        }
        fs::create_dir_all(&parent).map_err(|e| unwritable(&parent, &e))?;
        let writing = tempfile::Builder::new().prefix(&format!(".{name}.partial-")).tempdir_in(&parent);
        let writing = writing.map_err(|e| unwritable(&parent, &e))?;
        Ok(Self { parent, place: place.to_owned(), name, writing })
    }

    /// Where checkpoints of a training with this fingerprint lie: beside the model, so that a training that
    /// was cut off goes on, and one with other rows, options or settings starts anew.
    pub fn checkpoints(&self, fingerprint: &str) -> PathBuf {
        let short = fingerprint.get(..16).unwrap_or(fingerprint);
        self.parent.join(format!(".{}.checkpoints-{short}", self.name))
    }

    /// Writes all files and puts the folder in its place, instead of one that is there.
    ///
    /// # Errors
    /// Storage that fails.
    pub fn finish(self, job: &TrainJob, fitted: &Fitted, statistics: &Statistics) -> Result<()> {
        let folder = self.writing.path();
        fitted.model.save_weights(folder)?;
        let config = json!({
            "stage": fitted.model.stage(),
            "options": fitted.model.config(),
            "time_points": statistics.time_points,
            "version": VERSION,
            "model": job.model,
            "parameters": fitted.model.parameters(),
            "settings": job.settings,
        });
        write_json(&folder.join("config.json"), &config)?;
        write_json(&folder.join("statistics.json"), &json!(statistics))?;
        write_json(&folder.join("history.json"), &json!(fitted.history))?;
        self.publish()
    }

    fn publish(self) -> Result<()> {
        let failed = |e: std::io::Error| unwritable(&self.place, &e);
        for entry in fs::read_dir(self.writing.path()).map_err(failed)? {
            let file = fs::File::open(entry.map_err(failed)?.path()).map_err(failed)?;
            file.sync_all().map_err(failed)?;
        }
        // The old folder goes aside first: a rename cannot replace a folder that is not empty.
        let aside = tempfile::Builder::new().prefix(&format!(".{}.old-", self.name)).tempdir_in(&self.parent);
        let aside = aside.map_err(failed)?;
        let old = aside.path().join("model");
        let replaces = self.place.exists();
        if replaces {
            fs::rename(&self.place, &old).map_err(failed)?;
        }
        let whole = self.writing.keep();
        if let Err(e) = fs::rename(&whole, &self.place) {
            let error = unwritable(&self.place, &e);
            // What was there comes back; the error that is told is the first one.
            if replaces {
                let _ = fs::rename(&old, &self.place);
            }
            let _ = fs::remove_dir_all(&whole);
            return Err(error);
        }
        readable_by_group(&self.place);
        Ok(())
    }
}

/// Folders for temporary files are made for their owner only; a model is as readable as other output.
fn readable_by_group(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    // A file system without permissions is no reason to fail.
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o755));
}

fn write_json(path: &Path, value: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(|e| unwritable(path, &e))?;
    fs::write(path, text + "\n").map_err(|e| unwritable(path, &e))
}

fn unwritable(path: &Path, e: &dyn std::fmt::Display) -> Error {
    let reason = format!("cannot be written: {e}; choose another folder with --out, or make room");
    Error::ModelFolder { path: path.display().to_string(), reason }
}
