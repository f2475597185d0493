//! Options of `clean` about confounds: `FROM clean(bold, confounds => 'motion', motion => 'full', …)`.

use crate::Result;
use serde::{Deserialize, Deserializer, Serialize};
use voxelflow_signal::confounds::{
    CompcorCount, CompcorKind, Component, ConfoundSettings, Expansion, FirstVolume, IcaAroma, Preset,
    SteadyState,
};

/// Options of `clean` about confounds, by the names of `nilearn.interfaces.fmriprep.load_confounds`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfoundOptions {
    /// Groups of confounds (`motion`, `wm_csf`, `global_signal`, `high_pass`, `compcor`, `ica_aroma`, `scrub`) and
    /// single columns, with `*` and `?` as wildcards: a list, or a text with commas.
    #[serde(deserialize_with = "words")]
    pub confounds: Option<Vec<String>>,
    /// A strategy with a name instead: `simple`, `scrubbing`, `compcor`, `ica_aroma`.
    pub denoise_strategy: Option<Preset>,
    /// Expansion of the motion parameters.
    pub motion: Option<Expansion>,
    /// Expansion of white matter and CSF.
    pub wm_csf: Option<Expansion>,
    /// Expansion of the global signal.
    pub global_signal: Option<Expansion>,
    /// Components of CompCor.
    pub compcor: Option<CompcorKind>,
    /// Components of CompCor per mask.
    pub n_compcor: Option<CompcorCount>,
    /// How ICA-AROMA is used.
    pub ica_aroma: Option<IcaAroma>,
    /// Volumes that a segment between dropped volumes needs to be kept.
    pub scrub: Option<usize>,
    /// Framewise displacement, in millimetres, over which `scrub` drops a volume.
    pub fd_threshold: Option<f64>,
    /// Standardised DVARS over which `scrub` drops a volume.
    pub std_dvars_threshold: Option<f64>,
    /// What becomes of the first volume's missing values.
    pub first_volume: Option<FirstVolume>,
    /// What becomes of volumes before the steady state: they are dropped, unless this says `'keep'`.
    pub non_steady_state: Option<SteadyState>,
}

/// A list of names, or one text with commas.
fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        List(Vec<String>),
    }
    let words = match Option::<Written>::deserialize(deserializer)? {
        None => return Ok(None),
        Some(Written::Text(text)) => text.split(',').map(|word| word.trim().to_owned()).collect(),
        Some(Written::List(words)) => words,
    };
    let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
    match words.is_empty() {
        true => Err(serde::de::Error::custom("it names no confounds; write for example 'motion, wm_csf'")),
        false => Ok(Some(words)),
    }
}

impl ConfoundOptions {
    /// What is asked for; nothing when no confounds are to be removed.
    ///
    /// # Errors
    /// Options that contradict each other, or that have nothing to say something about.
    pub(crate) fn settings(&self) -> Result<Option<ConfoundSettings>> {
        let wrong = |setting, reason: &str| {
            Err(voxelflow_signal::Error::Setting { setting, reason: reason.to_owned() }.into())
        };
        let mut settings = match (&self.confounds, self.denoise_strategy) {
            (None, None) if *self == Self::default() => return Ok(None),
            (None, None) => {
                return wrong(
                    "confounds",
                    "it is not given, but an option about confounds is: say which are removed",
                );
            }
            (Some(_), Some(_)) => {
                return wrong(
                    "denoise_strategy",
                    "it says which confounds are removed, and so does confounds: give one",
                );
            }
            (None, Some(preset)) => ConfoundSettings::from(preset),
            (Some(words), None) => {
                let (mut strategy, mut columns) = (Vec::new(), Vec::new());
                for word in words {
                    match serde_json::from_value::<Component>(word.clone().into()) {
                        Ok(component) => strategy.push(component),
                        Err(_) => columns.push(word.clone()),
                    }
                }
                ConfoundSettings { strategy, ..ConfoundSettings::of_columns(columns) }
            }
        };
        for (option, given, group, component) in [
            ("motion", self.motion.is_some(), "motion", Component::Motion),
            ("wm_csf", self.wm_csf.is_some(), "wm_csf", Component::WmCsf),
            ("global_signal", self.global_signal.is_some(), "global_signal", Component::GlobalSignal),
            ("compcor", self.compcor.is_some(), "compcor", Component::Compcor),
            ("n_compcor", self.n_compcor.is_some(), "compcor", Component::Compcor),
            ("ica_aroma", self.ica_aroma.is_some(), "ica_aroma", Component::IcaAroma),
            ("scrub", self.scrub.is_some(), "scrub", Component::Scrub),
            ("fd_threshold", self.fd_threshold.is_some(), "scrub", Component::Scrub),
            ("std_dvars_threshold", self.std_dvars_threshold.is_some(), "scrub", Component::Scrub),
        ] {
            if given && !settings.strategy.contains(&component) {
                let reason = format!(
                    "it is about {group}, which is not removed; leave it out, or name '{group}' in confounds"
                );
                return wrong(option, &reason);
            }
        }
        self.refine(&mut settings);
        Ok(Some(settings))
    }

    fn refine(&self, settings: &mut ConfoundSettings) {
        fn set<T: Copy>(given: Option<T>, to: &mut T) {
            if let Some(given) = given {
                *to = given;
            }
        }
        set(self.motion, &mut settings.motion);
        set(self.wm_csf, &mut settings.wm_csf);
        set(self.global_signal, &mut settings.global_signal);
        set(self.compcor, &mut settings.compcor);
        set(self.n_compcor, &mut settings.n_compcor);
        set(self.ica_aroma, &mut settings.ica_aroma);
        set(self.scrub, &mut settings.scrub);
        set(self.fd_threshold, &mut settings.fd_threshold);
        set(self.std_dvars_threshold, &mut settings.std_dvars_threshold);
        set(self.first_volume, &mut settings.first_volume);
        set(self.non_steady_state, &mut settings.non_steady_state);
    }
}
