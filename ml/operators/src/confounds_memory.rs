//! Regressors that this process has chosen already: a file that is checked, planned and run is read once.
//!
//! What is kept is small, the chosen columns and not the tables, and bounded: the oldest goes when there is no room. It
//! counts only as long as the files are those that were read.

use crate::Result;
use std::{
    collections::VecDeque,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};
use voxelflow_signal::confounds::Confounds;

/// Bytes that are kept: 24 regressors of some 300 runs of 1,000 volumes.
const MOST_BYTES: usize = 64 << 20;

/// What was chosen from the confounds of a run.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// Rows of the table.
    pub volumes: usize,
    /// The regressors, and the volumes that are kept.
    pub confounds: Confounds,
}

impl Chosen {
    /// About the bytes that it takes.
    fn bytes(&self) -> usize {
        let Confounds { columns, names, dropped, filled, .. } = &self.confounds;
        let values = columns.iter().map(|column| 8 * column.len()).sum::<usize>();
        values + 64 * (names.len() + dropped.len() + filled.len()) + 8 * self.volumes
    }
}

#[derive(Debug, Default)]
struct Memory {
    /// The newest last.
    known: VecDeque<(String, Arc<Chosen>)>,
    bytes: usize,
}

impl Memory {
    fn find(&self, key: &str) -> Option<Arc<Chosen>> {
        self.known.iter().find(|(known, _)| known == key).map(|(_, chosen)| Arc::clone(chosen))
    }

    fn keep(&mut self, key: String, chosen: Arc<Chosen>, most: usize) {
        if self.find(&key).is_some() {
            return;
        }
        self.bytes += chosen.bytes();
        self.known.push_back((key, chosen));
        while self.bytes > most {
            let Some((_, oldest)) = self.known.pop_front() else { break };
            self.bytes -= oldest.bytes();
        }
    }
}

static MEMORY: LazyLock<Mutex<Memory>> = LazyLock::new(Mutex::default);

/// What is known under `key`, which names files, their versions and the choice; else what `choose` finds, which is
/// known from then on. Without a key it is not kept.
///
/// # Errors
/// What `choose` says; that is not kept.
pub(crate) fn remembered(
    key: Option<String>,
    choose: impl FnOnce() -> Result<Chosen>,
) -> Result<Arc<Chosen>> {
    let memory = || MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = key.as_ref().and_then(|key| memory().find(key)) {
        return Ok(known);
    }
    let chosen = Arc::new(choose()?);
    if let Some(key) = key {
        memory().keep(key, Arc::clone(&chosen), MOST_BYTES);
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use voxelflow_signal::SampleMask;

    fn chosen(volumes: usize) -> Arc<Chosen> {
        let confounds = Confounds {
            names: vec!["trans_x".into()],
            columns: vec![vec![0.0; volumes]],
            sample_mask: SampleMask::all(volumes).unwrap(),
            dropped: Vec::new(),
            filled: Vec::new(),
            remarks: Vec::new(),
        };
        Arc::new(Chosen { volumes, confounds })
    }

    #[test]
    fn the_oldest_make_room_and_the_bound_holds() {
        let mut memory = Memory::default();
        let most = 3 * chosen(100).bytes();
        for run in 0..10 {
            memory.keep(run.to_string(), chosen(100), most);
            memory.keep(run.to_string(), chosen(100), most);
            assert!(memory.bytes <= most);
            assert_eq!(memory.known.len(), 3.min(run + 1));
        }
        assert!(memory.find("6").is_none() && memory.find("9").is_some());
        // One that has no room at all is not kept.
        memory.keep("large".into(), chosen(1000), most);
        assert_eq!((memory.bytes, memory.known.len()), (0, 0));
    }
}
