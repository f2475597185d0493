//! A cluster on this machine for one session: a scheduler and executors, started from this very program.
//!
//! ```text
//!   driver ──starts──► scheduler (a free port, told on its standard output)
//!     │  └──starts──► executor 1 … N, each with a folder and a log
//!     └ holds their standard inputs: when it ends, however it ends, they end
//! ```

use crate::{
    address::ClusterAddress,
    child::Ready,
    error::{Error, Result},
    owned_folder::OwnedFolder,
};
use futures::future::try_join_all;
use std::{
    collections::VecDeque,
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncBufReadExt, BufReader as AsyncBufReader},
    process::{Child, ChildStdout, Command},
};
use voxelflow_dataset::log_tail::LOG_VARIABLE;
use voxelflow_sync::network::ClusterKey;

/// How often an executor is started that ends before it is ready: another process may have taken its port.
const ATTEMPTS: usize = 3;
/// Lines of a log that errors show.
const TAIL_LINES: usize = 12;
/// Bytes of stack of threads: plans are deep, and so is the recursion over them.
const STACK_BYTES: usize = 32 << 20;

/// Threads that compute in a process.
pub(crate) const THREADS: &str = "RAYON_NUM_THREADS";

/// Executors on one machine share its cores: with as many threads as cores in each, they would wait for one another.
fn threads_of_each(executors: usize, cores: usize) -> usize {
    (cores / executors.max(1)).max(1)
}

/// How a cluster on this machine is set up.
#[derive(Clone, Debug)]
pub struct LocalClusterSettings {
    /// Executors.
    pub executors: usize,
    /// Tasks that each runs at once.
    pub slots: usize,
    /// Bytes of memory that each gives to tasks.
    pub memory_bytes: u64,
    /// The program to start; the running one if not given.
    pub program: Option<PathBuf>,
    /// How long all of them may take to be ready.
    pub deadline: Duration,
}

impl LocalClusterSettings {
    /// `executors` executors with as many slots each as the machine has cores, but two at least.
    pub fn new(executors: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            executors,
            slots: cores.max(2),
            memory_bytes: 1 << 30,
            program: None,
            deadline: Duration::from_secs(60),
        }
    }
}

/// A scheduler and executors on this machine. They end when it is dropped.
#[derive(Debug)]
pub struct LocalCluster {
    address: ClusterAddress,
    key: ClusterKey,
    processes: Mutex<Vec<Process>>,
    folder: OwnedFolder,
}

#[derive(Debug)]
struct Process {
    role: String,
    child: Child,
    log: PathBuf,
    /// Kept open: what the child writes there has a reader.
    _output: AsyncBufReader<ChildStdout>,
}

impl LocalCluster {
    /// Starts the processes and waits until all executors are registered.
    ///
    /// # Errors
    /// A process that does not start, ends, or is not ready by the deadline; the end of its log is part of the error.
    pub async fn start(settings: &LocalClusterSettings) -> Result<Self> {
        if is_child_of_starter() {
            let reason = "this process was started as a part of a cluster, but its main does not ask for that: begin the \
                          program with #[voxelflow::main]";
            return Err(Error::Setting { what: "executors", reason: reason.to_owned() });
        }
        if settings.executors == 0 {
            let reason = "0 executors run nothing: give 1 or more".to_owned();
            return Err(Error::Setting { what: "--executors", reason });
        }
        let folder = OwnedFolder::create(&std::env::temp_dir(), "voxelflow-cluster-")?;
        let unfit =
            |e: voxelflow_sync::Error| Error::Setting { what: "the cluster's key", reason: e.to_string() };
        let key = ClusterKey::generate().map_err(unfit)?;
        let key_file = folder.path().join("key");
        key.write(&key_file).map_err(unfit)?;
        let by = Instant::now() + settings.deadline;
        let starter = Starter { settings, folder: &folder, key_file: key_file.display().to_string(), by };
        match starter.start_all().await {
            Ok((address, processes)) => Ok(Self { address, key, processes: Mutex::new(processes), folder }),
            Err(e) => {
                folder.keep();
                Err(e)
            }
        }
    }

    /// Where its scheduler is.
    pub fn address(&self) -> &ClusterAddress {
        &self.address
    }

