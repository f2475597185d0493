//! Random tables: several files or partitions, some of them empty; NULL, NaN, -0.0, lists.

use crate::{duckdb::DuckDb, random::Random};
use arrow::{
    array::{
        ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, ListBuilder, PrimitiveBuilder,
        RecordBatch, StringArray,
    },
    datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef},
};
use datafusion::{
    datasource::MemTable,
    prelude::{ParquetReadOptions, SessionContext},
};
use parquet::{arrow::ArrowWriter, file::properties::WriterProperties};
use std::{
    fmt::Write,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
};
use voxelflow::{Error, Result, Session};

/// What kind of values a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Int,
    Float,
    Text,
    Bool,
    List,
}

impl Kind {
    fn data_type(self) -> DataType {
        match self {
            Self::Int => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Text => DataType::Utf8,
            Self::Bool => DataType::Boolean,
            Self::List => DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true))),
        }
    }
}

/// A table: what it is called, its columns, and its rows in parts.
pub struct Table {
    pub name: String,
    pub columns: Vec<(&'static str, Kind)>,
    /// It is in memory, not in files.
    pub in_memory: bool,
    parts: Vec<RecordBatch>,
    folder: PathBuf,
}

/// What may be among the numbers of the tables of one round.
#[derive(Clone, Copy)]
pub struct Oddities {
    pub nan: bool,
    pub negative_zero: bool,
}

/// Columns that a table may have besides `id`, `k` and `m`.
const OTHERS: &[(&str, Kind)] = &[
    ("lo", Kind::Int),
    ("hi", Kind::Int),
    ("f", Kind::Float),
    ("g", Kind::Float),
    ("s", Kind::Text),
    ("b", Kind::Bool),
    ("l", Kind::List),
];
const TEXTS: &[&str] = &["", "a", "b", "ab", "B", "é", "a b"];

impl Table {
    /// A random table, whose files are below `folder`.
    pub fn random(name: &str, folder: &Path, odd: Oddities, random: &mut Random) -> Result<Self> {
        let mut columns = vec![("id", Kind::Int), ("k", Kind::Int), ("m", Kind::Int)];
        columns.extend(OTHERS.iter().filter(|_| random.chance(75)));
        let parts = 1 + random.below(4);
        let rows = *random.one(&[0, 1, 3, 8, 15, 15, 25, 25]);
        let mut of_part: Vec<Vec<i64>> = vec![Vec::new(); parts];
        for id in 0..rows {
            // The first part is often left empty.
            let part = if random.chance(30) { parts - 1 } else { random.below(parts) };
            of_part[part].push(id);
        }
        let schema = schema_of(&columns);
        let parts =
            of_part.iter().map(|ids| batch(&schema, &columns, ids, odd, random)).collect::<Result<_>>()?;
        let (name, folder) = (name.to_owned(), folder.join(name));
        let table = Self { name, columns, in_memory: random.chance(25), parts, folder };
        table.write()?;
        Ok(table)
    }

