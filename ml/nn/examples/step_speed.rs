//! How fast the dist-DCA of the paper (284 time points, 6,020,381 parameters) trains here, and where the time goes.
//!
//! usage: `cargo run -p voxelflow-nn --example step_speed -- …`
//! - `[MINIBATCH [STEPS]]`: the gradient alone, median of some steps.
//! - `phases [MINIBATCH [STEPS]]`: where a step with Adagrad spends its time, with GFLOP/s.
//! - `operations`: GFLOP/s of every operation on one thread, beside those of a large matrix product.
//! - `serve MINIBATCH switches|repetition`: as many steps with Adagrad as each line of standard input says, answered with
//!   seconds and peak MiB. For `integration-tests/bench/step_speed.py`.

use std::{io::BufRead, time::Instant};
use voxelflow_nn::{
    DistDcaConfig, Objective, device,
    models::dist_dca::{Architecture, DcaObjective, Measured, measure_operations},
};
use voxelflow_stage::Result;
use voxelflow_sync::{Optimizer, OptimizerSettings};

const TIME_POINTS: usize = 284;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: usize| arguments.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    match arguments.first().map(String::as_str) {
        Some("phases") => phases(number(1, 64), number(2, 9)),
        Some("operations") => operations(),
        Some("serve") => serve(number(1, 64), arguments.get(2).is_none_or(|a| a == "switches")),
        _ => gradient_alone(number(0, 64), number(1, 5)),
    }
}

fn architecture(switches: bool) -> Result<Architecture> {
    DistDcaConfig { switches, ..DistDcaConfig::default() }.architecture(TIME_POINTS)
}

/// What a rank without peers does a step.
struct Training {
    objective: DcaObjective,
    optimizer: Optimizer,
    parameters: Vec<f32>,
    gradient: Vec<f32>,
    series: Vec<f32>,
}

impl Training {
    fn new(minibatch: usize, switches: bool) -> Result<Self> {
        let objective = DcaObjective::new(&architecture(switches)?, &device("cpu")?);
        let parameters = objective.layout().initial(0);
        let series = (0..minibatch * TIME_POINTS).map(|i| (i as f32 * 0.37).sin()).collect();
        let optimizer = Optimizer::new(OptimizerSettings::default(), parameters.len());
        Ok(Self { gradient: vec![0.0; parameters.len()], objective, optimizer, parameters, series })
    }

    fn gradient(&mut self) -> Result<()> {
        self.objective.gradient(&self.parameters, &self.series, &mut self.gradient)?;
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        self.gradient()?;
        let samples = self.series.len() / TIME_POINTS;
        self.optimizer.apply(&mut self.parameters, &mut self.gradient, samples as u64);
        Ok(())
    }
}

fn gradient_alone(minibatch: usize, steps: usize) -> Result<()> {
    let mut training = Training::new(minibatch, true)?;
    training.gradient()?;
    let mut seconds = Vec::new();
    for _ in 0..steps.max(1) {
        let clock = Instant::now();
        training.gradient()?;
        seconds.push(clock.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    let median = seconds[seconds.len() / 2];
    println!(
        "minibatch {minibatch}: {:.1} ms a step, {:.0} series/s",
        1e3 * median,
        minibatch as f64 / median
    );
    Ok(())
}

fn serve(minibatch: usize, switches: bool) -> Result<()> {
    let mut training = Training::new(minibatch, switches)?;
    for line in std::io::stdin().lock().lines() {
        let steps: usize = line.ok().and_then(|line| line.trim().parse().ok()).unwrap_or(0);
        let clock = Instant::now();
        for _ in 0..steps {
            training.step()?;
        }
        println!("{} {}", clock.elapsed().as_secs_f64(), peak_mib());
    }
    Ok(())
}

/// Peak resident memory of this process; zero where the system does not say.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

fn phases(minibatch: usize, steps: usize) -> Result<()> {
    let mut training = Training::new(minibatch, true)?;
    training.step()?;
    let mut update = Vec::new();
    let mut all: Vec<Vec<Measured>> = Vec::new();
    for _ in 0..steps.max(1) {
        training.gradient()?;
        all.push(training.objective.phases());
        let clock = Instant::now();
        let samples = minibatch as u64;
        training.optimizer.apply(&mut training.parameters, &mut training.gradient, samples);
        update.push(clock.elapsed().as_secs_f64());
    }
    let median = |mut seconds: Vec<f64>| {
        seconds.sort_by(f64::total_cmp);
        seconds[seconds.len() / 2]
    };
    let mut rows: Vec<Measured> = (0..all[0].len())
        .map(|i| Measured {
            seconds: median(all.iter().map(|p| p[i].seconds).collect()),
            ..all[0][i].clone()
        })
        .collect();
    rows.push(Measured { name: "Adagrad".into(), operations: 0.0, seconds: median(update) });
    let whole: f64 = rows.iter().map(|row| row.seconds).sum();
    let threads = rayon::current_num_threads();
    println!(
        "a step of minibatch {minibatch} on {threads} threads: {:.1} ms, median of {steps}",
        1e3 * whole
    );
    for row in &rows {
        println!(
            "  {:28} {:7.2} ms {:4.0} %  {}",
            row.name,
            1e3 * row.seconds,
            100.0 * row.seconds / whole,
            rate(row)
        );
    }
    Ok(())
}

fn rate(row: &Measured) -> String {
    if row.operations == 0.0 { String::new() } else { format!("{:6.0} GFLOP/s", row.gflops()) }
}

fn operations() -> Result<()> {
    let ceiling = large_product();
    println!("one thread; a product of 1024 x 1024 x 1024 by `gemm`: {:.0} GFLOP/s", ceiling.gflops());
    for row in measure_operations(&architecture(true)?) {
        let share = 100.0 * row.gflops() / ceiling.gflops();
        println!("  {:28} {:9.1} us  {} {share:5.0} % of gemm", row.name, 1e6 * row.seconds, rate(&row));
    }
    Ok(())
}

/// The best of some products of large matrices, on one thread.
fn large_product() -> Measured {
    const N: usize = 1024;
    let (a, b, mut c) = (vec![0.5f32; N * N], vec![0.25f32; N * N], vec![0.0f32; N * N]);
    let mut best = f64::INFINITY;
    for _ in 0..9 {
        let clock = Instant::now();
        let n = N as isize;
        // SAFETY: three matrices of N x N values, row-major.
        #[allow(unsafe_code)] // gemm has no safe interface
        unsafe {
            let (to, a, b) = (c.as_mut_ptr(), a.as_ptr(), b.as_ptr());
            let serial = gemm::Parallelism::None;
            gemm::gemm(N, N, N, to, 1, n, false, a, 1, n, b, 1, n, 0.0, 1.0, false, false, false, serial);
        }
        best = best.min(clock.elapsed().as_secs_f64());
    }
    Measured { name: "gemm".into(), operations: 2.0 * (N * N * N) as f64, seconds: best }
}
