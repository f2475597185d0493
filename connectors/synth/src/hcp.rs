//! Series in the shape of the HCP motor task, with a response planted in known voxels.

use crate::{Anatomy, Design, Error, REGRESSORS, Region, Result};
use arrow::array::{
    ArrayRef, FixedSizeListArray, Float32Array, Float64Array, RecordBatch, StringArray, UInt16Array,
    UInt32Array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;
use voxelflow_stage::{Grid, KEY_COLUMNS, SERIES_COLUMN};

/// Version of the generator: it changes whenever equal settings would give other values.
pub const VERSION: &str = "2";

/// Mean of a series.
const BASELINE: f64 = 10_000.0;
/// Spread of the means of voxels.
const BASELINE_SPREAD: f64 = 500.0;
/// σ: standard deviation of the AR(1) noise.
const NOISE: f64 = 150.0;
/// Slow cosines of a voxel's drift.
const DRIFTS: usize = 3;

/// Settings of the generator. Equal settings and version give equal bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HcpSynth {
    /// Subjects; each has one run.
    pub subjects: usize,
    /// Voxels of each subject (the HCP has about 201,000).
    pub voxels: usize,
    /// Points of a series (284 in the HCP motor task).
    pub time_points: usize,
    /// Seconds between them.
    pub t_r: f64,
    /// Seed of everything random.
    pub seed: u64,
    /// Standard deviation of a planted response over that of the AR(1) noise, at amplitude 1.
    pub snr: f64,
}

impl Default for HcpSynth {
    fn default() -> Self {
        Self { subjects: 4, voxels: 20_000, time_points: 284, t_r: 0.72, seed: 0, snr: 0.5 }
    }
}

/// Makes the series: any voxel of any subject, in any order, always the same.
///
/// `series(t) = b + σ·(snr·a·x(t) + n(t) + d(t) + g·s(t))` with baseline b ~ N(10000, 500²), σ = 150, the
/// region's regressor x at standard deviation 1, amplitude a ~ U(0.75, 1.25) (0 outside regions), AR(1)
/// noise n of unit variance with ρ ~ U(0.3, 0.5), a drift d of three slow cosines, and the subject's spikes
/// s, which all voxels share with a gain g ~ N(1, 0.3²).
#[derive(Clone, Debug)]
pub struct HcpGenerator {
    settings: HcpSynth,
    anatomy: Anatomy,
    design: Design,
    /// Regressors at standard deviation 1.
    responses: Vec<Vec<f64>>,
    grid: Grid,
    schema: SchemaRef,
}

impl HcpGenerator {
    /// Lays out grid, regions and design.
    ///
    /// # Errors
    /// [`Error::Setting`] for a setting out of range.
    pub fn try_new(settings: HcpSynth) -> Result<Self> {
        let refuse = |setting, reason: &str| Err(Error::Setting { setting, reason: reason.into() });
        if settings.subjects == 0 || settings.subjects > 100_000 {
            return refuse("subjects", "it is between 1 and 100,000");
        }
        if !(settings.t_r.is_finite() && (0.05..=10.0).contains(&settings.t_r)) {
            return refuse("t_r", "it is between 0.05 and 10 seconds");
        }
        if settings.time_points > 100_000 {
            return refuse("time_points", "it is at most 100,000");
        }
        if !(settings.snr.is_finite() && settings.snr >= 0.0) {
            return refuse("snr", "it is a number from 0 up, for example 0.5");
        }
        let design = Design::try_new(settings.time_points, settings.t_r)?;
        let responses = (0..REGRESSORS.len()).map(|r| design.standardized(r)).collect();
        let anatomy = Anatomy::try_new(settings.voxels)?;
        let grid = grid(&settings, &anatomy);
        let schema = schema(&grid, settings.time_points)?;
        Ok(Self { settings, anatomy, design, responses, grid, schema })
    }

    /// The settings.
    pub fn settings(&self) -> &HcpSynth {
        &self.settings
    }

    /// The grid of every subject.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Voxels and regions.
    pub fn anatomy(&self) -> &Anatomy {
        &self.anatomy
    }

    /// The six responses.
    pub fn design(&self) -> &Design {
        &self.design
    }

    /// The schema of [`Self::batch`]: key columns, `series`, and the grid as metadata.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The label of subject number `subject`, from 0.
    pub fn label(subject: usize) -> String {
        format!("{:03}", subject + 1)
    }

