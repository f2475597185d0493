//! One BOLD image of any size with a planted response, written volume by volume: memory does not grow with its length.

use crate::{Anatomy, Design, Error, REGRESSORS, Region, Result, VERSION};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::Path;
use voxelflow_formats::nifti::{NiftiSpec, NiftiWriter};
use voxelflow_storage::publish;

/// Mean of a series.
const BASELINE: f32 = 10_000.0;
/// Spread of the means of voxels.
const BASELINE_SPREAD: f32 = 500.0;
/// Standard deviation of the noise.
const NOISE: f32 = 150.0;
/// Correlation of the noise with that of the volume before.
const RHO: f32 = 0.4;
/// Voxels that share a random stream: work for one thread, and the same values whatever their number.
const BLOCK: usize = 8192;

/// Settings of an image. Equal settings and version give equal volumes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BoldSynth {
    /// Voxels along i, j, k; the default is the grid of the HCP at 2 mm.
    pub shape: [usize; 3],
    /// Volumes; a resting run of the HCP has 1200.
    pub volumes: usize,
    /// Seconds between them.
    pub t_r: f64,
    /// Seed of everything random.
    pub seed: u64,
    /// Standard deviation of a planted response over that of the noise.
    pub snr: f64,
}

impl Default for BoldSynth {
    fn default() -> Self {
        Self { shape: [91, 109, 91], volumes: 1200, t_r: 0.72, seed: 0, snr: 0.5 }
    }
}

impl BoldSynth {
    fn check(&self) -> Result<()> {
        let refuse = |setting, reason: &str| Err(Error::Setting { setting, reason: reason.into() });
        if !(self.t_r.is_finite() && (0.05..=10.0).contains(&self.t_r)) {
            return refuse("t_r", "it is between 0.05 and 10 seconds");
        }
        if self.volumes > 100_000 {
            return refuse("volumes", "there are at most 100,000");
        }
        if !(self.snr.is_finite() && self.snr >= 0.0) {
            return refuse("snr", "it is a number from 0 up, for example 0.5");
        }
        Ok(())
    }
}

/// Writes a float32 image to `path`, compressed when its name ends in `.gz`, and beside it the JSON file that BIDS
/// asks for (`RepetitionTime`, `TaskName`, and the settings). Both appear whole, the image last.
///
/// `series(t) = b + σ·(snr·x(t) + n(t))` within the head, with baseline b ~ N(10000, 500²), σ = 150, the response x
/// of the voxel's region at standard deviation 1 (0 outside regions) and AR(1) noise n of unit variance with
/// ρ = 0.4; 0 outside the head, as in images of the HCP. Grid, head and regions are those of [`Anatomy::on_grid`].
///
/// `progress` is told the volumes written so far and in all.
///
/// # Errors
/// [`Error::Setting`]; a place that cannot be written to, or a name that is not one of a NIfTI image.
pub fn write_bold(settings: &BoldSynth, path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    settings.check()?;
    let anatomy = Anatomy::on_grid(settings.shape)?;
    let design = Design::try_new(settings.volumes, settings.t_r).map_err(of_volumes)?;
    let responses: Vec<Vec<f64>> = (0..REGRESSORS.len()).map(|r| design.standardized(r)).collect();
    let spec = NiftiSpec::new(settings.shape, settings.volumes)
        .with_affine(anatomy.affine, 4)
        .with_t_r(settings.t_r)
        .with_description(format!("voxelflow synth bold {VERSION}, seed {}", settings.seed));
    let mut writer = NiftiWriter::create(path, &spec)?;
    let mut head = Head::new(settings, &anatomy);
    let mut volume = vec![0_f32; settings.shape.iter().product()];
    let total = settings.volumes as u64;
    for t in 0..settings.volumes {
        let now: Vec<f32> = responses.iter().map(|x| (settings.snr * x[t]) as f32).collect();
        head.next(t, &now, &mut volume);
        writer.write_volume(&volume)?;
        progress(t as u64 + 1, total);
    }
    let sidecar = json!({ "RepetitionTime": settings.t_r, "TaskName": "motor", "voxelflow": settings });
    let text = format!("{sidecar:#}\n");
    publish(sidecar_of(path), text.as_bytes())?;
    Ok(writer.finish()?)
}

/// Points of a series are volumes here.
fn of_volumes(error: Error) -> Error {
    match error {
        Error::Setting { reason, .. } => Error::Setting { setting: "volumes", reason },
        other => other,
    }
}

/// The name of an image with `.json` in place of `.nii` or `.nii.gz`.
fn sidecar_of(path: &Path) -> std::path::PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stem = name.strip_suffix(".gz").unwrap_or(&name);
    path.with_file_name(format!("{}.json", stem.strip_suffix(".nii").unwrap_or(stem)))
}

/// What the voxels of the head carry from one volume to the next.
struct Head<'a> {
    anatomy: &'a Anatomy,
    seed: [u8; 32],
    baseline: Vec<f32>,
    noise: Vec<f32>,
    values: Vec<f32>,
}

impl<'a> Head<'a> {
    fn new(settings: &BoldSynth, anatomy: &'a Anatomy) -> Self {
        let key = format!("voxelflow synth bold {VERSION}/{}", settings.seed);
        let seed = *blake3::hash(key.as_bytes()).as_bytes();
        let count = anatomy.voxels.len();
        let mut head = Self {
            anatomy,
            seed,
            baseline: vec![0.0; count],
            noise: vec![0.0; count],
            values: vec![0.0; count],
        };
        let seed = head.seed;
        head.baseline.par_chunks_mut(BLOCK).zip(head.noise.par_chunks_mut(BLOCK)).enumerate().for_each(
            |(block, (baseline, noise))| {
                let mut rng = stream(seed, block, 0);
                for (b, n) in baseline.iter_mut().zip(noise) {
                    *b = BASELINE + BASELINE_SPREAD * rng.sample::<f32, _>(StandardNormal);
                    *n = rng.sample(StandardNormal);
                }
            },
        );
        head
    }

    /// Fills `volume` with volume `t`; `responses` are those of the regions now.
    fn next(&mut self, t: usize, responses: &[f32], volume: &mut [f32]) {
        let innovation = (1.0 - RHO * RHO).sqrt();
        let (seed, baseline, regions) = (self.seed, &self.baseline, &self.anatomy.regions);
        self.values.par_chunks_mut(BLOCK).zip(self.noise.par_chunks_mut(BLOCK)).enumerate().for_each(
            |(block, (values, noise))| {
                let mut rng = stream(seed, block, t + 1);
                for (n, (value, noise)) in values.iter_mut().zip(noise).enumerate() {
                    let voxel = block * BLOCK + n;
                    let planted = regions[voxel].map_or(0.0, |Region(r)| responses[usize::from(r)]);
                    *value = baseline[voxel] + NOISE * (planted + *noise);
                    *noise = RHO * *noise + innovation * rng.sample::<f32, _>(StandardNormal);
                }
            },
        );
        for (voxel, value) in self.anatomy.voxels.iter().zip(&self.values) {
            volume[*voxel as usize] = *value;
        }
    }
}

/// The random stream of a block of voxels in one volume.
fn stream(seed: [u8; 32], block: usize, volume: usize) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::from_seed(seed);
    rng.set_stream((block as u64) << 32 | volume as u64);
    rng
}