    /// The key that its processes have.
    pub(crate) fn key(&self) -> &ClusterKey {
        &self.key
    }

    /// The ids of its processes: the scheduler's, then the executors'.
    pub fn process_ids(&self) -> Vec<u32> {
        let processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        processes.iter().filter_map(|p| p.child.id()).collect()
    }

    /// The error of the first process that has ended, if one has.
    pub(crate) fn ended_process(&self) -> Option<Error> {
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = processes.iter_mut().find_map(|process| match process.child.try_wait() {
            Ok(Some(status)) => Some(process.ended(&format!("ended while it was needed ({status})"))),
            _ => None,
        })?;
        self.folder.keep();
        Some(ended)
    }
}

impl Process {
    fn ended(&self, what: &str) -> Error {
        let (log, lines) = (self.log.clone(), last_lines(&self.log));
        Error::Process { role: self.role.clone(), what: what.to_owned(), log, lines }
    }
}

struct Starter<'a> {
    settings: &'a LocalClusterSettings,
    folder: &'a OwnedFolder,
    key_file: String,
    by: Instant,
}

impl Starter<'_> {
    async fn start_all(&self) -> Result<(ClusterAddress, Vec<Process>)> {
        let key = self.key_file.as_str();
        let arguments = ["scheduler", "--bind", "127.0.0.1", "--port", "0", "--cluster-key", key, "--child"]
            .map(str::to_owned);
        let (scheduler, ready) = self.start("scheduler", &arguments).await?;
        let port = ready.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let port = port.ok_or_else(|| scheduler.ended(&format!("told no address, but `{ready}`")))?;
        let address = ClusterAddress::new("127.0.0.1", port);
        let executors = (1..=self.settings.executors).map(|n| self.executor(n, &address));
        let mut processes = vec![scheduler];
        processes.extend(try_join_all(executors).await?);
        Ok((address, processes))
    }

    async fn executor(&self, number: usize, scheduler: &ClusterAddress) -> Result<Process> {
        let role = format!("executor {number}");
        let work = self.folder.path().join(format!("executor-{number}"));
        let arguments = [
            "executor".to_owned(),
            "--scheduler".to_owned(),
            scheduler.to_string(),
            "--bind".to_owned(),
            "127.0.0.1".to_owned(),
            "--slots".to_owned(),
            self.settings.slots.to_string(),
            "--memory-mib".to_owned(),
            (self.settings.memory_bytes >> 20).to_string(),
            "--work-dir".to_owned(),
            work.display().to_string(),
            "--cluster-key".to_owned(),
            self.key_file.clone(),
            "--child".to_owned(),
        ];
        let mut attempt = 1;
        loop {
            match self.start(&role, &arguments).await {
                Err(Error::Process { what, .. }) if attempt < ATTEMPTS => {
                    log::warn!("{role} {what}: started again");
                    attempt += 1;
                }
                started => return Ok(started?.0),
            }
        }
    }

    /// Starts a process and waits for what it says when it is ready.
    async fn start(&self, role: &str, arguments: &[String]) -> Result<(Process, String)> {
        let log = self.folder.path().join(format!("{}.log", role.replace(' ', "-")));
        let file = File::create(&log).map_err(Error::io(format!("log {}", log.display())))?;
        let mut command = Command::new(self.program()?);
        command.args(arguments).env("RUST_MIN_STACK", STACK_BYTES.to_string());
        command.env(STARTER, std::process::id().to_string());
        if std::env::var_os(THREADS).is_none() {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            command.env(THREADS, threads_of_each(self.settings.executors, cores).to_string());
        }
        if std::env::var_os(LOG_VARIABLE).is_none() {
            command.env(LOG_VARIABLE, "info");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file).kill_on_drop(true);
        let mut child = command.spawn().map_err(Error::io(format!("starting the {role}")))?;
        let output = child.stdout.take().ok_or_else(|| Error::Process {
            role: role.to_owned(),
            what: "has no output".into(),
            log: log.clone(),
            lines: String::new(),
        })?;
        let mut process = Process { role: role.to_owned(), child, log, _output: AsyncBufReader::new(output) };
        let mut line = String::new();
        let read = process._output.read_line(&mut line);
        match tokio::time::timeout_at(self.by.into(), read).await {
            Err(_) => {
                let waited = self.settings.deadline.as_secs();
                Err(process.ended(&format!("was not ready within {waited} s")))
            }
            Ok(read) if line.trim().is_empty() => {
                let status = process.child.wait().await;
                let how = status.map_or_else(|e| e.to_string(), |s| s.to_string());
                let _ = read;
                Err(process.ended(&format!("ended before it was ready ({how})")))
            }
            Ok(_) => match serde_json::from_str::<Ready>(&line) {
                Ok(Ready { ready }) => Ok((process, ready)),
                Err(_) => Err(process.ended(&format!("is no part of a cluster: it says `{}`", line.trim()))),
            },
        }
    }

    /// The image that runs, also when its file was replaced since: a cluster is of one build.
    fn program(&self) -> Result<PathBuf> {
        const RUNNING_IMAGE: &str = "/proc/self/exe";
        match &self.settings.program {
            Some(program) => Ok(program.clone()),
            None if Path::new(RUNNING_IMAGE).exists() => Ok(RUNNING_IMAGE.into()),
            None => std::env::current_exe().map_err(Error::io("finding this program")),
        }
    }
}

