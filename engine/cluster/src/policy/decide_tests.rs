//! Tests of [`decide`]: cases by hand, then properties of any cluster.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::{
    cluster_view::{ClusterView, Demand, Executor, GangNeed, Room, Running, StageKey, Waiting},
    decide::{Binding, Decision, decide},
    reason::Reason,
};
use proptest::prelude::*;
use std::{collections::BTreeMap, time::Duration};

fn slots(slots: u32) -> Room {
    Room { slots, ..Room::default() }
}

fn executor(id: &str, total: Room, busy: u32) -> Executor {
    let pool = id.split('-').next().unwrap_or_default().to_owned();
    Executor { id: id.to_owned(), pool, total, free: total.without(&Room::SLOT, busy) }
}

fn plain(job: &str, queue: &str, pending: u32) -> Waiting {
    let key = StageKey { job: job.to_owned(), stage: 1 };
    Waiting { key, queue: queue.to_owned(), pool: None, pending, demand: Demand::Each }
}

fn gang(job: &str, queue: &str, members: u32, at_least: u32) -> Waiting {
    let need = GangNeed {
        name: format!("gang {job}"),
        each: Room::SLOT,
        members,
        at_least,
        waited: Duration::ZERO,
        deadline: Some(Duration::from_secs(30)),
    };
    Waiting { demand: Demand::Gang(need), ..plain(job, queue, members) }
}

fn running(job: &str, queue: &str, executor: &str, slots: u32) -> Running {
    Running { job: job.to_owned(), queue: queue.to_owned(), executor: executor.to_owned(), slots }
}

fn bound(decision: &Decision, job: &str) -> u32 {
    decision.bindings.iter().filter(|b| b.stage.job == job).map(|b| b.partitions).sum()
}

fn why(decision: &Decision, job: &str) -> String {
    let passed = decision.passed_over.iter().find(|p| p.stage.job == job);
    passed.map(|p| p.reason.to_string()).unwrap_or_default()
}

fn late(mut stage: Waiting) -> Waiting {
    if let Demand::Gang(need) = &mut stage.demand {
        need.waited = Duration::from_secs(30);
    }
    stage
}

#[test]
fn a_strict_gang_waits_for_all_its_slots_and_keeps_the_free_ones() {
    let mut view = ClusterView {
        executors: vec![executor("cpu-a", slots(2), 1), executor("cpu-b", slots(2), 0)],
        running: vec![running("j0", "", "cpu-a", 1)],
        waiting: vec![gang("j1", "", 4, 4), plain("j2", "", 10)],
        weights: BTreeMap::new(),
    };
    let decision = decide(&view);
    assert!(decision.bindings.is_empty(), "{decision:?}");
    assert_eq!(why(&decision, "j1"), "waits for 4 slots: 3 free of 4, held by job j0");
    assert_eq!(
        why(&decision, "j2"),
        "waits for a slot: 0 free of 4, held by job j0; 3 kept for gang j1 of job j1, which may wait 30 s"
    );
    view.executors[0].free = slots(2);
    view.running.clear();
    let decision = decide(&view);
    assert_eq!((bound(&decision, "j1"), bound(&decision, "j2")), (4, 0));
    assert_eq!(why(&decision, "j2"), "waits for a slot: 0 free of 4, held by job j1");
}

#[test]
fn past_its_deadline_a_gang_keeps_nothing_and_gives_up() {
    let view = ClusterView {
        executors: vec![executor("cpu-a", slots(4), 1)],
        running: vec![running("j0", "", "cpu-a", 1)],
        waiting: vec![late(gang("j1", "", 4, 4)), plain("j2", "", 10)],
        weights: BTreeMap::new(),
    };
    let decision = decide(&view);
    assert_eq!((bound(&decision, "j1"), bound(&decision, "j2")), (0, 3));
    let gives_up: Vec<_> = decision.passed_over.iter().filter(|p| p.gives_up).collect();
    assert_eq!(gives_up.len(), 1);
    assert_eq!(gives_up[0].stage.job, "j1");
    // In the last moment it fits after all.
    let free = ClusterView { executors: vec![executor("cpu-a", slots(4), 0)], running: Vec::new(), ..view };
    assert_eq!(bound(&decide(&free), "j1"), 4);
}

