//! Strangers at work: the program `stranger`, as another user and in another network, and what it must not hear.

use crate::{
    network::{Network, skip},
    program::{Ended, program},
};
use rustix::process::{Pid, geteuid};
use serde::Deserialize;
use std::{
    collections::BTreeSet,
    fmt,
    fs::{self, Permissions},
    net::SocketAddr,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// The user `nobody`.
pub const NOBODY: u32 = 65_534;

/// What came of an attempt.
#[derive(Clone, Debug, Deserialize)]
pub struct Attempt {
    pub address: String,
    pub wire: String,
    pub what: String,
    /// Whether a service has answered, and not only its door.
    pub reached: bool,
    pub answer: String,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, wire, what, answer, .. } = self;
        write!(f, "{address}, {wire}, {what}: {answer:?}")
    }
}

/// A command that another user starts.
pub fn as_nobody(of: &Command) -> Command {
    let mut nobody = Command::new("setpriv");
    let user = NOBODY.to_string();
    nobody.args([format!("--reuid={user}"), format!("--regid={user}")]).arg("--clear-groups");
    nobody.arg(of.get_program()).args(of.get_args()).current_dir("/");
    nobody
}

/// Who knocks.
#[derive(Clone, Copy, Debug)]
pub enum Who<'a> {
    /// Another user of this machine.
    Nobody,
    /// Whoever is behind a network.
    Behind(&'a Network),
    /// The cluster's own user.
    Owner,
}

/// The program and keys of strangers, in a folder that every user may enter.
pub struct Strangers {
    folder: TempDir,
}

impl Strangers {
    /// Nothing, said aloud, where nobody may become another user. In CI that is a failure.
    pub fn new() -> Option<Self> {
        if !geteuid().is_root() {
            skip("another user", "only root may become one");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        // The folder that it was built into may be closed to others.
        fs::copy(program("stranger").get_program(), folder.path().join("stranger")).unwrap();
        Some(Self { folder })
    }

    /// The file of a key of their own.
    pub fn key(&self, name: &str, byte: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, byte.repeat(32)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    }

    pub fn program(&self) -> Command {
        Command::new(self.folder.path().join("stranger"))
    }

    /// Tries everything at these addresses; `about` is what they have learned elsewhere.
    #[track_caller]
    pub fn knock(
        &self,
        who: Who<'_>,
        addresses: &BTreeSet<SocketAddr>,
        keys: &[&Path],
        about: &[(&str, &str)],
    ) -> Vec<Attempt> {
        let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        let mut stranger = self.program();
        stranger.args(["knock", &addresses.join(",")]);
        for key in keys {
            stranger.arg("--key").arg(key);
        }
        for (flag, value) in about {
            stranger.args([flag, value]);
        }
        let owner = if let Who::Nobody = who { NOBODY } else { 0 };
        // A key is read by its owner only.
        keys.iter().for_each(|key| chown(key, Some(owner), Some(owner)).unwrap());
        let mut stranger = match who {
            Who::Nobody => as_nobody(&stranger),
            Who::Behind(network) => network.inside(&stranger),
            Who::Owner => stranger,
        };
        let ended = Ended::from(stranger.output().unwrap()).expect_code(0);
        let attempts = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
        let attempts: Vec<Attempt> = attempts.collect();
        assert!(attempts.len() > 40 * addresses.len(), "{} attempts, {}", attempts.len(), ended.stderr);
        attempts
    }
}

/// Fails if somebody was let in, or heard one of `secrets`.
#[track_caller]
pub fn nobody_was_let_in(who: &str, attempts: &[Attempt], secrets: &[String]) {
    let heard = |attempt: &&Attempt| {
        attempt.reached || secrets.iter().any(|secret| attempt.answer.contains(secret.as_str()))
    };
    let wrong: Vec<&Attempt> = attempts.iter().filter(heard).collect();
    let shown: Vec<String> = wrong.iter().take(10).map(|attempt| attempt.to_string()).collect();
    assert!(
        wrong.is_empty(),
        "{who}: {} of {} attempts were answered, among them\n{}",
        wrong.len(),
        attempts.len(),
        shown.join("\n")
    );
}

/// Memory of a process, in MiB.
pub fn memory(process: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}
