//! What an export will write, decided from the schema before any row is read.

use crate::{Error, Result};
use arrow::datatypes::{DataType, Schema};
use std::path::PathBuf;
use voxelflow_stage::{Atlas, Grid, KEY_COLUMNS, Provenance, nearest};
use voxelflow_storage::Place;

/// Key columns that a target may name, as `{subject}`.
const PLACEHOLDERS: [&str; 5] = ["subject", "session", "task", "run", "space"];
const COLUMN: &str = "column";

/// A column that becomes a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapColumn {
    /// Its name in the table.
    pub name: String,
    /// Its position in the table.
    pub index: usize,
    /// Volumes of the map: 1 for a number (3-D), n for a list of n numbers (4-D).
    pub volumes: usize,
}

/// What an export will write, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportPlan {
    /// The grid of the maps.
    pub grid: Grid,
    /// The columns that become maps.
    pub columns: Vec<MapColumn>,
    /// Columns that hold no numbers and are left out.
    pub skipped: Vec<String>,
    /// Position of `voxel`.
    pub(crate) voxel: usize,
    /// Positions of `i`, `j`, `k`, where the table still has them all.
    pub(crate) ijk: Option<[usize; 3]>,
    /// Key columns that the target names: name and position.
    pub(crate) keys: Vec<(&'static str, usize)>,
    /// Absolute, with placeholders.
    pub(crate) target: String,
}

/// Checks that maps can be written from a table of this schema to `target`, and how.
///
/// `target` is a file name (`maps/r.nii.gz` for one column, `maps/{subject}_{column}.nii.gz` for several),
/// or a folder, which means `folder/{column}.nii.gz`. `{subject}`, `{session}`, `{task}`, `{run}` and
/// `{space}` write a file for each value of that key column.
///
/// # Errors
/// [`Error::Export`] when the plan lost `voxel` or its grid, has no numeric column, or the target
/// cannot hold all maps.
pub fn check_export(schema: &Schema, target: &str) -> Result<ExportPlan> {
    let voxel = match schema.index_of("voxel") {
        Ok(at) if is_number(schema.field(at).data_type()) => at,
        Ok(at) => {
            return fail(format!("column `voxel` is {}, not a voxel number", schema.field(at).data_type()));
        }
        Err(_) => {
            return fail(match Atlas::of(schema)? {
                Some(atlas) => format!(
                    "rows are parcels of {}: maps are written of voxels, so join its voxels by `parcel`, or make the \
                     table without an atlas",
                    atlas.source
                ),
                None if matches!(Provenance::of(schema)?, Some(Provenance::Origin(_))) => {
                    "rows are vertices, grayordinates or rows of an array: maps are written of voxels; write these with \
                     COPY (SELECT …) TO 'name.parquet'"
                        .into()
                }
                None => "the plan lost its key column `voxel`: add it to the SELECT".into(),
            });
        }
    };
    let grid = Grid::of(schema).or_else(|_| {
        fail(
            "the plan lost its grid, or mixes several: select from a NIFTI table, or from tables made of one, \
             and export each grid by itself"
                .into(),
        )
    })?;
    let ijk = match ["i", "j", "k"].map(|name| schema.index_of(name)) {
        [Ok(i), Ok(j), Ok(k)] => Some([i, j, k]),
        _ => None,
    };
    let (columns, skipped) = map_columns(schema);
    if columns.is_empty() {
        return fail("the table has no numeric column beside its keys: add one to the SELECT".into());
    }
    let target = complete_target(target)?;
    let keys = placeholders(&target, schema)?;
    if columns.len() > 1 && !target.contains("{column}") {
        let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
        return fail(format!(
            "target {target} is one file, but the table has {} maps ({}): put {{column}} into the name, or select one",
            columns.len(),
            names.join(", ")
        ));
    }
    Ok(ExportPlan { grid, columns, skipped, voxel, ijk, keys, target })
}

