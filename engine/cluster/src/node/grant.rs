//! What a machine has, what applications were granted of it, and what is left. Pure: nothing is started here.

use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};
use uuid::Uuid;

/// Cores, memory and cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Tasks that run side by side.
    pub cores: usize,
    /// Memory in MiB.
    pub memory_mib: usize,
    /// Accelerator cards.
    pub cards: usize,
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cores, {} MiB, {} cards", self.cores, self.memory_mib, self.cards)
    }
}

impl Resources {
    /// Each of both, the smaller one.
    #[must_use]
    pub fn at_most(self, other: Self) -> Self {
        Self {
            cores: self.cores.min(other.cores),
            memory_mib: self.memory_mib.min(other.memory_mib),
            cards: self.cards.min(other.cards),
        }
    }
}

/// The least that an executor can do with.
pub const LEAST: Resources = Resources { cores: 1, memory_mib: 256, cards: 0 };

/// What an application wants of every machine. Where it does not say: all that is left, or, of memory and cards, a
/// part as large as that of the cores that it asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// Cores.
    pub cores: Option<usize>,
    /// Memory in MiB.
    pub memory_mib: Option<usize>,
    /// Cards.
    pub cards: Option<usize>,
}

/// What one application was granted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// How much.
    pub resources: Resources,
    /// Which cards, by their number on this machine.
    pub cards: Vec<usize>,
}

/// Who was granted what of one machine.
#[derive(Debug)]
pub struct Ledger {
    capacity: Resources,
    granted: BTreeMap<Uuid, Grant>,
}

/// Why an application gets nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It wants more than is left, or less is left than an executor needs.
    TooLittle {
        /// What it needs at least.
        needed: Resources,
        /// What is left.
        left: Resources,
        /// Applications that have the rest.
        holders: usize,
    },
    /// It has its share already.
    Granted,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLittle { needed, left, holders } => write!(
                f,
                "{needed} are needed, {left} are left beside {holders} other applications; wait for one of them \
                 to end, or ask for less"
            ),
            Self::Granted => f.write_str("this application has its share already"),
        }
    }
}

impl Ledger {
    /// Nothing is granted yet.
    pub fn new(capacity: Resources) -> Self {
        Self { capacity, granted: BTreeMap::new() }
    }

    /// What nobody has.
    pub fn left(&self) -> Resources {
        let taken =
            |of: fn(&Resources) -> usize| self.granted.values().map(|g| of(&g.resources)).sum::<usize>();
        Resources {
            cores: self.capacity.cores.saturating_sub(taken(|r| r.cores)),
            memory_mib: self.capacity.memory_mib.saturating_sub(taken(|r| r.memory_mib)),
            cards: self.capacity.cards.saturating_sub(taken(|r| r.cards)),
        }
    }

    /// Grants `application` what it wishes, at most what is left.
    ///
    /// # Errors
    /// Less is left than it asks for, or than an executor needs; it has a grant already.
    pub fn grant(&mut self, application: Uuid, wish: Wish) -> Result<Grant, Refusal> {
        if self.granted.contains_key(&application) {
            return Err(Refusal::Granted);
        }
        let left = self.left();
        let needed = Resources {
            cores: wish.cores.unwrap_or(LEAST.cores).max(LEAST.cores),
            memory_mib: wish.memory_mib.unwrap_or(LEAST.memory_mib).max(LEAST.memory_mib),
            cards: wish.cards.unwrap_or(LEAST.cards),
        };
        if needed.at_most(left) != needed {
            return Err(Refusal::TooLittle { needed, left, holders: self.granted.len() });
        }
        let part = |whole: usize, left: usize| match wish.cores {
            Some(_) => (whole * needed.cores / self.capacity.cores.max(1)).min(left),
            None => left,
        };
        let memory_part = part(self.capacity.memory_mib, left.memory_mib).max(LEAST.memory_mib);
        let resources = Resources {
            cores: wish.cores.map_or(left.cores, |_| needed.cores),
            memory_mib: wish.memory_mib.map_or(memory_part, |_| needed.memory_mib),
            cards: wish.cards.unwrap_or_else(|| part(self.capacity.cards, left.cards)),
        };
        let taken: BTreeSet<usize> = self.granted.values().flat_map(|g| g.cards.iter().copied()).collect();
        let free = (0..self.capacity.cards).filter(|card| !taken.contains(card));
        let grant = Grant { resources, cards: free.take(resources.cards).collect() };
        self.granted.insert(application, grant.clone());
        Ok(grant)
    }

