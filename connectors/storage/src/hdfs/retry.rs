//! A cluster that has just started: its data nodes report their blocks late, and the name node refuses the next
//! block (`NotReplicatedYetException`). The Java client waits and asks again; `hdfs-native` does not, so writes
//! that can be repeated are.

use object_store::{Error, Result};
use std::{error::Error as _, time::Duration};

/// Waits between the attempts at a write, as the Java client has them.
const WAITS: [Duration; 5] = [
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1600),
    Duration::from_millis(3200),
    Duration::from_millis(6400),
];

/// Does `write` again as long as the data nodes are late, at most five times.
pub(super) async fn cold_writes<T, F>(write: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    again(WAITS, write).await
}

async fn again<T, F>(waits: [Duration; 5], mut write: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    for wait in waits {
        match write().await {
            Err(e) if is_cold(&e) => {
                log::debug!("the data nodes are late ({e}): the write is tried again in {wait:?}");
                tokio::time::sleep(wait).await;
            }
            done => return done,
        }
    }
    write().await
}

/// True for the answers of a cluster whose data nodes have not reported yet.
fn is_cold(e: &Error) -> bool {
    const COLD: [&str; 2] = ["NotReplicatedYetException", "could only be replicated to 0 nodes"];
    let mut cause: Option<&dyn std::error::Error> = e.source();
    while let Some(e) = cause {
        let text = e.to_string();
        if COLD.iter().any(|name| text.contains(name)) {
            return true;
        }
        cause = e.source();
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::cell::Cell;

    fn cold() -> Error {
        let text = "RPC error: org.apache.hadoop.hdfs.server.namenode.NotReplicatedYetException Not replicated yet: /x";
        Error::Generic { store: "hdfs", source: text.into() }
    }

    async fn attempts(answers: impl Fn(u32) -> Result<u32>) -> (u32, Result<u32>) {
        let tried = Cell::new(0);
        let done = again([Duration::ZERO; 5], || {
            tried.set(tried.get() + 1);
            std::future::ready(answers(tried.get()))
        })
        .await;
        (tried.get(), done)
    }

    #[tokio::test]
    async fn a_late_data_node_is_waited_for() {
        let (tried, done) = attempts(|n| if n < 3 { Err(cold()) } else { Ok(n) }).await;
        assert_eq!((tried, done.unwrap()), (3, 3));
    }

    #[tokio::test]
    async fn but_not_for_ever_and_nothing_else_is_tried_again() {
        let (tried, done) = attempts(|_| Err(cold())).await;
        assert_eq!((tried, done.is_err()), (6, true));
        let (tried, done) = attempts(|_| Err(Error::Generic { store: "hdfs", source: "no".into() })).await;
        assert_eq!((tried, done.is_err()), (1, true));
    }
}