    /// A table of whole numbers in files, each of the rows of one part.
    pub fn of_numbers(
        name: &str,
        folder: &Path,
        columns: &[&'static str],
        parts: &[&[Vec<Option<i64>>]],
    ) -> Result<Self> {
        let columns: Vec<_> = columns.iter().map(|name| (*name, Kind::Int)).collect();
        let schema = schema_of(&columns);
        let part = |rows: &&[Vec<Option<i64>>]| {
            let column = |at| Arc::new(rows.iter().map(|row| row[at]).collect::<Int64Array>()) as ArrayRef;
            let all = (0..columns.len()).map(column).collect();
            RecordBatch::try_new(Arc::clone(&schema), all).map_err(|e| Error::input(name, e))
        };
        let parts = parts.iter().map(part).collect::<Result<_>>()?;
        let table =
            Self { name: name.to_owned(), columns, in_memory: false, parts, folder: folder.join(name) };
        table.write()?;
        Ok(table)
    }

    fn write(&self) -> Result<()> {
        fs::create_dir_all(&self.folder).map_err(|e| Error::input(self.folder.display(), e))?;
        for (at, part) in self.parts.iter().enumerate() {
            let path = self.folder.join(format!("part-{at}.parquet"));
            let write = || -> Result<(), Box<dyn std::error::Error>> {
                let several = WriterProperties::builder().set_max_row_group_row_count(Some(7)).build();
                let mut writer = ArrowWriter::try_new(File::create(&path)?, part.schema(), Some(several))?;
                writer.write(part)?;
                writer.close()?;
                Ok(())
            };
            write().map_err(|e| Error::input(path.display(), e))?;
        }
        Ok(())
    }

    /// Makes the table known to a session.
    pub async fn register(&self, context: &SessionContext) -> Result<()> {
        let unfit = |e: datafusion::error::DataFusionError| Error::input(&self.name, e);
        if self.in_memory {
            let parts = self.parts.iter().map(|part| vec![part.clone()]).collect();
            let table = MemTable::try_new(schema_of(&self.columns), parts).map_err(unfit)?;
            context.register_table(self.name.as_str(), Arc::new(table)).map_err(unfit)?;
        } else {
            let folder = self.folder.display().to_string();
            context
                .register_parquet(&self.name, folder, ParquetReadOptions::default())
                .await
                .map_err(unfit)?;
        }
        Ok(())
    }

    /// The statement that makes it known to DuckDB.
    pub fn for_duckdb(&self) -> String {
        let (name, folder) = (&self.name, self.folder.display());
        format!("CREATE OR REPLACE VIEW {name} AS SELECT * FROM read_parquet('{folder}/*.parquet')")
    }

    /// Whether `sign` is true of one of its numbers.
    pub fn has(&self, sign: fn(f64) -> bool) -> bool {
        let floats = self
            .parts
            .iter()
            .flat_map(|part| part.columns())
            .filter_map(|c| c.as_primitive_opt::<Float64Type>());
        floats.into_iter().any(|column| column.iter().flatten().any(sign))
    }

    /// The same table with other numbers, whose files are below `folder`.
    pub fn with_numbers(&self, folder: &Path, number: fn(f64) -> f64) -> Result<Self> {
        let part = |part: &RecordBatch| {
            let changed = |column: &ArrayRef| match column.as_primitive_opt::<Float64Type>() {
                Some(floats) => Arc::new(floats.unary::<_, Float64Type>(number)) as ArrayRef,
                None => Arc::clone(column),
            };
            let columns = part.columns().iter().map(changed).collect();
            RecordBatch::try_new(part.schema(), columns).map_err(|e| Error::input(&self.name, e))
        };
        let table = Self {
            name: self.name.clone(),
            columns: self.columns.clone(),
            in_memory: self.in_memory,
            parts: self.parts.iter().map(part).collect::<Result<_>>()?,
            folder: folder.join(&self.name),
        };
        table.write()?;
        Ok(table)
    }

    /// Its rows as text, part by part.
    pub fn shown(&self) -> String {
        let place = if self.in_memory { "memory" } else { "files" };
        let mut text = format!("{} ({place}, {} parts)\n", self.name, self.parts.len());
        for (at, part) in self.parts.iter().enumerate() {
            let rows = arrow::util::pretty::pretty_format_batches(std::slice::from_ref(part));
            let _ =
                writeln!(text, "part {at}\n{}", rows.map_or_else(|e| e.to_string(), |rows| rows.to_string()));
        }
        text
    }
}

/// Makes the tables known to `sessions` and to DuckDB, instead of those of the same names.
pub async fn know(
    tables: &[Table],
    sessions: impl IntoIterator<Item = &Session>,
    duckdb: Option<&mut DuckDb>,
) -> Result<()> {
    for session in sessions {
        for table in tables {
            let unfit = |e| Error::input(&table.name, e);
            session.context().deregister_table(table.name.as_str()).map_err(unfit)?;
            table.register(session.context()).await?;
        }
    }
    match duckdb {
        Some(duckdb) => duckdb.set_up(&tables.iter().map(Table::for_duckdb).collect::<Vec<_>>()),
        None => Ok(()),
    }
}

fn schema_of(columns: &[(&str, Kind)]) -> SchemaRef {
    Arc::new(Schema::new(
        columns
            .iter()
            .map(|(name, kind)| Field::new(*name, kind.data_type(), *name != "id"))
            .collect::<Vec<_>>(),
    ))
}

fn batch(
    schema: &SchemaRef,
    columns: &[(&str, Kind)],
    ids: &[i64],
    odd: Oddities,
    random: &mut Random,
) -> Result<RecordBatch> {
    let columns = columns.iter().map(|(name, kind)| column(name, *kind, ids, odd, random)).collect();
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(|e| Error::input("a random table", e))
}

fn column(name: &str, kind: Kind, ids: &[i64], odd: Oddities, random: &mut Random) -> ArrayRef {
    let rows = 0..ids.len();
    let some = |random: &mut Random| !random.chance(15);
    match kind {
        Kind::Int if name == "id" => Arc::new(Int64Array::from(ids.to_vec())),
        Kind::Int => {
            let range = match name {
                "k" => 0..6,
                "lo" => 0..25,
                "hi" => 5..35,
                _ => -20..20,
            };
            let value = |_| some(random).then(|| random.within(range.clone()));
            Arc::new(rows.map(value).collect::<Int64Array>())
        }
        Kind::Float => {
            let value = |_| {
                some(random).then(|| match random.below(12) {
                    0 if odd.nan => f64::NAN,
                    1 if odd.negative_zero => -0.0,
                    2 => 0.0,
                    _ => random.within(-8..8) as f64 * 0.5,
                })
            };
            Arc::new(rows.map(value).collect::<Float64Array>())
        }
        Kind::Text => {
            Arc::new(rows.map(|_| some(random).then(|| *random.one(TEXTS))).collect::<StringArray>())
        }
        Kind::Bool => {
            Arc::new(rows.map(|_| some(random).then(|| random.chance(50))).collect::<BooleanArray>())
        }
        Kind::List => {
            let mut lists = ListBuilder::new(PrimitiveBuilder::<Int64Type>::new());
            for _ in rows {
                for _ in 0..random.below(4) {
                    lists.values().append_option(some(random).then(|| random.within(0..6)));
                }
                lists.append(some(random));
            }
            Arc::new(lists.finish())
        }
    }
}
