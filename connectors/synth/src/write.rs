//! The generator's data as files: `series/`, `truth.parquet`, `design.parquet` and `synth.json`.

use crate::{Error, HcpGenerator, HcpSynth, Result, VERSION};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use voxelflow_storage::{AtomicFile, publish};

/// Bytes of series in a row group: what a reader must hold at once.
const ROW_GROUP_BYTES: usize = 16 << 20;
/// Bytes of series made at a time.
const BATCH_BYTES: usize = 4 << 20;
/// The file that says what the others are; it is written last.
const MANIFEST: &str = "synth.json";

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenFile {
    /// Its path under the output folder.
    pub path: String,
    /// Its rows.
    pub rows: usize,
    /// Its length.
    pub bytes: u64,
    /// blake3 of its bytes.
    pub blake3: String,
}

/// What was written; the content of `synth.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// `hcp`.
    pub generator: String,
    /// Version of the generator.
    pub version: String,
    /// All settings.
    pub settings: HcpSynth,
    /// Every file.
    pub files: Vec<WrittenFile>,
    /// blake3 of the files' hashes, in order.
    pub content: String,
}

/// Writes the data of `settings` under `out`: `series/sub-001.parquet` … (key columns, `series`, the grid
/// as metadata; row groups of at most 16 MiB of series), `truth.parquet`, `design.parquet`, `synth.json`.
///
/// `progress` is told the series written so far and in all. Files of an earlier `synth` in `out` are
/// replaced; each appears whole, and `synth.json` last.
///
/// # Errors
/// [`Error::Setting`]; [`Error::Folder`] when `out/series` holds files of something else; a folder
/// that cannot be written.
pub fn write_hcp(settings: &HcpSynth, out: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Summary> {
    let generator = HcpGenerator::try_new(settings.clone())?;
    clear(out)?;
    let series_bytes = 4 * settings.time_points;
    let step = (BATCH_BYTES / series_bytes).max(1);
    let total = settings.subjects as u64 * settings.voxels as u64;
    let mut done = 0;
    let mut files = Vec::new();
    progress(0, total);
    for subject in 0..settings.subjects {
        let name = format!("series/sub-{}.parquet", HcpGenerator::label(subject));
        let mut file =
            Table::create(out, &name, generator.schema(), (ROW_GROUP_BYTES / series_bytes).max(1))?;
        for first in (0..settings.voxels).step_by(step) {
            let batch = generator.batch(subject, first..first + step)?;
            file.write(&batch)?;
            done += batch.num_rows() as u64;
            progress(done, total);
        }
        files.push(file.finish()?);
    }
    let mut truth = Table::create(out, "truth.parquet", generator.truth_schema()?, 1 << 20)?;
    for subject in 0..settings.subjects {
        truth.write(&generator.truth(subject)?)?;
    }
    files.push(truth.finish()?);
    let design = generator.design_table()?;
    let mut table = Table::create(out, "design.parquet", design.schema(), 1 << 20)?;
    table.write(&design)?;
    files.push(table.finish()?);

    let hashes: String = files.iter().map(|f| f.blake3.as_str()).collect();
    let content = blake3::hash(hashes.as_bytes()).to_hex().to_string();
    let summary = Summary {
        generator: "hcp".into(),
        version: VERSION.into(),
        settings: settings.clone(),
        files,
        content,
    };
    let text = serde_json::to_string_pretty(&summary).unwrap_or_default() + "\n";
    publish(out.join(MANIFEST), text.as_bytes())?;
    Ok(summary)
}

/// Removes what an earlier `synth` wrote into `out`; refuses files of anything else among the series.
fn clear(out: &Path) -> Result<()> {
    let fault = |path: PathBuf, reason: String| Err(Error::Folder { path, reason });
    let manifest = out.join(MANIFEST);
    if let Ok(text) = std::fs::read_to_string(&manifest) {
        let Ok(earlier) = serde_json::from_str::<Summary>(&text) else {
            return fault(manifest, "it was not written by voxelflow synth: choose another folder".into());
        };
        let failed = |path: PathBuf| move |source| voxelflow_storage::Error::Write { path, source };
        // Without its manifest the rest counts as unfinished, should this be interrupted.
        std::fs::remove_file(&manifest).map_err(failed(manifest.clone()))?;
        for file in earlier.files.iter().filter(|f| is_ours(&f.path)) {
            let path = out.join(&file.path);
            if path.exists() {
                std::fs::remove_file(&path).map_err(failed(path.clone()))?;
            }
        }
    }
    let Ok(entries) = std::fs::read_dir(out.join("series")) else { return Ok(()) };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && !is_ours(&format!("series/{name}")) {
            let reason = "other files lie among the series: choose an empty folder".into();
            return fault(entry.path(), reason);
        }
        // Of an interrupted run: a later subject would be read as part of this data set.
        std::fs::remove_file(entry.path())
            .map_err(|source| voxelflow_storage::Error::Write { path: entry.path(), source })?;
    }
    Ok(())
}

/// A name that this module gives.
fn is_ours(path: &str) -> bool {
    let subject = path.strip_prefix("series/sub-").and_then(|p| p.strip_suffix(".parquet"));
    ["truth.parquet", "design.parquet"].contains(&path)
        || subject.is_some_and(|s| !s.is_empty() && s.chars().all(|c| c.is_ascii_digit()))
}

/// A Parquet file while it is written.
struct Table {
    name: String,
    path: PathBuf,
    rows: usize,
    writer: ArrowWriter<Hashed>,
}

impl Table {
    fn create(out: &Path, name: &str, schema: SchemaRef, row_group: usize) -> Result<Self> {
        let path = out.join(name);
        let values = ColumnPath::new(vec!["series".into(), "list".into(), "item".into()]);
        // Noise neither compresses nor repeats: no dictionary, no statistics.
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(row_group))
            .set_column_dictionary_enabled(values.clone(), false)
            .set_column_statistics_enabled(values, EnabledStatistics::None)
            .build();
        let file = Hashed { file: AtomicFile::create(&path)?, hasher: blake3::Hasher::new(), bytes: 0 };
        let writer = ArrowWriter::try_new(file, schema, Some(properties))
            .map_err(|source| Error::Parquet { path: path.clone(), source })?;
        Ok(Self { name: name.into(), path, rows: 0, writer })
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows();
        self.writer.write(batch).map_err(|source| Error::Parquet { path: self.path.clone(), source })
    }

    fn finish(self) -> Result<WrittenFile> {
        let path = self.path;
        let written =
            self.writer.into_inner().map_err(|source| Error::Parquet { path: path.clone(), source })?;
        let blake3 = written.hasher.finalize().to_hex().to_string();
        written.file.commit()?;
        Ok(WrittenFile { path: self.name, rows: self.rows, bytes: written.bytes, blake3 })
    }
}

/// A file that is hashed while it is written.
struct Hashed {
    file: AtomicFile,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.file.write(bytes)?;
        self.hasher.update(&bytes[..n]);
        self.bytes += n as u64;
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
