//! `EXPORT MAPS`: rows of any table that kept `voxel` and its grid become NIfTI images.

use crate::export_rows::MapRows;
use crate::{Error, ExportPlan, Result};
use arrow::array::{Array, ArrayRef, AsArray, Float32Array, RecordBatch, StringArray, UInt32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, UInt32Type};
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;
use voxelflow_formats::{NiftiSpec, NiftiWriter};
use voxelflow_stage::known_key;

/// Settings of an export.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportOptions {
    /// Value of voxels without one: those without a row, and those whose cell is null or NaN. NaN is the default: 0
    /// would be a value, in a map of p the most significant one.
    pub fill: f32,
    /// Bytes of rows and volumes held in memory; more goes to temporary files.
    pub memory_limit: usize,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self { fill: f32::NAN, memory_limit: 512 << 20 }
    }
}

/// Writes the maps of `plan` from `rows` and answers the files, in order of keys and columns.
///
/// Numbers are written as float32 (whole numbers are exact up to 2^24). Voxels without a value get
/// [`ExportOptions::fill`]. Rows may come in any order. Every row is read before a file is
/// begun; each file appears whole. A `dataset_description.json` (BIDS derivatives) is put into the
/// folder, unless another program's lies there.
///
/// # Errors
/// [`Error::Export`] for two rows of one voxel, a voxel outside the grid, a null key that names a file, or a map
/// in which no voxel has a value; an error of the rows; a folder that cannot be written.
pub async fn export_maps(
    plan: &ExportPlan,
    mut rows: SendableRecordBatchStream,
    options: &ExportOptions,
) -> Result<Vec<PathBuf>> {
    let (send, mut receive) = mpsc::channel::<RecordBatch>(2);
    let (plan, options) = (plan.clone(), options.clone());
    let writer = tokio::task::spawn_blocking(move || {
        let mut export = Export { sets: BTreeMap::new(), plan, options };
        while let Some(batch) = receive.blocking_recv() {
            export.push(&batch)?;
        }
        Ok::<Export, Error>(export)
    });
    let mut failure = None;
    while let Some(batch) = rows.next().await {
        match batch {
            // The writer only hangs up when it failed; its own error is the answer then.
            Ok(batch) => {
                if send.send(batch).await.is_err() {
                    break;
                }
            }
            Err(e) => {
                failure = Some(e);
                break;
            }
        }
    }
    drop(send);
    let join = |e| Error::Plan(DataFusionError::External(Box::new(e)));
    let export = writer.await.map_err(join)?;
    match failure {
        Some(e) => Err(Error::Plan(e)),
        None => {
            let export = export?;
            tokio::task::spawn_blocking(move || export.write()).await.map_err(join)?
        }
    }
}

/// Rows sorted into maps, one set for each combination of the keys that the target names.
struct Export {
    plan: ExportPlan,
    options: ExportOptions,
    sets: BTreeMap<Vec<String>, MapSet>,
}

/// Maps of the same rows.
struct MapSet {
    voxels: Vec<u32>,
    seen: Vec<bool>,
    maps: Vec<MapRows>,
    /// Whether a map has a value at all.
    valued: Vec<bool>,
}

