//! Levels of Parquet that say nothing: every list has the same length, and no list or value is null.
//!
//! Levels and dictionary indices are runs of RLE and bit-packed groups of 8 ("RLE/bit-packing hybrid" of the Parquet
//! format). Level by level they cost more than the values that they belong to; whole runs are compared here.

/// Equal numbers, or groups of 8 packed ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run<'a> {
    Repeated { value: u32, count: usize },
    Packed { groups: &'a [u8], count: usize },
}

/// The runs of `bytes`; ends with `None` in place of a run that is not all there.
struct Runs<'a> {
    bytes: &'a [u8],
    /// Bits of a number, at most 32.
    width: usize,
    /// Numbers that are still to come: the last group of 8 may hold more than are meant.
    left: usize,
}

impl<'a> Runs<'a> {
    fn next(&mut self) -> Option<Run<'a>> {
        let header = self.varint()?;
        let numbers = usize::try_from(header >> 1).ok()?;
        let run = if header & 1 == 0 {
            let value = self.split(self.width.div_ceil(8))?;
            let value = value.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
            Run::Repeated { value, count: numbers.min(self.left) }
        } else {
            let groups = self.split(numbers.checked_mul(self.width)?)?;
            Run::Packed { groups, count: numbers.checked_mul(8)?.min(self.left) }
        };
        let (Run::Repeated { count, .. } | Run::Packed { count, .. }) = run;
        self.left -= count;
        (count > 0).then_some(run)
    }

    fn split(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.bytes.split_at_checked(bytes)?;
        self.bytes = rest;
        Some(first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.split(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

/// Bits that hold numbers up to `most`.
fn bits(most: u32) -> usize {
    (u32::BITS - most.leading_zeros()) as usize
}

/// Number `i` of packed ones.
fn packed(groups: &[u8], width: usize, i: usize) -> u32 {
    let (first, shift) = (i * width / 8, i * width % 8);
    let bytes = groups.iter().skip(first).take((shift + width).div_ceil(8));
    let number = bytes.rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    (number >> shift & ((1 << width) - 1)) as u32
}

/// Whether `bytes` are `count` definition levels that all are `most`: no list and no value is null.
pub(super) fn nothing_is_null(bytes: &[u8], most: u32, count: usize) -> bool {
    let mut runs = Runs { bytes, width: bits(most), left: count };
    while runs.left > 0 {
        let fits = match runs.next() {
            Some(Run::Repeated { value, .. }) => value == most,
            Some(Run::Packed { groups, count }) => {
                let (whole, rest) = (count / 8 * runs.width, count / 8 * 8..count);
                // Ones in all bits if `most` has them: then bytes are compared, not levels.
                let same = if most == (1 << runs.width) - 1 {
                    groups[..whole].iter().all(|byte| *byte == 0xff)
                } else {
                    (0..rest.start).all(|i| packed(groups, runs.width, i) == most)
                };
                same && rest.into_iter().all(|i| packed(groups, runs.width, i) == most)
            }
            None => false,
        };
        if !fits {
            return false;
        }
    }
    true
}

/// Whether `bytes` are `count` repetition levels of lists of `length` (at least 1) of which `before` values of the
/// first one came earlier: 0 where a list begins and 1 elsewhere.
pub(super) fn lists_are_of(bytes: &[u8], length: usize, before: usize, count: usize) -> bool {
    let mut runs = Runs { bytes, width: 1, left: count };
    // Values until the next list begins.
    let mut next = (length - before % length) % length;
    while runs.left > 0 {
        let (fits, count) = match runs.next() {
            Some(Run::Repeated { value: 0, count }) => (next == 0 && (count == 1 || length == 1), count),
            Some(Run::Repeated { value: 1, count }) => (next >= count, count),
            Some(Run::Packed { groups, count }) => (groups_begin(groups, length, next, count), count),
            Some(Run::Repeated { .. }) | None => (false, 0),
        };
        if !fits {
            return false;
        }
        next = if count > next { (length - (count - next) % length) % length } else { next - count };
    }
    true
}

fn groups_begin(groups: &[u8], length: usize, mut next: usize, count: usize) -> bool {
    groups.iter().enumerate().take(count.div_ceil(8)).all(|(i, found)| {
        let mut expected = 0xff_u8;
        while next < 8 * (i + 1) {
            expected &= !(1 << (next - 8 * i));
            next += length;
        }
        let meant = 0xff_u8 >> (8 - (count - 8 * i).min(8));
        (found ^ expected) & meant == 0
    })
}

/// Appends to `into` the entries of `dictionary` at the `count` indices in `bytes`, each of `width` bits (at most
/// 32). Nothing where an index has no entry or is missing.
pub(super) fn look_up<T: Copy>(
    bytes: &[u8],
    width: usize,
    dictionary: &[T],
    count: usize,
    into: &mut Vec<T>,
) -> Option<()> {
    let mut runs = Runs { bytes, width, left: count };
    while runs.left > 0 {
        match runs.next()? {
            Run::Repeated { value, count } => {
                let entry = *dictionary.get(value as usize)?;
                into.extend(std::iter::repeat_n(entry, count));
            }
            Run::Packed { groups, count } => {
                for i in 0..count {
                    into.push(*dictionary.get(packed(groups, width, i) as usize)?);
                }
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// `numbers` as runs where `runs` says so for a stretch of 8, else bit-packed.
    fn encode(numbers: &[u32], width: usize, runs: &[bool]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (i, group) in numbers.chunks(8).enumerate() {
            if runs.get(i % runs.len().max(1)) == Some(&true) {
                for same in group.chunk_by(|a, b| a == b) {
                    bytes.push((same.len() as u8) << 1);
                    bytes.extend_from_slice(&same[0].to_le_bytes()[..width.div_ceil(8)]);
                }
            } else {
                bytes.push(0b11);
                let packed =
                    group.iter().rev().fold(0_u128, |all, number| all << width | u128::from(*number));
                bytes.extend_from_slice(&packed.to_le_bytes()[..width]);
            }
        }
        bytes
    }

    proptest! {
        #[test]
        fn lists_of_one_length_are_known(
            (length, before, count) in (1_usize..20).prop_flat_map(|n| (Just(n), 0..n, 0_usize..200)),
            runs in prop::collection::vec(any::<bool>(), 1..6),
            flipped in any::<prop::sample::Index>(),
        ) {
            let mut levels: Vec<u32> = (0..count).map(|i| u32::from((before + i) % length != 0)).collect();
            prop_assert!(lists_are_of(&encode(&levels, 1, &runs), length, before, count));
            if count > 0 {
                prop_assert!(!lists_are_of(&encode(&levels, 1, &runs), length, before, count + 8));
                levels[flipped.index(count)] ^= 1;
                prop_assert!(!lists_are_of(&encode(&levels, 1, &runs), length, before, count));
            }
        }

        #[test]
        fn a_null_is_found_wherever_it_is(
            most in 1_u32..6,
            count in 1_usize..200,
            runs in prop::collection::vec(any::<bool>(), 1..6),
            at in any::<prop::sample::Index>(),
        ) {
            let mut levels = vec![most; count];
            prop_assert!(nothing_is_null(&encode(&levels, bits(most), &runs), most, count));
            prop_assert!(!nothing_is_null(&encode(&levels, bits(most), &runs), most, count + 8));
            levels[at.index(count)] = most - 1;
            prop_assert!(!nothing_is_null(&encode(&levels, bits(most), &runs), most, count));
        }

        #[test]
        fn indices_are_looked_up(
            (width, indices) in (1_usize..=12).prop_flat_map(|width| {
                (Just(width), prop::collection::vec(0..1_u32 << width, 0..100))
            }),
            runs in prop::collection::vec(any::<bool>(), 1..6),
        ) {
            let dictionary: Vec<u32> = (0..1 << width).map(|i| i * 3).collect();
            let bytes = encode(&indices, width, &runs);
            let mut found = Vec::new();
            look_up(&bytes, width, &dictionary, indices.len(), &mut found).unwrap();
            prop_assert_eq!(found, indices.iter().map(|i| i * 3).collect::<Vec<_>>());
            if let Some(most) = indices.iter().max() {
                prop_assert!(look_up(&bytes, width, &dictionary[..*most as usize], indices.len(), &mut Vec::new()).is_none());
            }
        }

        #[test]
        fn any_bytes_are_looked_at(bytes in prop::collection::vec(any::<u8>(), 0..64), width in 0_usize..=32) {
            let _ = nothing_is_null(&bytes, 3, 1_000);
            let _ = lists_are_of(&bytes, 7, 3, 1_000);
            let mut found = Vec::new();
            let _ = look_up(&bytes, width, &[0_u8; 9], 1_000, &mut found);
            prop_assert!(found.len() <= 1_000);
        }
    }
}
