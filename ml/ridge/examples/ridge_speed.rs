//! One fit over data in files, for `integration-tests/bench/ridge.py`, which sets it beside scikit-learn and himalaya.
//!
//! `ridge_speed FOLDER SAMPLES FEATURES TARGETS f32|f64 loo|FOLDS|banded` reads `x.bin` (row-major) and `y.bin` (target by target,
//! as tables of series have them), for banded ridge by 5 folds the bands' sizes and their weights (`bands.txt`, `gammas.txt`, a
//! line each), and prints the penalty, the time and the peak of memory, and what its plan said of both. Targets are read
//! block by block and never held whole; coefficients go to `weights.bin`, target by target.

use faer::{Mat, MatMut};
use std::{
    env,
    error::Error as StdError,
    fs::{self, File},
    io::{BufWriter, Read, Seek, SeekFrom, Write},
    ops::Range,
    path::{Path, PathBuf},
    time::Instant,
};
use voxelflow_ridge::plan::{FitSettings, Precision, Rates, Workload};
use voxelflow_ridge::{
    BandedRidgeCv, BandedSettings, CrossValidation, Error, Folds, Result, RidgeCv, RidgeSettings, Scalar,
    Score, Targets,
};

/// The paper's penalties.
const ALPHAS: [f64; 11] = [0.1, 1.0, 100.0, 200.0, 300.0, 400.0, 600.0, 800.0, 900.0, 1000.0, 1200.0];

/// Numbers as they lie in the files.
trait Stored: Scalar {
    const BYTES: usize;
    fn from_bytes(bytes: &[u8]) -> Self;
    fn put(self, to: &mut Vec<u8>);
}

impl Stored for f32 {
    const BYTES: usize = 4;
    fn from_bytes(bytes: &[u8]) -> Self {
        bytes.try_into().map_or(f32::NAN, f32::from_le_bytes)
    }
    fn put(self, to: &mut Vec<u8>) {
        to.extend(self.to_le_bytes());
    }
}

impl Stored for f64 {
    const BYTES: usize = 8;
    fn from_bytes(bytes: &[u8]) -> Self {
        bytes.try_into().map_or(f64::NAN, f64::from_le_bytes)
    }
    fn put(self, to: &mut Vec<u8>) {
        to.extend(self.to_le_bytes());
    }
}

/// `y.bin`.
struct TargetFile {
    path: PathBuf,
    file: File,
    samples: usize,
    count: usize,
}

impl<T: Stored> Targets<T> for TargetFile {
    fn samples(&self) -> usize {
        self.samples
    }

    fn count(&self) -> usize {
        self.count
    }

    fn read(&mut self, range: Range<usize>, mut into: MatMut<'_, T>) -> Result<()> {
        let failed = |e: std::io::Error| Error::Targets {
            from: range.start,
            to: range.end,
            reason: format!("{}: {e}", self.path.display()),
        };
        let series = self.samples * T::BYTES;
        self.file.seek(SeekFrom::Start((range.start * series) as u64)).map_err(failed)?;
        let mut bytes = vec![0; series];
        for column in into.as_mut().col_iter_mut() {
            self.file.read_exact(&mut bytes).map_err(failed)?;
            column.iter_mut().zip(bytes.chunks_exact(T::BYTES)).for_each(|(v, b)| *v = T::from_bytes(b));
        }
        Ok(())
    }
}

fn features<T: Stored>(path: &Path, samples: usize, features: usize) -> std::io::Result<Mat<T>> {
    let mut x = Mat::zeros(samples, features);
    let (mut file, mut row) = (std::io::BufReader::new(File::open(path)?), vec![0; features * T::BYTES]);
    for i in 0..samples {
        file.read_exact(&mut row)?;
        row.chunks_exact(T::BYTES).enumerate().for_each(|(j, b)| x[(i, j)] = T::from_bytes(b));
    }
    Ok(x)
}

fn peak_mib() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    peak.map_or_else(|| "unknown".into(), |kib: f64| format!("{:.0}", kib / 1024.0))
}

/// What a fit is predicted to need, before it runs.
fn foretell<T: Stored, S: FitSettings>([n_samples, n_features, n_targets]: [usize; 3], settings: &S) {
    let precision = if T::BYTES == 4 { Precision::F32 } else { Precision::F64 };
    let workload = Workload { n_samples, n_features, n_targets, precision, settings: settings.clone() };
    let plan = workload.plan(&Rates::measure(workload.largest_eigen()));
    let phases: Vec<String> =
        plan.phases.iter().map(|phase| format!("{} {:.2}", phase.name, phase.seconds)).collect();
    println!("planned_seconds {:.2} ({})", plan.seconds, phases.join(", "));
    println!("planned_mib {}", plan.peak_bytes >> 20);
}

