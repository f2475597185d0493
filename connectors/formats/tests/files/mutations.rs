//! Damaged files: a bounded, deterministic companion of the fuzz targets in `connectors/formats/fuzz`. Whatever the
//! bytes are, a reader neither panics nor takes memory for data that are not there.

use crate::damage::{LARGEST, Random, mutate};
use crate::fixture;
use std::io::Cursor;
use std::ops::Range;
use voxelflow_formats::Result;
use voxelflow_formats::cifti::CiftiReader;
use voxelflow_formats::gifti::GiftiReader;
use voxelflow_formats::mgh::MghReader;
use voxelflow_formats::npy::NpyReader;

const ROUNDS: usize = 6000;

/// Damages the files of a folder again and again, and reads each.
fn damage(format: &str, sizes: &Range<usize>, read: impl Fn(Vec<u8>) -> Result<()>) {
    let mut names: Vec<_> =
        std::fs::read_dir(fixture(format)).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let files: Vec<Vec<u8>> = names.iter().map(|name| std::fs::read(name).unwrap()).collect();
    files.iter().for_each(|file| read(file.clone()).unwrap());
    let (mut random, mut taken, mut refused) = (Random(0x5eed_cafe), 0, 0);
    LARGEST.set(0);
    for round in 0..ROUNDS {
        let mut bytes = files[round % files.len()].clone();
        mutate(&mut bytes, &mut random, sizes.clone());
        match read(bytes) {
            Ok(()) => taken += 1,
            Err(error) => {
                assert!(error.to_string().contains("x.file"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(taken > ROUNDS / 100 && refused > ROUNDS / 10, "{taken} taken, {refused} refused");
    let largest = LARGEST.get();
    assert!(largest < 4 << 20, "one allocation of {largest} bytes for files of a few kB");
}

#[test]
fn damaged_volumes_of_freesurfer() {
    damage("mgh", &(4..24), |bytes| {
        let mut reader = MghReader::from_reader(Cursor::new(bytes), "x.file")?;
        let mut frame = Vec::<f32>::new();
        while reader.next_frame(&mut frame)? {}
        reader.t_r().map(drop)
    });
}

#[test]
fn damaged_gifti() {
    damage("gifti", &(150..400), |bytes| {
        let mut reader = GiftiReader::from_reader(Cursor::new(bytes), "x.file")?;
        while let Some(array) = reader.next_array()? {
            assert_eq!(array.values().len(), array.dims().iter().product::<usize>());
        }
        Ok(())
    });
}

#[test]
fn damaged_cifti() {
    damage("cifti", &(544..1500), |bytes| {
        let mut reader = CiftiReader::from_reader(Cursor::new(bytes), "x.file")?;
        let (length, mut series) = (reader.header().along.len(), Vec::<f32>::new());
        while reader.next_series(&mut series)? {
            assert_eq!(series.len(), length);
        }
        Ok(())
    });
}

#[test]
fn damaged_npy() {
    damage("npy", &(6..80), |bytes| {
        let reader = NpyReader::from_reader(Cursor::new(bytes), "x.file")?;
        let count = reader.header().values();
        assert_eq!(reader.read_all::<f64>()?.len(), count);
        Ok(())
    });
}

/// Every length that a file can lie about is claimed to be as large as it can be.
#[test]
fn headers_that_lie_about_their_size_take_no_memory() {
    LARGEST.set(0);
    let mut mgh = std::fs::read(fixture("mgh/volume_i2.mgh")).unwrap();
    mgh[4..8].copy_from_slice(&i32::MAX.to_be_bytes());
    mgh.resize(1 << 20, 0);
    let mut reader = MghReader::from_reader(Cursor::new(mgh), "x.file").unwrap();
    assert!(
        reader.next_frame(&mut Vec::<f32>::new()).unwrap_err().to_string().contains("inside frame 1 of 2")
    );

    let gifti = std::fs::read_to_string(fixture("gifti/series_gzip_little.func.gii")).unwrap();
    let gifti = gifti.replace("Dim0=\"7\"", "Dim0=\"1000000000000\"");
    let mut reader = GiftiReader::from_reader(Cursor::new(gifti.into_bytes()), "x.file").unwrap();
    assert!(reader.next_array().unwrap_err().to_string().contains("it holds 28 bytes"));

    let npy = std::fs::read(fixture("npy/line.npy")).unwrap();
    let at = npy.windows(4).position(|window| window == b"(5,)").unwrap();
    // Eleven of the spaces that fill the header make room.
    let mut npy = [&npy[..at], b"(999999999999,), }", &npy[at + 18..]].concat();
    npy.resize(1 << 20, 0);
    let error = NpyReader::from_reader(Cursor::new(npy), "x.file").unwrap().read_all::<f32>().unwrap_err();
    assert!(error.to_string().contains("inside the array"), "{error}");
    assert!(LARGEST.get() < 4 << 20, "{}", LARGEST.get());
}
