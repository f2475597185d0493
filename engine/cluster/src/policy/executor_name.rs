//! What an executor has, written into its id: Ballista carries an id and a number of slots, nothing else, and
//! what came with the registration is known as soon as the executor is.

use super::cluster_view::Room;

/// Pool, memory and cards of an executor: `gpu-65536m-2c-…`, where `…` tells it from all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutorName {
    pool: String,
    memory_bytes: u64,
    cards: u32,
}

impl ExecutorName {
    /// An executor of `pool`.
    ///
    /// # Errors
    /// A pool that is no word of letters, digits and underscores.
    pub fn new(pool: &str, memory_bytes: u64, cards: u32) -> Result<Self, String> {
        if pool.is_empty() || !pool.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(format!(
                "`{pool}` is no name of a pool: use letters, digits and _ only, such as gpu"
            ));
        }
        Ok(Self { pool: pool.to_owned(), memory_bytes, cards })
    }

    /// Its id; `unique` must not be another executor's.
    pub fn id(&self, unique: &str) -> String {
        format!("{}-{}m-{}c-{unique}", self.pool, self.memory_bytes >> 20, self.cards)
    }

    /// What the executor `id` has. An id of another shape is a pool's name and nothing that is counted.
    pub fn of(id: &str) -> Self {
        let mut parts = id.split('-');
        let pool = parts.next().unwrap_or_default().to_owned();
        let mut number = |unit: char| parts.next()?.strip_suffix(unit)?.parse::<u32>().ok();
        let (memory, cards) = (number('m'), number('c'));
        let memory_bytes = u64::from(memory.unwrap_or(0)) << 20;
        Self { pool, memory_bytes, cards: cards.unwrap_or(0) }
    }

    /// Its pool.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// Its room, if it has `slots`.
    pub fn room(&self, slots: u32) -> Room {
        Room { slots, memory_bytes: self.memory_bytes, cards: self.cards }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_id_says_what_an_executor_has() {
        let name = ExecutorName::new("gpu", 64 << 30, 2).unwrap();
        assert_eq!(name.id("1f3a-77"), "gpu-65536m-2c-1f3a-77");
        assert_eq!(ExecutorName::of("gpu-65536m-2c-1f3a-77"), name);
        assert_eq!(name.room(4), Room { slots: 4, memory_bytes: 64 << 30, cards: 2 });
        let foreign = ExecutorName::of("3f2504e0-4f89-11d3");
        assert_eq!((foreign.pool(), foreign.room(1)), ("3f2504e0", Room::SLOT));
        assert!(ExecutorName::new("big-gpu", 0, 0).unwrap_err().contains("`big-gpu` is no name"));
        assert!(ExecutorName::new("", 0, 0).is_err());
    }

    proptest! {
        #[test]
        fn any_id_can_be_read(id in any::<String>()) {
            let name = ExecutorName::of(&id);
            prop_assert!(id.starts_with(name.pool()));
        }
    }
}
