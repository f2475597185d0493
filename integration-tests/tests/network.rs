//! A network of the test's own: a bridge with a network namespace behind it, which can be cut off.
//!
//! ```text
//!   this machine ── bridge ── port ══ inside (in the namespace)
//!      here                               there
//! ```

use std::{
    io::Write,
    process::{self, Command},
    sync::atomic::{AtomicU32, Ordering},
};

/// A bridge with a namespace behind it; both are gone when it is dropped.
#[derive(Debug)]
pub struct Network {
    bridge: String,
    port: String,
    /// The namespace's name.
    pub namespace: String,
    /// This machine's address on the bridge.
    pub here: String,
    /// The address inside the namespace.
    pub there: String,
}

/// Networks that this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

impl Network {
    /// Nothing, said aloud, where such things may not be made. In CI that is a failure.
    pub fn build() -> Option<Self> {
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let subnet = format!("10.213.{}", (process::id() + made) % 250);
        // Names of interfaces have 15 letters at most.
        let id = format!("{:x}n{made}", process::id());
        let network = Self {
            bridge: format!("vfb{id}"),
            port: format!("vfp{id}"),
            namespace: format!("vf{id}"),
            here: format!("{subnet}.1"),
            there: format!("{subnet}.2"),
        };
        match network.make() {
            Ok(()) => Some(network),
            Err(reason) => {
                skip("network namespaces", &reason);
                None
            }
        }
    }

    fn make(&self) -> Result<(), String> {
        let Self { bridge, port, namespace, here, there } = self;
        let (here, there) = (format!("{here}/24"), format!("{there}/24"));
        ip(&["netns", "add", namespace])?;
        ip(&["link", "add", bridge, "type", "bridge"])?;
        ip(&["addr", "add", &here, "dev", bridge])?;
        ip(&["link", "set", bridge, "up"])?;
        ip(&["link", "add", port, "type", "veth", "peer", "name", "inside", "netns", namespace])?;
        ip(&["link", "set", port, "master", bridge])?;
        ip(&["-n", namespace, "addr", "add", &there, "dev", "inside"])?;
        ip(&["-n", namespace, "link", "set", "inside", "up"])?;
        ip(&["-n", namespace, "link", "set", "lo", "up"])?;
        ip(&["link", "set", port, "up"])
    }

    /// `command` inside the namespace.
    pub fn inside(&self, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.namespace]).arg(command.get_program()).args(command.get_args());
        if let Some(folder) = command.get_current_dir() {
            inside.current_dir(folder);
        }
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }

    /// Takes the namespace off the network.
    pub fn cut(&self) {
        ip(&["link", "set", &self.port, "down"]).unwrap();
    }

    /// Puts it back.
    pub fn mend(&self) {
        ip(&["link", "set", &self.port, "up"]).unwrap();
    }
}

/// Says aloud that a test is skipped for want of something. In CI that is a failure.
pub fn skip(needs: &str, reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "CI needs {needs}: {reason}");
    // Past the test harness, which shows what is printed for failures only.
    let _ = std::io::stderr().write_all(format!("SKIPPED for want of {needs}: {reason}\n").as_bytes());
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = ip(&["netns", "del", &self.namespace]);
        let _ = ip(&["link", "del", &self.bridge]);
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let ended = Command::new("ip").args(arguments).output().map_err(|e| format!("ip: {e}"))?;
    let said = String::from_utf8_lossy(&ended.stderr);
    ended.status.success().then_some(()).ok_or_else(|| format!("ip {}: {}", arguments.join(" "), said.trim()))
}
