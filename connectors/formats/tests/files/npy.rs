//! `.npy`.

use super::{expected, fixture};
use proptest::prelude::*;
use std::io::Cursor;
use voxelflow_formats::npy::{NpyElement, NpyReader, NpyWriter};
use voxelflow_formats::{Error, Result};

#[test]
fn every_type_order_and_version_gives_the_values_of_numpy() {
    let cases = expected("npy");
    assert!(cases.len() >= 26);
    for (name, case) in cases {
        let reader = NpyReader::open(fixture("npy").join(&name)).unwrap();
        assert_eq!(serde_json::json!(reader.header().shape), case["shape"], "{name}");
        let bits = case["bits"].as_array().unwrap();
        let theirs: Vec<f64> = bits.iter().map(|bits| f64::from_bits(bits.as_u64().unwrap())).collect();
        assert_eq!(reader.read_all::<f64>().unwrap(), theirs, "{name}");
        let singles: Vec<f32> = theirs.iter().map(|&value| value as f32).collect();
        let reader = NpyReader::open(fixture("npy").join(&name)).unwrap();
        assert_eq!(reader.read_all::<f32>().unwrap(), singles, "{name}");
    }
}

#[test]
fn rows_are_stretches_of_the_slowest_dimension() {
    let rows = |name: &str| {
        let mut reader = NpyReader::open(fixture("npy").join(name)).unwrap();
        let (mut rows, mut row) = (Vec::<Vec<f64>>::new(), Vec::new());
        while reader.next_row(&mut row).unwrap() {
            rows.push(row.clone());
        }
        assert!(row.is_empty());
        rows
    };
    assert_eq!(rows("f4_le.npy").iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 4]);
    assert_eq!(rows("fortran.npy").iter().map(Vec::len).collect::<Vec<_>>(), [6, 6, 6, 6]);
    assert_eq!(rows("scalar.npy"), [[2.5]]);
    assert!(rows("empty.npy").is_empty());
}

/// A version 1 file.
fn file(literal: &str, values: &[u8]) -> Vec<u8> {
    [&b"\x93NUMPY\x01\x00"[..], &(literal.len() as u16).to_le_bytes(), literal.as_bytes(), values].concat()
}

fn read(bytes: Vec<u8>) -> Result<Vec<f64>> {
    NpyReader::from_reader(Cursor::new(bytes), "x.npy")?.read_all()
}

#[test]
fn literals_of_other_writers_are_read() {
    for literal in [
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }          \n",
        "{\"shape\":(2L,),\"fortran_order\":True,\"descr\":\"<i2\"}",
        " { 'fortran_order' : False , 'shape' : ( 2 , ) , 'descr' : '<i2' , } \n",
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2)}",
    ] {
        assert_eq!(read(file(literal, &[1, 0, 255, 255])).unwrap(), [1.0, -1.0], "{literal}");
    }
    assert_eq!(
        read(file("{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}", &[1, 0])).unwrap(),
        [1.0, 0.0]
    );
}

