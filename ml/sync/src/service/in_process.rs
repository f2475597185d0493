//! The parameter service between threads of one process: shards behind locks, replies through a channel per rank.
//!
//! Whoever brings the last share of a round does the shard's update. Rank r starts at shard r mod S, so
//! that the ranks update different shards at the same time.

use super::round::{Action, Reply, Request, Shard, Share};
use crate::{
    Consistency, Contribution, Error, GradientSync, Lease, OptimizerState, Place, Position, Rank, Result,
    Round, Start, SyncSettings, Totals, Traffic, allotment::Allotment, contribution::Checked,
};
use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    time::{Duration, Instant},
};

/// A reply and the shard that it comes from.
type Mail = (usize, Reply);

/// What the ranks share: the shards, and a way to reach every rank.
#[derive(Debug)]
struct Service {
    shards: Vec<Mutex<Shard>>,
    mailboxes: Vec<Sender<Mail>>,
}

impl Service {
    fn shard(&self, shard: usize) -> Option<MutexGuard<'_, Shard>> {
        // A rank that panicked has left; what it did to the shard was whole.
        self.shards.get(shard).map(|s| s.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn handle(&self, shard: usize, from: Rank, request: Request) {
        let Some(mut state) = self.shard(shard) else { return };
        for Action { to, reply } in state.handle(from, request) {
            if let Some(mailbox) = self.mailboxes.get(to.0) {
                // A rank that is gone needs no answer.
                let _ = mailbox.send((shard, reply));
            }
        }
    }
}

/// One rank's side of the parameter service.
#[derive(Debug)]
pub struct ServiceClient {
    rank: Rank,
    settings: SyncSettings,
    service: Arc<Service>,
    mailbox: Receiver<Mail>,
    /// By shard, known after `join`.
    ranges: Vec<Range<usize>>,
    /// By shard: the version that was last fetched, and own pushes since.
    read: Vec<(u64, u64)>,
    /// Async: what has not been pushed yet.
    unpushed: Share,
    steps: u64,
    allotment: Allotment,
    /// Steps with samples since the training began (async).
    clock: u64,
    /// What no closed round tells the others: steps alone, and all steps in async mode.
    untold: Totals,
    failed: Option<Error>,
    traffic: Traffic,
}

/// The ranks of a gang with a parameter service of its own. `settings` must be valid for `ranks`.
pub(crate) fn parameter_service(settings: &SyncSettings, ranks: usize) -> Vec<ServiceClient> {
    let shards = settings.shards(0, ranks).iter().map(|_| Mutex::new(Shard::new(settings, ranks))).collect();
    let (mailboxes, ends): (Vec<_>, Vec<_>) = (0..ranks).map(|_| channel()).unzip();
    let service = Arc::new(Service { shards, mailboxes });
    ends.into_iter()
        .enumerate()
        .map(|(rank, mailbox)| ServiceClient {
            rank: Rank(rank),
            settings: settings.clone(),
            service: Arc::clone(&service),
            mailbox,
            ranges: Vec::new(),
            read: Vec::new(),
            unpushed: Share { gradient: Vec::new(), samples: 0, loss: 0.0 },
            steps: 0,
            allotment: Allotment::default(),
            clock: 0,
            untold: Totals::default(),
            failed: None,
            traffic: Traffic::default(),
        })
        .collect()
}

impl ServiceClient {
    fn shards(&self) -> usize {
        self.service.shards.len()
    }

    /// Sends a request to every shard and collects the replies, by shard. Any error ends this rank's part.
    fn ask(&mut self, request: impl FnMut(usize) -> Request) -> Result<Vec<Reply>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.exchange(request);
        if let Err(error) = &result {
            self.fail(error.clone());
        }
        result
    }