#[test]
fn an_elastic_gang_starts_with_its_least_and_grows() {
    let mut view = ClusterView {
        executors: vec![executor("cpu-a", slots(3), 0)],
        waiting: vec![gang("j1", "", 5, 2)],
        ..ClusterView::default()
    };
    let decision = decide(&view);
    assert_eq!(bound(&decision, "j1"), 3);
    assert_eq!(why(&decision, "j1"), "waits for a slot: 0 free of 3, held by job j1");
    // It grows without keeping anything from others.
    view.waiting[0].pending = 2;
    view.running = vec![running("j1", "", "cpu-a", 3)];
    view.executors[0].free = slots(1);
    view.waiting.push(plain("j2", "", 4));
    let decision = decide(&view);
    assert_eq!((bound(&decision, "j1"), bound(&decision, "j2")), (1, 0));
    view.executors[0].free = slots(0);
    view.executors.push(executor("cpu-b", slots(1), 0));
    view.waiting.truncate(1);
    assert_eq!(bound(&decide(&view), "j1"), 1);
    // With fewer than its least it does not start.
    let few = ClusterView {
        executors: vec![executor("cpu-a", slots(1), 0)],
        waiting: vec![gang("j1", "", 5, 2)],
        ..ClusterView::default()
    };
    let decision = decide(&few);
    assert_eq!(bound(&decision, "j1"), 0);
    assert!(why(&decision, "j1").contains("the cluster has 1 in all"), "{}", why(&decision, "j1"));
}

#[test]
fn what_a_strict_gang_has_lost_is_replaced_first() {
    let mut lost = gang("j1", "", 4, 4);
    lost.pending = 2;
    let mut view = ClusterView {
        executors: vec![executor("cpu-a", slots(4), 3)],
        running: vec![running("j1", "", "cpu-a", 2), running("j0", "", "cpu-a", 1)],
        waiting: vec![lost, plain("j2", "", 9)],
        weights: BTreeMap::new(),
    };
    let decision = decide(&view);
    assert_eq!((bound(&decision, "j1"), bound(&decision, "j2")), (1, 0));
    view.waiting[0].pending = 1;
    view.executors[0].free = slots(0);
    let decision = decide(&view);
    assert!(!decision.passed_over.iter().any(|p| p.gives_up));
    view.waiting[0] = late(view.waiting[0].clone());
    assert!(!decide(&view).passed_over.iter().any(|p| p.gives_up), "it has started: its owner decides");
}

#[test]
fn a_gang_too_big_for_the_cluster_keeps_nothing() {
    let view = ClusterView {
        executors: vec![executor("gpu-a", slots(4), 0), executor("cpu-a", slots(8), 0)],
        waiting: vec![
            Waiting { pool: Some("gpu".into()), ..gang("j1", "", 5, 5) },
            Waiting { pool: Some("tpu".into()), ..gang("j2", "", 2, 2) },
            plain("j3", "", 20),
        ],
        ..ClusterView::default()
    };
    let decision = decide(&view);
    assert_eq!(bound(&decision, "j3"), 12);
    assert_eq!(
        why(&decision, "j1"),
        "waits for 5 slots in pool gpu: the cluster has 4 in all; add executors, or ask for fewer"
    );
    assert_eq!(why(&decision, "j2"), "waits for 2 slots in pool tpu: no executor has any");
}

#[test]
fn memory_and_cards_count_as_slots_do() {
    let each = Room { slots: 1, memory_bytes: 4 << 30, cards: 1 };
    let total = Room { slots: 4, memory_bytes: 9 << 30, cards: 4 };
    let mut stage = gang("j1", "", 4, 4);
    if let Demand::Gang(need) = &mut stage.demand {
        need.each = each;
    }
    let mut view = ClusterView {
        executors: vec![executor("gpu-a", total, 0), executor("gpu-b", total, 0)],
        waiting: vec![stage],
        ..ClusterView::default()
    };
    let decision = decide(&view);
    assert_eq!(decision.bindings.len(), 2, "{decision:?}");
    assert!(decision.bindings.iter().all(|b| b.partitions == 2), "two of 4 GiB go into 9 GiB");
    view.executors[1].free.cards = 1;
    let decision = decide(&view);
    assert!(decision.bindings.is_empty());
    assert_eq!(why(&decision, "j1"), "waits for 4 slots with 4.0 GiB and a card each: 3 free of 4");
}

