//! One schema of many files.
//!
//! A column has a type that holds all values of its types in the files: `int32` and `int64` are `int64`, `float32` and
//! `float64` are `float64`. What has no such type is refused with the names of two files. A column that a file lacks is
//! null there. Of the words that other tools put beside a schema (`pandas`, `org.apache.spark…`) those remain that all
//! files agree on; ours say what the rows are (a grid), so that files which differ in them are no one table.

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use datafusion::{common::plan_err, error::Result};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// What our own metadata begin with.
const OURS: &str = "voxelflow.";

/// The schema of the files `schemas`, each with its name.
///
/// # Errors
/// Files that do not go together.
pub(super) fn merged(schemas: &[(String, SchemaRef)]) -> Result<Schema> {
    let Some((first_file, first)) = schemas.first() else { return Ok(Schema::empty()) };
    // The files that gave columns and metadata what they are.
    let mut columns: Vec<(Field, &str)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (file, schema) in schemas {
        for field in schema.fields() {
            let Some(place) = places.get(field.name()) else {
                places.insert(field.name().clone(), columns.len());
                columns.push((field.as_ref().clone(), file));
                continue;
            };
            let (known, known_file) = &mut columns[*place];
            let Some(both) = common_field(known, field) else {
                return plan_err!(
                    "column `{}` is {} in {known_file} and {} in {file}; convert one of them",
                    field.name(),
                    known.data_type(),
                    field.data_type()
                );
            };
            if both.data_type() != known.data_type() {
                *known_file = file;
            }
            *known = both;
        }
    }
    let everywhere = |name: &str| schemas.iter().all(|(_, schema)| schema.column_with_name(name).is_some());
    let fields = columns.into_iter().map(|(field, _)| {
        let nullable = field.is_nullable() || !everywhere(field.name());
        field.with_nullable(nullable)
    });
    let fields: Fields = fields.collect();
    let (mut metadata, mut disputed) = (first.metadata().clone(), HashSet::new());
    for (file, schema) in &schemas[1..] {
        for (key, value) in schema.metadata() {
            match metadata.get(key) {
                None => {
                    metadata.insert(key.clone(), value.clone());
                }
                Some(known) if known == value => {}
                Some(_) if key.starts_with(OURS) => {
                    return plan_err!(
                        "the rows of {first_file} and {file} differ in `{key}`; read them as tables of their own"
                    );
                }
                Some(_) => {
                    disputed.insert(key);
                }
            }
        }
    }
    metadata.retain(|key, _| !disputed.contains(key));
    Ok(Schema::new_with_metadata(fields, metadata))
}

fn common_field(a: &Field, b: &Field) -> Option<Field> {
    let metadata = a.metadata().iter().filter(|(key, value)| b.metadata().get(*key) == Some(*value));
    let metadata = metadata.map(|(key, value)| (key.clone(), value.clone())).collect();
    let data_type = common_type(a.data_type(), b.data_type())?;
    Some(Field::new(a.name(), data_type, a.is_nullable() || b.is_nullable()).with_metadata(metadata))
}

/// The type that holds the values of both.
fn common_type(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::{
        Date32, Date64, Decimal128, Dictionary, FixedSizeList, Float16, Float32, Float64, LargeList,
        LargeUtf8, List, Null, Struct, Utf8, Utf8View,
    };
    if a == b {
        return Some(a.clone());
    }
    let item = |a: &FieldRef, b: &FieldRef| common_field(a, b).map(Arc::new);
    match (a, b) {
        (Null, other) | (other, Null) => Some(other.clone()),
        (Dictionary(_, values), other) | (other, Dictionary(_, values)) => {
            let other = if let Dictionary(_, others) = other { others.as_ref() } else { other };
            common_type(values, other)
        }
        (Utf8 | LargeUtf8 | Utf8View, Utf8 | LargeUtf8 | Utf8View) => Some(Utf8),
        (Float16 | Float32 | Float64, Float16 | Float32 | Float64) => {
            Some(if [a, b].contains(&&Float64) { Float64 } else { Float32 })
        }
        (whole, Float16 | Float32 | Float64) | (Float16 | Float32 | Float64, whole) if whole.is_integer() => {
            // All whole numbers of up to 32 bits are numbers of 64 bits.
            (whole.primitive_width()? <= 4).then_some(Float64)
        }
        (a, b) if a.is_integer() && b.is_integer() => common_integer(a, b),
        (Decimal128(p, s), Decimal128(q, t)) => {
            let (scale, whole) =
                (*s.max(t), (i16::from(*p) - i16::from(*s)).max(i16::from(*q) - i16::from(*t)));
            let precision =
                u8::try_from(whole + i16::from(scale)).ok().filter(|precision| *precision <= 38)?;
            Some(Decimal128(precision, scale))
        }
        (Date32 | Date64, Date32 | Date64) => Some(Date64),
        (FixedSizeList(a, n), FixedSizeList(b, m)) if n == m => Some(FixedSizeList(item(a, b)?, *n)),
        (List(a), List(b)) => Some(List(item(a, b)?)),
        (List(a) | LargeList(a), List(b) | LargeList(b)) => Some(LargeList(item(a, b)?)),
        (Struct(a), Struct(b)) if a.len() == b.len() => {
            let fields =
                a.iter().map(|field| item(field, b.iter().find(|other| other.name() == field.name())?));
            Some(Struct(fields.collect::<Option<Fields>>()?))
        }
        _ => None,
    }
}

