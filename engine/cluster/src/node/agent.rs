//! The agent of one machine: who is let in, what they are given, and what becomes of it when they go.

use super::{
    application::{Application, Presence},
    binary_cache::{BinaryCache, BinaryStore},
    channel::Channel,
    error::{Error, Result},
    grant::{Ledger, Resources},
    message::{PROTOCOL, Reply, Request},
};
use std::{
    collections::{BTreeMap, HashMap},
    fmt, fs, io,
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use uuid::Uuid;
use voxelflow_sync::network::{ClusterKey, Token};

/// Connections at once.
const CONNECTIONS: usize = 64;
/// Largest program.
const LARGEST: u64 = 8 << 30;

/// What an agent has and whom it serves.
pub struct AgentConfig {
    /// Where it listens; also the address under which what it starts is reached, so no wildcard.
    pub listen: SocketAddr,
    /// What it may give to applications.
    pub capacity: Resources,
    /// Who has this key is served.
    pub key: ClusterKey,
    /// Programs and applications' folders.
    pub work_dir: PathBuf,
    /// Where programs are looked for before drivers are asked for them.
    pub store: Option<Box<dyn BinaryStore>>,
    /// How long an application lives on when its driver cannot be reached.
    pub grace: Duration,
    /// What it starts may listen on a public address.
    pub public: bool,
}

impl fmt::Debug for AgentConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { listen, capacity, work_dir, grace, .. } = self;
        write!(f, "AgentConfig({listen}, {capacity}, {}, grace {grace:?})", work_dir.display())
    }
}

/// Serves drivers until it is dropped; then everything that it has started ends.
#[derive(Debug)]
pub struct Agent {
    shared: Arc<Shared>,
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    config: AgentConfig,
    cache: BinaryCache,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    ledger: Ledger,
    applications: BTreeMap<Uuid, Entry>,
    connections: HashMap<u64, TcpStream>,
    next: u64,
    stopping: bool,
}

/// An application as all threads see it; its body belongs to the thread of its connection.
#[derive(Clone, Debug)]
struct Entry {
    presence: Presence,
    token: Token,
    body: Arc<Mutex<Application>>,
}

impl Agent {
    /// Listens and serves, on threads of its own.
    ///
    /// # Errors
    /// An address that is a wildcard or cannot be bound, a folder that cannot be written.
    pub fn start(config: AgentConfig) -> Result<Self> {
        let listen = config.listen;
        let failed = Error::io(&listen.to_string(), "listening");
        if listen.ip().is_unspecified() {
            let reason = "give the machine's own address: what is started here is reached under it";
            return Err(Error::connection(&listen.to_string(), "listening", reason));
        }
        let cache = BinaryCache::open(config.work_dir.join("programs"))?;
        // What an agent that was killed has left; its processes have ended with it.
        match fs::remove_dir_all(config.work_dir.join(APPLICATIONS)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::file(&config.work_dir, e)),
            _ => {}
        }
        let listener = TcpListener::bind(listen).map_err(&failed)?;
        let address = listener.local_addr().map_err(&failed)?;
        let state = State {
            ledger: Ledger::new(config.capacity),
            applications: BTreeMap::new(),
            connections: HashMap::new(),
            next: 0,
            stopping: false,
        };
        let shared = Arc::new(Shared { config, cache, state: Mutex::new(state), changed: Condvar::new() });
        let (accepting, watching) = (Arc::clone(&shared), Arc::clone(&shared));
        let thread = |name: &str, work: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.into()).spawn(work).map_err(&failed)
        };
        let mut agent = Self { shared, address, threads: Vec::new() };
        agent.threads.push(thread("absent drivers", Box::new(move || watching.end_the_abandoned()))?);
        agent.threads.push(thread("accept", Box::new(move || accept(&listener, &accepting)))?);
        Ok(agent)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state();
            state.stopping = true;
            for socket in state.connections.values() {
                // It may be closed already.
                drop(socket.shutdown(Shutdown::Both));
            }
        }
        self.shared.changed.notify_all();
        // Wakes the thread that waits for connections.
        drop(TcpStream::connect_timeout(&self.address, Duration::from_secs(5)));
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
        let applications = std::mem::take(&mut self.shared.state().applications);
        drop(applications);
    }
}

