//! `.gii`.

use super::{expected, fixture, singles};
use proptest::prelude::*;
use std::io::Cursor;
use voxelflow_formats::gifti::{GiftiReader, GiftiWriter, Intent, Surface};
use voxelflow_formats::{Error, Result};

#[test]
fn every_encoding_order_and_type_gives_the_values_of_nibabel() {
    let cases = expected("gifti");
    assert!(cases.len() >= 12);
    for (name, case) in cases {
        let mut reader = GiftiReader::open(fixture("gifti").join(&name)).unwrap();
        let header = reader.header().clone();
        let metadata: serde_json::Map<_, _> =
            header.metadata.iter().map(|(k, v)| (k.to_owned(), v.into())).collect();
        assert_eq!(serde_json::Value::Object(metadata), case["metadata"], "{name}");
        let labels: Vec<_> =
            header.labels.iter().map(|l| serde_json::json!([l.key, l.name, l.colour.unwrap()])).collect();
        assert_eq!(serde_json::json!(labels), case["labels"], "{name}");
        for theirs in case["arrays"].as_array().unwrap() {
            let ours = reader.next_array().unwrap().unwrap();
            assert_eq!(ours.intent().name(), theirs["intent"].as_str().unwrap(), "{name}");
            assert_eq!(ours.data_type().to_string(), theirs["dtype"].as_str().unwrap(), "{name}");
            assert_eq!(serde_json::json!(ours.dims()), theirs["dims"], "{name}");
            assert_eq!(ours.values(), singles(&theirs["values"]), "{name}");
            for (key, value) in theirs["metadata"].as_object().unwrap() {
                assert_eq!(ours.metadata().get(key), value.as_str(), "{name}");
            }
        }
        assert!(reader.next_array().unwrap().is_none());
    }
}

#[test]
fn a_time_series_has_its_repetition_time_and_side() {
    let mut reader = GiftiReader::open(fixture("gifti/series_gzip_big.func.gii")).unwrap();
    assert_eq!((reader.header().arrays, reader.header().structure()), (3, Some("CortexLeft")));
    let array = reader.next_array().unwrap().unwrap();
    assert_eq!((array.intent(), array.t_r().unwrap()), (Intent::TimeSeries, Some(0.8)));
    assert!(array.integers().unwrap_err().to_string().contains("float32 numbers are no 32-bit indices"));
}

#[test]
fn a_mesh_has_points_and_triangles() {
    let surface = Surface::read(fixture("gifti/mesh.surf.gii")).unwrap();
    assert_eq!(surface.structure.as_deref(), Some("CortexRight"));
    assert_eq!((surface.points.len(), surface.triangles.len()), (5, 4));
    assert_eq!(surface.triangles[2], [2, 4, 3]);
    let message = Surface::read(fixture("gifti/areas.label.gii")).unwrap_err().to_string();
    assert!(message.contains("this file has none"), "{message}");
}

/// A file of one array.
fn document(attributes: &str, data: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?>\n<GIFTI Version=\"1.0\" NumberOfDataArrays=\"1\">\n\
         <DataArray {attributes}>\n<Data>{data}</Data>\n</DataArray>\n</GIFTI>"
    )
}

fn read(text: &str) -> Result<Vec<f32>> {
    let mut reader = GiftiReader::from_reader(Cursor::new(text.as_bytes().to_vec()), "x.gii")?;
    let mut all = Vec::new();
    while let Some(array) = reader.next_array()? {
        all.extend(array.values());
    }
    Ok(all)
}

const LITTLE: &str = "Intent=\"NIFTI_INTENT_NONE\" DataType=\"NIFTI_TYPE_INT16\" Dimensionality=\"1\" Dim0=\"2\" Endian=\"LittleEndian\"";

