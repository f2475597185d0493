//! `.dtseries.nii` and `.dscalar.nii`.

use super::{expected, fixture, singles};
use proptest::prelude::*;
use serde_json::Value;
use std::io::Cursor;
use voxelflow_formats::cifti::{Along, CiftiHeader, CiftiReader, Places};
use voxelflow_formats::{Error, NiftiReader, Result};

#[test]
fn values_and_places_are_those_of_nibabel() {
    for (name, case) in expected("cifti") {
        let path = fixture("cifti").join(&name);
        let mut reader = CiftiReader::open(&path).unwrap();
        let header = reader.header().clone();
        // [points, grayordinates], as nibabel has them.
        let rows: Vec<Vec<f32>> = case["values"].as_array().unwrap().iter().map(singles).collect();
        let mut series = Vec::<f32>::new();
        for grayordinate in 0..header.grayordinates() {
            assert!(reader.next_series(&mut series).unwrap());
            let theirs: Vec<f32> = rows.iter().map(|row| row[grayordinate]).collect();
            assert_eq!(series, theirs, "{name}: {grayordinate}");
        }
        assert!(!reader.next_series(&mut series).unwrap() && series.is_empty());
        for (point, row) in rows.iter().enumerate() {
            assert_eq!(
                &CiftiReader::open(&path).unwrap().time_points(point..point + 1).unwrap(),
                row,
                "{name}"
            );
        }
        assert_eq!(
            CiftiReader::open(&path).unwrap().time_points(0..rows.len()).unwrap(),
            rows.concat(),
            "{name}"
        );

        compare_places(&name, &header, &case);
        match &header.along {
            Along::Series(axis) => {
                assert_eq!(serde_json::json!(axis.start), case["series"]["start"]);
                assert_eq!(axis.t_r(), case["series"]["step"].as_f64());
            }
            Along::Scalars(names) => assert_eq!(serde_json::json!(names), case["names"]),
            other => panic!("{other:?}"),
        }
    }
}

