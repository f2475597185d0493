//! Options of BIDS and HCP tables, by the names that the language takes.

use crate::nifti_options::{ByteSize, NiftiOptions, seconds, text};
use crate::{Result, VolumeOptions};
use serde::{Deserialize, Serialize};
use voxelflow_formats::bids::{BidsQuery, BoldKind, HcpQuery};
use voxelflow_stage::{Options, parse_options};

/// What becomes of a dataset in which some runs cannot be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Incomplete {
    /// The table is refused, with every fault.
    #[default]
    Refuse,
    /// Those runs are left out, and the table's history says which and why.
    Skip,
}

/// What of a run is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunKind {
    /// Voxels.
    #[default]
    Volume,
    /// Vertices of both hemispheres, or of the one that `hemi` names.
    Surface,
    /// Grayordinates of CIFTI.
    Grayordinates,
}

impl RunKind {
    pub(crate) fn bold(self) -> BoldKind {
        match self {
            Self::Volume => BoldKind::Volume,
            Self::Surface => BoldKind::Surface,
            Self::Grayordinates => BoldKind::Grayordinates,
        }
    }
}

/// Options of a BIDS table. What chooses images may list several values, separated by commas; `none` means images
/// whose names lack that entity. Several values of `acq`, `ce`, `rec` or `dir` are separate runs, which the column `run`
/// tells apart: `acq-a_run-1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BidsOptions {
    /// Subjects.
    #[serde(deserialize_with = "text")]
    pub subject: Option<String>,
    /// Sessions.
    #[serde(deserialize_with = "text")]
    pub session: Option<String>,
    /// Tasks.
    #[serde(deserialize_with = "text")]
    pub task: Option<String>,
    /// Runs.
    #[serde(deserialize_with = "text")]
    pub run: Option<String>,
    /// Space, such as `MNI152NLin2009cAsym`.
    #[serde(deserialize_with = "text")]
    pub space: Option<String>,
    /// Resolution within a space.
    #[serde(deserialize_with = "text")]
    pub res: Option<String>,
    /// Description, such as `preproc`.
    #[serde(deserialize_with = "text")]
    pub desc: Option<String>,
    /// Cohort of a template.
    #[serde(deserialize_with = "text")]
    pub cohort: Option<String>,
    /// Echo.
    #[serde(deserialize_with = "text")]
    pub echo: Option<String>,
    /// Part of a complex image; magnitudes if it is not given.
    #[serde(deserialize_with = "text")]
    pub part: Option<String>,
    /// Acquisition.
    #[serde(deserialize_with = "text")]
    pub acq: Option<String>,
    /// Contrast agent.
    #[serde(deserialize_with = "text")]
    pub ce: Option<String>,
    /// Reconstruction.
    #[serde(deserialize_with = "text")]
    pub rec: Option<String>,
    /// Phase-encoding direction.
    #[serde(deserialize_with = "text")]
    pub dir: Option<String>,
    /// Density of a mesh or of grayordinates, such as `91k`.
    #[serde(deserialize_with = "text")]
    pub den: Option<String>,
    /// Hemisphere of surfaces, `L` or `R`; both if it is not given.
    #[serde(deserialize_with = "text")]
    pub hemi: Option<String>,
    /// The raw dataset: a path or a URL.
    pub raw: Option<String>,
    /// What is the same for every table of images.
    #[serde(flatten)]
    pub images: RunImageOptions,
}

/// Options of an HCP table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HcpOptions {
    /// Subjects, separated by commas.
    #[serde(deserialize_with = "text")]
    pub subject: Option<String>,
    /// Tasks, separated by commas: `MOTOR`, `REST1`.
    #[serde(deserialize_with = "text")]
    pub task: Option<String>,
    /// Directions, by which HCP tells runs apart: `LR`, `RL`.
    #[serde(deserialize_with = "text")]
    pub run: Option<String>,
    /// What follows the run's name in that of the image: `hp2000_clean`.
    #[serde(deserialize_with = "text")]
    pub desc: Option<String>,
    /// What is the same for every table of images.
    #[serde(flatten)]
    pub images: RunImageOptions,
}

