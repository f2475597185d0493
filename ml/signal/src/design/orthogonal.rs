//! Columns made orthogonal to those before them, as nilearn does with derivatives and powers of time.

/// Removes from every column what those before it explain; lengths stay as they come.
///
/// A column that is zero to working precision beside the longest one explains nothing: the cut-off of
/// `scipy.linalg.pinv`. Every projection is done twice, which is as good as least squares.
pub(super) fn orthogonalize(columns: &mut [Vec<f64>]) {
    for at in 1..columns.len() {
        let (before, rest) = columns.split_at_mut(at);
        let longest = before.iter().map(|c| dot(c, c)).fold(0.0, f64::max);
        let cut = (rest[0].len() as f64 * f64::EPSILON).powi(2) * longest;
        for _ in 0..2 {
            for column in before.iter() {
                let square = dot(column, column);
                if square <= cut {
                    continue;
                }
                let share = dot(&rest[0], column) / square;
                rest[0].iter_mut().zip(column).for_each(|(x, c)| *x -= share * c);
            }
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_keeps_what_the_others_do_not_explain() {
        let mut columns = vec![vec![1.0, 1.0, 1.0, 1.0], vec![0.0; 4], vec![1.0, 2.0, 3.0, 4.0]];
        orthogonalize(&mut columns);
        assert_eq!(columns[2], [-1.5, -0.5, 0.5, 1.5]);
        assert_eq!(columns[1], [0.0; 4]);
    }
}
