//! Takes connections: a thread waits for them, each has a thread of its own, and the end of the listener is the
//! end of them all.
//!
//! ```text
//!   accept ─► examine (TLS, Hello) ─► Visitors::arrived ─► Welcome ─► Visitors::serve … ─► Visitors::left
//! ```

use super::{handshake::Passport, stream::TensorStream};
use crate::{Error, Result};
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

/// What is done with members that connect. It must not own the [`Listener`], whose end waits for it.
pub trait Visitors: Send + Sync + 'static {
    /// `member` has shown that it belongs here; it does not know yet.
    ///
    /// # Errors
    /// Why it is not welcome all the same.
    fn arrived(&self, member: u32) -> Result<(), String>;
    /// It knows that it is welcome. Returns when its connection is of no more use.
    ///
    /// # Errors
    /// Why the connection is of no more use, unless the member has ended it in good order.
    fn serve(&self, member: u32, stream: &mut TensorStream) -> Result<()>;
    /// After [`Self::serve`], with its error.
    fn left(&self, member: u32, error: Option<Error>);
}

/// Connections at once: more are refused, so that a flood of strangers takes no more threads than these.
const CONNECTIONS: usize = 1024;

/// A bound address, until it is dropped.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepts: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stopping: bool,
    next: u64,
    connections: HashMap<u64, TcpStream>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for the connection; `None` when there are too many or the listener ends.
    fn enter(&self, socket: &TcpStream) -> Option<u64> {
        let handle = socket.try_clone().ok()?;
        let mut state = self.state();
        if state.stopping || state.connections.len() >= CONNECTIONS {
            return None;
        }
        state.next += 1;
        let number = state.next;
        state.connections.insert(number, handle);
        Some(number)
    }

    fn leave(&self, number: u64) {
        self.state().connections.remove(&number);
    }
}

impl Listener {
    /// Listens at a free port of `ip`.
    ///
    /// # Errors
    /// [`Error::Connection`] when the address cannot be bound.
    pub fn bind(ip: IpAddr, passport: Arc<Passport>, visitors: Arc<dyn Visitors>) -> Result<Self> {
        let failed = |e: std::io::Error| Error::Connection {
            peer: format!("the network at {ip}"),
            what: "listening",
            reason: e.to_string(),
        };
        let listener = TcpListener::bind((ip, 0)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared::default());
        let accept = {
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared, &passport, &visitors)
        };
        let name = format!("accept {}", address.port());
        let accepts = Some(thread::Builder::new().name(name).spawn(accept).map_err(failed)?);
        Ok(Self { address, shared, accepts })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state();
            state.stopping = true;
            for socket in state.connections.values() {
                let _ = socket.shutdown(std::net::Shutdown::Both);
            }
        }
        self.shared.changed.notify_all();
        // Wakes the thread that waits in `accept`.
        let loopback: IpAddr = match self.address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let ip = if self.address.ip().is_unspecified() { loopback } else { self.address.ip() };
        let woken = TcpStream::connect_timeout(&(ip, self.address.port()).into(), Duration::from_secs(5));
        if let (Ok(_), Some(accepts)) = (woken, self.accepts.take()) {
            let _ = accepts.join();
        }
    }
}

fn accept(
    listener: &TcpListener,
    shared: &Arc<Shared>,
    passport: &Arc<Passport>,
    visitors: &Arc<dyn Visitors>,
) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    loop {
        let accepted = listener.accept();
        if shared.state().stopping {
            break;
        }
        threads.retain(|thread| !thread.is_finished());
        match accepted {
            Ok((socket, from)) => {
                let Some(number) = shared.enter(&socket) else {
                    log::warn!("refused a connection from {from}: {CONNECTIONS} are open");
                    continue;
                };
                let (passport, visitors, inside) =
                    (Arc::clone(passport), Arc::clone(visitors), Arc::clone(shared));
                let visit = move || {
                    visit(socket, &passport, &*visitors);
                    inside.leave(number);
                };
                match thread::Builder::new().name(format!("from {from}")).spawn(visit) {
                    Ok(thread) => threads.push(thread),
                    Err(e) => {
                        shared.leave(number);
                        log::warn!("refused a connection from {from}: no thread for it: {e}");
                    }
                }
            }
            Err(e) => {
                log::warn!("no connection could be taken: {e}");
                // Out of file handles, mostly: others must end first. Gives way until then, or until the end.
                let _ = shared.changed.wait_timeout(shared.state(), Duration::from_millis(100));
            }
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
}

fn visit(socket: TcpStream, passport: &Passport, visitors: &dyn Visitors) {
    let (mut stream, member) = match passport.examine(socket) {
        Ok(examined) => examined,
        Err(error) => return log::warn!("refused a connection: {error}"),
    };
    if let Err(reason) = visitors.arrived(member) {
        passport.refuse(&mut stream, &reason);
        return;
    }
    let served = passport.welcome(&mut stream).and_then(|()| visitors.serve(member, &mut stream));
    stream.finish();
    visitors.left(member, served.err());
}
