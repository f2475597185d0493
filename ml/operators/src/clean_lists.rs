//! The series of a batch: of one length, or of several where runs are.

use arrow::{
    array::{Array, ArrayRef, ArrowPrimitiveType, AsArray},
    buffer::NullBuffer,
    datatypes::DataType,
};
use datafusion::common::{DataFusionError, internal_datafusion_err};
use std::ops::Range;
use voxelflow_stage::SERIES_COLUMN;

/// Series, one after the other.
pub(crate) struct Lists<'a> {
    values: ArrayRef,
    /// Where the first begins, and where each ends.
    bounds: Vec<usize>,
    nulls: Option<&'a NullBuffer>,
}

impl<'a> Lists<'a> {
    /// # Errors
    /// A column that is not of lists.
    pub fn of(column: &'a ArrayRef) -> Result<Self, DataFusionError> {
        if let Some(lists) = column.as_fixed_size_list_opt() {
            // `values` of a sliced list begins at its first row.
            let points = usize::try_from(lists.value_length()).unwrap_or_default();
            let bounds = (0..=lists.len()).map(|row| row * points).collect();
            return Ok(Self { values: ArrayRef::clone(lists.values()), bounds, nulls: lists.nulls() });
        }
        let lists = column.as_list_opt::<i32>();
        let lists = lists.ok_or_else(|| internal_datafusion_err!("{SERIES_COLUMN} does not hold lists"))?;
        let bounds = lists.value_offsets().iter().map(|at| *at as usize).collect();
        Ok(Self { values: ArrayRef::clone(lists.values()), bounds, nulls: lists.nulls() })
    }

    pub fn value_type(&self) -> &DataType {
        self.values.data_type()
    }

    pub fn nulls(&self) -> Option<&NullBuffer> {
        self.nulls
    }

    pub fn is_valid(&self, row: usize) -> bool {
        self.nulls.is_none_or(|nulls| nulls.is_valid(row))
    }

    fn rows(&self) -> usize {
        self.bounds.len().saturating_sub(1)
    }

    /// Points of a row.
    pub fn points(&self, row: usize) -> usize {
        self.bounds[row + 1] - self.bounds[row]
    }

    /// Where `rows` lie in [`Self::values`].
    pub fn place(&self, rows: Range<usize>) -> Range<usize> {
        self.bounds[rows.start] - self.bounds[0]..self.bounds[rows.end] - self.bounds[0]
    }

    /// Neighbouring rows of one length, and that length.
    pub fn stretches(&self) -> Vec<(Range<usize>, usize)> {
        let mut found: Vec<(Range<usize>, usize)> = Vec::new();
        for row in 0..self.rows() {
            let points = self.points(row);
            match found.last_mut() {
                Some((rows, known)) if *known == points => rows.end = row + 1,
                _ => found.push((row..row + 1, points)),
            }
        }
        found
    }

    /// The first of `rows` that has not so many points, and how many it has.
    pub fn other_length(&self, mut rows: Range<usize>, points: usize) -> Option<(usize, usize)> {
        let row = rows.find(|row| self.points(*row) != points)?;
        Some((row, self.points(row)))
    }

    /// A copy of the values: zeros where a row has none, `missing` where a point is null.
    ///
    /// # Errors
    /// Other numbers than these.
    pub fn values<N: ArrowPrimitiveType>(
        &self,
        missing: N::Native,
    ) -> Result<Vec<N::Native>, DataFusionError> {
        let items = self.values.as_primitive_opt::<N>();
        let items = items
            .ok_or_else(|| internal_datafusion_err!("{SERIES_COLUMN} does not hold {}", N::DATA_TYPE))?;
        let place = self.bounds[0]..self.bounds[self.rows()];
        let values = items.values().get(place.clone()).map(<[N::Native]>::to_vec);
        let mut values = values.ok_or_else(|| {
            internal_datafusion_err!("{} values are fewer than {} series need", items.len(), self.rows())
        })?;
        if items.null_count() > 0 {
            let each = values.iter_mut().zip(place);
            each.filter(|(_, at)| items.is_null(*at)).for_each(|(value, _)| *value = missing);
        }
        for row in (0..self.rows()).filter(|row| !self.is_valid(*row)) {
            values[self.place(row..row + 1)].fill(N::default_value());
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow::{array::ListArray, datatypes::Float32Type};
    use std::sync::Arc;

    #[test]
    fn lists_of_several_lengths_are_read_from_any_part_of_an_array() {
        let rows = [vec![1.0, 2.0, 3.0], vec![4.0, 5.0], vec![6.0, 7.0], vec![8.0, 9.0, 10.0]]
            .map(|row| row.into_iter().map(Some));
        let all = ListArray::from_iter_primitive::<Float32Type, _, _>(rows.into_iter().map(Some));
        let column: ArrayRef = Arc::new(all);
        let lists = Lists::of(&column).unwrap();
        assert_eq!(lists.stretches(), [(0..1, 3), (1..3, 2), (3..4, 3)]);
        let part = column.slice(1, 3);
        let lists = Lists::of(&part).unwrap();
        assert_eq!(lists.values::<Float32Type>(f32::NAN).unwrap(), [4., 5., 6., 7., 8., 9., 10.]);
        assert_eq!((lists.place(1..2), lists.stretches()), (2..4, vec![(0..2, 2), (2..3, 3)]));
        assert_eq!(lists.other_length(0..3, 2), Some((2, 3)));
        assert_eq!(lists.other_length(0..2, 2), None);
    }
}
