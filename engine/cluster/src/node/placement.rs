//! `nodes://host:port,host:port`: where agents are, and what of an application runs on which. Pure.

use super::error::{Error, Result};

/// Scheme of the location of agents.
pub const SCHEME: &str = "nodes://";

/// The addresses in `nodes://host:port,host:port`.
///
/// # Errors
/// Another scheme, no address, an address without a port, one address twice.
pub fn agents(location: &str) -> Result<Vec<String>> {
    let invalid = |reason: &str| Error::Location { location: location.to_owned(), reason: reason.to_owned() };
    let list = location.strip_prefix(SCHEME).ok_or_else(|| invalid("it begins with nodes://"))?;
    let mut found: Vec<String> = Vec::new();
    for address in list.trim_end_matches('/').split(',') {
        let address = address.trim();
        let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        if port.is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
            return Err(invalid(&format!(
                "`{address}` is not host:port, as in nodes://node-1:50060,node-2:50060"
            )));
        }
        if found.iter().any(|known| known == address) {
            return Err(invalid(&format!(
                "`{address}` is there twice: an agent runs one executor for an application"
            )));
        }
        found.push(address.to_owned());
    }
    Ok(found)
}

/// What an agent is to start, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// The agent, by its place in the list.
    pub agent: usize,
    pub runs: Runs,
}

/// What one agent runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runs {
    Scheduler,
    Executor,
}

/// The first agent runs the scheduler, and all run an executor.
pub(crate) fn place(agents: usize) -> Vec<Placement> {
    let scheduler = (0..agents).take(1).map(|agent| Placement { agent, runs: Runs::Scheduler });
    let executors = (0..agents).map(|agent| Placement { agent, runs: Runs::Executor });
    scheduler.chain(executors).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_have_hosts_and_ports() {
        assert_eq!(agents("nodes://a:1, 10.0.0.2:50060/").unwrap(), ["a:1", "10.0.0.2:50060"]);
        assert_eq!(agents("nodes://[::1]:7").unwrap(), ["[::1]:7"]);
        for (wrong, says) in [
            ("df://a:1", "begins with nodes://"),
            ("nodes://", "host:port"),
            ("nodes://a", "host:port"),
            ("nodes://a:1,b:x", "`b:x`"),
            ("nodes://a:1,:2", "`:2`"),
            ("nodes://a:1,a:1", "twice"),
            ("nodes://a:70000", "host:port"),
        ] {
            let error = agents(wrong).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn the_scheduler_is_on_the_first_agent_and_starts_before_the_executors() {
        let all = place(3);
        assert_eq!(all[0], Placement { agent: 0, runs: Runs::Scheduler });
        let executors: Vec<usize> = all[1..].iter().map(|p| p.agent).collect();
        assert!(all[1..].iter().all(|p| p.runs == Runs::Executor));
        assert_eq!(executors, [0, 1, 2]);
    }

    proptest! {
        #[test]
        fn any_text_is_addresses_or_an_error(text in ".{0,40}") {
            drop(agents(&text));
            drop(agents(&format!("{SCHEME}{text}")));
        }
    }
}
