//! Messages survive postcard, and nothing that a peer sends makes a decoder or a state machine panic.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::{Lease, Position};
use proptest::prelude::*;

fn hello(member: u32) -> ToCoordinator {
    ToCoordinator::Hello(Hello {
        run: RunId(1),
        member: MemberId(member),
        incarnation: Incarnation::of_attempt(1, 2),
        role: Role::Rank,
        generation: Generation(0),
        address: Some("127.0.0.1:4000".parse().unwrap()),
        host: "node".into(),
        pid: 1,
    })
}

#[test]
fn messages_survive_postcard() {
    let lease = Lease { epoch: 1, block: 2, of_blocks: 3, visits: 4..9 };
    let closing = ToCoordinator::Closing {
        generation: Generation(3),
        round: 7,
        samples: 5,
        loss: 0.25,
        taken: vec![lease.clone()],
        alone: false,
        want: 8,
    };
    for message in [hello(1), closing] {
        let bytes = postcard::to_stdvec(&message).unwrap();
        assert_eq!(postcard::from_bytes::<ToCoordinator>(&bytes).unwrap(), message);
    }
    let mut position = Position::default();
    position.close(&lease);
    let started = ToMember::Started { generation: Generation(2), position };
    let bytes = postcard::to_stdvec(&started).unwrap();
    assert_eq!(postcard::from_bytes::<ToMember>(&bytes).unwrap(), started);
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..4, Just(u64::MAX), Just(u64::MAX - 1)]
}

/// What a faulty or hostile rank might say in any order.
fn call() -> impl Strategy<Value = ToCoordinator> {
    let lease = (number(), 0_usize..3, 0_usize..4, 0_usize..9, 0_usize..9)
        .prop_map(|(epoch, block, of_blocks, a, b)| Lease { epoch, block, of_blocks, visits: a..b });
    let generation = (0_u64..4).prop_map(Generation);
    prop_oneof![
        Just(ToCoordinator::Heartbeat),
        generation.clone().prop_map(|generation| ToCoordinator::Status { generation, replicas: vec![] }),
        (generation.clone(), number(), number()).prop_map(|(generation, n, rows)| ToCoordinator::Join {
            generation,
            n_parameters: n % 3,
            rows: rows % 20,
            position: Some(Position { epoch: n, round: rows, ..Position::default() }),
        }),
        (generation.clone(), number())
            .prop_map(|(generation, at_most)| ToCoordinator::Take { generation, at_most }),
        (generation.clone(), number(), prop::collection::vec(lease, 0..3), any::<bool>(), number()).prop_map(
            |(generation, round, taken, alone, want)| ToCoordinator::Closing {
                generation,
                round,
                samples: round % 5,
                loss: 1.0,
                taken,
                alone,
                want,
            }
        ),
        generation
            .clone()
            .prop_map(|g| ToCoordinator::Arrive { generation: g, meeting: Meeting::Synchronise }),
        generation
            .clone()
            .prop_map(|g| ToCoordinator::Arrive { generation: g, meeting: Meeting::Sum(vec![1.0]) }),
        (generation, 0_u32..4).prop_map(|(generation, member)| ToCoordinator::Unreachable {
            generation,
            member: MemberId(member)
        }),
        Just(ToCoordinator::Leave(Leave::Finished)),
    ]
}

proptest! {
    #[test]
    fn bytes_of_a_peer_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = postcard::from_bytes::<ToCoordinator>(&bytes);
        let _ = postcard::from_bytes::<ToMember>(&bytes);
        let _ = postcard::from_bytes::<ShardRequest>(&bytes);
        let _ = postcard::from_bytes::<ShardReply>(&bytes);
    }

    #[test]
    fn no_order_of_messages_makes_a_coordinator_panic(
        calls in prop::collection::vec((0_u64..3, 0_u64..900, call()), 0..60),
        asynchronous in any::<bool>(),
    ) {
        let mut rules = Rules::fixed(RunId(1), 2, 2);
        rules.pace = if asynchronous { Pace::Bounded(1) } else { Pace::Sync };
        let mut coordinator = Coordinator::new(rules, 0);
        let mut now = 0;
        for member in 0..2 {
            coordinator.handle(0, Event::Message { link: LinkId(u64::from(member)), message: hello(member) });
            let message = ToCoordinator::Status { generation: Generation(1), replicas: vec![] };
            coordinator.handle(0, Event::Message { link: LinkId(u64::from(member)), message });
        }
        prop_assert_eq!(coordinator.state().phase, "training");
        for (link, wait, message) in calls {
            now += wait;
            coordinator.handle(now, Event::Message { link: LinkId(link), message });
            coordinator.tick_at(now);
            coordinator.state();
        }
    }
}

