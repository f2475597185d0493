//! What training promises when machines die, with real processes and real signals.
//!
//! The stage `histogram` counts what it is trained on: its parameters tell whether every series was visited once an
//! epoch, however many executors were lost on the way.

use crate::program::{Ended, files_below, program, root};
use arrow::{
    array::{ArrayRef, FixedSizeListArray, Float32Array, StringArray, UInt32Array},
    datatypes::{DataType, Field, Schema},
    record_batch::RecordBatch,
};
use parquet::arrow::ArrowWriter;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File, Permissions},
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};
use tempfile::TempDir;

const BINS: usize = 16;
const ROWS: usize = 1_600;
/// Longest that anything is waited for; a run of these tests takes seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// Series of two points whose first value is the voxel's bin, in several files.
fn write_series(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let value = Arc::new(Field::new_list_field(DataType::Float32, false));
    let schema = Arc::new(Schema::new(vec![
        Field::new("subject", DataType::Utf8, false),
        Field::new("voxel", DataType::UInt32, false),
        Field::new("series", DataType::FixedSizeList(value.clone(), 2), false),
    ]));
    for file in 0..4 {
        let voxels: Vec<u32> = (0..ROWS as u32).filter(|v| v % 4 == file).collect();
        let values: Float32Array = voxels.iter().flat_map(|v| [(*v as usize % BINS) as f32, 0.5]).collect();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(vec!["01"; voxels.len()])),
            Arc::new(UInt32Array::from(voxels)),
            Arc::new(FixedSizeListArray::new(value.clone(), 2, Arc::new(values), None)),
        ];
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
        let out = File::create(folder.join(format!("part-{file}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(out, Arc::clone(&schema), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
}

/// A training of the histogram in a folder of its own.
struct Counting {
    folder: TempDir,
    epochs: usize,
}

impl Counting {
    fn new(epochs: usize, with: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let series = folder.path().join("series");
        write_series(&series);
        let text = format!(
            "TRAIN MODEL counts USING histogram (bins => {BINS}) ON (SELECT * FROM '{}/') \
             WITH (optimizer => 'sgd', learning_rate => 1, reduction => 'sum', consistency => 'sync', \
                   minibatch => 4, epochs => {epochs}, seed => 3, {with});",
            series.display()
        );
        fs::write(folder.path().join("counts.vf"), text).unwrap();
        Self { folder, epochs }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    fn start<S: AsRef<OsStr>>(&self, flags: &[S]) -> Running {
        let mut command = program("voxelflow");
        command.arg("run").arg(self.folder.path().join("counts.vf")).arg("--out").arg(self.out());
        command.arg("--json").args(flags);
        Running::start(command)
    }

    /// Fails unless every series was counted once an epoch.
    #[track_caller]
    fn assert_every_series_once_an_epoch(&self) {
        let file = fs::read(self.out().join("models/counts/model.safetensors")).unwrap();
        let counts = safetensors_values(&file);
        let expected = -((self.epochs * ROWS / BINS) as f32);
        assert_eq!(
            counts,
            [expected; BINS],
            "each bin has {} series and there were {} epochs",
            ROWS / BINS,
            self.epochs
        );
    }
}

/// The 32-bit numbers of a safetensors file of one tensor.
fn safetensors_values(file: &[u8]) -> Vec<f32> {
    let header = usize::try_from(u64::from_le_bytes(file[..8].try_into().unwrap())).unwrap();
    file[8 + header..].as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// A process whose lines on stderr are followed.
struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
    seen: Vec<String>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines, seen: Vec::new() }
    }

    /// Waits for a line that holds `text`.
    #[track_caller]
    fn wait_for(&mut self, text: &str, patience: Duration) {
        let deadline = Instant::now() + patience;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let found = line.contains(text);
                    self.seen.push(line);
                    if found {
                        return;
                    }
                }
                Err(e) => panic!(
                    "no line with {text:?} within {patience:?} ({e}); said so far:\n{}",
                    self.seen.join("\n")
                ),
            }
        }
    }

    /// Waits for the end of an epoch.
    #[track_caller]
    fn wait_for_epoch(&mut self, epoch: usize, patience: Duration) {
        self.wait_for(&format!("\"epoch\":{epoch},"), patience);
    }

    /// Waits for the next epoch's end, whichever it is; gives how long that took.
    #[track_caller]
    fn next_epoch(&mut self, patience: Duration) -> Duration {
        // What was said before is not news.
        self.seen.extend(self.lines.try_iter());
        let started = Instant::now();
        self.wait_for("\"epoch\":", patience);
        started.elapsed()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits for its end.
    #[track_caller]
    fn end(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.seen.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(e) => {
                    let _ = self.child.kill();
                    panic!("not ended within {PATIENCE:?} ({e}); said:\n{}", self.seen.join("\n"));
                }
            }
        }
        (self.child.wait().unwrap(), self.seen.join("\n"))
    }

    #[track_caller]
    fn succeed(self) {
        let (status, said) = self.end();
        assert!(status.success(), "{status}; said:\n{said}");
    }

    /// Processes that it started as `part`, in the order of their numbers.
    fn parts(&self, part: &str) -> Vec<Pid> {
        children_of(self.pid()).into_iter().filter(|pid| arguments_of(*pid).any(|a| a == part)).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Only a failed test leaves it running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn children_of(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero().to_string();
    let numbers =
        fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let mut children: Vec<i32> = numbers
        .filter(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // After the name in brackets: state, parent.
            stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)) == Some(parent.as_str())
        })
        .collect();
    children.sort_unstable();
    children.into_iter().filter_map(Pid::from_raw).collect()
}

