//! Runs the ranks of a gang on threads of this process, to the first error or the fitted model.

use super::spool::Spool;
use crate::{Error, Result, train::TrainJob};
use std::{
    any::Any,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};
use voxelflow_stage::{Fitted, Gang, ProgressSink, SeriesFeed};
use voxelflow_sync::in_process_gang;

/// What the ranks read, and whom they tell.
pub(super) struct GangRun<'a> {
    pub job: &'a TrainJob,
    pub train: &'a Arc<Spool>,
    pub validation: Option<&'a Arc<Spool>>,
    pub progress: Option<Arc<dyn ProgressSink>>,
    pub checkpoints: Option<&'a Path>,
    pub cancelled: &'a Arc<AtomicBool>,
}

impl GangRun<'_> {
    /// Trains; gives what rank 0 fitted, which is what all of them did.
    ///
    /// # Errors
    /// The first error of any rank that is not merely the consequence of another one's.
    pub fn fit(&self) -> Result<Fitted> {
        let settings = &self.job.settings;
        let gangs = in_process_gang(&settings.sync, settings.ranks).map_err(voxelflow_stage::Error::from)?;
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            for (rank, sync) in gangs.into_iter().enumerate() {
                let gang = Gang {
                    sync,
                    settings: settings.clone(),
                    progress: self.progress.clone().filter(|_| rank == 0),
                    checkpoints: self.checkpoints.map(Path::to_owned),
                    cancelled: Arc::clone(self.cancelled),
                };
                let tell = tell.clone();
                let name = format!("{} rank {rank}", self.job.model);
                let spawned =
                    thread::Builder::new().name(name).stack_size(STACK).spawn_scoped(scope, move || {
                        // The receiver outlives the scope.
                        let _ = tell.send((rank, self.fit_rank(rank, gang)));
                    });
                if let Err(e) = spawned {
                    self.cancelled.store(true, Ordering::Relaxed);
                    let reason = format!("no thread for it: {e}; lower ranks");
                    return Err(Error::Panicked { rank, stage: self.job.estimator.stage(), message: reason });
                }
            }
            drop(tell);
            self.collect(&told)
        })
    }

    /// Takes the ranks' results as they come; the first error stops the others.
    fn collect(&self, told: &mpsc::Receiver<(usize, Result<Fitted>)>) -> Result<Fitted> {
        let mut of_rank_0 = None;
        let mut first: Option<Error> = None;
        for (rank, result) in told {
            match result {
                Ok(fitted) if rank == 0 => of_rank_0 = Some(fitted),
                Ok(_) => {}
                Err(error) => {
                    self.cancelled.store(true, Ordering::Relaxed);
                    if first.as_ref().is_none_or(|known| weight(&error) > weight(known)) {
                        first = Some(error);
                    }
                }
            }
        }
        match (first, of_rank_0) {
            (Some(error), _) => Err(error),
            (None, Some(fitted)) => Ok(fitted),
            (None, None) => Err(Error::Panicked {
                rank: 0,
                stage: self.job.estimator.stage(),
                message: "it ended without a result".into(),
            }),
        }
    }

    fn fit_rank(&self, rank: usize, gang: Gang) -> Result<Fitted> {
        let estimator = &self.job.estimator;
        let stage = estimator.stage();
        // The gang is dropped on the way out, panic or not, so that the other ranks learn of it at once.
        let caught = catch_unwind(AssertUnwindSafe(move || {
            let mut gang = gang;
            let mut feed = self.train.feed();
            let mut validation = self.validation.map(Spool::feed);
            let validation = validation.as_mut().map(|feed| feed as &mut dyn SeriesFeed);
            estimator.fit(&mut feed, validation, &mut gang)
        }));
        match caught {
            Ok(result) => result.map_err(|source| Error::Rank { rank, stage, source }),
            Err(panic) => Err(Error::Panicked { rank, stage, message: message_of(&*panic) }),
        }
    }
}

/// Training code of some layers recurses; the threads' default of 2 MiB would be little.
const STACK: usize = 16 << 20;

/// How much an error tells of the cause: a rank that another one left tells least.
fn weight(error: &Error) -> u8 {
    match error {
        Error::Rank { source: voxelflow_stage::Error::Sync(e), .. } if e.is_consequence() => 0,
        Error::Rank { source: voxelflow_stage::Error::Cancelled, .. } => 1,
        _ => 2,
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into())
}

/// Removes checkpoints that are of no more use; what cannot be removed does no harm.
pub(super) fn forget_checkpoints(folder: &Path) {
    let _ = fs::remove_dir_all(folder);
}
