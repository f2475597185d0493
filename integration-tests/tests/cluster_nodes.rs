//! Driver programs on machines that have never seen them: agents take their binary and run it.

use crate::program::{Ended, files_below, program};
use std::{
    collections::VecDeque,
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(120);
/// Seconds that processes may outlive their driver.
const GRACE: u64 = 2;

/// The file of a key.
pub fn key_file(folder: &Path, name: &str, digit: char) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, digit.to_string().repeat(64)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// `voxelflow node` as a process; it ends with this.
pub struct Agent {
    child: Child,
    address: String,
    pub work_dir: PathBuf,
    log: Arc<Log>,
}

/// What a process says, as it says it.
#[derive(Default)]
struct Log {
    lines: Mutex<VecDeque<String>>,
    changed: Condvar,
}

impl Log {
    fn of(stream: impl Read + Send + 'static) -> Arc<Self> {
        let log = Arc::<Self>::default();
        let to = Arc::clone(&log);
        thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                to.lines.lock().unwrap().push_back(line);
                to.changed.notify_all();
            }
        });
        log
    }

    /// The first line with `text`, as soon as it is there.
    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        let missing = |lines: &mut VecDeque<String>| !lines.iter().any(|line| line.contains(text));
        let lines = self.lines.lock().unwrap();
        let (lines, _) = self.changed.wait_timeout_while(lines, SOON, missing).unwrap();
        let found = lines.iter().find(|line| line.contains(text));
        found.unwrap_or_else(|| panic!("no `{text}` within {SOON:?} in {lines:#?}")).clone()
    }
}

impl Agent {
    pub fn start(folder: &Path, name: &str, key: &Path, flags: &[&str]) -> Self {
        let work_dir = folder.join(name);
        let mut command = program("voxelflow");
        command.args(["node", "--listen", "127.0.0.1:0", "--grace-seconds", &GRACE.to_string()]);
        command.arg("--cluster-key").arg(key).arg("--work-dir").arg(&work_dir).args(flags);
        command.env("VOXELFLOW_LOG", "info").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = Log::of(child.stderr.take().unwrap());
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let address =
            said.split_whitespace().find_map(|word| word.strip_suffix(':').filter(|w| w.contains(':')));
        let address =
            address.unwrap_or_else(|| panic!("no address in `{said}`; {:#?}", log.lines.lock())).to_owned();
        Self { child, address, work_dir, log }
    }

