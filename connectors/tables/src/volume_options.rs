//! Options of what is done to the volumes of an image before they become series, by nilearn's names.
//!
//! The steps run in one order, whatever the order of the options: resample → smooth → voxels of the mask, or parcels.

use crate::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::Value;
use voxelflow_formats::XformPolicy;
use voxelflow_signal::{Interpolation, parcels::ParcelStrategy};
use voxelflow_storage::Place;

/// What is done to every volume. Nothing, by default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeOptions {
    /// Full width at half maximum of a Gaussian in millimetres: one number, or three along i, j, k.
    pub smoothing_fwhm: Option<Millimetres>,
    /// The grid that images are resampled to.
    pub target: Option<Target>,
    /// How values between voxels are found when images are resampled: `nearest`, `linear` or `continuous`, a cubic
    /// spline, which is the default.
    pub interpolation: Option<Interpolation>,
    /// Path or URL of an atlas: an image of labels, one number of a parcel in every voxel, or of maps, one volume of
    /// weights for every parcel. Rows are then parcels.
    pub atlas: Option<String>,
    /// Path or URL of the parcels' names: a table (`.tsv`) with columns `index` and `name`, or lines of a number and a
    /// name.
    pub atlas_labels: Option<String>,
    /// What the voxels of a label become: `mean` (the default), `median`, `sum`, `minimum`, `maximum`, `variance` or
    /// `standard_deviation`.
    pub strategy: Option<ParcelStrategy>,
    /// The label that is no parcel; 0 by default.
    #[serde(deserialize_with = "whole")]
    pub background_label: Option<i32>,
    /// Which transform of a NIfTI header is believed where sform and qform disagree about left and right: `agree`, which
    /// refuses such images and is the default, `sform` or `qform`.
    #[serde(with = "xform")]
    pub xform: XformPolicy,
}

/// A policy by its name.
pub(crate) mod xform {
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};
    use voxelflow_formats::XformPolicy;

    pub fn serialize<S: Serializer>(policy: &XformPolicy, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(policy.name())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<XformPolicy, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

impl VolumeOptions {
    /// Whether series are computed from volumes, and so of 64 bits until they are cleaned.
    pub fn compute(&self) -> bool {
        self.smoothing_fwhm.is_some() || self.target.is_some() || self.atlas.is_some()
    }

    /// The options as any process understands them: files by their whole paths, widths of 0 left out.
    ///
    /// # Errors
    /// Options that need another one, and places that are none.
    pub(crate) fn checked(mut self) -> Result<Self> {
        let needs = |option: &str, other: &str| {
            let reason = format!("it is of use only beside `{other}`: give that too, or leave it out");
            Err(voxelflow_stage::Error::OptionValue {
                what: "a table of images".into(),
                option: option.into(),
                reason,
            })
        };
        if self.interpolation.is_some() && self.target.is_none() {
            needs("interpolation", "target")?;
        }
        let of_atlas = [
            ("atlas_labels", self.atlas_labels.is_some()),
            ("strategy", self.strategy.is_some()),
            ("background_label", self.background_label.is_some()),
        ];
        if let (None, Some((option, _))) = (&self.atlas, of_atlas.iter().find(|(_, given)| *given)) {
            needs(option, "atlas")?;
        }
        self.smoothing_fwhm = self.smoothing_fwhm.filter(|Millimetres(widths)| *widths != [0.0; 3]);
        for file in [&mut self.atlas, &mut self.atlas_labels].into_iter().flatten() {
            *file = whole_path(file)?;
        }
        if let Some(Target::Image(file)) = &mut self.target {
            *file = whole_path(file)?;
        }
        Ok(self)
    }
}

/// An absolute path, or the URL as it is.
pub(crate) fn whole_path(location: &str) -> Result<String> {
    match Place::parse(location)? {
        Place::Local(path) => match path.to_str() {
            Some(text) => Ok(text.to_owned()),
            None => {
                let reason = "its name is no Unicode text".into();
                Err(Error::Location { location: location.into(), reason })
            }
        },
        Place::Remote(_) => Ok(location.to_owned()),
    }
}

/// Lengths along three axes in millimetres, written as `6`, `'6'`, `'6, 6, 4'` or `[6, 6, 4]`; none is negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Millimetres(pub [f64; 3]);

/// As text: numbers in JSON may lose their last bit, and another process would resample to another grid.
impl Serialize for Millimetres {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let [i, j, k] = self.0;
        s.collect_str(&format_args!("{i}, {j}, {k}"))
    }
}

impl Millimetres {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        let numbers: Vec<f64> = text.split(',').map(|n| n.trim().parse().ok()).collect::<Option<_>>()?;
        Self::of(&numbers)
    }

    fn of(numbers: &[f64]) -> Option<Self> {
        let sound = numbers.iter().all(|n| n.is_finite() && *n >= 0.0);
        match numbers {
            [all] if sound => Some(Self([*all; 3])),
            [i, j, k] if sound => Some(Self([*i, *j, *k])),
            _ => None,
        }
    }

    fn of_value(value: &Value) -> Option<Self> {
        match value {
            Value::Number(n) => Self::of(&[n.as_f64()?]),
            Value::Array(all) => Self::of(&all.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>()?),
            Value::String(text) => Self::parse(text),
            _ => None,
        }
    }

    /// `6` or `6×6×4`.
    pub(crate) fn text(&self) -> String {
        let [i, j, k] = self.0;
        if i == j && j == k { i.to_string() } else { format!("{i}×{j}×{k}") }
    }
}

