//! What a file of series or of text is, read to its end: lines for people, each a word and what there is to say.

use crate::image_reader::ImageReader;
use crate::series_file::SeriesFile;
use crate::series_format::OpenSeries;
use crate::text_columns::batches;
use crate::text_file::TextFile;
use crate::{Result, RunKeys, SeriesFormat, Stores, TextTables};
use std::path::Path;
use voxelflow_formats::XformPolicy;
use voxelflow_formats::gifti::{GiftiReader, Intent, Surface};

/// A word, and what there is to say.
pub type FileLine = (&'static str, String);

/// Reads a file whose name says that it is GIFTI, CIFTI-2, MGH, npy, or a table of text; nothing for other names.
///
/// # Errors
/// A file that is damaged, or not what its name says.
pub fn inspect_file(location: &str) -> Result<Option<Vec<FileLine>>> {
    let stores = Stores::default();
    let formats = [SeriesFormat::Gifti, SeriesFormat::Cifti, SeriesFormat::Mgh, SeriesFormat::Npy];
    let named = |endings: &[&str]| endings.iter().any(|ending| location.ends_with(ending));
    if let Some(format) = formats.into_iter().find(|format| named(format.endings())) {
        return match format {
            SeriesFormat::Mgh => mgh(location, &stores),
            SeriesFormat::Gifti if is_mesh(location, &stores)? => mesh(location, &stores),
            _ => series(format, location, &stores),
        }
        .map(Some);
    }
    // Three columns of numbers are called anything: they are no kind by their name.
    let kinds = [
        TextTables::Events,
        TextTables::Confounds,
        TextTables::Tsv,
        TextTables::Movement,
        TextTables::Gradients,
    ];
    match kinds.into_iter().find(|kind| named(kind.wanted().endings)) {
        Some(kind) => text(kind, location, &stores).map(Some),
        None => Ok(None),
    }
}

/// What the values of a file are like.
struct Values {
    low: f32,
    high: f32,
    not_finite: u64,
}

impl Values {
    const NONE: Self = Self { low: f32::INFINITY, high: f32::NEG_INFINITY, not_finite: 0 };

    fn add(&mut self, values: &[f32]) {
        for value in values {
            if value.is_finite() {
                (self.low, self.high) = (self.low.min(*value), self.high.max(*value));
            } else {
                self.not_finite += 1;
            }
        }
    }

    /// Only reading to the end shows that nothing is cut off and that the checksum holds.
    fn line(&self) -> FileLine {
        let Self { low, high, not_finite } = self;
        ("values", format!("{low} to {high}, {not_finite} not finite; read to the end, nothing missing"))
    }
}

fn seconds(t_r: Option<f64>) -> FileLine {
    ("t_r", t_r.map_or("not known: give OPTIONS (t_r …)".into(), |t_r| format!("{t_r} s")))
}

fn keys(location: &str) -> Option<FileLine> {
    let keys = RunKeys::of(Path::new(location));
    let names = ["subject", "session", "task", "run", "space"];
    let known =
        names.iter().zip(keys.values()).filter_map(|(name, value)| Some(format!("{name} {}", value?)));
    let known = known.collect::<Vec<_>>().join(", ");
    (!known.is_empty()).then_some(("keys", known))
}

fn series(format: SeriesFormat, location: &str, stores: &Stores) -> Result<Vec<FileLine>> {
    let file = SeriesFile::probe(location, format, &Default::default(), stores)?;
    let OpenSeries { structures, mut reader, .. } = file.open(stores)?;
    let mut lines = vec![("format", format.to_string())];
    lines.extend(keys(location));
    lines.push(("series", format!("{} of {} points", file.rows, file.points)));
    for structure in structures {
        let name = structure.name.as_deref().unwrap_or("not said");
        let place = match structure.surface_vertices {
            Some(vertices) => format!("{} of {vertices} vertices", structure.rows),
            None => format!("{} voxels", structure.rows),
        };
        lines.push(("structure", format!("{name}: {place}")));
    }
    lines.push(seconds(file.t_r));
    let (mut values, mut part) = (Values::NONE, Vec::new());
    while reader.next(&mut part)? {
        values.add(&part);
    }
    lines.push(values.line());
    Ok(lines)
}

fn is_mesh(location: &str, stores: &Stores) -> Result<bool> {
    let first = GiftiReader::from_reader(stores.open(location)?, location)?.next_array()?;
    Ok(first.is_some_and(|array| matches!(array.intent(), Intent::PointSet | Intent::Triangle)))
}

fn mesh(location: &str, stores: &Stores) -> Result<Vec<FileLine>> {
    let surface = Surface::from_reader(stores.open(location)?, location)?;
    let (points, triangles) = (surface.points.len(), surface.triangles.len());
    Ok(vec![
        ("format", "GIFTI".into()),
        ("structure", surface.structure.unwrap_or_else(|| "not said".into())),
        ("mesh", format!("{points} vertices, {triangles} triangles")),
    ])
}

fn mgh(location: &str, stores: &Stores) -> Result<Vec<FileLine>> {
    let reader = stores.open_image(location, XformPolicy::Agree)?;
    let [i, j, k] = reader.header().shape;
    let ImageReader::Mgh(mut reader) = reader else { return series(SeriesFormat::Mgh, location, stores) };
    if (j, k) == (1, 1) {
        return series(SeriesFormat::Mgh, location, stores);
    }
    let header = reader.header().clone();
    let (mut values, mut frame) = (Values::NONE, Vec::new());
    while reader.next_frame(&mut frame)? {
        values.add(&frame);
    }
    let mut lines = vec![("format", "MGH".into())];
    lines.extend(keys(location));
    lines.push(("shape", format!("{i}×{j}×{k}, {} volumes", header.frames)));
    lines.push(("affine", format!("{:?}", header.affine)));
    lines.push(seconds(reader.t_r()?));
    lines.push(values.line());
    Ok(lines)
}

fn text(kind: TextTables, location: &str, stores: &Stores) -> Result<Vec<FileLine>> {
    let file = TextFile::read(kind, location, &RunKeys::default(), stores)?;
    let (schema, batches) = batches(kind, &[file])?;
    let mut lines = vec![("format", kind.to_string())];
    lines.extend(keys(location));
    let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
    lines.push(("rows", rows.to_string()));
    for (at, field) in schema.fields().iter().enumerate() {
        let nulls: usize = batches.iter().map(|batch| batch.column(at).null_count()).sum();
        let nulls = if nulls == 0 { String::new() } else { format!(", {nulls} n/a") };
        lines.push(("column", format!("{} {}{nulls}", field.name(), field.data_type())));
    }
    Ok(lines)
}
