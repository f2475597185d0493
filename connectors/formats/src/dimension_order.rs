//! From arrays whose first dimension is fastest to arrays whose last dimension is.

/// For each element of an array of `shape` in row-major order, where it stands in column-major order.
pub(crate) fn row_order(shape: &[usize]) -> impl Iterator<Item = usize> {
    let strides: Vec<usize> =
        shape.iter().scan(1, |stride, length| Some(std::mem::replace(stride, *stride * length))).collect();
    let (shape, count) = (shape.to_vec(), shape.iter().product());
    let (mut index, mut at) = (vec![0; shape.len()], 0);
    (0..count).map(move |_| {
        let here = at;
        for dimension in (0..shape.len()).rev() {
            index[dimension] += 1;
            at += strides[dimension];
            if index[dimension] < shape[dimension] {
                break;
            }
            at -= strides[dimension] * shape[dimension];
            index[dimension] = 0;
        }
        here
    })
}

#[cfg(test)]
mod tests {
    use super::row_order;

    #[test]
    fn two_and_three_dimensions_are_turned() {
        // Columns [a d], [b e], [c f] of a 2×3 array.
        let stored = ['a', 'd', 'b', 'e', 'c', 'f'];
        assert_eq!(row_order(&[2, 3]).map(|at| stored[at]).collect::<String>(), "abcdef");
        let all: Vec<usize> = row_order(&[2, 3, 2]).collect();
        assert_eq!(all, [0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11]);
        assert_eq!(row_order(&[]).collect::<Vec<_>>(), [0]);
        assert_eq!(row_order(&[3, 0]).count(), 0);
    }
}