fn arguments_of(pid: Pid) -> impl Iterator<Item = String> {
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    let arguments: Vec<String> =
        line.split(|b| *b == 0).map(|a| String::from_utf8_lossy(a).into_owned()).collect();
    arguments.into_iter()
}

/// A scheduler and executors of one slot each, started by hand, with a key; they end with the test.
struct Cluster {
    folder: TempDir,
    url: String,
    scheduler: Child,
    executors: Vec<Child>,
}

impl Cluster {
    fn start(executors: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("cluster.key");
        fs::write(&key, "5c".repeat(32)).unwrap();
        fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
        let (scheduler, address) = start_part(&key, &["scheduler", "--port", "0"]);
        let url = format!("df://{address}");
        let executors = (0..executors).map(|executor| {
            let work = folder.path().join(format!("executor-{executor}"));
            let flags =
                ["executor", "--scheduler", &url, "--slots", "1", "--work-dir", work.to_str().unwrap()];
            start_part(&key, &flags).0
        });
        let executors = executors.collect();
        Self { folder, url, scheduler, executors }
    }

    /// Kills the scheduler, whose memory is lost with it, and starts one at the same address.
    fn restart_scheduler(&mut self) {
        self.scheduler.kill().unwrap();
        self.scheduler.wait().unwrap();
        let port = self.url.rsplit(':').next().unwrap().to_owned();
        let key = self.folder.path().join("cluster.key");
        self.scheduler = start_part(&key, &["scheduler", "--port", &port]).0;
    }

    fn flags(&self) -> Vec<String> {
        let key = self.folder.path().join("cluster.key").display().to_string();
        ["--cluster".to_owned(), self.url.clone(), "--cluster-key".to_owned(), key].into()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for part in self.executors.iter_mut().chain([&mut self.scheduler]) {
            let _ = part.kill();
            let _ = part.wait();
        }
    }
}

