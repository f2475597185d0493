//! The rows of one file: its lists by pages beside its other columns, for as long as its lists are regular.

use super::{
    column::{Irregular, ListChunk, bytes_of},
    length_of,
    row_groups::RowGroups,
    scan::RunningScan,
};
use arrow::{
    array::{ArrayRef, AsArray, FixedSizeListArray, PrimitiveArray, RecordBatch, RecordBatchOptions},
    buffer::{Buffer, MutableBuffer, ScalarBuffer},
    datatypes::{DataType, FieldRef, Float32Type, Int64Type},
};
use datafusion::{
    common::internal_err,
    datasource::{
        listing::PartitionedFile,
        physical_plan::parquet::{ParquetAccessPlan, ParquetRowSelection},
    },
    error::{DataFusionError, Result},
    execution::SendableRecordBatchStream,
};
use futures::{Stream, StreamExt, stream};
use parquet::{
    arrow::{
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions},
        async_reader::AsyncFileReader,
    },
    file::metadata::{ParquetMetaData, RowGroupMetaData},
};
use std::{ops::Range, sync::Arc};

/// Bytes of lists in a batch, more or less: they stay in the processor's cache until the next operator has seen them.
const BATCH: usize = 1 << 20;

/// Rows that are still to be read.
pub(super) struct FileRows {
    scan: Arc<RunningScan>,
    source: Source,
}

enum Source {
    /// As DataFusion reads them.
    Planned(SendableRecordBatchStream),
    Pages(Box<Pages>),
}

struct Pages {
    file: PartitionedFile,
    reader: Box<dyn AsyncFileReader + Send>,
    /// Leaf columns of the file that hold the lists.
    leaves: Vec<usize>,
    groups: RowGroups,
    /// The lists of the row group that is being read.
    chunks: Vec<ListChunk>,
    others: SendableRecordBatchStream,
    /// Rows of the other columns that have been read before their lists.
    ahead: Option<RecordBatch>,
}

impl FileRows {
    /// The rows of `file`, or of the row groups that begin in its range.
    ///
    /// # Errors
    /// A scan that cannot begin.
    pub async fn open(scan: Arc<RunningScan>, file: PartitionedFile) -> Result<Self> {
        let source = match Pages::open(&scan, &file).await? {
            Some(pages) => Source::Pages(Box::new(pages)),
            None => Source::Planned(scan.planned(file)?),
        };
        Ok(Self { scan, source })
    }

    /// The rows as batches.
    pub fn stream(self) -> impl Stream<Item = Result<RecordBatch>> + Send {
        stream::try_unfold(self, |mut rows| async move { Ok(rows.next().await?.map(|batch| (batch, rows))) })
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if let Source::Pages(pages) = &mut self.source {
            match pages.next(&self.scan).await? {
                Ok(batch) => return Ok(batch),
                Err(Irregular::Chunk(error)) => {
                    let file = format!("the lists of {} cannot be read", pages.file.path());
                    return Err(DataFusionError::from(error).context(file));
                }
                Err(Irregular::Lists(reason)) => {
                    log::debug!("{}: read value by value: {reason}", pages.file.path());
                    self.source = Source::Planned(self.scan.planned(pages.groups.rest_of(&pages.file))?);
                }
            }
        }
        let Source::Planned(rows) = &mut self.source else { return internal_err!("no rows to go on with") };
        let batch = rows.next().await.transpose()?;
        self.scan.slow_rows.add(batch.as_ref().map_or(0, RecordBatch::num_rows));
        Ok(batch)
    }
}

impl Pages {
    /// Nothing where the file does not hold the lists as the scan gives them, or is said to be read in parts.
    async fn open(scan: &RunningScan, file: &PartitionedFile) -> Result<Option<Self>> {
        let in_parts = file.extension::<ParquetAccessPlan>().is_some()
            || file.extension::<ParquetRowSelection>().is_some();
        let mut reader = scan.open(file)?;
        let options = ArrowReaderOptions::new();
        // What is wrong with a file is for DataFusion to say.
        let metadata = reader.get_metadata(Some(&options)).await;
        let metadata = metadata.and_then(|metadata| ArrowReaderMetadata::try_new(metadata, options));
        let (false, Ok(metadata)) = (in_parts, metadata) else { return Ok(None) };
        let leaves: Option<Vec<usize>> =
            scan.lists().iter().map(|column| leaf(&metadata, &column.name, column.length)).collect();
        let groups = RowGroups::of(metadata.metadata(), file.range.as_ref());
        let (Some(leaves), Some(groups)) = (leaves, groups) else { return Ok(None) };
        if scan.is_filtered() && !numbers_rows(metadata.metadata()) {
            return Ok(None);
        }
        let (file, others) = (file.clone(), scan.others(file.clone())?);
        Ok(Some(Self { file, reader, leaves, groups, chunks: Vec::new(), others, ahead: None }))
    }

