//! An import of several runs that is killed at random moments: the next execution goes on with the runs that were
//! finished, and what comes out is what an undisturbed import gives.

use crate::{
    processes::wait_for,
    program::{files_below, program, voxelflow},
};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde_json::Value;
use std::{
    collections::{BTreeMap, hash_map::RandomState},
    fs,
    hash::{BuildHasher, Hasher},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const IMAGES: usize = 8;
const KILLS: usize = 20;

/// A folder with images, a pipeline that imports them, and what an undisturbed import gives.
struct Import {
    folder: TempDir,
    expected: Imported,
    /// How long it takes.
    takes: Duration,
}

/// What an import leaves: the table's files, and what is remembered of the statement.
#[derive(Debug, PartialEq)]
struct Imported {
    files: BTreeMap<PathBuf, Vec<u8>>,
    rows: Value,
    ledger: Value,
}

fn image(folder: &Path, run: usize, seed: usize) {
    let path = folder.join(format!("images/sub-01_task-motor_run-{run}_bold.nii.gz"));
    let (path, seed) = (path.to_str().unwrap(), seed.to_string());
    let arguments =
        ["synth", "bold", "--shape", "20,24,20", "--volumes", "110", "--seed", &seed, "--out", path];
    voxelflow(arguments).expect_code(0);
}

fn pipeline(images: &Path, standardize: &str) -> String {
    // Voxels outside of the head are constant: they are counted.
    format!(
        "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{}/*_bold.nii.gz' OPTIONS (mask 'none');
         CREATE TABLE series AS SELECT * FROM clean(bold, detrend => true, standardize => '{standardize}');",
        images.display()
    )
}

impl Import {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("images")).unwrap();
        (0..IMAGES).for_each(|run| image(folder.path(), run, run));
        let nothing = Imported { files: BTreeMap::new(), rows: Value::Null, ledger: Value::Null };
        let mut import = Self { folder, expected: nothing, takes: Duration::ZERO };
        import.say("zscore_sample");
        let started = Instant::now();
        assert_eq!(taken_over(import.start("undisturbed")), 0);
        import.takes = started.elapsed();
        import.expected = import.imported("undisturbed").unwrap();
        assert_eq!(import.expected.files.len(), IMAGES);
        assert!(
            import.expected.ledger.to_string().contains("constant voxel"),
            "{:?}",
            import.expected.ledger
        );
        import
    }

    /// Writes the pipeline.
    fn say(&self, standardize: &str) {
        let text = pipeline(&self.folder.path().join("images"), standardize);
        fs::write(self.folder.path().join("p.vf"), text).unwrap();
    }

    fn out(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, out: &str) -> Child {
        let mut command = program("voxelflow");
        command.args(["--json", "run"]).arg(self.folder.path().join("p.vf"));
        command.arg("--out").arg(self.out(out));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Notes of images that an execution in `out` has finished.
    fn finished(&self, out: &str) -> usize {
        let files = files_below(&self.out(out).join("tables"));
        files.iter().filter(|f| f.contains("/notes/") && f.ends_with(".json")).count()
    }

    /// Kills an execution when `images` images are finished, but not all of them. Gives how many are.
    fn kill_after(&self, out: &str, images: usize) -> usize {
        for _ in 0..10 {
            let mut child = self.start(out);
            while child.try_wait().unwrap().is_none() && self.finished(out) < images {
                thread::yield_now();
            }
            child.kill().unwrap();
            child.wait().unwrap();
            let finished = self.finished(out);
            if finished >= images {
                return finished;
            }
            // It was faster, or one before it had reached the end: the next would find nothing to do.
            fs::remove_dir_all(self.out(out)).unwrap();
        }
        panic!("ten imports were too fast to be killed");
    }

    /// What lies in `out` for all to see; nothing if no table does.
    fn imported(&self, out: &str) -> Option<Imported> {
        let tables = self.out(out).join("tables/series");
        let visible = |path: &Path| !path.file_name().unwrap().to_str().unwrap().starts_with('.');
        let entries = fs::read_dir(&tables).into_iter().flatten().map(|e| e.unwrap().path());
        let shown: Vec<PathBuf> = entries.filter(|path| visible(path)).collect();
        let [table] = shown.as_slice() else {
            assert!(shown.is_empty(), "{shown:?}");
            return None;
        };
        let files = fs::read_dir(table).unwrap().map(|e| e.unwrap().path());
        let files = files.map(|f| (f.file_name().unwrap().into(), fs::read(f).unwrap())).collect();
        let record = fs::read(self.out(out).join("voxelflow.json")).unwrap_or_default();
        let record: Value = serde_json::from_slice(&record).unwrap_or_default();
        let statement = &record["statements"]["table series"];
        Some(Imported { files, rows: statement["rows"].clone(), ledger: statement["ledger"].clone() })
    }

    #[track_caller]
    fn is_as_undisturbed(&self, out: &str) {
        let found = self.imported(out).unwrap();
        assert!(found == self.expected, "rows {}, ledger {}", found.rows, found.ledger);
        let hidden: Vec<String> = files_below(&self.out(out))
            .into_iter()
            .filter(|f| f.split('/').any(|n| n.starts_with('.')))
            .collect();
        assert!(hidden.is_empty(), "{hidden:?}");
    }
}

