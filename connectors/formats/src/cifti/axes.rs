//! What the values of one grayordinate are: time points, or named maps.

use crate::Result;
use crate::nifti::PLAUSIBLE_T_R;
use crate::xml::{Element, Xml, cut};

/// The axis that is fastest in the file.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Along {
    /// Equally spaced points, in time mostly.
    Series(SeriesAxis),
    /// Maps by their names.
    Scalars(Vec<String>),
}

impl Along {
    /// Count of values of a grayordinate.
    pub fn len(&self) -> usize {
        match self {
            Self::Series(axis) => axis.points,
            Self::Scalars(names) => names.len(),
        }
    }

    /// Never: every axis has a point.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Equally spaced points.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SeriesAxis {
    /// The first point, in `unit`, the exponent applied.
    pub start: f64,
    /// From one point to the next, in `unit`, the exponent applied.
    pub step: f64,
    /// `SECOND`, `HERTZ`, `METER` or `RADIAN`.
    pub unit: String,
    /// Count of points.
    pub points: usize,
}

impl SeriesAxis {
    /// The repetition time in seconds; `None` when the axis is not time.
    pub fn t_r(&self) -> Option<f64> {
        (self.unit == "SECOND").then_some(self.step)
    }

    /// Reads the attributes of a series map, which was entered, and leaves it.
    pub(super) fn read(xml: &mut Xml, element: &Element) -> Result<Self> {
        let exponent: i32 = xml.attribute(element, "SeriesExponent")?;
        let scaled = |name: &str| -> Result<f64> {
            let value: f64 = xml.attribute(element, name)?;
            // Dividing keeps decimals: 720·10⁻³ is 0.72.
            let value = if exponent < 0 {
                value / 10_f64.powi(exponent.saturating_neg())
            } else {
                value * 10_f64.powi(exponent)
            };
            if value.is_finite() {
                return Ok(value);
            }
            Err(xml.fault_at(element, format!("its {name} is {value} with the exponent {exponent}")))
        };
        let unit = xml.required(element, "SeriesUnit")?;
        if !["SECOND", "HERTZ", "METER", "RADIAN"].contains(&unit) {
            return Err(xml.fault_at(element, format!("its SeriesUnit '{}' is unknown", cut(unit))));
        }
        let axis = Self {
            start: scaled("SeriesStart")?,
            step: scaled("SeriesStep")?,
            unit: unit.to_owned(),
            points: xml.attribute(element, "NumberOfSeriesPoints")?,
        };
        if axis.unit == "SECOND" && !PLAUSIBLE_T_R.contains(&axis.step) {
            let reason = format!(
                "its SeriesStep is {} s, implausible outside 0.01 s to 100 s (SeriesExponent {exponent}?)",
                axis.step
            );
            return Err(xml.fault_at(element, reason));
        }
        xml.skip()?;
        Ok(axis)
    }
}

/// Reads the names of the maps of a scalar axis, which was entered.
pub(super) fn names(xml: &mut Xml) -> Result<Vec<String>> {
    let mut names = Vec::new();
    while let Some(child) = xml.child()? {
        if child.name != "NamedMap" {
            xml.skip()?;
            continue;
        }
        let mut name = None;
        while let Some(part) = xml.child()? {
            match &part.name[..] {
                "MapName" => name = Some(xml.text("MapName")?.trim().to_owned()),
                _ => xml.skip()?,
            }
        }
        names.push(name.ok_or_else(|| xml.fault_at(&child, "it has no MapName".into()))?);
    }
    Ok(names)
}