/// Structures, vertices, voxels and the volume, as nibabel lists them by grayordinate.
fn compare_places(name: &str, header: &CiftiHeader, case: &Value) {
    let structures: Vec<_> = header
        .models
        .iter()
        .map(|m| serde_json::json!([m.structure, m.offset, m.offset + m.count]))
        .collect();
    assert_eq!(serde_json::json!(structures), case["structures"], "{name}");
    let (mut vertices, mut voxels) = (Vec::new(), Vec::new());
    for model in &header.models {
        match &model.places {
            Places::Surface { vertices: here, vertices_of_surface } => {
                assert_eq!(*vertices_of_surface, 10);
                vertices.extend(here.iter().map(|&vertex| i64::from(vertex)));
                voxels.extend(here.iter().map(|_| [-1; 3]));
            }
            Places::Volume { voxels: here } => {
                vertices.extend(here.iter().map(|_| -1));
                voxels.extend(here.iter().map(|voxel| voxel.map(i64::from)));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(serde_json::json!(vertices), case["vertices"], "{name}");
    assert_eq!(serde_json::json!(voxels), case["voxels"], "{name}");
    assert_eq!(serde_json::json!(header.volume.as_ref().map(|v| v.affine)), case["affine"], "{name}");
    assert_eq!(serde_json::json!(header.volume.as_ref().map(|v| v.shape)), case["volume_shape"], "{name}");
}

/// A file whose parts can be replaced.
struct Parts {
    xml: String,
    dim: [i64; 8],
    intent: i32,
    values: Vec<u8>,
}

impl Parts {
    fn new() -> Self {
        Self {
            xml: XML.into(),
            dim: [6, 1, 1, 1, 1, 2, 3, 1],
            intent: 3002,
            values: floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        }
    }

    fn with_xml(from: &str, to: &str) -> Self {
        assert!(XML.contains(from), "{from}");
        Self { xml: XML.replace(from, to), ..Self::new() }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 544];
        bytes[..4].copy_from_slice(&540_i32.to_le_bytes());
        bytes[4..12].copy_from_slice(b"n+2\0\r\n\x1a\n");
        bytes[12..14].copy_from_slice(&16_i16.to_le_bytes());
        for (index, length) in self.dim.iter().enumerate() {
            bytes[16 + 8 * index..][..8].copy_from_slice(&length.to_le_bytes());
        }
        bytes[504..508].copy_from_slice(&self.intent.to_le_bytes());
        bytes[540] = 1;
        // Another extension stands first.
        let comment = b"a comment, 24 bytes long";
        let padded = (self.xml.len() + 8).next_multiple_of(16);
        for (size, code, content) in [(32, 6_i32, &comment[..]), (padded, 32, self.xml.as_bytes())] {
            bytes.extend((size as i32).to_le_bytes());
            bytes.extend(code.to_le_bytes());
            bytes.extend(content);
            bytes.resize(bytes.len().next_multiple_of(16), 0);
        }
        let offset = bytes.len() as i64;
        bytes[168..176].copy_from_slice(&offset.to_le_bytes());
        bytes.extend(&self.values);
        bytes
    }

    fn read(&self) -> Result<Vec<f32>> {
        let reader = CiftiReader::from_reader(Cursor::new(self.bytes()), "x.dtseries.nii")?;
        let points = reader.header().along.len();
        reader.time_points(0..points)
    }

    fn refusal(&self) -> String {
        let error = self.read().unwrap_err();
        assert!(error.is_input());
        error.to_string()
    }
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

const XML: &str = r#"<CIFTI Version="2"><Matrix><MetaData><MD><Name>Provenance</Name><Value>x</Value></MD></MetaData>
<MatrixIndicesMap AppliesToMatrixDimension="0" IndicesMapToDataType="CIFTI_INDEX_TYPE_SERIES" NumberOfSeriesPoints="2"
 SeriesExponent="-3" SeriesStart="0" SeriesStep="720" SeriesUnit="SECOND"/>
<MatrixIndicesMap AppliesToMatrixDimension="1" IndicesMapToDataType="CIFTI_INDEX_TYPE_BRAIN_MODELS">
<Volume VolumeDimensions="2,2,2"><TransformationMatrixVoxelIndicesIJKtoXYZ MeterExponent="0">-0.002 0 0 0.09
0 0.002 0 -0.126 0 0 0.002 -0.072 0 0 0 1</TransformationMatrixVoxelIndicesIJKtoXYZ></Volume>
<BrainModel IndexOffset="2" IndexCount="1" ModelType="CIFTI_MODEL_TYPE_VOXELS" BrainStructure="CIFTI_STRUCTURE_BRAIN_STEM"><VoxelIndicesIJK>1 0 1</VoxelIndicesIJK></BrainModel>
<BrainModel IndexOffset="0" IndexCount="2" ModelType="CIFTI_MODEL_TYPE_SURFACE" BrainStructure="CIFTI_STRUCTURE_CORTEX_LEFT" SurfaceNumberOfVertices="5"><VertexIndices>4 1</VertexIndices></BrainModel>
</MatrixIndicesMap></Matrix></CIFTI>"#;

#[test]
fn exponents_units_and_the_order_of_models_are_applied() {
    let parts = Parts::new();
    assert_eq!(parts.read().unwrap(), [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
    let reader = CiftiReader::from_reader(Cursor::new(parts.bytes()), "x.dtseries.nii").unwrap();
    let header = reader.header();
    let Along::Series(axis) = &header.along else { panic!("{header:?}") };
    assert_eq!(axis.t_r(), Some(0.72));
    assert_eq!(header.models[0].structure, "CIFTI_STRUCTURE_CORTEX_LEFT");
    assert_eq!(header.volume.as_ref().unwrap().affine[1], [0.0, 2.0, 0.0, -126.0]);
    assert_eq!(header.metadata.get("Provenance"), Some("x"));
    let hertz = Parts::with_xml("SECOND", "HERTZ");
    let reader = CiftiReader::from_reader(Cursor::new(hertz.bytes()), "x").unwrap();
    assert!(matches!(&reader.header().along, Along::Series(axis) if axis.t_r().is_none()));
}

#[test]
fn what_does_not_fit_is_refused_with_its_place() {
    for (from, to, message) in [
        (
            "IndexOffset=\"2\"",
            "IndexOffset=\"3\"",
            "CIFTI_STRUCTURE_BRAIN_STEM: its IndexOffset is 3, but the models before it end at 2",
        ),
        ("IndexOffset=\"2\"", "IndexOffset=\"1\"", "its IndexOffset is 1, but the models before it end at 2"),
        ("IndexCount=\"2\"", "IndexCount=\"3\"", "its IndexCount is 3, and 2 are listed"),
        (">4 1<", ">4 4<", "the vertex 4 is there twice"),
        (">4 1<", ">5 1<", "beyond the surface's 5 vertices"),
        (">4 1<", ">4 -1<", "number 2 is '-1', which cannot be"),
        (">1 0 1<", ">1 0 2<", "the voxel [1, 0, 2] lies outside the volume of [2, 2, 2]"),
        (">1 0 1<", ">1 0<", "its lists of vertices or voxels do not fit"),
        ("TYPE_VOXELS", "TYPE_SURFACE", "its lists of vertices or voxels do not fit"),
        ("\"2,2,2\"", "\"2,2\"", "are '2 2', not three"),
        ("0 0 0 1</Tr", "0 0 1 1</Tr", "it is not 16 finite numbers"),
        ("MeterExponent=\"0\"", "MeterExponent=\"2000000000\"", "it is not 16 finite numbers"),
        ("Points=\"2\"", "Points=\"3\"", "dim[5] and dim[6] are 2 and 3, but the XML has 3 and 3"),
        ("Exponent=\"-3\"", "Exponent=\"0\"", "its SeriesStep is 720 s, implausible"),
        ("Exponent=\"-3\"", "Exponent=\"-2147483648\"", "its SeriesStep is 0 s, implausible"),
        ("\"SECOND\"", "\"MINUTE\"", "its SeriesUnit 'MINUTE' is unknown"),
        ("TYPE_SERIES", "TYPE_PARCELS", "only dense series and dense scalars are read"),
        ("Dimension=\"0\"", "Dimension=\"1\"", "dimension 1 is CIFTI_INDEX_TYPE_SERIES"),
        ("Version=\"2\"", "Version=\"1\"", "its version is '1', not 2"),
        ("</CIFTI>", "</CIFTI", "XML"),
        ("<CIFTI Version=\"2\">", "<GIFTI Version=\"2\">", "the document is not CIFTI"),
    ] {
        let message_of_ours = Parts::with_xml(from, to).refusal();
        assert!(message_of_ours.contains(message), "{to}: {message_of_ours}");
    }
    let without_volume =
        XML[..XML.find("<Volume").unwrap()].to_owned() + &XML[XML.find("<BrainModel").unwrap()..];
    assert!(Parts { xml: without_volume, ..Parts::new() }.refusal().contains("the file has no Volume"));
    let twice = XML.replace(
        "</MatrixIndicesMap></Matrix>",
        "</MatrixIndicesMap><MatrixIndicesMap AppliesToMatrixDimension=\"1\" \
        IndicesMapToDataType=\"CIFTI_INDEX_TYPE_BRAIN_MODELS\"/></Matrix>",
    );
    assert!(Parts { xml: twice, ..Parts::new() }.refusal().contains("a second map applies to dimension 1"));
}

#[test]
fn headers_of_other_files_and_short_files_are_refused() {
    assert!(Parts { intent: 0, ..Parts::new() }.refusal().contains("its intent code 0 is not of CIFTI"));
    assert!(
        Parts { dim: [4, 1, 1, 1, 1, 2, 3, 1], ..Parts::new() }
            .refusal()
            .contains("6 1 1 1 1 and two lengths")
    );
    let huge = Parts { dim: [6, 1, 1, 1, 1, i64::MAX, i64::MAX, 1], ..Parts::new() };
    assert!(huge.refusal().contains("but the XML has 2 and 3"));
    let short = Parts { values: floats(&[0.0; 5]), ..Parts::new() };
    let length = short.bytes().len() as u64;
    assert!(matches!(short.read().unwrap_err(), Error::Truncated { offset, .. } if offset == length));
    assert!(short.refusal().contains("inside grayordinate 3 of 3"));
    let whole = Parts::new().bytes();
    for (cut, place) in [(500, "inside the header"), (600, "extensions"), (900, "extensions")] {
        let error = CiftiReader::from_reader(Cursor::new(whole[..cut].to_vec()), "x.nii").unwrap_err();
        assert!(error.to_string().contains(place), "{error}");
    }
    let mut bad = whole.clone();
    bad[544..548].copy_from_slice(&100_000_i32.to_le_bytes());
    let error = CiftiReader::from_reader(Cursor::new(bad), "x.nii").unwrap_err();
    assert!(
        error.to_string().contains("field esize at byte 544 of the header: the extension's size is 100000"),
        "{error}"
    );
    let mut without = whole;
    without[540] = 0;
    let error = CiftiReader::from_reader(Cursor::new(without), "x.nii").unwrap_err();
    assert!(error.to_string().contains("it has no CIFTI extension"), "{error}");
    // The reader of images says what it is.
    let error = NiftiReader::open(fixture("cifti/series.dtseries.nii")).unwrap_err();
    assert!(error.to_string().contains("make a table STORED AS CIFTI of it"), "{error}");
}

#[test]
fn a_plain_file_cut_short_is_refused_when_it_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.dtseries.nii");
    let whole = Parts::new().bytes();
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert!(matches!(CiftiReader::open(&path).unwrap_err(), Error::Truncated { .. }));
    std::fs::write(&path, &whole).unwrap();
    let error = CiftiReader::open(&path).unwrap().time_points(1..3).unwrap_err();
    assert!(error.to_string().contains("the points 0..2, and 1..3 were asked for"), "{error}");
}

proptest! {
    #[test]
    fn any_series_is_read_by_grayordinate_and_by_point(points in 1..5_usize, vertices in 1..6_usize, start in 0..4_usize, seed in prop::collection::vec(any::<f32>(), 30)) {
        let values = &seed[..points * vertices];
        let list: Vec<String> = (0..vertices).rev().map(|vertex| vertex.to_string()).collect();
        let xml = format!(
            "<CIFTI Version=\"2\"><Matrix><MatrixIndicesMap AppliesToMatrixDimension=\"1\" IndicesMapToDataType=\"CIFTI_INDEX_TYPE_BRAIN_MODELS\">\
             <BrainModel IndexOffset=\"0\" IndexCount=\"{vertices}\" ModelType=\"CIFTI_MODEL_TYPE_SURFACE\" BrainStructure=\"X\" SurfaceNumberOfVertices=\"9\">\
             <VertexIndices>{}</VertexIndices></BrainModel></MatrixIndicesMap><MatrixIndicesMap AppliesToMatrixDimension=\"0\" \
             IndicesMapToDataType=\"CIFTI_INDEX_TYPE_SCALARS\">{}</MatrixIndicesMap></Matrix></CIFTI>",
            list.join(" "), "<NamedMap><MapName>m</MapName></NamedMap>".repeat(points)
        );
        let parts = Parts { xml, dim: [6, 1, 1, 1, 1, points as i64, vertices as i64, 1], intent: 3006, values: floats(values) };
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        let mut reader = CiftiReader::from_reader(Cursor::new(parts.bytes()), "x.dscalar.nii").unwrap();
        let mut series = Vec::<f32>::new();
        for vertex in 0..vertices {
            prop_assert!(reader.next_series(&mut series).unwrap());
            prop_assert_eq!(bits(&series), bits(&values[vertex * points..][..points]));
        }
        let reader = CiftiReader::from_reader(Cursor::new(parts.bytes()), "x.dscalar.nii").unwrap();
        let start = start.min(points);
        let read = reader.time_points(start..points).unwrap();
        let turned: Vec<f32> = (start..points).flat_map(|point| (0..vertices).map(move |vertex| values[vertex * points + point])).collect();
        prop_assert_eq!(bits(&read), bits(&turned));
    }
}
