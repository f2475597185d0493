//! Which confounds are removed, by the names and defaults of `nilearn.interfaces.fmriprep.load_confounds` 0.14.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A group of confounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// Head motion: translations and rotations.
    Motion,
    /// Means of white matter and cerebrospinal fluid.
    WmCsf,
    /// Mean of the brain.
    GlobalSignal,
    /// The cosine drifts of fMRIPrep.
    HighPass,
    /// Principal components of noise regions (Behzadi 2007).
    Compcor,
    /// Independent components classified as motion (Pruim 2015).
    IcaAroma,
    /// Volumes of high motion are dropped (Power 2014).
    Scrub,
    /// Volumes before the steady state are dropped: without more, naming it changes nothing.
    NonSteadyState,
}

/// Which expansions of a parameter are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expansion {
    /// The parameter alone.
    Basic,
    /// And its square.
    Power2,
    /// And its derivative.
    Derivatives,
    /// And its square, its derivative and the square of that: of six motion parameters 24 (Friston 1996).
    Full,
}

/// Which components of CompCor are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompcorKind {
    /// From white matter and CSF in one mask.
    AnatCombined,
    /// From white matter and CSF one by one.
    AnatSeparated,
    /// From the most variable voxels.
    Temporal,
    /// `temporal` and `anat_combined`.
    TemporalAnatCombined,
    /// `temporal` and `anat_separated`.
    TemporalAnatSeparated,
}

/// How many components of CompCor are taken from each mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompcorCount {
    /// Those that the sidecar lists (written `'all'`).
    All,
    /// The first ones.
    First(usize),
}

impl Serialize for CompcorCount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => serializer.serialize_str("all"),
            Self::First(n) => serializer.serialize_u64(*n as u64),
        }
    }
}

impl<'de> Deserialize<'de> for CompcorCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Count(usize),
            Name(String),
        }
        let refuse = || serde::de::Error::custom("n_compcor must be 'all' or a number of components");
        match Written::deserialize(deserializer).map_err(|_| refuse())? {
            Written::Count(n) => Ok(Self::First(n)),
            Written::Name(name) if name == "all" => Ok(Self::All),
            Written::Name(_) => Err(refuse()),
        }
    }
}

/// How ICA-AROMA is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IcaAroma {
    /// The image has been cleaned by it (`desc-smoothAROMAnonaggr_bold`): no regressors.
    Full,
    /// The components are regressors.
    Basic,
}

/// What becomes of volumes that were taken before the scanner had come to its steady state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SteadyState {
    /// They are dropped, as nilearn does.
    #[default]
    Drop,
    /// They stay; columns that mark them may be regressors.
    Keep,
}

/// What becomes of the first volume's missing values: a derivative has none there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirstVolume {
    /// The value of the second volume, as nilearn does.
    #[default]
    Backfill,
    /// Zero, as the makers of fMRIPrep advise.
    Zero,
}

/// A strategy with a name, `nilearn.interfaces.fmriprep.load_confounds_strategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// 24 motion parameters, drifts, white matter and CSF.
    Simple,
    /// As `simple`, with expansions of white matter and CSF, and scrubbing.
    Scrubbing,
    /// 24 motion parameters, drifts, anatomical CompCor.
    Compcor,
    /// Drifts, white matter and CSF of an image that ICA-AROMA has cleaned.
    IcaAroma,
}