fn fail<T>(reason: String) -> Result<T> {
    Err(Error::Export { reason })
}

fn map_columns(schema: &Schema) -> (Vec<MapColumn>, Vec<String>) {
    let (mut columns, mut skipped) = (Vec::new(), Vec::new());
    for (index, field) in schema.fields().iter().enumerate() {
        if KEY_COLUMNS.contains(&field.name().as_str()) {
            continue;
        }
        let volumes = match field.data_type() {
            kind if is_number(kind) => Some(1),
            DataType::FixedSizeList(item, n) if is_number(item.data_type()) => {
                usize::try_from(*n).ok().filter(|n| *n > 0)
            }
            _ => None,
        };
        match volumes {
            Some(volumes) => columns.push(MapColumn { name: field.name().clone(), index, volumes }),
            None => skipped.push(field.name().clone()),
        }
    }
    (columns, skipped)
}

fn is_number(kind: &DataType) -> bool {
    kind.is_numeric() || *kind == DataType::Boolean
}

/// An absolute file name: a folder gets `{column}.nii.gz`.
fn complete_target(target: &str) -> Result<String> {
    let path = Place::local(target, "EXPORT MAPS")?;
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let is_image = name.ends_with(".nii") || name.ends_with(".nii.gz");
    let folder = target.ends_with('/') || path.is_dir() || !name.contains('.');
    let path = match (is_image, folder) {
        (true, _) => path,
        (false, true) => path.join("{column}.nii.gz"),
        (false, false) => return fail(format!("target {target} ends in neither .nii nor .nii.gz")),
    };
    Ok(path.to_string_lossy().into_owned())
}

fn placeholders(target: &str, schema: &Schema) -> Result<Vec<(&'static str, usize)>> {
    let mut keys = Vec::new();
    let mut rest = target;
    while let Some((_, after)) = rest.split_once('{') {
        let Some((name, tail)) = after.split_once('}') else {
            return fail(format!("target {target}: a {{ without its }}"));
        };
        rest = tail;
        let Some(key) = PLACEHOLDERS.into_iter().find(|p| *p == name) else {
            if name == COLUMN {
                continue;
            }
            let valid: Vec<String> = PLACEHOLDERS.iter().chain([&COLUMN]).map(|p| (*p).to_owned()).collect();
            let hint = nearest(name, &valid).map(|n| format!(", did you mean {{{n}}}?")).unwrap_or_default();
            return fail(format!(
                "target {target}: unknown {{{name}}}{hint}; there are: {}",
                valid.join(", ")
            ));
        };
        let Ok(index) = schema.index_of(key) else {
            return fail(format!(
                "target {target} names {{{key}}}, but the plan lost that key column: add it to the SELECT"
            ));
        };
        if !keys.contains(&(key, index)) {
            keys.push((key, index));
        }
    }
    Ok(keys)
}

impl ExportPlan {
    /// The folder above every file that is written.
    pub fn folder(&self) -> PathBuf {
        let fixed = self.target.split_once('{').map_or(self.target.as_str(), |(fixed, _)| fixed);
        fixed
            .rsplit_once('/')
            .map_or_else(|| PathBuf::from("."), |(folder, _)| PathBuf::from(format!("{folder}/")))
    }

    /// The file of `column` for rows whose named keys have `values`.
    pub(crate) fn file(&self, column: &str, values: &[String]) -> PathBuf {
        let mut name = self.target.replace("{column}", &file_part(column));
        for ((key, _), value) in self.keys.iter().zip(values) {
            name = name.replace(&format!("{{{key}}}"), &file_part(value));
        }
        name.into()
    }
}

