//! `.mgh` and `.mgz`.

use super::{expected, fixture, singles};
use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;
use std::io::{Cursor, Write};
use voxelflow_formats::mgh::MghReader;
use voxelflow_formats::{Error, Result};

#[test]
fn values_place_and_repetition_time_are_those_of_nibabel() {
    for (name, case) in expected("mgh") {
        let mut reader = MghReader::open(fixture("mgh").join(&name)).unwrap();
        let header = reader.header().clone();
        assert_eq!(serde_json::json!(header.shape), case["shape"], "{name}");
        assert_eq!(header.data_type.to_string(), case["dtype"].as_str().unwrap(), "{name}");
        for (ours, theirs) in header
            .affine
            .iter()
            .flatten()
            .zip(case["affine"].as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap()))
        {
            assert!((ours - theirs.as_f64().unwrap()).abs() < 1e-5, "{name}: {ours} {theirs}");
        }
        let mut frame = Vec::<f32>::new();
        for frame_of_theirs in case["frames"].as_array().unwrap() {
            assert!(reader.next_frame(&mut frame).unwrap());
            assert_eq!(frame, singles(frame_of_theirs), "{name}");
        }
        assert!(!reader.next_frame(&mut frame).unwrap() && frame.is_empty());
        assert_eq!(reader.t_r().unwrap(), case["t_r"].as_f64(), "{name}");
    }
}

/// FreeSurfer's coronal default (`setDirectionCosine` in mri.c): x to the left, y down, z to the front. nibabel
/// 5.4 has the transpose, which turns the head upside down.
#[test]
fn without_a_place_it_is_that_of_freesurfer() {
    let reader = MghReader::open(fixture("mgh/no_place.mgh")).unwrap();
    assert!(!reader.header().has_place);
    let expected =
        [[-1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, -2.0], [0.0, -1.0, 0.0, 1.5], [0.0, 0.0, 0.0, 1.0]];
    assert_eq!(reader.header().affine, expected);
}

/// A file byte by byte.
fn bytes(shape: [i32; 4], code: i32, values: &[u8], footer: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [1].into_iter().chain(shape).chain([code, 0]) {
        bytes.extend(number.to_be_bytes());
    }
    bytes.resize(284, 0);
    bytes.extend(values);
    bytes.extend(footer);
    bytes
}

fn read(bytes: Vec<u8>) -> Result<(Vec<f32>, Option<f64>)> {
    let mut reader = MghReader::from_reader(Cursor::new(bytes), "x.mgh")?;
    let (mut all, mut frame) = (Vec::new(), Vec::new());
    while reader.next_frame(&mut frame)? {
        all.extend_from_slice(&frame);
    }
    Ok((all, reader.t_r()?))
}

/// The shape of the resting state of the LEMON data: 10,242 vertices, 652 frames.
#[test]
fn a_series_on_a_surface_is_read_frame_by_frame() {
    let (vertices, frames) = (10_242_usize, 652_usize);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&bytes([vertices as i32, 1, 1, frames as i32], 3, &[], &[])).unwrap();
    for frame in 0..frames {
        let values: Vec<u8> =
            (0..vertices).flat_map(|v| ((v % 97) as f32 + frame as f32).to_be_bytes()).collect();
        encoder.write_all(&values).unwrap();
    }
    encoder.write_all(&1400_f32.to_be_bytes()).unwrap();
    let mut reader = MghReader::from_reader(Cursor::new(encoder.finish().unwrap()), "lh.mgz").unwrap();
    assert_eq!((reader.header().values(), reader.header().frames), (vertices, frames));
    let (mut frame, mut count) = (Vec::<f32>::new(), 0);
    while reader.next_frame(&mut frame).unwrap() {
        assert_eq!((frame[0], frame[vertices - 1]), (count as f32, 56.0 + count as f32));
        assert!(frame.capacity() <= vertices);
        count += 1;
    }
    assert_eq!((count, reader.t_r().unwrap()), (frames, Some(1.4)));
}

