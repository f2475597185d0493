//! Entering a gang: as a rank, or as a holder of shards.

use super::{
    host::{At, Invitation, hall},
    member_here,
    membership::Membership,
    node::{Event, Node},
    node_of,
    remote::{RemoteLinks, Shared},
    ring_rank::{Meet, RingRank},
    service_rank::ServiceRank,
};
use crate::{
    Communicator, Error, GradientSync, Result, Topology,
    network::{Bound, ControlClient, ControlEvent, Mesh, Passport, Security, frame::Codec},
    protocol::{Incarnation, MemberId, Reason, Role, Stop, ToMember, View},
    with_local_steps,
};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{Arc, PoisonError},
    time::Duration,
};

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
            node.abandon();
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
    let hall = hall(invitation.run())?;
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

/// Listens, for other members; the mesh of a service or, of a ring, the rank before it knows the others.
struct Ears {
    mesh: Option<Mesh>,
    bound: Option<Bound>,
    address: SocketAddr,
}

fn listen(
    invitation: &Invitation,
    member: MemberId,
    ip: IpAddr,
    security: &Security,
    shared: &Arc<Shared>,
) -> Result<Ears> {
    let Invitation { settings, rules, build, .. } = invitation;
    if settings.topology == Topology::Ring {
        let deadline = Duration::from_secs_f64(settings.deadline_seconds);
        let bound = Bound::new(ip, member.rank(), (rules.run.0, 0), build, security, deadline)?;
        let address = bound.address();
        return Ok(Ears { mesh: None, bound: Some(bound), address });
    }
    // Members that are silent for so long are dead.
    let silence = Duration::from_millis(rules.dead_ms.saturating_mul(3));
    let passport = Passport::new(rules.run.0, member.0, build, security, silence)?;
    let mesh = Mesh::bind(ip, passport, Arc::clone(shared) as _)?;
    let address = mesh.address();
    Ok(Ears { mesh: Some(mesh), bound: None, address })
}

fn connect(
    invitation: &Invitation,
    seat: &Seat,
    member: MemberId,
    coordinator: SocketAddr,
    security: &Security,
) -> Result<(Arc<Node>, Option<Meet>)> {
    let Invitation { settings, rules, build, .. } = invitation;
    let own = seat.bind.map_or_else(|| own_address(coordinator), Ok);
    let ip = own.map_err(|e| Error::Connection {
        peer: format!("the coordinator at {coordinator}"),
        what: "entering",
        reason: e.to_string(),
    })?;
    let gradients = match settings.codec(true) {
        crate::Codec::F32 => Codec::Plain,
        crate::Codec::Bf16 => Codec::Bf16,
    };
    let shared = Shared::new(member, gradients, Duration::from_millis(rules.reconnect_ms));
    let Ears { mesh, bound, address } = listen(invitation, member, ip, security, &shared)?;
    let node = node_of(rules, settings, (member, incarnation(seat)?), (Some(address), host_name()));
    shared.belong(&node);
    let links = RemoteLinks::new(shared, mesh);
    // Before the member's own thread says anything.
    links.attend(attend(&node, coordinator, security, (rules.run.0, build))?);
    let (closing, interrupter) = (Arc::clone(&links), bound.as_ref().map(Bound::interrupter));
    node.start(Arc::clone(&links) as _, move || {
        closing.close();
        if let Some(interrupter) = interrupter {
            interrupter.interrupt();
        }
    })?;
    Ok((node, bound.map(meet)))
}

fn attend(
    node: &Arc<Node>,
    coordinator: SocketAddr,
    security: &Security,
    of: (u128, &str),
) -> Result<ControlClient> {
    let node = Arc::downgrade(node);
    ControlClient::start(coordinator, security, of, move |event| {
        let Some(node) = node.upgrade() else { return };
        node.post(match event {
            ControlEvent::Connected => Event::Connected,
            ControlEvent::Disconnected => Event::Disconnected,
            ControlEvent::Told(message) => Event::Told(message),
            ControlEvent::Refused(reason) => Event::Told(ToMember::Stop(Stop::Failed(Reason::Other(reason)))),
        });
    })
}

/// Ranks of a ring find each other by the addresses of the view.
fn meet(bound: Bound) -> Meet {
    Box::new(move |view: &View| {
        let addresses: Vec<SocketAddr> =
            view.ranks().filter_map(|rank| view.attendant(rank)?.address).collect();
        Ok(Box::new(bound.meet(&addresses)) as Box<dyn Communicator>)
    })
}