/// A value as part of a file name: what would leave the folder or confuse a shell becomes `-`.
fn file_part(value: &str) -> String {
    let safe = |c: char| if c.is_alphanumeric() || "._+-".contains(c) { c } else { '-' };
    let part: String = value.chars().map(safe).collect();
    part.strip_prefix('.').map(|rest| format!("-{rest}")).unwrap_or(part)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow::datatypes::Field;
    use std::sync::Arc;
    use voxelflow_stage::SeriesOrigin;

    fn grid() -> Grid {
        let affine = [[2.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 1.0]];
        Grid {
            shape: [3, 4, 5],
            affine,
            xform_code: 1,
            t_r: Some(2.0),
            mask_hash: "x".into(),
            mask_voxels: 1,
            source: "a.nii".into(),
            history: vec![],
        }
    }

    fn schema(names: &[(&str, DataType)]) -> Schema {
        let fields: Vec<Field> = names.iter().map(|(n, t)| Field::new(*n, t.clone(), true)).collect();
        Schema::new_with_metadata(fields, grid().to_metadata().unwrap())
    }

    fn list(n: i32) -> DataType {
        DataType::FixedSizeList(Arc::new(Field::new_list_field(DataType::Float32, true)), n)
    }

    fn text(schema: &Schema, target: &str) -> String {
        let e = check_export(schema, target).unwrap_err();
        assert!(e.is_input());
        e.to_string()
    }

    #[test]
    fn numbers_become_3d_and_lists_4d() {
        let schema = schema(&[
            ("subject", DataType::Utf8),
            ("voxel", DataType::UInt32),
            ("i", DataType::UInt16),
            ("r", DataType::Float64),
            ("split", DataType::Utf8),
            ("hidden", list(16)),
        ]);
        let plan = check_export(&schema, "/m/sub-{subject}_{column}.nii.gz").unwrap();
        let found: Vec<(&str, usize)> = plan.columns.iter().map(|c| (c.name.as_str(), c.volumes)).collect();
        assert_eq!(found, [("r", 1), ("hidden", 16)]);
        assert_eq!(plan.skipped, ["split"]);
        assert_eq!(plan.folder(), PathBuf::from("/m/"));
        assert_eq!(plan.file("r", &["0/1".into()]), PathBuf::from("/m/sub-0-1_r.nii.gz"));
    }

    #[test]
    fn a_folder_gets_a_file_for_each_column() {
        let schema = schema(&[("voxel", DataType::UInt32), ("r", DataType::Float32)]);
        for target in ["/m/maps", "/m/maps/"] {
            assert_eq!(
                check_export(&schema, target).unwrap().file("r", &[]),
                PathBuf::from("/m/maps/r.nii.gz")
            );
        }
    }

    #[test]
    fn what_was_lost_is_named() {
        let whole = [("voxel", DataType::UInt32), ("r", DataType::Float32)];
        assert!(
            text(&schema(&whole[1..]), "m").contains("lost its key column `voxel`: add it to the SELECT")
        );
        let origin = SeriesOrigin::default().to_metadata().unwrap();
        let surface = Schema::new_with_metadata(schema(&whole[1..]).fields().clone(), origin);
        assert!(text(&surface, "m").contains("maps are written of voxels; write these with COPY"));
        assert!(text(&schema(&whole[..1]), "m").contains("no numeric column"));
        let without_grid = Schema::new(schema(&whole).fields().clone());
        assert!(text(&without_grid, "m").contains("lost its grid"));
        assert!(text(&schema(&whole), "m/{subject}.nii").contains("lost that key column"));
    }

    #[test]
    fn a_target_that_cannot_hold_the_maps_is_refused() {
        let schema = schema(&[("voxel", DataType::UInt32), ("r", DataType::Float32), ("b", DataType::Int32)]);
        assert!(text(&schema, "m.nii.gz").contains("has 2 maps (r, b)"));
        assert!(text(&schema, "m.img").contains("neither .nii nor .nii.gz"));
        assert!(text(&schema, "{colum}.nii").contains("did you mean {column}?"));
        assert!(text(&schema, "{column.nii").contains("without its }"));
        assert!(text(&schema, "s3://lab/{column}.nii").contains("local path"));
    }
}