/// Which confounds are removed and which volumes dropped; names and defaults of `load_confounds`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConfoundSettings {
    /// The groups taken.
    pub strategy: Vec<Component>,
    /// Further columns by name; `*` stands for any characters and `?` for one (`trans_*`).
    pub columns: Vec<String>,
    /// Expansion of the motion parameters.
    pub motion: Expansion,
    /// Volumes that a segment between dropped volumes needs to be kept; 0 keeps all segments.
    pub scrub: usize,
    /// Framewise displacement, in millimetres, over which `scrub` drops a volume.
    pub fd_threshold: f64,
    /// Standardised DVARS over which `scrub` drops a volume.
    pub std_dvars_threshold: f64,
    /// Expansion of white matter and CSF.
    pub wm_csf: Expansion,
    /// Expansion of the global signal.
    pub global_signal: Expansion,
    /// Components of CompCor.
    pub compcor: CompcorKind,
    /// Components of CompCor per mask.
    pub n_compcor: CompcorCount,
    /// How ICA-AROMA is used.
    pub ica_aroma: IcaAroma,
    /// Whether the mean over the kept volumes is subtracted.
    pub demean: bool,
    /// What becomes of the first volume's missing values.
    pub first_volume: FirstVolume,
    /// What becomes of volumes before the steady state.
    pub non_steady_state: SteadyState,
}

impl Default for ConfoundSettings {
    fn default() -> Self {
        Self {
            strategy: vec![Component::Motion, Component::HighPass, Component::WmCsf],
            columns: Vec::new(),
            motion: Expansion::Full,
            scrub: 5,
            fd_threshold: 0.5,
            std_dvars_threshold: 1.5,
            wm_csf: Expansion::Basic,
            global_signal: Expansion::Basic,
            compcor: CompcorKind::AnatCombined,
            n_compcor: CompcorCount::All,
            ica_aroma: IcaAroma::Full,
            demean: true,
            first_volume: FirstVolume::Backfill,
            non_steady_state: SteadyState::Drop,
        }
    }
}

impl From<Preset> for ConfoundSettings {
    fn from(preset: Preset) -> Self {
        use Component::{Compcor, HighPass, Motion, Scrub, WmCsf};
        let with = |strategy: &[Component]| Self { strategy: strategy.to_vec(), ..Self::default() };
        match preset {
            Preset::Simple => with(&[HighPass, Motion, WmCsf]),
            Preset::Scrubbing => Self { wm_csf: Expansion::Full, ..with(&[HighPass, Motion, WmCsf, Scrub]) },
            Preset::Compcor => with(&[HighPass, Motion, Compcor]),
            Preset::IcaAroma => with(&[HighPass, WmCsf, Component::IcaAroma]),
        }
    }
}

impl ConfoundSettings {
    /// These columns and nothing else; volumes before the steady state are dropped all the same.
    pub fn of_columns(columns: Vec<String>) -> Self {
        Self { strategy: Vec::new(), columns, ..Self::default() }
    }

    /// Whether the image must be one that ICA-AROMA has cleaned (`desc-smoothAROMAnonaggr_bold`).
    pub fn needs_aroma_image(&self) -> bool {
        self.strategy.contains(&Component::IcaAroma) && self.ica_aroma == IcaAroma::Full
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::{from_value, json, to_value};

    #[test]
    fn the_names_are_nilearns() {
        let settings: ConfoundSettings = from_value(json!({
            "strategy": ["motion", "wm_csf", "global_signal", "high_pass", "compcor", "ica_aroma", "scrub",
                         "non_steady_state"],
            "compcor": "temporal_anat_separated", "n_compcor": 5, "motion": "derivatives",
        }))
        .unwrap();
        assert_eq!(settings.strategy.len(), 8);
        assert_eq!(settings.n_compcor, CompcorCount::First(5));
        assert_eq!(from_value::<ConfoundSettings>(to_value(&settings).unwrap()).unwrap(), settings);
        assert_eq!(to_value(CompcorCount::All).unwrap(), json!("all"));
        let e = from_value::<ConfoundSettings>(json!({"strategy": ["movement"]})).unwrap_err();
        assert!(e.to_string().contains("`wm_csf`"), "{e}");
        assert!(from_value::<ConfoundSettings>(json!({"n_compcor": "some"})).is_err());
        assert!(from_value::<ConfoundSettings>(json!({"fd_treshold": 0.2})).is_err());
    }

    #[test]
    fn only_an_image_cleaned_by_aroma_serves_its_strategy() {
        assert!(ConfoundSettings::from(Preset::IcaAroma).needs_aroma_image());
        assert!(!ConfoundSettings::default().needs_aroma_image());
    }
}
