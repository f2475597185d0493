//! Options of a NIFTI table, by the names that the language takes.

use crate::{Result, RunKeys, VolumeOptions};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;
use voxelflow_stage::{Options, parse_options};

/// Options of a NIFTI table. Values may be written as text or as numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NiftiOptions {
    /// Path of a mask image on the same grid (its non-zero voxels are read); `auto`, nilearn's
    /// `compute_epi_mask` of each image's mean; `none`, every voxel; `brain`, in tables of BIDS and HCP folders,
    /// each run's own mask. `none` by default where there is an atlas, else `auto`.
    pub mask: Option<String>,
    /// Subject, instead of the file name's `sub-`.
    #[serde(deserialize_with = "text")]
    pub subject: Option<String>,
    /// Session, instead of `ses-`.
    #[serde(deserialize_with = "text")]
    pub session: Option<String>,
    /// Task, instead of `task-`.
    #[serde(deserialize_with = "text")]
    pub task: Option<String>,
    /// Run, instead of `run-`.
    #[serde(deserialize_with = "text")]
    pub run: Option<String>,
    /// Space, instead of `space-`.
    #[serde(deserialize_with = "text")]
    pub space: Option<String>,
    /// Repetition time in seconds, instead of the sidecar's `RepetitionTime` or the header's.
    #[serde(deserialize_with = "seconds")]
    pub t_r: Option<f64>,
    /// Whether the images are the volumes of one run, one volume each, by the numbers in their names, as SPM writes them.
    #[serde(deserialize_with = "truth")]
    pub one_run: bool,
    /// Confounds, one file for each run in the order of the images, separated by commas: `.tsv` with named columns, HCP's
    /// `Movement_Regressors.txt`, or columns of numbers without names (SPM's `rp_….txt`).
    #[serde(deserialize_with = "text")]
    pub confounds: Option<String>,
    /// Events, in the same way: `.tsv` files, or folders with a `.txt` file of FSL's three columns for each condition.
    #[serde(deserialize_with = "text")]
    pub events: Option<String>,
    /// Memory for the series of one image that is being read; more is kept in a temporary file.
    pub memory_limit: ByteSize,
    /// What is done to the volumes first.
    #[serde(flatten)]
    pub volumes: VolumeOptions,
}

impl Default for NiftiOptions {
    fn default() -> Self {
        Self {
            mask: None,
            subject: None,
            session: None,
            task: None,
            run: None,
            space: None,
            t_r: None,
            one_run: false,
            confounds: None,
            events: None,
            memory_limit: ByteSize(512 << 20),
            volumes: VolumeOptions::default(),
        }
    }
}

impl NiftiOptions {
    /// Reads the options by name.
    ///
    /// # Errors
    /// An unknown name, with the nearest and the list; a value of the wrong kind.
    pub fn parse(options: &Options) -> Result<Self> {
        let options: Self = parse_options("a NIFTI table", options)?;
        Ok(Self { volumes: options.volumes.checked()?, ..options })
    }

    /// The option `mask`, or what stands for it.
    pub(crate) fn mask(&self) -> &str {
        let without = if self.volumes.atlas.is_some() { "none" } else { "auto" };
        self.mask.as_deref().unwrap_or(without)
    }

    /// The keys that are given here instead of by names of files.
    pub(crate) fn keys(&self) -> RunKeys {
        RunKeys {
            subject: self.subject.clone(),
            session: self.session.clone(),
            task: self.task.clone(),
            run: self.run.clone(),
            space: self.space.clone(),
        }
    }
}

/// True or false, also where it was written as text.
fn truth<'de, D: Deserializer<'de>>(d: D) -> Result<bool, D::Error> {
    match Value::deserialize(d)? {
        Value::Bool(truth) => Ok(truth),
        Value::String(text) if text == "true" => Ok(true),
        Value::String(text) if text == "false" => Ok(false),
        _ => Err(D::Error::custom("it is true or false")),
    }
}

/// A number of bytes, written as `536870912`, `'512MB'` or `'1.5 GiB'` (both are powers of 1024).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ByteSize(pub usize);

impl std::str::FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let shift = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            _ => return Err(format!("`{text}` is no size; write for example '512MB' or '2GB'")),
        };
        match number.parse::<f64>() {
            Ok(number) if number > 0.0 => Ok(Self((number * f64::from(1_u32 << shift)) as usize)),
            _ => Err(format!("`{text}` is no size; write for example '512MB' or '2GB'")),
        }
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        match Value::deserialize(d)? {
            Value::Number(n) => n.to_string().parse().map_err(D::Error::custom),
            Value::String(s) => s.parse().map_err(D::Error::custom),
            other => Err(D::Error::custom(format!("`{other}` is no size; write for example '512MB'"))),
        }
    }
}

/// Text, also where it was written as a number.
pub(crate) fn text<'de, D: Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(d)? {
        Value::Null => Ok(None),
        Value::String(s) => Ok(Some(s)),
        Value::Number(n) => Ok(Some(n.to_string())),
        other => Err(D::Error::custom(format!("`{other}` is no text"))),
    }
}

/// A time over 0.
pub(crate) fn seconds<'de, D: Deserializer<'de>>(d: D) -> Result<Option<f64>, D::Error> {
    let number = match Value::deserialize(d)? {
        Value::Null => return Ok(None),
        Value::Number(n) => n.as_f64(),
        Value::String(s) => s.trim().parse().ok(),
        _ => None,
    };
    match number {
        Some(t_r) if t_r > 0.0 && t_r.is_finite() => Ok(Some(t_r)),
        _ => Err(D::Error::custom("it is a time in seconds greater than 0, for example 0.72")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn parse(value: &Value) -> Result<NiftiOptions> {
        NiftiOptions::parse(value.as_object().unwrap())
    }

    #[test]
    fn text_and_numbers_mean_the_same() {
        let as_text = parse(&json!({"run": "1", "t_r": "0.72", "memory_limit": "2 MB"})).unwrap();
        let as_numbers = parse(&json!({"run": 1, "t_r": 0.72, "memory_limit": 2 << 20})).unwrap();
        assert_eq!(as_text, as_numbers);
        assert_eq!(
            (as_text.run.as_deref(), as_text.t_r, as_text.memory_limit.0),
            (Some("1"), Some(0.72), 2 << 20)
        );
    }

    #[test]
    fn a_wrong_name_answers_with_the_nearest() {
        let text = parse(&json!({"maks": "none"})).unwrap_err().to_string();
        assert!(text.contains("did you mean `mask`?"), "{text}");
    }

    #[test]
    fn a_wrong_value_says_what_is_right() {
        for (options, says) in [
            (json!({"t_r": "-1"}), "0.72"),
            (json!({"t_r": "fast"}), "0.72"),
            (json!({"memory_limit": "much"}), "512MB"),
            (json!({"memory_limit": 0}), "512MB"),
        ] {
            let e = parse(&options).unwrap_err();
            assert!(e.is_input() && e.to_string().contains(says), "{e}");
        }
    }
}