    /// What `application` had is free again.
    pub fn release(&mut self, application: Uuid) {
        self.granted.remove(&application);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    const MACHINE: Resources = Resources { cores: 8, memory_mib: 4096, cards: 2 };

    fn id(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    #[test]
    fn the_first_gets_all_unless_it_asks_for_less_and_the_second_what_is_left() {
        let mut ledger = Ledger::new(MACHINE);
        let wish = Wish { cores: Some(3), memory_mib: Some(1024), cards: Some(1) };
        let first = ledger.grant(id(1), wish).unwrap();
        assert_eq!(first.resources, Resources { cores: 3, memory_mib: 1024, cards: 1 });
        assert_eq!(first.cards, [0]);
        let second = ledger.grant(id(2), Wish::default()).unwrap();
        assert_eq!(second.resources, Resources { cores: 5, memory_mib: 3072, cards: 1 });
        assert_eq!(second.cards, [1]);
        let refusal = ledger.grant(id(3), Wish::default()).unwrap_err().to_string();
        assert!(refusal.contains("0 cores, 0 MiB, 0 cards are left beside 2 other"), "{refusal}");
        ledger.release(id(1));
        assert_eq!(ledger.grant(id(3), Wish::default()).unwrap().cards, [0]);
    }

    #[test]
    fn memory_and_cards_go_with_the_cores() {
        let mut ledger = Ledger::new(MACHINE);
        let half = Wish { cores: Some(4), ..Wish::default() };
        for _ in 0..2 {
            let application = id(ledger.granted.len() as u128);
            let grant = ledger.grant(application, half).unwrap();
            assert_eq!(grant.resources, Resources { cores: 4, memory_mib: 2048, cards: 1 });
        }
        assert_eq!(ledger.left(), Resources::default());
    }

    #[test]
    fn more_than_there_is_and_a_second_share_are_refused() {
        let mut ledger = Ledger::new(MACHINE);
        let too_many = Wish { cards: Some(3), ..Wish::default() };
        assert!(matches!(ledger.grant(id(1), too_many), Err(Refusal::TooLittle { .. })));
        ledger.grant(id(1), Wish { cores: Some(1), ..Wish::default() }).unwrap();
        assert_eq!(ledger.grant(id(1), Wish::default()), Err(Refusal::Granted));
    }

    fn wish() -> impl Strategy<Value = Wish> {
        let some = |most: usize| prop::option::of(0..=most);
        (some(10), some(5000), some(3)).prop_map(|(cores, memory_mib, cards)| Wish {
            cores,
            memory_mib,
            cards,
        })
    }

    proptest! {
        #[test]
        fn grants_never_exceed_the_machine_and_no_card_has_two_owners(
            steps in prop::collection::vec((0..5_u128, prop::option::of(wish())), 1..40)
        ) {
            let mut ledger = Ledger::new(MACHINE);
            for (application, wish) in steps {
                match wish {
                    Some(wish) => drop(ledger.grant(id(application), wish)),
                    None => ledger.release(id(application)),
                }
                let sum = |of: fn(&Resources) -> usize| {
                    ledger.granted.values().map(|g| of(&g.resources)).sum::<usize>()
                };
                prop_assert!(sum(|r| r.cores) <= MACHINE.cores);
                prop_assert!(sum(|r| r.memory_mib) <= MACHINE.memory_mib);
                let cards: Vec<usize> = ledger.granted.values().flat_map(|g| g.cards.clone()).collect();
                prop_assert_eq!(cards.iter().collect::<BTreeSet<_>>().len(), cards.len());
                prop_assert!(cards.iter().all(|card| *card < MACHINE.cards));
                for grant in ledger.granted.values() {
                    prop_assert_eq!(grant.cards.len(), grant.resources.cards);
                    prop_assert_eq!(LEAST.at_most(grant.resources), LEAST);
                }
            }
        }
    }
}
