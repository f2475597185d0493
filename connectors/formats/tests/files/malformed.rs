//! A corpus of malformed files, `tests/malformed` (`integration-tests/reference/malformed_headers.py` wrote it): each
//! is refused with the file's name and what is wrong.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use voxelflow_formats::cifti::CiftiReader;
use voxelflow_formats::gifti::GiftiReader;
use voxelflow_formats::mgh::MghReader;
use voxelflow_formats::npy::NpyReader;
use voxelflow_formats::sidecar::Sidecar;
use voxelflow_formats::table::{Confounds, EvFile, Events, Gradients, MovementRegressors};
use voxelflow_formats::{NiftiReader, Result};

/// Reads all of a file with the parser of its folder.
fn read(path: &Path) -> Result<()> {
    let format = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let (mut values, mut count) = (Vec::<f32>::new(), 0);
    match format {
        "nifti" => NiftiReader::open(path)?.read_all().map(drop)?,
        "mgh" => {
            let mut reader = MghReader::open(path)?;
            while reader.next_frame(&mut values)? {
                count += 1;
            }
            reader.t_r()?;
        }
        "gifti" => {
            let mut reader = GiftiReader::open(path)?;
            while reader.next_array()?.is_some() {
                count += 1;
            }
        }
        "cifti" => {
            let mut reader = CiftiReader::open(path)?;
            while reader.next_series(&mut values)? {
                count += 1;
            }
        }
        "npy" => NpyReader::open(path)?.read_all::<f64>().map(drop)?,
        "confounds" => {
            let confounds = Confounds::read(path)?;
            confounds.names().iter().try_for_each(|name| confounds.column(name).map(drop))?;
        }
        "events" => Events::read(path).map(drop)?,
        "ev" => EvFile::read(path).map(drop)?,
        "movement" => MovementRegressors::read(path).map(drop)?,
        "gradients" => Gradients::read(path, path.with_extension("bvec")).map(drop)?,
        "sidecar" => Sidecar::read(path).map(drop)?,
        other => panic!("no parser for the folder {other}"),
    }
    assert!(count < 1000);
    Ok(())
}

#[test]
fn every_file_of_the_corpus_is_refused_by_name_and_reason() {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/malformed");
    let messages: Value =
        serde_json::from_str(&std::fs::read_to_string(corpus.join("messages.json")).unwrap()).unwrap();
    let messages = messages.as_object().unwrap();
    let mut wrong = Vec::new();
    for (name, message) in messages {
        // The partner of a .bval is read with it.
        if name.ends_with(".bvec") {
            continue;
        }
        let path = corpus.join(name);
        match read(&path) {
            Ok(()) => wrong.push(format!("{name}: taken")),
            Err(error) => {
                let text = error.to_string();
                let stem = path.file_stem().unwrap().to_str().unwrap();
                if !(error.is_input() && text.contains(stem) && text.contains(message.as_str().unwrap())) {
                    wrong.push(format!("{name}: {text}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let listed: BTreeSet<PathBuf> = messages.keys().map(|name| corpus.join(name)).collect();
    let folders =
        std::fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let there: BTreeSet<PathBuf> = folders
        .flat_map(|folder| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()))
        .collect();
    assert_eq!(there, listed, "files without a message, or messages without a file");
    assert!(listed.len() > 100);
}
