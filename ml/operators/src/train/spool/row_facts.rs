//! What is taken down of a row while it passes: sums for the statistics, and a digest for the model's lineage.

/// What is known of a row without reading it again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RowFacts {
    /// Sum of the values.
    pub sum: f64,
    /// Sum of their squares.
    pub squares: f64,
    /// A digest of their bytes.
    pub digest: u64,
}

/// Sums that are kept side by side, so that the compiler can use wide instructions. The order of additions within
/// a row is fixed, and so are their bytes.
const LANES: usize = 8;
/// Values that are digested at once.
const BLOCK: usize = 64;

/// Keys of the digest: fixed, for digests are compared over years.
static KEYS: [u32; BLOCK + 2] = keys();

const fn keys() -> [u32; BLOCK + 2] {
    let mut keys = [0; BLOCK + 2];
    let (mut i, mut state) = (0, 0_u64);
    while i < keys.len() {
        // SplitMix64 (Steele 2014).
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        keys[i] = ((z ^ (z >> 31)) >> 16) as u32;
        i += 1;
    }
    keys
}

impl RowFacts {
    /// The facts of `row`. Its squares are finite exactly when all of its values are: the square of the largest
    /// 32-bit number is far from the largest 64-bit number.
    pub fn of(row: &[f32]) -> Self {
        let (sum, squares) = sums(row);
        Self { sum, squares, digest: digest(row) }
    }

    /// Whether a row can be learned from.
    pub fn is_finite(&self) -> bool {
        self.squares.is_finite()
    }
}

fn sums(row: &[f32]) -> (f64, f64) {
    let (mut sums, mut squares) = ([0.0; LANES], [0.0; LANES]);
    let (chunks, rest) = row.as_chunks::<LANES>();
    let mut add = |lane: usize, value: f32| {
        let value = f64::from(value);
        sums[lane] += value;
        squares[lane] += value * value;
    };
    for chunk in chunks {
        for (lane, value) in chunk.iter().enumerate() {
            add(lane, *value);
        }
    }
    for (lane, value) in rest.iter().enumerate() {
        add(lane, *value);
    }
    (sums.iter().sum(), squares.iter().sum())
}

/// NH (Black et al. 1999, UMAC) of each block, twice with shifted keys, and the blocks chained.
fn digest(row: &[f32]) -> u64 {
    let mut state = row.len() as u64;
    let (blocks, rest) = row.as_chunks::<BLOCK>();
    for block in blocks {
        state = chain(state, block);
    }
    if !rest.is_empty() {
        let mut last = [0.0; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        state = chain(state, &last);
    }
    state
}

fn chain(state: u64, block: &[f32; BLOCK]) -> u64 {
    let (mut first, mut second) = (0_u64, 0_u64);
    for i in (0..BLOCK).step_by(2) {
        let (a, b) = (block[i].to_bits(), block[i + 1].to_bits());
        let product = |shift: usize| {
            let (a, b) = (a.wrapping_add(KEYS[i + shift]), b.wrapping_add(KEYS[i + 1 + shift]));
            u64::from(a) * u64::from(b)
        };
        first = first.wrapping_add(product(0));
        second = second.wrapping_add(product(2));
    }
    stir(stir(state ^ first) ^ second)
}

/// Spreads every bit over all (the finaliser of MurmurHash3).
fn stir(mut z: u64) -> u64 {
    z = (z ^ (z >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    z = (z ^ (z >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    z ^ (z >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn row(n: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 8.0).collect()
    }

    #[test]
    fn sums_are_those_of_the_values() {
        for n in [0, 1, 7, 8, 63, 284] {
            let row = row(n);
            let facts = RowFacts::of(&row);
            // Eighths of small integers: no sum is rounded.
            assert_eq!(facts.sum, row.iter().map(|v| f64::from(*v)).sum::<f64>());
            assert_eq!(facts.squares, row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>());
            assert!(facts.is_finite());
        }
    }

    #[test]
    fn only_a_value_that_is_not_finite_makes_a_row_so() {
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 100, 283] {
                let mut row = row(284);
                row[at] = odd;
                assert!(!RowFacts::of(&row).is_finite());
            }
        }
        assert!(RowFacts::of(&[f32::MAX; 10_000]).is_finite());
    }

    #[test]
    fn every_bit_and_every_place_counts() {
        let row = row(284);
        let mut seen = HashSet::from([digest(&row), digest(&row[..283])]);
        for at in 0..row.len() {
            for bit in 0..32 {
                let mut other = row.clone();
                other[at] = f32::from_bits(other[at].to_bits() ^ 1 << bit);
                assert!(seen.insert(digest(&other)), "bit {bit} of value {at}");
            }
            let mut other = row.clone();
            other.swap(at, (at + 64) % 284);
            assert!(other == row || seen.insert(digest(&other)), "place {at}");
        }
    }

    #[test]
    fn digests_stay_as_they_are() {
        // Checkpoints and the lineage of models are found by them.
        assert_eq!(digest(&row(284)), digest(&row(284)));
        assert_ne!(digest(&[]), digest(&[0.0]));
    }
}
