//! Links over a network: control by tonic, tensors by a mesh of frames.
//!
//! ```text
//!   ask, reply ─► queue of the peer ─► writer thread ─► connection ═══► reader thread ─► Node::asked, answers
//!                   └ unanswered: asked again after a lost connection, until the next Freeze
//! ```
//! A queue and a thread for each peer: a reader never waits for a writer, so that two members may send each other
//! gradients and parameters at once; nobody waits for a peer that takes nothing.

use super::{
    links::{Asker, Links, Meter, Origin},
    node::{Event, Node},
};
use crate::{
    Error, Result, Traffic,
    network::{
        ControlClient, Direction, Inbox, Mesh, Payload, TensorStream,
        frame::{Codec, HEADER, Header},
    },
    protocol::{Ask, Generation, MemberId, ShardReply, ShardRequest, ToCoordinator, Values, View},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::{Duration, Instant},
};

/// What a frame says about its tensors.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Note {
    Request(ShardRequest),
    Reply(ShardReply),
}

/// A message on its way.
#[derive(Clone)]
struct Parcel {
    asker: Asker,
    note: Note,
    arrays: Vec<Values>,
}

impl Parcel {
    fn is_answered_by(&self, asker: Asker, reply: &ShardReply) -> bool {
        match &self.note {
            Note::Request(request) => {
                self.asker.origin == asker.origin && (request.shard, request.id) == (reply.shard, reply.id)
            }
            Note::Reply(_) => false,
        }
    }

    /// Gradients may be rounded; what must be equal in two places may not.
    fn codec(&self, gradients: Codec) -> Codec {
        match &self.note {
            Note::Request(ShardRequest { ask: Ask::Push { .. }, .. }) => gradients,
            _ => Codec::Plain,
        }
    }
}

#[derive(Default)]
struct Waiting {
    parcels: VecDeque<Parcel>,
    unanswered: VecDeque<Parcel>,
    closed: bool,
}

/// The way to one peer.
struct Post {
    peer: MemberId,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Before a connection that cannot be made is tried again.
const AGAIN: Duration = Duration::from_millis(100);

impl Post {
    fn put(&self, parcel: Parcel) {
        let mut waiting = lock(&self.waiting);
        if matches!(parcel.note, Note::Request(_)) {
            waiting.unanswered.push_back(parcel.clone());
        }
        waiting.parcels.push_back(parcel);
        drop(waiting);
        self.changed.notify_all();
    }

    /// A connection is lost: what was not answered is asked again, in the same order.
    fn ask_again(&self) {
        let mut waiting = lock(&self.waiting);
        let replies = waiting.parcels.iter().filter(|parcel| matches!(parcel.note, Note::Reply(_))).cloned();
        waiting.parcels = waiting.unanswered.iter().cloned().chain(replies).collect();
        drop(waiting);
        self.changed.notify_all();
    }

    fn forget(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.parcels.clear();
        waiting.unanswered.clear();
    }

    fn close(&self) {
        self.forget();
        lock(&self.waiting).closed = true;
        self.changed.notify_all();
    }

    fn next(&self) -> Option<Parcel> {
        let idle = |waiting: &mut Waiting| waiting.parcels.is_empty() && !waiting.closed;
        let waited = self.changed.wait_while(lock(&self.waiting), idle);
        let mut waiting = waited.unwrap_or_else(PoisonError::into_inner);
        if waiting.closed { None } else { waiting.parcels.pop_front() }
    }

