//! The driver's side of agents: an application of its own on the machines of `nodes://…`, for as long as this
//! value lives.

use super::{
    binary_cache::own_folder,
    channel::Knock,
    error::{Error, Result},
    grant::{Resources, Wish},
    link::{Application, Granted, prepare, start_all},
    message::{Secret, Start},
};
use std::{
    env, fmt, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};
use uuid::Uuid;
use voxelflow_sync::network::ClusterKey;

/// What to start, and where.
#[derive(Debug)]
pub struct NodesConfig {
    /// Addresses of agents, see [`agents`](super::agents).
    pub agents: Vec<String>,
    /// The key that the agents have.
    pub key: ClusterKey,
    /// The application's name, for people.
    pub name: String,
    /// The program that is to run there, a build of this program.
    pub program: PathBuf,
    /// Its BLAKE3 hash.
    pub hash: String,
    /// What of every machine.
    pub wish: Wish,
}

/// A scheduler and executors of this application on the machines of agents. They end when this is dropped, and
/// also when this process ends in any other way.
pub struct Nodes {
    scheduler: SocketAddr,
    key: ClusterKey,
    key_file: PathBuf,
    granted: Vec<Granted>,
    watch: Arc<Watch>,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nodes(scheduler {}, executors {:?})", self.scheduler, self.granted)
    }
}

/// What the threads that look after processes share.
#[derive(Debug, Default)]
pub(super) struct Watch {
    state: Mutex<WatchState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WatchState {
    stop: bool,
    failures: Vec<String>,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn fail(&self, failure: String) {
        log::error!("{failure}");
        self.lock().failures.push(failure);
    }

    /// Waits for `time`, or until it is to stop: true then.
    pub fn stops_within(&self, time: Duration) -> bool {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, time, |state| !state.stop);
        waited.unwrap_or_else(PoisonError::into_inner).0.stop
    }
}

impl Nodes {
    /// Brings the program to every agent, takes a share there, and starts its scheduler and executors. Blocks
    /// until they are ready.
    ///
    /// # Errors
    /// An agent that cannot be reached, has another key, refuses, or whose part of the application does not
    /// start. What was started ends.
    pub fn start(config: NodesConfig) -> Result<Self> {
        let application =
            Application { id: Uuid::new_v4(), name: config.name, knock: Arc::new(Knock::new(&config.key)?) };
        let key = ClusterKey::generate()?;
        let folder = env::temp_dir().join(format!("voxelflow-application-{}", application.id));
        own_folder(&folder)?;
        let started = (|| {
            let key_file = folder.join("key");
            key.write(&key_file)?;
            let text = fs::read_to_string(&key_file).map_err(|e| Error::file(&key_file, e))?;
            let start = |role| Start {
                binary: config.hash.clone(),
                role,
                key: Secret(text.clone()),
                folder: env::current_dir().ok(),
            };
            let (mut links, granted) =
                prepare(&application, &config.agents, &config.program, &config.hash, config.wish)?;
            let scheduler = start_all(&mut links, &start)?;
            Ok((key_file, links, granted, scheduler))
        })();
        let (key_file, links, granted, scheduler) = match started {
            Ok(started) => started,
            Err(e) => {
                // The failure that led here is the one to tell.
                drop(fs::remove_dir_all(&folder));
                return Err(e);
            }
        };
        let mut nodes =
            Self { scheduler, key, key_file, granted, watch: Arc::default(), threads: Vec::new() };
        for link in links {
            let watch = Arc::clone(&nodes.watch);
            let name = format!("agent {}", link.agent);
            let started = thread::Builder::new().name(name.clone()).spawn(move || link.look_after(&watch));
            nodes.threads.push(started.map_err(Error::io(&name, "starting the thread that looks after it"))?);
        }
        Ok(nodes)
    }

    /// Where the application's scheduler is.
    pub fn scheduler(&self) -> SocketAddr {
        self.scheduler
    }

    /// The application's own key.
    pub fn key(&self) -> &ClusterKey {
        &self.key
    }

    /// The file of the application's own key, while this lives.
    pub fn key_file(&self) -> &Path {
        &self.key_file
    }

    /// What each agent granted.
    pub fn granted(&self) -> &[(String, Resources)] {
        &self.granted
    }

    /// What went wrong since the start: a part that ended, an agent that is gone; the first one first.
    pub fn failures(&self) -> Vec<String> {
        self.watch.lock().failures.clone()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.watch.lock().stop = true;
        self.watch.changed.notify_all();
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
        if let Some(folder) = self.key_file.parent() {
            drop(fs::remove_dir_all(folder));
        }
    }
}
