//! A whole brain on one card: 69,202 samples, 16,384 features, 264,805 targets, the size at which B-MOR's authors had to
//! leave samples out. Targets with planted correlations are made as they are read, since 73 GB of them fit nowhere.
//!
//! ```text
//! friends [--device cpu|cuda:0] [--samples N] [--features P] [--targets T] [--held-out H] [--block B] [--seed S]
//!         [--card-memory GIB]
//! friends --parity …      the same data by RidgeCv on the cores and by a stream on the device, compared
//! friends --rates         what the card does in a second
//! ```
//! Prints the plan, what was found beside what must be found, and how the plan has kept.

mod expected;
mod parity;
mod planted;

use faer::Mat;
use planted::{BEST_ALPHA, LEVELS, Planted};
use std::{env, error::Error as StdError, fs, sync::Arc, time::Instant};
use voxelflow_cuda::{
    Card,
    matrix::{RatedPrecision, product_rate},
};
use voxelflow_ridge::{
    CardPlan, CardRates, FoldSizes, HeldOut, RidgeFit, RidgeSettings, StreamShape, StreamedRidge, Targets,
};

/// The paper's penalties.
const ALPHAS: [f64; 11] = [0.1, 1.0, 100.0, 200.0, 300.0, 400.0, 600.0, 800.0, 900.0, 1000.0, 1200.0];

type Outcome<T> = std::result::Result<T, Box<dyn StdError>>;

struct Options {
    device: String,
    samples: usize,
    features: usize,
    targets: usize,
    held_out: usize,
    block: usize,
    seed: u64,
    card_memory: u64,
    parity: bool,
    rates: bool,
}

fn options() -> Outcome<Options> {
    let mut options = Options {
        device: "cpu".into(),
        samples: 69_202,
        features: 16_384,
        targets: 264_805,
        held_out: 1000,
        block: 2048,
        seed: 1,
        card_memory: u64::MAX,
        parity: false,
        rates: false,
    };
    let mut arguments = env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{name} wants a value"));
        match name.as_str() {
            "--device" => options.device = value()?,
            "--samples" => options.samples = value()?.parse()?,
            "--features" => options.features = value()?.parse()?,
            "--targets" => options.targets = value()?.parse()?,
            "--held-out" => options.held_out = value()?.parse()?,
            "--block" => options.block = value()?.parse()?,
            "--seed" => options.seed = value()?.parse()?,
            "--card-memory" => options.card_memory = value()?.parse::<u64>()? << 30,
            "--parity" => options.parity = true,
            "--rates" => options.rates = true,
            _ => return Err(format!("{name} is no option of friends").into()),
        }
    }
    Ok(options)
}

impl Options {
    fn settings(&self) -> RidgeSettings {
        RidgeSettings { alphas: ALPHAS.to_vec(), block: self.block, ..RidgeSettings::default() }
    }

    /// None: the cores.
    fn card(&self) -> Outcome<Option<Arc<Card>>> {
        match self.device.strip_prefix("cuda:") {
            Some(ordinal) => Ok(Some(Arc::new(Card::open(ordinal.parse()?)?))),
            None if self.device == "cpu" => Ok(None),
            None => Err(format!("{} is no device; give cpu or cuda:0", self.device).into()),
        }
    }

    fn shape(&self) -> StreamShape {
        StreamShape {
            n_samples: self.samples,
            n_features: self.features,
            n_targets: self.targets,
            block: self.block,
            n_alphas: ALPHAS.len(),
            n_held_out: self.held_out,
            folds: FoldSizes::default(),
            number_bytes: 4,
        }
    }
}

fn main() -> Outcome<()> {
    let options = options()?;
    if options.rates {
        return rates(&options);
    }
    if options.parity {
        return parity::compare(&options);
    }
    let clock = Instant::now();
    let x = planted::features(options.seed, options.samples + options.held_out, options.features);
    let (seen, others) = x.as_ref().split_at_row(options.samples);
    println!(
        "features: {} × {} in {:.1} s",
        options.samples + options.held_out,
        options.features,
        clock.elapsed().as_secs_f64()
    );
    let mut targets = Planted::new(seen, options.seed, options.targets, false);
    let mut held_out = Planted::new(others, options.seed, options.targets, true);
    let card = options.card()?;
    let plan = match &card {
        Some(card) => Some(plan(&options, card, &mut targets)?),
        None => None,
    };
    let clock = Instant::now();
    let mut ridge = match card {
        Some(card) => StreamedRidge::on_card(card, seen, options.settings())?,
        None => StreamedRidge::on_cores(seen, options.settings())?,
    };
    ridge.limit_memory(options.card_memory);
    let fit = ridge.choose(&mut targets)?;
    let mut recovered = Recovered::default();
    let held_out = HeldOut { features: others, targets: &mut held_out };
    let check = Planted::new(seen, options.seed, options.targets, false);
    let correlations = ridge.fit(&fit, &mut targets, Some(held_out), |block| {
        // The coefficients are on this machine now; the planted ones are among them.
        for (j, column) in block.weights.col_iter().enumerate() {
            recovered.add(&check, block.range.start + j, column);
        }
        Ok(())
    })?;
    let seconds = clock.elapsed().as_secs_f64();
    found(&options, &fit, &correlations, &recovered);
    timings(&ridge, plan.as_ref(), seconds);
    Ok(())
}

