//! What tests of damaged files share: damage, and the largest allocation of each thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::Range;

/// Notes the largest allocation of each thread.
struct Largest;

thread_local! {
    /// Bytes of the largest allocation since it was set to 0.
    pub static LARGEST: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is handed to the system allocator unchanged.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Largest {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.with(|largest| largest.set(largest.get().max(layout.size())));
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Largest = Largest;

/// Small and reproducible.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Damages `bytes` at a few places, now and then where the file's `sizes` stand: the fields that can lie.
pub fn mutate(bytes: &mut Vec<u8>, random: &mut Random, sizes: Range<usize>) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len().max(1));
        match random.below(6) {
            _ if bytes.is_empty() => return,
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = [0, 0x7f, 0x80, 0xff][random.below(4)],
            2 => bytes.truncate(at),
            3 => {
                let end = (at + 1 + random.below(8)).min(bytes.len());
                let value = [0, 0x7f, 0xff][random.below(3)];
                bytes[at..end].fill(value);
            }
            4 => bytes.insert(at, random.next() as u8),
            _ => {
                let at = sizes.start + random.below(sizes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.next() as u8;
                }
            }
        }
    }
}
