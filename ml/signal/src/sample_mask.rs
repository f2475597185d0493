//! Which volumes of a run are used.

use crate::{Error, Result};
use std::ops::Range;

/// The volumes of a run that are kept; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleMask {
    volumes: usize,
    kept: Vec<usize>,
}

impl SampleMask {
    /// Keeps every volume.
    ///
    /// # Errors
    /// A run without volumes.
    pub fn all(volumes: usize) -> Result<Self> {
        Self::from_indices(&(0..volumes).collect::<Vec<_>>(), volumes)
    }

    /// Keeps the volumes whose flag is true; there must be one flag for each of the run's `volumes`.
    ///
    /// # Errors
    /// Another number of flags, or none that is true.
    pub fn from_flags(flags: &[bool], volumes: usize) -> Result<Self> {
        if flags.len() != volumes {
            let reason = format!("{} flags for a run of {volumes} volumes; give one per volume", flags.len());
            return Err(Error::SampleMask { reason });
        }
        let kept: Vec<usize> = (0..volumes).filter(|v| flags[*v]).collect();
        Self::from_indices(&kept, volumes)
    }

    /// Keeps the volumes with these numbers, from 0, ascending and each once.
    ///
    /// Flags written as the numbers 0 and 1 are no indices: they repeat, and are refused.
    ///
    /// # Errors
    /// No numbers, numbers outside the run, out of order or repeated.
    pub fn from_indices(indices: &[usize], volumes: usize) -> Result<Self> {
        if indices.is_empty() {
            let reason = format!("none of {volumes} volumes is kept; leave the run out");
            return Err(Error::NothingLeft { step: "the sample mask", reason });
        }
        if let Some(outside) = indices.iter().find(|v| **v >= volumes) {
            let reason = format!("volume {outside} of a run of {volumes} volumes (the first is 0)");
            return Err(Error::SampleMask { reason });
        }
        if let Some(pair) = indices.windows(2).find(|pair| pair[0] >= pair[1]) {
            let reason = match indices.iter().all(|v| *v <= 1) {
                true => {
                    "numbers 0 and 1 as indices would name the first two volumes again and again; flags must \
                         be booleans, one per volume"
                        .to_owned()
                }
                false => format!(
                    "volume {} comes after volume {}; give each kept volume once, ascending",
                    pair[1], pair[0]
                ),
            };
            return Err(Error::SampleMask { reason });
        }
        Ok(Self { volumes, kept: indices.to_vec() })
    }

    /// Volumes of the run.
    pub fn volumes(&self) -> usize {
        self.volumes
    }

    /// Volumes that are kept.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Their numbers, ascending.
    pub fn indices(&self) -> &[usize] {
        &self.kept
    }

    /// Whether nothing is dropped.
    pub fn keeps_all(&self) -> bool {
        self.kept.len() == self.volumes
    }

    /// From the first kept volume to the last.
    pub fn span(&self) -> Range<usize> {
        match (self.kept.first(), self.kept.last()) {
            (Some(first), Some(last)) => *first..*last + 1,
            _ => 0..0,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn flags_and_indices_mean_the_same() {
        let flags = SampleMask::from_flags(&[false, true, true, false, true, false], 6).unwrap();
        assert_eq!(flags, SampleMask::from_indices(&[1, 2, 4], 6).unwrap());
        assert_eq!((flags.kept(), flags.volumes(), flags.span()), (3, 6, 1..5));
        assert!(SampleMask::all(4).unwrap().keeps_all() && !flags.keeps_all());
    }

    #[test]
    fn masks_that_misalign_are_refused() {
        // Nine flags for ten volumes, and uint8 flags taken for indices.
        let e = SampleMask::from_flags(&[true; 9], 10).unwrap_err();
        assert!(e.to_string().contains("9 flags for a run of 10"), "{e}");
        let e = SampleMask::from_indices(&[0, 0, 1, 1, 1, 1, 1, 1, 0, 1], 10).unwrap_err();
        assert!(e.to_string().contains("booleans"), "{e}");
        let e = SampleMask::from_indices(&[1, 2, 10], 10).unwrap_err();
        assert!(e.to_string().contains("volume 10"), "{e}");
        assert!(matches!(SampleMask::from_indices(&[3, 2], 10), Err(Error::SampleMask { .. })));
        assert!(matches!(SampleMask::from_flags(&[false; 3], 3), Err(Error::NothingLeft { .. })));
        assert!(SampleMask::all(0).is_err());
    }
}
