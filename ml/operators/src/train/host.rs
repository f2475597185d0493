//! Where the driver and the ranks of a gang meet, within one process.

use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use voxelflow_sync::{GradientSync, SyncSettings, in_process_gang};

/// Hears what members report: the member, and the bytes that it sent.
pub(super) type OnReport = Arc<dyn Fn(usize, &[u8]) + Send + Sync>;

/// What a member needs to find its gang.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Invitation {
    gang: u64,
}

/// The driver's side; the gang is over when it is dropped.
pub(super) struct GangHost {
    invitation: Invitation,
    shared: Arc<Shared>,
}

/// A member's side.
pub(super) struct Membership {
    /// Agreement with the others.
    pub sync: Box<dyn GradientSync>,
    /// The way to the driver.
    pub line: Line,
    /// Set when the gang is to end.
    pub cancelled: Arc<AtomicBool>,
}

/// A member's way to the driver.
#[derive(Clone)]
pub(super) struct Line {
    member: usize,
    shared: Arc<Shared>,
}

struct Shared {
    places: Mutex<Vec<Option<Box<dyn GradientSync>>>>,
    cancelled: Arc<AtomicBool>,
    on_report: OnReport,
}

static GANGS: LazyLock<Mutex<HashMap<u64, Arc<Shared>>>> = LazyLock::new(Mutex::default);

fn gangs() -> MutexGuard<'static, HashMap<u64, Arc<Shared>>> {
    GANGS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GangHost {
    /// A gang of `ranks` that ends when `cancelled` is set.
    ///
    /// # Errors
    /// Settings that cannot work.
    pub fn start(
        settings: &SyncSettings,
        ranks: usize,
        on_report: OnReport,
        cancelled: &Arc<AtomicBool>,
    ) -> voxelflow_sync::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let places = in_process_gang(settings, ranks)?.into_iter().map(Some).collect();
        let shared =
            Arc::new(Shared { places: Mutex::new(places), cancelled: Arc::clone(cancelled), on_report });
        let gang = NEXT.fetch_add(1, Ordering::Relaxed);
        gangs().insert(gang, Arc::clone(&shared));
        Ok(Self { invitation: Invitation { gang }, shared })
    }

    /// What the members need to know.
    pub fn invitation(&self) -> &Invitation {
        &self.invitation
    }

    /// Ends the gang at the ranks' next steps.
    pub fn cancel(&self) {
        self.shared.cancelled.store(true, Ordering::Relaxed);
    }
}

impl Drop for GangHost {
    fn drop(&mut self) {
        gangs().remove(&self.invitation.gang);
    }
}

impl fmt::Debug for GangHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GangHost").field("invitation", &self.invitation).finish_non_exhaustive()
    }
}

/// Takes the place of `member`; nothing where the gang is over or the place taken.
pub(super) fn enter(invitation: &Invitation, member: usize) -> Option<Membership> {
    let shared = gangs().get(&invitation.gang).map(Arc::clone)?;
    let sync = shared.places.lock().unwrap_or_else(PoisonError::into_inner).get_mut(member)?.take()?;
    let cancelled = Arc::clone(&shared.cancelled);
    Some(Membership { sync, line: Line { member, shared }, cancelled })
}

impl Line {
    /// Sends `event` to the driver.
    pub fn report(&self, event: &[u8]) {
        (self.shared.on_report)(self.member, event);
    }
}
