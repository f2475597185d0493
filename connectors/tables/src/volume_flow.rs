//! Volumes through a plan, several at a time: while one lot is worked on by all cores, the next is inflated.
//!
//! ```text
//!   reader      lot 0 │ lot 1 │ lot 2 │ …         one volume after the other
//!   all cores         │ lot 0 │ lot 1 │ lot 2     a scratch each
//!   taker             │       │ lot 0 │ lot 1     values in their order of time
//! ```

use crate::number::Number;
use crate::{Error, Image, Result, Stores};
use voxelflow_signal::{VolumePlan, VolumeReport, VolumeScratch};

/// Volumes of a lot for each core: the more, the less cores wait for each other.
const VOLUMES_PER_CORE: usize = 2;

/// How many volumes are in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VolumeFlow {
    cores: usize,
    volumes: usize,
    /// Bytes of all that is in flight.
    pub bytes: usize,
}

impl VolumeFlow {
    /// For volumes of `voxels` of type T, of which there are `volumes`, in at most `memory` bytes, or one at a time.
    pub fn new<T: Number>(plan: &VolumePlan, voxels: usize, volumes: usize, memory: usize) -> Self {
        // Two lots of volumes as they are read, one of values, and one volume on its way into a lot.
        let a_volume = 2 * T::BYTES * voxels + 8 * plan.values();
        let bytes =
            |cores: usize, each: usize| cores * (each * a_volume + plan.scratch_bytes()) + T::BYTES * voxels;
        let cores = rayon::current_num_threads().clamp(1, volumes.max(1));
        let fits = |cores: &usize| bytes(*cores, VOLUMES_PER_CORE) <= memory;
        match (1..=cores).rev().find(fits) {
            Some(cores) => {
                Self { cores, volumes: VOLUMES_PER_CORE * cores, bytes: bytes(cores, VOLUMES_PER_CORE) }
            }
            None => Self { cores: 1, volumes: 1, bytes: bytes(1, 1) },
        }
    }

    /// Gives the values of each volume of `image` to `take`, in order of time. `check` is asked before each volume.
    ///
    /// # Errors
    /// Those of the file, of the plan, of `check` and of `take`; the first one ends it.
    pub fn run<T: Number>(
        self,
        plan: &VolumePlan,
        image: &Image,
        stores: &Stores,
        check: impl Fn() -> Result<()>,
        mut take: impl FnMut(&[f64]) -> Result<()>,
    ) -> Result<VolumeReport> {
        let mut reader = image.open(stores)?;
        let mut volume = Vec::new();
        let mut fill = |lot: &mut Vec<T>| -> Result<()> {
            lot.clear();
            for _ in 0..self.volumes {
                check()?;
                if !reader.next_volume(&mut volume)? {
                    break;
                }
                lot.extend_from_slice(&volume);
            }
            Ok(())
        };
        let size = plan.values();
        let mut scratches = vec![VolumeScratch::default(); self.cores];
        let (mut lot, mut next, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let mut found = VolumeReport::default();
        fill(&mut lot)?;
        while !lot.is_empty() {
            values.resize(lot.len() / plan.source().voxels() * size, 0.0);
            let mut report = Ok(VolumeReport::default());
            // A scope of the pool in which this thread, which is none of its own, goes on reading.
            let filled = rayon::in_place_scope(|scope| {
                scope.spawn(|_| report = plan.apply_all(&lot, &mut values, &mut scratches));
                fill(&mut next)
            });
            let report = report.map_err(|source| Error::Volumes { path: image.name(), source })?;
            found = [found, report].into_iter().sum();
            values.chunks_exact(size.max(1)).try_for_each(&mut take)?;
            filled?;
            std::mem::swap(&mut lot, &mut next);
        }
        Ok(found)
    }
}