    /// Rows `rows` (positions in the ascending list of voxels) of subject number `subject`.
    ///
    /// # Errors
    /// Arrow refuses the columns, which does not happen for rows in range.
    pub fn batch(&self, subject: usize, rows: Range<usize>) -> Result<RecordBatch> {
        let time_points = self.settings.time_points;
        let rows = rows.start..rows.end.min(self.anatomy.voxels.len());
        let spikes = self.spikes(subject);
        let mut values = vec![0_f32; rows.len() * time_points];
        values
            .par_chunks_exact_mut(time_points)
            .zip(rows.clone())
            .for_each(|(series, row)| self.fill(subject, row, &spikes, series));
        let item = Arc::new(Field::new_list_field(DataType::Float32, true));
        let values = Arc::new(Float32Array::from(values));
        let series = FixedSizeListArray::try_new(item, time_points as i32, values, None)?;
        let text = |value: Option<&str>| -> ArrayRef {
            Arc::new(std::iter::repeat_n(value, rows.len()).collect::<StringArray>())
        };
        let subject = Self::label(subject);
        let mut columns = vec![
            text(Some(&subject)),
            text(Some("")),
            text(Some("motor")),
            text(Some("1")),
            text(Some("synthetic")),
        ];
        columns.extend(self.place(rows));
        columns.push(Arc::new(series));
        Ok(RecordBatch::try_new(self.schema(), columns)?)
    }

    /// What was planted in subject number `subject`: subject, voxel, i, j, k, task (null outside the
    /// regions) and amplitude, one row for each voxel.
    ///
    /// # Errors
    /// As [`Self::batch`].
    pub fn truth(&self, subject: usize) -> Result<RecordBatch> {
        let rows = 0..self.anatomy.voxels.len();
        let label = Self::label(subject);
        let tasks = self.anatomy.regions.iter().map(|r| r.map(|Region(n)| REGRESSORS[usize::from(n)]));
        let amplitudes = rows.clone().map(|row| self.planted(&mut self.stream(subject, row), row) as f32);
        let mut columns: Vec<ArrayRef> =
            vec![Arc::new(std::iter::repeat_n(Some(label.as_str()), rows.len()).collect::<StringArray>())];
        columns.extend(self.place(rows.clone()));
        columns.push(Arc::new(tasks.collect::<StringArray>()));
        columns.push(Arc::new(Float32Array::from_iter_values(amplitudes)));
        Ok(RecordBatch::try_new(self.truth_schema()?, columns)?)
    }

    /// The schema of [`Self::truth`], with the grid as metadata.
    ///
    /// # Errors
    /// Never for a grid that was laid out here.
    pub fn truth_schema(&self) -> Result<SchemaRef> {
        let fields = vec![
            Field::new("subject", DataType::Utf8, true),
            Field::new("voxel", DataType::UInt32, false),
            Field::new("i", DataType::UInt16, false),
            Field::new("j", DataType::UInt16, false),
            Field::new("k", DataType::UInt16, false),
            Field::new("task", DataType::Utf8, true),
            Field::new("amplitude", DataType::Float32, false),
        ];
        Ok(Arc::new(Schema::new_with_metadata(fields, self.grid.to_metadata()?)))
    }

    /// The design as a table: `time` in seconds and the six regressors.
    ///
    /// # Errors
    /// As [`Self::batch`].
    pub fn design_table(&self) -> Result<RecordBatch> {
        let mut fields = vec![Field::new("time", DataType::Float64, false)];
        fields.extend(REGRESSORS.iter().map(|name| Field::new(*name, DataType::Float64, false)));
        let times = (0..self.settings.time_points).map(|t| t as f64 * self.settings.t_r);
        let mut columns: Vec<ArrayRef> = vec![Arc::new(Float64Array::from_iter_values(times))];
        columns.extend(
            self.design.regressors.iter().map(|x| -> ArrayRef { Arc::new(Float64Array::from(x.clone())) }),
        );
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
    }

    /// Columns voxel, i, j, k.
    fn place(&self, rows: Range<usize>) -> [ArrayRef; 4] {
        let voxels = &self.anatomy.voxels[rows];
        let [ni, nj, _] = self.anatomy.shape.map(|n| n as u32);
        let index = |of: &dyn Fn(u32) -> u32| -> ArrayRef {
            Arc::new(UInt16Array::from_iter_values(voxels.iter().map(|v| of(*v) as u16)))
        };
        [
            Arc::new(UInt32Array::from(voxels.to_vec())),
            index(&|v| v % ni),
            index(&|v| v / ni % nj),
            index(&|v| v / ni / nj),
        ]
    }

