//! The row groups of a file that are still to be read, and how far the first of them has been read.

use datafusion::datasource::{
    listing::{FileRange, PartitionedFile},
    physical_plan::parquet::{ParquetAccessPlan, RowGroupAccess},
};
use parquet::{
    arrow::arrow_reader::{RowSelection, RowSelector},
    file::metadata::{ParquetMetaData, RowGroupMetaData},
};
use std::{collections::VecDeque, ops::Range, sync::Arc};

/// Row groups in their order, rows of a file counted from 0.
pub(super) struct RowGroups {
    metadata: Arc<ParquetMetaData>,
    left: VecDeque<Group>,
}

/// A row group and its rows that have not been read.
struct Group {
    number: usize,
    all: Range<usize>,
    next: usize,
}

impl RowGroups {
    /// Those that begin in `range`, as DataFusion deals them out. None for a file that is said to have less than no
    /// rows.
    pub fn of(metadata: &Arc<ParquetMetaData>, range: Option<&FileRange>) -> Option<Self> {
        let (mut left, mut start) = (VecDeque::new(), 0_usize);
        for (number, group) in metadata.row_groups().iter().enumerate() {
            let end = usize::try_from(group.num_rows()).ok().and_then(|rows| start.checked_add(rows))?;
            if start < end && range.is_none_or(|range| range.contains(offset(group))) {
                left.push_back(Group { number, all: start..end, next: start });
            }
            start = end;
        }
        Some(Self { metadata: Arc::clone(metadata), left })
    }

    /// The one that is being read, and the number of its rows.
    pub fn current(&self) -> Option<(&RowGroupMetaData, usize)> {
        let group = self.left.front()?;
        Some((self.metadata.row_group(group.number), group.all.len()))
    }

    /// Rows of it that are left.
    pub fn rows(&self) -> Option<Range<usize>> {
        self.left.front().map(|group| group.next..group.all.end)
    }

    /// Leaves out row groups before the one with the row `row`; whether there were such.
    pub fn leave_out_before(&mut self, row: usize) -> bool {
        let before = self.left.len();
        while self.left.front().is_some_and(|group| group.all.end <= row) {
            self.left.pop_front();
        }
        self.left.len() < before
    }

    /// Rows before `row` have been read.
    pub fn read_to(&mut self, row: usize) {
        if let Some(group) = self.left.front_mut() {
            group.next = row;
        }
    }

    /// `file` without the rows that have been read or left out.
    pub fn rest_of(&self, file: &PartitionedFile) -> PartitionedFile {
        let mut plan = ParquetAccessPlan::new_none(self.metadata.num_row_groups());
        for Group { number, all, next } in &self.left {
            if *next == all.start {
                plan.scan(*number);
            } else {
                let rest = [RowSelector::skip(next - all.start), RowSelector::select(all.end - next)];
                plan.set(*number, RowGroupAccess::Selection(RowSelection::from(rest.to_vec())));
            }
        }
        PartitionedFile { range: None, ..file.clone() }.with_extension(plan)
    }
}

/// Where a row group begins, as DataFusion sees it when it deals out ranges of files.
fn offset(group: &RowGroupMetaData) -> i64 {
    let first = group.column(0);
    first.dictionary_page_offset().unwrap_or_else(|| first.data_page_offset())
}
