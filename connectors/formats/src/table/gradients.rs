//! The b-values and directions of a diffusion-weighted run, `.bval` and `.bvec`.

use super::number_lines::NumberLines;
use crate::opening::open;
use crate::{Error, Result};
use std::io::Read;
use std::path::Path;

/// How far a direction's length may be from 1: files hold few digits.
const UNIT_LENGTH: f64 = 0.01;

/// Up to this b-value, in s/mm², a volume counts as one without diffusion weighting (as in dipy).
const UNWEIGHTED: f64 = 50.0;

/// One b-value and one direction per volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradients {
    /// `[volumes]`, s/mm².
    pub b_values: Vec<f64>,
    /// `[volumes]` of unit vectors (x, y, z in the axes of FSL's convention), or zero where there is none: some
    /// programs write NaN there.
    pub directions: Vec<[f64; 3]>,
}

impl Gradients {
    /// Reads both files.
    ///
    /// # Errors
    /// [`Error::Open`], and those of [`Self::from_readers`].
    pub fn read(bval: impl AsRef<Path>, bvec: impl AsRef<Path>) -> Result<Self> {
        let ((bval, bval_name), (bvec, bvec_name)) = (open(bval.as_ref())?, open(bvec.as_ref())?);
        Self::from_readers((bval, &bval_name), (bvec, &bvec_name))
    }

    /// Reads from two sources, each with its path or URL for messages. B-values stand in one line or one per
    /// line; directions in three lines (FSL, BIDS) or three per line. Three lines of three are FSL's.
    ///
    /// # Errors
    /// [`Error::Line`] for a shape that is neither, a negative b-value, a direction that is neither of unit
    /// length nor zero, or NaN under a b-value over 50 s/mm²; [`Error::Pair`] when the files differ in the count of volumes; [`Error::Read`] from
    /// the system.
    pub fn from_readers(bval: (impl Read, &str), bvec: (impl Read, &str)) -> Result<Self> {
        let b_values = b_values(&NumberLines::from_reader(bval.0, bval.1)?)?;
        let numbers = NumberLines::with_nan(bvec.0, bvec.1)?;
        let directions = directions(&numbers)?;
        if b_values.len() != directions.len() {
            return Err(Error::Pair {
                path: bvec.1.into(),
                other: bval.1.into(),
                reason: format!("it has {} directions for {} b-values", directions.len(), b_values.len()),
            });
        }
        let volumes = b_values.iter().zip(directions).enumerate();
        let directions = volumes.map(|(volume, (&b_value, (line, direction)))| {
            checked(direction, b_value)
                .map_err(|reason| numbers.fault(line, format!("volume {}: {reason}", volume + 1)))
        });
        let directions = directions.collect::<Result<_>>()?;
        Ok(Self { b_values, directions })
    }
}

/// A unit vector, or zero where there is no direction.
fn checked(direction: [f64; 3], b_value: f64) -> Result<[f64; 3], String> {
    if direction.iter().all(|value| value.is_nan()) && b_value <= UNWEIGHTED {
        return Ok([0.0; 3]);
    }
    let length = direction.iter().map(|value| value * value).sum::<f64>().sqrt();
    if length == 0.0 || (length - 1.0).abs() <= UNIT_LENGTH {
        return Ok(direction);
    }
    Err(format!("the direction {direction:?} (b = {b_value} s/mm²) has length {length:.4}, neither 1 nor 0"))
}

fn b_values(numbers: &NumberLines) -> Result<Vec<f64>> {
    let one_line = numbers.lines.len() == 1;
    let mut values = Vec::new();
    for (line, here) in &numbers.lines {
        if !one_line && here.len() != 1 {
            let reason =
                format!("it has {} numbers; b-values stand in one line, or one per line", here.len());
            return Err(numbers.fault(*line, reason));
        }
        if let Some(value) = here.iter().find(|value| **value < 0.0) {
            return Err(numbers.fault(*line, format!("the b-value {value} s/mm² is negative")));
        }
        values.extend_from_slice(here);
    }
    if values.is_empty() { Err(numbers.fault(1, "the file has no b-value".into())) } else { Ok(values) }
}

/// Directions, each with the line to name when it is wrong.
fn directions(numbers: &NumberLines) -> Result<Vec<(u64, [f64; 3])>> {
    let lines = &numbers.lines;
    if lines.is_empty() {
        return Err(numbers.fault(1, "the file has no direction".into()));
    }
    if let [(line, x), (_, y), (_, z)] = &lines[..]
        && x.len() == y.len()
        && y.len() == z.len()
    {
        return Ok((0..x.len()).map(|volume| (*line, [x[volume], y[volume], z[volume]])).collect());
    }
    let direction = |(line, values): &(u64, Vec<f64>)| {
        let direction = <[f64; 3]>::try_from(&values[..]).map_err(|_| {
            let reason = format!(
                "it has {} number(s) among {} lines; directions stand in 3 lines of equal length, or 3 per line",
                values.len(),
                lines.len()
            );
            numbers.fault(*line, reason)
        })?;
        Ok((*line, direction))
    };
    lines.iter().map(direction).collect()
}