/// How the images of runs are read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunImageOptions {
    /// `volume`, `surface` or `grayordinates`.
    pub kind: RunKind,
    /// Of volumes: `brain`, each run's own mask, which is the default; a path or URL of one mask for all; `auto`; `none`, which is
    /// the default where there is an atlas.
    pub mask: Option<String>,
    /// Repetition time in seconds, instead of the sidecars' or the header's.
    #[serde(deserialize_with = "seconds")]
    pub t_r: Option<f64>,
    /// Memory for the series of one image that is being read; more is kept in a temporary file.
    pub memory_limit: ByteSize,
    /// What becomes of runs that cannot be used.
    pub incomplete: Incomplete,
    /// What is done to the volumes first.
    #[serde(flatten)]
    pub volumes: VolumeOptions,
}

impl Default for RunImageOptions {
    fn default() -> Self {
        let NiftiOptions { memory_limit, .. } = NiftiOptions::default();
        let (kind, incomplete) = (RunKind::default(), Incomplete::default());
        Self { kind, mask: None, t_r: None, memory_limit, incomplete, volumes: VolumeOptions::default() }
    }
}

impl RunImageOptions {
    /// The option `mask`, or what stands for it.
    pub(crate) fn mask(&self) -> &str {
        let without = if self.volumes.atlas.is_some() { "none" } else { "brain" };
        self.mask.as_deref().unwrap_or(without)
    }

    fn checked(self) -> Result<Self> {
        Ok(Self { volumes: self.volumes.checked()?, ..self })
    }

    /// The same for the node that reads.
    pub(crate) fn for_reading(&self) -> NiftiOptions {
        NiftiOptions {
            mask: Some(self.mask().to_owned()),
            t_r: self.t_r,
            memory_limit: self.memory_limit,
            volumes: self.volumes.clone(),
            ..NiftiOptions::default()
        }
    }
}

impl BidsOptions {
    /// Reads the options by name.
    ///
    /// # Errors
    /// An unknown name, with the nearest and the list; a value of the wrong kind.
    pub fn parse(options: &Options) -> Result<Self> {
        let options: Self = parse_options("a BIDS table", options)?;
        Ok(Self { images: options.images.checked()?, ..options })
    }

    /// What is asked for.
    pub(crate) fn query(&self) -> BidsQuery {
        let entities = [
            ("sub", &self.subject),
            ("ses", &self.session),
            ("task", &self.task),
            ("run", &self.run),
            ("space", &self.space),
            ("res", &self.res),
            ("desc", &self.desc),
            ("cohort", &self.cohort),
            ("echo", &self.echo),
            ("part", &self.part),
            ("acq", &self.acq),
            ("ce", &self.ce),
            ("rec", &self.rec),
            ("dir", &self.dir),
            ("den", &self.den),
            ("hemi", &self.hemi),
        ];
        let given = entities.iter().filter_map(|(key, values)| Some((key, values.as_ref()?)));
        let query = BidsQuery::default().of_kind(self.images.kind.bold());
        given.fold(query, |query, (key, values)| query.with(key, values))
    }
}

impl HcpOptions {
    /// Reads the options by name.
    ///
    /// # Errors
    /// As [`BidsOptions::parse`].
    pub fn parse(options: &Options) -> Result<Self> {
        let options: Self = parse_options("an HCP table", options)?;
        Ok(Self { images: options.images.checked()?, ..options })
    }

    pub(crate) fn query(&self) -> HcpQuery {
        let list = |values: &Option<String>| -> Vec<String> {
            values.iter().flat_map(|text| text.split(',')).map(|v| v.trim().to_owned()).collect()
        };
        HcpQuery {
            subjects: list(&self.subject),
            tasks: list(&self.task),
            runs: list(&self.run),
            desc: self.desc.clone(),
            grayordinates: self.images.kind == RunKind::Grayordinates,
        }
    }
}