    fn write(&self, shared: &Shared, mesh: &Mesh) {
        let mut in_vain = None;
        while let Some(parcel) = self.next() {
            match shared.send(mesh, self.peer, &parcel) {
                Ok(bytes) => {
                    in_vain = None;
                    shared.meter.sent(bytes);
                }
                Err(error) => {
                    let since = *in_vain.get_or_insert_with(Instant::now);
                    log::debug!("{}: {error}", shared.me);
                    if since.elapsed() >= shared.patience
                        && let Some(node) = shared.node()
                    {
                        node.post(Event::Unreachable(self.peer));
                    }
                    self.ask_again();
                    let open = |waiting: &mut Waiting| !waiting.closed;
                    drop(self.changed.wait_timeout_while(lock(&self.waiting), AGAIN, open));
                }
            }
        }
    }
}

/// What the threads of connections share with the member.
pub(crate) struct Shared {
    me: MemberId,
    gradients: Codec,
    /// Time after which the coordinator is told that a peer cannot be reached.
    patience: Duration,
    node: OnceLock<Weak<Node>>,
    meter: Meter,
    generation: Mutex<Generation>,
    posts: Mutex<BTreeMap<MemberId, Arc<Post>>>,
}

impl Shared {
    pub fn new(me: MemberId, gradients: Codec, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            me,
            gradients,
            patience,
            node: OnceLock::new(),
            meter: Meter::default(),
            generation: Mutex::default(),
            posts: Mutex::default(),
        })
    }

    /// The member that all this is for.
    pub fn belong(&self, node: &Arc<Node>) {
        let _ = self.node.set(Arc::downgrade(node));
    }

    fn node(&self) -> Option<Arc<Node>> {
        self.node.get().and_then(Weak::upgrade)
    }

    fn post(&self, peer: MemberId) -> Option<Arc<Post>> {
        lock(&self.posts).get(&peer).cloned()
    }

    fn send(&self, mesh: &Mesh, peer: MemberId, parcel: &Parcel) -> Result<u64> {
        let note = postcard::to_stdvec(&parcel.note).map_err(|e| Error::Message {
            rank: self.me.rank(),
            what: "a message",
            reason: e.to_string(),
        })?;
        let (shard, round) = match &parcel.note {
            Note::Request(ShardRequest { shard, ask: Ask::Push { round, .. }, .. }) => (shard, *round),
            Note::Request(ShardRequest { shard, .. }) | Note::Reply(ShardReply { shard, .. }) => (shard, 0),
        };
        let header = Header {
            shard: shard.0,
            generation: parcel.asker.generation,
            round,
            seq: u64::from(parcel.asker.origin == Origin::Replica),
            ..Header::default()
        };
        let arrays: Vec<&[f32]> = parcel.arrays.iter().map(|array| array.as_slice()).collect();
        let payload = Payload::F32(&arrays, parcel.codec(self.gradients));
        let bytes = (HEADER + note.len()) as u64 + payload.bytes();
        mesh.send(peer.0, header, &note, payload)?;
        Ok(bytes)
    }

    fn take(&self, from: MemberId, header: &Header, stream: &mut TensorStream) -> Result<()> {
        const WHAT: &str = "a message between members";
        let note = stream.receive_note(header)?;
        let note: Note = postcard::from_bytes(&note).map_err(|e| stream.refused(WHAT, e))?;
        let count = match &note {
            Note::Request(request) => request.ask.arrays(),
            Note::Reply(reply) => reply.answer.arrays(),
        };
        let arrays = stream.receive_arrays(header, count)?.into_iter().map(Arc::new).collect();
        self.meter.received((HEADER as u64) + u64::from(header.note) + header.length);
        let Some(node) = self.node() else { return Ok(()) };
        let origin = if header.seq == 0 { Origin::Member } else { Origin::Replica };
        match note {
            Note::Request(request) if request.from == from => {
                node.asked(Asker::of(&request, origin), request, arrays);
            }
            Note::Request(request) => {
                return Err(stream.refused(WHAT, format!("{from} asks in the name of {}", request.from)));
            }
            Note::Reply(reply) => {
                let asker = Asker { member: self.me, origin, generation: header.generation };
                if asker.is_of(*lock(&self.generation)) {
                    self.answered(from, asker, reply, arrays, &node);
                }
            }
        }
        Ok(())
    }

    fn answered(&self, from: MemberId, asker: Asker, reply: ShardReply, arrays: Vec<Values>, node: &Node) {
        if let Some(post) = self.post(from) {
            lock(&post.waiting).unanswered.retain(|parcel| !parcel.is_answered_by(asker, &reply));
        }
        match asker.origin {
            Origin::Member => node.post(Event::Answered(asker, reply, arrays)),
            Origin::Replica => node.confirmed(&reply),
        }
    }
}

impl Inbox for Shared {
    fn arrived(&self, _: u32) -> Result<(), String> {
        Ok(())
    }

    fn frame(&self, from: u32, header: &Header, stream: &mut TensorStream) -> Result<()> {
        self.take(MemberId(from), header, stream)
    }