impl Export {
    fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let voxels = voxels(batch, &self.plan)?;
        let keys = self.keys(batch)?;
        let columns = self.plan.columns.iter();
        let values: Vec<Float32Array> =
            columns.map(|c| numbers(batch.column(c.index), c.volumes)).collect::<Result<_>>()?;
        let size: usize = self.plan.grid.shape.iter().product();
        for (r, voxel) in voxels.iter().enumerate() {
            let key: Vec<String> = keys.iter().map(|k| k.value(r).to_owned()).collect();
            let maps = || self.plan.columns.iter().map(|c| MapRows::new(c.volumes)).collect();
            let set = self.sets.entry(key).or_insert_with(|| MapSet {
                voxels: Vec::new(),
                seen: vec![false; size],
                maps: maps(),
                valued: vec![false; self.plan.columns.len()],
            });
            if std::mem::replace(&mut set.seen[*voxel as usize], true) {
                return Err(duplicate(*voxel, &self.plan));
            }
            set.voxels.push(*voxel);
            let maps = set.maps.iter_mut().zip(&mut set.valued);
            for (((map, valued), column), values) in maps.zip(&self.plan.columns).zip(&values) {
                let row = &values.values()[r * column.volumes..(r + 1) * column.volumes];
                *valued = *valued || row.iter().any(|x| !x.is_nan());
                map.push(row)?;
            }
        }
        let held: usize = self.sets.values().flat_map(|s| &s.maps).map(MapRows::memory).sum();
        if held > self.options.memory_limit / 2 {
            self.sets.values_mut().flat_map(|s| &mut s.maps).try_for_each(MapRows::spill)?;
        }
        Ok(())
    }

    fn keys(&self, batch: &RecordBatch) -> Result<Vec<StringArray>> {
        let text = |(name, index): &(&str, usize)| {
            let column = cast(batch.column(*index), &DataType::Utf8)?;
            let texts = column.as_string::<i32>();
            if texts.iter().any(|text| known_key(text).is_none()) {
                return Err(Error::Export {
                    reason: format!(
                        "column `{name}` is empty in some rows, so {{{name}}} names no file: leave it out of the \
                         target, or set it where the table is made (OPTIONS ({name} …))"
                    ),
                });
            }
            Ok(texts.clone())
        };
        self.plan.keys.iter().map(text).collect()
    }

    /// A map of nothing but nulls shows nothing, and is a mistake: `score` of a fit that has none.
    fn every_map_has_a_value(&self) -> Result<()> {
        for (key, set) in &self.sets {
            let columns = self.plan.columns.iter().zip(&set.valued);
            let empty: Vec<String> =
                columns.filter(|(_, valued)| !**valued).map(|(c, _)| format!("`{}`", c.name)).collect();
            if empty.is_empty() {
                continue;
            }
            let keys = self.plan.keys.iter().zip(key).map(|((name, _), value)| format!("{name} {value}"));
            let of = keys.collect::<Vec<_>>().join(", ");
            let of = if of.is_empty() { of } else { format!(" of {of}") };
            let (columns, have) = (empty.join(", "), if empty.len() > 1 { "have" } else { "has" });
            let reason = format!(
                "{columns}{of} {have} no value: all {} rows are null or NaN, so there is no map to write; leave \
                 {columns} out of the SELECT",
                set.voxels.len()
            );
            return Err(Error::Export { reason });
        }
        Ok(())
    }

    fn write(mut self) -> Result<Vec<PathBuf>> {
        if self.sets.is_empty() {
            return Err(Error::Export {
                reason: "the table has no rows, so there is no map to write".into(),
            });
        }
        self.every_map_has_a_value()?;
        let mut written = Vec::new();
        let size: usize = self.plan.grid.shape.iter().product();
        for (key, set) in &mut self.sets {
            for (column, map) in self.plan.columns.iter().zip(&mut set.maps) {
                let path = self.plan.file(&column.name, key);
                if written.contains(&path) {
                    let reason = format!(
                        "{} would be written twice: use names without special characters",
                        path.display()
                    );
                    return Err(Error::Export { reason });
                }
                let mut writer = begin(&path, &self.plan, column.volumes)?;
                let memory = self.options.memory_limit / 2;
                map.write_volumes(&set.voxels, size, self.options.fill, memory, |volume| {
                    Ok(writer.write_volume(volume)?)
                })?;
                writer.finish()?;
                written.push(path);
            }
        }
        describe(&self.plan.folder())?;
        Ok(written)
    }
}

fn begin(path: &Path, plan: &ExportPlan, volumes: usize) -> Result<NiftiWriter> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .map_err(|source| voxelflow_storage::Error::Write { path: path.into(), source })?;
    }
    let mut spec = NiftiSpec::new(plan.grid.shape, volumes)
        .with_affine(plan.grid.affine, plan.grid.xform_code)
        .with_description(format!("voxelflow {}", env!("CARGO_PKG_VERSION")));
    if let Some(t_r) = plan.grid.t_r.filter(|_| volumes > 1) {
        spec = spec.with_t_r(t_r);
    }
    Ok(NiftiWriter::create(path, &spec)?)
}

