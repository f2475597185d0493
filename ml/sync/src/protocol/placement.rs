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
