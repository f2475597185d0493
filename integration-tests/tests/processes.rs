//! Processes that tests start, follow, and end.

use crate::program::program;
use rustix::process::Pid;
use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// Longest that anything is waited for; it takes seconds.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until `done` gives something.
#[track_caller]
pub fn wait_for<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = done() {
            return found;
        }
        assert!(Instant::now() < until, "waited {PATIENCE:?} for {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A process whose lines are followed. It ends with this.
pub struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
    /// Lines so far.
    pub seen: Vec<String>,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (tell, lines) = mpsc::channel();
        follow(child.stdout.take().unwrap(), tell.clone());
        follow(child.stderr.take().unwrap(), tell);
        Self { child, lines, seen: Vec::new() }
    }

    /// Waits for a line that holds `text`.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str, patience: Duration) {
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
    pub fn wait_for_epoch(&mut self, epoch: usize) {
        self.wait_for(&format!("\"epoch\":{epoch},"), PATIENCE);
    }

    /// Waits for the next epoch's end, whichever it is; gives how long that took.
    #[track_caller]
    pub fn next_epoch(&mut self) -> Duration {
        // What was said before is not news.
        self.seen.extend(self.lines.try_iter());
        let started = Instant::now();
        self.wait_for("\"epoch\":", PATIENCE);
        started.elapsed()
    }

    /// Whether it has trained its first epoch, and not gone on from another one.
    pub fn began_anew(&self) -> bool {
        self.seen.iter().any(|line| line.contains("\"epoch\":0,"))
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits for its end.
    #[track_caller]
    pub fn end(&mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.seen.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(e) => panic!("not ended within {PATIENCE:?} ({e}); said:\n{}", self.seen.join("\n")),
            }
        }
        (self.child.wait().unwrap(), self.seen.join("\n"))
    }

    #[track_caller]
    pub fn succeed(mut self) -> String {
        let (status, said) = self.end();
        assert!(status.success(), "{status}; said:\n{said}");
        said
    }

    /// Fails unless it ends with exit code 1; gives what it said.
    #[track_caller]
    pub fn fail(mut self) -> String {
        let (status, said) = self.end();
        assert_eq!(status.code(), Some(1), "said:\n{said}");
        said
    }

    /// Processes that it started as `part`, in the order of their numbers.
    pub fn parts(&self, part: &str) -> Vec<Pid> {
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

fn follow(stream: impl Read + Send + 'static, tell: mpsc::Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                break;
            }
        }
    });
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

/// Names of the threads of a process, as the kernel keeps them: 15 bytes.
pub fn threads_of(pid: Pid) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).into_iter().flatten().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).collect()
}

/// A part of a cluster that says when it is ready. It ends with this.
pub struct Part {
    child: Child,
    /// A scheduler's address, an executor's id.
    pub ready: String,
    log: PathBuf,
}

impl Part {
    /// Starts `command`, whose log goes to the file `log`.
    #[track_caller]
    pub fn start(mut command: Command, log: &Path) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(log).unwrap());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let said: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|e| {
            panic!("{command:?}: `{line}`: {e}\n{}", fs::read_to_string(log).unwrap_or_default())
        });
        Self { child, ready: said["ready"].as_str().unwrap().to_owned(), log: log.to_owned() }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Ends it as a crash does.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// What it has written to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The last lines of its log, under its name.
    pub fn end_of_log(&self, most: usize) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(most)..].join("\n");
        format!("the end of {}:\n{end}", self.log.display())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("{}", self.end_of_log(40));
        }
    }
}

/// `program` as `arguments` says, in another namespace of the network if one is named.
pub fn command(name: &str, arguments: &[&str], namespace: Option<&str>) -> Command {
    let own = program(name);
    let Some(namespace) = namespace else {
        let mut own = own;
        own.args(arguments);
        return own;
    };
    let mut inside = Command::new("ip");
    inside.args(["netns", "exec", namespace]).arg(own.get_program()).args(arguments);
    inside.current_dir(own.get_current_dir().unwrap());
    inside
}