/// The id of the process that has started this one as a part of its cluster. A program whose main is not ours would start
/// its cluster again in every part, without end.
const STARTER: &str = "VOXELFLOW_STARTED_BY";

/// Whether this process was started as a part of a cluster. Its own children inherit the variable, but not the parent.
fn is_child_of_starter() -> bool {
    let parent = std::os::unix::process::parent_id().to_string();
    std::env::var(STARTER).is_ok_and(|starter| starter == parent)
}

/// The end of a log, for errors.
fn last_lines(log: &Path) -> String {
    let Ok(file) = File::open(log) else { return String::new() };
    let mut lines = VecDeque::new();
    for line in BufReader::new(file).lines().map_while(Result::ok) {
        if lines.len() == TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }
    Vec::from(lines).join("\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    /// A program that is no part of a cluster.
    fn program(folder: &tempfile::TempDir, script: &str) -> PathBuf {
        let path = folder.path().join("program");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    async fn refusal(script: &str, deadline: Duration) -> String {
        let folder = tempfile::tempdir().unwrap();
        let program = Some(program(&folder, script));
        let settings = LocalClusterSettings { program, deadline, ..LocalClusterSettings::new(1) };
        LocalCluster::start(&settings).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_process_that_ends_is_told_with_the_end_of_its_log() {
        let text = refusal("echo the disk is full >&2; exit 3", Duration::from_secs(20)).await;
        assert!(text.contains("scheduler ended before it was ready (exit status: 3)"), "{text}");
        assert!(text.contains("| the disk is full"), "{text}");
    }

    #[tokio::test]
    async fn a_process_that_says_nothing_is_not_waited_for_without_end() {
        let text = refusal("exec sleep 30", Duration::from_millis(300)).await;
        assert!(text.contains("scheduler was not ready within"), "{text}");
    }

    #[tokio::test]
    async fn another_program_is_no_cluster() {
        let text = refusal("echo hello; exec sleep 30", Duration::from_secs(20)).await;
        assert!(text.contains("it says `hello`"), "{text}");
    }

    #[tokio::test]
    async fn no_executors_are_refused() {
        let refusal = LocalCluster::start(&LocalClusterSettings::new(0)).await.unwrap_err();
        assert!(refusal.is_input(), "{refusal}");
    }

    #[test]
    fn executors_share_the_cores() {
        let each = |executors, cores| threads_of_each(executors, cores);
        assert_eq!((each(1, 8), each(2, 8), each(3, 8), each(4, 2), each(0, 2)), (8, 4, 2, 1, 2));
    }

    #[test]
    fn a_log_is_shown_from_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(&log, (0..100).map(|n| format!("line {n}\n")).collect::<String>()).unwrap();
        let lines = last_lines(&log);
        assert!(lines.starts_with("line 88\n") && lines.ends_with("line 99"), "{lines}");
        assert_eq!(last_lines(&folder.path().join("none")), "");
    }
}
