//! Looking at many runs at once. What is small and far away is waited for, not computed: one after the other, the
//! headers and confounds of hundreds of runs in a store would take minutes.

use std::{
    panic::resume_unwind,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// Runs that are looked at at a time. Each waits for one small file, so this bounds memory and requests, not cores.
const AT_ONCE: usize = 16;

/// What `look` gives for each of the runs `0..count`, in their order; at most 16 are looked at at a time, on threads
/// that may wait.
pub fn look_at_runs<T: Send>(count: usize, look: impl Fn(usize) -> T + Sync) -> Vec<T> {
    if count < 2 {
        return (0..count).map(look).collect();
    }
    let next = AtomicUsize::new(0);
    let some = || {
        let numbers =
            std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| *n < count));
        numbers.map(|number| (number, look(number))).collect::<Vec<_>>()
    };
    let mut all: Vec<(usize, T)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..count.min(AT_ONCE)).map(|_| scope.spawn(some)).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, found)| found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Barrier, atomic::AtomicUsize};

    #[test]
    fn every_run_once_and_in_order() {
        for count in [0, 1, 2, AT_ONCE, 5 * AT_ONCE + 1] {
            assert_eq!(look_at_runs(count, |run| run * run), (0..count).map(|n| n * n).collect::<Vec<_>>());
        }
    }

    /// They wait for one another, so it ends only if they are looked at together; never are there more.
    #[test]
    fn as_many_as_the_bound_are_looked_at_together() {
        let (together, now, most) = (Barrier::new(AT_ONCE), AtomicUsize::new(0), AtomicUsize::new(0));
        look_at_runs(4 * AT_ONCE, |_| {
            most.fetch_max(1 + now.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            together.wait();
            now.fetch_sub(1, Ordering::SeqCst);
        });
        assert_eq!(most.into_inner(), AT_ONCE);
    }
}
