//! A condition's events on the fine grid, convolved and read at the volumes.

use super::DesignSettings;
use super::conditions::{Condition, Placed};
use super::fine_grid::FineGrid;
use super::hrf::{HrfModel, Kernel};
use super::orthogonal::orthogonalize;
use super::report::{DesignReport, Outcome};
use std::ops::Range;

/// The regressors of a condition, one for each kernel, `[kernels][volumes]`.
pub(super) fn respond(
    condition: &Condition,
    kernels: &[Kernel],
    grid: &FineGrid,
    settings: &DesignSettings,
    report: &mut DesignReport,
) -> Vec<Vec<f64>> {
    let fir = settings.hrf_model == HrfModel::Fir;
    let samples = Samples::new(grid, if fir { settings.oversampling - 1 } else { 0 });
    let reach = reach(kernels);
    let mut seen: Vec<(Placed, Range<usize>)> = Vec::with_capacity(condition.events.len());
    for event in &condition.events {
        let bins = place(event, grid);
        match unseen(event, &bins, &reach, grid, &samples) {
            Some(outcome) => report.note(event.index, outcome),
            None => {
                if event.onset < grid.bins[0] {
                    report.note(event.index, Outcome::Cut);
                }
                seen.push((*event, bins));
            }
        }
    }
    let boxes = boxes(&seen, grid.bins.len());
    let mut columns: Vec<Vec<f64>> = kernels.iter().map(|kernel| samples.read(kernel, &boxes)).collect();
    if !fir {
        orthogonalize(&mut columns);
    }
    columns
}

/// The bins in which an event lasts; an impulse has one. None after the last.
fn place(event: &Placed, grid: &FineGrid) -> Range<usize> {
    let last = grid.bins.len() - 1;
    let from = grid.bin_of(event.onset).min(last);
    let to = grid.bin_of(event.onset + event.duration).min(last);
    from..if to == from && to < last { to + 1 } else { to }
}

/// The bins after an event in which one of the kernels is not zero, from the first to the last.
fn reach(kernels: &[Kernel]) -> Range<usize> {
    let ends = kernels.iter().filter_map(|kernel| {
        let first = kernel.values.iter().position(|h| *h != 0.0)?;
        let last = kernel.values.iter().rposition(|h| *h != 0.0)?;
        Some(kernel.delay + first..kernel.delay + last + 1)
    });
    ends.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or_default()
}

/// Why an event that lasts for `bins` has no part in what is read, if it has none.
fn unseen(
    event: &Placed,
    bins: &Range<usize>,
    reach: &Range<usize>,
    grid: &FineGrid,
    samples: &Samples,
) -> Option<Outcome> {
    let (begin, end) = (grid.bins[0], event.onset + event.duration);
    let over = end < begin || (end == begin && event.duration > 0.0);
    if over || bins.end + reach.end < samples.first() + 2 {
        return Some(Outcome::BeforeRun);
    }
    (bins.is_empty() || bins.start + reach.start > samples.last()).then_some(Outcome::AfterRun)
}

/// The sum of all events in every bin.
fn boxes(events: &[(Placed, Range<usize>)], bins: usize) -> Vec<f64> {
    let mut boxes = vec![0.0; bins];
    for (event, at) in events {
        boxes[at.start] += event.modulation;
    }
    for (event, at) in events {
        boxes[at.end] -= event.modulation;
    }
    let mut height = 0.0;
    for value in &mut boxes {
        height += *value;
        *value = height;
    }
    boxes
}

/// Where the volumes lie between fine bins.
struct Samples {
    /// Lower bin, share of the bin after it.
    at: Vec<Lerp>,
}

struct Lerp {
    bin: usize,
    from: f64,
    width: f64,
    time: f64,
}

impl Samples {
    /// A finite impulse response is read `shift` bins later: a volume stands for all of its time.
    fn new(grid: &FineGrid, shift: usize) -> Self {
        let usable = &grid.bins[..grid.bins.len() - shift];
        let lerp = |time: &f64| {
            let upper = usable.partition_point(|bin| bin < time).clamp(1, usable.len() - 1);
            let (from, to) = (usable[upper - 1], usable[upper]);
            Lerp { bin: upper - 1 + shift, from, width: to - from, time: *time }
        };
        Self { at: grid.frames.iter().map(lerp).collect() }
    }

    /// The first bin that is read.
    fn first(&self) -> usize {
        self.at.first().map_or(0, |lerp| lerp.bin)
    }

    /// The last bin that is read.
    fn last(&self) -> usize {
        self.at.last().map_or(0, |lerp| lerp.bin + 1)
    }

    /// `boxes` convolved with `kernel`, between the bins around each volume. Only those are computed.
    fn read(&self, kernel: &Kernel, boxes: &[f64]) -> Vec<f64> {
        let convolved = |bin: usize| -> f64 {
            let Some(newest) = bin.checked_sub(kernel.delay) else { return 0.0 };
            let oldest = (newest + 1).saturating_sub(kernel.values.len());
            boxes[oldest..=newest].iter().rev().zip(&kernel.values).map(|(x, h)| x * h).sum()
        };
        self.at
            .iter()
            .map(|Lerp { bin, from, width, time }| {
                let (low, high) = (convolved(*bin), convolved(bin + 1));
                (high - low) / width * (time - from) + low
            })
            .collect()
    }
}