const APPLICATIONS: &str = "applications";

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut visits: Vec<JoinHandle<()>> = Vec::new();
    loop {
        let accepted = listener.accept();
        visits.retain(|visit| !visit.is_finished());
        if shared.state().stopping {
            break;
        }
        let started = accepted.and_then(|(socket, from)| {
            let Some(number) = shared.enter(&socket)? else {
                return Err(io::Error::other(format!("{CONNECTIONS} connections are open")));
            };
            let inside = Arc::clone(shared);
            let visit = move || {
                if let Err(e) = inside.serve(socket, &from.to_string(), number) {
                    log::warn!("{e}");
                }
                inside.state().connections.remove(&number);
            };
            thread::Builder::new().name(format!("driver at {from}")).spawn(visit)
        });
        match started {
            Ok(visit) => visits.push(visit),
            Err(e) => {
                log::warn!("a connection was not taken: {e}");
                // Out of file handles, mostly: gives way until others have ended, or the agent does.
                drop(shared.changed.wait_timeout(shared.state(), Duration::from_millis(100)));
            }
        }
    }
    for visit in visits {
        drop(visit.join());
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The longest silence of a driver that is there: it asks every second.
    fn silence(&self) -> Duration {
        self.config.grace.max(Duration::from_secs(15))
    }

    /// A number for a connection; none when there are too many.
    fn enter(&self, socket: &TcpStream) -> io::Result<Option<u64>> {
        let handle = socket.try_clone()?;
        let mut state = self.state();
        if state.connections.len() >= CONNECTIONS {
            return Ok(None);
        }
        state.next += 1;
        let number = state.next;
        state.connections.insert(number, handle);
        Ok(Some(number))
    }

    /// Ends applications whose drivers have been away for too long.
    fn end_the_abandoned(&self) {
        let mut state = self.state();
        while !state.stopping {
            let (now, grace) = (Instant::now(), self.config.grace);
            let over = state.applications.iter().filter(|(_, entry)| entry.presence.is_over(now, grace));
            let gone: Vec<Uuid> = over.map(|(id, _)| *id).collect();
            drop(state);
            for id in gone {
                log::warn!(
                    "application {id}: its driver has been away for {grace:?}; its processes are ended"
                );
                self.end(id);
            }
            let wait = self.changed.wait_timeout(self.state(), Duration::from_millis(200));
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// One connection of a driver.
    fn serve(&self, socket: TcpStream, from: &str, number: u64) -> Result<()> {
        let (mut channel, token) = Channel::accept(socket, from, &self.config.key, self.silence())?;
        let hello = channel.receive::<Request>()?;
        let entered = match hello {
            Some(Request::Hello { protocol: PROTOCOL, application, name }) => {
                let id = Uuid::from_u128(application);
                self.attach(id, token, number).map(|body| (id, name, body))
            }
            Some(Request::Hello { protocol, .. }) => {
                Err(format!("it speaks protocol {PROTOCOL}, the driver {protocol}: use the same release"))
            }
            _ => Err("a driver begins with its hello".to_owned()),
        };
        let (id, name, body) = match entered {
            Ok(entered) => entered,
            Err(reason) => return channel.send(&Reply::Refused(reason)),
        };
        log::info!("application {id} ({name}) from {from}");
        let conversation = self.converse(&mut channel, id, &body);
        drop(body);
        self.detach(id, number);
        conversation
    }

    fn converse(&self, channel: &mut Channel, id: Uuid, body: &Mutex<Application>) -> Result<()> {
        let left = self.state().ledger.left();
        channel.send(&Reply::Welcome { left })?;
        while let Some(request) = channel.receive::<Request>()? {
            if request == Request::End {
                self.end(id);
                log::info!("application {id} has ended");
                return channel.send(&Reply::Ended);
            }
            let reply = self.answer(channel, id, body, request)?;
            channel.send(&reply)?;
        }
        Ok(())
    }

    /// The answer to a request. An error ends the connection.
    fn answer(
        &self,
        channel: &mut Channel,
        id: Uuid,
        body: &Mutex<Application>,
        request: Request,
    ) -> Result<Reply> {
        Ok(match request {
            Request::Have { binary } => match self.find(&binary) {
                Ok(found) => Reply::Have(found.is_some()),
                Err(e) => Reply::Refused(e.to_string()),
            },
            Request::Send { binary, bytes } => self.take(channel, &binary, bytes)?,
            Request::Want { wish } => match self.state().ledger.grant(id, wish) {
                Ok(grant) => {
                    log::info!("application {id} was granted {}", grant.resources);
                    lock(body).set_grant(grant.clone());
                    Reply::Granted(grant)
                }
                Err(refusal) => Reply::Refused(refusal.to_string()),
            },
            Request::Start(start) => match self.cache.find(&start.binary) {
                Ok(Some(program)) => {
                    let stop = || self.state().stopping;
                    let address = self.address();
                    match lock(body).start(&start, &program, address, self.config.public, &stop) {
                        Ok(ready) => Reply::Started { ready },
                        Err(e) => Reply::Refused(e.to_string()),
                    }
                }
                Ok(None) => Reply::Refused("the program was not sent before it was to be started".into()),
                Err(e) => Reply::Refused(e.to_string()),
            },
            Request::Watch => Reply::Processes(lock(body).report()),
            Request::Hello { .. } | Request::End => Reply::Refused("it has said so already".into()),
        })
    }

    fn address(&self) -> IpAddr {
        self.config.listen.ip()
    }

    /// The program in the cache, or fetched from the store.
    fn find(&self, hash: &str) -> Result<Option<PathBuf>> {
        if let Some(found) = self.cache.find(hash)? {
            return Ok(Some(found));
        }
        let Some(store) = &self.config.store else { return Ok(None) };
        // What the store has wrong, the driver has right.
        self.cache.take(hash, |into| store.fetch(hash, into)).or_else(|e| {
            log::warn!("not taken from the store: {e}");
            Ok(None)
        })
    }

    /// Takes the program that follows.
    fn take(&self, channel: &mut Channel, hash: &str, bytes: u64) -> Result<Reply> {
        if bytes > LARGEST {
            let reason = format!("a program of {bytes} bytes, of at most {LARGEST}");
            return Err(Error::file(&self.config.work_dir, reason));
        }
        let mut left = bytes;
        let taken = self.cache.take(hash, |into| {
            while left > 0 {
                let chunk = channel.receive_chunk()?;
                left = left.checked_sub(chunk.len() as u64).ok_or(io::ErrorKind::InvalidData)?;
                into.write_all(&chunk)?;
            }
            Ok(true)
        });
        match taken {
            Ok(program) => {
                if let (Some(store), Some(program)) = (&self.config.store, &program)
                    && let Err(e) = store.keep(hash, program)
                {
                    log::warn!("the program is not kept for others: {e}");
                }
                Ok(Reply::Taken)
            }
            // All of it came, and is refused; else what follows on the connection cannot be told apart.
            Err(e) if left == 0 => Ok(Reply::Refused(e.to_string())),
            Err(e) => Err(e),
        }
    }

    /// The application's body, for the one connection of its driver.
    fn attach(&self, id: Uuid, token: Token, number: u64) -> Result<Arc<Mutex<Application>>, String> {
        let mut state = self.state();
        if let Some(entry) = state.applications.get_mut(&id) {
            if !entry.token.admits(&token) {
                return Err("the application is another driver's".to_owned());
            }
            entry.presence = Presence::Here(number);
            return Ok(Arc::clone(&entry.body));
        }
        let folder = self.config.work_dir.join(APPLICATIONS).join(id.to_string());
        let body = Application::open(folder).map_err(|e| e.to_string())?;
        let body = Arc::new(Mutex::new(body));
        let entry = Entry { presence: Presence::Here(number), token, body: Arc::clone(&body) };
        state.applications.insert(id, entry);
        Ok(body)
    }

    /// Connection `number` has ended. An application that has nothing ends with it.
    fn detach(&self, id: Uuid, number: u64) {
        let mut state = self.state();
        let Some(entry) = state.applications.get_mut(&id) else { return };
        entry.presence.lose(number, Instant::now());
        let lost = matches!(entry.presence, Presence::AwaySince(_));
        let empty = entry.body.try_lock().is_ok_and(|body| body.is_empty());
        drop(state);
        if lost && empty {
            self.end(id);
        }
        self.changed.notify_all();
    }

    /// Ends an application. Its share is free when its processes are gone.
    fn end(&self, id: Uuid) {
        let entry = self.state().applications.remove(&id);
        if let Some(entry) = entry {
            lock(&entry.body).end();
            self.state().ledger.release(id);
        }
    }
}

fn lock(body: &Mutex<Application>) -> MutexGuard<'_, Application> {
    body.lock().unwrap_or_else(PoisonError::into_inner)
}
