//! How a run shows how far it is: a bar on a terminal, one plain line every ten seconds elsewhere, JSON lines
//! for machines. All of it goes to stderr; stdout is for results.

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::{
    io::IsTerminal,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use voxelflow_stage::{EpochRecord, Needs, ProgressSink, StepRecord};

/// Seconds between two plain lines.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);

/// Where progress goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressStyleKind {
    /// A bar that is redrawn.
    Bar,
    /// One line now and then.
    Plain,
    /// One JSON object a line.
    Json,
    /// Nothing (library use).
    Silent,
}

impl ProgressStyleKind {
    /// What suits stderr: `--json` wins, then whether a terminal is there.
    pub fn detect(json: bool) -> Self {
        match (json, std::io::stderr().is_terminal()) {
            (true, _) => Self::Json,
            (false, true) => Self::Bar,
            (false, false) => Self::Plain,
        }
    }
}

/// Progress of one training: series per second, loss and time left.
pub struct TrainingProgress {
    kind: ProgressStyleKind,
    model: String,
    state: Mutex<State>,
}

struct State {
    bar: Option<ProgressBar>,
    /// Samples to come in all; 0 until known.
    total: u64,
    started: Instant,
    last_line: Instant,
    samples: u64,
}

impl TrainingProgress {
    /// Progress of the training of `model`.
    pub fn new(kind: ProgressStyleKind, model: &str) -> Self {
        let bar = (kind == ProgressStyleKind::Bar).then(|| bar(model));
        let now = Instant::now();
        let state = Mutex::new(State { bar, total: 0, started: now, last_line: now, samples: 0 });
        Self { kind, model: model.to_owned(), state }
    }
}

impl TrainingProgress {
    /// A line for people.
    fn say(&self, line: String) {
        match self.kind {
            ProgressStyleKind::Bar => {
                let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(bar) = &state.bar {
                    bar.println(line);
                }
            }
            ProgressStyleKind::Plain => eprintln!("{line}"),
            ProgressStyleKind::Json | ProgressStyleKind::Silent => {}
        }
    }
}

fn bar(model: &str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    let template = "{prefix} {wide_bar} {human_pos}/{human_len} series, {msg}, {eta} left";
    let bar = match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    };
    bar.with_prefix(format!("train {model}"))
}

impl ProgressSink for TrainingProgress {
    fn started(&self, samples: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.total = samples;
        state.started = Instant::now();
        if let Some(bar) = &state.bar {
            bar.set_length(samples);
        }
    }

    fn planned(&self, needs: &Needs) {
        match self.kind {
            ProgressStyleKind::Json => eprintln!("{}", json!({"model": self.model, "plan": needs})),
            _ => self.say(format!("train {}: plan: {needs}", self.model)),
        }
    }

    fn step(&self, record: &StepRecord) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.samples += record.samples;
        let rate = state.samples as f64 / state.started.elapsed().as_secs_f64().max(1e-9);
        if let Some(bar) = &state.bar {
            bar.set_position(state.samples);
            bar.set_message(format!("{rate:.0} series/s, loss {:.4}", record.loss));
        }
        if self.kind == ProgressStyleKind::Plain && state.last_line.elapsed() >= PLAIN_INTERVAL {
            state.last_line = Instant::now();
            let left = match state.total {
                0 => String::new(),
                n => format!(", {:.0} s left", n.saturating_sub(state.samples) as f64 / rate),
            };
            eprintln!(
                "train {}: epoch {}, step {}, {} series, {rate:.0} series/s, loss {:.4}{left}",
                self.model, record.epoch, record.step, state.samples, record.loss
            );
        }
    }

    fn epoch(&self, record: &EpochRecord) {
        match self.kind {
            ProgressStyleKind::Json => eprintln!("{}", json!({"model": self.model, "epoch": record})),
            _ => self.say(epoch_line(&self.model, record)),
        }
    }
}

impl Drop for TrainingProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.state.lock().unwrap_or_else(PoisonError::into_inner).bar {
            bar.finish_and_clear();
        }
    }
}

fn epoch_line(model: &str, record: &EpochRecord) -> String {
    let validation = record.validation_loss.map(|l| format!(", validation {l:.4}")).unwrap_or_default();
    format!(
        "train {model}: epoch {} done, {} series in {:.1} s, loss {:.4}{validation}",
        record.epoch, record.samples, record.seconds, record.loss
    )
}
