//! What can be heard on the wire, by the script `sniff.py` beside this file.

use crate::network::Network;
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdout, Command, Stdio},
};

/// A name that the script itself says, to know that it hears.
const SAID_ALOUD: &str = "said-aloud-on-purpose";

/// Hears everything that passes in a namespace, on its interface to the outside and on its loopback interface.
pub struct Sniffer {
    child: Child,
    output: BufReader<ChildStdout>,
}

#[derive(Debug, Deserialize)]
struct Heard {
    packets: u64,
    dropped: u64,
    heard: BTreeMap<String, u64>,
}

impl Sniffer {
    /// Listens for these names.
    pub fn start(network: &Network, names: &[&str]) -> Self {
        let mut script = Command::new("python3");
        script
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/strangers/sniff.py"))
            .args(names)
            .arg(SAID_ALOUD);
        let mut command = network.inside(&script);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "listening");
        Self { child, output }
    }

    /// Fails if it has heard one of the names, or has missed anything.
    #[track_caller]
    pub fn has_heard_nothing(mut self) {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        let mut heard: Heard = serde_json::from_str(&text).unwrap_or_else(|e| panic!("`{text}`: {e}"));
        assert!(heard.heard.remove(SAID_ALOUD) > Some(0), "it does not hear: {heard:?}");
        assert_eq!(heard.dropped, 0, "it has missed something: {heard:?}");
        assert!(heard.heard.values().all(|times| *times == 0), "{heard:?}");
        assert!(heard.packets > 100, "nobody has said much: {heard:?}");
    }
}

impl Drop for Sniffer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
