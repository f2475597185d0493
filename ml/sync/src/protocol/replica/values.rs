//! What happens to a shard's values: they are brought, updated, copied and handed out.

use super::{Asker, Part, Replica, ReplicaAction, Share, Unconfirmed, Values};
use crate::protocol::{
    Answer, Ask, MemberId, Pace, Refusal, Wanted,
    versions::{Update, Version, Versions},
};
use std::sync::Arc;

/// [`Ask::Push`].
pub(super) struct Push {
    pub round: u64,
    pub seq: u64,
    pub samples: u64,
    pub read: u64,
    pub alone: bool,
    pub differences: bool,
}

/// Values are brought and updated.
impl Replica {
    pub(super) fn install(
        &mut self,
        asker: Asker,
        number: (u64, u64),
        names: &[String],
        arrays: Vec<Values>,
    ) -> Vec<ReplicaAction> {
        let here = self.values.as_ref().is_some_and(|values| values.get(number.0).is_some());
        if let Some(values) = self.values.as_ref().filter(|_| !here) {
            return self.refuse(asker, Refusal::NoSuchVersion { newest: values.newest.number });
        }
        if !here {
            match Versions::install(&self.settings.optimizer, number, names, arrays) {
                Ok(values) => self.values = Some(values),
                Err(error) => return self.refuse(asker, Refusal::State(error.to_string())),
            }
        }
        match self.part {
            // Asked again after a lost connection: the answer goes by the new one.
            Part::Primary { .. } if self.installing.is_some() => {
                self.installing = self.installing.map(|(id, _)| (id, Some(asker)));
                Vec::new()
            }
            Part::Primary { backup: Some(backup) } if !here => self.install_on(backup, Some(asker)),
            _ => {
                let mut actions = vec![self.reply(asker, Answer::Installed, Vec::new())];
                actions.extend(self.serve_waiting());
                actions
            }
        }
    }

    pub(super) fn install_on(&mut self, backup: MemberId, installer: Option<Asker>) -> Vec<ReplicaAction> {
        let Some(version) = self.values.as_ref().map(|values| values.newest.clone()) else {
            return Vec::new();
        };
        let (vectors, memory) = version.memory();
        let mut arrays = vec![version.parameters];
        arrays.extend(memory);
        let steps = version.optimizer.steps();
        let request = self.ask(Ask::Install { version: version.number, steps, vectors });
        self.installing = Some((request.id, installer));
        vec![ReplicaAction::Ask { member: backup, request, arrays }]
    }

    /// A backup makes the update that the primary made.
    pub(super) fn follow(&mut self, asker: Asker, version: u64, update: Update) -> Vec<ReplicaAction> {
        let Some(values) = &mut self.values else {
            return self.refuse(asker, Refusal::NoSuchVersion { newest: 0 });
        };
        let newest = values.newest.number;
        if version > newest.saturating_add(1) {
            return self.refuse(asker, Refusal::NoSuchVersion { newest });
        }
        if version == newest.saturating_add(1) {
            let expected = values.newest.parameters.len();
            if let Some(odd) = update.gradients.iter().find(|gradient| gradient.len() != expected) {
                let (found, expected) = (odd.len() as u64, expected as u64);
                return self.refuse(asker, Refusal::Length { found, expected });
            }
            values.apply(update);
        }
        vec![self.reply(asker, Answer::Replicated { version }, Vec::new())]
    }

    pub(super) fn push(&mut self, asker: Asker, push: Push, gradient: Values) -> Vec<ReplicaAction> {
        let Some(values) = self.values.as_ref().filter(|_| self.ranks.contains(&asker.member)) else {
            return self.refuse(asker, Refusal::NoSuchVersion { newest: 0 });
        };
        let (newest, expected) = (values.newest.number, values.newest.parameters.len());
        if gradient.len() != expected {
            let (found, expected) = (gradient.len() as u64, expected as u64);
            return self.refuse(asker, Refusal::Length { found, expected });
        }
        match self.settings.pace {
            Pace::Sync => self.push_of_round(asker, &push, newest, gradient),
            Pace::Async | Pace::Bounded(_) => self.push_at_once(asker, &push, newest, gradient),
        }
    }

    pub(super) fn push_of_round(
        &mut self,
        asker: Asker,
        push: &Push,
        newest: u64,
        gradient: Values,
    ) -> Vec<ReplicaAction> {
        if push.round > newest {
            return self.refuse(asker, Refusal::NoSuchVersion { newest });
        }
        let mut actions = vec![self.reply(asker, Answer::Pushed { version: push.round }, Vec::new())];
        if push.round < newest {
            return actions;
        }
        let differences = push.differences;
        if self.shares.values().any(|share| share.differences != differences) {
            let reason = "some ranks of a round bring gradients, others differences of parameters".into();
            return self.refuse(asker, Refusal::State(reason));
        }
        let share = Share { samples: push.samples, differences, gradient };
        self.shares.entry(asker.member).or_insert(share);
        if push.alone || self.ranks.iter().all(|rank| self.shares.contains_key(rank)) {
            let shares = std::mem::take(&mut self.shares);
            let samples = shares.values().map(|share| share.samples).sum();
            let gradients = shares.into_values().map(|share| share.gradient).collect();
            actions.extend(self.update(Update { gradients, samples, differences, read: None }, None));
        }
        actions
    }