/// How long coefficients are along what was planted: 1 but for shrinkage.
#[derive(Default)]
struct Recovered {
    along: f64,
    count: usize,
}

impl Recovered {
    fn add(&mut self, planted: &Planted<'_>, target: usize, weights: faer::ColRef<'_, f32>) {
        let Some(truth) = planted.coefficients(target) else { return };
        let (mut along, mut square) = (0.0, 0.0);
        for (feature, weight) in truth {
            along += weight * f64::from(weights[feature]);
            square += weight * weight;
        }
        self.along += along / square;
        self.count += 1;
    }
}

fn plan(options: &Options, card: &Card, targets: &mut Planted<'_>) -> Outcome<CardPlan> {
    let count = options.block.min(options.targets);
    let mut block = Mat::<f32>::zeros(options.samples, count);
    let mut made = f64::INFINITY;
    for _ in 0..2 {
        let clock = Instant::now();
        targets.read(0..count, block.as_mut())?;
        made = made.min(clock.elapsed().as_secs_f64());
    }
    let bytes = (options.samples * count * size_of::<f32>()) as f64;
    let size = options.samples.min(options.features);
    let rates = CardRates::measure(card, size, bytes / made)?.sustained(card, size)?;
    println!(
        "{}: products {:.1} TFLOP/s, eigendecomposition {:.3e} s × size³, copies {:.1} GB/s; targets made at {:.2} GB/s",
        card.name(),
        rates.products / 1e12,
        rates.eigen,
        rates.copies / 1e9,
        rates.targets / 1e9
    );
    let plan = options.shape().plan(&CardRates { limit: options.card_memory, ..rates })?;
    println!("plan:\n{plan}");
    Ok(plan)
}

fn found(options: &Options, fit: &RidgeFit<f32>, correlations: &[f64], recovered: &Recovered) {
    println!("penalty {} (best by what was planted: {BEST_ALPHA})", fit.alphas[0]);
    for (alpha, score) in ALPHAS.iter().zip(&fit.mean_scores) {
        println!("  alpha {alpha:>6}  mean squared error {:.9}", -score);
    }
    let (mut worst, mut count) = (0.0_f64, 0);
    for (at, level) in LEVELS.iter().enumerate() {
        let own: Vec<f64> = correlations.iter().skip(at).step_by(LEVELS.len()).copied().collect();
        let mean = own.iter().sum::<f64>() / own.len().max(1) as f64;
        let expected = expected::correlation(options.samples, options.features, fit.alphas[0], *level);
        println!(
            "  planted r {level:.1}: recovered {mean:.5}, expected {expected:.5} ({} targets)",
            own.len()
        );
        worst = worst.max((mean - expected).abs());
        count += own.len();
    }
    println!("largest difference {worst:.5} over {count} targets; {} not fitted", fit.unfit.len());
    println!("coefficients along what was planted: {:.5}", recovered.along / recovered.count.max(1) as f64);
}

fn timings(ridge: &StreamedRidge<f32>, plan: Option<&CardPlan>, seconds: f64) {
    println!("{:<14} {:>9} {:>9} {:>9} {:>6}", "step", "seconds", "waiting", "planned", "ratio");
    for (i, step) in ridge.steps().iter().enumerate() {
        let planned = plan.map_or(f64::NAN, |plan| plan.steps[i].1);
        let ratio = step.seconds / planned;
        println!("{:<14} {:>9.2} {:>9.2} {planned:>9.2} {ratio:>6.2}", step.name, step.seconds, step.waiting);
    }
    let planned = plan.map_or(f64::NAN, CardPlan::seconds);
    let waiting: f64 = ridge.steps().iter().map(|step| step.waiting).sum();
    println!("{:<14} {seconds:>9.2} {waiting:>9.2} {planned:>9.2} {:>6.2}", "all", seconds / planned);
    println!("waiting for targets: {:.1}% of the time", 100.0 * waiting / seconds);
    println!("peak of this machine's memory: {} MiB", peak_mib());
}

fn peak_mib() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    peak.map_or_else(|| "unknown".into(), |kib: f64| format!("{:.0}", kib / 1024.0))
}

fn rates(options: &Options) -> Outcome<()> {
    let Some(card) = options.card()? else { return Err("--rates wants --device cuda:0".into()) };
    println!("{}", card.name());
    for precision in [RatedPrecision::Double, RatedPrecision::Single, RatedPrecision::Short] {
        let rate = product_rate(&card, 8192, precision, 2.0)?;
        println!("products of 8192 × 8192, {precision:?}: {:.1} TFLOP/s", rate / 1e12);
    }
    for size in [4096, 8192] {
        let rates = CardRates::measure(&card, size, 1.0)?;
        println!(
            "eigendecomposition of {size}: {:.2} s, workspace {:.2} GiB; copies {:.1} GB/s",
            rates.eigen * (size as f64).powi(3),
            rates.eigen_workspace as f64 / (1u64 << 30) as f64,
            rates.copies / 1e9
        );
    }
    Ok(())
}