#[test]
fn what_cannot_be_is_refused_with_its_byte() {
    let literal = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}";
    assert_eq!(read(file(literal, &1_f32.to_le_bytes())).unwrap(), [1.0]);
    for (from, to, message) in [
        ("<f4", "<c8", "byte 10 of the header: its type '<c8' is not a number type"),
        ("<f4", "|O", "its type '|O' is not a number type"),
        ("<f4", "=f4", "its type '=f4'"),
        ("'<f4'", "[('a', '<f4')]", "byte 20 of the header: a text in quotes is missing"),
        ("False", "false", "byte 44 of the header: True or False is missing"),
        ("(1,)", "(-1,)", "byte 61 of the header: a length is missing or too large"),
        ("(1,)", "(99999999999999999999,)", "a length is missing or too large"),
        ("(1,)", "(9999999999,9999999999)", "is too large"),
        ("(1,)", "(1,", "a length is missing"),
        ("(1,)", "(1", "')' is missing"),
        ("(1,)}", "(1,)", "'}' is missing"),
        ("(1,)}", "(1,)}}", "something follows the closing brace"),
        ("shape", "form", "the key 'form' is unknown"),
        ("'shape': (1,)", "'descr': '<f4'", "the key 'descr' is there twice"),
        (", 'shape': (1,)", "", "it lacks one of the keys"),
        ("'shape': (1,)", "'shape", "a quote is not closed"),
    ] {
        let error = read(file(&literal.replace(from, to), &[0; 4])).unwrap_err();
        assert!(error.is_input() && matches!(error, Error::Header { field: "npy", .. }), "{error:?}");
        assert!(error.to_string().contains(message), "{to}: {error}");
    }
    let refusal = |bytes: &[u8]| read(bytes.to_vec()).unwrap_err().to_string();
    assert!(
        refusal(b"PK\x03\x04 a zip file").contains("byte 0 of the header: it begins with \"PK\\x03\\x04 a\"")
    );
    assert!(refusal(b"\x93NUMPY\x04\x00").contains("byte 6 of the header: its version is 4"));
    assert!(refusal(b"\x93NUMPY\x02\x00\xff\xff\xff\xff").contains("its length is 4294967295 bytes"));
    assert!(refusal(b"\x93NUM").contains("ends at byte 4, inside the header"));
    assert!(refusal(b"\x93NUMPY\x01\x00\x02\x00{\xff").contains("byte 11 of the header: it is not text"));
    assert!(refusal(&file(literal, &[0; 3])).contains("inside the array"));
}

fn written<T: NpyElement>(shape: &[usize], values: &[T]) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    let mut writer = NpyWriter::<T>::create(&path, shape).unwrap();
    values.chunks(3).for_each(|part| writer.write(part).unwrap());
    writer.finish().unwrap();
    (folder, path)
}

/// The bytes that `numpy.save` writes.
#[test]
fn a_line_is_written_as_numpy_writes_it() {
    let path = fixture("npy/line.npy");
    let values: Vec<f64> = NpyReader::open(&path).unwrap().read_all().unwrap();
    let (_folder, ours) = written(&[5], &values);
    assert_eq!(std::fs::read(ours).unwrap(), std::fs::read(path).unwrap());
}

#[test]
fn an_array_that_is_not_whole_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    let mut writer = NpyWriter::<f32>::create(&path, &[2, 2]).unwrap();
    writer.write(&[1.0; 3]).unwrap();
    assert!(
        writer
            .write(&[1.0; 2])
            .unwrap_err()
            .to_string()
            .contains("1 number(s) are left of its shape, 2 came")
    );
    assert!(writer.finish().unwrap_err().to_string().contains("1 number(s) are missing"));
    assert!(NpyWriter::<f32>::create(&path, &[usize::MAX, 2]).is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

proptest! {
    #[test]
    fn what_is_written_is_read(shape in prop::collection::vec(1..5_usize, 0..4), seed in prop::collection::vec(any::<u64>(), 64)) {
        let count: usize = shape.iter().product();
        let doubles: Vec<f64> = seed[..count].iter().map(|&bits| f64::from_bits(bits)).collect();
        let (_folder, path) = written(&shape, &doubles);
        let reader = NpyReader::open(&path).unwrap();
        prop_assert_eq!(&reader.header().shape, &shape);
        let read: Vec<u64> = reader.read_all::<f64>().unwrap().iter().map(|value| value.to_bits()).collect();
        prop_assert_eq!(&read[..], &seed[..count]);

        let shorts: Vec<i16> = seed[..count].iter().map(|&bits| bits as i16).collect();
        let (_folder, path) = written(&shape, &shorts);
        let read: Vec<f32> = NpyReader::open(&path).unwrap().read_all().unwrap();
        prop_assert_eq!(read, shorts.iter().map(|&value| f32::from(value)).collect::<Vec<_>>());
    }
}