/// Starts a part of a cluster and gives what it says when it is ready.
fn start_part(key: &Path, arguments: &[&str]) -> (Child, String) {
    let mut command = program("voxelflow");
    command.args(arguments).arg("--child").arg("--cluster-key").arg(key);
    let mut part = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(part.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let ready: serde_json::Value =
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{arguments:?}: `{line}`: {e}"));
    (part, ready["ready"].as_str().unwrap().to_owned())
}

#[test]
fn four_ranks_on_four_executors_count_every_series_once_an_epoch() {
    let counting = Counting::new(3, "ranks => 4");
    counting.start(&["--executors", "4", "--slots", "1"]).succeed();
    counting.assert_every_series_once_an_epoch();
}

#[test]
fn a_killed_executor_costs_no_sample() {
    let counting = Counting::new(20, "ranks => 4, min_ranks => 2");
    let mut run = counting.start(&["--executors", "4", "--slots", "1"]);
    run.wait_for_epoch(1, PATIENCE);
    kill_process(run.parts("executor")[2], Signal::KILL).unwrap();
    let pause = run.next_epoch(PATIENCE);
    println!("training went on {pause:?} after the kill");
    run.succeed();
    counting.assert_every_series_once_an_epoch();
}

#[test]
fn an_executor_that_hangs_is_left_behind() {
    let counting = Counting::new(20, "ranks => 3, min_ranks => 2");
    let mut run = counting.start(&["--executors", "3", "--slots", "1"]);
    run.wait_for_epoch(1, PATIENCE);
    let hung = run.parts("executor")[1];
    kill_process(hung, Signal::STOP).unwrap();
    let pause = run.next_epoch(PATIENCE);
    println!("training went on {pause:?} after the stop");
    run.succeed();
    counting.assert_every_series_once_an_epoch();
}

#[test]
fn a_restarted_driver_goes_on_where_the_killed_one_was() {
    let counting = Counting::new(30, "ranks => 2, checkpoint_every => 1, hold_seconds => 20");
    let cluster = Cluster::start(2);
    let mut run = counting.start(&cluster.flags());
    run.wait_for_epoch(2, PATIENCE);
    kill_process(run.pid(), Signal::KILL).unwrap();
    let (status, _) = run.end();
    assert!(!status.success());
    let mut again = counting.start(&cluster.flags());
    let pause = again.next_epoch(PATIENCE);
    println!("training went on {pause:?} after the restart");
    assert!(again.seen.iter().all(|line| !line.contains("\"epoch\":0,")), "it began anew: {:?}", again.seen);
    again.succeed();
    counting.assert_every_series_once_an_epoch();
}

/// Example 01 with equal sums everywhere.
fn deterministic_example() -> tempfile::NamedTempFile {
    let text = fs::read_to_string(root().join("examples/01_autoencoder.vf")).unwrap();
    let deterministic = text.replace("seed => 1)", "seed => 1, deterministic => true)");
    assert_ne!(text, deterministic, "the example's settings end with its seed");
    let file = tempfile::Builder::new().suffix(".vf").tempfile().unwrap();
    fs::write(file.path(), deterministic).unwrap();
    file
}

/// What a run has written, but for times, paths and processes.
fn results(out: &Path) -> Vec<(String, Vec<u8>)> {
    let told = ["gang.json", "history.json", "report.html", "voxelflow.json"];
    let files = files_below(out).into_iter().filter(|f| !told.iter().any(|name| f.ends_with(name)));
    files.map(|f| (f.clone(), fs::read(out.join(f)).unwrap())).collect()
}

/// Fails unless every process of the gang has trained and sent.
#[track_caller]
fn assert_all_worked(model: &Path, processes: usize) {
    let gang: serde_json::Value =
        serde_json::from_slice(&fs::read(model.join("gang.json")).unwrap()).unwrap();
    let mut of_process: BTreeMap<u64, [u64; 2]> = BTreeMap::new();
    for member in gang["members"].as_array().unwrap() {
        let sums = of_process.entry(member["pid"].as_u64().unwrap()).or_default();
        sums[0] += member["samples"].as_u64().unwrap();
        sums[1] += member["bytes_sent"].as_u64().unwrap();
    }
    assert_eq!(of_process.len(), processes, "{gang}");
    assert!(of_process.values().all(|[samples, bytes]| *samples > 0 && *bytes > 0), "{gang}");
}

#[test]
fn the_example_gives_equal_files_in_one_process_on_own_executors_and_on_a_cluster() {
    let example = deterministic_example();
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(4);
    let places = [vec![], vec!["--executors".to_owned(), "2".to_owned()], cluster.flags()];
    let runs: Vec<_> = places
        .iter()
        .enumerate()
        .map(|(number, flags)| {
            let out = folder.path().join(number.to_string());
            let mut command = program("voxelflow");
            command.arg("run").arg(example.path()).arg("--out").arg(&out).args(flags);
            Ended::from(command.output().unwrap()).expect_code(0);
            (results(&out), out)
        })
        .collect();
    let names = |run: &[(String, Vec<u8>)]| run.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert!(
        names(&runs[0].0).iter().any(|name| name.ends_with("model.safetensors")),
        "{:?}",
        names(&runs[0].0)
    );
    for (place, (run, _)) in places.iter().zip(&runs).skip(1) {
        assert_eq!(names(&runs[0].0), names(run), "{place:?}");
        for ((name, expected), (_, found)) in runs[0].0.iter().zip(run) {
            assert!(expected == found, "{name} differs with {place:?}");
        }
    }
    assert_all_worked(&runs[1].1.join("models/dca"), 2);
}

#[test]
fn the_example_program_is_the_same_on_executors() {
    let folder = tempfile::tempdir().unwrap();
    let loss = |number: usize, executors: &str| {
        let out = folder.path().join(number.to_string());
        let mut command = program("01_autoencoder");
        command.env("VOXELFLOW_OUT", &out).env("VOXELFLOW_EXECUTORS", executors);
        let ended = Ended::from(command.output().unwrap()).expect_code(0);
        let line = ended.stdout.lines().find(|line| line.starts_with("loss ")).unwrap().to_owned();
        (line.split(' ').nth(1).unwrap().parse::<f64>().unwrap(), out)
    };
    let (here, _) = loss(0, "");
    let (there, out) = loss(1, "2");
    assert!(
        (here - there).abs() <= 1e-5 * here.abs().max(1.0),
        "loss {here} in one process, {there} on two executors"
    );
    assert_all_worked(&out.join("models/dca"), 2);
}

#[test]
fn a_scheduler_that_is_started_again_is_given_the_training_again() {
    let counting = Counting::new(30, "ranks => 2, checkpoint_every => 1");
    let mut cluster = Cluster::start(2);
    let mut run = counting.start(&cluster.flags());
    run.wait_for_epoch(2, PATIENCE);
    cluster.restart_scheduler();
    run.wait_for_epoch(29, PATIENCE);
    let begun_anew = run.seen.iter().filter(|line| line.contains("\"epoch\":0,")).count();
    assert_eq!(begun_anew, 1, "{:?}", run.seen);
    run.succeed();
    counting.assert_every_series_once_an_epoch();
}
