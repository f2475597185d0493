//! Reads blocks of targets ahead of those who work on them.

use super::backend::Staging;
use crate::{Error, Result, Scalar, Targets};
use faer::MatMut;
use std::{ops::Range, sync::mpsc::channel, thread};

/// Reads `ranges` of `targets` into `staging`, as many ahead as it has places, and gives each to `work` in turn. Gives the
/// staging back.
///
/// # Errors
/// The first failure, of reading or of work.
pub(crate) fn ahead<T: Scalar>(
    targets: &mut (dyn Targets<T> + Send),
    staging: Vec<Box<dyn Staging<T>>>,
    ranges: Vec<Range<usize>>,
    mut work: impl FnMut(Range<usize>, &[T]) -> Result<()>,
) -> Result<Vec<Box<dyn Staging<T>>>> {
    let (give_back, emptied) = channel::<Box<dyn Staging<T>>>();
    let (hand_over, filled) = channel();
    let samples = targets.samples();
    staging.into_iter().for_each(|place| {
        // The other end is in this function.
        let _ = give_back.send(place);
    });
    thread::scope(|scope| {
        let read = move || {
            // Whoever works has failed where a channel is closed; it says why.
            for range in ranges {
                let Ok(mut place) = emptied.recv() else { break };
                let done = fill(targets, samples, range.clone(), place.as_mut());
                let failed = done.is_err();
                if hand_over.send(done.map(|()| (range, place))).is_err() || failed {
                    break;
                }
            }
            emptied
        };
        let start = |e: std::io::Error| Error::Targets { from: 0, to: 0, reason: format!("no thread: {e}") };
        let reader =
            thread::Builder::new().name("targets".into()).spawn_scoped(scope, read).map_err(start)?;
        for block in &filled {
            let (range, mut place) = block?;
            let len = samples * range.len();
            work(range, &place.values()?[..len])?;
            let _ = give_back.send(place);
        }
        drop(give_back);
        match reader.join() {
            Ok(emptied) => Ok(emptied.into_iter().collect()),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn fill<T: Scalar>(
    targets: &mut (dyn Targets<T> + Send),
    samples: usize,
    range: Range<usize>,
    place: &mut dyn Staging<T>,
) -> Result<()> {
    let values = &mut place.values()?[..samples * range.len()];
    targets.read(range.clone(), MatMut::from_column_major_slice_mut(values, samples, range.len()))
}
