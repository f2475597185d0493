//! The feed of a rank: one copy from the spool into the minibatch, and the next minibatch asked for in time.

use super::SpoolReader;
use crate::Error;
use std::{
    ops::Range,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Instant,
};
use voxelflow_stage::{FeatureFeed, Result, SeriesFeed};

/// Bytes that are fetched ahead, at most.
const AHEAD: usize = 64 << 20;
/// Local rows that come faster than so many bytes a second lie in memory: nothing is gained by touching them.
const IN_MEMORY: f64 = 0.5e9;

/// All rows of a spool, for one rank.
pub(in crate::train) struct SpoolFeed {
    reader: Arc<SpoolReader>,
    ahead: Option<Ahead>,
    /// Bytes a second of the last minibatch.
    rate: f64,
}

/// A thread that fetches what will probably be read next, one minibatch at a time.
struct Ahead {
    ask: SyncSender<Vec<usize>>,
    fetched: Receiver<Fetched>,
    /// Whether an answer is to come.
    asked: bool,
}

/// Rows, and their values unless they are local.
struct Fetched {
    rows: Vec<usize>,
    values: crate::Result<Vec<f32>>,
}

impl SpoolFeed {
    /// The rows of `reader`.
    pub fn new(reader: Arc<SpoolReader>) -> Self {
        Self { reader, ahead: None, rate: f64::INFINITY }
    }

    fn fill(&mut self, rows: &[usize], into: &mut [f32]) -> crate::Result<()> {
        let time_points = self.reader.time_points();
        let mut done = 0;
        if let Some(Fetched { rows: early, values }) = self.ahead.as_mut().and_then(Ahead::take) {
            let values = values?;
            // A guess that was wrong is of no use; one that ends too early is of some.
            if rows.starts_with(&early) && !values.is_empty() {
                done = early.len();
                into[..done * time_points].copy_from_slice(&values);
            }
        }
        self.reader.read(&rows[done..], &mut into[done * time_points..])
    }
}

impl SeriesFeed for SpoolFeed {
    fn rows(&self) -> usize {
        self.reader.rows()
    }

    fn time_points(&self) -> usize {
        self.reader.time_points()
    }

    fn read(&mut self, rows: &[usize], into: &mut [f32]) -> Result<()> {
        let clock = Instant::now();
        if into.len() != rows.len() * self.time_points() {
            let reason = format!("{} values for {} series of {}", into.len(), rows.len(), self.time_points());
            return Err(voxelflow_stage::Error::Data { what: "feed".into(), reason });
        }
        self.fill(rows, into).map_err(of_stage)?;
        self.rate = size_of_val(into) as f64 / clock.elapsed().as_secs_f64().max(1e-9);
        Ok(())
    }

    fn prefetch(&mut self, rows: &[usize]) {
        if rows.is_empty() || !self.reader.fetches() && self.rate > IN_MEMORY {
            return;
        }
        let most = (AHEAD / (size_of::<f32>() * self.time_points())).max(1);
        if self.ahead.is_none() {
            // Without a thread rows are read when they are needed.
            self.ahead = Ahead::start(Arc::clone(&self.reader)).ok();
        }
        if let Some(ahead) = &mut self.ahead {
            ahead.ask(&rows[..rows.len().min(most)]);
        }
    }
}

/// Features lie where series do, in numbers of 64 bits.
impl FeatureFeed for SpoolFeed {
    fn features(&self) -> usize {
        self.reader.time_points()
    }

    fn read(&mut self, rows: Range<usize>, into: &mut [f64]) -> Result<()> {
        self.reader.read(&rows.collect::<Vec<_>>(), into).map_err(of_stage)
    }
}

fn of_stage(error: Error) -> voxelflow_stage::Error {
    match error {
        Error::Storage { path, reason } => voxelflow_stage::Error::Rows { path, reason },
        other => voxelflow_stage::Error::Data { what: "feed".into(), reason: other.to_string() },
    }
}

impl Ahead {
    fn start(reader: Arc<SpoolReader>) -> std::io::Result<Self> {
        let (ask, asked) = sync_channel::<Vec<usize>>(1);
        let (tell, fetched) = sync_channel(1);
        // It ends when the feed is dropped: then nobody asks or listens.
        thread::Builder::new().name("feed ahead".into()).spawn(move || {
            for rows in asked {
                let values = if reader.fetches() {
                    let mut values = vec![0.0_f32; rows.len() * reader.time_points()];
                    reader.read(&rows, &mut values).map(|()| values)
                } else {
                    reader.touch(&rows);
                    Ok(Vec::new())
                };
                if tell.send(Fetched { rows, values }).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { ask, fetched, asked: false })
    }

    /// Asks for `rows` unless it is busy with others.
    fn ask(&mut self, rows: &[usize]) {
        if !self.asked {
            self.asked = self.ask.try_send(rows.to_vec()).is_ok();
        }
    }

    /// What was asked for, when it has come.
    fn take(&mut self) -> Option<Fetched> {
        if !std::mem::take(&mut self.asked) {
            return None;
        }
        self.fetched.recv().ok()
    }
}
