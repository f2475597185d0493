//! Agents and drivers over real connections and with real processes. The programs are scripts that say what parts of
//! a cluster say; real ones run in the integration tests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::{
    agent::{Agent, AgentConfig},
    binary_cache::BinaryStore,
    error::Error,
    grant::{Resources, Wish},
    link::{Application, Link, prepare, start_all},
    message::{Reply, Request},
    nodes::{Nodes, NodesConfig},
};
use crate::node::{channel::Knock, message::Start};
use std::{
    fs,
    io::{self, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use uuid::Uuid;
use voxelflow_sync::network::ClusterKey;

const MACHINE: Resources = Resources { cores: 4, memory_mib: 2048, cards: 1 };
const SOON: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_millis(700);
/// A part that is ready and stays as long as its agent wants it.
const PART: &str = "echo hello from $1\necho '{\"ready\":\"127.0.0.1:5\"}'\ncat\n";

/// A machine with an agent.
struct Machine {
    folder: TempDir,
    agent: Option<Agent>,
}

impl Machine {
    fn new(key: &ClusterKey) -> Self {
        Self::with_store(key, None)
    }

    fn with_store(key: &ClusterKey, store: Option<Box<dyn BinaryStore>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = AgentConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            capacity: MACHINE,
            key: key.clone(),
            work_dir: folder.path().to_owned(),
            store,
            grace: GRACE,
            public: false,
        };
        Self { agent: Some(Agent::start(config).unwrap()), folder }
    }

    fn address(&self) -> String {
        self.agent.as_ref().unwrap().address().to_string()
    }

    /// Processes that run a program of this machine's agent.
    fn processes(&self) -> usize {
        let mine = self.folder.path().join("programs").display().to_string();
        let runs = |entry: io::Result<fs::DirEntry>| {
            let command = fs::read(entry.unwrap().path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&command).contains(&mine)
        };
        fs::read_dir("/proc").unwrap().map(runs).filter(|runs| *runs).count()
    }

    /// Waits until so many processes are there. A shell that starts a program is two of the same name for a moment.
    #[track_caller]
    fn expect_processes(&self, expected: usize) {
        until(&format!("{expected} processes"), || self.processes() == expected);
    }

    /// Waits until nothing is left of applications: their folders go after their processes.
    #[track_caller]
    fn expect_no_applications(&self) {
        until("the applications' folders to go", || self.applications() == 0);
    }

    fn applications(&self) -> usize {
        fs::read_dir(self.folder.path().join("applications")).map_or(0, Iterator::count)
    }
}

fn until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !done() {
        assert!(Instant::now() < deadline, "waited {SOON:?} for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A program and its hash.
fn program(folder: &TempDir, script: &str) -> (PathBuf, String) {
    let path = folder.path().join("program");
    let text = format!("#!/bin/sh\n{script}");
    fs::write(&path, &text).unwrap();
    (path, blake3::hash(text.as_bytes()).to_hex().to_string())
}

fn config(machines: &[&Machine], key: &ClusterKey, folder: &TempDir, script: &str) -> NodesConfig {
    let (program, hash) = program(folder, script);
    let agents = machines.iter().map(|m| m.address()).collect();
    NodesConfig { agents, key: key.clone(), name: "test".into(), program, hash, wish: Wish::default() }
}

#[test]
fn an_application_runs_on_all_machines_and_ends_with_its_driver() {
    let (key, folder) = (ClusterKey::generate().unwrap(), tempfile::tempdir().unwrap());
    let (first, second) = (Machine::new(&key), Machine::new(&key));
    let nodes = Nodes::start(config(&[&first, &second], &key, &folder, PART)).unwrap();
    assert_eq!(nodes.scheduler().port(), 5);
    // Scheduler and executor; executor.
    first.expect_processes(2);
    second.expect_processes(1);
    let granted: Vec<Resources> = nodes.granted().iter().map(|(_, granted)| *granted).collect();
    assert_eq!(granted, [MACHINE, MACHINE]);
    assert_eq!(nodes.failures(), Vec::<String>::new());
    let key_file = nodes.key_file().to_owned();
    assert!(key_file.exists());
    drop(nodes);
    first.expect_processes(0);
    second.expect_processes(0);
    first.expect_no_applications();
    second.expect_no_applications();
    assert!(!key_file.exists());
}

#[test]
fn another_key_another_hash_and_another_program_are_refused() {
    let (key, folder) = (ClusterKey::generate().unwrap(), tempfile::tempdir().unwrap());
    let machine = Machine::new(&key);
    let good = || config(&[&machine], &key, &folder, PART);

    let stranger = NodesConfig { key: ClusterKey::generate().unwrap(), ..good() };
    let error = Nodes::start(stranger).unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert!(error.to_string().contains("cluster key is another one"), "{error}");

    let hash = blake3::hash(b"another program").to_hex().to_string();
    let error = Nodes::start(NodesConfig { hash, ..good() }).unwrap_err().to_string();
    assert!(error.contains("it is not started"), "{error}");
    let error = Nodes::start(NodesConfig { hash: "../../x".into(), ..good() }).unwrap_err().to_string();
    assert!(error.contains("64 hexadecimal digits"), "{error}");

    let error = Nodes::start(config(&[&machine], &key, &folder, "echo no cluster >&2; exit 4\n"));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("ended before it was ready") && error.contains("no cluster"), "{error}");

    let nobody = NodesConfig { agents: vec!["127.0.0.1:1".into()], ..good() };
    let error = Nodes::start(nobody).unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:1") && error.contains("voxelflow node"), "{error}");
    machine.expect_processes(0);
    machine.expect_no_applications();
}

#[test]
fn a_second_application_gets_what_is_left() {
    let (key, folder) = (ClusterKey::generate().unwrap(), tempfile::tempdir().unwrap());
    let machine = Machine::new(&key);
    let start = |cores: Option<usize>| {
        let wish = Wish { cores, ..Wish::default() };
        Nodes::start(NodesConfig { wish, ..config(&[&machine], &key, &folder, PART) })
    };
    let first = start(Some(3)).unwrap();
    assert_eq!(first.granted()[0].1, Resources { cores: 3, memory_mib: 1536, cards: 0 });
    let error = start(Some(2)).unwrap_err().to_string();
    assert!(error.contains("2 cores") && error.contains("1 cores, 512 MiB, 1 cards are left"), "{error}");
    let second = start(None).unwrap();
    assert_eq!(second.granted()[0].1, Resources { cores: 1, memory_mib: 512, cards: 1 });
    machine.expect_processes(4);
    drop(first);
    // Only the first one's have ended.
    machine.expect_processes(2);
    assert_eq!(start(Some(3)).unwrap().granted()[0].1.cores, 3);
    drop(second);
}

/// An application whose links the test holds.
fn started(machine: &Machine, key: &ClusterKey, folder: &TempDir) -> Link {
    let application =
        Application { id: Uuid::new_v4(), name: "test".into(), knock: Arc::new(Knock::new(key).unwrap()) };
    let (program, hash) = program(folder, PART);
    let agents = [machine.address()];
    let (mut links, _) = prepare(&application, &agents, &program, &hash, Wish::default()).unwrap();
    let start = |role| Start { binary: hash.clone(), role, key: "00".to_owned().into(), folder: None };
    start_all(&mut links, &start).unwrap();
    links.pop().unwrap()
}

#[test]
fn a_driver_that_is_gone_is_waited_for_and_then_its_processes_end() {
    let (key, folder) = (ClusterKey::generate().unwrap(), tempfile::tempdir().unwrap());
    let machine = Machine::new(&key);
    let mut link = started(&machine, &key, &folder);
    // Without a farewell, as when it is killed.
    drop(link.channel.take());
    machine.expect_processes(2);
    // It comes again, and stays for longer than it may be away.
    link.connect_again().unwrap();
    let since = Instant::now();
    while since.elapsed() < GRACE * 2 {
        let reply = link.ask("", &Request::Watch).unwrap();
        let Reply::Processes(reports) = reply else { panic!("{reply:?}") };
        assert!(reports.len() == 2 && reports.iter().all(|r| r.ended.is_none()), "{reports:?}");
    }
    drop(link.channel.take());
    machine.expect_processes(0);
    machine.expect_no_applications();
    // What it had is free.
    started(&machine, &key, &folder);
}

#[test]
fn an_application_is_not_taken_over_by_another_driver() {
    let (key, folder) = (ClusterKey::generate().unwrap(), tempfile::tempdir().unwrap());
    let machine = Machine::new(&key);
    let link = started(&machine, &key, &folder);
    let other = Application { knock: Arc::new(Knock::new(&key).unwrap()), ..link.application.clone() };
    let error = Link::connect(&machine.address(), &other).unwrap_err().to_string();
    assert!(error.contains("another driver's"), "{error}");
    machine.expect_processes(2);
}

#[test]
fn everything_ends_with_the_agent() {
    let (key, folder) = (ClusterKey::generate().unwrap(), tempfile::tempdir().unwrap());
    let mut machine = Machine::new(&key);
    let nodes = Nodes::start(config(&[&machine], &key, &folder, PART)).unwrap();
    drop(machine.agent.take());
    machine.expect_processes(0);
    machine.expect_no_applications();
    drop(nodes);
}

#[test]
fn the_driver_hears_of_a_part_that_ends() {
    let (key, folder) = (ClusterKey::generate().unwrap(), tempfile::tempdir().unwrap());
    let machine = Machine::new(&key);
    let dies = format!(
        "if [ $1 = scheduler ]; then\n{PART}\nelse\necho '{{\"ready\":\"e1\"}}'\necho out of memory\n\
         while [ ! -e '{}/die' ]; do sleep 0.05; done\nexit 9\nfi\n",
        folder.path().display()
    );
    let nodes = Nodes::start(config(&[&machine], &key, &folder, &dies)).unwrap();
    assert_eq!(nodes.failures(), Vec::<String>::new());
    fs::write(folder.path().join("die"), "").unwrap();
    until("the failure to be seen", || !nodes.failures().is_empty());
    let failure = nodes.failures().remove(0);
    assert!(failure.contains("executor") && failure.contains("exit status: 9"), "{failure}");
    drop(nodes);
    machine.expect_processes(0);
}

#[test]
fn strangers_learn_nothing_and_stop_nothing() {
    let (key, folder) = (ClusterKey::generate().unwrap(), tempfile::tempdir().unwrap());
    let machine = Machine::new(&key);
    let mut long = b"vfnode1\n".to_vec();
    long.extend(u32::MAX.to_le_bytes());
    let mut sealed = b"vfnode1\n".to_vec();
    sealed.extend(5_u32.to_le_bytes());
    sealed.extend(b"wrong");
    for (bytes, answer) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], &b""[..]),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00\x00", b""),
        (&long, b""),
        (&sealed, b"-"),
        (b"", b""),
    ] {
        let mut socket = TcpStream::connect(machine.address()).unwrap();
        socket.write_all(bytes).unwrap();
        // A connection that the agent has closed by then, or that is reset, says nothing either.
        drop(socket.shutdown(std::net::Shutdown::Write));
        let mut said = Vec::new();
        drop(socket.read_to_end(&mut said));
        assert_eq!(said, answer);
    }
    // A knock that was overheard does not open.
    let knock = Knock::new(&key).unwrap();
    let mut socket = TcpStream::connect(machine.address()).unwrap();
    socket.write_all(knock.overheard()).unwrap();
    let mut said = [0];
    socket.read_exact(&mut said).unwrap();
    socket.write_all(b"\x00\x00\x00\x02{}").unwrap();
    drop(socket.shutdown(std::net::Shutdown::Write));
    let mut rest = Vec::new();
    drop(socket.read_to_end(&mut rest));
    assert!(rest.len() < 100, "an alert, at most: {rest:?}");
    machine.expect_processes(0);
    machine.expect_no_applications();
    drop(started(&machine, &key, &folder));
}

