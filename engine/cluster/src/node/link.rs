//! The driver's connection to one agent: what it brings, takes and starts there, and how it looks after it.

use super::{
    channel::{Channel, Knock},
    error::{Error, Result},
    grant::{Resources, Wish},
    message::{CHUNK, PROTOCOL, ProcessReport, Reply, Request, Role, Start},
    nodes::Watch,
    placement::{Placement, Runs, place},
};
use std::{
    fmt,
    fs::File,
    io::Read,
    net::SocketAddr,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use uuid::Uuid;

/// Longest silence of an agent: the start of a part takes its time.
const SILENCE: Duration = Duration::from_secs(90);
/// Longest wait for the farewell.
const FAREWELL: Duration = Duration::from_secs(10);
/// How often processes are looked after.
const EVERY: Duration = Duration::from_secs(1);
/// How long an agent is tried again that cannot be reached.
const AGAIN: Duration = Duration::from_secs(30);

/// An agent and what it granted.
pub(super) type Granted = (String, Resources);

/// What an agent knows an application by.
#[derive(Clone)]
pub(super) struct Application {
    pub id: Uuid,
    pub name: String,
    pub knock: Arc<Knock>,
}

/// The connection to one agent. Dropping it tells the agent that the application has ended.
pub(super) struct Link {
    pub agent: String,
    pub application: Application,
    pub channel: Option<Channel>,
    /// Parts that were started there.
    parts: Vec<String>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({}, {:?})", self.agent, self.parts)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let Some(mut channel) = self.channel.take() else { return };
        let said = channel.be_patient_for(FAREWELL).and_then(|()| channel.ask::<_, Reply>(&Request::End));
        if let Err(e) = said {
            log::warn!("the end of the application was not heard, so its processes end after a while: {e}");
        }
    }
}

/// Links to all agents, the program on their machines, a share of each.
pub(super) fn prepare(
    application: &Application,
    agents: &[String],
    program: &Path,
    hash: &str,
    wish: Wish,
) -> Result<(Vec<Link>, Vec<Granted>)> {
    let (mut links, mut granted) = (Vec::new(), Vec::new());
    for agent in agents {
        let mut link = Link::connect(agent, application)?;
        link.bring(program, hash)?;
        granted.push((agent.clone(), link.want(wish)?));
        links.push(link);
    }
    Ok((links, granted))
}

const STARTING: &str = "starting a part";

