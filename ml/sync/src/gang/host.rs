//! Starting a gang, and entering it.
//!
//! ```text
//!   driver   GangHost::start(spec, transport) ─► invitation() ─sealed in a plan─┐   state, signals, cancel, finish
//!   member   enter(&invitation, seat) ─► Membership (GradientSync)     ◄────────┤
//!   holder   serve(&invitation, seat) … returns when it is released    ◄────────┘
//! ```

use super::{
    desk::{Desk, Signal},
    member_here,
    membership::ServiceRank,
    node::{Event, Node},
    node_of,
    remote::{RemoteLinks, Shared},
    ring_rank::{Meet, RingRank},
    rules::GangSpec,
};
use crate::{
    Communicator, Contribution, Error, GradientSync, InProcessCommunicator, Lease, OptimizerState, Place,
    Position, Rank, Result, Round, Start, SyncSettings, Topology, Totals, Traffic, in_process_communicators,
    network::{Bound, ControlClient, ControlEvent, ControlServer, Mesh, Passport, Security, frame::Codec},
    protocol::{
        Event as CoordinatorEvent, Failure, FirstCause, GangState, Incarnation, MemberId, Outcome, Reason,
        Role, Rules, RunId, Stop, ToCoordinator, ToMember, View,
    },
    with_local_steps,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
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
    settings: SyncSettings,
    rules: Rules,
    build: String,
    at: At,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum At {
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

/// A member's place in its gang.
#[derive(Clone, Debug)]
pub struct Seat {
    /// Row of the gang: ranks first, then dedicated holders of shards.
    pub member: usize,
    /// Attempt of the launcher: a greater one replaces a smaller one.
    pub attempt: u32,
    /// The program, as in [`GangSpec::build`].
    pub build: String,
    /// Where this member listens; none: where its way to the coordinator begins.
    pub bind: Option<IpAddr>,
}

impl Seat {
    /// The first attempt of `member`.
    pub fn first(member: usize, build: &str) -> Self {
        Self { member, attempt: 0, build: build.to_owned(), bind: None }
    }
}

/// Gangs of this process, for members that enter by an invitation.
static HERE: Mutex<BTreeMap<RunId, Weak<Hall>>> = Mutex::new(BTreeMap::new());

/// What members of a gang in one process share.
struct Hall {
    desk: Arc<Desk>,
    /// Of a ring, by rank, until they are taken.
    communicators: Mutex<Vec<Option<InProcessCommunicator>>>,
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

/// A rank's place in a gang. Dropped, the rank has finished; it still serves its shards until all have.
pub struct Membership {
    node: Arc<Node>,
    sync: Box<dyn GradientSync>,
}

#[cfg(test)]
impl Membership {
    /// Cuts all connections, as the end of its host would.
    pub fn severer(&self) -> impl Fn() + use<> {
        let node = Arc::clone(&self.node);
        move || node.sever()
    }
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Membership({})", self.node.me)
    }
}

impl Membership {
    /// What outlives the trainer's part: words to the driver, and the end.
    pub fn line(&self) -> Line {
        Line { node: Arc::clone(&self.node) }
    }

    /// This rank's work is done. Waits until the gang needs it no more, as long as `time`: until then its shards
    /// are served. False: it is still needed.
    pub fn finish(self, time: Duration) -> bool {
        let line = self.line();
        drop(self);
        line.wait_released(time)
    }
}

/// A member's line to its driver.
#[derive(Clone, Debug)]
pub struct Line {
    node: Arc<Node>,
}

impl Line {
    /// Says something to the driver ([`Signal::Report`]); without a connection it is lost.
    pub fn report(&self, bytes: Vec<u8>) {
        self.node.tell(ToCoordinator::Report(bytes));
    }

    /// The rank has failed for a reason of its own; `permanent`: another attempt would fail in the same way. Comes
    /// before the [`Membership`] is dropped, which else means that the work is done.
    pub fn fail(&self, reason: String, permanent: bool, log_tail: Vec<String>) {
        self.node.post(Event::Fail(Failure { reason, permanent, log_tail }));
    }

    /// Waits until the gang needs the member no more, as long as `time`. False: it is still needed.
    pub fn wait_released(&self, time: Duration) -> bool {
        self.node.wait_released(time)
    }
}

impl GradientSync for Membership {
    fn rank(&self) -> Rank {
        self.sync.rank()
    }
    fn world(&self) -> usize {
        self.sync.world()
    }
    fn place(&self) -> Place {
        self.sync.place()
    }
    fn join(&mut self, parameters: &mut [f32], start: Start) -> Result<Position> {
        self.sync.join(parameters, start)
    }
    fn lease(&mut self, at_most: usize) -> Result<Option<Lease>> {
        self.sync.lease(at_most)
    }
    fn step(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        self.sync.step(parameters, contribution)
    }
    fn step_alone(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        self.sync.step_alone(parameters, contribution)
    }
    fn synchronise(&mut self, parameters: &mut [f32]) -> Result<Totals> {
        self.sync.synchronise(parameters)
    }
    fn position(&self) -> Position {
        self.sync.position()
    }
    fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        self.sync.sum(values)
    }
    fn optimizer_state(&mut self) -> Result<OptimizerState> {
        self.sync.optimizer_state()
    }
    fn traffic(&self) -> Traffic {
        self.sync.traffic()
    }
}

/// Enters a gang as a rank.
///
/// # Errors
/// [`Error::Setting`] for a member that is no rank, [`Error::Connection`] when no connection can be made,
/// [`Error::Credentials`] for odd certificates. A coordinator that is not there is waited for by the first call.
pub fn enter(invitation: &Invitation, seat: &Seat) -> Result<Membership> {
    let member = member(invitation, seat, Role::Rank)?;
    let world = invitation.rules.ranks as usize;
    let settings = invitation.settings.clone();
    let (node, meet) = match &invitation.at {
        At::ThisProcess => take_place(invitation, seat, member)?,
        At::Tcp { address, security } => connect(invitation, seat, member, *address, security)?,
    };
    let sync: Box<dyn GradientSync> = match meet {
        Some(meet) => Box::new(RingRank::new(Arc::clone(&node), settings, world, meet)),
        None => Box::new(ServiceRank::new(Arc::clone(&node), &settings, world)),
    };
    let sync = with_local_steps(sync, &invitation.settings);
    Ok(Membership { node, sync })
}

/// Enters a gang as a dedicated holder of shards, and serves until it is released; `cancelled` is asked now and then.
///
/// # Errors
/// As [`enter`]; [`Error::Cancelled`].
pub fn serve(invitation: &Invitation, seat: &Seat, cancelled: impl Fn() -> bool) -> Result<()> {
    let member = member(invitation, seat, Role::Shards)?;
    let (node, _) = match &invitation.at {
        At::ThisProcess => take_place(invitation, seat, member)?,
        At::Tcp { address, security } => connect(invitation, seat, member, *address, security)?,
    };
    while !node.wait_released(Duration::from_millis(200)) {
        if cancelled() {
            let failure =
                Failure { reason: "its task was cancelled".into(), permanent: false, log_tail: Vec::new() };
            node.post(Event::Fail(failure));
            node.post(Event::Told(ToMember::Stop(Stop::Cancelled)));
            return Err(Error::Cancelled);
        }
    }
    Ok(())
}

fn member(invitation: &Invitation, seat: &Seat, role: Role) -> Result<MemberId> {
    let member = u32::try_from(seat.member).map(MemberId).ok();
    let refuse = |reason| Err(Error::Setting { name: "member", reason });
    if seat.build != invitation.build {
        let (ours, theirs) = (&seat.build, &invitation.build);
        return refuse(format!(
            "this process runs build {ours}, the driver build {theirs}; start the same program"
        ));
    }
    match member.filter(|member| invitation.rules.role(*member) == Some(role)) {
        Some(member) => Ok(member),
        None => refuse(format!("{} is not one of the gang's {role:?}", seat.member)),
    }
}

fn incarnation(seat: &Seat) -> Result<Incarnation> {
    let nonce = u32::from_le_bytes(crate::network::random()?);
    Ok(Incarnation::of_attempt(seat.attempt, nonce))
}

fn take_place(invitation: &Invitation, seat: &Seat, member: MemberId) -> Result<(Arc<Node>, Option<Meet>)> {
    let run = invitation.run();
    let hall = HERE.lock().unwrap_or_else(PoisonError::into_inner).get(&run).and_then(Weak::upgrade);
    let hall = hall.ok_or_else(|| Error::Connection {
        peer: format!("the coordinator of {run}"),
        what: "entering",
        reason: "it is not in this process, or has ended".into(),
    })?;
    let node = member_here(&hall.desk, &invitation.rules, &invitation.settings, member, incarnation(seat)?)?;
    let mut communicators = hall.communicators.lock().unwrap_or_else(PoisonError::into_inner);
    let meet = communicators.get_mut(member.index()).map(|communicator| {
        let communicator = communicator.take();
        let meet: Meet = Box::new(move |_| match communicator {
            Some(communicator) => Ok(Box::new(communicator) as Box<dyn Communicator>),
            None => Err(Error::Message {
                rank: member.rank(),
                what: "join",
                reason: "a rank of a ring cannot come back".into(),
            }),
        });
        meet
    });
    Ok((node, meet))
}

/// The address at which the way to `coordinator` begins: others of the same network reach this host there.
fn own_address(coordinator: SocketAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr = match coordinator {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Connecting a datagram socket sends nothing.
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(coordinator)?;
    Ok(socket.local_addr()?.ip())
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "unknown".into() } else { name.trim().to_owned() }
}

fn connect(
    invitation: &Invitation,
    seat: &Seat,
    member: MemberId,
    coordinator: SocketAddr,
    security: &Security,
) -> Result<(Arc<Node>, Option<Meet>)> {
    let Invitation { settings, rules, build, .. } = invitation;
    let failed = |reason: String| Error::Connection {
        peer: format!("the coordinator at {coordinator}"),
        what: "entering",
        reason,
    };
    let ip = match seat.bind {
        Some(ip) => ip,
        None => own_address(coordinator).map_err(|e| failed(e.to_string()))?,
    };
    let gradients = match settings.codec(true) {
        crate::Codec::F32 => Codec::Plain,
        crate::Codec::Bf16 => Codec::Bf16,
    };
    let shared = Shared::new(member, gradients, Duration::from_millis(rules.reconnect_ms));
    let (mesh, bound, address) = if settings.topology == Topology::Ring {
        let deadline = Duration::from_secs_f64(settings.deadline_seconds);
        let bound = Bound::new(ip, member.rank(), (rules.run.0, 0), build, security, deadline)?;
        let address = bound.address();
        (None, Some(bound), address)
    } else {
        // Members that are silent for so long are dead.
        let silence = Duration::from_millis(rules.dead_ms.saturating_mul(3));
        let passport = Passport::new(rules.run.0, member.0, build, security, silence)?;
        let mesh = Mesh::bind(ip, passport, Arc::clone(&shared) as _)?;
        let address = mesh.address();
        (Some(mesh), None, address)
    };
    let at = (Some(address), host_name());
    let node = node_of(rules, settings, (member, incarnation(seat)?), at);
    shared.belong(&node);
    let links = RemoteLinks::new(shared, mesh);
    let events = Arc::downgrade(&node);
    let control = ControlClient::start(coordinator, security, (rules.run.0, build), move |event| {
        let Some(node) = events.upgrade() else { return };
        node.post(match event {
            ControlEvent::Connected => Event::Connected,
            ControlEvent::Disconnected => Event::Disconnected,
            ControlEvent::Told(message) => Event::Told(message),
            ControlEvent::Refused(reason) => Event::Told(ToMember::Stop(Stop::Failed(Reason::Other(reason)))),
        });
    })?;
    // Before the member's own thread says anything.
    links.attend(control);
    let (closing, interrupter) = (Arc::clone(&links), bound.as_ref().map(Bound::interrupter));
    node.start(Arc::clone(&links) as _, move || {
        closing.close();
        if let Some(interrupter) = interrupter {
            interrupter.interrupt();
        }
    })?;
    Ok((node, bound.map(meet)))
}

/// Ranks of a ring find each other by the addresses of the view.
fn meet(bound: Bound) -> Meet {
    Box::new(move |view: &View| {
        let addresses: Vec<SocketAddr> =
            view.ranks().filter_map(|rank| view.attendant(rank)?.address).collect();
        Ok(Box::new(bound.meet(&addresses)) as Box<dyn Communicator>)
    })
}