fn run<T: Stored>(
    folder: &Path,
    [samples, p, count]: [usize; 3],
    cv: &str,
) -> std::result::Result<(), Box<dyn StdError>> {
    let (cv, score) = match cv {
        "loo" => (CrossValidation::LeaveOneOut, Score::NegMeanSquaredError),
        folds => (CrossValidation::Folds(Folds::contiguous(samples, folds.parse()?)?), Score::R2),
    };
    let settings =
        RidgeSettings { alphas: ALPHAS.to_vec(), cv, score, read_once: true, ..RidgeSettings::default() };
    foretell::<T, _>([samples, p, count], &settings);
    let clock = Instant::now();
    let x = features::<T>(&folder.join("x.bin"), samples, p)?;
    let read = clock.elapsed();
    let path = folder.join("y.bin");
    let mut targets = TargetFile { file: File::open(&path)?, path, samples, count };
    let ridge = RidgeCv::new(x, settings)?;
    let decomposed = clock.elapsed();
    let fit = ridge.choose(&mut targets)?;
    let chosen = clock.elapsed();
    let mut out = BufWriter::new(File::create(folder.join("weights.bin"))?);
    let mut failed = None;
    ridge.fit(&fit, &mut targets, |block| {
        let mut bytes = Vec::with_capacity(block.weights.nrows() * T::BYTES);
        for column in block.weights.col_iter() {
            bytes.clear();
            column.iter().for_each(|w| w.put(&mut bytes));
            failed = failed.take().or(out.write_all(&bytes).err());
        }
        Ok(())
    })?;
    failed.map_or(Ok(()), Err)?;
    out.flush()?;
    println!("alpha {}", fit.alphas.first().copied().unwrap_or(f64::NAN));
    println!("scores {:?}", fit.mean_scores);
    println!(
        "seconds {:.2} (features read {:.2}, decomposed {:.2}, chosen {:.2})",
        clock.elapsed().as_secs_f64(),
        read.as_secs_f64(),
        decomposed.as_secs_f64(),
        chosen.as_secs_f64()
    );
    println!("peak_mib {}", peak_mib());
    Ok(())
}

fn table<N: std::str::FromStr>(path: &Path) -> std::result::Result<Vec<Vec<N>>, Box<dyn StdError>>
where
    N::Err: StdError + 'static,
{
    let row = |line: &str| line.split_whitespace().map(|v| v.parse().map_err(Into::into)).collect();
    fs::read_to_string(path)?.lines().map(row).collect()
}

fn banded<T: Stored>(
    folder: &Path,
    [samples, p, count]: [usize; 3],
) -> std::result::Result<(), Box<dyn StdError>> {
    let bands = table::<usize>(&folder.join("bands.txt"))?.concat();
    let gammas = table::<f64>(&folder.join("gammas.txt"))?;
    let settings = BandedSettings {
        alphas: ALPHAS.to_vec(),
        score: Score::R2,
        ..BandedSettings::new(bands, gammas, Folds::contiguous(samples, 5)?)
    };
    foretell::<T, _>([samples, p, count], &settings);
    let clock = Instant::now();
    let x = features::<T>(&folder.join("x.bin"), samples, p)?;
    let path = folder.join("y.bin");
    let mut targets = TargetFile { file: File::open(&path)?, path, samples, count };
    let ridge = BandedRidgeCv::new(x, settings)?;
    let fit = ridge.choose(&mut targets)?;
    let chosen = clock.elapsed();
    let mut out = File::create(folder.join("weights.bin"))?;
    let mut failed = None;
    ridge.fit(&fit, &mut targets, |block| {
        for (target, column) in block.targets.iter().zip(block.weights.col_iter()) {
            let mut bytes = Vec::with_capacity(p * T::BYTES);
            column.iter().for_each(|w| w.put(&mut bytes));
            let written = out.seek(SeekFrom::Start((target * p * T::BYTES) as u64));
            failed = failed.take().or(written.and_then(|_| out.write_all(&bytes)).err());
        }
        Ok(())
    })?;
    failed.map_or(Ok(()), Err)?;
    println!("score {}", fit.scores.iter().sum::<f64>() / count as f64);
    println!("seconds {:.2} (chosen {:.2})", clock.elapsed().as_secs_f64(), chosen.as_secs_f64());
    println!("peak_mib {}", peak_mib());
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn StdError>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [folder, samples, features, targets, precision, cv] = arguments.as_slice() else {
        return Err("ridge_speed FOLDER SAMPLES FEATURES TARGETS f32|f64 loo|FOLDS|banded".into());
    };
    let sizes = [samples.parse()?, features.parse()?, targets.parse()?];
    match precision.as_str() {
        "f32" if cv == "banded" => banded::<f32>(Path::new(folder), sizes),
        _ if cv == "banded" => banded::<f64>(Path::new(folder), sizes),
        "f32" => run::<f32>(Path::new(folder), sizes, cv),
        _ => run::<f64>(Path::new(folder), sizes, cv),
    }
}