/// Starts the scheduler, then all executors side by side; gives the scheduler's address.
pub(super) fn start_all(links: &mut [Link], start: &(impl Fn(Role) -> Start + Sync)) -> Result<SocketAddr> {
    let placements = place(links.len());
    let mut scheduler = None;
    for Placement { agent, .. } in placements.iter().filter(|p| p.runs == Runs::Scheduler) {
        let ready = links[*agent].start(start(Role::Scheduler))?;
        let told = |_| Error::connection(&links[*agent].agent, STARTING, format!("`{ready}` is no address"));
        scheduler = Some(ready.parse().map_err(told)?);
    }
    let nowhere = || Error::Location { location: "nodes://".into(), reason: "it names no agent".into() };
    let scheduler = scheduler.ok_or_else(nowhere)?;
    let runs_executor = |agent: usize| placements.contains(&Placement { agent, runs: Runs::Executor });
    thread::scope(|scope| {
        let chosen = links.iter_mut().enumerate().filter(|(agent, _)| runs_executor(*agent));
        let starting: Vec<_> =
            chosen.map(|(_, link)| scope.spawn(|| link.start(start(Role::Executor { scheduler })))).collect();
        let mut outcome = Ok(scheduler);
        for executor in starting {
            match executor.join() {
                Ok(Ok(_)) => {}
                Ok(Err(e)) => outcome = Err(e),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        outcome
    })
}

impl Link {
    pub fn connect(agent: &str, application: &Application) -> Result<Self> {
        let mut link = Self {
            agent: agent.to_owned(),
            application: application.clone(),
            channel: None,
            parts: Vec::new(),
        };
        link.connect_again()?;
        Ok(link)
    }

    pub fn connect_again(&mut self) -> Result<()> {
        let Application { id, name, knock } = &self.application;
        let mut channel = Channel::connect(&self.agent, knock, SILENCE)?;
        let hello = Request::Hello { protocol: PROTOCOL, application: id.as_u128(), name: name.clone() };
        match channel.ask(&hello)? {
            Reply::Welcome { left } => log::info!("agent {} has {left} left", self.agent),
            other => return Err(self.unexpected("greeting it", other)),
        }
        self.channel = Some(channel);
        Ok(())
    }

    pub fn ask(&mut self, doing: &'static str, request: &Request) -> Result<Reply> {
        match &mut self.channel {
            Some(channel) => channel.ask(request),
            None => Err(Error::connection(&self.agent, doing, "it is not connected")),
        }
    }

    fn unexpected(&self, doing: &'static str, reply: Reply) -> Error {
        match reply {
            Reply::Refused(reason) => Error::Refused { agent: self.agent.clone(), reason },
            _ => Error::connection(&self.agent, doing, "it answers something else"),
        }
    }

    /// Sees to it that the agent has the program.
    fn bring(&mut self, program: &Path, hash: &str) -> Result<()> {
        const BRINGING: &str = "bringing the program";
        match self.ask(BRINGING, &Request::Have { binary: hash.to_owned() })? {
            Reply::Have(true) => return Ok(()),
            Reply::Have(false) => {}
            other => return Err(self.unexpected(BRINGING, other)),
        }
        let unread = |e| Error::file(program, e);
        let mut file = File::open(program).map_err(unread)?;
        let bytes = file.metadata().map_err(unread)?.len();
        log::info!("agent {} is sent the program, {} MiB", self.agent, bytes >> 20);
        let not_there = || Error::connection("", BRINGING, "it is not connected");
        let channel = self.channel.as_mut().ok_or_else(not_there)?;
        channel.send(&Request::Send { binary: hash.to_owned(), bytes })?;
        let (mut chunk, mut left) = (vec![0; CHUNK], bytes);
        while left > 0 {
            let piece = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            file.read_exact(&mut chunk[..piece]).map_err(unread)?;
            channel.send_chunk(&chunk[..piece])?;
            left -= piece as u64;
        }
        match channel.receive()? {
            Some(Reply::Taken) => Ok(()),
            Some(other) => Err(self.unexpected(BRINGING, other)),
            None => Err(Error::connection(&self.agent, BRINGING, "it ended the connection")),
        }
    }

    fn want(&mut self, wish: Wish) -> Result<Resources> {
        const WANTING: &str = "asking for a share";
        match self.ask(WANTING, &Request::Want { wish })? {
            Reply::Granted(grant) => Ok(grant.resources),
            other => Err(self.unexpected(WANTING, other)),
        }
    }

    fn start(&mut self, start: Start) -> Result<String> {
        let part = start.role.to_string();
        match self.ask(STARTING, &Request::Start(start))? {
            Reply::Started { ready } => {
                log::info!("agent {} runs the {part} {ready}", self.agent);
                self.parts.push(part);
                Ok(ready)
            }
            other => Err(self.unexpected(STARTING, other)),
        }
    }

    /// Asks after the processes until it is to stop, or one has failed.
    pub fn look_after(mut self, watch: &Watch) {
        let mut lost: Option<Instant> = None;
        while !watch.stops_within(EVERY) {
            let asked = match lost {
                Some(_) => self.connect_again().and_then(|()| self.ask("", &Request::Watch)),
                None => self.ask("asking after its processes", &Request::Watch),
            };
            match asked {
                Ok(Reply::Processes(reports)) => {
                    lost = None;
                    if let Some(failure) = self.judge(reports) {
                        return watch.fail(failure);
                    }
                }
                Ok(_) => {
                    return watch.fail(format!("agent {} answers something else than asked", self.agent));
                }
                Err(e) => {
                    log::warn!("{e}");
                    if lost.get_or_insert_with(Instant::now).elapsed() > AGAIN {
                        self.channel = None;
                        return watch.fail(format!("agent {} cannot be reached any more: {e}", self.agent));
                    }
                }
            }
        }
        // What they said last.
        if let Ok(Reply::Processes(reports)) = self.ask("asking after its processes", &Request::Watch) {
            self.judge(reports);
        }
    }

    /// Writes what the processes said into the log; what went wrong, if something did.
    fn judge(&self, reports: Vec<ProcessReport>) -> Option<String> {
        let agent = &self.agent;
        let mut failure = None;
        for part in &self.parts {
            if !reports.iter().any(|report| report.name == *part) {
                failure = Some(format!("agent {agent} has no {part} any more: was it started anew?"));
            }
        }
        for ProcessReport { name, ended, lines } in reports {
            lines.iter().for_each(|line| log::info!("{agent} {name}: {line}"));
            if let Some(how) = ended {
                let last = &lines[lines.len().saturating_sub(20)..];
                failure =
                    Some(format!("the {name} at {agent} ended: {how}; it said last:\n{}", last.join("\n")));
            }
        }
        failure
    }
}
