//! Why a stage was passed over, in words.

use super::cluster_view::Room;
use std::{fmt, time::Duration};

/// What a stage waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// How many slots at once.
    pub slots: u32,
    /// What each must have.
    pub each: Room,
    /// In which pool.
    pub pool: Option<String>,
}

/// Free slots that are kept for a gang until it fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The gang.
    pub gang: String,
    /// Its job.
    pub job: String,
    /// How many.
    pub slots: u32,
    /// Until it has waited so long.
    pub deadline: Option<Duration>,
}

/// Why a stage was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The cluster is too small for it, even when nothing else runs.
    TooSmall {
        /// What it waits for.
        need: Need,
        /// Slots of that kind that the cluster has in all.
        total: u32,
    },
    /// Others have what it needs.
    Busy {
        /// What it waits for.
        need: Need,
        /// Slots of that kind that are free.
        free: u32,
        /// Slots of that kind in all.
        total: u32,
        /// Jobs that run where it could.
        held_by: Vec<String>,
        /// Slots kept for gangs of others.
        kept: Vec<Hold>,
    },
    /// It needs more than its queue may have while other queues have work waiting.
    OverShare {
        /// What it waits for.
        need: Need,
        /// Its queue.
        queue: String,
        /// Slots that the queue may have now.
        share: u32,
        /// Slots of the cluster.
        total: u32,
        /// The other queues.
        others: Vec<String>,
    },
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.slots {
            1 => f.write_str("a slot")?,
            n => write!(f, "{n} slots")?,
        }
        let mut with = Vec::new();
        if self.each.memory_bytes > 0 {
            with.push(gib(self.each.memory_bytes));
        }
        match self.each.cards {
            0 => {}
            1 => with.push("a card".to_owned()),
            n => with.push(format!("{n} cards")),
        }
        if !with.is_empty() {
            write!(f, " with {}{}", with.join(" and "), if self.slots == 1 { "" } else { " each" })?;
        }
        match &self.pool {
            Some(pool) => write!(f, " in pool {pool}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall { need, total: 0 } => write!(f, "waits for {need}: no executor has any"),
            Self::TooSmall { need, total } => {
                write!(f, "waits for {need}: the cluster has {total} in all; add executors, or ask for fewer")
            }
            Self::Busy { need, free, total, held_by, kept } => {
                write!(f, "waits for {need}: {free} free of {total}")?;
                match &held_by[..] {
                    [] => {}
                    [job] => write!(f, ", held by job {job}")?,
                    jobs => write!(f, ", held by jobs {}", jobs.join(", "))?,
                }
                kept.iter().try_for_each(|hold| write!(f, "; {hold}"))
            }
            Self::OverShare { need, queue, share, total, others } => write!(
                f,
                "waits for {need}: queue {queue} may have {share} of {total} while {} work waiting",
                match &others[..] {
                    [other] => format!("queue {other} has"),
                    others => format!("queues {} have", others.join(", ")),
                }
            ),
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} kept for {} of job {}", self.slots, self.gang, self.job)?;
        match self.deadline {
            Some(deadline) => write!(f, ", which may wait {} s", deadline.as_secs_f64()),
            None => Ok(()),
        }
    }
}

/// Bytes as people write them.
fn gib(bytes: u64) -> String {
    match bytes as f64 / f64::from(1 << 30) {
        few if few < 1.0 => format!("{:.0} MiB", few * 1024.0),
        many => format!("{many:.1} GiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(slots: u32, each: Room, pool: Option<&str>) -> Need {
        Need { slots, each, pool: pool.map(str::to_owned) }
    }

    #[test]
    fn the_words_name_what_is_missing_and_who_has_it() {
        let busy = Reason::Busy {
            need: need(4, Room::SLOT, Some("gpu")),
            free: 3,
            total: 4,
            held_by: vec!["X".into()],
            kept: Vec::new(),
        };
        assert_eq!(busy.to_string(), "waits for 4 slots in pool gpu: 3 free of 4, held by job X");
        let hold =
            Hold { gang: "dca".into(), job: "Z".into(), slots: 3, deadline: Some(Duration::from_secs(30)) };
        let plain = Reason::Busy {
            need: need(1, Room::SLOT, None),
            free: 0,
            total: 4,
            held_by: vec!["X".into(), "Y".into()],
            kept: vec![hold],
        };
        assert_eq!(
            plain.to_string(),
            "waits for a slot: 0 free of 4, held by jobs X, Y; 3 kept for dca of job Z, which may wait 30 s"
        );
        let each = Room { slots: 1, memory_bytes: 3 << 29, cards: 1 };
        let small = Reason::TooSmall { need: need(6, each, None), total: 4 };
        assert_eq!(
            small.to_string(),
            "waits for 6 slots with 1.5 GiB and a card each: the cluster has 4 in all; add executors, or ask for fewer"
        );
        let none = Reason::TooSmall { need: need(1, Room { cards: 2, ..Room::SLOT }, Some("gpu")), total: 0 };
        assert_eq!(none.to_string(), "waits for a slot with 2 cards in pool gpu: no executor has any");
        let share = Reason::OverShare {
            need: need(6, Room::SLOT, None),
            queue: "small".into(),
            share: 4,
            total: 8,
            others: vec!["big".into()],
        };
        assert_eq!(
            share.to_string(),
            "waits for 6 slots: queue small may have 4 of 8 while queue big has work waiting"
        );
    }
}
