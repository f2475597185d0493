//! What a report is made of: plain data, filled by whoever ran the work.

use crate::{Error, Result, page};
use std::{io::Write, path::Path};
use voxelflow_stage::{Choice, Grid, History, LayerFilters};

/// Which side of a coronal or axial slice shows the patient's left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Convention {
    /// Left is shown left, as if seen from behind or above (nilearn's default).
    #[default]
    Neurological,
    /// Left is shown right, as if facing the patient.
    Radiological,
}

/// A report, ready to be written.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The page's title.
    pub title: String,
    /// When it was made, as the caller writes times.
    pub created: String,
    /// Version of the program.
    pub version: String,
    /// The pipeline or program that ran.
    pub pipeline_text: Option<String>,
    /// What ran, in order.
    pub statements: Vec<StatementRow>,
    /// Tables made.
    pub tables: Vec<TableRow>,
    /// Files written.
    pub files: Vec<FileRow>,
    /// What was left out or repaired, and why.
    pub ledger: Vec<LedgerRow>,
    /// Small tables of results, for example scores of several models.
    pub results: Vec<ResultTable>,
    /// Models trained.
    pub models: Vec<ModelSection>,
    /// Maps to look at.
    pub maps: Vec<MapSection>,
    /// How left and right are shown.
    pub convention: Convention,
}

/// One statement and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct StatementRow {
    /// Its text (shortened as the caller likes).
    pub statement: String,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Rows that came out, where it has any.
    pub rows: Option<u64>,
    /// `ran`, `unchanged`, …
    pub note: String,
}

impl StatementRow {
    /// A statement that ran.
    pub fn ran(statement: impl Into<String>, seconds: f64, rows: Option<u64>) -> Self {
        Self { statement: statement.into(), seconds, rows, note: "ran".into() }
    }
    /// A statement that need not run again.
    pub fn unchanged(statement: impl Into<String>, rows: Option<u64>) -> Self {
        Self { statement: statement.into(), seconds: 0.0, rows, note: "unchanged".into() }
    }
}

/// A table that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRow {
    /// Its name.
    pub name: String,
    /// Its rows.
    pub rows: u64,
    /// Its columns.
    pub columns: Vec<String>,
    /// Where it lies; `None` for one that was never stored.
    pub path: Option<String>,
    /// Its size where it lies.
    pub bytes: Option<u64>,
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRow {
    /// Its path, as users should see it.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// What it holds.
    pub what: String,
}

/// One line of the data-quality ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerRow {
    /// The statement that found it: `table series`.
    pub statement: String,
    /// The run: `sub-02 task-rest run-1`; empty for what is about no single run.
    pub run: String,
    /// What was found on what: `dropped volume`.
    pub what: String,
    /// Why: `constant over time`.
    pub reason: String,
    /// How many.
    pub count: u64,
    /// Where, the first places: `0-3,17`.
    pub places: String,
}

/// A small table of results, cells as the caller writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultTable {
    /// Its name.
    pub title: String,
    /// What it shows, with units.
    pub caption: String,
    /// Column names.
    pub header: Vec<String>,
    /// Rows of cells; cells that read as numbers are set to the right.
    pub rows: Vec<Vec<String>>,
}

/// How a loss axis is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossAxis {
    /// Logarithmic when losses are positive and span more than a factor of 20.
    #[default]
    Auto,
    /// Linear.
    Linear,
    /// Logarithmic; linear all the same when a loss is not positive.
    Log,
}

/// A trained model.
#[derive(Clone, Debug, Default)]
pub struct ModelSection {
    /// Its name in the pipeline.
    pub name: String,
    /// The stage that made it, for example `dist_dca`.
    pub stage: String,
    /// Number of parameters.
    pub parameters: usize,
    /// Settings, name and value.
    pub settings: Vec<(String, String)>,
    /// Where it comes from: training table, subjects, plan hash, …
    pub lineage: Vec<(String, String)>,
    /// What training did.
    pub history: History,
    /// What it chose among by cross-validation, for a model that was made so: shown instead of losses.
    pub choice: Option<Choice>,
    /// Filters of its layers.
    pub filters: Vec<LayerFilters>,
    /// Series beside their reconstructions.
    pub reconstructions: Vec<ReconstructionExample>,
    /// How its loss axes are divided.
    pub loss_axis: LossAxis,
}

/// One series and what the model makes of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReconstructionExample {
    /// Where it comes from: `sub-02, voxel 31 42 17`.
    pub label: String,
    /// Repetition time in seconds; `None`: the axis counts time points.
    pub t_r: Option<f64>,
    /// The input, `[time_points]`.
    pub series: Vec<f32>,
    /// The output, `[time_points]`.
    pub reconstruction: Vec<f32>,
    /// Pearson correlation of the two.
    pub r: f64,
}