#[test]
fn a_gang_says_who_is_missing() {
    let mut rules = Rules::fixed(RunId(1), 3, 1);
    rules.deadline_ms = 5_000;
    rules.dead_ms = 60_000;
    let mut coordinator = Coordinator::new(rules, 0);
    coordinator.handle(10, Event::Message { link: LinkId(1), message: hello(1) });
    let message = ToCoordinator::Status { generation: Generation(1), replicas: vec![] };
    coordinator.handle(11, Event::Message { link: LinkId(1), message });
    let state = coordinator.state();
    assert_eq!((state.phase.as_str(), state.waiting.as_deref()), ("forming", Some("members")));
    assert_eq!(state.waiting_for, [MemberId(0), MemberId(2)]);
    assert_eq!((state.members[1].standing.as_str(), state.members[1].host.as_str()), ("live", "node"));
    let actions = coordinator.tick_at(5_001);
    let Some(Action::Ended(Outcome::Failed(cause))) = actions.last() else { panic!("{actions:?}") };
    assert_eq!(cause.reason, "waited 5 s for members; missing: member 0, member 2");
}

#[test]
fn a_gang_that_nobody_has_started_is_not_late_and_one_that_pauses_says_for_whom() {
    let mut rules = Rules::fixed(RunId(1), 3, 1);
    (rules.min_ranks, rules.gather_ms, rules.deadline_ms, rules.dead_ms) = (2, 100, 5_000, 60_000);
    let mut coordinator = Coordinator::new(rules, 0);
    assert_eq!(coordinator.tick_at(20_000), [], "the launcher's time is not the gang's");
    let come = Event::Message { link: LinkId(1), message: hello(1) };
    let actions = coordinator.handle(20_010, come);
    assert_eq!(actions[0], Action::Note("member 1 has come: process 1 on node".into()));
    assert!(!coordinator.tick_at(20_050).iter().any(|a| matches!(a, Action::Warning(_))));
    let paused = coordinator.tick_at(20_100);
    let said = "the gang pauses: it trains with 2 ranks or more; missing: member 0, member 2; if they do not come \
                within 4.9 s, it fails";
    assert_eq!(paused, [Action::Warning(said.into())]);
    assert_eq!(coordinator.tick_at(20_200), [], "once is enough");
    let actions = coordinator.tick_at(25_000);
    let Some(Action::Ended(Outcome::Failed(cause))) = actions.last() else { panic!("{actions:?}") };
    assert_eq!(cause.reason, "waited 5 s for members; missing: member 0, member 1, member 2");
}

#[test]
fn whoever_was_silent_is_cut_off_but_not_sent_away() {
    let mut rules = Rules::fixed(RunId(1), 2, 1);
    (rules.min_ranks, rules.dead_ms) = (1, 1_000);
    let mut coordinator = Coordinator::new(rules, 0);
    for member in 0..2 {
        let link = LinkId(u64::from(member));
        coordinator.handle(0, Event::Message { link, message: hello(member) });
        let message = ToCoordinator::Status { generation: Generation(1), replicas: vec![] };
        coordinator.handle(0, Event::Message { link, message });
    }
    // A clock that stood still would not be their silence.
    assert_eq!([400, 800].map(|now| coordinator.tick_at(now)).concat(), []);
    coordinator.handle(900, Event::Message { link: LinkId(0), message: ToCoordinator::Heartbeat });
    let actions = coordinator.tick_at(1_000);
    assert_eq!(actions[0], Action::Warning("member 1 is lost: it was silent".into()));
    assert!(actions.contains(&Action::Close { link: LinkId(1) }), "{actions:?}");
    let sent_away = |actions: &[Action]| {
        actions.iter().any(|a| matches!(a, Action::Send { message: ToMember::Stop(_), .. }))
    };
    assert!(!sent_away(&actions), "{actions:?}");
    let back = coordinator.handle(1_100, Event::Message { link: LinkId(7), message: hello(1) });
    assert!(!sent_away(&back), "{back:?}");
    assert_eq!(coordinator.state().members[1].standing, "live");
}

