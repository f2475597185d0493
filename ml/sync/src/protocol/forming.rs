//! How a view is formed from what its members hold: the version to go on from, who holds what, and where the rows
//! stand.

use super::{
    Begin, MemberId, Pace, Reason, ReplicaStatus, Role, ShardId, Stop, ToMember, View,
    coordinator::{Action, Coordinator},
    placement::{Candidate, Holding, place},
};
use std::collections::BTreeMap;

/// A replica that may be gone on from.
#[derive(Clone, Copy, Debug)]
struct Replica {
    member: MemberId,
    status: ReplicaStatus,
}

impl Coordinator {
    /// Forms a view of all live members, who have told what they hold.
    pub(super) fn form(&mut self, status: &BTreeMap<MemberId, Vec<ReplicaStatus>>) {
        let held = self.held(status);
        let target = if self.rounds.has_begun() { self.target(&held) } else { None };
        let lost = target.is_none() && (self.rounds.has_begun() || self.rounds.is_lost());
        let holdings = target.unwrap_or_else(|| vec![Holding::default(); self.rules.shards as usize]);
        let begin =
            if holdings.iter().any(|h| h.have.is_empty()) { Begin::Bring { lost } } else { Begin::Held };
        let candidates = self.candidates(&holdings);
        let previous = self.view.as_ref().map(|view| view.placement.clone()).unwrap_or_default();
        let Some(mut placement) = place(&previous, &holdings, &candidates) else {
            return self.fail(None, &Reason::Other("nobody is left that may hold shards".into()));
        };
        if !self.rules.copies {
            placement.holders.iter_mut().for_each(|holders| (holders.backup, holders.copy) = (None, false));
        }
        let version = match begin {
            Begin::Held => holdings.iter().map(|h| h.version).max().unwrap_or_default(),
            Begin::Bring { .. } => self.rounds.version() + u64::from(lost),
        };
        if let Begin::Bring { .. } = begin {
            placement.holders.iter_mut().for_each(|holders| holders.version = version);
        }
        // One that is drained and holds nothing any more may go.
        let holds = |member: MemberId| {
            placement.holders.iter().any(|h| h.primary == member || h.backup == Some(member))
        };
        let drained: Vec<MemberId> =
            self.live().filter(|(m, seat)| seat.draining && !holds(*m)).map(|(member, _)| member).collect();
        let mut members = self.attendants();
        members.retain(|attendant| !drained.contains(&attendant.member));
        let generation = self.generation;
        let view = View { generation, members, placement, version, begin };
        self.rounds.enter(&view);
        self.actions.push(Action::Note(in_words(&view, self.rules.copies)));
        for member in view.members.iter().map(|attendant| attendant.member) {
            self.send(member, ToMember::View(view.clone()));
        }
        self.view = Some(view);
        for member in drained {
            self.send(member, ToMember::Stop(Stop::Drained));
        }
    }

    /// By shard, the replicas that took part in the last view, as far as it got.
    fn held(&self, status: &BTreeMap<MemberId, Vec<ReplicaStatus>>) -> Vec<Vec<Replica>> {
        let mut held = vec![Vec::new(); self.rules.shards as usize];
        let Some(view) = &self.view else { return held };
        for (member, replica) in status.iter().flat_map(|(m, replicas)| replicas.iter().map(move |r| (*m, r)))
        {
            let Some(status) = self.accepted(view, member, replica) else { continue };
            if let Some(shard) = held.get_mut(replica.shard.index()) {
                shard.push(Replica { member, status });
            }
        }
        held
    }

    /// A replica of the last view counts as it is. One of a member that the last view did not reach counts with the
    /// version that the view began with: that the view counted on, and without this member it cannot have moved on.
    /// Anything older may have been undone and made anew since.
    fn accepted(&self, view: &View, member: MemberId, replica: &ReplicaStatus) -> Option<ReplicaStatus> {
        let same_life = view.attendant(member).is_some_and(|attendant| {
            self.seats
                .get(&member)
                .and_then(|s| s.hello.as_ref())
                .is_some_and(|h| h.incarnation == attendant.incarnation)
        });
        if !same_life {
            return None;
        }
        if replica.generation == view.generation {
            return Some(*replica);
        }
        let holders = view.placement.holders.get(replica.shard.index())?;
        let counted_on = view.begin == Begin::Held
            && (holders.primary == member || (holders.backup == Some(member) && !holders.copy));
        (counted_on && replica.shows(holders.version)).then_some(ReplicaStatus {
            newest: holders.version,
            has_previous: false,
            ..*replica
        })
    }

    /// What every shard goes on from. `None`: a shard is lost.
    fn target(&self, held: &[Vec<Replica>]) -> Option<Vec<Holding>> {
        if self.rules.pace != Pace::Sync {
            let newest = |replicas: &Vec<Replica>| {
                let version = replicas.iter().map(|r| r.status.newest).max()?;
                let have = replicas.iter().filter(|r| r.status.newest == version).map(|r| r.member).collect();
                Some(Holding { version, have })
            };
            return held.iter().map(newest).collect();
        }
        // The newest round that is closed and that every shard has.
        self.rounds.versions().find_map(|version| {
            let showing = |replicas: &Vec<Replica>| {
                let have: Vec<MemberId> =
                    replicas.iter().filter(|r| r.status.shows(version)).map(|r| r.member).collect();
                (!have.is_empty()).then_some(Holding { version, have })
            };
            held.iter().map(showing).collect()
        })
    }

    /// Dedicated holders where there are any, else all ranks; the ranks keep copies where holders are too few.
    /// A member that is drained holds only what nobody else has.
    fn candidates(&self, holdings: &[Holding]) -> Vec<Candidate> {
        let dedicated =
            self.live().any(|(m, seat)| self.rules.role(m) == Some(Role::Shards) && !seat.draining);
        let goes = |member: &MemberId| self.seats.get(member).is_some_and(|seat| seat.draining);
        let needed =
            |member: MemberId| holdings.iter().any(|h| h.have.contains(&member) && h.have.iter().all(goes));
        self.live()
            .filter(|(member, seat)| !seat.draining || needed(*member))
            .filter_map(|(member, seat)| {
                let serves = !dedicated || self.rules.role(member) == Some(Role::Shards);
                Some(Candidate { member, host: seat.hello.as_ref()?.host.clone(), serves })
            })
            .collect()
    }
}

fn in_words(view: &View, copies: bool) -> String {
    let ranks: Vec<String> = view.ranks().map(|rank| rank.0.to_string()).collect();
    let begin = match view.begin {
        Begin::Held => format!("goes on from version {}", view.version),
        Begin::Bring { lost: false } => "begins with the leader's parameters".into(),
        Begin::Bring { lost: true } => {
            "has lost parameters with all their holders; it begins with the leader's newest checkpoint".into()
        }
    };
    let alone = view.placement.holders.iter().position(|h| h.backup.is_none()).filter(|_| copies);
    let copies = alone.map(|shard| format!("; {} has no backup", ShardId(shard as u32))).unwrap_or_default();
    format!("{}: ranks {} train; it {begin}{copies}", view.generation, ranks.join(", "))
}
