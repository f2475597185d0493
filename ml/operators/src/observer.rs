//! What a session wants to hear of, and say to, the trainings that it runs.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};
use voxelflow_stage::ProgressSink;

/// Hears of progress and can cancel. A session carries it as an extension of its configuration:
/// `SessionConfig::with_extension(Arc::new(TrainObserver::new(sink)))`.
#[derive(Default)]
pub struct TrainObserver {
    progress: Option<Arc<dyn ProgressSink>>,
    /// Flags of the trainings that run.
    running: Mutex<Vec<Weak<AtomicBool>>>,
}

impl TrainObserver {
    /// An observer that tells `progress`.
    pub fn new(progress: Arc<dyn ProgressSink>) -> Self {
        Self { progress: Some(progress), running: Mutex::default() }
    }

    /// Stops every training that runs now, at its next step.
    pub fn cancel(&self) {
        for flag in self.running().drain(..).filter_map(|flag| flag.upgrade()) {
            flag.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn progress(&self) -> Option<Arc<dyn ProgressSink>> {
        self.progress.clone()
    }

    /// A flag for a training that starts; forgotten when the training drops it.
    pub(crate) fn register(&self, flag: &Arc<AtomicBool>) {
        let mut running = self.running();
        running.retain(|flag| flag.strong_count() > 0);
        running.push(Arc::downgrade(flag));
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Vec<Weak<AtomicBool>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TrainObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrainObserver").field("running", &self.running().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelling_reaches_what_runs_and_nothing_later() {
        let observer = TrainObserver::default();
        let flags = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
        observer.register(&flags[0]);
        observer.register(&flags[1]);
        observer.cancel();
        observer.register(&flags[2]);
        assert_eq!(flags.map(|f| f.load(Ordering::Relaxed)), [true, true, false]);
    }
}
