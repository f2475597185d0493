//! What is left behind, what is taken over, and what is let be.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::{
    ledger::{Finding, Ledger, LedgerEntry, Level, RunKey},
    nodes::unary::Place,
};

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Publishes what is there.
fn publish(staging: Staging) {
    let files = names(&staging.rows()).into_iter().map(|name| (name.clone(), name)).collect();
    staging.publish(&files).unwrap();
}

fn part(key: &str, partition: usize, bytes: u64) -> FinishedPart {
    let entry = LedgerEntry::of_rows(RunKey::default(), Level::Voxel, Finding::Constant, "no variance", 3);
    FinishedPart {
        key: key.into(),
        partition,
        partitions: 4,
        file: (bytes > 0).then(|| format!("part-{partition:05}.parquet")),
        rows: bytes,
        bytes,
        ledger: Ledger::from_iter([entry]),
    }
}

/// A write under `key` that ends as a kill does: partitions 0 and 2 are whole, 1 and 3 are not.
fn killed(target: &Path, key: &str) {
    let staging = Staging::open(target, false, Some(key), "u").unwrap();
    let finished = staging.finished().unwrap();
    for (partition, bytes) in [(0, 4), (2, 0), (3, 9)] {
        let part = part(key, partition, bytes);
        part.file.iter().for_each(|name| fs::write(staging.rows().join(name), "rows").unwrap());
        if partition == 3 {
            // As if its file were not what was written.
            fs::write(finished.notes.join("00003.json"), serde_json::to_vec(&part).unwrap()).unwrap();
        } else {
            finished.add(&part).unwrap();
        }
    }
    fs::write(staging.rows().join("part-00001.parquet#1"), "ro").unwrap();
    fs::write(finished.notes.join(".00001-77"), "{").unwrap();
}

#[test]
fn only_whole_partitions_of_the_same_key_are_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("series");
    killed(&target, "one");
    assert_eq!(names(folder.path()), [".series.partial-one"]);

    let staging = Staging::open(&target, false, Some("one"), "u").unwrap();
    let finished = staging.finished().unwrap();
    let at = |partition| finished.find(Place { partition, partitions: 4 });
    assert_eq!([0, 2].map(|n| at(n).unwrap()), [part("one", 0, 4), part("one", 2, 0)]);
    assert_eq!([at(1), at(3)], [None, None]);
    assert_eq!(finished.find(Place { partition: 0, partitions: 5 }), None);
    assert_eq!(names(&staging.rows()), ["part-00000.parquet"]);
    assert_eq!(names(&finished.notes), ["00000.json", "00002.json"]);
    // A note under another number is of no write.
    fs::rename(finished.notes.join("00000.json"), finished.notes.join("00001.json")).unwrap();
    assert_eq!([at(0), at(1)], [None, None]);
    drop(staging);

    // Another text, another input, another build: nothing is taken over, and nothing is left.
    let staging = Staging::open(&target, false, Some("two"), "u").unwrap();
    assert_eq!(names(&staging.rows()), [""; 0]);
    assert_eq!(names(folder.path()), [".series.lock", ".series.partial-two"]);
    staging.abandon();
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn without_a_key_nothing_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("series");
    killed(&target, "u");
    let staging = Staging::open(&target, false, None, "u").unwrap();
    assert_eq!((names(&staging.rows()), staging.finished()), (vec![], None));
    for name in ["part-00000-task.parquet", "part-00000-lost.parquet", "part-00001-lost.parquet#1"] {
        fs::write(staging.rows().join(name), "new").unwrap();
    }
    // What tasks that count as lost have written is no part of it.
    let files = [("part-00000-task.parquet".to_owned(), "part-00000.parquet".to_owned())];
    staging.publish(&files.into()).unwrap();
    assert_eq!(
        (names(folder.path()), names(&target)),
        (vec!["series".into()], vec!["part-00000.parquet".into()])
    );
}

#[test]
fn what_has_a_living_writer_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let (target, other) = (folder.path().join("series"), folder.path().join("others"));
    killed(&other, "one");
    let living = Staging::open(&target, false, Some("one"), "u").unwrap();
    let before = names(folder.path());
    for overwrite in [false, true] {
        let e = Staging::open(&target, overwrite, Some("two"), "u").unwrap_err();
        assert!(e.contains("another process is writing it"), "{e}");
    }
    assert_eq!(names(folder.path()), before);
    remove_left_behind(folder.path()).unwrap();
    assert_eq!(names(folder.path()), [".series.lock", ".series.partial-one"]);
    drop(living);
    remove_left_behind(folder.path()).unwrap();
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn what_was_there_survives_a_kill_between_the_renames() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("series");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("old"), "").unwrap();
    killed_between_renames(&target);
    let staging = Staging::open(&target, true, Some("one"), "u").unwrap();
    assert_eq!(names(&target), ["old"]);
    assert_eq!(names(&staging.rows()), ["part-00000.parquet"], "what was finished is still finished");
    publish(staging);
    assert_eq!(
        (names(folder.path()), names(&target)),
        (vec!["series".into()], vec!["part-00000.parquet".into()])
    );
    // Killed after both: the new one stays.
    fs::create_dir(folder.path().join(".series.replaced")).unwrap();
    let e = Staging::open(&target, false, None, "u").unwrap_err();
    assert!(e.contains("there is something already"), "{e}");
    assert_eq!(names(folder.path()), ["series"]);
}

fn killed_between_renames(target: &Path) {
    let hidden = target.with_file_name("elsewhere");
    fs::rename(target, &hidden).unwrap();
    killed(target, "one");
    fs::rename(&hidden, target.with_file_name(".series.replaced")).unwrap();
}

/// Writers that come and go all find each other: never are two at a target at once.
#[test]
fn one_writer_at_a_time() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("series");
    let (inside, written) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let (target, inside, written) = (&target, &inside, &written);
            scope.spawn(move || {
                for _ in 0..50 {
                    if let Ok(staging) = Staging::open(target, true, None, &format!("{writer}")) {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        fs::write(staging.rows().join("part-00000.parquet"), format!("{writer}")).unwrap();
                        assert_eq!(names(&staging.rows()).len(), 1);
                        written.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        publish(staging);
                    }
                }
            });
        }
    });
    assert!(written.into_inner() > 0);
    assert_eq!(names(folder.path()), ["series"]);
}
