//! Events of BIDS and EV files of FSL.

use proptest::prelude::*;
use voxelflow_formats::table::{EvEvent, EvFile, Event, Events};
use voxelflow_formats::{Error, Result};

fn events(text: &str) -> Result<Events> {
    Events::from_reader(text.as_bytes(), "e.tsv")
}

/// Events before the run, events after it, and no trial type are legal (the consumer judges what reaches in).
#[test]
fn early_and_late_onsets_and_no_trial_type_are_read() {
    let read = events("onset\tduration\n-5\t2\n9999\t0\n4.5\tn/a\n").unwrap();
    let event = |onset, duration, line| Event { onset, duration, trial_type: None, line };
    assert_eq!(read.events(), [event(-5.0, Some(2.0), 2), event(9999.0, Some(0.0), 3), event(4.5, None, 4)]);
}

#[test]
fn columns_stand_in_any_order_and_others_are_kept_as_text() {
    let text = "trial_type\tresponse\tduration\tonset\nface\t1\t2\t0\nn/a\tleft\t2.5\t12.25\n";
    let read = events(text).unwrap();
    let types: Vec<_> = read.events().iter().map(|event| event.trial_type.as_deref()).collect();
    assert_eq!(types, [Some("face"), None]);
    assert_eq!(read.events()[1].onset, 12.25);
    assert_eq!(read.table().text("response").unwrap(), [Some("1"), Some("left")]);
}

#[test]
fn what_cannot_be_placed_is_refused() {
    let refusal = |text: &str| events(text).unwrap_err().to_string();
    assert!(refusal("onset\ttrial_type\n1\ta\n").contains("there is no column 'duration'"));
    assert!(refusal("Onset\tduration\n1\t1\n").contains("there is no column 'onset'; its columns are Onset"));
    assert!(refusal("onset\tduration\nn/a\t1\n").contains("line 2, column onset: an event without onset"));
    assert!(refusal("onset\tduration\n1\t1\n1\t-1\n").contains("line 3, column duration: -1 s is negative"));
    assert!(refusal("onset\tduration\n1 s\t1\n").contains("'1 s' is not a number"));
}

#[test]
fn ev_files_have_three_columns() {
    let read = EvFile::from_reader(&b"10.5  12 1\n\n-3\t0\t-0.5\r\n"[..], "cue.txt").unwrap();
    assert_eq!(
        read.events,
        [
            EvEvent { onset: 10.5, duration: 12.0, amplitude: 1.0, line: 1 },
            EvEvent { onset: -3.0, duration: 0.0, amplitude: -0.5, line: 3 }
        ]
    );
    assert!(EvFile::from_reader(&b""[..], "never.txt").unwrap().events.is_empty());
    let refusal = |text: &str| EvFile::from_reader(text.as_bytes(), "cue.txt").unwrap_err();
    assert_eq!(
        refusal("1 2 1\n1 2\n").to_string(),
        "cue.txt: line 2: it has 2 number(s), not 3: onset, duration, amplitude"
    );
    assert!(refusal("1 x 1").to_string().contains("line 1: value 2 is 'x', not a finite number"));
    assert!(refusal("1 nan 1").to_string().contains("'nan', not a finite"));
    assert!(refusal("1 -2 1").to_string().contains("the duration -2 s is negative"));
    assert!(matches!(refusal("1 2 1 4"), Error::Line { line: 1, .. }));
}

proptest! {
    #[test]
    fn written_events_are_read(rows in prop::collection::vec((-1e6..1e6_f64, 0.0..1e4_f64, "[a-z]{1,8}"), 0..20)) {
        let mut text = "onset\tduration\ttrial_type\n".to_owned();
        for (onset, duration, name) in &rows {
            text.push_str(&format!("{onset}\t{duration}\t{name}\n"));
        }
        let read = events(&text).unwrap();
        prop_assert_eq!(read.events().len(), rows.len());
        for ((onset, duration, name), event) in rows.iter().zip(read.events()) {
            prop_assert_eq!((*onset, Some(*duration)), (event.onset, event.duration));
            let null = name == "nan";
            prop_assert_eq!(event.trial_type.as_deref(), Some(&name[..]).filter(|_| !null));
        }
    }
}
