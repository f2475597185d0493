//! Where products and decompositions are computed: on the cores, by all ranks together; or as targets stream past a
//! card, by one.

use crate::{
    message::Number,
    options::{CvChoice, EncodingOptions, RidgeCvOptions, STAGE, of_ridge},
    targets::Share,
};
use faer::{Mat, MatRef};
use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};
use voxelflow_cuda::{Card, regression::HostNumber};
use voxelflow_ridge::{
    CardPlan, CardRates, Coefficients, FoldSizes, Result as RidgeResult, RidgeCv, RidgeFit, RidgeSettings,
    Score, Step, StreamShape, StreamedRidge, Targets,
};
use voxelflow_stage::{Error, Explained, Needs, Result, Samples, TrainSettings};

/// A fit of so many seconds is worth two more to know how many.
const LONG: f64 = 20.0;

/// Opens a stream for features, `[n_samples, n_features]`.
pub(crate) type Open<T> =
    Box<dyn FnOnce(MatRef<'_, T>, RidgeSettings) -> RidgeResult<StreamedRidge<T>> + Send>;

/// A place where targets stream past.
pub(crate) struct Stream<T> {
    pub open: Open<T>,
    /// What the fit will need there; `None`: not known.
    pub needs: Option<Needs>,
}

/// Decomposed features, where they are.
pub(crate) enum Solver<'a, T> {
    Cores(&'a RidgeCv<T>),
    Streamed(&'a mut StreamedRidge<T>),
}

impl<T: Number> Solver<'_, T> {
    /// Fits all samples, block by block; `take` gets the coefficients of each.
    pub fn fit(
        self,
        fit: &RidgeFit<T>,
        targets: &mut Share<'_>,
        take: impl FnMut(Coefficients<T>) -> RidgeResult<()>,
    ) -> RidgeResult<()> {
        match self {
            Self::Cores(ridge) => ridge.fit(fit, targets, take),
            Self::Streamed(ridge) => {
                ridge.fit(fit, targets, None, take)?;
                let of = |step: &Step| {
                    format!("{} {:.2} s, {:.2} of them waiting", step.name, step.seconds, step.waiting)
                };
                log::info!("{}", ridge.steps().iter().map(of).collect::<Vec<_>>().join("; "));
                Ok(())
            }
        }
    }
}

/// Refuses what streams do not do; asked when a plan is checked.
///
/// # Errors
/// The option, and what to write instead.
pub(crate) fn check_stream(
    options: &RidgeCvOptions,
    settings: &TrainSettings,
    cards: &[usize],
) -> Result<()> {
    let (device, RidgeCvOptions { encoding: options, baseline }) = (&settings.device, options);
    let refuse = |what: &str, option: &str, reason: String| {
        Err(Error::OptionValue { what: what.into(), option: option.into(), reason })
    };
    if baseline.is_some() {
        let reason = format!("is not given with device => '{device}'; or use device => 'cpu'");
        return refuse(STAGE, "baseline", reason);
    }
    // Leave-one-out of every target by itself needs every prediction.
    let alone = options.choice()? == CvChoice::LeaveOneOut;
    let needed = [
        ("alpha_per_target", "false", !options.alpha_per_target),
        ("scoring", "'r2' or 'neg_mean_squared_error'", options.scoring != Score::Pearson),
    ];
    if let Some((option, value, _)) = needed.iter().find(|(.., given)| alone && !given) {
        let reason = format!(
            "is {value} with cv => 'loo' and device => '{device}'; or use cv => 'run', a number of folds, or \
             device => 'cpu'"
        );
        return refuse(STAGE, option, reason);
    }
    if settings.ranks != 1 {
        let reason =
            format!("is 1 with device => '{device}', not {}; or use device => 'cpu'", settings.ranks);
        return refuse("TRAIN", "ranks", reason);
    }
    if let [first, _, ..] = cards {
        let reason = format!("is one card for {STAGE}, not '{device}'; use device => 'cuda:{first}'");
        return refuse("TRAIN", "device", reason);
    }
    Ok(())
}

/// The first of the cards, asked for its plan.
///
/// # Errors
/// A card that is not there; what does not fit it or this machine's memory, with what would.
pub(crate) fn on_card<T: Number + HostNumber>(
    cards: &[usize],
    options: &EncodingOptions,
    train: &mut Explained<'_>,
    held_out: Option<&Samples>,
    memory: Option<u64>,
) -> Result<Stream<T>> {
    let card = Arc::new(Card::open(cards.first().copied().unwrap_or(0)).map_err(card_failed)?);
    let samples = train.samples;
    let shape = StreamShape {
        n_samples: samples.count(),
        n_features: options.n_features(samples.features.len()),
        n_targets: samples.targets(),
        block: options.block.min(samples.targets()),
        n_alphas: options.alphas.len(),
        // They are predicted on the cores, with the coefficients.
        n_held_out: 0,
        folds: FoldSizes::of(&options.settings(samples)?.cv),
        number_bytes: T::BYTES,
    };
    let plan = planned(&card, &shape, read_rate::<T>(train, shape.block)?).map_err(of_ridge)?;
    log::info!("{}:\n{plan}", card.name());
    let held_out = held_out.map_or(0, Samples::count);
    let features = ((shape.n_samples + held_out) * shape.n_features * T::BYTES) as u64;
    let needs = Needs {
        coefficients: [shape.n_features, shape.n_targets],
        memory: features + plan.host + (shape.block * held_out * (8 + 2 * T::BYTES)) as u64,
        card_memory: plan.peak(),
        read: plan.read / T::BYTES as u64 * 4 + (4 * held_out * shape.n_targets) as u64,
        seconds: plan.seconds(),
    };
    if let Some(memory) = memory.filter(|memory| needs.memory > *memory) {
        let reason = format!(
            "blocks of {} targets on their way to the card need {} MiB of this machine's memory, and {} MiB are given; \
             give a smaller block, or more memory (--memory)",
            shape.block,
            needs.memory.div_ceil(1 << 20),
            memory.div_ceil(1 << 20)
        );
        return Err(Error::Data { what: STAGE.into(), reason });
    }
    let open = move |x: MatRef<'_, T>, settings: RidgeSettings| StreamedRidge::on_card(card, x, settings);
    Ok(Stream { open: Box::new(open), needs: Some(needs) })
}

/// Bytes of targets that are read in a second, from a block of them.
fn read_rate<T: Number>(train: &mut Explained<'_>, block: usize) -> Result<f64> {
    let Explained { series, samples, .. } = train;
    let share = 0..samples.targets();
    let cancelled = &AtomicBool::new(false);
    let mut targets = Share::new(*series, samples, share, cancelled);
    let mut values = Mat::<T>::zeros(samples.count(), block);
    let clock = Instant::now();
    targets.read(0..block, values.as_mut()).map_err(|e| targets.cause(e))?;
    let seconds = clock.elapsed().as_secs_f64().max(1e-9);
    Ok((samples.count() * block * T::BYTES) as f64 / seconds)
}

/// The plan for a card that is measured: roughly first, and as it is when it is warm if the fit takes long.
fn planned(card: &Card, shape: &StreamShape, read: f64) -> RidgeResult<CardPlan> {
    let size = shape.n_samples.min(shape.n_features);
    let rates = CardRates::measure(card, size, read)?;
    let rough = shape.plan(&rates)?;
    if rough.seconds() < LONG { Ok(rough) } else { shape.plan(&rates.sustained(card, size)?) }
}

/// A card's fault as this crate's: what the machine lacks is the option's.
fn card_failed(error: voxelflow_cuda::Error) -> Error {
    let (what, option, reason) = ("TRAIN".to_owned(), "device".to_owned(), error.to_string());
    if error.is_input() { Error::OptionValue { what, option, reason } } else { Error::Device { reason } }
}