    fn exchange(&mut self, mut request: impl FnMut(usize) -> Request) -> Result<Vec<Reply>> {
        let shards = self.shards();
        let mut what = "";
        for step in 0..shards {
            let shard = (self.rank.0 + step) % shards;
            let request = request(shard);
            what = request.name();
            self.traffic.sent += request.bytes();
            self.service.handle(shard, self.rank, request);
        }
        let end = Instant::now() + Duration::from_secs_f64(self.settings.deadline_seconds);
        let mut replies: Vec<Option<Reply>> = (0..shards).map(|_| None).collect();
        while let Some(waited) = replies.iter().position(Option::is_none) {
            match self.mailbox.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok((_, Reply::Failed(error))) => return Err(error),
                Ok((shard, reply)) => {
                    self.traffic.received += reply.bytes();
                    replies[shard] = Some(reply);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Err(self.late(what, waited));
                }
            }
        }
        Ok(replies.into_iter().flatten().collect())
    }

    fn late(&self, what: &'static str, shard: usize) -> Error {
        let missing = self.service.shard(shard).map(|s| s.missing()).unwrap_or_default();
        Error::Deadline {
            rank: self.rank,
            seconds: self.settings.deadline_seconds,
            what,
            missing: missing.iter().map(Rank::to_string).collect::<Vec<_>>().join(", "),
        }
    }

    /// Leaves the gang, so that the others learn of it.
    fn fail(&mut self, error: Error) {
        self.failed = Some(error);
        for shard in 0..self.shards() {
            self.service.handle(shard, self.rank, Request::Leave);
        }
    }

    /// Refuses what would harm the others: a buffer of another length, values that are not finite.
    fn checked(&mut self, parameters: &[f32], contribution: &Contribution<'_>) -> Result<()> {
        let expected = self.ranges.last().map_or(0, |r| r.end);
        let check = Checked { rank: self.rank, step: self.steps, expected };
        let result = match &self.failed {
            Some(error) => return Err(error.clone()),
            None => check.contribution(parameters, contribution),
        };
        if let Err(error) = &result {
            self.fail(error.clone());
        }
        self.steps += 1;
        result
    }

    fn same_parameters(&mut self, parameters: &[f32], what: &'static str) -> Result<()> {
        let (rank, expected) = (self.rank, self.ranges.last().map_or(0, |r| r.end));
        if parameters.len() == expected || self.failed.is_some() {
            return Ok(());
        }
        let error = Error::Length { rank, what, found: parameters.len(), expected };
        self.fail(error.clone());
        Err(error)
    }

    /// Copies the shards' parameters into place and remembers their versions.
    fn install(&mut self, replies: &[Reply], parameters: &mut [f32]) {
        for (shard, reply) in replies.iter().enumerate() {
            if let Reply::Parameters { version, values }
            | Reply::Joined { version, values, .. }
            | Reply::Closed { version, values, .. } = reply
            {
                parameters[self.ranges[shard].clone()].copy_from_slice(values);
                self.read[shard] = (*version, 0);
            }
        }
    }

    fn fetch(&mut self, parameters: &mut [f32]) -> Result<()> {
        let replies = self.ask(|_| Request::Fetch)?;
        self.install(&replies, parameters);
        Ok(())
    }

    /// Pushes `share` to every shard; gives the updates by others since the last fetch.
    fn push(&mut self, share: &Share) -> Result<u64> {
        let ranges = self.ranges.clone();
        let replies = self.ask(|shard| Request::Push(part(share, ranges[shard].clone())))?;
        let mut staleness = 0;
        for (reply, (read, own)) in replies.iter().zip(&mut self.read) {
            if let Reply::Pushed { version } = reply {
                staleness = staleness.max(version.saturating_sub(*read + *own));
                *own += 1;
            }
        }
        Ok(staleness)
    }

    fn push_unpushed(&mut self) -> Result<u64> {
        if self.unpushed.samples == 0 {
            return Ok(0);
        }
        let n = self.unpushed.gradient.len();
        let fresh = Share { gradient: vec![0.0; n], samples: 0, loss: 0.0 };
        let share = std::mem::replace(&mut self.unpushed, fresh);
        self.push(&share)
    }

    fn step_sync(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        let ranges = self.ranges.clone();
        let replies = self.ask(|shard| Request::Contribute(share(&contribution, ranges[shard].clone())))?;
        self.install(&replies, parameters);
        match replies.first() {
            Some(Reply::Closed { version, samples: by_rank, loss, .. }) => {
                let samples: u64 = by_rank.iter().sum();
                let finished = samples == 0;
                self.allotment.close(version + u64::from(!finished), by_rank.iter().copied(), *loss);
                Ok(Round { round: *version, samples, loss: *loss, staleness: 0, finished })
            }
            other => Err(unexpected(self.rank, "step", other)),
        }
    }

    /// A step that the others do not learn of.
    fn count(&mut self, samples: u64, loss: f64) {
        self.clock += 1;
        self.untold = self.untold.plus(Totals { samples, loss });
    }

    /// What the ranks did that closed rounds do not tell, whether any of them has begun the epoch, and the steps of
    /// the one that did most.
    fn tell(&mut self) -> Result<(Totals, bool, u64)> {
        let Totals { samples, loss } = std::mem::take(&mut self.untold);
        let begun = f64::from(u8::from(self.allotment.has_taken()));
        let mut sums = vec![0.0; 3 + self.world()];
        sums[..3].copy_from_slice(&[samples as f64, loss, begun]);
        sums[3 + self.rank.0] = self.clock as f64;
        self.sum(&mut sums)?;
        let clock = sums[3..].iter().fold(0.0, |most: f64, clock| most.max(*clock));
        Ok((Totals { samples: sums[0] as u64, loss: sums[1] }, sums[2] > 0.0, clock as u64))
    }

    /// Downpour (Dean et al. 2012): fetch every `n_fetch` steps, push the summed gradient every `n_push`. With ssp
    /// (Ho et al. 2013) a rank that leads by too much waits.
    fn step_async(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        let Contribution { gradient, samples, loss } = contribution;
        let round = self.read.first().map_or(0, |(version, _)| *version);
        let mut staleness = 0;
        if samples > 0 {
            self.count(samples, loss);
            self.unpushed.gradient.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g);
            self.unpushed.samples += samples;
            self.unpushed.loss += loss;
            if self.steps.is_multiple_of(self.settings.n_push) {
                staleness = self.push_unpushed()?;
            }
        }
        // Before the fetch: what is read then holds the steps of the ranks that were waited for.
        if matches!(self.settings.consistency, Consistency::Ssp(_)) {
            self.ask(|_| Request::Tick { finished: samples == 0 })?;
        }
        if samples > 0 && self.steps.is_multiple_of(self.settings.n_fetch) {
            self.fetch(parameters)?;
        }
        Ok(Round { round, samples, loss, staleness, finished: samples == 0 })
    }
}

