//! Checkpoints of a training run, whole or absent.
//!
//! ```text
//!   state-0000002.safetensors   parameters, and each vector of the optimizer, under the names of the model
//!   epoch-0000002.json          manifest: epoch, step, configuration, blake3 of the state; written last
//! ```
//! Both are written under a temporary name, flushed to disk and renamed. A manifest whose state is missing or has
//! another hash is passed over, so a crash at any moment leaves the previous checkpoint valid. Names are global, so
//! a run may go on with another number of ranks.

use crate::parameters::{ParameterLayout, to_safetensors};
use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};
use voxelflow_stage::{Error, History, Result};
use voxelflow_sync::OptimizerState;

/// Checkpoints that are kept.
const KEEP: usize = 2;

/// Where a run stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Epochs done.
    pub epoch: u64,
    /// Rounds done, warm-up included.
    pub step: u64,
    /// The flat parameter vector.
    pub parameters: Vec<f32>,
    /// The optimizer's memory.
    pub optimizer: OptimizerState,
    /// What training did so far.
    pub history: History,
}

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    epoch: u64,
    step: u64,
    optimizer_steps: u64,
    optimizer_vectors: Vec<String>,
    configuration: String,
    seed: u64,
    blake3: String,
    history: History,
}

/// The folder of one run's checkpoints.
#[derive(Clone, Debug)]
pub struct CheckpointFolder {
    folder: PathBuf,
    configuration: String,
    seed: u64,
}

impl CheckpointFolder {
    /// Checkpoints in `folder` of the run whose configuration has the hash `configuration`.
    pub fn new(folder: &Path, configuration: String, seed: u64) -> Self {
        Self { folder: folder.to_owned(), configuration, seed }
    }

    /// Writes `checkpoint` and removes all but the newest two.
    ///
    /// # Errors
    /// Storage that fails.
    pub fn write(&self, layout: &ParameterLayout, checkpoint: &Checkpoint) -> Result<()> {
        fs::create_dir_all(&self.folder).map_err(|e| failed(&self.folder, &e))?;
        let mut tensors = layout.views("", &checkpoint.parameters)?;
        for (name, values) in &checkpoint.optimizer.vectors {
            tensors.extend(layout.views(&format!("{name}/"), values)?);
        }
        let state = to_safetensors(tensors, None)?;
        let manifest = Manifest {
            epoch: checkpoint.epoch,
            step: checkpoint.step,
            optimizer_steps: checkpoint.optimizer.steps,
            optimizer_vectors: checkpoint.optimizer.vectors.iter().map(|(name, _)| name.clone()).collect(),
            configuration: self.configuration.clone(),
            seed: self.seed,
            blake3: blake3::hash(&state).to_hex().to_string(),
            history: checkpoint.history.clone(),
        };
        let manifest = serde_json::to_vec_pretty(&manifest).map_err(|e| failed(&self.folder, &e))?;
        write_whole(&self.state(checkpoint.epoch), &state)?;
        write_whole(&self.manifest(checkpoint.epoch), &manifest)?;
        self.prune(checkpoint.epoch)
    }

    /// The newest valid checkpoint of this configuration, if there is one.
    ///
    /// # Errors
    /// A folder that is there but cannot be listed.
    pub fn newest(&self, layout: &ParameterLayout) -> Result<Option<Checkpoint>> {
        let mut epochs = self.epochs()?;
        epochs.sort_unstable();
        Ok(epochs.into_iter().rev().find_map(|epoch| self.read(layout, epoch)))
    }

    fn read(&self, layout: &ParameterLayout, epoch: u64) -> Option<Checkpoint> {
        let manifest: Manifest = serde_json::from_slice(&fs::read(self.manifest(epoch)).ok()?).ok()?;
        if manifest.configuration != self.configuration {
            return None;
        }
        let state = fs::read(self.state(epoch)).ok()?;
        if blake3::hash(&state).to_hex().as_str() != manifest.blake3 {
            return None;
        }
        let file = SafeTensors::deserialize(&state).ok()?;
        let vectors = manifest.optimizer_vectors.into_iter();
        let vectors =
            vectors.map(|name| layout.read(&format!("{name}/"), &file).map(|values| (name, values)));
        Some(Checkpoint {
            epoch: manifest.epoch,
            step: manifest.step,
            parameters: layout.read("", &file).ok()?,
            optimizer: OptimizerState {
                vectors: vectors.collect::<Result<_>>().ok()?,
                steps: manifest.optimizer_steps,
            },
            history: manifest.history,
        })
    }

