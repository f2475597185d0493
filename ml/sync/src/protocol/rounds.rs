//! What the ranks of a view ask of the coordinator: rows, rounds, meetings. The ledger of rows outlives the view.

mod closing;

use super::{
    Begin, Generation, LeaseBook, Meeting, MemberId, Pace, Passed, Reason, Rules, ToCoordinator, ToMember,
    View,
};
use crate::{Lease, Position};
use std::collections::BTreeMap;

/// What is to be done about a call.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Say this to these.
    Tell(Vec<(MemberId, ToMember)>),
    /// Say this to these; and no round is open now: others may come and go.
    Boundary(Vec<(MemberId, ToMember)>),
    /// The gang cannot go on.
    Fail(Reason),
}

const NOTHING: Verdict = Verdict::Tell(Vec::new());

/// The rows, and the round that they stand for.
#[derive(Debug)]
struct Ledger {
    book: LeaseBook,
    n_parameters: u64,
    /// Sync: rounds that are closed, empty ones included.
    version: u64,
    /// Sync: the position before the last round, until it is known that all shards have the round.
    undo: Option<Position>,
}

/// What a rank brings to a round.
#[derive(Clone, Debug)]
struct Closing {
    round: u64,
    samples: u64,
    loss: f64,
    taken: Vec<Lease>,
    want: u64,
}

/// What a rank said when it joined.
#[derive(Clone, Debug)]
struct Joined {
    n_parameters: u64,
    rows: u64,
    position: Option<Position>,
}

/// The calls of a view's ranks, and the ledger.
#[derive(Debug)]
pub(super) struct Rounds {
    pace: Pace,
    of_blocks: usize,
    ledger: Option<Ledger>,
    /// A shard was lost with all that held it.
    lost: bool,
    version: u64,
    generation: Generation,
    ranks: Vec<MemberId>,
    started: bool,
    joined: BTreeMap<MemberId, Joined>,
    /// Sync: the round that is open. Bounded: ranks that are too far ahead.
    closing: BTreeMap<MemberId, Closing>,
    arrived: BTreeMap<MemberId, Meeting>,
    clocks: BTreeMap<MemberId, u64>,
    open_since: Option<u64>,
}

impl Rounds {
    pub fn new(rules: &Rules) -> Self {
        Self {
            pace: rules.pace,
            of_blocks: rules.ranks as usize,
            ledger: None,
            lost: false,
            version: 0,
            generation: Generation::default(),
            ranks: Vec::new(),
            started: false,
            joined: BTreeMap::new(),
            closing: BTreeMap::new(),
            arrived: BTreeMap::new(),
            clocks: BTreeMap::new(),
            open_since: None,
        }
    }

    /// Training has begun, and its state was not lost.
    pub fn has_begun(&self) -> bool {
        self.ledger.is_some()
    }

    /// The state was lost, and nobody has brought another yet.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// All ranks of the view have joined.
    pub fn has_started(&self) -> bool {
        self.started
    }

    /// The newest closed version.
    pub fn version(&self) -> u64 {
        self.ledger.as_ref().map_or(self.version, |ledger| ledger.version)
    }

    /// Closed versions that can be gone on from, newest first.
    pub fn versions(&self) -> impl Iterator<Item = u64> + use<> {
        let undone =
            self.ledger.as_ref().filter(|ledger| ledger.undo.is_some()).map(|ledger| ledger.version - 1);
        std::iter::once(self.version()).chain(undone)
    }

    pub fn position(&self) -> Option<&Position> {
        self.ledger.as_ref().map(|ledger| ledger.book.position())
    }

    /// A new view: what was not committed is free again; a round that the view does not begin with is undone.
    pub fn enter(&mut self, view: &View) {
        self.generation = view.generation;
        self.ranks = view.ranks().collect();
        self.started = false;
        self.joined.clear();
        self.closing.clear();
        self.arrived.clear();
        self.clocks.clear();
        self.open_since = None;
        self.version = view.version;
        if let Begin::Bring { lost } = view.begin {
            self.lost = lost;
            self.ledger = None;
            return;
        }
        let Some(ledger) = &mut self.ledger else { return };
        let undo = ledger.undo.take();
        if self.pace == Pace::Sync
            && view.version < ledger.version
            && let Some(position) = undo
            && let Ok(book) = LeaseBook::new(ledger.book.rows(), self.of_blocks, position)
        {
            ledger.book = book;
            ledger.version = view.version;
        }
        ledger.book.revert();
    }