#[test]
fn small_tasks_leave_executors_with_cards_alone_while_they_can() {
    let with_cards = Room { slots: 4, cards: 1, ..Room::default() };
    let view = ClusterView {
        executors: vec![executor("gpu-a", with_cards, 0), executor("cpu-a", slots(2), 0)],
        waiting: vec![plain("j1", "", 3)],
        ..ClusterView::default()
    };
    let key = StageKey { job: "j1".into(), stage: 1 };
    let expected = |executor: &str, partitions| Binding {
        stage: key.clone(),
        executor: executor.to_owned(),
        partitions,
    };
    assert_eq!(decide(&view).bindings, [expected("cpu-a", 2), expected("gpu-a", 1)]);
}

#[test]
fn a_stage_that_brings_rows_together_is_one_task() {
    let stage = Waiting { demand: Demand::Together, ..plain("j1", "", 7) };
    let view = ClusterView {
        executors: vec![executor("cpu-a", slots(2), 0)],
        waiting: vec![stage, plain("j2", "", 5)],
        ..ClusterView::default()
    };
    let decision = decide(&view);
    assert_eq!((bound(&decision, "j1"), bound(&decision, "j2")), (7, 1));
}

#[test]
fn a_queue_gets_its_share_and_borrows_what_is_idle() {
    let mut view = ClusterView {
        executors: vec![executor("cpu-a", slots(6), 0)],
        waiting: vec![plain("j1", "big", 20), plain("j2", "small", 20)],
        weights: BTreeMap::from([("big".to_owned(), 2)]),
        ..ClusterView::default()
    };
    let decision = decide(&view);
    assert_eq!((bound(&decision, "j1"), bound(&decision, "j2")), (4, 2));
    view.waiting.pop();
    assert_eq!(bound(&decide(&view), "j1"), 6);
    // A gang over its share goes last, and goes when the room is idle.
    view.waiting = vec![gang("j1", "small", 4, 4), plain("j2", "big", 2)];
    let decision = decide(&view);
    assert_eq!((bound(&decision, "j1"), bound(&decision, "j2")), (4, 2));
    view.waiting[1].pending = 3;
    let decision = decide(&view);
    assert_eq!((bound(&decision, "j1"), bound(&decision, "j2")), (0, 3));
    assert_eq!(
        why(&decision, "j1"),
        "waits for 4 slots: queue small may have 2 of 6 while queue big has work waiting"
    );
}

#[test]
fn small_tasks_that_keep_coming_do_not_starve_a_gang() {
    let mut view = ClusterView {
        executors: vec![executor("cpu-a", slots(4), 4)],
        running: vec![running("j0", "", "cpu-a", 4)],
        waiting: vec![gang("j1", "", 4, 4), plain("j2", "", 1000)],
        weights: BTreeMap::new(),
    };
    for ended in 1..=4 {
        view.executors[0].free = slots(ended);
        view.running[0].slots = 4 - ended;
        let decision = decide(&view);
        assert_eq!(bound(&decision, "j2"), 0, "slot {ended} is kept");
        assert_eq!(bound(&decision, "j1"), if ended == 4 { 4 } else { 0 });
    }
}

