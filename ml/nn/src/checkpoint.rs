//! Checkpoints of a training run, whole or absent.
//!
//! ```text
//!   state-0000200-1f0c….safetensors   parameters, and each vector of the optimizer, under the names of the model
//!   round-0000200.json                manifest: position, configuration, seed, blake3 of the state; written last
//! ```
//! Both are written under a temporary name of their own, flushed to disk and renamed. A manifest whose state is missing
//! or has another hash is passed over, so a crash at any moment leaves the previous checkpoint valid. Names are global,
//! and a position says what is left of an epoch block by block, so a run may go on with another number of ranks.
//! A thread of its own writes while training goes on; what it failed at is told by the next call.
//!
//! A leader that hung while it wrote may go on when another one leads and has written later checkpoints. So no two
//! writers share a name (a state's has part of its hash), and one that is late removes nothing that is valid.

use crate::parameters::{ParameterLayout, to_safetensors};
use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    thread::JoinHandle,
};
use tempfile::NamedTempFile;
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
        let text = serde_json::to_vec_pretty(&manifest).map_err(|e| failed(&self.folder, &e))?;
        let round = checkpoint.position.round;
        write_whole(&self.state(round, &manifest.blake3), &state)?;
        write_whole(&self.manifest(round), &text)?;
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
        let state = fs::read(self.state(round, &manifest.blake3)).ok()?;
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

    /// Leaves the newest valid ones up to what was just written at `written`, and those that another leader wrote
    /// after it.
    fn prune(&self, written: u64) -> Result<()> {
        let mut rounds = self.rounds()?;
        rounds.sort_unstable_by_key(|round| std::cmp::Reverse(*round));
        // What lies ahead and is not valid belongs to another configuration, or was damaged when this run resumed.
        let (ahead, behind): (Vec<u64>, Vec<u64>) = rounds.into_iter().partition(|round| *round > written);
        let gone = ahead.into_iter().filter(|round| self.read(*round).is_none());
        let gone: Vec<u64> = gone.chain(behind.into_iter().skip(self.keep)).collect();
        for round in &gone {
            remove(&self.manifest(*round))?;
        }
        for name in self.names()? {
            let round = name.strip_prefix("state-").and_then(|rest| rest.split('-').next()?.parse().ok());
            if round.is_some_and(|round| gone.contains(&round)) {
                remove(&self.folder.join(name))?;
            }
        }
        Ok(())
    }

    fn rounds(&self) -> Result<Vec<u64>> {
        let round = |name: String| name.strip_prefix("round-")?.strip_suffix(".json")?.parse().ok();
        Ok(self.names()?.into_iter().filter_map(round).collect())
    }

    /// Names of the files in the folder.
    fn names(&self) -> Result<Vec<String>> {
        match fs::read_dir(&self.folder) {
            Ok(entries) => Ok(entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(failed(&self.folder, &e)),
        }
    }

    fn state(&self, round: u64, hash: &str) -> PathBuf {
        self.folder.join(format!("state-{round:07}-{}.safetensors", hash.get(..16).unwrap_or(hash)))
    }

    fn manifest(&self, round: u64) -> PathBuf {
        self.folder.join(format!("round-{round:07}.json"))
    }
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(failed(path, &e)),
        _ => Ok(()),
    }
}

/// Writes a file under a temporary name, flushes it to disk and renames it.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut file = NamedTempFile::with_prefix_in(".partial-", folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        File::open(folder)?.sync_all()
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

    fn state(run: &Checkpoints, round: u64) -> PathBuf {
        run.folder.state(round, &run.folder.own_manifest(round).unwrap().blake3)
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

        let mut bytes = fs::read(state(&own, 2)).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(state(&own, 2), &bytes).unwrap();
        assert_eq!(own.newest().unwrap(), Some(checkpoint(1)));

        fs::remove_file(state(&own, 1)).unwrap();
        assert_eq!(own.newest().unwrap(), None);
        fs::write(own.folder.manifest(1), b"{").unwrap();
        assert_eq!(own.newest().unwrap(), None);

        // A new run in a folder with leftovers keeps its own.
        other.write(checkpoint(1)).unwrap();
        assert_eq!(other.newest().unwrap(), Some(checkpoint(1)));
    }

    #[test]
    fn a_leader_that_hung_removes_nothing_of_the_one_that_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (mut hung, mut next) = (run(folder.path(), "c0"), run(folder.path(), "c0"));
        for round in [10, 20] {
            hung.write(checkpoint(round)).unwrap();
        }
        hung.flush().unwrap();
        for round in [30, 40] {
            next.write(checkpoint(round)).unwrap();
        }
        next.flush().unwrap();
        // Late, with other values than those that the next leader took up.
        hung.write(Checkpoint { parameters: vec![0.5; 9], ..checkpoint(30) }).unwrap();
        hung.write(checkpoint(20)).unwrap();
        assert_eq!(hung.newest().unwrap(), Some(checkpoint(40)));
        next.write(checkpoint(50)).unwrap();
        assert_eq!(next.newest().unwrap(), Some(checkpoint(50)));
        let mut rounds = next.folder.rounds().unwrap();
        rounds.sort_unstable();
        assert_eq!(rounds, [40, 50]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    }

    #[test]
    fn two_leaders_may_write_the_same_round_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let writers: Vec<_> = (0..4)
            .map(|n| {
                let mut run = run(folder.path(), "c0");
                std::thread::spawn(move || {
                    for round in 1..30 {
                        run.write(Checkpoint { parameters: vec![n as f32; 9], ..checkpoint(round) }).unwrap();
                    }
                    run.flush()
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap().unwrap();
        }
        assert_eq!(run(folder.path(), "c0").newest().unwrap().unwrap().position.round, 29);
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