fn share(contribution: &Contribution<'_>, range: Range<usize>) -> Share {
    let Contribution { gradient, samples, loss } = *contribution;
    Share { gradient: gradient[range].to_vec(), samples, loss }
}

fn part(share: &Share, range: Range<usize>) -> Share {
    Share { gradient: share.gradient[range].to_vec(), ..*share }
}

fn unexpected(rank: Rank, what: &'static str, reply: Option<&Reply>) -> Error {
    Error::Message { rank, what, reason: format!("the shard answered {reply:?}") }
}

impl GradientSync for ServiceClient {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn world(&self) -> usize {
        self.service.mailboxes.len()
    }

    fn place(&self) -> Place {
        Place { index: self.rank.0, of: self.world() }
    }

    fn join(&mut self, parameters: &mut [f32], start: Start) -> Result<Position> {
        let n_parameters = parameters.len();
        let ranges = self.settings.shards(n_parameters, self.world());
        let (first, state) = (self.rank == Rank(0), start.optimizer.map(Arc::new));
        let position = Arc::new(start.position);
        let replies = self.ask(|shard| Request::Join {
            n_parameters,
            parameters: first.then(|| parameters[ranges[shard].clone()].to_vec()),
            state: state.clone().filter(|_| first),
            position: Arc::clone(&position),
            range: ranges[shard].clone(),
        })?;
        self.read = vec![(0, 0); ranges.len()];
        self.ranges = ranges;
        self.unpushed = Share { gradient: vec![0.0; n_parameters], samples: 0, loss: 0.0 };
        self.install(&replies, parameters);
        let Some(Reply::Joined { position, .. }) = replies.first() else {
            return Err(unexpected(self.rank, "join", replies.first()));
        };
        let position = (**position).clone();
        self.clock = position.round;
        self.untold = Totals::default();
        self.allotment = Allotment::new(self.rank.0, self.world(), start.rows, position.clone());
        Ok(position)
    }