/// A volume on a grid.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Its grid.
    pub grid: Grid,
    /// `[ni·nj·nk]`, i fastest. NaN: no value here.
    pub values: Vec<f32>,
}

/// How a map is coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapKind {
    /// A statistic laid over its background in colour; exact zeros count as "no value".
    #[default]
    Statistic,
    /// An image by itself, in grey: a mean image, an anatomy.
    Image,
}

/// Where the three planes of a map are cut.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Cut {
    /// Statistics through their largest absolute value, images through their centre of mass.
    #[default]
    Auto,
    /// Through the largest absolute value.
    Peak,
    /// Through the centre of mass of absolute values.
    CentreOfMass,
    /// Through a point in millimetres.
    At([f64; 3]),
}

/// A map to look at.
#[derive(Clone, Debug)]
pub struct MapSection {
    /// Its name.
    pub name: String,
    /// What its values say.
    pub description: String,
    /// Unit of its values: `r`, `a.u.`.
    pub unit: String,
    /// Its values.
    pub volume: Volume,
    /// Image to lay it over, on the same grid.
    pub background: Option<Volume>,
    /// Values nearer to zero than this are not coloured.
    pub threshold: Option<f32>,
    /// How it is coloured.
    pub kind: MapKind,
    /// Where it is cut.
    pub cut: Cut,
}

impl MapSection {
    /// A statistic over an image.
    pub fn statistic(
        name: impl Into<String>,
        unit: impl Into<String>,
        volume: Volume,
        background: Option<Volume>,
    ) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            unit: unit.into(),
            volume,
            background,
            threshold: None,
            kind: MapKind::Statistic,
            cut: Cut::Auto,
        }
    }
    /// An image by itself.
    pub fn image(name: impl Into<String>, unit: impl Into<String>, volume: Volume) -> Self {
        Self { kind: MapKind::Image, ..Self::statistic(name, unit, volume, None) }
    }
    /// The same map with a description.
    #[must_use]
    pub fn described(self, description: impl Into<String>) -> Self {
        Self { description: description.into(), ..self }
    }
    /// The same map with a threshold.
    #[must_use]
    pub fn thresholded(self, threshold: f32) -> Self {
        Self { threshold: Some(threshold), ..self }
    }
}

impl Report {
    /// An empty report.
    pub fn new(title: impl Into<String>, created: impl Into<String>, version: impl Into<String>) -> Self {
        Self { title: title.into(), created: created.into(), version: version.into(), ..Self::default() }
    }

    /// The report as one HTML page that refers to nothing outside itself.
    ///
    /// # Errors
    /// A volume or filters whose values do not fit their shape, a background of another grid, an affine that
    /// cannot be inverted.
    pub fn to_html(&self) -> Result<String> {
        Ok(page::render(self)?.into_string())
    }

    /// Writes the report to `path`, whose folder is made if missing. Readers see the old file or the new one,
    /// never a part: it is written beside and renamed.
    ///
    /// # Errors
    /// As [`Self::to_html`]; [`Error::Write`] where it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let html = self.to_html()?;
        let failed = |cause| Error::Write { path: path.to_owned(), cause };
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).map_err(failed)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(".report-").suffix(".html");
        // Temporary files are private by default; a report is readable as the umask says.
        #[cfg(unix)]
        let builder = builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut file = builder.tempfile_in(folder).map_err(failed)?;
        file.write_all(html.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
        file.persist(path).map_err(|e| failed(e.error))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn writing_replaces_whole_files_and_leaves_nothing_beside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/report.html");
        Report::new("first", "", "").write(&path).unwrap();
        Report::new("second", "", "").write(&path).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().contains("second"));
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_report_that_cannot_be_made_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        Report::new("good", "", "").write(&path).unwrap();
        let mut bad = Report::new("bad", "", "");
        bad.maps.push(MapSection::image("m", "", crate::orientation::tests::volume([2, 2, 2], vec![0.0; 3])));
        let e = bad.write(&path).unwrap_err();
        assert!(e.is_input() && e.to_string().contains("map `m`"), "{e}");
        assert!(std::fs::read_to_string(&path).unwrap().contains("good"));
    }

    #[test]
    fn a_folder_that_is_a_file_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let e = Report::default().write(&file.path().join("report.html")).unwrap_err();
        assert!(e.is_input() && e.to_string().contains("report.html"), "{e}");
    }
}
