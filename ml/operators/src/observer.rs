//! What a session wants to hear of, and say to, the trainings that it runs.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
};
use tokio::sync::watch;
use voxelflow_stage::ProgressSink;

/// Hears of progress and can cancel. A session carries it as an extension of its configuration:
/// `SessionConfig::with_extension(Arc::new(TrainObserver::new(sink)))`.
#[derive(Default)]
pub struct TrainObserver {
    progress: Option<Arc<dyn ProgressSink>>,
    /// The trainings that run.
    running: Mutex<Vec<Weak<Cancellation>>>,
}

impl TrainObserver {
    /// An observer that tells `progress`.
    pub fn new(progress: Arc<dyn ProgressSink>) -> Self {
        Self { progress: Some(progress), running: Mutex::default() }
    }

    /// Stops every training that runs now, at its next step.
    pub fn cancel(&self) {
        for training in self.running().drain(..).filter_map(|training| training.upgrade()) {
            training.cancel();
        }
    }

    pub(crate) fn progress(&self) -> Option<Arc<dyn ProgressSink>> {
        self.progress.clone()
    }

    /// A training that starts; forgotten when it is dropped.
    pub(crate) fn register(&self, training: &Arc<Cancellation>) {
        let mut running = self.running();
        running.retain(|training| training.strong_count() > 0);
        running.push(Arc::downgrade(training));
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Cancellation>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TrainObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrainObserver").field("running", &self.running().len()).finish_non_exhaustive()
    }
}

/// Whether a training is to end before it is done.
#[derive(Debug, Default)]
pub(crate) struct Cancellation(watch::Sender<bool>);

impl Cancellation {
    /// It is to end.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }

    /// Whether it is to end.
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns when it is to end.
    pub async fn cancelled(&self) {
        // The sender lives as long as this.
        let _ = self.0.subscribe().wait_for(|cancelled| *cancelled).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn cancelling_reaches_what_runs_and_nothing_later() {
        let observer = TrainObserver::default();
        let trainings = [(); 3].map(|()| Arc::new(Cancellation::default()));
        observer.register(&trainings[0]);
        observer.register(&trainings[1]);
        observer.cancel();
        observer.register(&trainings[2]);
        assert_eq!(trainings.each_ref().map(|t| t.is_cancelled()), [true, true, false]);
        trainings[0].cancelled().await;
    }
}