    /// The random stream of a voxel: of its own, so that no partitioning changes it.
    fn stream(&self, subject: usize, row: usize) -> ChaCha8Rng {
        let mut rng = self.subject_rng(subject, "voxel");
        rng.set_stream(u64::from(self.anatomy.voxels[row]));
        rng
    }

    fn subject_rng(&self, subject: usize, purpose: &str) -> ChaCha8Rng {
        let key = format!("voxelflow synth hcp {VERSION}/{}/{subject}/{purpose}", self.settings.seed);
        ChaCha8Rng::from_seed(*blake3::hash(key.as_bytes()).as_bytes())
    }

    /// The first draw of a voxel's stream: its amplitude.
    fn planted(&self, rng: &mut ChaCha8Rng, row: usize) -> f64 {
        let amplitude = rng.random_range(0.75..1.25);
        if self.anatomy.regions[row].is_some() { amplitude } else { 0.0 }
    }

    /// Spikes of a subject's head, in units of σ: about one in 80 points, each with a smaller echo.
    fn spikes(&self, subject: usize) -> Vec<f64> {
        let mut rng = self.subject_rng(subject, "spikes");
        let time_points = self.settings.time_points;
        let mut spikes = vec![0.0; time_points];
        for _ in 0..(time_points / 80).max(1) {
            let at = rng.random_range(0..time_points);
            let sign = if rng.random::<bool>() { 1.0 } else { -1.0 };
            let height = sign * rng.random_range(2.0..4.0);
            spikes[at] += height;
            if let Some(echo) = spikes.get_mut(at + 1) {
                *echo += 0.4 * height;
            }
        }
        spikes
    }

    fn fill(&self, subject: usize, row: usize, spikes: &[f64], series: &mut [f32]) {
        let mut rng = self.stream(subject, row);
        let amplitude = self.settings.snr * self.planted(&mut rng, row);
        let response = self.anatomy.regions[row].map(|Region(n)| &self.responses[usize::from(n)]);
        let normal = |rng: &mut ChaCha8Rng| -> f64 { rng.sample(StandardNormal) };
        let baseline = BASELINE + BASELINE_SPREAD * normal(&mut rng);
        let gain = 1.0 + 0.3 * normal(&mut rng);
        let drifts: [f64; DRIFTS] = std::array::from_fn(|n| 0.4 / (n + 1) as f64 * normal(&mut rng));
        let rho: f64 = rng.random_range(0.3..0.5);
        let innovation = (1.0 - rho * rho).sqrt();
        let mut noise = normal(&mut rng);
        let length = series.len() as f64;
        for (t, value) in series.iter_mut().enumerate() {
            let phase = std::f64::consts::PI * (t as f64 + 0.5) / length;
            let drift: f64 = drifts
                .iter()
                .enumerate()
                .map(|(n, d)| d * std::f64::consts::SQRT_2 * (phase * (n + 1) as f64).cos())
                .sum();
            let planted = response.map_or(0.0, |x| amplitude * x[t]);
            *value = (baseline + NOISE * (planted + noise + drift + gain * spikes[t])) as f32;
            noise = rho * noise + innovation * normal(&mut rng);
        }
    }
}

fn grid(settings: &HcpSynth, anatomy: &Anatomy) -> Grid {
    let indices: Vec<u8> = anatomy.voxels.iter().flat_map(|v| v.to_le_bytes()).collect();
    Grid {
        shape: anatomy.shape,
        affine: anatomy.affine,
        // 4: coordinates of MNI space.
        xform_code: 4,
        t_r: Some(settings.t_r),
        mask_hash: blake3::hash(&indices).to_hex().to_string(),
        mask_voxels: anatomy.voxels.len(),
        source: format!("synth hcp {VERSION}, seed {}", settings.seed),
        history: Vec::new(),
    }
}

fn schema(grid: &Grid, time_points: usize) -> Result<SchemaRef> {
    let mut fields: Vec<Field> = KEY_COLUMNS
        .iter()
        .map(|name| match *name {
            "voxel" => Field::new(*name, DataType::UInt32, false),
            "i" | "j" | "k" => Field::new(*name, DataType::UInt16, false),
            _ => Field::new(*name, DataType::Utf8, true),
        })
        .collect();
    let item = Arc::new(Field::new_list_field(DataType::Float32, true));
    fields.push(Field::new(SERIES_COLUMN, DataType::FixedSizeList(item, time_points as i32), false));
    Ok(Arc::new(Schema::new_with_metadata(fields, grid.to_metadata()?)))
}
