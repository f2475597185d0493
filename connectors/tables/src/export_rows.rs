//! Rows on their way to maps: they come voxel by voxel in any order, and leave volume by volume.
//!
//! Rows lie in memory until all of them pass a limit, then in temporary files. To write a map, as many
//! volumes at a time as fit in memory are filled in one pass over its rows.

use crate::{Error, Result};
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};

/// The rows of one map, `[rows][volumes]`.
pub(crate) struct MapRows {
    volumes: usize,
    rows: usize,
    place: Place,
}

enum Place {
    Memory(Vec<f32>),
    Disk(BufWriter<File>),
}

impl MapRows {
    pub fn new(volumes: usize) -> Self {
        Self { volumes, rows: 0, place: Place::Memory(Vec::new()) }
    }

    /// Bytes held in memory.
    pub fn memory(&self) -> usize {
        match &self.place {
            Place::Memory(values) => 4 * values.len(),
            Place::Disk(_) => 0,
        }
    }

    /// Appends one row.
    pub fn push(&mut self, row: &[f32]) -> Result<()> {
        self.rows += 1;
        match &mut self.place {
            Place::Memory(values) => values.extend_from_slice(row),
            Place::Disk(file) => write(file, row)?,
        }
        Ok(())
    }

    /// Moves the rows to a temporary file; later ones go there at once.
    pub fn spill(&mut self) -> Result<()> {
        let Place::Memory(values) = &mut self.place else { return Ok(()) };
        let values = std::mem::take(values);
        let mut file = BufWriter::with_capacity(1 << 18, tempfile::tempfile().map_err(failed)?);
        write(&mut file, &values)?;
        self.place = Place::Disk(file);
        Ok(())
    }

    /// Writes the map: `volumes` volumes of `size` voxels, `fill` where no row lies or a row has NaN, `voxels[r]` being
    /// the place of row r. At most `memory` bytes of volumes are filled at a time, but at least one.
    pub fn write_volumes(
        &mut self,
        voxels: &[u32],
        size: usize,
        fill: f32,
        memory: usize,
        mut write: impl FnMut(&[f32]) -> Result<()>,
    ) -> Result<()> {
        let at_once = (memory / (4 * size.max(1))).clamp(1, self.volumes.max(1));
        let mut filled = vec![fill; at_once * size];
        for first in (0..self.volumes).step_by(at_once) {
            let count = at_once.min(self.volumes - first);
            filled.fill(fill);
            self.for_each_row(|r, row| {
                let voxel = voxels[r] as usize;
                for (t, value) in row[first..first + count].iter().enumerate().filter(|(_, x)| !x.is_nan()) {
                    filled[t * size + voxel] = *value;
                }
            })?;
            filled.chunks_exact(size).take(count).try_for_each(&mut write)?;
        }
        Ok(())
    }

    fn for_each_row(&mut self, mut each: impl FnMut(usize, &[f32])) -> Result<()> {
        match &mut self.place {
            Place::Memory(values) => {
                values.chunks_exact(self.volumes).enumerate().for_each(|(r, row)| each(r, row));
            }
            Place::Disk(file) => {
                file.seek(SeekFrom::Start(0)).map_err(failed)?;
                let mut reader = BufReader::with_capacity(1 << 18, file.get_mut());
                let mut bytes = vec![0; 4 * self.volumes];
                let mut row = vec![0.0; self.volumes];
                for r in 0..self.rows {
                    reader.read_exact(&mut bytes).map_err(failed)?;
                    let values = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b));
                    row.iter_mut().zip(values).for_each(|(x, value)| *x = value);
                    each(r, &row);
                }
            }
        }
        Ok(())
    }
}

fn write(file: &mut BufWriter<File>, values: &[f32]) -> Result<()> {
    values.iter().try_for_each(|x| file.write_all(&x.to_le_bytes())).map_err(failed)
}

fn failed(e: std::io::Error) -> Error {
    Error::Spill { path: "EXPORT MAPS".into(), reason: format!("{e}; free some space for temporary files") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Memory and disk, many or few volumes at a time, give the same volumes.
        #[test]
        fn every_way_gives_the_same_volumes(
            volumes in 1_usize..9, size in 1_usize..30, memory in 0_usize..2000, spill_after in 0_usize..30,
        ) {
            let voxels: Vec<u32> = (0..size as u32).rev().filter(|v| v % 3 != 1).collect();
            let value = |v: u32, t: usize| (v * 100) as f32 + t as f32;
            let mut rows = MapRows::new(volumes);
            for (r, v) in voxels.iter().enumerate() {
                if r == spill_after {
                    rows.spill().unwrap();
                }
                let row: Vec<f32> = (0..volumes).map(|t| value(*v, t)).collect();
                rows.push(&row).unwrap();
            }
            let mut found = Vec::new();
            rows.write_volumes(&voxels, size, -1.0, memory, |v| { found.extend_from_slice(v); Ok(()) }).unwrap();
            let expected: Vec<f32> = (0..volumes)
                .flat_map(|t| (0..size as u32).map(move |v| if v % 3 == 1 { -1.0 } else { value(v, t) }))
                .collect();
            prop_assert_eq!(found, expected);
        }
    }
}
