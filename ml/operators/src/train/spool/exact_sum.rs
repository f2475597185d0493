//! A sum of numbers that does not depend on their order: rows come from partitions as these get ready.

/// Bits of the fraction of an `f64`, with the leading one.
const FRACTION: u32 = 53;
/// The smallest positive `f64` is 2 to the power of minus this.
const SMALLEST: i32 = 1074;
/// Digits of 32 bits that hold every finite `f64`, and room for carries.
const DIGITS: usize = 68;
/// Additions after which carries are moved on: a digit of 32 bits stays far below 63 bits.
const BEFORE_CARRY: u32 = 1 << 30;

/// All digits of a sum of `f64`, least significant first (Kulisch's accumulator).
#[derive(Clone, Debug)]
pub(super) struct ExactSum {
    digits: [i64; DIGITS],
    since_carry: u32,
}

impl Default for ExactSum {
    fn default() -> Self {
        Self { digits: [0; DIGITS], since_carry: 0 }
    }
}

impl ExactSum {
    /// Adds `value`, which must be finite.
    pub fn add(&mut self, value: f64) {
        let bits = value.to_bits();
        let exponent = ((bits >> (FRACTION - 1)) & 0x7ff) as usize;
        let fraction = bits & ((1 << (FRACTION - 1)) - 1);
        // Numbers near zero have no leading one, and the exponent of the smallest that have.
        let (fraction, place) = match exponent {
            0 => (fraction, 0),
            _ => (fraction | 1 << (FRACTION - 1), exponent - 1),
        };
        let shifted = u128::from(fraction) << (place % 32);
        let sign = if value.is_sign_negative() { -1 } else { 1 };
        for (i, digit) in self.digits.iter_mut().skip(place / 32).take(3).enumerate() {
            *digit += sign * i64::from((shifted >> (32 * i)) as u32);
        }
        self.since_carry += 1;
        if self.since_carry == BEFORE_CARRY {
            self.carry();
        }
    }

    /// Adds what `other` has added.
    pub fn merge(&mut self, other: &Self) {
        let mut other = other.clone();
        other.carry();
        self.carry();
        self.digits.iter_mut().zip(other.digits).for_each(|(digit, more)| *digit += more);
        self.since_carry = 1;
    }

    /// Leaves digits from 0 to 2³²−1, but for the last, which has the sign.
    fn carry(&mut self) {
        let mut carry = 0;
        for digit in &mut self.digits[..DIGITS - 1] {
            let sum = *digit + carry;
            *digit = sum & 0xffff_ffff;
            carry = sum >> 32;
        }
        self.digits[DIGITS - 1] += carry;
        self.since_carry = 0;
    }

    /// The sum, rounded to within one unit of the last place; the same for every order of the additions.
    pub fn value(&self) -> f64 {
        let mut whole = self.clone();
        whole.carry();
        let negative = whole.digits[DIGITS - 1] < 0;
        if negative {
            whole.digits.iter_mut().for_each(|digit| *digit = -*digit);
            whole.carry();
        }
        // Scaled by parts, for 2 to the power of −1074 times a digit would round too early.
        let sum = whole.digits.iter().enumerate().rev().fold(0.0, |sum, (i, digit)| {
            let exponent = 32 * i as i32 - SMALLEST;
            sum + *digit as f64 * 2_f64.powi(exponent / 2) * 2_f64.powi(exponent - exponent / 2)
        });
        if negative { -sum } else { sum }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use std::iter;

    fn sum(values: impl IntoIterator<Item = f64>) -> f64 {
        let mut sum = ExactSum::default();
        values.into_iter().for_each(|value| sum.add(value));
        sum.value()
    }

    #[test]
    fn what_rounding_would_lose_is_kept() {
        assert_eq!(sum([1e300, 1.0, -1e300]), 1.0);
        assert_eq!(sum([1e-300, 1e300, -1e300]), 1e-300);
        assert_eq!(sum([f64::MIN_POSITIVE / 8.0, -0.0]), f64::MIN_POSITIVE / 8.0);
        assert_eq!(sum([-2.5, 1.0]), -1.5);
        assert_eq!(sum([]), 0.0);
        assert_eq!(sum(iter::repeat_n(0.1, 10)), 1.0);
        assert_eq!(sum([f64::MAX, f64::MAX, -f64::MAX]), f64::MAX);
    }

    #[test]
    fn the_order_does_not_matter() {
        let value = |i: u64| {
            let bits = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let sign = if bits & 1 == 0 { 1.0 } else { -1.0 };
            sign * (bits >> 12) as f64 * 2_f64.powi((bits % 200) as i32 - 100)
        };
        let forward = sum((0..5_000).map(value));
        let backward = sum((0..5_000).rev().map(value));
        let mixed = sum((0..5_000).map(|i| value(i * 1_777 % 5_000)));
        assert_eq!(forward.to_bits(), backward.to_bits());
        assert_eq!(forward.to_bits(), mixed.to_bits());
        let mut halves = [ExactSum::default(), ExactSum::default()];
        (0..5_000).for_each(|i| halves[(i % 2) as usize].add(value(i)));
        let [mut first, second] = halves;
        first.merge(&second);
        assert_eq!(forward.to_bits(), first.value().to_bits());
    }

    #[test]
    fn integers_are_added_as_integers() {
        let values: Vec<i64> = (0..1_000).map(|i| (i * i * 7_919 - 400_000_000) * (i % 3 - 1)).collect();
        assert_eq!(sum(values.iter().map(|v| *v as f64)), values.iter().sum::<i64>() as f64);
    }
}
