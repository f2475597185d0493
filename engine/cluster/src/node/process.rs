//! A child process: its log, when it is ready, and its end, which comes with that of its parent at the latest.
//!
//! The child's standard input is a pipe that the parent holds. It closes with the parent, however that ends, and
//! the child ends itself then (see [`parent_gone`](crate::child::parent_gone)): nothing outlives an agent that was
//! killed.

use super::error::{Error, Result};
use crate::child::Ready;
use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, Read},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Lines that are kept of what a process says.
const KEPT: usize = 200;
/// How often it is looked whether anybody still waits.
const LOOK: Duration = Duration::from_millis(200);
/// Longest line that is kept whole.
const LINE: usize = 2000;

/// A child process.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    log: Arc<Log>,
    /// Held open: the child ends when it closes.
    _stdin: Option<ChildStdin>,
    /// How it ended.
    ended: Option<String>,
    /// Lines that were reported.
    reported: u64,
}

/// What a process says, from two threads that read it.
#[derive(Debug, Default)]
struct Log {
    state: Mutex<LogState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LogState {
    lines: VecDeque<String>,
    /// Lines so far, those that were dropped included.
    count: u64,
    /// What it said to be ready as.
    ready: Option<String>,
    /// Streams that have ended, of two.
    closed: usize,
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, mut line: String) {
        let cut = line.char_indices().nth(LINE).map_or(line.len(), |(at, _)| at);
        line.truncate(cut);
        let mut state = self.lock();
        if let Ok(Ready { ready }) = serde_json::from_str(&line) {
            state.ready.get_or_insert(ready);
            return self.changed.notify_all();
        }
        if state.lines.len() == KEPT {
            state.lines.pop_front();
        }
        state.lines.push_back(line);
        state.count += 1;
        drop(state);
        self.changed.notify_all();
    }

    fn close(&self) {
        self.lock().closed += 1;
        self.changed.notify_all();
    }
}

impl LogState {
    /// Lines from number `from` on, as far as they were kept.
    fn since(&self, from: u64) -> Vec<String> {
        let new = usize::try_from(self.count.saturating_sub(from)).unwrap_or(KEPT);
        self.lines.iter().skip(self.lines.len().saturating_sub(new)).cloned().collect()
    }
}

fn read_lines(from: impl Read, log: &Log) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        match from.read_until(b'\n', &mut line) {
            Ok(1..) => log.add(String::from_utf8_lossy(&line).trim_end().to_owned()),
            Ok(0) | Err(_) => return log.close(),
        }
    }
}

impl Process {
    /// Starts `command`. It is ready when it says so, see [`Ready`].
    ///
    /// # Errors
    /// A program that cannot be started.
    pub fn start(name: &str, mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed = |e: &io::Error| Error::Process {
            process: name.to_owned(),
            reason: format!("cannot be started: {e}"),
            log: Vec::new(),
        };
        let mut child = spawn(&mut command).map_err(|e| failed(&e))?;
        let stdin = child.stdin.take();
        let log = Arc::new(Log::default());
        let streams: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|stream| Box::new(stream) as _),
            child.stderr.take().map(|stream| Box::new(stream) as _),
        ];
        let mut process = Self {
            name: name.to_owned(),
            child,
            log: Arc::clone(&log),
            _stdin: stdin,
            ended: None,
            reported: 0,
        };
        for stream in streams.into_iter().flatten() {
            let log = Arc::clone(&log);
            let read = move || read_lines(stream, &log);
            if let Err(e) = thread::Builder::new().name(format!("log of {name}")).spawn(read) {
                process.kill();
                return Err(failed(&e));
            }
        }
        Ok(process)
    }

    /// The process's number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits until it is ready and gives what it is ready as.
    ///
    /// # Errors
    /// It ended before, or is not ready in time, or `stop` says that nobody waits; with the last that it said.
    pub fn wait_until_ready(&mut self, time: Duration, stop: &dyn Fn() -> bool) -> Result<String> {
        let deadline = Instant::now() + time;
        let log = Arc::clone(&self.log);
        let mut state = log.lock();
        loop {
            if let Some(ready) = &state.ready {
                return Ok(ready.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            // Both streams end with the process.
            if state.closed == 2 || left.is_zero() || stop() {
                let said = state.since(0);
                drop(state);
                let reason = self.why_not_ready(left.is_zero().then_some(time));
                return Err(Error::Process { process: self.name.clone(), reason, log: said });
            }
            let wait = log.changed.wait_timeout(state, left.min(LOOK));
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn why_not_ready(&mut self, waited: Option<Duration>) -> String {
        // Its output closes a moment before it can be waited for.
        match (waited, self.ended()) {
            (_, Some(how)) => format!("ended before it was ready: {how}"),
            (Some(time), None) => format!("was not ready within {} s", time.as_secs_f64()),
            (None, None) => {
                self.kill();
                format!("ended before it was ready: {}", self.ended.as_deref().unwrap_or("it was stopped"))
            }
        }
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<String> {
        if self.ended.is_none() {
            self.ended = match self.child.try_wait() {
                Ok(status) => status.map(|status| status.to_string()),
                Err(e) => Some(e.to_string()),
            };
        }
        self.ended.clone()
    }

    /// What it said since this was asked last.
    pub fn new_lines(&mut self) -> Vec<String> {
        let state = self.log.lock();
        let lines = state.since(self.reported);
        self.reported = state.count;
        lines
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        // It may have ended already; nothing else can fail for a child of one's own.
        drop(self.child.kill());
        if let Ok(status) = self.child.wait() {
            self.ended.get_or_insert_with(|| status.to_string());
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A program that was just written cannot be started while a process that was forked at that moment has not yet
/// closed what it inherited: a matter of milliseconds, and of trying again.
pub(super) fn spawn(command: &mut Command) -> io::Result<Child> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match command.spawn() {
            Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    const SOON: Duration = Duration::from_secs(30);

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start("test", command).unwrap()
    }

    #[test]
    fn it_is_ready_when_it_says_so_and_ends_when_it_is_dropped() {
        let mut process = shell("echo started; echo '{\"ready\":\"127.0.0.1:77\"}'; cat");
        assert_eq!(process.wait_until_ready(SOON, &|| false).unwrap(), "127.0.0.1:77");
        assert_eq!(process.ended(), None);
        let pid = process.pid();
        assert_eq!(process.new_lines(), ["started"]);
        assert!(process.new_lines().is_empty());
        drop(process);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn one_that_ends_before_it_is_ready_says_why() {
        let error =
            shell("echo no such flag >&2; exit 3").wait_until_ready(SOON, &|| false).unwrap_err().to_string();
        assert!(error.contains("ended before it was ready") && error.contains("3"), "{error}");
        assert!(error.contains("no such flag"), "{error}");
        let error =
            shell("echo waiting; cat").wait_until_ready(Duration::from_millis(300), &|| false).unwrap_err();
        assert!(error.to_string().contains("was not ready within"), "{error}");
    }

    #[test]
    fn the_log_keeps_the_last_lines_and_cuts_long_ones() {
        let long = "head -c 9000 /dev/zero | tr '\\0' x; echo";
        let mut process = shell(&format!("seq 1 1000; {long}; echo '{{\"ready\":\"now\"}}'"));
        process.wait_until_ready(SOON, &|| false).unwrap();
        let lines = process.new_lines();
        assert_eq!(lines.len(), KEPT);
        assert_eq!(lines[KEPT - 2], "1000");
        assert_eq!(lines[KEPT - 1].len(), LINE);
    }
}