/// The voxels of a batch, all of them inside the grid and, where `i`, `j`, `k` are there, equal to them.
fn voxels(batch: &RecordBatch, plan: &ExportPlan) -> Result<Vec<u32>> {
    let [ni, nj, nk] = plan.grid.shape;
    let fault = |reason: String| Err(Error::Export { reason });
    let column = cast(batch.column(plan.voxel), &DataType::UInt32)?;
    let voxels: &UInt32Array = column.as_primitive::<UInt32Type>();
    if voxels.null_count() > 0 {
        return fault(
            "column `voxel` is null in some rows: drop those rows with WHERE voxel IS NOT NULL".into(),
        );
    }
    if let Some(voxel) = voxels.values().iter().find(|v| **v as usize >= ni * nj * nk) {
        return fault(format!("voxel {voxel} lies outside the grid of {ni}×{nj}×{nk}"));
    }
    if let Some(ijk) = plan.ijk {
        let index = ijk.map(|at| cast(batch.column(at), &DataType::UInt32));
        let [i, j, k] = [index[0].as_ref(), index[1].as_ref(), index[2].as_ref()];
        if let (Ok(i), Ok(j), Ok(k)) = (i, j, k) {
            let [i, j, k] = [i, j, k].map(|a| a.as_primitive::<UInt32Type>());
            for (r, voxel) in voxels.values().iter().enumerate() {
                let [i, j, k] = [i, j, k].map(|a| a.value(r) as usize);
                if i + ni * (j + nj * k) != *voxel as usize {
                    return fault(format!(
                        "voxel {voxel} is not ({i}, {j}, {k}) on the grid of {ni}×{nj}×{nk}: the rows come from another grid"
                    ));
                }
            }
        }
    }
    Ok(voxels.values().to_vec())
}

/// A column as numbers, `[rows, volumes]`; nulls become NaN.
fn numbers(column: &ArrayRef, volumes: usize) -> Result<Float32Array> {
    let rows = column.len();
    let (values, row_nulls) = match column.as_fixed_size_list_opt() {
        // A sliced list keeps its values whole, and those of null rows are anything.
        Some(list) => {
            (list.values().slice(list.value_offset(0) as usize, rows * volumes), list.nulls().cloned())
        }
        None => (column.clone(), None),
    };
    let values = cast(&values, &DataType::Float32)?;
    let values = values.as_primitive::<Float32Type>();
    if values.null_count() == 0 && row_nulls.is_none() {
        return Ok(values.clone());
    }
    let row_is_null = |at: usize| row_nulls.as_ref().is_some_and(|n| n.is_null(at / volumes));
    let value = |at: usize| if values.is_null(at) || row_is_null(at) { f32::NAN } else { values.value(at) };
    Ok(Float32Array::from_iter_values((0..values.len()).map(value)))
}

fn duplicate(voxel: u32, plan: &ExportPlan) -> Error {
    let advice = if plan.keys.is_empty() {
        "put {subject}, {run} or another key into the target, or select one of them with WHERE"
    } else {
        "put further keys into the target, or aggregate the rows with GROUP BY"
    };
    Error::Export { reason: format!("two rows of voxel {voxel} go to one map: {advice}") }
}

/// Says what the folder holds, as BIDS asks of derivatives.
fn describe(folder: &Path) -> Result<()> {
    let path = folder.join("dataset_description.json");
    let ours = |text: String| {
        let json: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        json["GeneratedBy"][0]["Name"] == "voxelflow"
    };
    if path.exists() && !std::fs::read_to_string(&path).is_ok_and(ours) {
        return Ok(());
    }
    let description = json!({
        "Name": "voxelflow maps",
        "BIDSVersion": "1.10.0",
        "DatasetType": "derivative",
        "GeneratedBy": [{ "Name": "voxelflow", "Version": env!("CARGO_PKG_VERSION") }],
    });
    let text = format!("{description:#}\n");
    voxelflow_storage::publish(path, text.as_bytes())?;
    Ok(())
}
