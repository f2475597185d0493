//! Log lines on their way to the scheduler: what the tasks of this process write is sent as it comes.

use super::{client::ControlClient, log_store::LogStore, messages::LogPush};
use std::{sync::Arc, time::Duration};
use voxelflow_dataset::log_tail::{LogLine, line_after, lines_after};

/// Lines of one message.
const LINES: usize = 500;

/// Between attempts, when the scheduler does not answer.
const PAUSE: Duration = Duration::from_secs(2);

/// Lines that tasks wrote, from a place in this process's log on.
struct TaskLines {
    next: u64,
}

impl TaskLines {
    /// Waits for the next lines of tasks.
    async fn wait(&mut self) -> Vec<LogLine> {
        loop {
            line_after(self.next).await;
            let (mut lines, next) = lines_after(self.next);
            self.next = next;
            lines.retain(|line| !line.job().is_empty());
            if !lines.is_empty() {
                return lines;
            }
        }
    }
}

/// Sends what the tasks of this process, the executor `process`, write, for as long as it is polled. Lines that
/// cannot be sent are sent later, as many as fit into a message.
pub async fn push_logs(client: ControlClient, process: String) {
    let mut tasks = TaskLines { next: 0 };
    let mut unsent: Vec<LogLine> = Vec::new();
    loop {
        unsent.extend(tasks.wait().await);
        let dropped = unsent.len().saturating_sub(LINES);
        unsent.drain(..dropped);
        let push = LogPush { process: process.clone(), lines: unsent.clone() };
        match client.push_logs(push).await {
            Ok(()) => unsent.clear(),
            Err(e) => {
                log::debug!("log lines wait: {e}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Keeps what this process itself, the scheduler, writes about jobs.
pub(super) async fn keep_own(store: Arc<LogStore>) {
    let mut tasks = TaskLines { next: 0 };
    loop {
        let lines = tasks.wait().await;
        store.add("scheduler", lines);
    }
}
