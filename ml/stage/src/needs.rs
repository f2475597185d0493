//! What a fit needs, told before it runs.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The process that a rank is in, as far as it matters to what a fit needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Ranks that are threads of this process: they share its memory and its cores.
    pub ranks: usize,
    /// Bytes that the process may need; none: nobody has said.
    pub memory: Option<u64>,
}

impl Default for Room {
    /// One rank, without a limit.
    fn default() -> Self {
        Self { ranks: 1, memory: None }
    }
}

/// What a fit is predicted to need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Needs {
    /// Coefficients of the model: features, targets.
    pub coefficients: [usize; 2],
    /// The most bytes that a process of the gang holds at once, its ranks together.
    pub memory: u64,
    /// Bytes of a card; 0 without one.
    pub card_memory: u64,
    /// Bytes of series that are read, all ranks together.
    pub read: u64,
    /// Until the model is there, without waiting for storage.
    pub seconds: f64,
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [features, targets] = self.coefficients;
        write!(f, "{features} × {targets} coefficients, {} of memory", size(self.memory))?;
        if self.card_memory > 0 {
            write!(f, " and {} of the card's", size(self.card_memory))?;
        }
        write!(f, ", {} read, ", size(self.read))?;
        match self.seconds {
            short if short < 1.0 => write!(f, "less than 1 s"),
            seconds => write!(f, "about {seconds:.0} s"),
        }
    }
}

fn size(bytes: u64) -> String {
    match bytes.div_ceil(1 << 20) {
        mib if mib < 10 << 10 => format!("{mib} MiB"),
        mib => format!("{:.1} GiB", mib as f64 / 1024.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_one_line() {
        let needs = Needs { coefficients: [20, 300], memory: 5 << 20, card_memory: 0, read: 1, seconds: 0.2 };
        assert_eq!(needs.to_string(), "20 × 300 coefficients, 5 MiB of memory, 1 MiB read, less than 1 s");
        let large = Needs { memory: 12 << 30, card_memory: 40 << 30, seconds: 61.7, ..needs };
        let expected =
            "20 × 300 coefficients, 12.0 GiB of memory and 40.0 GiB of the card's, 1 MiB read, about 62 s";
        assert_eq!(large.to_string(), expected);
    }
}
