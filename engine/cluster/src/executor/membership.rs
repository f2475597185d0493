//! An executor as a member: it goes to the scheduler, registers, and does what it is told until its stream ends. Then
//! nothing that it has counts any more, so it stops all of it and comes again, under another name.

use super::tasks::{Tasks, Workshop};
use crate::{
    control::{
        ControlClient,
        messages::{ExecutorSays, Registration, SchedulerSays, Vitals},
    },
    error::Result,
};
use std::{fs, sync::Arc, time::Duration};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::Streaming;

/// Signs of life within the time after which an executor counts as lost.
const SIGNS: u32 = 4;

/// A member, from its welcome on.
pub(super) struct Membership {
    orders: Streaming<SchedulerSays>,
    tell: UnboundedSender<ExecutorSays>,
    silence: Duration,
}

/// Goes to the scheduler and registers.
///
/// # Errors
/// A scheduler that does not answer, or does not take it.
pub(super) async fn register(client: &ControlClient, registration: Registration) -> Result<Membership> {
    let (tell, says): (_, UnboundedReceiver<ExecutorSays>) = unbounded_channel();
    let id = registration.id.clone();
    // The stream that reads it is there.
    let _ = tell.send(ExecutorSays::Register(registration));
    let mut orders = client.attend(says).await?;
    match orders.message().await {
        Ok(Some(SchedulerSays::Welcome { silence_ms })) => {
            log::info!("executor {id} is a member of the cluster at {}", client.address());
            Ok(Membership { orders, tell, silence: Duration::from_millis(silence_ms) })
        }
        Ok(_) => {
            Err(client.failed(&tonic::Status::unavailable("the scheduler ended the registration")).into())
        }
        Err(status) => Err(client.failed(&status).into()),
    }
}

impl Membership {
    /// Does what it is told until the stream ends; gives why it ended. The scheduler that is silent has closed it, or is
    /// cut off, which the connection's own signs of life show.
    pub(super) async fn serve(mut self, workshop: Arc<Workshop>, executor: String) -> Result<String> {
        let tasks = Tasks::new(Arc::clone(&workshop), executor, self.tell.clone())?;
        let mut signs = tokio::time::interval(self.silence / SIGNS);
        signs.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut received = 0;
        loop {
            tokio::select! {
                order = self.orders.message() => match order {
                    Ok(Some(order)) => {
                        received += 1;
                        match order {
                            SchedulerSays::Run(task) => tasks.run(&task),
                            SchedulerSays::Forget { job } => tasks.forget(&job),
                            SchedulerSays::Welcome { .. } => {}
                        }
                    }
                    Ok(None) => return Ok("the scheduler has ended the membership".to_owned()),
                    Err(status) => return Ok(status.message().to_owned()),
                },
                _ = signs.tick() => {
                    let running = tasks.running();
                    let (sweeper, names) = (Arc::clone(&workshop), running.clone());
                    tokio::task::spawn_blocking(move || sweeper.sweep(&names));
                    let (memory_used_bytes, disk_free_bytes) = (resident_bytes(), workshop.free_bytes());
                    let vitals = Vitals { received, running, memory_used_bytes, disk_free_bytes };
                    if self.tell.send(ExecutorSays::Alive(vitals)).is_err() {
                        return Ok("the connection to the scheduler has ended".to_owned());
                    }
                }
            }
        }
    }
}

/// Memory of this process, in bytes; 0 where the system does not say.
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
