//! A cluster that stands while one query after the other is disturbed on it.

use super::driver::POLL;
use crate::{
    cluster_by_hand::{Cluster, SOON_LOST, Setup},
    network::Network,
    processes::Part,
    program::Ended,
};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// How long a cluster may take to be as it was before.
pub const SETTLING: Duration = Duration::from_secs(30);
/// Size of the small disk.
const SMALL: &str = "size=512m,mode=700";
/// Lines of each log that a failure shows.
const LOG_LINES: usize = 25;

/// Where an executor runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Here,
    /// Its work folder is a small disk of its own.
    Small,
    /// Behind a network that can be cut.
    Apart,
}

/// Places of the executors of a cluster, by their number.
const PLACES: [&[Place]; 4] =
    [&[], &[Place::Apart], &[Place::Small, Place::Apart], &[Place::Here, Place::Small, Place::Apart]];

pub struct Standing {
    executors: Vec<Executor>,
    cluster: Cluster,
    network: Network,
    /// Ids of executors that have ended.
    gone: Vec<String>,
}

pub struct Executor {
    pub part: Part,
    pub place: Place,
    disk: Option<Disk>,
}

impl Standing {
    /// Nothing, said aloud, where no network of its own can be made.
    pub fn start(executors: usize) -> Option<Self> {
        let network = Network::build()?;
        let flags: Vec<&str> = ["--bind", &network.here].into_iter().chain(SOON_LOST).collect();
        let cluster = Cluster::start(&Setup { scheduler: &flags, ..Setup::default() });
        let mut standing = Self { executors: Vec::new(), cluster, network, gone: Vec::new() };
        for place in PLACES[executors] {
            let executor = standing.executor(*place);
            standing.executors.push(executor);
        }
        Some(standing)
    }

    fn executor(&mut self, place: Place) -> Executor {
        let disk = (place == Place::Small).then(|| Disk::mount(self.cluster.next_work_dir()));
        let (address, namespace) = match place {
            Place::Apart => (self.network.there.clone(), Some(self.network.namespace.clone())),
            _ => (self.network.here.clone(), None),
        };
        self.cluster.executor(&["--bind", &address, "--slots", "2"], namespace.as_deref());
        let part = self.cluster.executors.pop().unwrap();
        Executor { part, place, disk }
    }

    /// Executors that it should have.
    pub fn size(&self) -> usize {
        self.executors.len()
    }

    /// Flags of a driver.
    pub fn flags(&self) -> Vec<String> {
        self.cluster.flags()
    }

    pub fn place(&self, at: usize) -> Place {
        self.executors[at].place
    }

    pub fn signal(&self, at: usize, signal: Signal) {
        // One that has ended does not hear it.
        let _ = kill_process(self.executors[at].part.pid(), signal);
    }

    /// Whether the process of an executor has ended.
    pub fn has_ended(&mut self, at: usize) -> bool {
        self.executors[at].part.has_ended()
    }

    /// A new executor in the place of one that has ended, or is ended by this.
    pub fn replace(&mut self, at: usize) {
        let place = self.place(at);
        self.executors[at].part.kill();
        self.gone.push(self.executors[at].part.ready.clone());
        self.executors[at].disk = None;
        self.executors[at] = self.executor(place);
    }

    pub fn fill_disk(&self, at: usize) {
        self.executors[at].disk.iter().for_each(Disk::fill);
    }

    pub fn free_disk(&self, at: usize) {
        self.executors[at].disk.iter().for_each(Disk::free);
    }

    pub fn cut(&self) {
        self.network.cut();
    }

    pub fn mend(&self) {
        self.network.mend();
    }

    pub fn restart_scheduler(&mut self) {
        self.cluster.restart_scheduler();
    }

    /// Jobs that have not ended.
    ///
    /// # Errors
    /// Why the scheduler does not say.
    pub fn open_jobs(&self) -> Result<Vec<String>, String> {
        let open = |job: &Value| !matches!(job["phase"].as_str(), Some("done" | "failed" | "cancelled"));
        Ok(self.ask(&["jobs", "--json"])?.iter().filter(|job| open(job)).map(Value::to_string).collect())
    }

    /// What keeps the cluster from being as it should be: all executors there and nothing at work.
    ///
    /// # Errors
    /// What is not so.
    pub fn is_quiet(&self) -> Result<(), String> {
        let open = self.open_jobs()?;
        if !open.is_empty() {
            return Err(format!("jobs run on: {}", open.join(", ")));
        }
        let executors = self.ask(&["jobs", "--list-executors", "--json"])?;
        let ids: Vec<&str> = executors.iter().filter_map(|executor| executor["id"].as_str()).collect();
        if ids.len() != self.size() || ids.iter().any(|id| self.gone.iter().any(|gone| gone == id)) {
            return Err(format!("{} executors are wanted, and these are listed: {ids:?}", self.size()));
        }
        let busy = executors.iter().find(|executor| executor["slots_used"] != 0);
        busy.map_or(Ok(()), |executor| Err(format!("slots are not free: {executor}")))
    }

    /// Waits until the cluster [is quiet](Self::is_quiet).
    ///
    /// # Errors
    /// What is not so at `deadline`.
    pub fn settle(&mut self, deadline: Instant) -> Result<(), String> {
        loop {
            for at in 0..self.size() {
                if self.has_ended(at) {
                    self.replace(at);
                }
            }
            let quiet = self.is_quiet();
            if quiet.is_ok() || Instant::now() > deadline {
                return quiet;
            }
            thread::sleep(POLL * 10);
        }
    }

    fn ask(&self, arguments: &[&str]) -> Result<Vec<Value>, String> {
        let Ended { code, stdout, stderr } = self.cluster.ask(arguments);
        if code != Some(0) {
            return Err(format!("{arguments:?} ended with {code:?}: {stderr}"));
        }
        stdout.lines().map(|line| serde_json::from_str(line).map_err(|e| format!("{line}: {e}"))).collect()
    }

    /// The ends of all logs.
    pub fn ends_of_logs(&self) -> String {
        let parts = self.executors.iter().map(|executor| &executor.part);
        let ends = [&self.cluster.scheduler].into_iter().chain(parts).map(|part| part.end_of_log(LOG_LINES));
        ends.collect::<Vec<_>>().join("\n")
    }
}

/// A file system in memory that holds little.
struct Disk {
    at: PathBuf,
}

impl Disk {
    fn mount(at: PathBuf) -> Self {
        fs::create_dir_all(&at).unwrap();
        let mounted = mount("mount", &["-t", "tmpfs", "-o", SMALL, "tmpfs"], &at);
        assert!(mounted, "no tmpfs at {}", at.display());
        Self { at }
    }

    fn ballast(&self) -> PathBuf {
        self.at.join("ballast")
    }

    /// Takes all the room that is left.
    fn fill(&self) {
        let mut ballast = File::create(self.ballast()).unwrap();
        let block = vec![1; 64 << 10];
        while ballast.write_all(&block).is_ok() {}
    }

    fn free(&self) {
        let _ = fs::remove_file(self.ballast());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: an executor that is about to end may still have a file open.
        let _ = mount("umount", &["--lazy"], &self.at);
    }
}

fn mount(tool: &str, arguments: &[&str], at: &Path) -> bool {
    Command::new(tool).args(arguments).arg(at).status().is_ok_and(|status| status.success())
}