/// Waits for the end of an execution that succeeds; gives how many images it took over from another.
#[track_caller]
fn taken_over(child: Child) -> usize {
    let ended = child.wait_with_output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{stdout}{stderr}");
    let mut lines = stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let import = lines.rfind(|v| v["statement"] == "CREATE TABLE series").unwrap();
    // One that was killed when all was done has nothing left to do.
    let ran = import["note"] == "ran";
    assert!(ran || import["note"] == "unchanged", "{import}");
    if ran { import["result"]["taken_over"].as_u64().unwrap() as usize } else { 0 }
}

/// Numbers from 0 up to `below` that follow from a seed (splitmix64).
fn random(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) % below
}

#[test]
fn an_import_survives_kills_at_any_moment() {
    let import = Import::new();
    let given = std::env::var("VOXELFLOW_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("VOXELFLOW_SEED={seed}; an undisturbed import takes {:?}", import.takes);
    let (mut kills, mut taken, mut ended) = (0, 0, 0);
    let mut span = import.takes;
    while kills < KILLS {
        let mut child = import.start("out");
        let moment = Instant::now() + span * random(&mut seed, 1000) as u32 / 1000;
        thread::sleep(moment.saturating_duration_since(Instant::now()));
        if child.try_wait().unwrap().is_none() {
            child.kill().unwrap();
            child.wait().unwrap();
            kills += 1;
            // Nothing half-written is visible: there is no table, or all of it.
            assert!(import.imported("out").is_none_or(|found| found.files == import.expected.files));
            continue;
        }
        taken += taken_over(child);
        ended += 1;
        // It came too late; the machine may have been slower when the undisturbed import was timed.
        span = span * 9 / 10;
        import.is_as_undisturbed("out");
        fs::remove_dir_all(import.out("out")).unwrap();
    }
    // One kill that surely comes when some images are finished and others are not.
    let finished = import.kill_after("out", 2);
    let now = taken_over(import.start("out"));
    assert!(now >= finished, "{now} of {finished} finished images were taken over");
    import.is_as_undisturbed("out");
    println!(
        "{kills} kills, {ended} executions reached the end between them; {taken} and {now} images taken over"
    );
}

#[test]
fn a_changed_text_or_image_takes_nothing_over() {
    let import = Import::new();
    import.kill_after("text", 2);
    import.say("psc");
    assert_eq!(taken_over(import.start("text")), 0);
    assert!(import.imported("text").unwrap().files != import.expected.files);
    import.say("zscore_sample");

    import.kill_after("image", 2);
    image(import.folder.path(), 0, 77);
    assert_eq!(taken_over(import.start("image")), 0);
    let (found, before) = (import.imported("image").unwrap(), &import.expected);
    let changed = found.files.iter().filter(|(name, bytes)| before.files[*name] != **bytes);
    assert_eq!(changed.map(|(name, _)| name).collect::<Vec<_>>(), [Path::new("part-00000.parquet")]);
}

#[test]
fn a_writer_that_lives_is_let_be() {
    let import = Import::new();
    let child = import.start("out");
    let pid = Pid::from_child(&child);
    wait_for("an image that is finished", || (import.finished("out") > 0).then_some(()));
    kill_process(pid, Signal::STOP).unwrap();
    // A thread that is in the midst of a rename ends it first.
    let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped(), "{status:?}");
    let left = import.finished("out");
    let second = import.start("out").wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(2), "{said}");
    assert!(said.contains("another process is writing it"), "{said}");
    assert_eq!(import.finished("out"), left);
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(taken_over(child), 0);
    import.is_as_undisturbed("out");
}
