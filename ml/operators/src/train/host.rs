//! The driver's side of a gang while it is at work: word of its members, its end, and how long its end may take.
//!
//! ```text
//!   members ── reports ──► Coordinator ──► GangHost ── signals ──► Watch (a thread) ──► progress, log
//!                                              ▲                       └► the end
//!   cancellation ──────────────────────────────┘
//! ```

use super::{job::GangOptions, rank::Event, rank_row::RankRow, run_record::RunClaim};
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
    protocol::{GangState, Outcome, RunId},
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
    /// Told once, when the gang is over: how, and what its ranks have said of their own ends.
    ended: Option<oneshot::Receiver<(Outcome, Vec<RankRow>)>>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Tells `progress` what members report, and notes in `claim` who they are.
    ///
    /// # Errors
    /// No thread for it.
    pub fn start(
        host: GangHost,
        progress: Option<Arc<dyn ProgressSink>>,
        claim: Arc<RunClaim>,
    ) -> std::io::Result<Self> {
        let (host, stopped) = (Arc::new(host), Arc::<AtomicBool>::default());
        let (listened, stop) = (Arc::clone(&host), Arc::clone(&stopped));
        let (tell, ended) = oneshot::channel();
        let thread = thread::Builder::new().name("gang watch".into()).spawn(move || {
            let mut rows = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                match listened.next_signal(SIGNAL) {
                    Some(Signal::Report { bytes, .. }) => {
                        let event = Event::read(&bytes);
                        rows.extend(event.and_then(|event| event.tell(progress.as_deref())));
                    }
                    Some(Signal::Ended(outcome)) => {
                        // Nobody listens when the tasks have all ended before.
                        let _ = tell.send((outcome, rows));
                        break;
                    }
                    // Somebody has come or gone. The line itself is in the log.
                    Some(Signal::Note(_)) => note(&claim, listened.state()),
                    // Ballista replaces and cancels what it knows of.
                    Some(Signal::Cancel { .. } | Signal::Replace { .. }) | None => {}
                }
            }
        })?;
        Ok(Self { host, ended: Some(ended), stopped, thread: Some(thread) })
    }

    /// Waits until the gang is over; gives how it ended, and the rows of ranks that have said how they did. For ever
    /// when asked again.
    pub async fn ended(&mut self) -> (Outcome, Vec<RankRow>) {
        if let Some(ended) = &mut self.ended {
            let end = ended.await;
            self.ended = None;
            if let Ok(end) = end {
                return end;
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

/// A training is not stopped because nobody can read who its ranks are.
fn note(claim: &RunClaim, gang: GangState) {
    if let Err(e) = claim.note(|record| record.gang = Some(gang)) {
        log::warn!("who the ranks are cannot be noted: {e}");
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