    /// A rank that has finished although others wait for it.
    pub fn waits_for(&self, finished: impl Fn(MemberId) -> bool) -> Option<MemberId> {
        let (_, missing) = self.open()?;
        missing.into_iter().find(|member| finished(*member))
    }

    /// What is waited for, and for whom.
    pub fn open(&self) -> Option<(&'static str, Vec<MemberId>)> {
        let missing =
            |come: &dyn Fn(&MemberId) -> bool| self.ranks.iter().copied().filter(|m| !come(m)).collect();
        if !self.started {
            return (!self.joined.is_empty()).then(|| ("join", missing(&|m| self.joined.contains_key(m))));
        }
        if let Some(meeting) = self.arrived.values().next() {
            return Some((meeting.name(), missing(&|m| self.arrived.contains_key(m))));
        }
        if self.closing.is_empty() {
            return None;
        }
        let (behind, slowest) =
            (|m: &MemberId| self.clocks.get(m).copied().unwrap_or_default(), self.slowest());
        match self.pace {
            Pace::Sync => Some(("step", missing(&|m| self.closing.contains_key(m)))),
            _ => Some(("step", missing(&|m| behind(m) > slowest))),
        }
    }

    /// Who has kept the others waiting for too long, and where.
    pub fn late(&self, now: u64, deadline_ms: u64) -> Option<(&'static str, Vec<MemberId>)> {
        self.open_since.filter(|since| now >= since + deadline_ms).and_then(|_| self.open())
    }

    /// A rank has called. `boundary`: somebody waits for the end of a round.
    pub fn call(&mut self, now: u64, member: MemberId, call: ToCoordinator, boundary: bool) -> Verdict {
        let generation = match &call {
            ToCoordinator::Join { generation, .. }
            | ToCoordinator::Take { generation, .. }
            | ToCoordinator::Closing { generation, .. }
            | ToCoordinator::Arrive { generation, .. } => *generation,
            _ => return NOTHING,
        };
        if generation != self.generation || !self.ranks.contains(&member) {
            return NOTHING;
        }
        let verdict = match call {
            ToCoordinator::Join { n_parameters, rows, position, .. } => {
                self.join(member, Joined { n_parameters, rows, position })
            }
            _ if !self.started => NOTHING,
            ToCoordinator::Take { at_most, .. } => self.take(member, at_most),
            ToCoordinator::Closing { round, samples, loss, taken, alone, want, .. } => {
                let closing = Closing { round, samples, loss, taken, want };
                self.close(member, closing, alone, boundary)
            }
            ToCoordinator::Arrive { meeting, .. } => match self.arrive(member, meeting) {
                Verdict::Tell(told) if boundary && !told.is_empty() && self.arrived.is_empty() => {
                    Verdict::Boundary(told)
                }
                verdict => verdict,
            },
            _ => NOTHING,
        };
        match self.open() {
            None => self.open_since = None,
            Some(_) => {
                self.open_since.get_or_insert(now);
            }
        }
        verdict
    }

    fn to_all(&self, message: &ToMember) -> Vec<(MemberId, ToMember)> {
        self.ranks.iter().map(|rank| (*rank, message.clone())).collect()
    }

