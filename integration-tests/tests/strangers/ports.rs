//! Where processes listen, by the kernel's own account: nothing that listens is overlooked.

use rustix::process::Pid;
use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

/// The state of a socket that listens, in `/proc/PID/net/tcp`.
const LISTEN: &str = "0A";

/// The addresses at which `process` listens.
pub fn listening(process: Pid) -> BTreeSet<SocketAddr> {
    let process = format!("/proc/{}", process.as_raw_nonzero());
    let open = fs::read_dir(format!("{process}/fd")).into_iter().flatten().flatten();
    let sockets: BTreeSet<String> = open
        .filter_map(|file| fs::read_link(file.path()).ok())
        .filter_map(|link| {
            let link = link.to_str()?.to_owned();
            Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    // Of the process's own network.
    let tables = ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("{process}/net/{table}")));
    let lines = tables.iter().flatten().flat_map(|table| table.lines().skip(1));
    lines
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, local, _, LISTEN, _, _, _, _, _, socket, ..] = words[..] else { return None };
            sockets.contains(socket).then(|| address(local)).flatten()
        })
        .collect()
}

/// `0100007F:1F90`: words of the address as this machine has them in memory, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        _ => {
            let bytes = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()
        }
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[test]
fn a_socket_that_listens_is_found() {
    let listeners = ["127.0.0.1:0", "[::1]:0"].map(|at| std::net::TcpListener::bind(at).unwrap());
    let found = listening(rustix::process::getpid());
    for listener in listeners {
        let address = listener.local_addr().unwrap();
        assert!(found.contains(&address), "{address} is not among {found:?}");
    }
}