#[test]
fn lives_are_bounded_and_old_ones_fenced() {
    let mut rules = Rules::fixed(RunId(1), 1, 1);
    rules.max_rank_restarts = 1;
    let mut coordinator = Coordinator::new(rules, 0);
    let life = |attempt| match hello(0) {
        ToCoordinator::Hello(hello) => {
            ToCoordinator::Hello(Hello { incarnation: Incarnation::of_attempt(attempt, 0), ..hello })
        }
        other => other,
    };
    let mut say =
        |link, attempt| coordinator.handle(0, Event::Message { link: LinkId(link), message: life(attempt) });
    let fenced = |link| Action::Send { link: LinkId(link), message: ToMember::Stop(Stop::Fenced) };
    say(1, 1);
    assert!(say(2, 2).contains(&fenced(1)), "a newer life replaces the older one");
    assert_eq!(
        say(3, 1),
        [fenced(3), Action::Close { link: LinkId(3) }],
        "which is fenced when it comes back"
    );
    let actions = say(4, 3);
    assert!(
        matches!(actions.last(), Some(Action::Ended(Outcome::Failed(_)))),
        "more lives than allowed, and nobody else: {actions:?}"
    );
}

/// What it holds may have been undone, and made anew from other gradients, since it was last in.
#[test]
fn a_member_that_missed_a_view_gets_its_copy_anew() {
    let mut rules = Rules::fixed(RunId(1), 2, 1);
    rules.min_ranks = 1;
    let mut coordinator = Coordinator::new(rules, 0);
    let mut say = |now, link, message| {
        let actions = coordinator.handle(now, Event::Message { link: LinkId(link), message });
        actions.into_iter().find_map(|action| match action {
            Action::Send { message: ToMember::View(view), .. } => Some(view),
            _ => None,
        })
    };
    let status = |generation, newest, valid_in| ToCoordinator::Status {
        generation: Generation(generation),
        replicas: vec![ReplicaStatus {
            shard: ShardId(0),
            newest,
            has_previous: true,
            generation: Generation(valid_in),
        }],
    };
    let join = |generation| ToCoordinator::Join {
        generation: Generation(generation),
        n_parameters: 1,
        rows: 0,
        position: None,
    };
    let closing = |generation, round| ToCoordinator::Closing {
        generation: Generation(generation),
        round,
        samples: 1,
        loss: 0.0,
        taken: Vec::new(),
        alone: false,
        want: 0,
    };
    for link in 0..2 {
        say(0, link, hello(link as u32));
    }
    let nothing = ToCoordinator::Status { generation: Generation(1), replicas: vec![] };
    say(0, 0, nothing.clone());
    assert_eq!(say(0, 1, nothing).unwrap().placement.holders[0].primary, MemberId(0));
    for message in [join(1), closing(1, 0)] {
        say(0, 0, message.clone());
        say(0, 1, message);
    }
    // Member 1 fails on the way, and member 0 makes version 2 alone.
    let failure = Failure { reason: "lost".into(), permanent: false, log_tail: Vec::new() };
    say(0, 1, ToCoordinator::Leave(Leave::Failed(failure)));
    let alone = say(0, 0, status(2, 1, 1)).unwrap();
    assert_eq!((alone.version, alone.placement.holders[0].backup), (1, None));
    say(0, 0, join(2));
    say(0, 0, closing(2, 1));
    say(0, 3, hello(1));
    say(0, 0, closing(2, 2));
    say(0, 0, status(3, 2, 2));
    let both = say(0, 3, status(3, 2, 1)).unwrap();
    let expected = Holders { primary: MemberId(0), backup: Some(MemberId(1)), copy: true, version: 2 };
    assert_eq!(both.placement.holders, [expected]);
}

#[test]
fn a_member_says_who_it_is_before_all_else() {
    let settings = MemberSettings { rules: Rules::fixed(RunId(1), 2, 2), n_fetch: 1, n_push: 1 };
    let mut member = Member::new(settings, MemberId(0), Incarnation(0), (None, "here".into()), 0);
    assert_eq!(member.report(b"planned".to_vec()), [], "there is no connection yet");
    assert_eq!(member.report(b"started".to_vec()), []);
    let mut said = member.connected(1).into_iter();
    assert!(matches!(said.next(), Some(MemberAction::Tell(ToCoordinator::Hello(_)))));
    let report = |word: &[u8]| MemberAction::Tell(ToCoordinator::Report(word.to_vec()));
    assert_eq!(said.collect::<Vec<_>>(), [report(b"planned"), report(b"started")]);
    assert_eq!(member.report(b"epoch".to_vec()), [report(b"epoch")]);
    // What was said is not said again by another connection; what is said without one waits for it.
    member.disconnected(2);
    assert_eq!(member.report(b"epoch 2".to_vec()), []);
    assert_eq!(member.connected(3)[1..], [report(b"epoch 2")]);
}