    fn join(&mut self, member: MemberId, joined: Joined) -> Verdict {
        self.joined.insert(member, joined);
        if self.started || self.joined.len() < self.ranks.len() {
            return NOTHING;
        }
        let Some((leader, first)) = self.joined.first_key_value() else { return NOTHING };
        let ledger = self.ledger.as_ref();
        let expected = [
            ("join", ledger.map_or(first.n_parameters, |l| l.n_parameters)),
            ("join (rows)", ledger.map_or(first.rows, |l| l.book.rows() as u64)),
        ];
        for (member, joined) in &self.joined {
            for (found, (what, expected)) in [joined.n_parameters, joined.rows].into_iter().zip(expected) {
                if found != expected {
                    return Verdict::Fail(Reason::Length {
                        member: *member,
                        what: what.into(),
                        found,
                        expected,
                    });
                }
            }
        }
        if self.ledger.is_none() {
            let Joined { n_parameters, rows, position } = first.clone();
            let rows = usize::try_from(rows).unwrap_or(usize::MAX);
            match LeaseBook::new(rows, self.of_blocks, position.unwrap_or_default()) {
                Ok(book) => {
                    self.ledger = Some(Ledger { book, n_parameters, version: self.version, undo: None });
                    self.lost = false;
                }
                Err(error) => return Verdict::Fail(Reason::Other(format!("{leader}: {error}"))),
            }
        }
        self.started = true;
        let position = self.position().cloned().unwrap_or_default();
        self.clocks = self.ranks.iter().map(|rank| (*rank, position.round)).collect();
        Verdict::Tell(self.to_all(&ToMember::Started { generation: self.generation, position }))
    }

    fn take(&mut self, member: MemberId, at_most: u64) -> Verdict {
        let lease = self.lease(member, at_most);
        Verdict::Tell(vec![(member, ToMember::Taken { generation: self.generation, lease })])
    }

    fn lease(&mut self, member: MemberId, at_most: u64) -> Option<Lease> {
        let at_most = usize::try_from(at_most).unwrap_or(usize::MAX);
        let live = self.ranks.len();
        self.ledger.as_mut().and_then(|ledger| ledger.book.take(member.rank(), at_most, live))
    }

    fn arrive(&mut self, member: MemberId, meeting: Meeting) -> Verdict {
        if let Some((peer, other)) = self.arrived.iter().next()
            && other.name() != meeting.name()
        {
            return Verdict::Fail(out_of_order(member, meeting.name(), *peer, other.name()));
        }
        if let Some(peer) = self.closing.keys().next().filter(|_| self.pace == Pace::Sync) {
            return Verdict::Fail(out_of_order(member, meeting.name(), *peer, "step"));
        }
        self.arrived.insert(member, meeting);
        let mut told = if self.pace == Pace::Sync { Vec::new() } else { self.let_go() };
        if self.arrived.len() < self.ranks.len() {
            return Verdict::Tell(told);
        }
        let arrived = std::mem::take(&mut self.arrived);
        let Some(ledger) = &mut self.ledger else { return NOTHING };
        // All ranks have all of the last round.
        ledger.undo = None;
        let meeting = match arrived.first_key_value() {
            Some((_, Meeting::Sum(first))) => match sum(first.len(), &arrived) {
                Ok(sum) => Passed::Sum(sum),
                Err(reason) => return Verdict::Fail(reason),
            },
            Some((_, Meeting::Synchronise)) => {
                let totals = ledger.book.end_epoch();
                let position = ledger.book.position().clone();
                Passed::Synchronise { version: ledger.version, totals, position }
            }
            Some((_, Meeting::Fetched)) | None => Passed::Fetched,
        };
        told.extend(self.to_all(&ToMember::Passed { generation: self.generation, meeting }));
        Verdict::Tell(told)
    }
}

fn out_of_order(member: MemberId, called: &str, peer: MemberId, peer_called: &str) -> Reason {
    Reason::Order { member, called: called.into(), peer, peer_called: peer_called.into() }
}

/// Element by element, in rank order.
fn sum(expected: usize, arrived: &BTreeMap<MemberId, Meeting>) -> Result<Vec<f64>, Reason> {
    let mut sum = vec![0.0; expected];
    for (member, meeting) in arrived {
        let Meeting::Sum(values) = meeting else { continue };
        if values.len() != expected {
            let (found, expected) = (values.len() as u64, expected as u64);
            return Err(Reason::Length { member: *member, what: "sum".into(), found, expected });
        }
        sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    Ok(sum)
}
