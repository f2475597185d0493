//! What designs do with events that are odd, and what holds for any events.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use voxelflow_signal::Error;
use voxelflow_signal::design::{Design, DesignSettings, DriftModel, Event, FrameTimes, HrfModel, Outcome};

const VOLUMES: usize = 60;
const T_R: f64 = 2.0;

fn event(condition: &str, onset: f64, duration: f64) -> Event {
    Event { onset, duration, condition: Some(condition.into()), modulation: 1.0 }
}

fn settings(hrf_model: HrfModel) -> DesignSettings {
    DesignSettings { hrf_model, drift_model: DriftModel::None, ..DesignSettings::default() }
}

fn design_at(start_time: f64, events: &[Event], hrf_model: HrfModel) -> Design {
    let times = FrameTimes::try_new(VOLUMES, T_R, start_time).unwrap();
    Design::try_new(&times, events, &[], &settings(hrf_model)).unwrap()
}

fn design(events: &[Event]) -> Design {
    design_at(0.0, events, HrfModel::Glover)
}

fn notes(design: &Design) -> Vec<(usize, Outcome)> {
    design.report.notes.iter().map(|note| (note.event, note.outcome)).collect()
}

fn peak(values: &[f64]) -> usize {
    (0..values.len()).max_by(|a, b| values[*a].total_cmp(&values[*b])).unwrap()
}

fn close(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9)
}

#[test]
fn identical_events_are_one_with_both_modulations() {
    let twice = design(&[event("a", 10.0, 2.0), event("b", 10.0, 2.0), event("a", 10.0, 2.0)]);
    assert_eq!(notes(&twice), [(2, Outcome::Merged { into: 0 })]);
    let once = design(&[event("a", 10.0, 2.0), event("b", 10.0, 2.0)]);
    assert!(notes(&once).is_empty());
    let doubled: Vec<f64> = once.column("a").unwrap().iter().map(|x| 2.0 * x).collect();
    assert!(close(twice.column("a").unwrap(), &doubled));
    assert_eq!(twice.column("b"), once.column("b"));
    // Of another length, or of no other sign of zero: not the same, and the same.
    assert!(notes(&design(&[event("a", 10.0, 2.0), event("a", 10.0, 2.5)])).is_empty());
    assert_eq!(notes(&design(&[event("a", 0.0, 1.0), event("a", -0.0, 1.0)])).len(), 1);
}

#[test]
fn events_outside_the_run_count_as_far_as_their_response_reaches() {
    let found = design(&[event("a", -5.0, 1.0), event("a", 9_999.0, 1.0), event("b", -30.0, 0.0)]);
    assert_eq!(notes(&found), [(1, Outcome::AfterRun), (2, Outcome::BeforeRun)]);
    assert_eq!(found.report.left_out().count(), 2);
    assert!(found.column("a").unwrap()[0] > 0.1, "5 s after the event its response is at its peak");
    assert_eq!(found.report.empty, ["b"]);
    assert!(found.column("b").unwrap().iter().all(|x| *x == 0.0));
    assert_eq!((found.report.rank, found.names.len()), (2, 3));

    // Only the last volume's own time is left to an event after it: enough for a finite impulse response.
    let last = (VOLUMES - 1) as f64 * T_R;
    let late = [event("a", last + 1.0, 0.5), event("a", last + 2.5, 0.5)];
    assert_eq!(notes(&design_at(0.0, &late, HrfModel::Fir)), [(1, Outcome::AfterRun)]);
    assert_eq!(notes(&design_at(0.0, &late, HrfModel::Glover)).len(), 2);
    // Without a response, only what lasts into the run counts.
    let early = [event("a", -5.0, 1.0), event("a", -5.0, 7.0)];
    let found = design_at(0.0, &early, HrfModel::None);
    assert_eq!(notes(&found), [(0, Outcome::BeforeRun)]);
    assert_eq!(found.column("a").unwrap()[..3], [1.0, 0.0, 0.0]);
}

#[test]
fn an_event_that_began_long_ago_counts_from_where_the_design_begins() {
    let found = design(&[event("a", -40.0, 60.0), event("b", -24.0, 44.0), event("c", -30.0, 6.0)]);
    assert_eq!(notes(&found), [(0, Outcome::Cut), (2, Outcome::BeforeRun)]);
    assert!(close(found.column("a").unwrap(), found.column("b").unwrap()));
    assert_eq!(found.report.rank, 2, "two columns are the same, one is empty, and there is the constant");
}