fn common_integer(a: &DataType, b: &DataType) -> Option<DataType> {
    let (wide, narrow) = if a.primitive_width()? >= b.primitive_width()? { (a, b) } else { (b, a) };
    if wide.is_signed_integer() == narrow.is_signed_integer() {
        return Some(wide.clone());
    }
    match (
        wide.is_signed_integer() && wide.primitive_width()? > narrow.primitive_width()?,
        wide.primitive_width()?,
    ) {
        (true, _) => Some(wide.clone()),
        (false, 1) => Some(DataType::Int16),
        (false, 2) => Some(DataType::Int32),
        (false, 4) => Some(DataType::Int64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn files(types: &[(&str, DataType)], metadata: &[&str]) -> Vec<(String, SchemaRef)> {
        let file = |(n, (name, data_type)): (usize, &(&str, DataType))| {
            let metadata = metadata.get(n).map(|text| ("pandas".to_owned(), (*text).to_owned()));
            let schema = Schema::new(vec![Field::new(*name, data_type.clone(), false)]);
            let schema = schema.with_metadata(metadata.into_iter().collect());
            (format!("part-{n}"), Arc::new(schema))
        };
        types.iter().enumerate().map(file).collect()
    }

    #[test]
    fn a_column_has_the_type_that_holds_all_values() {
        use DataType::{Float32, Float64, Int8, Int32, Int64, LargeUtf8, UInt8, UInt32, UInt64, Utf8};
        let cases = [
            (Int32, Int64, Some(Int64)),
            (Int64, Int32, Some(Int64)),
            (Float32, Float64, Some(Float64)),
            (Int32, Float32, Some(Float64)),
            (Int64, Float64, None),
            (UInt32, Int32, Some(Int64)),
            (UInt8, Int64, Some(Int64)),
            (Int8, UInt8, Some(DataType::Int16)),
            (UInt64, Int64, None),
            (Utf8, LargeUtf8, Some(Utf8)),
            (Utf8, Int64, None),
        ];
        for (a, b, both) in cases {
            let found = merged(&files(&[("x", a.clone()), ("x", b.clone())], &[]));
            match (found, both) {
                (Ok(schema), Some(both)) => assert_eq!(*schema.field(0).data_type(), both, "{a} and {b}"),
                (Err(e), None) => {
                    let text = e.to_string();
                    assert!(
                        text.contains("part-0") && text.contains("part-1") && text.contains("`x`"),
                        "{text}"
                    );
                }
                (found, both) => panic!("{a} and {b}: {found:?}, {both:?}"),
            }
        }
    }

    #[test]
    fn a_column_that_a_file_lacks_is_null_there() {
        let schema = merged(&files(&[("x", DataType::Int32), ("y", DataType::Utf8)], &[])).unwrap();
        assert!(schema.fields().iter().all(|field| field.is_nullable()));
        assert_eq!(schema.fields().len(), 2);
    }

    #[test]
    fn words_that_files_do_not_agree_on_are_left_out() {
        let same = merged(&files(&[("x", DataType::Int32), ("x", DataType::Int32)], &["a", "a"])).unwrap();
        assert_eq!(same.metadata()["pandas"], "a");
        let types = [("x", DataType::Int32), ("x", DataType::Int32), ("x", DataType::Int32)];
        let other = merged(&files(&types, &["a", "b", "a"])).unwrap();
        assert!(other.metadata().is_empty());
        let mut grids = files(&types[..2], &[]);
        for (n, (_, schema)) in grids.iter_mut().enumerate() {
            let metadata = HashMap::from([("voxelflow.grid".to_owned(), n.to_string())]);
            *schema = Arc::new(schema.as_ref().clone().with_metadata(metadata));
        }
        let e = merged(&grids).unwrap_err().to_string();
        assert!(e.contains("voxelflow.grid") && e.contains("part-1"), "{e}");
    }
}
