//! A plan's memory beside that of the fits that it is for, each in a process of its own; and, on a machine that does
//! nothing else (`cargo test -p voxelflow-ridge --test plan -- time`), its time.
#![allow(clippy::unwrap_used)]

use faer::{Mat, MatMut};
use std::{env, fs, hint::black_box, ops::Range, process::Command, time::Instant};
use voxelflow_ridge::plan::{Precision, Rates, Workload};
use voxelflow_ridge::{CrossValidation, Folds, Result, RidgeCv, RidgeSettings, Scalar, Score, Targets};

/// Sizes that no constant of the plan was taken from.
const CASES: [&str; 3] = ["shared", "folds", "wide"];

fn workload(case: &str) -> Workload {
    let alphas = vec![0.1, 1.0, 100.0, 300.0, 600.0, 900.0, 1200.0];
    let settings = RidgeSettings { alphas, block: 2500, ..RidgeSettings::default() };
    let sized = |n_samples, n_features, n_targets, precision, settings| Workload {
        n_samples,
        n_features,
        n_targets,
        precision,
        settings,
    };
    match case {
        "shared" => sized(5000, 560, 5000, Precision::F64, settings),
        "folds" => {
            let cv = CrossValidation::Folds(Folds::contiguous(6600, 4).unwrap());
            let settings = RidgeSettings { cv, score: Score::R2, alpha_per_target: true, ..settings };
            sized(6600, 480, 5000, Precision::F32, settings)
        }
        _ => sized(1500, 3000, 2500, Precision::F64, RidgeSettings { alpha_per_target: true, ..settings }),
    }
}

/// Numbers in -1 to 1 that follow their place, as of splitmix64.
fn number(i: usize, j: usize) -> f64 {
    let mut bits = (i as u64 * 4_000_037 + j as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((bits ^ (bits >> 31)) >> 40) as f64 / (1_u64 << 23) as f64 - 1.0
}

/// Targets that are made as they are read, and how long that took.
struct Made {
    samples: usize,
    count: usize,
    seconds: f64,
}

impl<T: Scalar> Targets<T> for Made {
    fn samples(&self) -> usize {
        self.samples
    }
    fn count(&self) -> usize {
        self.count
    }
    fn read(&mut self, range: Range<usize>, mut into: MatMut<'_, T>) -> Result<()> {
        let clock = Instant::now();
        for (j, column) in range.zip(into.as_mut().col_iter_mut()) {
            column.iter_mut().enumerate().for_each(|(i, v)| *v = T::of(number(i, j + 1_000_000)));
        }
        self.seconds += clock.elapsed().as_secs_f64();
        Ok(())
    }
}

fn fit<T: Scalar>(of: &Workload) -> f64 {
    let x = Mat::<T>::from_fn(of.n_samples, of.n_features, |i, j| T::of(number(i, j)));
    let mut targets = Made { samples: of.n_samples, count: of.n_targets, seconds: 0.0 };
    let clock = Instant::now();
    let ridge = RidgeCv::new(x.as_ref(), of.settings.clone()).unwrap();
    let chosen = ridge.choose(&mut targets).unwrap();
    ridge
        .fit(&chosen, &mut targets, |block| {
            black_box(block.weights);
            Ok(())
        })
        .unwrap();
    clock.elapsed().as_secs_f64() - targets.seconds
}

fn run(of: &Workload) -> f64 {
    match of.precision {
        Precision::F32 => fit::<f32>(of),
        Precision::F64 => fit::<f64>(of),
    }
}

/// In a process of its own: prints the peak of memory in bytes.
fn child(case: &str) {
    run(&workload(case));
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak =
        status.lines().find_map(|l| l.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    let peak: u64 = peak.unwrap();
    println!("{}", peak * 1024);
}

fn measured_peak(case: &str) -> f64 {
    let done = Command::new(env::current_exe().unwrap()).args(["child", case]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().parse().unwrap()
}

/// Seconds of a fit, and what is planned by calibrations right before and right after it.
fn measured_time(of: &Workload) -> (f64, f64) {
    let before = of.plan(&Rates::measure()).seconds;
    let seconds = run(of);
    let after = of.plan(&Rates::measure()).seconds;
    (seconds, (before + after) / 2.0)
}

fn within(ratio: f64) -> bool {
    (0.7..=1.3).contains(&ratio)
}

fn memory_is_within_a_third() {
    for case in CASES {
        let (planned, peak) = (workload(case).peak_bytes() as f64, measured_peak(case));
        let [p, m] = [planned, peak].map(|bytes| bytes / 1048576.0);
        println!("{case}: memory {p:.0} MiB planned, {m:.0} MiB measured ({:.2})", planned / peak);
        assert!(within(planned / peak), "the memory of {case}");
    }
}

/// By the median of three runs, each between two calibrations, and up to three such medians: others may use this
/// machine.
fn time_is_within_a_third() {
    for case in CASES {
        let of = workload(case);
        let mut medians = Vec::new();
        for _ in 0..3 {
            let mut runs: Vec<(f64, f64)> = (0..3).map(|_| measured_time(&of)).collect();
            runs.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
            let (seconds, planned) = runs[1];
            println!(
                "{case}: time {planned:.2} s planned, {seconds:.2} s measured ({:.2})",
                planned / seconds
            );
            medians.push(planned / seconds);
            if within(planned / seconds) {
                break;
            }
        }
        assert!(medians.iter().any(|ratio| within(*ratio)), "the time of {case}: {medians:?}");
    }
}

fn what_does_not_fit_is_refused_with_what_would() {
    let of = workload("shared");
    let peak = of.peak_bytes();
    of.check_memory(peak).unwrap();
    let message = |memory: u64| of.check_memory(memory).unwrap_err().to_string();
    assert!(
        message(peak - 1).contains("blocks of 1250 targets (now 2500) would fit"),
        "{}",
        message(peak - 1)
    );
    // Whatever is said to fit does fit.
    let mut told = [false; 4];
    for memory in (1..60).map(|step| peak / 60 * step) {
        let message = message(memory);
        let number = |before: &str, after: &str| {
            let from = message.find(before)? + before.len();
            message[from..].split(after).next()?.trim().parse::<usize>().ok()
        };
        if message.contains("no number of features") {
            told[0] = true;
        } else if let Some(features) = number("MiB are given; ", " features") {
            let narrow = Workload { n_features: features, precision: Precision::F32, ..of.clone() };
            let settings = RidgeSettings { block: 19, ..of.settings.clone() };
            Workload { settings, ..narrow }.check_memory(memory).unwrap();
            told[1] = true;
        } else if let Some(block) = number("f32 with blocks of ", " targets") {
            let settings = RidgeSettings { block, ..of.settings.clone() };
            Workload { settings, precision: Precision::F32, ..of.clone() }.check_memory(memory).unwrap();
            told[2] = true;
        } else {
            let block = number("blocks of ", " targets").unwrap();
            let settings = RidgeSettings { block, ..of.settings.clone() };
            Workload { settings, ..of.clone() }.check_memory(memory).unwrap();
            told[3] = true;
        }
    }
    assert_eq!(told, [true; 4], "nothing, features, f32 and blocks were told");
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [child_of, case] = arguments.as_slice()
        && child_of == "child"
    {
        return child(case);
    }
    if arguments == ["time"] {
        return time_is_within_a_third();
    }
    let tests: [(&str, fn()); 2] = [
        ("what_does_not_fit_is_refused_with_what_would", what_does_not_fit_is_refused_with_what_would),
        ("memory_is_within_a_third", memory_is_within_a_third),
    ];
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
    println!("\ntest result: ok. {} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out", tests.len());
}