    fn lease(&mut self, at_most: usize) -> Result<Option<Lease>> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => Ok(self.allotment.take(at_most)),
        }
    }

    fn step(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        self.checked(parameters, &contribution)?;
        match self.settings.consistency {
            Consistency::Sync => self.step_sync(parameters, contribution),
            Consistency::Ssp(_) | Consistency::Async => self.step_async(parameters, contribution),
        }
    }

    fn step_alone(&mut self, parameters: &mut [f32], contribution: Contribution<'_>) -> Result<Round> {
        self.checked(parameters, &contribution)?;
        if let Err(error) = Checked::alone(self.rank) {
            self.fail(error.clone());
            return Err(error);
        }
        let Contribution { samples, loss, gradient } = contribution;
        let round = self.read.first().map_or(0, |(version, own)| version + own);
        let staleness = self.push(&share(&contribution, 0..gradient.len()))?;
        self.fetch(parameters)?;
        if samples > 0 {
            self.count(samples, loss);
        }
        Ok(Round { round, samples, loss, staleness, finished: samples == 0 })
    }

    fn synchronise(&mut self, parameters: &mut [f32]) -> Result<Totals> {
        self.same_parameters(parameters, "synchronise")?;
        self.push_unpushed()?;
        let replies = self.ask(|_| Request::Synchronise)?;
        self.install(&replies, parameters);
        let (totals, begun, clock) = self.tell()?;
        let round = match self.settings.consistency {
            Consistency::Sync => self.read.first().map_or(0, |(version, _)| *version),
            Consistency::Ssp(_) | Consistency::Async => clock,
        };
        self.clock = round;
        Ok(self.allotment.synchronise(round, totals, begun))
    }

    fn position(&self) -> Position {
        self.allotment.position().clone()
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        // Shard 0 adds up; the others would only repeat it, but the ranks must not overtake each other there.
        let replies =
            self.ask(|shard| Request::Sum(if shard == 0 { values.to_vec() } else { Vec::new() }))?;
        match replies.first() {
            Some(Reply::Sum(sum)) => values.copy_from_slice(sum),
            other => return Err(unexpected(self.rank, "sum", other)),
        }
        Ok(())
    }

    fn optimizer_state(&mut self) -> Result<OptimizerState> {
        let replies = self.ask(|_| Request::State)?;
        let mut whole = OptimizerState::default();
        for reply in &replies {
            let Reply::State(part) = reply else {
                return Err(unexpected(self.rank, "optimizer_state", Some(reply)));
            };
            whole.steps = part.steps;
            if whole.vectors.is_empty() {
                whole.vectors.clone_from(&part.vectors);
            } else {
                whole.vectors.iter_mut().zip(&part.vectors).for_each(|(a, b)| a.1.extend_from_slice(&b.1));
            }
        }
        Ok(whole)
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }
}

impl Drop for ServiceClient {
    fn drop(&mut self) {
        if self.failed.is_none() {
            for shard in 0..self.shards() {
                self.service.handle(shard, self.rank, Request::Leave);
            }
        }
    }
}