    async fn next(&mut self, scan: &RunningScan) -> Result<Result<Option<RecordBatch>, Irregular>> {
        let Some(others) = self.others_ahead().await? else {
            let whole = scan.is_filtered() || self.groups.rows().is_none();
            return Ok(if whole { Ok(None) } else { Err(Irregular::Lists("other columns end before them")) });
        };
        let bytes = scan.lists().iter().map(|column| bytes_of(1, column.length)).sum::<usize>();
        let most = others.num_rows().min((BATCH / bytes).max(1));
        let Some(wanted) = self.wanted(scan, &others, most) else {
            return internal_err!("{}: rows that are not in its row groups", self.file.path());
        };
        let rows = wanted.iter().map(Range::len).sum();
        match self.lists(scan, &wanted).await {
            Ok(lists) => {
                let batch = beside(scan, &others.slice(0, rows), lists)?;
                self.ahead = Some(others.slice(rows, others.num_rows() - rows));
                let end = wanted.last().map_or(0, |rows| rows.end);
                self.groups.read_to(end);
                self.begin_with(end);
                Ok(Ok(Some(batch)))
            }
            Err(reason) => Ok(Err(reason)),
        }
    }

    /// Rows of the other columns, at least one.
    async fn others_ahead(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            match self.ahead.take() {
                Some(batch) if batch.num_rows() > 0 => return Ok(Some(batch)),
                _ => match self.others.next().await.transpose()? {
                    Some(batch) => self.ahead = Some(batch),
                    None => return Ok(None),
                },
            }
        }
    }

    /// The rows of the file that the first rows of `others` belong to, at most `most` and of one row group: it is
    /// the current one afterwards. None if there is none, or not in this order.
    fn wanted(&mut self, scan: &RunningScan, others: &RecordBatch, most: usize) -> Option<Vec<Range<usize>>> {
        if !scan.is_filtered() {
            let Range { start, end } = self.groups.rows()?;
            let next = start..end.min(start + most);
            return Some(vec![next]);
        }
        let numbers = others.columns().last()?.as_primitive_opt::<Int64Type>()?.values();
        self.begin_with(usize::try_from(*numbers.first()?).ok()?);
        let mut left = self.groups.rows()?;
        let mut wanted: Vec<Range<usize>> = Vec::new();
        for number in &numbers[..most] {
            let row = usize::try_from(*number).ok().filter(|row| left.start <= *row)?;
            match wanted.last_mut() {
                _ if row >= left.end => break,
                Some(rows) if rows.end == row => rows.end += 1,
                _ => wanted.push(row..row + 1),
            }
            left.start = row + 1;
        }
        Some(wanted)
    }

    /// Makes the row group with the row `row` the current one.
    fn begin_with(&mut self, row: usize) {
        if self.groups.leave_out_before(row) {
            self.chunks.clear();
        }
    }

    /// The lists of the rows `wanted` of each column, of the current row group.
    async fn lists(
        &mut self,
        scan: &RunningScan,
        wanted: &[Range<usize>],
    ) -> Result<Vec<MutableBuffer>, Irregular> {
        if self.chunks.is_empty()
            && let Some((group, rows)) = self.groups.current()
        {
            let chunks = scan.lists().iter().zip(&self.leaves);
            let chunks =
                chunks.map(|(column, leaf)| ListChunk::new(group.column(*leaf), rows, column.length));
            self.chunks = chunks.collect::<Result<_, _>>()?;
        }
        let mut lists = Vec::with_capacity(self.chunks.len());
        for (chunk, column) in self.chunks.iter_mut().zip(scan.lists()) {
            let rows = wanted.iter().map(Range::len).sum();
            let mut values = MutableBuffer::with_capacity(bytes_of(rows, column.length).min(BATCH));
            let mut at = self.groups.rows().map_or(0, |rows| rows.start);
            for rows in wanted {
                chunk.read(rows.start - at, self.reader.as_mut(), None).await?;
                chunk.read(rows.len(), self.reader.as_mut(), Some(&mut values)).await?;
                at = rows.end;
            }
            lists.push(values);
        }
        Ok(lists)
    }
}

/// Whether row groups say their place in the file: the numbers of rows follow from it.
fn numbers_rows(metadata: &ParquetMetaData) -> bool {
    let ordinals = metadata.row_groups().iter().map(RowGroupMetaData::ordinal);
    ordinals.enumerate().all(|(place, ordinal)| ordinal.and_then(|i| usize::try_from(i).ok()) == Some(place))
}

/// The leaf column that holds the lists `name` of `length`, if a file has such.
fn leaf(metadata: &ArrowReaderMetadata, name: &str, length: usize) -> Option<usize> {
    let (root, field) = metadata.schema().column_with_name(name)?;
    if length_of(field.data_type()) != Some(length) {
        return None;
    }
    let schema = metadata.parquet_schema();
    let mut leaves = (0..schema.num_columns()).filter(|leaf| schema.get_column_root_idx(*leaf) == root);
    leaves.next().filter(|_| leaves.next().is_none())
}

/// `lists` at their places among `others`.
fn beside(scan: &RunningScan, others: &RecordBatch, lists: Vec<MutableBuffer>) -> Result<RecordBatch> {
    let mut columns = others.columns().to_vec();
    columns.truncate(scan.schema.fields().len() - lists.len());
    for (column, values) in scan.lists().iter().zip(lists) {
        columns.insert(column.output, array(scan.schema.field(column.output).data_type(), values)?);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(others.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(&scan.schema), columns, &options)?)
}

fn array(data_type: &DataType, values: MutableBuffer) -> Result<ArrayRef> {
    let DataType::FixedSizeList(item, length) = data_type else {
        return internal_err!("{data_type} is no list");
    };
    let (item, length): (&FieldRef, i32) = (item, *length);
    let values = PrimitiveArray::<Float32Type>::new(ScalarBuffer::from(Buffer::from(values)), None);
    Ok(Arc::new(FixedSizeListArray::try_new(Arc::clone(item), length, Arc::new(values), None)?))
}
