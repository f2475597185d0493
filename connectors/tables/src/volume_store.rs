//! Kept voxels of all volumes, as they come (time-major) and as rows need them (voxel by voxel).
//!
//! ```text
//!   push: volume 0 │ v v v v v v │        window(2..5):
//!         volume 1 │ v v v v v v │   ─►     │ v v v │  for every t, `stride` apart
//!         volume 2 │ v v v v v v │
//!   in memory, a window is a view; in a temporary file, one read for each volume fills a buffer.
//! ```

use crate::number::Number;
use crate::{Error, Result};
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;

/// `[volumes][voxels]` of numbers.
pub(crate) struct VolumeStore<T> {
    voxels: usize,
    volumes: usize,
    place: Place<T>,
}

enum Place<T> {
    Memory(Vec<T>),
    /// And room for the bytes of a volume.
    Disk(BufWriter<File>, Vec<u8>),
}

/// Voxels of a range at every time point: voxel `r` of the range at time `t` is `values[t·stride + r]`.
pub(crate) struct Window<'a, T> {
    values: &'a [T],
    stride: usize,
}

impl<T: Number> VolumeStore<T> {
    /// Keeps everything in memory: `voxels·capacity` numbers.
    pub fn in_memory(voxels: usize, capacity: usize) -> Self {
        Self { voxels, volumes: 0, place: Place::Memory(Vec::with_capacity(voxels * capacity)) }
    }

    /// Keeps everything in `file`, which is empty.
    pub fn on_disk(voxels: usize, file: File) -> Self {
        Self { voxels, volumes: 0, place: Place::Disk(BufWriter::with_capacity(1 << 20, file), Vec::new()) }
    }

    /// Appends a volume: its voxels at `positions`, or all of it.
    pub fn push(&mut self, volume: &[T], positions: Option<&[u32]>) -> Result<()> {
        self.volumes += 1;
        match (&mut self.place, positions) {
            (Place::Memory(values), None) => values.extend_from_slice(volume),
            (Place::Memory(values), Some(p)) => values.extend(p.iter().map(|v| volume[*v as usize])),
            (Place::Disk(file, bytes), None) => write(file, bytes, volume.iter().copied())?,
            (Place::Disk(file, bytes), Some(p)) => {
                write(file, bytes, p.iter().map(|v| volume[*v as usize]))?;
            }
        }
        Ok(())
    }

    /// Drops all voxels but those at `positions` (ascending). Only for a store in memory.
    pub fn retain(&mut self, positions: &[u32]) {
        let Place::Memory(values) = &mut self.place else { return };
        for t in 0..self.volumes {
            // Targets never pass their sources: positions ascend and a row only shrinks.
            for (r, v) in positions.iter().enumerate() {
                values[t * positions.len() + r] = values[t * self.voxels + *v as usize];
            }
        }
        self.voxels = positions.len();
        values.truncate(self.voxels * self.volumes);
        values.shrink_to_fit();
    }

    /// Ends the writing: what was pushed can be read.
    pub fn finish(&mut self) -> Result<()> {
        match &mut self.place {
            Place::Memory(_) => Ok(()),
            Place::Disk(file, _) => file.flush().map_err(spill),
        }
    }

    /// The voxels in `range` (of those kept); `buffer` is used by a store on disk.
    pub fn window<'a>(&'a mut self, range: Range<usize>, buffer: &'a mut Vec<T>) -> Result<Window<'a, T>> {
        let file = match &mut self.place {
            Place::Memory(values) => {
                let values = values.get(range.start..).unwrap_or_default();
                return Ok(Window { values, stride: self.voxels });
            }
            Place::Disk(file, _) => file.get_mut(),
        };
        buffer.clear();
        buffer.reserve_exact(range.len() * self.volumes);
        let mut bytes = vec![0_u8; range.len() * T::BYTES];
        for t in 0..self.volumes {
            let offset = (t * self.voxels + range.start) as u64 * T::BYTES as u64;
            file.seek(SeekFrom::Start(offset)).map_err(spill)?;
            file.read_exact(&mut bytes).map_err(spill)?;
            T::decode(&bytes, buffer);
        }
        Ok(Window { values: buffer, stride: range.len() })
    }
}

