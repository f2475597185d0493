//! Who holds which shard: a pure function of who held it, who is there, and who has its values.

use super::{Holders, MemberId, Placement};
use std::collections::BTreeMap;

/// A member that may hold shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub member: MemberId,
    /// A copy is safer on another host.
    pub host: String,
    /// May be a primary; others only keep copies.
    pub serves: bool,
}

/// What is known of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holding {
    /// The version that training goes on from.
    pub version: u64,
    /// Members that have it; nobody: the leader brings it.
    pub have: Vec<MemberId>,
}

/// Places every shard. Primaries stay where they are, an orphan goes to its backup; backups are never where the
/// primary is, on another host if there is one, and spread evenly. `None` without any member that may serve.
pub(crate) fn place(previous: &Placement, shards: &[Holding], candidates: &[Candidate]) -> Option<Placement> {
    let serving: Vec<&Candidate> = candidates.iter().filter(|c| c.serves).collect();
    let mut load: BTreeMap<MemberId, usize> = BTreeMap::new();
    let mut holders: Vec<Holders> = Vec::with_capacity(shards.len());
    for (number, shard) in shards.iter().enumerate() {
        let primary = primary(previous.holders.get(number), shard, candidates, &serving, &load)?;
        *load.entry(primary).or_default() += 1;
        holders.push(Holders { primary, backup: None, copy: false, version: shard.version });
    }
    let mut copies: BTreeMap<MemberId, usize> = BTreeMap::new();
    for (number, shard) in shards.iter().enumerate() {
        let before = previous.holders.get(number);
        let backup = backup(holders[number].primary, before, shard, candidates, &copies);
        if let Some(backup) = backup {
            *copies.entry(backup).or_default() += 1;
        }
        holders[number].backup = backup;
        holders[number].copy = backup.is_some_and(|b| !shard.have.contains(&b)) && !shard.have.is_empty();
    }
    level(&mut holders, &serving, &mut load);
    Some(Placement { holders })
}

fn primary(
    before: Option<&Holders>,
    shard: &Holding,
    candidates: &[Candidate],
    serving: &[&Candidate],
    load: &BTreeMap<MemberId, usize>,
) -> Option<MemberId> {
    let lightest = |member: &MemberId| load.get(member).copied().unwrap_or_default();
    if shard.have.is_empty() {
        return serving.iter().map(|c| c.member).min_by_key(lightest);
    }
    let able =
        |member: MemberId| shard.have.contains(&member) && candidates.iter().any(|c| c.member == member);
    let stays = before.map(|b| b.primary).filter(|m| able(*m));
    let promoted = before.and_then(|b| b.backup).filter(|m| able(*m));
    let other = || shard.have.iter().copied().filter(|m| able(*m)).min_by_key(lightest);
    stays.or(promoted).or_else(other)
}

fn backup(
    primary: MemberId,
    before: Option<&Holders>,
    shard: &Holding,
    candidates: &[Candidate],
    copies: &BTreeMap<MemberId, usize>,
) -> Option<MemberId> {
    let host = candidates.iter().find(|c| c.member == primary).map(|c| c.host.as_str());
    let held = |member: MemberId| before.is_some_and(|b| b.primary == member || b.backup == Some(member));
    // Who has it already keeps it; else the lightest, best on another host, next after the primary.
    candidates
        .iter()
        .filter(|c| c.member != primary)
        .map(|c| {
            let has = shard.have.contains(&c.member);
            let load = copies.get(&c.member).copied().unwrap_or_default();
            let distance = c.member.0.wrapping_sub(primary.0);
            (
                (!(has && held(c.member)), !c.serves, load, Some(c.host.as_str()) == host, !has, distance),
                c.member,
            )
        })
        .min()
        .map(|(_, member)| member)
}

/// Where a backup that is up to date serves much less than its primary, the two change parts.
fn level(holders: &mut [Holders], serving: &[&Candidate], load: &mut BTreeMap<MemberId, usize>) {
    for shard in holders.iter_mut().filter(|shard| !shard.copy) {
        let Some(backup) = shard.backup.filter(|b| serving.iter().any(|c| c.member == *b)) else { continue };
        let of = |member| load.get(&member).copied().unwrap_or_default();
        let primary_serves = serving.iter().any(|c| c.member == shard.primary);
        if of(shard.primary) > of(backup) + 1 || !primary_serves {
            *load.entry(shard.primary).or_default() -= 1;
            *load.entry(backup).or_default() += 1;
            (shard.primary, shard.backup) = (backup, Some(shard.primary));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn candidates(members: &[u32]) -> Vec<Candidate> {
        let candidate = |member: &u32| Candidate {
            member: MemberId(*member),
            host: format!("host-{}", member / 2),
            serves: true,
        };
        members.iter().map(candidate).collect()
    }

    fn fresh(shards: usize, members: &[u32]) -> Placement {
        place(&Placement::default(), &vec![Holding::default(); shards], &candidates(members)).unwrap()
    }

    /// All holders that are still there have their shard.
    fn held(placement: &Placement, members: &[u32]) -> Vec<Holding> {
        let have = |h: &Holders| {
            let holders = std::iter::once(h.primary).chain(h.backup);
            holders.filter(|member| members.contains(&member.0)).collect()
        };
        placement.holders.iter().map(|h| Holding { version: 5, have: have(h) }).collect()
    }

    #[test]
    fn a_fresh_gang_is_balanced_and_copies_are_on_other_hosts() {
        let placement = fresh(4, &[0, 1, 2, 3]);
        let mut primaries: Vec<u32> = placement.holders.iter().map(|h| h.primary.0).collect();
        primaries.sort_unstable();
        assert_eq!(primaries, [0, 1, 2, 3]);
        assert!(placement.holders.iter().all(|h| h.primary.0 / 2 != h.backup.unwrap().0 / 2 && !h.copy));
    }

    #[test]
    fn an_orphan_goes_to_its_backup_and_the_others_stay() {
        let before = fresh(3, &[0, 2, 4]);
        let orphan = before.holders.iter().position(|h| h.primary == MemberId(2)).unwrap();
        let after = place(&before, &held(&before, &[0, 4]), &candidates(&[0, 4])).unwrap();
        assert_eq!(Some(after.holders[orphan].primary), before.holders[orphan].backup);
        for (shard, (a, b)) in after.holders.iter().zip(&before.holders).enumerate() {
            assert!(shard == orphan || a.primary == b.primary, "shard {shard} has moved for nothing");
            assert_eq!(a.version, 5);
            assert_eq!(a.copy, b.primary == MemberId(2) || b.backup == Some(MemberId(2)));
        }
    }

    proptest! {
        #[test]
        fn every_shard_is_held_by_those_who_have_it(
            shards in 1_usize..6,
            first in prop::collection::btree_set(0_u32..6, 1..6),
            second in prop::collection::btree_set(0_u32..6, 1..6),
        ) {
            let (first, second): (Vec<u32>, Vec<u32>) = (first.into_iter().collect(), second.into_iter().collect());
            let before = fresh(shards, &first);
            let holdings = held(&before, &second);
            if holdings.iter().any(|h| h.have.is_empty()) {
                return Ok(());
            }
            let after = place(&before, &holdings, &candidates(&second)).unwrap();
            for (holders, holding) in after.holders.iter().zip(&holdings) {
                prop_assert!(holding.have.contains(&holders.primary));
                prop_assert_ne!(Some(holders.primary), holders.backup);
                prop_assert_eq!(holders.backup.is_some(), second.len() > 1);
                prop_assert_eq!(holders.copy, holders.backup.is_some_and(|b| !holding.have.contains(&b)));
            }
        }
    }
}
