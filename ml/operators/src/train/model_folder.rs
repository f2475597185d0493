//! The folder of a fitted model: written beside its place, then renamed, so that it is whole or not there.
//!
//! The driver makes the folder before any work is done. The rank that leads writes the model into it, on whatever
//! machine it runs; the driver adds what it knows, and shows the folder to everybody. As long as it lives it holds the
//! lock of its target, as writers of tables do: what has no living writer is removed by the next one.

use super::{gang::Outcome, rank::Orders};
use crate::{Error, Result, train::Statistics};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;
use voxelflow_dataset::{Claim, claim_target, remove_left_behind, replace_target};
use voxelflow_stage::Fitted;

/// Version of the folder's layout.
const VERSION: u32 = 1;

/// What the leader writes.
const MODEL_FILES: [&str; 2] = ["model.safetensors", "config.json"];

/// Writes what `fitted` is into the folder that the driver has made.
///
/// # Errors
/// Storage that fails.
pub(super) fn write_model(orders: &Orders, time_points: usize, fitted: &Fitted) -> Result<()> {
    let folder = &orders.writing;
    fitted.model.save_weights(folder)?;
    let config = json!({
        "stage": fitted.model.stage(),
        "options": fitted.model.config(),
        "time_points": time_points,
        "version": VERSION,
        "model": orders.model,
        "parameters": fitted.model.parameters(),
        "settings": orders.settings,
    });
    write_json(&folder.join("config.json"), &config)
}

/// A folder that is being written; gone when dropped before [`Self::finish`].
#[derive(Debug)]
pub(super) struct ModelFolder {
    parent: PathBuf,
    place: PathBuf,
    name: String,
    writing: TempDir,
    /// The last to be dropped.
    claim: Claim,
}

impl ModelFolder {
    /// Before any work is done: finds out whether the place can be written to. What killed trainings have left beside it
    /// is removed, of this model and of others.
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
        let parent = std::path::absolute(&parent).map_err(|e| unwritable(&parent, &e))?;
        let place = parent.join(&name);
        let claim = claim_target(&place).map_err(|e| unwritable(&place, &e))?;
        if let Err(e) = remove_left_behind(&parent) {
            // It takes room, no more.
            log::debug!("what was left behind in {} stays: {e}", parent.display());
        }
        let writing = tempfile::Builder::new().prefix(&Self::partial_name(&place)).tempdir_in(&parent);
        let writing = writing.map_err(|e| unwritable(&parent, &e))?;
        Ok(Self { parent, place, name, writing, claim })
    }

    /// # Errors
    /// Another training, perhaps on another machine, that writes this model.
    pub fn must_be_alone(&self) -> Result<()> {
        match self.claim {
            Claim::Alone(_) | Claim::Unknown => Ok(()),
            Claim::Busy => Err(Error::ModelFolder {
                path: self.place.display().to_string(),
                reason:
                    "another process is training this model; wait until it has ended, or train under another \
                         name"
                        .into(),
            }),
        }
    }

    /// What the name of the folder `place` begins with as long as it is written.
    pub fn partial_name(place: &Path) -> String {
        format!(".{}.partial-", place.file_name().unwrap_or_default().to_string_lossy())
    }

    /// Where checkpoints of a training with this fingerprint lie: beside the model, so that a training that
    /// was cut off goes on, and one with other rows, options or settings starts anew.
    pub fn checkpoints(&self, fingerprint: &str) -> PathBuf {
        let short = fingerprint.get(..16).unwrap_or(fingerprint);
        self.parent.join(format!(".{}.checkpoints-{short}", self.name))
    }

    /// The folder as long as it is written.
    pub fn writing(&self) -> &Path {
        self.writing.path()
    }

    /// Adds what the driver knows of the training, and puts the folder in its place, instead of one that is there.
    ///
    /// # Errors
    /// Storage that fails, or a leader that has written nothing that can be seen here.
    pub fn finish(self, statistics: &Statistics, outcome: &Outcome) -> Result<()> {
        let folder = self.writing.path();
        for file in MODEL_FILES {
            if !folder.join(file).is_file() {
                let reason = format!(
                    "{file} cannot be seen: the folder must be storage that the driver and all executors see"
                );
                return Err(Error::ModelFolder { path: folder.display().to_string(), reason });
            }
        }
        write_json(&folder.join(Statistics::FILE), &json!(statistics))?;
        write_json(&folder.join("history.json"), &json!(outcome.history))?;
        write_json(
            &folder.join("gang.json"),
            &json!({ "members": outcome.members, "ranks_at_end": outcome.ranks_at_end }),
        )?;
        self.publish()
    }

    fn publish(self) -> Result<()> {
        let failed = |e: std::io::Error| unwritable(&self.place, &e);
        for entry in fs::read_dir(self.writing.path()).map_err(failed)? {
            let file = fs::File::open(entry.map_err(failed)?.path()).map_err(failed)?;
            file.sync_all().map_err(failed)?;
        }
        let whole = self.writing.keep();
        if let Err(e) = replace_target(&self.place, &whole) {
            let _ = fs::remove_dir_all(&whole);
            return Err(failed(e));
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// As a kill does: the folder stays, the lock is nobody's.
    fn killed(place: &Path) {
        let ModelFolder { writing, claim, .. } = ModelFolder::prepare(place).unwrap();
        fs::write(writing.keep().join("model.safetensors"), "half").unwrap();
        drop(claim);
    }

    #[test]
    fn what_killed_trainings_have_left_is_removed_and_what_lives_is_not() {
        let models = tempfile::tempdir().unwrap();
        let at = |name: &str| models.path().join(name);
        let living = ModelFolder::prepare(&at("living")).unwrap();
        killed(&at("dca"));
        fs::create_dir(at(".other.partial-x")).unwrap();
        assert_eq!(names(models.path()).len(), 4, "two that are left, one that lives and its lock");
        let next = ModelFolder::prepare(&at("dca")).unwrap();
        next.must_be_alone().unwrap();
        assert!(living.writing().is_dir() && next.writing().is_dir());
        let left = names(models.path());
        assert!(left.len() == 4 && !left.iter().any(|name| name.starts_with(".other")), "{left:?}");
        // A second one for the same model is refused, and takes nothing from the first.
        let e = ModelFolder::prepare(&at("living")).unwrap().must_be_alone().unwrap_err();
        assert!(e.to_string().contains("another process is training this model"), "{e}");
        assert!(living.writing().is_dir());
        drop((living, next));
        assert_eq!(names(models.path()), [""; 0]);
    }

    /// Between the two renames the old model has another name: the next training puts it back.
    #[test]
    fn the_old_model_survives_a_kill_while_it_is_replaced() {
        let models = tempfile::tempdir().unwrap();
        let place = models.path().join("dca");
        fs::create_dir(models.path().join(".dca.replaced")).unwrap();
        fs::write(models.path().join(".dca.replaced/config.json"), "{}").unwrap();
        killed(&place);
        assert!(place.join("config.json").is_file());
        drop(ModelFolder::prepare(&place).unwrap());
        assert_eq!(names(models.path()), ["dca"]);
    }
}
