//! Starting a gang, and entering it.
//!
//! ```text
//!   driver   GangHost::start(spec, transport) ─► invitation() ─sealed in a plan─┐   state, signals, cancel, finish
//!   member   enter(&invitation, seat) ─► Membership (GradientSync)     ◄────────┤
//!   holder   serve(&invitation, seat) … returns when it is released    ◄────────┘
//! ```

use super::{
    desk::{Desk, Signal},
    rules::GangSpec,
};
use crate::{
    Error, InProcessCommunicator, Result, SyncSettings, Topology, in_process_communicators,
    network::{ControlServer, Security},
    protocol::{Event as CoordinatorEvent, FirstCause, GangState, MemberId, Outcome, Role, Rules, RunId},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

/// What carries the messages of a gang.
#[derive(Clone, Debug)]
pub enum Transport {
    /// All members live in this process.
    InProcess,
    /// Each member may have a process of its own.
    Tcp {
        /// Where the coordinator listens.
        bind: IpAddr,
        /// Where members reach it.
        advertise: IpAddr,
        /// How they trust each other.
        security: Security,
    },
}

/// All that a process needs to enter a gang. It carries credentials: seal it before it leaves the process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Invitation {
    pub(super) settings: SyncSettings,
    pub(super) rules: Rules,
    pub(super) build: String,
    pub(super) at: At,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum At {
    ThisProcess,
    Tcp { address: SocketAddr, security: Security },
}

impl Invitation {
    /// The run.
    pub fn run(&self) -> RunId {
        self.rules.run
    }

    /// Ranks and dedicated holders of shards.
    pub fn members(&self) -> usize {
        (self.rules.ranks + self.rules.dedicated) as usize
    }

    /// Whether a member trains, or only holds shards.
    pub fn role(&self, member: usize) -> Option<Role> {
        self.rules.role(MemberId(u32::try_from(member).ok()?))
    }
}

/// Gangs of this process, for members that enter by an invitation.
static HERE: Mutex<BTreeMap<RunId, Weak<Hall>>> = Mutex::new(BTreeMap::new());

/// What members of a gang in one process share.
pub(super) struct Hall {
    pub desk: Arc<Desk>,
    /// Of a ring, by rank, until they are taken.
    pub communicators: Mutex<Vec<Option<InProcessCommunicator>>>,
}

/// A gang, where its driver is. Dropped, it is cancelled.
pub struct GangHost {
    desk: Arc<Desk>,
    hall: Option<Arc<Hall>>,
    server: Option<ControlServer>,
    invitation: Invitation,
}

impl fmt::Debug for GangHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GangHost({}, {:?})", self.invitation.run(), self.server)
    }
}

impl GangHost {
    /// Waits for the members of a gang.
    ///
    /// # Errors
    /// [`Error::Setting`] for what cannot work, [`Error::Connection`] when the address cannot be bound.
    pub fn start(spec: GangSpec, transport: Transport) -> Result<Self> {
        validate(&spec)?;
        let in_process = matches!(transport, Transport::InProcess);
        let mut rules = spec.rules(!in_process);
        if spec.settings.topology == Topology::Ring {
            rules.shards = 0;
        }
        let desk = Desk::new(rules.clone());
        let (mut hall, mut server) = (None, None);
        let at = match transport {
            Transport::InProcess => {
                hall = Some(open_hall(&desk, &rules, &spec.settings)?);
                At::ThisProcess
            }
            Transport::Tcp { bind, advertise, security } => {
                let of = (rules.run.0, spec.build.as_str());
                let started = ControlServer::start(bind, &security, of, Arc::clone(&desk) as _)?;
                let address = SocketAddr::new(advertise, started.address().port());
                server = Some(started);
                At::Tcp { address, security }
            }
        };
        let invitation = Invitation { settings: spec.settings, rules, build: spec.build, at };
        Ok(Self { desk, hall, server, invitation })
    }

    /// What members enter with.
    pub fn invitation(&self) -> Invitation {
        self.invitation.clone()
    }

