//! A process that another one has started: it says when it is ready, and ends with the one that started it.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::{
    io::{Read, Write},
    thread,
};
use tokio::sync::oneshot;

/// What a child writes to its standard output, as one line, when others can reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Address of a scheduler, `host:port`, or id of an executor.
    pub ready: String,
}

/// Tells the parent that this process can be reached.
///
/// # Errors
/// A parent that does not listen.
pub fn report_ready(name: &str) -> Result<()> {
    let line = serde_json::to_string(&Ready { ready: name.to_owned() })
        .map_err(|e| Error::Ended { role: "process", reason: e.to_string() })?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(Error::io("telling the driver"))
}

/// Ends when the parent has: it holds the other end of the standard input, and says nothing.
pub async fn parent_gone() {
    let (tell, told) = oneshot::channel();
    let listen = move || {
        let mut input = std::io::stdin().lock();
        let mut buffer = [0; 64];
        while matches!(input.read(&mut buffer), Ok(1..)) {}
        // Nobody listens when the process ends by itself.
        tell.send(()).ok();
    };
    match thread::Builder::new().name("parent".into()).spawn(listen) {
        Ok(_) => {
            told.await.ok();
        }
        Err(e) => {
            log::error!("whether the driver lives cannot be watched ({e}): ending now");
        }
    }
}