    fn ended(&self, peer: u32, direction: Direction, error: Option<Error>) {
        if let Some(error) = error {
            log::debug!("{} ({direction:?}): {error}", self.me);
        }
        // Questions may be lost with one connection, answers with the other.
        if let Some(post) = self.post(MemberId(peer)) {
            post.ask_again();
        }
    }

    fn closing(&self) {}
}

/// A member's links over a network.
pub(crate) struct RemoteLinks {
    shared: Arc<Shared>,
    mesh: Mutex<Option<Arc<Mesh>>>,
    control: Mutex<Option<ControlClient>>,
}

impl RemoteLinks {
    /// `mesh`: for members that hold shards or ask for them.
    pub fn new(shared: Arc<Shared>, mesh: Option<Mesh>) -> Arc<Self> {
        Arc::new(Self { shared, mesh: Mutex::new(mesh.map(Arc::new)), control: Mutex::default() })
    }

    pub fn attend(&self, control: ControlClient) {
        *lock(&self.control) = Some(control);
    }

    /// The end of all connections. Not from a thread of one of them.
    pub fn close(&self) {
        let posts = std::mem::take(&mut *lock(&self.shared.posts));
        posts.values().for_each(|post| post.close());
        let mesh = lock(&self.mesh).take();
        if let Some(mesh) = mesh {
            // Nobody writes any more to what is ended here.
            mesh.meet([]);
        }
        drop(lock(&self.control).take());
    }
}

impl Links for RemoteLinks {
    fn tell(&self, message: ToCoordinator) {
        if let Some(control) = &*lock(&self.control) {
            control.tell(message);
        }
    }

    fn ask(&self, origin: Origin, holder: MemberId, request: ShardRequest, arrays: Vec<Values>) {
        let asker = Asker::of(&request, origin);
        if holder == self.shared.me {
            if let Some(node) = self.shared.node() {
                node.asked(asker, request, arrays);
            }
        } else if let Some(post) = self.shared.post(holder) {
            post.put(Parcel { asker, note: Note::Request(request), arrays });
        }
    }

    fn reply(&self, to: Asker, reply: ShardReply, arrays: Vec<Values>) {
        if to.member == self.shared.me {
            if let Some(node) = self.shared.node() {
                node.post(Event::Answered(to, reply, arrays));
            }
        } else if let Some(post) = self.shared.post(to.member) {
            post.put(Parcel { asker: to, note: Note::Reply(reply), arrays });
        }
    }

    fn freeze(&self, generation: Generation) {
        *lock(&self.shared.generation) = generation;
        lock(&self.shared.posts).values().for_each(|post| post.forget());
    }

    fn view(&self, view: &View) {
        *lock(&self.shared.generation) = view.generation;
        let Some(mesh) = lock(&self.mesh).clone() else { return };
        let others = || view.members.iter().filter(|member| member.member != self.shared.me);
        let addresses: Vec<_> = others().filter_map(|m| Some((m.member, m.address?))).collect();
        mesh.meet(addresses.iter().map(|(member, address)| (member.0, *address)));
        let mut posts = lock(&self.shared.posts);
        posts.retain(|peer, post| {
            let stays = addresses.iter().any(|(member, _)| member == peer);
            if !stays {
                post.close();
            }
            stays
        });
        for (peer, _) in addresses {
            posts.entry(peer).or_insert_with(|| start_post(peer, &self.shared, &mesh));
        }
    }

    #[cfg(test)]
    fn sever(&self) {
        self.close();
    }

    fn traffic(&self) -> Traffic {
        self.shared.meter.read()
    }
}

fn start_post(peer: MemberId, shared: &Arc<Shared>, mesh: &Arc<Mesh>) -> Arc<Post> {
    let post = Arc::new(Post { peer, waiting: Mutex::default(), changed: Condvar::default() });
    let (ours, shared, mesh) = (Arc::clone(&post), Arc::clone(shared), Arc::clone(mesh));
    let write = move || ours.write(&shared, &mesh);
    if let Err(e) = std::thread::Builder::new().name(format!("to {peer}")).spawn(write) {
        log::error!("no thread for what goes to {peer}: {e}");
    }
    post
}