/// A cluster in any state: what is free is at most what there is.
fn any_view() -> impl Strategy<Value = ClusterView> {
    let machine = (0..3_u32, 0..5_u32, 0..4_u64, 0..3_u32, 0..5_u32);
    let stage = (0..3_u32, 0..4_u32, 1..7_u32, 0..7_u32, 0..3_u64, 0..2_u32, 0..4_u64, 0..3_u32);
    let machines = proptest::collection::vec(machine, 0..5);
    let stages = proptest::collection::vec(stage, 0..7);
    (machines, stages, 1..4_u32).prop_map(|(machines, stages, weight)| {
        let executors = machines.into_iter().enumerate().map(|(i, (pool, slots, memory, cards, busy))| {
            let total = Room { slots, memory_bytes: memory << 30, cards };
            let executor = executor(&format!("p{pool}-{i}"), total, busy);
            Executor { free: executor.free.without(&Room { cards: 1, ..Room::SLOT }, busy / 3), ..executor }
        });
        let executors: Vec<_> = executors.collect();
        let running = executors.iter().map(|e| running("j", "q0", &e.id, e.total.slots - e.free.slots));
        let waiting = stages.into_iter().enumerate();
        let waiting = waiting.map(|(i, (kind, pool, members, started, memory, cards, waited, queue))| {
            let (job, queue) = (format!("k{i}"), format!("q{queue}"));
            let mut stage = match kind {
                0 => plain(&job, &queue, members),
                1 => Waiting { demand: Demand::Together, ..plain(&job, &queue, members) },
                _ => gang(&job, &queue, members, 1 + started.min(members - 1)),
            };
            if let Demand::Gang(need) = &mut stage.demand {
                need.each = Room { slots: 1, memory_bytes: memory << 29, cards };
                need.waited = Duration::from_secs(12 * waited);
                if started == 6 {
                    stage.pending = 1;
                }
            }
            stage.pool = (pool < 3).then(|| format!("p{pool}"));
            stage
        });
        ClusterView {
            running: running.collect(),
            waiting: waiting.collect(),
            weights: BTreeMap::from([("q1".to_owned(), weight)]),
            executors,
        }
    })
}

fn stage_of<'a>(view: &'a ClusterView, key: &StageKey) -> &'a Waiting {
    view.waiting.iter().find(|w| w.key == *key).unwrap()
}

/// What a binding takes of its executor.
fn taken(stage: &Waiting, partitions: u32) -> (Room, u32) {
    match &stage.demand {
        Demand::Each => (Room::SLOT, partitions),
        Demand::Together => (Room::SLOT, 1),
        Demand::Gang(need) => (need.each, partitions),
    }
}

/// Carries `decision` out.
fn apply(view: &mut ClusterView, decision: &Decision) {
    for binding in &decision.bindings {
        let stage = stage_of(view, &binding.stage).clone();
        let (each, times) = taken(&stage, binding.partitions);
        let executor = view.executors.iter_mut().find(|e| e.id == binding.executor).unwrap();
        executor.free = executor.free.without(&each, times);
        view.running.push(running(&binding.stage.job, &stage.queue, &binding.executor, times));
        let waiting = view.waiting.iter_mut().find(|w| w.key == binding.stage).unwrap();
        waiting.pending -= binding.partitions;
    }
    view.waiting.retain(|w| w.pending > 0);
}

