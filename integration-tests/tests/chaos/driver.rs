//! A driver: the process that a user starts and waits for.

use crate::program::program;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::NamedTempFile;

/// How often it is looked at.
pub const POLL: Duration = Duration::from_millis(10);

/// It ends with this.
pub struct Driver {
    child: Child,
    /// Output goes to files: a pipe that nobody empties would stop it.
    stdout: NamedTempFile,
    stderr: NamedTempFile,
}

impl Driver {
    /// `voxelflow` with these arguments and flags.
    pub fn start(arguments: &[String], flags: &[String]) -> Self {
        let mut command = program("voxelflow");
        command.args(arguments).args(flags);
        Self::of(command)
    }

    pub fn of(mut command: Command) -> Self {
        let [stdout, stderr] = [(); 2].map(|()| NamedTempFile::new().unwrap());
        command.stdin(Stdio::null()).stdout(stdout.reopen().unwrap()).stderr(stderr.reopen().unwrap());
        Self { child: command.spawn().unwrap(), stdout, stderr }
    }

    /// Its exit code if it has ended; -1 if a signal has ended it.
    pub fn ended(&mut self) -> Option<i32> {
        self.child.try_wait().unwrap().map(|status| status.code().unwrap_or(-1))
    }

    /// As [`Self::ended`], as soon as it is so, or nothing at `deadline`.
    pub fn wait(&mut self, deadline: Instant) -> Option<i32> {
        loop {
            let ended = self.ended();
            if ended.is_some() || Instant::now() > deadline {
                return ended;
            }
            thread::sleep(POLL);
        }
    }

    pub fn signal(&self, signal: Signal) {
        // One that ends at this moment is not there to hear it.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.stdout.path()).unwrap()).into_owned()
    }

    pub fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.stderr.path()).unwrap()).into_owned()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