/// A folder as a store.
struct Shelf(PathBuf);

impl BinaryStore for Shelf {
    fn fetch(&self, hash: &str, into: &mut dyn Write) -> io::Result<bool> {
        match fs::read(self.0.join(hash)) {
            Ok(bytes) => into.write_all(&bytes).map(|()| true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn keep(&self, hash: &str, program: &Path) -> io::Result<()> {
        fs::copy(program, self.0.join(hash)).map(drop)
    }
}

#[test]
fn a_program_that_one_machine_was_given_comes_from_the_store_to_the_others() {
    let (key, folder) = (ClusterKey::generate().unwrap(), tempfile::tempdir().unwrap());
    let shelf = tempfile::tempdir().unwrap();
    let machine = || Machine::with_store(&key, Some(Box::new(Shelf(shelf.path().to_owned()))));
    let (first, second, third) = (machine(), machine(), machine());
    drop(Nodes::start(config(&[&first], &key, &folder, PART)).unwrap());
    let good = config(&[&second], &key, &folder, PART);
    let hash = good.hash.clone();
    drop(Nodes::start(NodesConfig { program: "/no/such/program".into(), ..good }).unwrap());
    // What the store has wrong is not believed; the driver has it right.
    fs::write(shelf.path().join(&hash), "#!/bin/sh\necho evil\n").unwrap();
    let error = Nodes::start(NodesConfig {
        program: "/no/such/program".into(),
        ..config(&[&third], &key, &folder, PART)
    });
    assert!(error.unwrap_err().to_string().contains("/no/such/program"));
    drop(Nodes::start(config(&[&third], &key, &folder, PART)).unwrap());
}