impl<'de> Deserialize<'de> for Millimetres {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(d)?;
        Self::of_value(&value).ok_or_else(|| {
            D::Error::custom(format!(
                "`{value}` is neither one nor three lengths in mm, for example 6 or '6, 6, 4'"
            ))
        })
    }
}

/// The grid that images are resampled to.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// That of the image at this path or URL.
    Image(String),
    /// Voxels of this size along the axes of the world, over the whole of the first image.
    VoxelSize(Millimetres),
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Image(location) => location.serialize(s),
            Self::VoxelSize(sizes) => sizes.serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(d)?;
        match (Millimetres::of_value(&value), value) {
            (Some(Millimetres(sizes)), _) if sizes.contains(&0.0) => {
                Err(D::Error::custom("a voxel has a length over 0 mm"))
            }
            (Some(sizes), _) => Ok(Self::VoxelSize(sizes)),
            (None, Value::String(location)) if !location.trim().is_empty() => Ok(Self::Image(location)),
            (None, value) => Err(D::Error::custom(format!(
                "`{value}` is neither an image nor one or three voxel sizes in mm, for example 3 or '3, 3, 4'"
            ))),
        }
    }
}

/// A whole number, also where it was written as text.
fn whole<'de, D: Deserializer<'de>>(d: D) -> Result<Option<i32>, D::Error> {
    let number = match Value::deserialize(d)? {
        Value::Null => return Ok(None),
        Value::Number(n) => n.as_i64().and_then(|n| i32::try_from(n).ok()),
        Value::String(s) => s.trim().parse().ok(),
        _ => None,
    };
    number.map(Some).ok_or_else(|| D::Error::custom("it is a whole number, for example 0"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use voxelflow_stage::parse_options;

    fn parse(value: &Value) -> Result<VolumeOptions> {
        parse_options::<VolumeOptions>("a table", value.as_object().unwrap())?.checked()
    }

    #[test]
    fn lengths_are_one_number_or_three() {
        for value in
            [json!(6), json!("6"), json!(" 6.0 "), json!([6, 6, 6]), json!("6, 6,6"), json!("[6,6,6]")]
        {
            let options = parse(&json!({"smoothing_fwhm": value, "target": value})).unwrap();
            let six = Millimetres([6.0; 3]);
            assert_eq!((options.smoothing_fwhm, options.target), (Some(six), Some(Target::VoxelSize(six))));
        }
        let options =
            parse(&json!({"smoothing_fwhm": 0, "target": "/grid.nii", "interpolation": "linear"})).unwrap();
        assert_eq!((options.smoothing_fwhm, options.target), (None, Some(Target::Image("/grid.nii".into()))));
        assert!(!parse(&json!({"smoothing_fwhm": "0"})).unwrap().compute());
    }

    #[test]
    fn a_wrong_value_says_what_is_right() {
        for (options, says) in [
            (json!({"smoothing_fwhm": "wide"}), "'6, 6, 4'"),
            (json!({"smoothing_fwhm": [6, 6]}), "neither one nor three"),
            (json!({"smoothing_fwhm": -1}), "lengths in mm"),
            (json!({"target": 0}), "over 0 mm"),
            (json!({"target": true}), "neither an image nor"),
            (json!({"target": 3, "interpolation": "cubic"}), "continuous"),
            (json!({"interpolation": "linear"}), "beside `target`"),
            (json!({"strategy": "median"}), "beside `atlas`"),
            (json!({"atlas": "a.nii", "strategy": "mode"}), "standard_deviation"),
            (json!({"atlas": "a.nii", "background_label": 0.5}), "whole number"),
            (json!({"smoothing": 6}), "did you mean `smoothing_fwhm`?"),
        ] {
            let e = parse(&options).unwrap_err();
            assert!(e.is_input() && e.to_string().contains(says), "{e}");
        }
    }

    proptest! {
        /// Options come back from what is sent to another process; text never panics.
        #[test]
        fn options_come_back(fwhm in any::<[u16; 3]>(), size in 0.1_f64..9.0, text in ".*") {
            let target = if fwhm[0] % 2 == 0 { json!(size) } else { json!("s3://lab/grid.nii.gz") };
            let options = parse(&json!({"smoothing_fwhm": fwhm, "target": target, "atlas": "/a.nii"})).unwrap();
            let sent = serde_json::to_string(&options).unwrap();
            prop_assert_eq!(serde_json::from_str::<VolumeOptions>(&sent).unwrap(), options);
            let _ = parse(&json!({"smoothing_fwhm": text}));
        }
    }
}