#[test]
fn what_cannot_be_is_refused_with_field_and_byte() {
    let refusal = |bytes: Vec<u8>| {
        let error = read(bytes).unwrap_err();
        assert!(error.is_input());
        error.to_string()
    };
    let mut other = bytes([1, 1, 1, 1], 3, &[0; 4], &[]);
    other[3] = 2;
    assert!(refusal(other).contains("x.mgh: header field version at byte 0 of the header: it is 2"));
    assert!(
        refusal(bytes([1, 0, 1, 1], 3, &[], &[])).contains("field dims at byte 4 of the header: height is 0")
    );
    assert!(refusal(bytes([1, 1, 1, -3], 3, &[], &[])).contains("frames is -3"));
    assert!(refusal(bytes([i32::MAX; 4], 3, &[], &[])).contains("is too large"));
    assert!(
        refusal(bytes([1, 1, 1, 1], 2, &[], &[])).contains("field type at byte 20 of the header: its code 2")
    );
    assert!(
        refusal(bytes([2, 1, 1, 2], 4, &[0; 7], &[])).contains("it ends at byte 291, inside frame 2 of 2")
    );
    assert!(
        refusal(bytes([2, 1, 1, 2], 4, &[], &[])[..100].to_vec())
            .contains("it ends at byte 100, inside the header")
    );
    let mut torn = bytes([1, 1, 1, 1], 0, &[0], &[]);
    torn[29] = 1;
    torn[30..34].copy_from_slice(&f32::NAN.to_be_bytes());
    assert!(refusal(torn).contains("goodRASFlag is set but spacing"));
    let message = refusal(bytes([1, 1, 1, 1], 0, &[7], &2.5_f32.to_be_bytes()));
    assert!(message.contains("2.5 ms in the footer") && message.contains("stored in seconds?"), "{message}");
    // A name that promises gzip over other content.
    let error = MghReader::from_reader(Cursor::new(bytes([1, 1, 1, 1], 0, &[7], &[])), "x.mgz").unwrap_err();
    assert!(matches!(error, Error::NotGzip { .. }), "{error}");
}

#[test]
fn a_plain_file_cut_short_is_refused_when_it_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.mgh");
    std::fs::write(&path, bytes([2, 1, 1, 2], 4, &[0; 7], &[])).unwrap();
    assert!(matches!(MghReader::open(&path).unwrap_err(), Error::Truncated { offset: 291, .. }));
}

proptest! {
    #[test]
    fn stored_numbers_are_read(
        shape in prop::array::uniform4(1..4_i32),
        code in prop::sample::select(vec![0, 1, 3, 4, 10]),
        seed in prop::collection::vec(any::<i16>(), 81),
        t_r in prop::option::of(20..90_000_u32),
    ) {
        let count = shape.iter().product::<i32>() as usize;
        let mut expected = Vec::new();
        let mut stored = Vec::new();
        for value in &seed[..count] {
            let (number, bytes) = match code {
                0 => (f32::from(*value as u8), vec![*value as u8]),
                1 => (f32::from(*value), i32::from(*value).to_be_bytes().to_vec()),
                3 => (f32::from(*value) / 7.0, (f32::from(*value) / 7.0).to_be_bytes().to_vec()),
                4 => (f32::from(*value), value.to_be_bytes().to_vec()),
                _ => (f32::from(*value as u16), value.to_be_bytes().to_vec()),
            };
            expected.push(number);
            stored.extend(bytes);
        }
        let footer = t_r.map(|t_r| (t_r as f32).to_be_bytes().to_vec()).unwrap_or_default();
        let (values, seconds) = read(bytes(shape, code, &stored, &footer)).unwrap();
        prop_assert_eq!(values, expected);
        prop_assert_eq!(seconds, t_r.map(|t_r| f64::from(t_r) / 1000.0));
    }
}
