//! Blocks of targets that are copied to a card while others are worked on.

use super::numbers::{HostNumber, Numbers, short};
use crate::{Card, During, Result};
use cudarc::driver::{CudaEvent, result, sys::CUevent_flags};

/// Two places on the card that blocks are copied to in turn, while the block before is worked on.
#[derive(Debug)]
pub struct Blocks<T> {
    places: [Numbers<T>; 2],
    /// Recorded when the block in a place is no longer needed.
    free: [CudaEvent; 2],
    next: usize,
    /// Begin and end of the work on each block.
    work: Vec<(CudaEvent, Option<CudaEvent>)>,
}

impl<T: HostNumber> Blocks<T> {
    /// For blocks of at most `len` numbers.
    ///
    /// # Errors
    /// A card without room for them.
    pub fn new(card: &Card, len: usize) -> Result<Self> {
        let place = || Numbers::zeros(card, len, "blocks of targets");
        let event = || card.stream().record_event(None).during("an event");
        Ok(Self { places: [place()?, place()?], free: [event()?, event()?], next: 0, work: Vec::new() })
    }

    /// Copies `values`, page-locked ones best, to the place that has been free longest; work that follows waits for them,
    /// and is counted from then on. It returns when they are copied.
    ///
    /// # Errors
    /// More values than there is room for; a card that fails.
    pub fn copy(&mut self, card: &Card, values: &[T]) -> Result<&Numbers<T>> {
        const WHAT: &str = "copying targets to the card";
        let (at, copies) = (self.next, card.copies());
        if self.places[at].len() < values.len() {
            return short(WHAT, self.places[at].len(), values.len());
        }
        self.next = 1 - at;
        copies.wait(&self.free[at]).during(WHAT)?;
        card.context().bind_to_thread().during(WHAT)?;
        // SAFETY: the place is large enough and free, and `values` is waited for below.
        unsafe { result::memcpy_htod_async(self.places[at].at(card, 0), values, copies.cu_stream()) }
            .during(WHAT)?;
        let copied = copies.record_event(None).during(WHAT)?;
        card.stream().wait(&copied).during(WHAT)?;
        let begin = card.stream().record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).during(WHAT)?;
        self.work.push((begin, None));
        copied.synchronize().during(WHAT)?;
        Ok(&self.places[at])
    }

    /// The block that was copied last is needed no longer once what was asked for so far is done.
    ///
    /// # Errors
    /// A card that fails.
    pub fn release(&mut self, card: &Card) -> Result<()> {
        self.free[1 - self.next].record(card.stream()).during("an event")
    }

    /// All work on the block that was copied last has been asked for.
    ///
    /// # Errors
    /// A card that fails.
    pub fn done(&mut self, card: &Card) -> Result<()> {
        let end = card.stream().record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).during("an event")?;
        if let Some(last) = self.work.last_mut() {
            last.1 = Some(end);
        }
        Ok(())
    }

    /// Waits for all work; gives the seconds that it took, without those between.
    ///
    /// # Errors
    /// A card that fails.
    pub fn finish(&mut self, card: &Card) -> Result<f64> {
        card.wait()?;
        let mut seconds = 0.0;
        for (begin, end) in self.work.drain(..) {
            if let Some(end) = end {
                seconds += f64::from(begin.elapsed_ms(&end).during("an event")?) / 1e3;
            }
        }
        Ok(seconds)
    }
}
