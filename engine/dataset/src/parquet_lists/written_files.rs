//! Parquet files of many kinds, for tests.

#![allow(clippy::unwrap_used)]

use arrow::{
    array::{Array, ArrayRef, FixedSizeListArray, Float32Array, RecordBatch, StringArray, UInt32Array},
    datatypes::{DataType, Field, Schema},
};
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, Encoding, ZstdLevel},
    file::properties::{WriterProperties, WriterVersion},
    schema::types::ColumnPath,
};
use proptest::{prelude::*, sample::select};
use std::{fs, path::Path, sync::Arc};

/// A file to be written.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub rows: usize,
    pub length: usize,
    /// Different values: few of them make dictionaries worth it.
    pub distinct: u32,
    /// One in so many lists and values is null; 0: none is.
    pub null_lists: usize,
    pub null_values: usize,
    pub nullable: bool,
    pub encoding: Option<Encoding>,
    pub compression: Compression,
    pub version: WriterVersion,
    pub page_rows: usize,
    pub group_rows: usize,
}

pub(super) fn shapes() -> impl Strategy<Value = Shape> {
    let compressions =
        [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(ZstdLevel::default())];
    (
        (0_usize..300, 1_usize..40, select(vec![3_u32, 1_000_000])),
        (select(vec![0_usize, 0, 0, 50]), select(vec![0_usize, 0, 0, 500]), any::<bool>()),
        select(vec![None, Some(Encoding::PLAIN), Some(Encoding::BYTE_STREAM_SPLIT)]),
        select(compressions.to_vec()),
        select(vec![WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0]),
        (1_usize..100, 1_usize..150),
    )
        .prop_map(|(size, nulls, encoding, compression, version, pages)| Shape {
            rows: size.0,
            length: size.1,
            distinct: size.2,
            null_lists: nulls.0,
            null_values: nulls.1,
            nullable: nulls.2 || nulls.0 > 0 || nulls.1 > 0,
            encoding,
            compression,
            version,
            page_rows: pages.0,
            group_rows: pages.1,
        })
}

impl Shape {
    /// A file that is read by pages.
    pub fn regular() -> Self {
        Self {
            rows: 200,
            length: 7,
            distinct: 1_000_000,
            null_lists: 0,
            null_values: 0,
            nullable: true,
            encoding: Some(Encoding::PLAIN),
            compression: Compression::UNCOMPRESSED,
            version: WriterVersion::PARQUET_1_0,
            page_rows: 30,
            group_rows: 90,
        }
    }

    pub fn is_regular(&self) -> bool {
        self.null_lists == 0 && self.null_values == 0
    }

    pub fn batch(&self) -> RecordBatch {
        let is_null = |one_in: usize, i: usize| one_in > 0 && i % one_in == one_in - 1;
        let value = |i: usize| (i as u32).wrapping_mul(2_654_435_761) % self.distinct;
        let values: Float32Array = (0..self.rows * self.length)
            .map(|i| (!is_null(self.null_values, i)).then(|| value(i) as f32 - 0.5))
            .collect();
        let lists = (0..self.rows).map(|row| !is_null(self.null_lists, row)).collect::<Vec<_>>();
        let lists = (self.null_lists > 0).then(|| lists.into());
        let item = Arc::new(Field::new_list_field(DataType::Float32, self.nullable));
        let lists = FixedSizeListArray::new(item, self.length as i32, Arc::new(values), lists);
        let voxels: UInt32Array = (0..self.rows as u32).collect();
        let subjects: StringArray =
            (0..self.rows).map(|row| (row % 5 > 0).then(|| format!("s{}", row / 60))).collect();
        let schema = Schema::new(vec![
            Field::new("subject", DataType::Utf8, true),
            Field::new("series", lists.data_type().clone(), self.nullable),
            Field::new("voxel", DataType::UInt32, false),
        ]);
        let columns: Vec<ArrayRef> = vec![Arc::new(subjects), Arc::new(lists), Arc::new(voxels)];
        RecordBatch::try_new(Arc::new(schema), columns).unwrap()
    }

    pub fn write(&self, path: &Path) -> RecordBatch {
        let batch = self.batch();
        let series = ColumnPath::new(vec!["series".into(), "list".into(), "element".into()]);
        let mut properties = WriterProperties::builder()
            .set_writer_version(self.version)
            .set_compression(self.compression)
            .set_data_page_row_count_limit(self.page_rows)
            .set_write_batch_size(16)
            .set_max_row_group_row_count(Some(self.group_rows))
            .set_column_dictionary_enabled(series.clone(), self.encoding.is_none());
        if let Some(encoding) = self.encoding {
            properties = properties.set_column_encoding(series, encoding);
        }
        let file = fs::File::create(path).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties.build())).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        batch
    }
}
