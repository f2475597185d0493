//! One application on one machine: its share, its processes, and whether its driver is still there.

use super::{
    binary_cache::own_folder,
    error::{Error, Result},
    grant::Grant,
    message::{ProcessReport, Role, Secret, Start},
    process::Process,
    roles,
};
use std::{
    fs,
    io::{self, Write},
    net::IpAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Longest time that a part may take to be ready.
pub(crate) const READY_WITHIN: Duration = Duration::from_secs(60);

/// Whether the driver of an application is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// On the connection with this number.
    Here(u64),
    /// Its connection broke; it may come again.
    AwaySince(Instant),
}

impl Presence {
    /// Connection `number` has broken. One that was taken over by a later connection changes nothing.
    pub fn lose(&mut self, number: u64, now: Instant) {
        if *self == Self::Here(number) {
            *self = Self::AwaySince(now);
        }
    }

    /// Whether the application is over: its driver has been away for longer than `grace`.
    pub fn is_over(self, now: Instant, grace: Duration) -> bool {
        match self {
            Self::Here(_) => false,
            Self::AwaySince(since) => now.saturating_duration_since(since) >= grace,
        }
    }
}

/// What an application has on this machine. Dropping it ends its processes and removes its folder.
#[derive(Debug)]
pub(crate) struct Application {
    folder: PathBuf,
    grant: Option<Grant>,
    processes: Vec<(Role, Process)>,
}

impl Application {
    /// One that has nothing yet; `folder` is made, and is its own.
    pub fn open(folder: PathBuf) -> Result<Self> {
        own_folder(&folder)?;
        Ok(Self { folder, grant: None, processes: Vec::new() })
    }

    pub fn set_grant(&mut self, grant: Grant) {
        self.grant = Some(grant);
    }

    pub fn is_empty(&self) -> bool {
        self.grant.is_none() && self.processes.is_empty()
    }

    /// Starts a part of it and waits until it is ready, or until `stop`.
    ///
    /// # Errors
    /// It has no share, or such a part already; the part does not start.
    pub fn start(
        &mut self,
        start: &Start,
        binary: &Path,
        address: IpAddr,
        public: bool,
        stop: &dyn Fn() -> bool,
    ) -> Result<String> {
        let name = start.role.to_string();
        let refuse =
            |reason: &str| Error::Process { process: name.clone(), reason: reason.into(), log: Vec::new() };
        let grant =
            self.grant.as_ref().ok_or_else(|| refuse("is not started: the application has no share"))?;
        let same = |role: &Role| std::mem::discriminant(role) == std::mem::discriminant(&start.role);
        if let Some(at) = self.processes.iter().position(|(role, _)| same(role)) {
            if self.processes[at].1.ended().is_none() {
                return Err(refuse("is running already"));
            }
            self.processes.remove(at);
        }
        let work_dir = self.folder.join("work");
        own_folder(&work_dir)?;
        let key = self.folder.join("key");
        write_secret(&key, &start.key)?;
        let place = roles::Place { binary, address, grant, key: &key, work_dir: &work_dir, public };
        let mut command = roles::command(&start.role, &place);
        let folder = start.folder.as_deref().filter(|folder| folder.is_dir());
        command.current_dir(folder.unwrap_or(&self.folder));
        let mut process = Process::start(&name, command)?;
        log::info!("{name} of {} is process {}", self.folder.display(), process.pid());
        let ready = process.wait_until_ready(READY_WITHIN, stop)?;
        self.processes.push((start.role.clone(), process));
        Ok(ready)
    }

    /// Ends its processes and removes its folder.
    pub fn end(&mut self) {
        // Executors first: a scheduler that is gone would make them complain.
        while let Some((_, process)) = self.processes.pop() {
            drop(process);
        }
        match fs::remove_dir_all(&self.folder) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                log::warn!("{} cannot be removed: {e}", self.folder.display());
            }
            _ => {}
        }
    }

    /// How its processes are.
    pub fn report(&mut self) -> Vec<ProcessReport> {
        let report = |process: &mut Process| ProcessReport {
            name: process.name().to_owned(),
            ended: process.ended(),
            lines: process.new_lines(),
        };
        self.processes.iter_mut().map(|(_, process)| report(process)).collect()
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.end();
    }
}

/// A file that only its owner may read, with the secret in it.
fn write_secret(path: &Path, secret: &Secret) -> Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(path).and_then(|mut file| file.write_all(secret.0.as_bytes()));
    written.map_err(|e| Error::file(path, e))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::node::grant::Resources;

    #[test]
    fn an_application_is_over_when_its_driver_stays_away() {
        let (start, grace) = (Instant::now(), Duration::from_secs(10));
        let mut presence = Presence::Here(1);
        assert!(!presence.is_over(start + grace * 100, grace));
        presence.lose(7, start);
        assert_eq!(presence, Presence::Here(1), "another connection's end");
        presence.lose(1, start);
        assert!(!presence.is_over(start + grace / 2, grace));
        assert!(presence.is_over(start + grace, grace));
        presence = Presence::Here(2);
        presence.lose(1, start);
        assert_eq!(presence, Presence::Here(2), "the driver came again before the old connection was missed");
    }

    /// A program that says what it was given, is ready, and stays.
    fn program(folder: &Path) -> PathBuf {
        let path = folder.join("program");
        let script = "#!/bin/sh\npwd\ncat \"$6\"\necho '{\"ready\":\"127.0.0.1:5\"}'\ncat\n";
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        path
    }

    #[test]
    fn parts_run_within_the_share_and_end_with_the_application() {
        let folder = tempfile::tempdir().unwrap();
        let program = program(folder.path());
        let mut application = Application::open(folder.path().join("application")).unwrap();
        let start = Start {
            binary: String::new(),
            role: Role::Scheduler,
            key: Secret("the key\n".into()),
            folder: Some(folder.path().to_owned()),
        };
        let go = |application: &mut Application, start: &Start| {
            application.start(start, &program, "127.0.0.1".parse().unwrap(), false, &|| false)
        };
        let error = go(&mut application, &start).unwrap_err().to_string();
        assert!(error.contains("has no share"), "{error}");
        application.set_grant(Grant { resources: Resources::default(), cards: Vec::new() });
        assert_eq!(go(&mut application, &start).unwrap(), "127.0.0.1:5");
        let error = go(&mut application, &start).unwrap_err().to_string();
        assert!(error.contains("is running already"), "{error}");
        let report = application.report();
        assert_eq!((report.len(), report[0].ended.clone()), (1, None));
        assert_eq!(report[0].lines[0], folder.path().canonicalize().unwrap().display().to_string());
        assert_eq!(report[0].lines[1], "the key");
        drop(application);
        assert!(!folder.path().join("application").exists());
    }
}
