//! `voxelflow node`: the agent of this machine, which runs driver programs' own schedulers and executors.

use crate::{Error, Result, flags::NodeFlags};
use datafusion::object_store::{Error as StoreError, ObjectStoreExt, WriteMultipart};
use futures::StreamExt;
use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
    time::Duration,
};
use tokio::{
    runtime::Handle,
    signal::unix::{SignalKind, signal},
};
use voxelflow_cluster::node::{Agent, AgentConfig, BinaryStore, Resources};
use voxelflow_dataset::memory_of_process;
use voxelflow_storage::{Location, StoreRegistry};
use voxelflow_sync::network::ClusterKey;

/// Bytes of a program that are handed to the store at once.
const PIECE: usize = 8 << 20;
/// Pieces that may be on their way to the store.
const PIECES: usize = 4;

pub(super) async fn node(flags: NodeFlags) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let capacity = Resources {
        cores: flags.cores.unwrap_or(cores),
        memory_mib: flags.memory_mib.unwrap_or_else(three_quarters_of_memory),
        cards: flags.cards,
    };
    voxelflow_cluster::check_bind(flags.listen.ip(), flags.public)?;
    let config = AgentConfig {
        listen: flags.listen,
        capacity,
        key: ClusterKey::read(&flags.cluster_key).map_err(|e| Error::input("--cluster-key", e))?,
        work_dir: std::path::absolute(&flags.work_dir).map_err(|e| Error::io(&flags.work_dir, e))?,
        store: flags.store.as_deref().map(StoredPrograms::open).transpose()?,
        grace: Duration::from_secs(flags.grace_seconds),
        public: flags.public,
    };
    // Signals are taken before anything is started that would have to be ended.
    let failed = |e| Error::io(Path::new("signals"), e);
    let mut terminated = signal(SignalKind::terminate()).map_err(failed)?;
    let agent = Agent::start(config).map_err(voxelflow_cluster::Error::from)?;
    say!("agent ready at {}: {capacity}", agent.address());
    tokio::select! {
        _ = terminated.recv() => {}
        ended = tokio::signal::ctrl_c() => ended.map_err(failed)?,
    }
    // It waits for what it ends, so not on a thread of the runtime.
    let ended = tokio::task::spawn_blocking(move || drop(agent)).await;
    ended.map_err(|e| Error::io(Path::new("agent"), e.into()))
}

/// Three quarters of what this process may have where the system says how much that is, else 2 GiB; in MiB.
fn three_quarters_of_memory() -> usize {
    let mib = memory_of_process().and_then(|bytes| usize::try_from(bytes >> 20).ok());
    mib.map_or(2048, |mib| mib * 3 / 4)
}

/// Programs in a folder or object store, by their hash. Called from the agent's own threads.
struct StoredPrograms {
    folder: Location,
    runtime: Handle,
}

impl StoredPrograms {
    fn open(location: &str) -> Result<Box<dyn BinaryStore>> {
        let folder = StoreRegistry::global().resolve(location)?;
        Ok(Box::new(Self { folder, runtime: Handle::current() }))
    }
}

impl BinaryStore for StoredPrograms {
    fn fetch(&self, hash: &str, into: &mut dyn Write) -> io::Result<bool> {
        let Location { store, path, .. } = &self.folder;
        self.runtime.block_on(async {
            let found = match store.get(&path.clone().join(hash)).await {
                Err(StoreError::NotFound { .. }) => return Ok(false),
                found => found.map_err(io::Error::other)?,
            };
            let mut pieces = found.into_stream();
            while let Some(piece) = pieces.next().await {
                into.write_all(&piece.map_err(io::Error::other)?)?;
            }
            Ok(true)
        })
    }

    fn keep(&self, hash: &str, program: &Path) -> io::Result<()> {
        let Location { store, path, .. } = &self.folder;
        let mut file = File::open(program)?;
        self.runtime.block_on(async {
            let upload = store.put_multipart(&path.clone().join(hash)).await.map_err(io::Error::other)?;
            let mut upload = WriteMultipart::new_with_chunk_size(upload, PIECE);
            let mut piece = vec![0; PIECE];
            loop {
                let read = file.read(&mut piece)?;
                if read == 0 {
                    break;
                }
                upload.wait_for_capacity(PIECES).await.map_err(io::Error::other)?;
                upload.write(&piece[..read]);
            }
            upload.finish().await.map(drop).map_err(io::Error::other)
        })
    }
}
