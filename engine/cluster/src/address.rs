//! Addresses: where a cluster is, and which of them strangers can reach.

use crate::error::{Error, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs, UdpSocket};
use url::Url;

/// Where a cluster's scheduler is: `df://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterAddress {
    host: String,
    port: u16,
}

impl ClusterAddress {
    /// The scheduler at `host`, `port`.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// Reads `df://host:port`.
    ///
    /// # Errors
    /// Another scheme, no host, no port, or more than these.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |reason: &str| Error::Address { address: text.to_owned(), reason: reason.to_owned() };
        let url = Url::parse(text).map_err(|e| wrong(&e.to_string()))?;
        if url.scheme() != "df" {
            return Err(wrong("its scheme is not df"));
        }
        let more = !url.username().is_empty() || url.password().is_some() || url.query().is_some();
        if more || !matches!(url.path(), "" | "/") {
            return Err(wrong("it has more than a host and a port"));
        }
        let host = url.host_str().filter(|h| !h.is_empty()).ok_or_else(|| wrong("it has no host"))?;
        Ok(Self::new(host, url.port().ok_or_else(|| wrong("it has no port"))?))
    }

    /// Its host.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// This machine's address on the way to it, under which its neighbours reach this process.
    pub(crate) fn local_address(&self) -> Option<IpAddr> {
        let host = self.host.trim_matches(['[', ']']);
        let to = (host, self.port).to_socket_addrs().ok()?.next()?;
        let from: IpAddr =
            if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((from, 0)).ok()?;
        // Nothing is sent: the system only says which of its addresses it would send from.
        socket.connect(to).ok()?;
        socket.local_addr().ok().map(|a| a.ip())
    }
}

impl std::fmt::Display for ClusterAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "df://{}:{}", self.host, self.port)
    }
}

/// Refuses an address that strangers can reach, unless `public` says that this is wanted.
///
/// # Errors
/// [`Error::Exposed`].
pub fn check_bind(address: IpAddr, public: bool) -> Result<()> {
    let what = match address {
        _ if public => return Ok(()),
        a if a.is_unspecified() => "every interface of this machine",
        a if is_private(a) => return Ok(()),
        _ => "a public address",
    };
    Err(Error::Exposed { address, what })
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let shared = v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64;
            v4.is_loopback() || v4.is_private() || v4.is_link_local() || shared
        }
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => is_private(v4.into()),
            None => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        let address = ClusterAddress::parse("df://scheduler.lab:50050").unwrap();
        assert_eq!((address.host(), address.port()), ("scheduler.lab", 50050));
        assert_eq!(address.to_string(), "df://scheduler.lab:50050");
        for (text, says) in [
            ("scheduler:50050", "scheme"),
            ("http://scheduler:50050", "scheme is not df"),
            ("df://scheduler", "no port"),
            ("df://:50050", "host"),
            ("df://me:secret@scheduler:50050", "more than a host"),
            ("df://scheduler:50050/path", "more than a host"),
        ] {
            let refusal = ClusterAddress::parse(text).unwrap_err();
            assert!(refusal.is_input() && refusal.to_string().contains(says), "{text}: {refusal}");
        }
    }

    #[test]
    fn what_strangers_reach_is_refused() {
        for fine in ["127.0.0.1", "10.1.2.3", "192.168.0.9", "172.20.0.1", "100.64.0.1", "::1", "fd00::1"] {
            assert!(check_bind(fine.parse().unwrap(), false).is_ok(), "{fine}");
        }
        for open in ["0.0.0.0", "::", "8.8.8.8", "2001:db8::1", "::ffff:8.8.8.8"] {
            let refusal = check_bind(open.parse().unwrap(), false).unwrap_err();
            assert!(refusal.to_string().contains("--public"), "{refusal}");
            assert!(check_bind(open.parse().unwrap(), true).is_ok(), "{open}");
        }
    }

    #[test]
    fn the_way_to_a_neighbour_starts_at_an_address_of_this_machine() {
        let here = ClusterAddress::new("127.0.0.1", 9).local_address();
        assert_eq!(here, Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(ClusterAddress::new("no.such.host.invalid", 9).local_address(), None);
    }
}