#[test]
fn what_cannot_be_is_refused_with_array_and_byte() {
    let base64 = format!("{LITTLE} Encoding=\"Base64Binary\"");
    let ascii = format!("{LITTLE} Encoding=\"ASCII\"");
    assert_eq!(read(&document(&base64, "AQD/ /w==\n")).unwrap(), [1.0, -1.0]);
    assert_eq!(read(&document(&ascii, "<![CDATA[ 3 ]]><!-- --> &#45;4 ")).unwrap(), [3.0, -4.0]);
    let early = base64
        .replace("Base64Binary", "GIFTI_ENCODING_B64BIN")
        .replace("LittleEndian", "GIFTI_ENDIAN_LITTLE");
    assert_eq!(read(&document(&early, "AQD//w==")).unwrap(), [1.0, -1.0]);
    let external = format!("{LITTLE} Encoding=\"ExternalFileBinary\" ExternalFileName=\"a.dat\"");
    for (attributes, data, message) in [
        (&base64[..], "AQD/", "array 1, Data: it holds 3 bytes"),
        (&base64, "AQD/?/8=", "it is not base 64"),
        (&ascii, "1", "it holds 2 bytes, which is 1 number(s) of int16, not the 2 of its dimensions [2]"),
        (&ascii, "1 2.5", "number 2 is '2.5', not a value of int16"),
        (&ascii, "1 40000", "number 2 is '40000', not a value of int16"),
        (&ascii, "1 <b/> 2", "it holds an element instead of text"),
        (&ascii, "1 &nbsp; 2", "an unknown entity"),
        (&external, "", "its numbers lie in another file, 'a.dat'"),
        (&base64.replace("LittleEndian", "Middle"), "", "its Endian 'Middle' is unknown"),
        (
            &base64.replace("INT16", "RGB24"),
            "",
            "its DataType 'NIFTI_TYPE_RGB24' is no integer or float type",
        ),
        (&base64.replace("Dim0=\"2\"", ""), "", "it has no attribute Dim0"),
        (&base64.replace("Dim0=\"2\"", "Dim0=\"-2\""), "", "its Dim0 '-2' is not a number"),
        (&base64.replace("ality=\"1\"", "ality=\"9\""), "", "its Dimensionality 9 is not 1 to 6"),
        (&base64.replace("Dim0=\"2\"", &format!("Dim0=\"{}\"", usize::MAX)), "", "are too large"),
        (
            &base64.replace("Base64Binary", "GZipBase64Binary"),
            "AQD/",
            "damaged compressed data after 0 bytes",
        ),
    ] {
        let error = read(&document(attributes, data)).unwrap_err();
        assert!(matches!(error, Error::Xml { offset: 50.., .. }), "{error:?}");
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn documents_that_are_not_whole_or_not_gifti_are_refused() {
    let whole = document(&format!("{LITTLE} Encoding=\"ASCII\""), "1 2");
    for cut in [whole.len() - 3, whole.len() - 20, 100, 40] {
        let error = read(&whole[..cut]).unwrap_err();
        assert!(matches!(error, Error::Truncated { .. } | Error::Xml { .. }), "{cut}: {error:?}");
    }
    assert!(
        read(&whole.replace("Arrays=\"1\"", "Arrays=\"2\""))
            .unwrap_err()
            .to_string()
            .contains("it says 2 array(s) and has 1")
    );
    assert!(read(&format!("{whole}<more/>")).unwrap_err().to_string().contains("something follows its end"));
    assert!(read("<html>404</html>").unwrap_err().to_string().contains("the document is not GIFTI"));
    assert!(read("").unwrap_err().to_string().contains("no XML element"));
    assert!(read("<GIFTI></GIFTI>").unwrap_err().to_string().contains("no attribute NumberOfDataArrays"));
    assert!(
        read(&whole.replace("</Data>", "</Date>")).unwrap_err().to_string().contains("not well-formed XML")
    );
    let packed = std::fs::read(fixture("gifti/series_compressed.func.gii.gz")).unwrap();
    let error =
        GiftiReader::from_reader(Cursor::new(packed[..packed.len() - 6].to_vec()), "x.gii.gz").unwrap_err();
    assert!(matches!(error, Error::Truncated { .. }), "{error:?}");
}

#[test]
fn surfaces_whose_triangles_miss_their_points_are_refused() {
    let text = |triangle: &str, value: &str| {
        format!(
            "<GIFTI NumberOfDataArrays=\"2\"><DataArray Intent=\"NIFTI_INTENT_POINTSET\" DataType=\"NIFTI_TYPE_FLOAT32\" \
             Dimensionality=\"2\" Dim0=\"1\" Dim1=\"3\" Encoding=\"ASCII\"><Data>0 0 {value}</Data></DataArray>\
             <DataArray Intent=\"NIFTI_INTENT_TRIANGLE\" DataType=\"NIFTI_TYPE_INT32\" Dimensionality=\"2\" Dim0=\"1\" \
             Dim1=\"3\" Encoding=\"ASCII\"><Data>{triangle}</Data></DataArray></GIFTI>"
        )
    };
    let read = |text: String| Surface::from_reader(Cursor::new(text.into_bytes()), "x.surf.gii");
    assert_eq!(read(text("0 0 0", "1")).unwrap().points, [[0.0, 0.0, 1.0]]);
    assert!(
        read(text("0 0 1", "1"))
            .unwrap_err()
            .to_string()
            .contains("triangle 0 has the vertices [0, 0, 1], but there are 1")
    );
    assert!(read(text("0 -1 0", "1")).unwrap_err().to_string().contains("triangle 0"));
    assert!(read(text("0 0 0", "nan")).unwrap_err().to_string().contains("vertex 0 is at"));
    assert!(
        read(text("0 0 0", "1").replace("TRIANGLE", "POINTSET"))
            .unwrap_err()
            .to_string()
            .contains("two of its kind")
    );
}

#[test]
fn the_repetition_time_must_be_plausible() {
    let with = |step: &str| {
        let text = document(&format!("{LITTLE} Encoding=\"ASCII\""), "1 2").replace(
            "<Data>",
            &format!("<MetaData><MD><Name>TimeStep</Name><Value>{step}</Value></MD></MetaData><Data>"),
        );
        let mut reader = GiftiReader::from_reader(Cursor::new(text.into_bytes()), "x.gii").unwrap();
        reader.next_array().unwrap().unwrap().t_r()
    };
    assert_eq!(with("2000.000000").unwrap(), Some(2.0));
    assert_eq!(with("0").unwrap(), None);
    assert!(with("2.0").unwrap_err().to_string().contains("stored in seconds?"));
    assert!(with("abc").unwrap_err().to_string().contains("which is no number"));
}

#[test]
fn a_file_that_is_not_finished_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("map.shape.gii");
    let mut writer = GiftiWriter::create(&path, 2, 2, Intent::Shape, &[]).unwrap();
    writer.write_array(&[1.0, 2.0], &[]).unwrap();
    assert!(writer.write_array(&[1.0], &[]).unwrap_err().to_string().contains("array 2 has 1 values for 2"));
    assert!(writer.finish().unwrap_err().to_string().contains("1 of 2 arrays were written"));
    assert!(GiftiWriter::create(folder.path().join("map.nii"), 2, 2, Intent::Shape, &[]).is_err());
    assert!(GiftiWriter::create(&path, 0, 2, Intent::Shape, &[]).is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

proptest! {
    #[test]
    fn what_is_written_is_read_bit_for_bit(
        arrays in (1..5_usize).prop_flat_map(|n| prop::collection::vec(prop::collection::vec(any::<u32>(), n), 1..4)),
        name in "[ -~éß]{1,12}", value in "[ -~éß]{0,12}",
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.func.gii");
        let mut writer = GiftiWriter::create(&path, arrays[0].len(), arrays.len(), Intent::TimeSeries, &[(&name, &value)]).unwrap();
        for bits in &arrays {
            let values: Vec<f32> = bits.iter().map(|bits| f32::from_bits(*bits)).collect();
            writer.write_array(&values, &[("TimeStep", "720")]).unwrap();
        }
        writer.finish().unwrap();
        let mut reader = GiftiReader::open(&path).unwrap();
        prop_assert_eq!(reader.header().metadata.get(name.trim()), Some(value.trim()));
        for bits in &arrays {
            let array = reader.next_array().unwrap().unwrap();
            let read: Vec<u32> = array.values().iter().map(|value| value.to_bits()).collect();
            prop_assert_eq!(&read, bits);
            prop_assert_eq!(array.t_r().unwrap(), Some(0.72));
        }
        prop_assert!(reader.next_array().unwrap().is_none());
    }
}
