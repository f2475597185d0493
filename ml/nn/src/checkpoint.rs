//! Checkpoints of a training run, whole or absent.
//!
//! ```text
//!   state-0000200.safetensors   parameters, and each vector of the optimizer, under the names of the model
//!   round-0000200.json          manifest: position, configuration, seed, blake3 of the state; written last
//! ```
//! Both are written under a temporary name, flushed to disk and renamed. A manifest whose state is missing or has
//! another hash is passed over, so a crash at any moment leaves the previous checkpoint valid. Names are global, and
//! a position says what is left of an epoch block by block, so a run may go on with another number of ranks.
//! A thread of its own writes while training goes on; what it failed at is told by the next call.

use crate::parameters::{ParameterLayout, to_safetensors};
use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    thread::JoinHandle,
};
use voxelflow_stage::{Error, History, Result, TrainSettings};
use voxelflow_sync::{OptimizerState, Position};

/// Where a run stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Where the gang stands.
    pub position: Position,
    /// The flat parameter vector.
    pub parameters: Vec<f32>,
    /// The optimizer's memory.
    pub optimizer: OptimizerState,
    /// What training did so far.
    pub history: History,
}

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    position: Position,
    optimizer_steps: u64,
    optimizer_vectors: Vec<String>,
    configuration: String,
    seed: u64,
    blake3: String,
    history: History,
}

/// The checkpoints of one run.
#[derive(Debug)]
pub struct Checkpoints {
    folder: CheckpointFolder,
    running: Option<JoinHandle<Result<()>>>,
}

impl Checkpoints {
    /// Checkpoints in `folder` of the run whose configuration has the hash `configuration`; the newest `keep` stay.
    pub fn new(
        folder: &Path,
        configuration: String,
        settings: &TrainSettings,
        layout: &ParameterLayout,
    ) -> Self {
        let (layout, seed, keep) = (layout.clone(), settings.seed, settings.checkpoint_keep.max(1));
        Self {
            folder: CheckpointFolder { folder: folder.to_owned(), configuration, seed, keep, layout },
            running: None,
        }
    }

    /// Writes `checkpoint` and removes all but the newest ones, after the one before has been written.
    ///
    /// # Errors
    /// Storage that failed for the one before.
    pub fn write(&mut self, checkpoint: Checkpoint) -> Result<()> {
        self.flush()?;
        let folder = self.folder.clone();
        let writer = std::thread::Builder::new().name("checkpoint".into());
        let spawned = writer.spawn(move || folder.write(&checkpoint));
        self.running = Some(spawned.map_err(|e| failed(&self.folder.folder, &e))?);
        Ok(())
    }

    /// Returns once everything is on disk.
    ///
    /// # Errors
    /// Storage that failed.
    pub fn flush(&mut self) -> Result<()> {
        let Some(running) = self.running.take() else { return Ok(()) };
        running.join().unwrap_or_else(|_| Err(failed(&self.folder.folder, &"its writer panicked")))
    }

    /// The newest valid checkpoint of this configuration, if there is one.
    ///
    /// # Errors
    /// A folder that is there but cannot be listed; storage that failed for the last one.
    pub fn newest(&mut self) -> Result<Option<Checkpoint>> {
        self.flush()?;
        self.folder.newest()
    }

    /// What was written of the rounds before `round`.
    pub fn history(&self, round: u64) -> Option<History> {
        let mut rounds = self.folder.rounds().ok()?;
        rounds.sort_unstable();
        let manifests = rounds.into_iter().rev().filter(|r| *r <= round);
        manifests.filter_map(|r| self.folder.own_manifest(r)).map(|manifest| manifest.history).next()
    }
}

/// A training that ends early still leaves its last checkpoint whole.
impl Drop for Checkpoints {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

#[derive(Clone, Debug)]
struct CheckpointFolder {
    folder: PathBuf,
    configuration: String,
    seed: u64,
    keep: usize,
    layout: ParameterLayout,
}

impl CheckpointFolder {
    fn write(&self, checkpoint: &Checkpoint) -> Result<()> {
        fs::create_dir_all(&self.folder).map_err(|e| failed(&self.folder, &e))?;
        let mut tensors = self.layout.views("", &checkpoint.parameters)?;
        for (name, values) in &checkpoint.optimizer.vectors {
            tensors.extend(self.layout.views(&format!("{name}/"), values)?);
        }
        let state = to_safetensors(tensors, None)?;
        let manifest = Manifest {
            position: checkpoint.position.clone(),
            optimizer_steps: checkpoint.optimizer.steps,
            optimizer_vectors: checkpoint.optimizer.vectors.iter().map(|(name, _)| name.clone()).collect(),
            configuration: self.configuration.clone(),
            seed: self.seed,
            blake3: blake3::hash(&state).to_hex().to_string(),
            history: checkpoint.history.clone(),
        };
        let manifest = serde_json::to_vec_pretty(&manifest).map_err(|e| failed(&self.folder, &e))?;
        let round = checkpoint.position.round;
        write_whole(&self.state(round), &state)?;
        write_whole(&self.manifest(round), &manifest)?;
        self.prune(round)
    }