    /// Who is in, which round is open, who is waited for.
    pub fn state(&self) -> GangState {
        self.desk.state()
    }

    /// What the driver shall know or do, for which it waits as long as `time`.
    pub fn next_signal(&self, time: Duration) -> Option<Signal> {
        self.desk.next_signal(time)
    }

    /// The launcher says that the tasks of these members are gone.
    pub fn tasks_lost(&self, members: Vec<MemberId>) {
        self.desk.handle(CoordinatorEvent::TasksLost(members));
    }

    /// This member (none: all) shall go at the next boundary of a round.
    pub fn drain(&self, member: Option<MemberId>) {
        self.desk.handle(CoordinatorEvent::Drain(member));
    }

    /// Ends the gang now.
    pub fn cancel(&self) {
        self.desk.handle(CoordinatorEvent::Cancel);
    }

    /// How it ended, once it has; waits as long as `time`.
    pub fn outcome(&self, time: Duration) -> Option<Outcome> {
        self.desk.outcome(time)
    }

    /// Waits for the end, which must come within `time` after all tasks have ended: cancels what has not ended by then.
    pub fn finish(self, time: Duration) -> Outcome {
        if let Some(outcome) = self.desk.outcome(time) {
            return outcome;
        }
        let state = self.desk.state();
        let waiting = state.waiting.unwrap_or_else(|| "the end".into());
        let reason = format!("the gang did not end within {} s: it waits for {waiting}", time.as_secs_f64());
        Outcome::Failed(FirstCause { member: None, reason, log_tail: Vec::new() })
    }
}

impl Drop for GangHost {
    fn drop(&mut self) {
        self.desk.handle(CoordinatorEvent::Cancel);
        if self.hall.is_some() {
            HERE.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.invitation.run());
        }
        if self.server.is_some() {
            // Members hear of the end by the connection that the server's end would cut.
            self.desk.wait_gone(FAREWELL);
        }
    }
}

/// Time in which members take the last message.
const FAREWELL: Duration = Duration::from_secs(3);

/// The gang of this process with that run.
pub(super) fn hall(run: RunId) -> Result<Arc<Hall>> {
    let hall = HERE.lock().unwrap_or_else(PoisonError::into_inner).get(&run).and_then(Weak::upgrade);
    hall.ok_or_else(|| Error::Connection {
        peer: format!("the coordinator of {run}"),
        what: "entering",
        reason: "it is not in this process, or has ended".into(),
    })
}

fn validate(spec: &GangSpec) -> Result<()> {
    spec.settings.validate(spec.ranks)?;
    let refuse = |name, reason| Err(Error::Setting { name, reason });
    let GangSpec { ranks, min_ranks, dedicated_shards, .. } = *spec;
    if min_ranks == 0 || min_ranks > ranks {
        return refuse("min_ranks", format!("must be 1 to ranks = {ranks}, got {min_ranks}"));
    }
    if spec.settings.topology == Topology::Ring {
        if min_ranks < ranks {
            return refuse("min_ranks", "a ring needs all its ranks; leave it out".into());
        }
        if dedicated_shards > 0 {
            return refuse("parameter_servers", "a ring has none; leave it out".into());
        }
    }
    Ok(())
}

fn open_hall(desk: &Arc<Desk>, rules: &Rules, settings: &SyncSettings) -> Result<Arc<Hall>> {
    let communicators = if settings.topology == Topology::Ring {
        let deadline = Duration::from_secs_f64(settings.deadline_seconds);
        in_process_communicators(rules.ranks as usize, deadline).into_iter().map(Some).collect()
    } else {
        Vec::new()
    };
    let hall = Arc::new(Hall { desk: Arc::clone(desk), communicators: Mutex::new(communicators) });
    let mut here = HERE.lock().unwrap_or_else(PoisonError::into_inner);
    here.retain(|_, hall| hall.strong_count() > 0);
    if here.insert(rules.run, Arc::downgrade(&hall)).is_some() {
        return Err(Error::Setting { name: "run", reason: format!("{} is already trained here", rules.run) });
    }
    Ok(hall)
}