impl<T: Number> Window<'_, T> {
    /// The series of voxels `rows` of the window, `[rows.len(), volumes]` row-major.
    pub fn series(&self, rows: Range<usize>, volumes: usize) -> Vec<T> {
        // A tile of 16 points of 64 voxels stays in the first cache while it is turned.
        const POINTS: usize = 16;
        const VOXELS: usize = 64;
        let mut series = vec![T::default(); rows.len() * volumes];
        for first in (0..rows.len()).step_by(VOXELS) {
            let count = VOXELS.min(rows.len() - first);
            for t0 in (0..volumes).step_by(POINTS) {
                for t in t0..volumes.min(t0 + POINTS) {
                    let source = &self.values[t * self.stride + rows.start + first..][..count];
                    for (r, value) in source.iter().enumerate() {
                        series[(first + r) * volumes + t] = *value;
                    }
                }
            }
        }
        series
    }
}

fn write<T: Number>(
    file: &mut BufWriter<File>,
    bytes: &mut Vec<u8>,
    values: impl Iterator<Item = T>,
) -> Result<()> {
    bytes.clear();
    T::encode(values, bytes);
    file.write_all(bytes).map_err(spill)
}

fn spill(e: std::io::Error) -> Error {
    let reason = format!("{e}; free some space, or raise memory_limit");
    Error::Spill { path: "series".into(), reason }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn rows<T: Number>(store: &mut VolumeStore<T>, volumes: usize, window: usize) -> Vec<T> {
        store.finish().unwrap();
        let voxels = store.voxels;
        let mut buffer = Vec::new();
        let mut all = Vec::new();
        for first in (0..voxels).step_by(window) {
            let range = first..voxels.min(first + window);
            let view = store.window(range.clone(), &mut buffer).unwrap();
            for r in (0..range.len()).step_by(3) {
                all.extend(view.series(r..range.len().min(r + 3), volumes));
            }
        }
        all
    }

    proptest! {
        /// Memory, memory that is thinned out later, and disk give the transpose, bit for bit.
        #[test]
        fn all_ways_give_the_transpose(
            voxels in 1_usize..90, volumes in 1_usize..40, window in 1_usize..50, seed in any::<u32>(),
        ) {
            let value = |t: usize, v: usize| f32::from_bits((t * 7919 + v) as u32 ^ seed);
            let positions: Vec<u32> = (0..voxels as u32).filter(|v| (v ^ seed) % 3 != 0).collect();
            let mut memory = VolumeStore::in_memory(positions.len(), volumes);
            let mut thinned = VolumeStore::in_memory(voxels, volumes);
            let mut disk = VolumeStore::on_disk(positions.len(), tempfile::tempfile().unwrap());
            for t in 0..volumes {
                let volume: Vec<f32> = (0..voxels).map(|v| value(t, v)).collect();
                memory.push(&volume, Some(&positions)).unwrap();
                thinned.push(&volume, None).unwrap();
                disk.push(&volume, Some(&positions)).unwrap();
            }
            thinned.retain(&positions);
            let expected: Vec<u32> =
                positions.iter().flat_map(|v| (0..volumes).map(move |t| value(t, *v as usize).to_bits())).collect();
            for store in [&mut memory, &mut thinned, &mut disk] {
                let found: Vec<u32> = rows(store, volumes, window).iter().map(|x| x.to_bits()).collect();
                prop_assert_eq!(&found, &expected);
            }
            let double = |t: usize, v: usize| f64::from_bits(u64::from(value(t, v).to_bits()) << 31 | 5);
            let mut memory = VolumeStore::in_memory(voxels, volumes);
            let mut disk = VolumeStore::on_disk(voxels, tempfile::tempfile().unwrap());
            for t in 0..volumes {
                let volume: Vec<f64> = (0..voxels).map(|v| double(t, v)).collect();
                memory.push(&volume, None).unwrap();
                disk.push(&volume, None).unwrap();
            }
            let all = (0..voxels).flat_map(|v| (0..volumes).map(move |t| (t, v)));
            let expected: Vec<u64> = all.map(|(t, v)| double(t, v).to_bits()).collect();
            for store in [&mut memory, &mut disk] {
                let found: Vec<u64> = rows(store, volumes, window).iter().map(|x| x.to_bits()).collect();
                prop_assert_eq!(&found, &expected);
            }
        }
    }
}
