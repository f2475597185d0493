//! JSON sidecars: keys by name and kind, inheritance, and whose repetition time counts.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use voxelflow_formats::sidecar::{ConfoundsSidecar, Sidecar, repetition_time};
use voxelflow_formats::{Error, NiftiHeader, NiftiReader, NiftiSpec, NiftiWriter};

fn sidecar(text: &str) -> Result<Sidecar, Error> {
    Sidecar::from_reader(text.as_bytes(), "s.json")
}

/// The header of an image of two volumes.
fn header(t_r: Option<f64>) -> NiftiHeader {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.nii");
    let mut spec = NiftiSpec::new([1, 1, 1], 2);
    spec.t_r = t_r;
    let mut writer = NiftiWriter::create(&path, &spec).unwrap();
    writer.write_volume(&[1.0]).unwrap();
    writer.write_volume(&[2.0]).unwrap();
    writer.finish().unwrap();
    NiftiReader::open(&path).unwrap().header().clone()
}

#[test]
fn keys_are_read_and_unknown_ones_passed_over() {
    let text =
        r#"{"RepetitionTime": 2, "StartTime": 0.5, "VolumeTiming": null, "Manufacturer": {"name": ["x"]}}"#;
    let read = sidecar(text).unwrap();
    assert_eq!((read.repetition_time, read.start_time, read.volume_timing), (Some(2.0), Some(0.5), None));
    assert_eq!(sidecar("\u{feff}{}").unwrap(), Sidecar::default());
}

/// As Python's `json.dumps` writes them, which pybids and nilearn read.
#[test]
fn nan_and_infinity_are_null_and_unused_keys_are_not_judged() {
    let text = r#"{"EchoTime": NaN, "StartTime": -Infinity, "RepetitionTime": 0.8, "Note": "NaN \" Infinity",
        "VolumeTiming": [0, NaN], "SliceTiming": [NaN, "x"], "TaskName": 3, "SkullStripped": "n/a", "x": [Infinity]}"#;
    let read = sidecar(text).unwrap();
    assert_eq!((read.repetition_time, read.start_time, read.volume_timing), (Some(0.8), None, None));
    assert_eq!(sidecar(r#"{"RepetitionTime": NaN}"#).unwrap().repetition_time, None);
    for broken in
        [r#"{"RepetitionTime": NaNN}"#, r#"{"RepetitionTime": --Infinity}"#, "{NaN: 1}", "{\"a\": \"NaN"]
    {
        assert!(sidecar(broken).is_err(), "{broken}");
    }
    let notes =
        r#"{"a_comp_cor_00": {"Mask": "CSF", "Method": "aCompCor", "Retained": NaN, "SingularValue": "x"}}"#;
    let read = ConfoundsSidecar::from_reader(notes.as_bytes(), "c.json").unwrap();
    assert_eq!(read.notes["a_comp_cor_00"].retained, None);
}

#[test]
fn wrong_kinds_are_named() {
    for (text, message) in [
        (r#"{"RepetitionTime": "2.0"}"#, "s.json: RepetitionTime: it is the text \"2.0\", not a number"),
        (
            r#"{"RepetitionTime": 1500}"#,
            "RepetitionTime: 1500 s is implausible outside 0.01 s to 100 s (milliseconds?)",
        ),
        (r#"{"RepetitionTime": 0}"#, "RepetitionTime: 0 s is implausible"),
        (r#"{"StartTime": -1}"#, "StartTime: -1 s is negative"),
        (r#"{"VolumeTiming": 1}"#, "VolumeTiming: it is the number 1, not a list of numbers"),
        (r#"{"VolumeTiming": [0, "1"]}"#, "VolumeTiming[1]: it is the text \"1\", not a number"),
        (r#"{"VolumeTiming": [0, 2, 2]}"#, "VolumeTiming[2]: it does not rise"),
        ("{\n\"RepetitionTime\": nan}", "s.json: line 2: column 20: not JSON: expected ident"),
        ("[1]", "s.json: line 1: a list of 1 instead of an object"),
        ("", "s.json: line 1: column 0: not JSON: EOF while parsing a value"),
    ] {
        let error = sidecar(text).unwrap_err();
        assert!(error.is_input() && error.to_string().contains(message), "{text}: {error}");
    }
    // Deep nesting ends in a message, not in a stack overflow.
    assert!(sidecar(&"[".repeat(100_000)).unwrap_err().to_string().contains("recursion limit"));
}

/// The sidecar outranks the header; neither is an error; the header alone is judged as it was.
#[test]
fn the_repetition_time_of_the_sidecar_outranks_the_header() {
    let says = sidecar(r#"{"RepetitionTime": 2.0}"#).unwrap();
    let silent = Sidecar::default();
    assert_eq!(repetition_time(Some(&says), &header(None)).unwrap(), 2.0);
    assert_eq!(repetition_time(Some(&says), &header(Some(1.5))).unwrap(), 2.0);
    assert_eq!(repetition_time(Some(&silent), &header(Some(1.5))).unwrap(), 1.5);
    assert_eq!(repetition_time(None, &header(Some(1.5))).unwrap(), 1.5);
    let message = repetition_time(Some(&silent), &header(None)).unwrap_err().to_string();
    assert!(message.contains("x.nii") && message.contains("no sidecar gives one"), "{message}");
    // 1500 labelled as seconds, which the header's reader refuses.
    assert!(repetition_time(None, &header(Some(1500.0))).unwrap_err().to_string().contains("milliseconds?"));
    assert_eq!(repetition_time(Some(&says), &header(Some(1500.0))).unwrap(), 2.0);
}

#[test]
fn notes_of_confounds_are_kept_by_column() {
    let text = r#"{"a_comp_cor_00": {"Mask": "CSF", "Method": "aCompCor", "Retained": true, "SingularValue": 12.5},
        "dropped_0": {"Retained": false}, "n": 1}"#;
    let read = ConfoundsSidecar::from_reader(text.as_bytes(), "c.json").unwrap();
    assert_eq!(read.notes.keys().collect::<Vec<_>>(), ["a_comp_cor_00", "dropped_0"]);
    let note = &read.notes["a_comp_cor_00"];
    assert_eq!((note.mask.as_deref(), note.method.as_deref()), (Some("CSF"), Some("aCompCor")));
    assert_eq!(note.retained, Some(true));
    let wrong = ConfoundsSidecar::from_reader(&br#"{"a": {"Retained": 1}}"#[..], "c.json").unwrap_err();
    assert_eq!(wrong.to_string(), "c.json: a.Retained: it is the number 1, not true or false");
}

proptest! {
    #[test]
    fn nearer_files_outrank_those_above(near in prop::option::of(10..100_000_u32), above in prop::option::of(10..100_000_u32)) {
        let (near, above) = (near.map(|ms| f64::from(ms) / 1000.0), above.map(|ms| f64::from(ms) / 1000.0));
        let make = |seconds: Option<f64>| seconds.map_or_else(Sidecar::default, |t| {
            sidecar(&format!(r#"{{"RepetitionTime": {t}, "StartTime": {t}}}"#)).unwrap()
        });
        let both = make(near).or(make(above));
        prop_assert_eq!(both.repetition_time, near.or(above));
        prop_assert_eq!(both.start_time, near.or(above));
    }
}
