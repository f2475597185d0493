//! The sidecar of an image: its times in seconds.

use super::keys::Keys;
use crate::nifti::{NiftiHeader, PLAUSIBLE_T_R};
use crate::opening::open;
use crate::{Error, Result};
use std::io::Read;
use std::path::Path;

/// What the JSON file beside an image says; `None` for a key that is absent or null, or NaN or infinite, as Python
/// writes them. Keys that are of no use here are not judged.
///
/// ```
/// use voxelflow_formats::sidecar::Sidecar;
/// # fn main() -> voxelflow_formats::Result<()> {
/// // Nearer files outrank those above them.
/// let above = Sidecar::from_reader(&br#"{"RepetitionTime": 2.0, "StartTime": 0.5}"#[..], "task-rest_bold.json")?;
/// let beside = Sidecar::from_reader(&br#"{"RepetitionTime": 0.8}"#[..], "sub-01_task-rest_bold.json")?;
/// let both = beside.or(above);
/// assert_eq!((both.repetition_time, both.start_time), (Some(0.8), Some(0.5)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Sidecar {
    /// `RepetitionTime`, seconds.
    pub repetition_time: Option<f64>,
    /// `VolumeTiming`: when each volume began, seconds, `[volumes]`, rising.
    pub volume_timing: Option<Vec<f64>>,
    /// `StartTime`: the time of the reference slice within the volume, seconds; values of a volume are those
    /// of its begin plus this.
    pub start_time: Option<f64>,
}

impl Sidecar {
    /// Reads the sidecar at `path`.
    ///
    /// # Errors
    /// [`Error::Open`], and those of [`Self::from_reader`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let (file, name) = open(path.as_ref())?;
        Self::from_reader(file, &name)
    }

    /// Reads a sidecar from `source`; `name` is its path or URL, for messages.
    ///
    /// # Errors
    /// [`Error::Line`] for what is not a JSON object, [`Error::Key`] for a value of the wrong kind or one that
    /// cannot be (a repetition time outside 0.01 s to 100 s, a start time that is negative),
    /// [`Error::Read`] from the system.
    pub fn from_reader(source: impl Read, name: &str) -> Result<Self> {
        let keys = Keys::from_reader(source, name)?;
        let sidecar = Self {
            repetition_time: keys.number("RepetitionTime")?,
            volume_timing: keys.numbers("VolumeTiming")?,
            start_time: keys.number("StartTime")?,
        };
        sidecar.check(&keys)?;
        Ok(sidecar)
    }

    /// What `self` says, and where it says nothing, what `above` says (BIDS: inheritance).
    #[must_use]
    pub fn or(self, above: Self) -> Self {
        Self {
            repetition_time: self.repetition_time.or(above.repetition_time),
            volume_timing: self.volume_timing.or(above.volume_timing),
            start_time: self.start_time.or(above.start_time),
        }
    }

    fn check(&self, keys: &Keys) -> Result<()> {
        if let Some(seconds) = self.repetition_time.filter(|seconds| !PLAUSIBLE_T_R.contains(seconds)) {
            let guess = if PLAUSIBLE_T_R.contains(&(seconds / 1000.0)) { " (milliseconds?)" } else { "" };
            let reason = format!("{seconds} s is implausible outside 0.01 s to 100 s{guess}");
            return Err(keys.fault("RepetitionTime", reason));
        }
        if let Some(seconds) = self.start_time.filter(|seconds| *seconds < 0.0) {
            return Err(keys.fault("StartTime", format!("{seconds} s is negative")));
        }
        let falls = |times: &Vec<f64>| times.windows(2).position(|pair| pair[1] <= pair[0]);
        if let Some(index) = self.volume_timing.as_ref().and_then(falls) {
            return Err(keys.fault(&format!("VolumeTiming[{}]", index + 1), "it does not rise".into()));
        }
        Ok(())
    }
}

/// The repetition time of a run in seconds: the sidecar's, else the header's.
///
/// # Errors
/// [`Error::RepetitionTime`] when neither gives one, or when the sidecar is silent and the header's cannot be.
pub fn repetition_time(sidecar: Option<&Sidecar>, header: &NiftiHeader) -> Result<f64> {
    if let Some(seconds) = sidecar.and_then(|sidecar| sidecar.repetition_time) {
        return Ok(seconds);
    }
    header.t_r()?.ok_or_else(|| Error::RepetitionTime {
        path: header.path.clone(),
        reason: "(pixdim[4]) is 0, and no sidecar gives one".into(),
    })
}
