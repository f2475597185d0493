//! A scheduler and executors, started by hand as an administrator does; they end with the test.

use crate::{
    processes::{Part, command, wait_for},
    program::{Ended, program, voxelflow},
};
use serde_json::Value;
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// The byte of a test cluster's key, 32 times.
pub const KEY_BYTE: &str = "5c";

/// Flags of a scheduler that counts an executor as lost after three seconds of silence.
pub const SOON_LOST: [&str; 2] = ["--executor-timeout", "3"];

/// How a cluster is started.
#[derive(Default)]
pub struct Setup<'a> {
    /// The program of its parts; `voxelflow` if empty.
    pub program: &'static str,
    /// Further flags of the scheduler.
    pub scheduler: &'a [&'a str],
    /// `VOXELFLOW_LOG` of its parts.
    pub log: &'a str,
}

pub struct Cluster {
    pub url: String,
    /// Folder of its files.
    pub work: TempDir,
    /// In the order in which they were started.
    pub executors: Vec<Part>,
    pub scheduler: Part,
    program: &'static str,
    /// File of its key.
    pub key: PathBuf,
    scheduler_flags: Vec<String>,
    level: String,
    started: usize,
    log_files: usize,
}

impl Cluster {
    pub fn start(setup: &Setup<'_>) -> Self {
        let work = tempfile::tempdir().unwrap();
        let key = key_file(work.path(), "cluster.key", KEY_BYTE);
        let program = if setup.program.is_empty() { "voxelflow" } else { setup.program };
        let level = if setup.log.is_empty() { "info" } else { setup.log };
        let mut arguments = vec!["scheduler", "--port", "0"];
        arguments.extend(setup.scheduler);
        let arguments = with_key(&arguments, &key);
        let mut scheduler = command(program, &strings(&arguments), None);
        scheduler.env("VOXELFLOW_LOG", level);
        let scheduler = Part::start(scheduler, &work.path().join("scheduler.log"));
        Self {
            url: format!("df://{}", scheduler.ready),
            work,
            executors: Vec::new(),
            scheduler,
            program,
            key,
            scheduler_flags: setup.scheduler.iter().map(|flag| (*flag).to_owned()).collect(),
            level: level.to_owned(),
            started: 0,
            log_files: 0,
        }
    }

    /// With `executors` of one slot.
    pub fn with(executors: usize) -> Self {
        let mut cluster = Self::start(&Setup::default());
        cluster.add(executors, 1);
        cluster
    }

    /// Adds `executors` of so many `slots`.
    pub fn add(&mut self, executors: usize, slots: usize) {
        (0..executors).for_each(|_| self.executor(&["--slots", &slots.to_string()], None));
    }

    /// Adds an executor with these flags, in another namespace of the network if one is named.
    pub fn executor(&mut self, flags: &[&str], namespace: Option<&str>) {
        let (work, number) = (self.next_work_dir(), self.started);
        self.started += 1;
        let (url, log) = (self.url.clone(), self.next_log(&format!("executor-{number}")));
        let mut arguments = vec!["executor", "--scheduler", &url, "--work-dir", work.to_str().unwrap()];
        arguments.extend(flags);
        let arguments = with_key(&arguments, &self.key);
        let mut executor = command(self.program, &strings(&arguments), namespace);
        executor.env("VOXELFLOW_LOG", &self.level);
        self.executors.push(Part::start(executor, &log));
    }

    /// The work folder of the executor that is started next.
    pub fn next_work_dir(&self) -> PathBuf {
        self.work.path().join(format!("executor-{}", self.started))
    }

    fn next_log(&mut self, part: &str) -> PathBuf {
        self.log_files += 1;
        self.work.path().join(format!("{part}-{}.log", self.log_files))
    }

    /// Kills the scheduler; its memory is lost with it.
    pub fn kill_scheduler(&mut self) {
        self.scheduler.kill();
    }

    /// Kills the scheduler and starts one at the same address.
    pub fn restart_scheduler(&mut self) {
        self.kill_scheduler();
        let port = self.url.rsplit(':').next().unwrap().to_owned();
        let log = self.next_log("scheduler");
        let mut arguments = vec!["scheduler", "--port", &port];
        arguments.extend(self.scheduler_flags.iter().map(String::as_str));
        let arguments = with_key(&arguments, &self.key);
        let mut scheduler = command(self.program, &strings(&arguments), None);
        scheduler.env("VOXELFLOW_LOG", &self.level);
        self.scheduler = Part::start(scheduler, &log);
    }

    /// Flags of a driver.
    pub fn flags(&self) -> Vec<String> {
        ["--cluster", &self.url, "--cluster-key", self.key.to_str().unwrap()].map(str::to_owned).into()
    }

    /// What the command line asks the cluster.
    pub fn ask(&self, arguments: &[&str]) -> Ended {
        let flags = self.flags();
        voxelflow(arguments.iter().copied().chain(strings(&flags)))
    }

    /// A driver program of this cluster.
    pub fn driver(&self, arguments: &[&str]) -> Command {
        let mut command = program(self.program);
        command.args(arguments).env("VOXELFLOW_CLUSTER", &self.url).env("VOXELFLOW_CLUSTER_KEY", &self.key);
        command.env("VOXELFLOW_OUT", self.work.path());
        command
    }

    /// Waits for a job that `which` picks.
    #[track_caller]
    pub fn job(&self, what: &str, which: impl Fn(&Value) -> bool) -> Value {
        wait_for(what, || {
            let jobs = self.ask(&["jobs", "--json"]).expect_code(0).stdout;
            jobs.lines().map(|line| serde_json::from_str(line).unwrap()).find(&which)
        })
    }

    /// Why `job` waits, as soon as the answer holds `text`.
    #[track_caller]
    pub fn why_waiting(&self, job: &str, text: &str) -> String {
        wait_for(&format!("job {job} to wait because `{text}`"), || {
            Some(self.ask(&["why-waiting", job]).expect_code(0).stdout).filter(|why| why.contains(text))
        })
    }

    /// Slots in use, of all executors.
    pub fn slots_used(&self) -> u64 {
        let executors = self.ask(&["jobs", "--list-executors", "--json"]).expect_code(0).stdout;
        let used = executors.lines().map(|line| {
            let executor: Value = serde_json::from_str(line).unwrap();
            executor["slots_used"].as_u64().unwrap()
        });
        used.sum()
    }
}

fn with_key(arguments: &[&str], key: &Path) -> Vec<String> {
    let key = ["--child", "--cluster-key", key.to_str().unwrap()];
    arguments.iter().chain(&key).map(|argument| (*argument).to_owned()).collect()
}

/// A file of the key whose 32 bytes are all `byte`, which only its owner reads.
pub fn key_file(folder: &Path, name: &str, byte: &str) -> PathBuf {
    let key = folder.join(name);
    fs::write(&key, byte.repeat(32)).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    key
}

pub fn strings(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}
