//! What waits, since when and why: kept between decisions, for the log, for people who ask, and for deadlines.

use super::{
    cluster_view::{Demand, StageKey, Waiting},
    decide::{Decision, PassedOver},
};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// A stage that waits, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingStage {
    /// Its number.
    pub stage: usize,
    /// For how long.
    pub waited: Duration,
    /// Why.
    pub reason: String,
}

/// A job whose gang found no room in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// The job.
    pub job: String,
    /// What is to be told to whoever waits for it.
    pub message: String,
}

/// What waits, since when and why.
#[derive(Debug, Default)]
pub struct WaitingRoom {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// When a stage began to wait; an attempt that starts over begins anew.
    since: BTreeMap<(StageKey, usize), Instant>,
    waiting: BTreeMap<StageKey, Entry>,
}

#[derive(Debug)]
struct Entry {
    since: Instant,
    reason: String,
    /// The name of a gang that has not started, and when it is given up.
    deadline: Option<(String, Instant)>,
}

impl WaitingRoom {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long attempt `attempt` of `stage` has waited at `now`; from now on if it is new.
    pub(super) fn waited(&self, stage: &StageKey, attempt: usize, now: Instant) -> Duration {
        let mut state = self.state();
        let since = state.since.entry((stage.clone(), attempt)).or_insert(now);
        now.saturating_duration_since(*since)
    }

    /// Keeps what was decided at `now` about `waiting`, and logs the reasons that are new.
    pub(super) fn record(&self, waiting: &[Waiting], decision: &Decision, now: Instant) {
        let mut state = self.state();
        let passed: BTreeMap<&StageKey, &PassedOver> =
            decision.passed_over.iter().map(|p| (&p.stage, p)).collect();
        state.since.retain(|(stage, _), _| passed.contains_key(stage));
        let since: BTreeMap<StageKey, Instant> =
            state.since.iter().map(|((stage, _), since)| (stage.clone(), *since)).collect();
        let before = std::mem::take(&mut state.waiting);
        for (stage, passed) in passed {
            let reason = passed.reason.to_string();
            if before.get(stage).is_none_or(|entry| entry.reason != reason) {
                log::info!("{stage} {reason}");
            }
            let since = since.get(stage).copied().unwrap_or(now);
            let started = decision.bindings.iter().any(|b| b.stage == *stage);
            let deadline = waiting.iter().find(|w| w.key == *stage).filter(|_| !started);
            let deadline = deadline.and_then(|w| deadline_of(w, since));
            state.waiting.insert(stage.clone(), Entry { since, reason, deadline });
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Why `job` waits, stage by stage; nothing if it does not.
    pub fn why(&self, job: &str) -> Vec<WaitingStage> {
        let now = Instant::now();
        let state = self.state();
        let of_job = state.waiting.iter().filter(|(stage, _)| stage.job == job);
        let why = of_job.map(|(stage, entry)| WaitingStage {
            stage: stage.stage,
            waited: now.saturating_duration_since(entry.since),
            reason: entry.reason.clone(),
        });
        why.collect()
    }

    /// Waits until gangs have waited for too long, and gives their jobs, once each.
    pub async fn given_up(&self) -> Vec<GivenUp> {
        loop {
            let changed = self.changed.notified();
            let (overdue, next) = self.take_overdue(Instant::now());
            if !overdue.is_empty() {
                return overdue;
            }
            match next {
                Some(next) => {
                    let _ = tokio::time::timeout_at(next.into(), changed).await;
                }
                None => changed.await,
            }
        }
    }

    /// Jobs whose gangs are overdue at `now`, and when the next one will be.
    fn take_overdue(&self, now: Instant) -> (Vec<GivenUp>, Option<Instant>) {
        let mut state = self.state();
        let mut overdue: BTreeMap<String, String> = BTreeMap::new();
        for (stage, entry) in &mut state.waiting {
            if let Some((gang, deadline)) = entry.deadline.take_if(|(_, deadline)| *deadline <= now) {
                let waited = deadline.saturating_duration_since(entry.since).as_secs_f64();
                let message = format!("gang {gang} found no room within {waited} s: it {}", entry.reason);
                overdue.entry(stage.job.clone()).or_insert(message);
            }
        }
        let next = state.waiting.values().filter_map(|e| e.deadline.as_ref().map(|d| d.1)).min();
        (overdue.into_iter().map(|(job, message)| GivenUp { job, message }).collect(), next)
    }
}

/// When a gang that has not started is given up.
fn deadline_of(waiting: &Waiting, since: Instant) -> Option<(String, Instant)> {
    match &waiting.demand {
        Demand::Gang(need) if waiting.pending >= need.members => {
            Some((need.name.clone(), since.checked_add(need.deadline?)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::policy::{ClusterView, GangNeed, Room, decide};

    fn gang(job: &str) -> Waiting {
        let need = GangNeed {
            name: "dca".into(),
            each: Room::SLOT,
            members: 4,
            at_least: 4,
            waited: Duration::ZERO,
            deadline: Some(Duration::from_secs(30)),
        };
        Waiting {
            key: StageKey { job: job.into(), stage: 2 },
            queue: String::new(),
            pool: None,
            pending: 4,
            demand: Demand::Gang(need),
        }
    }

    #[test]
    fn a_gang_is_given_up_once_at_its_deadline() {
        let room = WaitingRoom::default();
        let start = Instant::now();
        let view = ClusterView { waiting: vec![gang("j1")], ..ClusterView::default() };
        let key = &view.waiting[0].key;
        assert_eq!(room.waited(key, 0, start), Duration::ZERO);
        room.record(&view.waiting, &decide(&view), start);
        assert_eq!(room.why("j1")[0].reason, "waits for 4 slots: no executor has any");
        assert!(room.why("j2").is_empty());
        let deadline = start + Duration::from_secs(30);
        assert_eq!(room.take_overdue(start), (Vec::new(), Some(deadline)));
        assert_eq!(room.waited(key, 0, deadline), Duration::from_secs(30));
        let (overdue, next) = room.take_overdue(deadline);
        assert_eq!(overdue.len(), 1);
        assert_eq!(
            overdue[0].message,
            "gang dca found no room within 30 s: it waits for 4 slots: no executor has any"
        );
        assert_eq!(next, None);
        // Another attempt waits from its own beginning; what waits no more is forgotten.
        assert_eq!(room.waited(key, 1, deadline), Duration::ZERO);
        room.record(&[], &Decision::default(), deadline);
        assert!(room.why("j1").is_empty());
        assert_eq!(room.waited(key, 0, deadline), Duration::ZERO);
    }

    #[tokio::test]
    async fn whoever_watches_is_told() {
        let room = std::sync::Arc::new(WaitingRoom::default());
        let watch = tokio::spawn({
            let room = std::sync::Arc::clone(&room);
            async move { room.given_up().await }
        });
        let mut stage = gang("j1");
        if let Demand::Gang(need) = &mut stage.demand {
            need.deadline = Some(Duration::ZERO);
        }
        let view = ClusterView { waiting: vec![stage], ..ClusterView::default() };
        room.record(&view.waiting, &decide(&view), Instant::now());
        assert_eq!(watch.await.unwrap()[0].job, "j1");
    }
}
