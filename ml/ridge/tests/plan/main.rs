//! A plan's memory and time beside those of the fits that it is for, each in a process of its own.
//!
//! Time is that of the processor, on one thread: others may use this machine. On a machine that does nothing else,
//! `cargo test -p voxelflow-ridge --test plan -- wall` compares what a clock says, on all threads.
#![allow(clippy::unwrap_used)]

mod banded;

use cpu_time::ProcessTime;
use faer::{Mat, MatMut};
use std::{env, fs, hint::black_box, ops::Range, process::Command, time::Instant};
use voxelflow_ridge::plan::{Clock, FitSettings, Precision, Rates, Workload};
use voxelflow_ridge::{CrossValidation, Folds, Prepared, Result, RidgeSettings, Scalar, Score, Targets};

/// Sizes that no constant of the plan was taken from.
const CASES: [&str; 6] = ["shared", "kept", "folds", "wide", "banded", "banded_wide"];

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
        "kept" => {
            let settings = RidgeSettings { read_once: true, score: Score::R2, ..settings };
            sized(4200, 900, 6000, Precision::F32, settings)
        }
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
struct Made<'a> {
    samples: usize,
    count: usize,
    seconds: f64,
    clock: Clock<'a>,
}

impl<T: Scalar> Targets<T> for Made<'_> {
    fn samples(&self) -> usize {
        self.samples
    }
    fn count(&self) -> usize {
        self.count
    }
    fn read(&mut self, range: Range<usize>, mut into: MatMut<'_, T>) -> Result<()> {
        let begin = (self.clock)();
        for (j, column) in range.zip(into.as_mut().col_iter_mut()) {
            column.iter_mut().enumerate().for_each(|(i, v)| *v = T::of(number(i, j + 1_000_000)));
        }
        self.seconds += (self.clock)() - begin;
        Ok(())
    }
}

/// A fit that is planned.
trait Case: FitSettings {
    /// Seconds of its phases, in the plan's order, less those in which targets were made.
    fn fit<T: Scalar>(of: &Workload<Self>, clock: Clock<'_>) -> Vec<f64>;
}

impl Case for RidgeSettings {
    fn fit<T: Scalar>(of: &Workload, clock: Clock<'_>) -> Vec<f64> {
        let x = Mat::<T>::from_fn(of.n_samples, of.n_features, |i, j| T::of(number(i, j)));
        let mut targets = Made { samples: of.n_samples, count: of.n_targets, seconds: 0.0, clock };
        let mut seconds = Vec::new();
        let mut begin = clock();
        let mut done = |made: f64| {
            seconds.push(clock() - begin - made);
            begin = clock();
        };
        let prepared = Prepared::new(x, of.settings.clone()).unwrap();
        done(0.0);
        let gram = prepared.needs_gram().then(|| prepared.gram(0..of.n_samples));
        let decomposed = |number| prepared.decompose(number, gram.as_ref()).unwrap();
        let all = (0..prepared.decompositions()).map(decomposed).collect();
        let ridge = prepared.with(all).unwrap();
        drop(gram);
        done(0.0);
        let chosen = ridge.choose(&mut targets).unwrap();
        let made = targets.seconds;
        done(made);
        ridge
            .fit(&chosen, &mut targets, |block| {
                black_box(block.weights);
                Ok(())
            })
            .unwrap();
        done(targets.seconds - made);
        seconds
    }
}

fn run<S: Case>(of: &Workload<S>, clock: Clock<'_>) -> Vec<f64> {
    match of.precision {
        Precision::F32 => S::fit::<f32>(of, clock),
        Precision::F64 => S::fit::<f64>(of, clock),
    }
}

/// What is done with a case, whatever it fits.
trait With<R> {
    fn with<S: Case>(&self, of: &Workload<S>) -> R;
}

fn with<R>(case: &str, what: &impl With<R>) -> R {
    match case {
        "banded" => what.with(&banded::workload(false)),
        "banded_wide" => what.with(&banded::workload(true)),
        case => what.with(&workload(case)),
    }
}

/// The memory that is planned, and the names of the phases.
struct Planned;

impl With<(u64, Vec<&'static str>)> for Planned {
    fn with<S: Case>(&self, of: &Workload<S>) -> (u64, Vec<&'static str>) {
        (of.peak_bytes(), S::phases(of).iter().map(|phase| phase.name).collect())
    }
}

struct Run;

impl With<()> for Run {
    fn with<S: Case>(&self, of: &Workload<S>) {
        run(of, &|| 0.0);
    }
}

/// In a process of its own: prints the peak of memory in bytes.
fn child_memory(case: &str) {
    with(case, &Run);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak =
        status.lines().find_map(|l| l.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    let peak: u64 = peak.unwrap();
    println!("{}", peak * 1024);
}

/// By this clock, in a process of its own: prints the seconds of each phase, as planned and as they were. The rates are
/// measured right before the fit and right after it.
struct Timed<'a>(Clock<'a>);

impl With<()> for Timed<'_> {
    fn with<S: Case>(&self, of: &Workload<S>) {
        let rates = || of.plan(&Rates::measure_by(of.largest_eigen(), self.0));
        let before = rates();
        let seconds = run(of, self.0);
        let after = rates();
        for ((before, after), seconds) in before.phases.iter().zip(&after.phases).zip(seconds) {
            println!("{} {seconds}", (before.seconds + after.seconds) / 2.0);
        }
    }
}