    /// Processes that run a program that this agent was given.
    pub fn processes(&self) -> Vec<u32> {
        let programs = self.work_dir.join("programs").display().to_string();
        let runs = |pid: &u32| {
            let image = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            image.display().to_string().starts_with(&programs)
        };
        let entries = fs::read_dir("/proc").unwrap().map(|e| e.unwrap().file_name());
        entries.filter_map(|name| name.to_str()?.parse().ok()).filter(runs).collect()
    }

    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Asks it to end, as systemd and Kubernetes do, and waits until it has.
    fn terminate(&mut self) {
        rustix::process::kill_process(self.pid(), rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !done() {
        assert!(Instant::now() < deadline, "waited {SOON:?} for {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A driver program on agents.
pub fn on_agents(name: &str, agents: &[&Agent], key: &Path, out: &Path) -> Command {
    let addresses: Vec<&str> = agents.iter().map(|agent| agent.address.as_str()).collect();
    let mut command = program(name);
    command.env("VOXELFLOW_CLUSTER", format!("nodes://{}", addresses.join(",")));
    command.env("VOXELFLOW_CLUSTER_KEY", key).env("VOXELFLOW_OUT", out);
    command
}

/// A program whose work takes minutes, once that work has begun.
pub fn at_work(agent: &Agent, key: &Path, folder: &Path, slots: usize) -> Child {
    let begun = folder.join("begun");
    let mut driver = on_agents("gang_probe", &[agent], key, &folder.join("slow"));
    driver.arg("slow").arg(&begun).env("VOXELFLOW_SLOTS", slots.to_string());
    let driver = driver.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("the work to begin", || begun.exists());
    driver
}

fn losses(out: &Path) -> Vec<f64> {
    let history = fs::read(out.join("models/dca/history.json")).unwrap();
    let history: serde_json::Value = serde_json::from_slice(&history).unwrap();
    history["epochs"].as_array().unwrap().iter().map(|e| e["loss"].as_f64().unwrap()).collect()
}

fn folder_with_key() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let key = key_file(folder.path(), "cluster.key", 'a');
    (folder, key)
}

#[test]
fn a_program_runs_on_agents_that_have_never_seen_it() {
    let (folder, key) = folder_with_key();
    let store = folder.path().join("store");
    let flags = ["--cores", "2", "--memory-mib", "1024", "--store", store.to_str().unwrap()];
    let mut first = Agent::start(folder.path(), "first", &key, &flags);
    let mut second = Agent::start(folder.path(), "second", &key, &flags);
    // As on executors of its own, which the tests of clusters compare with one process.
    let mut here = program("verbs");
    here.env("VOXELFLOW_OUT", folder.path().join("here")).env("VOXELFLOW_EXECUTORS", "2");
    let here = Ended::from(here.output().unwrap()).expect_code(0);
    let run = |agents: &[&Agent]| -> Ended {
        on_agents("verbs", agents, &key, &folder.path().join("there")).output().unwrap().into()
    };
    assert_eq!(run(&[&first, &second]).expect_code(0).stdout, here.stdout);
    // The first agent was sent the program, the second found it in the store.
    assert_eq!(files_below(&store).len(), 1);
    assert_eq!(files_below(&store), files_below(&first.work_dir.join("programs")));
    assert_eq!(files_below(&store), files_below(&second.work_dir.join("programs")));
    for agent in [&mut first, &mut second] {
        agent.log.wait_for("executor of");
        assert_eq!(agent.processes(), Vec::<u32>::new());
        assert_eq!(fs::read_dir(agent.work_dir.join("applications")).unwrap().count(), 0);
        agent.terminate();
    }

    // What a store has under a hash is believed only if it has that hash.
    let hash = files_below(&store).remove(0);
    fs::write(store.join(&hash), "something else").unwrap();
    let third = Agent::start(folder.path(), "third", &key, &flags);
    assert_eq!(run(&[&third]).expect_code(0).stdout, here.stdout);
    third.log.wait_for("not taken from the store");
}

#[test]
fn example_01_trains_its_model_on_agents() {
    let (folder, key) = folder_with_key();
    let agent = |name| Agent::start(folder.path(), name, &key, &["--cores", "2", "--memory-mib", "1024"]);
    let (first, second) = (agent("first"), agent("second"));
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    let alone = program("01_autoencoder").env("VOXELFLOW_OUT", &here).output().unwrap();
    Ended::from(alone).expect_code(0);
    let on_agents = on_agents("01_autoencoder", &[&first, &second], &key, &there).output().unwrap();
    let said = Ended::from(on_agents).expect_code(0);
    // Which rank takes which rows is a matter of its pace, unless `deterministic` is set: nearly the same model.
    let (a, b) = (losses(&here), losses(&there));
    assert_eq!(a.len(), b.len());
    let ([.., a], [.., b]) = (&a[..], &b[..]) else { panic!("no epochs") };
    assert!((a - b).abs() <= 0.05 * a, "{a} alone, {b} on agents\n{}{}", said.stdout, said.stderr);
    assert!(there.join("models/dca/model.safetensors").exists());
}

#[test]
fn another_key_is_refused() {
    let (folder, key) = folder_with_key();
    let agent = Agent::start(folder.path(), "agent", &key, &["--cores", "1", "--memory-mib", "512"]);
    let out = folder.path().join("out");
    let other = key_file(folder.path(), "other.key", 'b');
    let ended: Ended = on_agents("verbs", &[&agent], &other, &out).output().unwrap().into();
    assert!(ended.expect_code(1).stderr.contains("cluster key is another one"));
    agent.log.wait_for("another cluster key");
    assert!(agent.processes().is_empty() && files_below(&agent.work_dir).is_empty());

    let open = key_file(folder.path(), "open.key", 'a');
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let ended: Ended = on_agents("verbs", &[&agent], &open, &out).output().unwrap().into();
    assert!(ended.expect_code(2).stderr.contains("chmod 600"));
    let mut without = on_agents("verbs", &[&agent], &key, &out);
    let ended: Ended = without.env_remove("VOXELFLOW_CLUSTER_KEY").output().unwrap().into();
    assert!(ended.expect_code(2).stderr.contains("VOXELFLOW_CLUSTER_KEY"));
}

#[test]
fn executors_end_with_a_driver_that_is_killed() {
    let (folder, key) = folder_with_key();
    let agent = Agent::start(folder.path(), "agent", &key, &["--cores", "1", "--memory-mib", "1024"]);
    let mut driver = at_work(&agent, &key, folder.path(), 1);
    assert_eq!(agent.processes().len(), 2, "scheduler and executor");
    driver.kill().unwrap();
    driver.wait().unwrap();
    until("scheduler and executor to end", || agent.processes().is_empty());
    agent.log.wait_for("its driver has been away");
    until("their folders to be removed", || {
        fs::read_dir(agent.work_dir.join("applications")).unwrap().count() == 0
    });
}

#[test]
fn executors_end_with_an_agent_that_is_killed_and_so_does_the_program() {
    let (folder, key) = folder_with_key();
    let mut agent = Agent::start(folder.path(), "agent", &key, &["--cores", "1", "--memory-mib", "1024"]);
    let driver = at_work(&agent, &key, folder.path(), 1);
    assert_eq!(agent.processes().len(), 2, "scheduler and executor");
    agent.child.kill().unwrap();
    until("scheduler and executor to end", || agent.processes().is_empty());
    let ended: Ended = driver.wait_with_output().unwrap().into();
    ended.expect_code(1);
}

#[test]
fn a_second_application_is_limited_to_what_is_left() {
    let (folder, key) = folder_with_key();
    let agent = Agent::start(folder.path(), "agent", &key, &["--cores", "3", "--memory-mib", "3072"]);
    let mut first = at_work(&agent, &key, folder.path(), 2);
    agent.log.wait_for("was granted 2 cores, 2048 MiB");
    let run = |slots: &str| -> Ended {
        let mut second = on_agents("verbs", &[&agent], &key, &folder.path().join("second"));
        second.env("VOXELFLOW_SLOTS", slots).output().unwrap().into()
    };
    let refused = run("2").expect_code(1);
    assert!(refused.stderr.contains("1 cores, 1024 MiB, 0 cards are left"), "{}", refused.stderr);
    // What is left is enough for one that asks for it, beside the first one.
    run("1").expect_code(0);
    agent.log.wait_for("was granted 1 cores, 1024 MiB");
    assert!(first.try_wait().unwrap().is_none(), "the first one goes on");
    assert_eq!(agent.processes().len(), 2);
    first.kill().unwrap();
    first.wait().unwrap();
    until("all processes to end", || agent.processes().is_empty());
}
