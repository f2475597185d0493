//! Events by condition, identical ones made one.

use super::report::{DesignReport, Outcome};
use crate::{Error, Result};
use std::{cmp::Ordering, collections::HashMap};

/// The condition of events in a run whose events have none.
const DUMMY: &str = "dummy";

/// Something that happened in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Seconds from the beginning of the first volume; negative when it came before.
    pub onset: f64,
    /// Seconds, at least 0; 0 is an impulse, one fine bin long.
    pub duration: f64,
    /// What happened (`trial_type`).
    pub condition: Option<String>,
    /// Height of the regressor while it lasts, mostly 1.
    pub modulation: f64,
}

/// The events of one condition, in the order in which they were written.
pub(super) struct Condition {
    pub name: String,
    pub events: Vec<Placed>,
}

/// An event, and where it stood in what was given.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    pub index: usize,
    pub onset: f64,
    pub duration: f64,
    pub modulation: f64,
}

/// Conditions in the order of their columns: sorted by name, by number where all names are numbers.
///
/// Events of the same condition, onset and duration are one event whose modulation is the sum of theirs. If no event
/// has a condition, all are `dummy`; where some have, those without are left out.
pub(super) fn group(events: &[Event], report: &mut DesignReport) -> Result<Vec<Condition>> {
    let named = events.iter().any(|event| event.condition.is_some());
    let mut conditions: Vec<Condition> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut known: HashMap<(usize, u64, u64), usize> = HashMap::new();
    for (index, event) in events.iter().enumerate() {
        check(index, event)?;
        let name = match &event.condition {
            Some(name) => name.as_str(),
            None if named => {
                report.note(index, Outcome::WithoutCondition);
                continue;
            }
            None => DUMMY,
        };
        let place = *places.entry(name).or_insert_with(|| {
            conditions.push(Condition { name: name.to_owned(), events: Vec::new() });
            conditions.len() - 1
        });
        let events = &mut conditions[place].events;
        // Adding zero makes a negative zero positive.
        let key = (place, (event.onset + 0.0).to_bits(), (event.duration + 0.0).to_bits());
        match known.get(&key) {
            Some(at) => {
                events[*at].modulation += event.modulation;
                report.note(index, Outcome::Merged { into: events[*at].index });
            }
            None => {
                known.insert(key, events.len());
                let Event { onset, duration, modulation, .. } = *event;
                events.push(Placed { index, onset, duration, modulation });
            }
        }
    }
    report.dummy = !named && !events.is_empty();
    let order = order(&conditions);
    conditions.sort_by(order);
    Ok(conditions)
}

fn check(index: usize, event: &Event) -> Result<()> {
    let wrong = |reason: String| Err(Error::Event { index, reason });
    if !event.onset.is_finite() {
        return wrong(format!("its onset is {}: it has no place in time", event.onset));
    }
    if !(event.duration.is_finite() && event.duration >= 0.0) {
        return wrong(format!("its duration is {}; it must be 0 s or more", event.duration));
    }
    if !event.modulation.is_finite() {
        return wrong(format!("its modulation is {}; it must be a finite number", event.modulation));
    }
    Ok(())
}

/// By number where all are numbers, as pandas reads such a column; else by name.
fn order(conditions: &[Condition]) -> fn(&Condition, &Condition) -> Ordering {
    let number = |condition: &Condition| condition.name.parse::<f64>().ok().filter(|n| n.is_finite());
    if conditions.iter().all(|condition| number(condition).is_some()) {
        |a, b| {
            let number = |condition: &Condition| condition.name.parse::<f64>().unwrap_or_default();
            number(a).total_cmp(&number(b)).then_with(|| a.name.cmp(&b.name))
        }
    } else {
        |a, b| a.name.cmp(&b.name)
    }
}