    pub(super) fn push_at_once(
        &mut self,
        asker: Asker,
        push: &Push,
        newest: u64,
        gradient: Values,
    ) -> Vec<ReplicaAction> {
        if self.applied.get(&asker.member).is_some_and(|seq| *seq >= push.seq) {
            // Asked again after a lost connection.
            let ours =
                |update: &&mut Unconfirmed| update.pushed.is_some_and(|(a, _)| a.member == asker.member);
            return match self.unconfirmed.iter_mut().rev().find(ours) {
                Some(update) => {
                    update.pushed = update.pushed.map(|(_, version)| (asker, version));
                    Vec::new()
                }
                None => vec![self.reply(asker, Answer::Pushed { version: newest }, Vec::new())],
            };
        }
        self.applied.insert(asker.member, push.seq);
        let lambda = self.settings.delay_compensation;
        let read = self.read.get(&asker.member).filter(|(version, _)| *version == push.read);
        let read = read.map(|(_, values)| (lambda, Arc::clone(values)));
        let update = Update { gradients: vec![gradient], samples: push.samples, differences: false, read };
        self.update(update, Some((asker, newest)))
    }

    /// Makes an update here and has the backup make it. `pushed` is told once it is safe.
    pub(super) fn update(&mut self, update: Update, pushed: Option<(Asker, u64)>) -> Vec<ReplicaAction> {
        let Some(values) = &mut self.values else { return Vec::new() };
        let (samples, differences) = (update.samples, update.differences);
        let mean = values.apply(update);
        let version = values.newest.number;
        if let Part::Primary { backup: Some(backup) } = self.part {
            let samples = if mean.is_some() { samples } else { 0 };
            let request = self.ask(Ask::Replicate { version, samples, differences });
            self.unconfirmed.push_back(Unconfirmed { id: request.id, pushed });
            return vec![ReplicaAction::Ask { member: backup, request, arrays: mean.into_iter().collect() }];
        }
        let mut actions: Vec<_> = pushed
            .into_iter()
            .map(|(asker, version)| self.reply(asker, Answer::Pushed { version }, Vec::new()))
            .collect();
        actions.extend(self.serve_waiting());
        actions
    }
}

/// What can be said to a fetch.
enum Found<'a> {
    Now(&'a Version),
    Later,
    Never,
}

/// Values are handed out.
impl Replica {
    fn find(&self, wanted: Wanted) -> Found<'_> {
        let Some(values) = self.values.as_ref().filter(|_| self.installing.is_none()) else {
            return Found::Later;
        };
        let newest = values.newest.number;
        let confirmed = newest - (self.unconfirmed.len() as u64).min(newest);
        match wanted {
            Wanted::Newest => match self.settings.pace {
                Pace::Sync if !self.unconfirmed.is_empty() => Found::Later,
                _ => Found::Now(&values.newest),
            },
            Wanted::Version(version) if version > newest.saturating_add(1) => Found::Never,
            Wanted::Version(version) if version > confirmed => Found::Later,
            // A rank that joins may be overtaken by the leader's steps alone, and gets what there is.
            Wanted::Version(version) => match values.get(version) {
                Some(version) => Found::Now(version),
                None => values.get(confirmed).map_or(Found::Never, Found::Now),
            },
        }
    }

    pub(super) fn fetch(&mut self, asker: Asker, wanted: Wanted, memory: bool) -> Vec<ReplicaAction> {
        let found = match self.find(wanted) {
            Found::Now(version) => version.clone(),
            Found::Later => {
                // Asked again after a lost connection: the answer goes by the new one.
                self.waiting.retain(|(other, ..)| (other.member, other.id) != (asker.member, asker.id));
                self.waiting.push((asker, wanted, memory));
                return Vec::new();
            }
            Found::Never => {
                let newest = self.values.as_ref().map_or(0, |values| values.newest.number);
                return self.refuse(asker, Refusal::NoSuchVersion { newest });
            }
        };
        let version = found.number;
        if memory {
            let (vectors, arrays) = found.memory();
            let steps = found.optimizer.steps();
            return vec![self.reply(asker, Answer::State { version, steps, vectors }, arrays)];
        }
        if self.settings.delay_compensation > 0.0 && self.settings.pace != Pace::Sync {
            self.read.insert(asker.member, (version, Arc::clone(&found.parameters)));
        }
        vec![self.reply(asker, Answer::Parameters { version }, vec![found.parameters])]
    }

    pub(super) fn serve_waiting(&mut self) -> Vec<ReplicaAction> {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().flat_map(|(asker, wanted, memory)| self.fetch(asker, wanted, memory)).collect()
    }
}