#[test]
fn events_without_a_condition() {
    let none = Event { condition: None, ..event("", 10.0, 1.0) };
    let found = design(&[none.clone(), Event { onset: 30.0, ..none.clone() }]);
    assert_eq!((found.names[0].as_str(), found.report.dummy), ("dummy", true));
    let found = design(&[event("a", 10.0, 1.0), none]);
    assert_eq!(notes(&found), [(1, Outcome::WithoutCondition)]);
    assert_eq!((found.names.clone(), found.report.dummy), (vec!["a".to_owned(), "constant".into()], false));
    assert_eq!(design(&[]).names, ["constant"]);
}

/// Case 6: an impulse, t_r 2, volumes that stand for the middle of their time.
#[test]
fn start_time_moves_the_moments_and_not_the_events() {
    let impulse = [event("a", 20.0, 0.0)];
    let at = |start_time| design_at(start_time, &impulse, HrfModel::Spm).column("a").unwrap().to_vec();
    // The peak is 5 s after the impulse, at 25 s: between volumes 12 and 13, or on volume 12 (24 s + 1 s).
    let (plain, shifted) = (at(0.0), at(1.0));
    assert!((plain[12] - plain[13]).abs() < 0.2 * plain[12]);
    assert_eq!(peak(&shifted), 12);
    assert!(shifted[12] > plain[12] && shifted[12] > plain[13]);
    // The same as events that came earlier.
    let earlier = design_at(0.0, &[event("a", 19.0, 0.0)], HrfModel::Spm);
    let worst =
        shifted.iter().zip(earlier.column("a").unwrap()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(worst < 0.02 * shifted[12], "a fine bin at most: {worst}");
}

#[test]
fn faults_are_named() {
    let try_new = |events: &[Event], extra: &[(String, Vec<f64>)]| {
        let times = FrameTimes::try_new(VOLUMES, T_R, 0.0).unwrap();
        Design::try_new(&times, events, extra, &settings(HrfModel::GloverDerivative)).unwrap_err()
    };
    let good = event("a", 1.0, 1.0);
    for (bad, says) in [
        (Event { onset: f64::NAN, ..good.clone() }, "event 1 (counted from 0): its onset is NaN"),
        (Event { duration: -1.0, ..good.clone() }, "its duration is -1"),
        (Event { duration: f64::INFINITY, ..good.clone() }, "its duration is inf"),
        (Event { modulation: f64::NAN, ..good.clone() }, "its modulation is NaN"),
    ] {
        let e = try_new(&[good.clone(), bad], &[]);
        assert!(e.is_input() && e.to_string().contains(says), "{e}");
    }
    let e = try_new(&[good.clone(), event("a_derivative", 5.0, 1.0)], &[]);
    assert!(matches!(&e, Error::Regressor { name, .. } if name == "a_derivative"), "{e}");
    let column = |values| vec![("motion".to_owned(), values)];
    assert!(matches!(try_new(&[], &column(vec![0.0; 3])), Error::Shape { found: 3, .. }));
    let mut values = vec![0.0; VOLUMES];
    values[7] = f64::NAN;
    let e = try_new(&[], &column(values));
    assert!(e.to_string().contains("`motion`: it is not finite in volume 7"), "{e}");
    for (volumes, t_r, start) in
        [(1, 2.0, 0.0), (9, 0.0, 0.0), (9, f64::NAN, 0.0), (9, 2.0, -1.0), (9, 1e-9, 1e9)]
    {
        assert!(FrameTimes::try_new(volumes, t_r, start).unwrap_err().is_input());
    }
    let times = FrameTimes::try_new(VOLUMES, T_R, 0.0).unwrap();
    let endless = DesignSettings { min_onset: -1e12, ..DesignSettings::default() };
    let e = Design::try_new(&times, &[], &[], &endless).unwrap_err();
    assert_eq!(e.setting(), Some("min_onset"));
}

/// An onset in the middle of a fine bin, so that rounding does not move it into another.
fn onset() -> impl Strategy<Value = f64> {
    (-400i32..1_500).prop_map(|bin| (f64::from(bin) + 0.5) * T_R / 50.0)
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let one = (onset(), 0u32..300, -3.0..3.0f64).prop_map(|(onset, bins, modulation)| Event {
        modulation,
        ..event("a", onset, f64::from(bins) * T_R / 50.0)
    });
    prop::collection::vec(one, 1..8)
}

fn any_model() -> impl Strategy<Value = HrfModel> {
    use HrfModel as M;
    let all =
        [M::Glover, M::GloverDerivative, M::GloverDispersion, M::Spm, M::SpmDerivative, M::SpmDispersion];
    prop::sample::select([&all[..], &[M::Fir, M::None]].concat())
}

/// Models whose columns are not made orthogonal, so that they are linear in the events.
fn linear_model() -> impl Strategy<Value = HrfModel> {
    prop::sample::select(vec![HrfModel::Glover, HrfModel::Spm, HrfModel::Fir, HrfModel::None])
}

fn anything() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(0.0),
        -1e12..1e12f64,
        -50.0..150.0f64
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn events_that_come_later_have_responses_that_come_later(
        events in events(), model in linear_model(), volumes in 1usize..20
    ) {
        let events: Vec<Event> = events.into_iter().map(|e| Event { onset: e.onset.abs(), ..e }).collect();
        let shift = volumes as f64 * T_R;
        let later: Vec<Event> = events.iter().map(|e| Event { onset: e.onset + shift, ..e.clone() }).collect();
        let (a, b) = (design_at(0.0, &events, model), design_at(0.0, &later, model));
        let (a, b) = (&a.columns[0], &b.columns[0]);
        prop_assert!(close(&a[..VOLUMES - volumes], &b[volumes..]));
    }

    #[test]
    fn responses_add_and_scale(
        first in events(), second in events(), factor in -3.0..3.0f64, model in linear_model()
    ) {
        let at = |events: &[Event]| design_at(0.0, events, model).columns[0].clone();
        let both: Vec<Event> = first.iter().chain(&second).cloned().collect();
        let sum: Vec<f64> = at(&first).iter().zip(at(&second)).map(|(a, b)| a + b).collect();
        prop_assert!(close(&at(&both), &sum));
        let scaled: Vec<Event> =
            first.iter().map(|e| Event { modulation: factor * e.modulation, ..e.clone() }).collect();
        let expected: Vec<f64> = at(&first).iter().map(|x| factor * x).collect();
        prop_assert!(close(&at(&scaled), &expected));
    }

    #[test]
    fn columns_of_a_condition_are_orthogonal(events in events(), spm in any::<bool>()) {
        let model = if spm { HrfModel::SpmDispersion } else { HrfModel::GloverDispersion };
        let found = design_at(0.0, &events, model);
        for (i, a) in found.columns[..3].iter().enumerate() {
            for b in &found.columns[..i] {
                let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
                prop_assert!(dot(a, b).abs() <= 1e-9 * (dot(a, a) * dot(b, b)).sqrt() + 1e-20);
            }
        }
    }

    #[test]
    fn the_order_of_events_does_not_matter(mut events in events(), model in any_model()) {
        let forwards = design_at(0.0, &events, model);
        events.reverse();
        for (a, b) in forwards.columns.iter().zip(&design_at(0.0, &events, model).columns) {
            prop_assert!(close(a, b));
        }
    }

    #[test]
    fn whatever_comes_is_finite_or_refused(
        rows in prop::collection::vec((anything(), anything(), anything(), any::<Option<bool>>()), 0..6),
        model in any_model(), volumes in 0usize..40, t_r in anything(), start in anything(),
        high_pass in anything(), min_onset in anything(), oversampling in 0usize..60,
        drift_order in 0usize..50, polynomial in any::<bool>(), delay in 0usize..50,
    ) {
        let events: Vec<Event> = rows
            .into_iter()
            .map(|(onset, duration, modulation, condition)| Event {
                onset, duration, modulation, condition: condition.map(|c| c.to_string()),
            })
            .collect();
        let drift_model = if polynomial { DriftModel::Polynomial } else { DriftModel::Cosine };
        let settings = DesignSettings {
            hrf_model: model, drift_model, high_pass, drift_order, min_onset, oversampling, fir_delays: vec![delay],
        };
        let design = FrameTimes::try_new(volumes, t_r, start)
            .and_then(|times| Design::try_new(&times, &events, &[], &settings));
        match design {
            Ok(design) => prop_assert!(design.columns.iter().flatten().all(|x| x.is_finite())),
            Err(e) => prop_assert!(e.is_input()),
        }
    }
}