fn fits_alone(view: &ClusterView, stage: &Waiting) -> bool {
    let (each, at_once) = match &stage.demand {
        Demand::Gang(need) if stage.pending >= need.members => (need.each, need.at_least),
        Demand::Gang(need) => (need.each, 1),
        _ => (Room::SLOT, 1),
    };
    view.capacity(&each, stage.pool.as_deref()) >= at_once
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_executor_gets_more_than_it_has_and_pools_are_kept(view in any_view()) {
        let decision = decide(&view);
        let mut free: BTreeMap<&str, Room> = view.executors.iter().map(|e| (e.id.as_str(), e.free)).collect();
        for binding in &decision.bindings {
            let stage = stage_of(&view, &binding.stage);
            let (each, times) = taken(stage, binding.partitions);
            let room = free.get_mut(binding.executor.as_str()).unwrap();
            prop_assert!(room.times(&each) >= times, "{binding:?}");
            *room = room.without(&each, times);
            let executor = view.executors.iter().find(|e| e.id == binding.executor).unwrap();
            prop_assert!(stage.pool.as_ref().is_none_or(|pool| *pool == executor.pool));
        }
    }

    #[test]
    fn a_gang_starts_with_its_least_or_not_at_all(view in any_view()) {
        let decision = decide(&view);
        for stage in &view.waiting {
            let bound = bound(&decision, &stage.key.job);
            prop_assert!(bound <= stage.pending);
            if let Demand::Gang(need) = &stage.demand {
                let fresh = stage.pending == need.members;
                prop_assert!(!fresh || bound == 0 || bound >= need.at_least, "{bound} of {stage:?}");
            }
            // Every stage that still waits says why.
            let passed = decision.passed_over.iter().filter(|p| p.stage == stage.key).count();
            prop_assert_eq!(passed, usize::from(bound < stage.pending));
        }
    }

    #[test]
    fn what_fits_on_the_empty_cluster_gets_its_turn(mut view in any_view()) {
        for stage in &mut view.waiting {
            if let Demand::Gang(need) = &mut stage.demand {
                need.deadline = None;
            }
        }
        // Tasks end; every stage that the cluster could hold is bound in the end.
        for _ in 0..200 {
            for executor in &mut view.executors {
                executor.free = executor.total;
            }
            view.running.clear();
            let decision = decide(&view);
            let could: Vec<_> = view.waiting.iter().filter(|w| fits_alone(&view, w)).collect();
            prop_assert_eq!(could.is_empty(), decision.bindings.is_empty(), "{:?} {:?}", view, decision);
            if could.is_empty() {
                return Ok(());
            }
            apply(&mut view, &decision);
        }
        prop_assert!(false, "no end: {view:?}");
    }

    #[test]
    fn the_oldest_gang_starts_when_others_end_one_by_one(
        free in 0..4_u32, members in 1..5_u32, others in 1..40_u32,
    ) {
        let mut view = ClusterView {
            executors: vec![executor("p-0", slots(4), 4 - free)],
            running: vec![running("a", "", "p-0", 4 - free)],
            waiting: vec![gang("b", "", members, members), plain("c", "", others)],
            weights: BTreeMap::new(),
        };
        for _ in 0..=4 {
            let decision = decide(&view);
            if bound(&decision, "b") == members {
                return Ok(());
            }
            apply(&mut view, &decision);
            view.executors[0].free.slots += 1;
            let ends = view.running.iter_mut().find(|r| r.slots > 0).unwrap();
            ends.slots -= 1;
        }
        prop_assert!(false, "it starved: {view:?}");
    }

    #[test]
    fn shares_are_kept_within_a_slot(slots_of in 1..40_u32, weights in proptest::collection::vec(1..5_u32, 1..5)) {
        let names: Vec<String> = (0..weights.len()).map(|q| format!("q{q}")).collect();
        let waiting = names.iter().enumerate().map(|(q, name)| plain(&format!("j{q}"), name, 100));
        let view = ClusterView {
            executors: vec![executor("p-0", slots(slots_of), 0)],
            waiting: waiting.collect(),
            weights: names.iter().cloned().zip(weights.iter().copied()).collect(),
            ..ClusterView::default()
        };
        let decision = decide(&view);
        for (q, weight) in weights.iter().enumerate() {
            let share = f64::from(slots_of * weight) / f64::from(weights.iter().sum::<u32>());
            let given = f64::from(bound(&decision, &format!("j{q}")));
            prop_assert!((given - share).abs() <= 1.0, "{given} of {share} for weight {weight}");
        }
    }

    #[test]
    fn the_same_view_gives_the_same_decision(view in any_view()) {
        let decision = decide(&view);
        let mut shuffled = view.clone();
        shuffled.waiting.reverse();
        shuffled.executors.reverse();
        prop_assert_eq!(&decide(&shuffled).bindings, &decision.bindings);
        for passed in &decision.passed_over {
            prop_assert!(!passed.reason.to_string().is_empty());
            let too_small = matches!(passed.reason, Reason::TooSmall { .. });
            prop_assert_eq!(too_small, !fits_alone(&view, stage_of(&view, &passed.stage)));
        }
    }
}