    fn prune(&self, newest: u64) -> Result<()> {
        let mut epochs = self.epochs()?;
        // What lies ahead of a run that was resumed belongs to another configuration.
        epochs.retain(|e| *e != newest);
        epochs.sort_unstable_by_key(|e| std::cmp::Reverse((*e < newest, *e)));
        for epoch in epochs.into_iter().skip(KEEP - 1) {
            for path in [self.manifest(epoch), self.state(epoch)] {
                match fs::remove_file(&path) {
                    Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(&path, &e)),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn epochs(&self) -> Result<Vec<u64>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(failed(&self.folder, &e)),
        };
        let epoch = |entry: std::io::Result<fs::DirEntry>| -> Option<u64> {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.strip_prefix("epoch-")?.strip_suffix(".json")?.parse().ok()
        };
        Ok(entries.filter_map(epoch).collect())
    }

    fn state(&self, epoch: u64) -> PathBuf {
        self.folder.join(format!("state-{epoch:07}.safetensors"))
    }

    fn manifest(&self, epoch: u64) -> PathBuf {
        self.folder.join(format!("epoch-{epoch:07}.json"))
    }
}

/// Writes a file under a temporary name, flushes it to disk and renames it.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = path.with_extension("partial");
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    write().map_err(|e| failed(path, &e))
}

fn failed(path: &Path, e: &dyn std::fmt::Display) -> Error {
    Error::Folder { path: path.display().to_string(), reason: format!("checkpoint: {e}") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn layout() -> ParameterLayout {
        ParameterLayout::new([("a.weight".to_owned(), vec![2, 3]), ("a.bias".to_owned(), vec![3])])
    }

    fn checkpoint(epoch: u64) -> Checkpoint {
        let values = |scale: f32| (0..9).map(|i| i as f32 * scale + epoch as f32).collect::<Vec<_>>();
        Checkpoint {
            epoch,
            step: 10 * epoch,
            parameters: values(1.0),
            optimizer: OptimizerState {
                vectors: vec![("sum_of_squares".into(), values(0.5))],
                steps: 10 * epoch,
            },
            history: History { initial_loss: 2.5, ..History::default() },
        }
    }

    #[test]
    fn the_newest_valid_one_is_read_and_two_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let run = CheckpointFolder::new(&folder.path().join("run"), "c0".into(), 1);
        assert_eq!(run.newest(&layout()).unwrap(), None);
        for epoch in 1..=4 {
            run.write(&layout(), &checkpoint(epoch)).unwrap();
        }
        assert_eq!(run.newest(&layout()).unwrap(), Some(checkpoint(4)));
        let mut epochs = run.epochs().unwrap();
        epochs.sort_unstable();
        assert_eq!(epochs, [3, 4]);
        assert_eq!(fs::read_dir(folder.path().join("run")).unwrap().count(), 4);
    }

    #[test]
    fn damaged_ones_and_those_of_another_configuration_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let run = CheckpointFolder::new(folder.path(), "c0".into(), 1);
        run.write(&layout(), &checkpoint(1)).unwrap();
        run.write(&layout(), &checkpoint(2)).unwrap();
        let other = CheckpointFolder::new(folder.path(), "c1".into(), 1);
        assert_eq!(other.newest(&layout()).unwrap(), None);

        let mut bytes = fs::read(run.state(2)).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(run.state(2), &bytes).unwrap();
        assert_eq!(run.newest(&layout()).unwrap(), Some(checkpoint(1)));

        fs::remove_file(run.state(1)).unwrap();
        assert_eq!(run.newest(&layout()).unwrap(), None);
        fs::write(run.manifest(1), b"{").unwrap();
        assert_eq!(run.newest(&layout()).unwrap(), None);

        // A new run in a folder with leftovers keeps its own.
        other.write(&layout(), &checkpoint(1)).unwrap();
        assert_eq!(other.newest(&layout()).unwrap(), Some(checkpoint(1)));
    }
}