    fn newest(&self) -> Result<Option<Checkpoint>> {
        let mut rounds = self.rounds()?;
        rounds.sort_unstable();
        Ok(rounds.into_iter().rev().find_map(|round| self.read(round)))
    }

    fn own_manifest(&self, round: u64) -> Option<Manifest> {
        let manifest: Manifest = serde_json::from_slice(&fs::read(self.manifest(round)).ok()?).ok()?;
        Some(manifest).filter(|m| m.configuration == self.configuration)
    }

    fn read(&self, round: u64) -> Option<Checkpoint> {
        let manifest = self.own_manifest(round)?;
        let state = fs::read(self.state(round)).ok()?;
        if blake3::hash(&state).to_hex().as_str() != manifest.blake3 {
            return None;
        }
        let file = SafeTensors::deserialize(&state).ok()?;
        let read = |prefix: &str| self.layout.read(prefix, &file);
        let vectors = manifest.optimizer_vectors.into_iter();
        let vectors = vectors.map(|name| read(&format!("{name}/")).map(|values| (name, values)));
        Some(Checkpoint {
            position: manifest.position,
            parameters: read("").ok()?,
            optimizer: OptimizerState {
                vectors: vectors.collect::<Result<_>>().ok()?,
                steps: manifest.optimizer_steps,
            },
            history: manifest.history,
        })
    }

    fn prune(&self, newest: u64) -> Result<()> {
        let mut rounds = self.rounds()?;
        // What lies ahead of a run that was resumed belongs to another configuration.
        rounds.retain(|round| *round != newest);
        rounds.sort_unstable_by_key(|round| std::cmp::Reverse((*round < newest, *round)));
        for round in rounds.into_iter().skip(self.keep - 1) {
            for path in [self.manifest(round), self.state(round)] {
                match fs::remove_file(&path) {
                    Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(&path, &e)),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn rounds(&self) -> Result<Vec<u64>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(failed(&self.folder, &e)),
        };
        let round = |entry: std::io::Result<fs::DirEntry>| -> Option<u64> {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.strip_prefix("round-")?.strip_suffix(".json")?.parse().ok()
        };
        Ok(entries.filter_map(round).collect())
    }

    fn state(&self, round: u64) -> PathBuf {
        self.folder.join(format!("state-{round:07}.safetensors"))
    }

    fn manifest(&self, round: u64) -> PathBuf {
        self.folder.join(format!("round-{round:07}.json"))
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

    fn checkpoint(round: u64) -> Checkpoint {
        let values = |scale: f32| (0..9).map(|i| i as f32 * scale + round as f32).collect::<Vec<_>>();
        let mut position = Position { epoch: 3, round, ..Position::default() };
        position.close(&position.left(50, 2)[1].clone());
        Checkpoint {
            position,
            parameters: values(1.0),
            optimizer: OptimizerState { vectors: vec![("sum_of_squares".into(), values(0.5))], steps: round },
            history: History { initial_loss: 2.5 + round as f64, ..History::default() },
        }
    }

    fn run(folder: &Path, configuration: &str) -> Checkpoints {
        Checkpoints::new(folder, configuration.into(), &TrainSettings::default(), &layout())
    }

    #[test]
    fn the_newest_valid_one_is_read_and_two_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("run");
        let mut run = run(&folder, "c0");
        assert_eq!(run.newest().unwrap(), None);
        for round in [10, 20, 30, 40] {
            run.write(checkpoint(round)).unwrap();
        }
        assert_eq!(run.newest().unwrap(), Some(checkpoint(40)));
        let mut rounds = run.folder.rounds().unwrap();
        rounds.sort_unstable();
        assert_eq!(rounds, [30, 40]);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 4);
        assert_eq!(run.history(39).unwrap().initial_loss, 32.5);
        assert_eq!(run.history(29), None);
    }

    #[test]
    fn damaged_ones_and_those_of_another_configuration_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let mut own = run(folder.path(), "c0");
        own.write(checkpoint(1)).unwrap();
        own.write(checkpoint(2)).unwrap();
        own.flush().unwrap();
        let mut other = run(folder.path(), "c1");
        assert_eq!(other.newest().unwrap(), None);
        assert_eq!(other.history(9), None);

        let mut bytes = fs::read(own.folder.state(2)).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(own.folder.state(2), &bytes).unwrap();
        assert_eq!(own.newest().unwrap(), Some(checkpoint(1)));

        fs::remove_file(own.folder.state(1)).unwrap();
        assert_eq!(own.newest().unwrap(), None);
        fs::write(own.folder.manifest(1), b"{").unwrap();
        assert_eq!(own.newest().unwrap(), None);

        // A new run in a folder with leftovers keeps its own.
        other.write(checkpoint(1)).unwrap();
        assert_eq!(other.newest().unwrap(), Some(checkpoint(1)));
    }

    #[test]
    fn storage_that_fails_is_told_by_the_next_call() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, b"in the way").unwrap();
        let mut run = run(&file.join("run"), "c0");
        run.write(checkpoint(1)).unwrap();
        let error = run.flush().unwrap_err().to_string();
        assert!(error.contains("checkpoint") && error.contains("file"), "{error}");
        run.flush().unwrap();
    }
}