fn child(arguments: &[&str], threads: Option<&str>) -> Vec<f64> {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(arguments).envs(threads.map(|threads| ("RAYON_NUM_THREADS", threads)));
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let said = String::from_utf8(done.stdout).unwrap();
    said.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

fn within(ratio: f64) -> bool {
    (0.7..=1.3).contains(&ratio)
}

fn memory_is_within_a_third() {
    for case in CASES {
        let planned = with(case, &Planned).0 as f64;
        // The heap of one run is not that of the next: the most of three.
        let peak = (0..3).map(|_| child(&["child", case], None)[0]).fold(0.0, f64::max);
        let [p, m] = [planned, peak].map(|bytes| bytes / 1048576.0);
        println!("{case}: memory {p:.0} MiB planned, {m:.0} MiB measured ({:.2})", planned / peak);
        assert!(within(planned / peak), "the memory of {case}");
    }
}

fn time_is_within_a_third() {
    compare_times("processor", Some("1"));
}

/// By the median of three fits, and up to three such medians: what else runs on this machine shares its caches.
fn compare_times(clock: &str, threads: Option<&str>) {
    for case in CASES {
        let mut medians = Vec::new();
        while medians.len() < 3 {
            let fit = |_| {
                let phases = child(&[clock, case], threads);
                let phases: Vec<(f64, f64)> = phases.chunks_exact(2).map(|both| (both[0], both[1])).collect();
                let [planned, measured] = phases.iter().fold([0.0; 2], |[a, b], (p, m)| [a + p, b + m]);
                (planned / measured, planned, measured, phases)
            };
            let mut fits: Vec<_> = (0..3).map(fit).collect();
            fits.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (ratio, planned, measured, phases) = &fits[1];
            println!("{case}: time {planned:.2} s planned, {measured:.2} s measured ({ratio:.2})");
            for (phase, (planned, measured)) in with(case, &Planned).1.iter().zip(phases) {
                println!("    {phase:<14} {planned:.2} s planned, {measured:.2} s measured");
            }
            medians.push(*ratio);
            if within(*ratio) {
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
    if let [what, case] = arguments.as_slice() {
        let begin = (Instant::now(), ProcessTime::now());
        return match what.as_str() {
            "processor" => with(case, &Timed(&|| begin.1.elapsed().as_secs_f64())),
            "wall" => with(case, &Timed(&|| begin.0.elapsed().as_secs_f64())),
            _ => child_memory(case),
        };
    }
    if arguments == ["wall"] {
        return compare_times("wall", None);
    }
    let tests: [(&str, fn()); 3] = [
        ("what_does_not_fit_is_refused_with_what_would", what_does_not_fit_is_refused_with_what_would),
        ("memory_is_within_a_third", memory_is_within_a_third),
        ("time_is_within_a_third", time_is_within_a_third),
    ];
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
    println!("\ntest result: ok. {} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out", tests.len());
}
