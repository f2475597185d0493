//! The driver's side of a gang while it is at work: word of its members, its end, and how long its end may take.
//!
//! ```text
//!   members ── reports ──► Coordinator ──► GangHost ── signals ──► Watch (a thread) ──► progress, log
//!                                              ▲                       └► the end
//!   cancellation ──────────────────────────────┘
//! ```

use super::{job::GangOptions, rank::Event, rank_row::RankRow};
use crate::Result;
use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::sync::oneshot;
use voxelflow_stage::{ProgressSink, TrainSettings};
use voxelflow_sync::{
    GangHost, GangSpec, Signal, Topology, Transport,
    network::Security,
    protocol::{Outcome, RunId},
};

/// How long the watch sleeps when nothing is said: bounds how late it notices that it is dropped.
const SIGNAL: Duration = Duration::from_millis(200);
/// How long a gang may take to end when the tasks of its members have ended.
const END: Duration = Duration::from_secs(5);

/// Where a gang's members are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Threads of this process.
    Here,
    /// Processes that reach the driver at this address.
    Elsewhere(IpAddr),
}

/// A gang to be started.
#[derive(Clone, Debug)]
pub(super) struct GangPlan<'a> {
    /// The run.
    pub run: RunId,
    /// Settings of the loop and of the gang.
    pub settings: &'a TrainSettings,
    /// What it needs where it runs.
    pub options: &'a GangOptions,
    /// Where its members are.
    pub place: Place,
    /// The program, the same in all members.
    pub build: &'a str,
}

impl GangPlan<'_> {
    /// Members that only hold shards. Within a process shards need none.
    pub fn dedicated_shards(&self) -> usize {
        let sync = &self.settings.sync;
        match (self.place, sync.topology) {
            (Place::Elsewhere(_), Topology::ParameterService) => sync.parameter_servers,
            _ => 0,
        }
    }

    /// Starts the gang's host.
    ///
    /// # Errors
    /// Settings that cannot work, an address that cannot be listened on.
    pub fn start(&self) -> Result<GangHost> {
        let TrainSettings { ranks, sync, .. } = self.settings;
        // Nobody of one process is lost alone, and a ring is nothing without each of its ranks.
        let fixed = self.place == Place::Here || sync.topology == Topology::Ring;
        let spec = GangSpec {
            min_ranks: if fixed { *ranks } else { self.options.min_ranks.unwrap_or(1) },
            dedicated_shards: self.dedicated_shards(),
            max_rank_restarts: if fixed { 0 } else { self.options.max_rank_restarts },
            build: self.build.to_owned(),
            ..GangSpec::fixed(self.run, sync.clone(), *ranks)
        };
        let transport = match self.place {
            Place::Here => Transport::InProcess,
            Place::Elsewhere(address) => {
                let security = Security::tls().map_err(voxelflow_stage::Error::from)?;
                Transport::Tcp { bind: address, advertise: address, security }
            }
        };
        Ok(GangHost::start(spec, transport).map_err(voxelflow_stage::Error::from)?)
    }
}

/// Listens to a gang until it is over or this is dropped.
pub(super) struct Watch {
    host: Arc<GangHost>,
    /// Told once, when all ranks have finished: their rows.
    finished: Option<oneshot::Receiver<Vec<RankRow>>>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Tells `progress` what members report.
    ///
    /// # Errors
    /// No thread for it.
    pub fn start(host: GangHost, progress: Option<Arc<dyn ProgressSink>>) -> std::io::Result<Self> {
        let (host, stopped) = (Arc::new(host), Arc::<AtomicBool>::default());
        let (listened, stop) = (Arc::clone(&host), Arc::clone(&stopped));
        let (tell, finished) = oneshot::channel();
        let thread = thread::Builder::new().name("gang watch".into()).spawn(move || {
            let mut done = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                match listened.next_signal(SIGNAL) {
                    Some(Signal::Report { bytes, .. }) => {
                        let event = Event::read(&bytes);
                        done.extend(event.and_then(|event| event.tell(progress.as_deref())));
                    }
                    Some(Signal::Ended(Outcome::Finished)) => {
                        // Nobody listens when the tasks have all ended before.
                        let _ = tell.send(done);
                        break;
                    }
                    Some(Signal::Ended(_)) => break,
                    // Ballista replaces and cancels what it knows of; notes are in the log.
                    Some(Signal::Note(_) | Signal::Cancel { .. } | Signal::Replace { .. }) | None => {}
                }
            }
        })?;
        Ok(Self { host, finished: Some(finished), stopped, thread: Some(thread) })
    }

    /// Waits until all ranks have finished, and gives their rows; for ever where the gang ends otherwise, or when
    /// asked again.
    pub async fn finished(&mut self) -> Vec<RankRow> {
        if let Some(finished) = &mut self.finished {
            let rows = finished.await;
            self.finished = None;
            if let Ok(rows) = rows {
                return rows;
            }
        }
        std::future::pending().await
    }

    /// The gang.
    pub fn host(&self) -> Arc<GangHost> {
        Arc::clone(&self.host)
    }

    /// How the gang ended, when the tasks of its members have.
    pub fn outcome(&self) -> Option<Outcome> {
        self.host.outcome(END)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.host.cancel();
        self.stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has panicked in a progress sink, or ends at once.
            let _ = thread.join();
        }
    }
}
