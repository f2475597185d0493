//! What a shard decides: a request comes in, replies go out. No clocks, no threads, no channels.
//!
//! | request | when it is answered | what happens |
//! |---|---|---|
//! | `Join`, `Synchronise`, `Sum`, `State` | once all ranks have called it | rank 0's values are installed; newest parameters; sum in rank order; memory |
//! | `Contribute` (sync) | once all ranks have called it | one optimizer step with Σ gradients / Σ samples, in rank order |
//! | `Push` (async, warm-up) | at once | one optimizer step with gradient / samples |
//! | `Fetch` | at once | newest parameters |
//! | `Tick` (ssp) | once this rank leads the slowest by no more than it may | its clock goes on |
//! | `Leave` | – | everyone who waits, or will wait for all ranks, gets [`Error::PeerLeft`] |

use crate::{
    Error, OptimizerState, Position, Rank, Result, SyncSettings,
    optimizer::{Optimizer, compensate_delay, reduce},
};
use std::{ops::Range, sync::Arc};

/// A share of the gradient, summed over `samples`.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// `[shard's length]`.
    pub gradient: Vec<f32>,
    /// Samples in the sum.
    pub samples: u64,
    /// Loss summed over the samples.
    pub loss: f64,
}

/// What a rank asks of a shard.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Enters the gang; rank 0 brings the parameters of this shard and its optimizer's memory.
    Join {
        /// Length of the whole model, the same on all ranks.
        n_parameters: usize,
        /// Rank 0: the parameters of `range`.
        parameters: Option<Vec<f32>>,
        /// Rank 0: the state of the whole model.
        state: Option<Arc<OptimizerState>>,
        /// Where to go on from; rank 0's counts.
        position: Arc<Position>,
        /// The part of the parameters that this shard owns.
        range: Range<usize>,
    },
    /// A share of a synchronous round.
    Contribute(Share),
    /// A gradient to be applied at once.
    Push(Share),
    /// The newest parameters, at once.
    Fetch,
    /// The rank has done a step, or has none left in this epoch (ssp).
    Tick {
        /// It has none left: nobody waits for it.
        finished: bool,
    },
    /// The newest parameters, once all ranks are here.
    Synchronise,
    /// Sum over the ranks.
    Sum(Vec<f64>),
    /// The optimizer's memory.
    State,
    /// The rank is gone.
    Leave,
}

/// What a shard answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Newest parameters of the shard.
    Parameters {
        /// Updates applied so far.
        version: u64,
        /// `[shard's length]`.
        values: Arc<[f32]>,
    },
    /// All ranks are here.
    Joined {
        /// Updates applied so far.
        version: u64,
        /// `[shard's length]`.
        values: Arc<[f32]>,
        /// Where the gang goes on from.
        position: Arc<Position>,
    },
    /// A synchronous round is closed.
    Closed {
        /// Number of the round.
        version: u64,
        /// Samples by rank.
        samples: Arc<[u64]>,
        /// Loss summed over them.
        loss: f64,
        /// `[shard's length]`.
        values: Arc<[f32]>,
    },
    /// A push was applied as update number `version`.
    Pushed {
        /// Updates applied before it.
        version: u64,
    },
    /// The rank may take its next step.
    Ticked,
    /// Sum over the ranks.
    Sum(Arc<[f64]>),
    /// The optimizer's memory of this shard.
    State(Arc<OptimizerState>),
    /// The request cannot be answered.
    Failed(Error),
}

/// A reply and the rank that it goes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// The receiver.
    pub to: Rank,
    /// The answer.
    pub reply: Reply,
}

impl Request {
    /// The method of [`GradientSync`](crate::GradientSync) behind the request, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Join { .. } => "join",
            Self::Contribute(_) | Self::Push(_) | Self::Fetch | Self::Tick { .. } => "step",
            Self::Synchronise => "synchronise",
            Self::Sum(_) => "sum",
            Self::State => "optimizer_state",
            Self::Leave => "leave",
        }
    }

    /// Bytes of the values that travel to the shard.
    pub fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::Join { parameters, state, .. } => {
                let vectors = state.as_ref().map_or(0, |s| s.vectors.len());
                parameters.as_ref().map_or(0, |p| 4 * p.len() * (1 + vectors))
            }
            Self::Contribute(share) | Self::Push(share) => 16 + 4 * share.gradient.len(),
            Self::Sum(values) => 8 * values.len(),
            Self::Fetch | Self::Tick { .. } | Self::Synchronise | Self::State | Self::Leave => 0,
        };
        bytes as u64
    }
}

impl Reply {
    /// Bytes of the values that travel from the shard.
    pub fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::Parameters { values, .. } | Self::Joined { values, .. } => 8 + 4 * values.len(),
            Self::Closed { values, samples, .. } => 16 + 8 * samples.len() + 4 * values.len(),
            Self::Pushed { .. } => 8,
            Self::Sum(values) => 8 * values.len(),
            Self::State(state) => 8 + 4 * state.vectors.iter().map(|(_, v)| v.len()).sum::<usize>(),
            Self::Failed(_) | Self::Ticked => 0,
        };
        bytes as u64
    }
}

/// One shard: its range of the parameters, the optimizer's memory for it, and who has come to what.
#[derive(Debug)]
pub struct Shard {
    settings: SyncSettings,
    parameters: Vec<f32>,
    optimizer: Optimizer,
    version: u64,
    /// Requests that wait for all ranks, by rank; all of one kind.
    waiting: Vec<Option<Request>>,
    left: Vec<Rank>,
    /// By rank, ssp: how far it is in this epoch.
    clocks: Vec<Clock>,
    /// By rank, with delay compensation: the parameters that it read last.
    read: Vec<Arc<[f32]>>,
}

/// How far a rank is in an epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    steps: u64,
    finished: bool,
    /// It waits for slower ranks.
    waits: bool,
}

impl Shard {
    /// A shard of a gang of `world` ranks; its range comes with `Join`.
    pub fn new(settings: &SyncSettings, world: usize) -> Self {
        Self {
            settings: settings.clone(),
            parameters: Vec::new(),
            optimizer: Optimizer::new(settings.round_optimizer(), 0),
            version: 0,
            waiting: (0..world).map(|_| None).collect(),
            left: Vec::new(),
            clocks: vec![Clock::default(); world],
            read: vec![Arc::default(); world],
        }
    }

    /// Ranks that have not come to what the others wait for.
    pub fn missing(&self) -> Vec<Rank> {
        if self.clocks.iter().any(|clock| clock.waits) {
            let slowest = self.slowest();
            let clocks = self.clocks.iter().enumerate();
            return clocks.filter(|(_, c)| !c.finished && c.steps == slowest).map(|(r, _)| Rank(r)).collect();
        }
        self.waiting.iter().enumerate().filter(|(_, w)| w.is_none()).map(|(rank, _)| Rank(rank)).collect()
    }

    /// Takes one request and says who gets which answer.
    pub fn handle(&mut self, from: Rank, request: Request) -> Vec<Action> {
        match request {
            Request::Leave => self.leave(from),
            Request::Push(share) => vec![Action { to: from, reply: self.push(from, share) }],
            Request::Fetch => vec![Action { to: from, reply: self.fetch(from) }],
            Request::Tick { finished } => self.tick(from, finished),
            request => self.arrive(from, request),
        }
    }

    fn newest(&self) -> Reply {
        Reply::Parameters { version: self.version, values: self.parameters.as_slice().into() }
    }

    fn fetch(&mut self, from: Rank) -> Reply {
        let values: Arc<[f32]> = self.parameters.as_slice().into();
        if self.settings.delay_compensation > 0.0
            && let Some(read) = self.read.get_mut(from.0)
        {
            *read = Arc::clone(&values);
        }
        Reply::Parameters { version: self.version, values }
    }

    fn tick(&mut self, from: Rank, finished: bool) -> Vec<Action> {
        if let Some(peer) = self.left.first() {
            return vec![peer_left(from, *peer, "step")];
        }
        if let Some(clock) = self.clocks.get_mut(from.0) {
            clock.steps += u64::from(!finished);
            *clock = Clock { finished, waits: true, ..*clock };
        }
        let latest = self.settings.max_lead().map_or(u64::MAX, |lead| self.slowest().saturating_add(lead));
        let mut actions = Vec::new();
        for (rank, clock) in self.clocks.iter_mut().enumerate() {
            if clock.waits && (clock.finished || clock.steps <= latest) {
                clock.waits = false;
                actions.push(Action { to: Rank(rank), reply: Reply::Ticked });
            }
        }
        actions
    }

    /// Steps of the slowest rank that has any left.
    fn slowest(&self) -> u64 {
        self.clocks.iter().filter(|clock| !clock.finished).map(|clock| clock.steps).min().unwrap_or(u64::MAX)
    }

    fn push(&mut self, from: Rank, mut share: Share) -> Reply {
        if let Err(error) = same_length(from, "step", share.gradient.len(), self.parameters.len()) {
            return Reply::Failed(error);
        }
        let version = self.version;
        let lambda = self.settings.delay_compensation;
        match self.read.get(from.0) {
            Some(read) if lambda > 0.0 && share.samples > 0 => {
                reduce(self.settings.optimizer.reduction, &mut share.gradient, share.samples);
                compensate_delay(lambda, &mut share.gradient, &self.parameters, read);
                self.optimizer.step(&mut self.parameters, &share.gradient);
                self.version += 1;
            }
            _ => self.update(&mut share.gradient, share.samples),
        }
        Reply::Pushed { version }
    }

    /// One optimizer step with `gradient`, summed over `samples`; none without samples.
    fn update(&mut self, gradient: &mut [f32], samples: u64) {
        self.optimizer.apply(&mut self.parameters, gradient, samples);
        self.version += u64::from(samples > 0);
    }

    fn leave(&mut self, from: Rank) -> Vec<Action> {
        if !self.left.contains(&from) {
            self.left.push(from);
        }
        let waiting = self.waiting.iter_mut().map(|w| w.take().map(|w| w.name()));
        let ticking = self.clocks.iter_mut().map(|clock| std::mem::take(&mut clock.waits).then_some("step"));
        let all = waiting.zip(ticking).enumerate();
        let all = all.filter_map(|(rank, (waits, ticks))| Some((Rank(rank), waits.or(ticks)?)));
        all.filter(|(rank, _)| *rank != from).map(|(rank, what)| peer_left(rank, from, what)).collect()
    }

    /// A request that waits for all ranks.
    fn arrive(&mut self, from: Rank, request: Request) -> Vec<Action> {
        let called = request.name();
        if let Some(peer) = self.left.first() {
            return vec![peer_left(from, *peer, called)];
        }
        let others = self.waiting.iter().enumerate().filter_map(|(r, w)| Some((Rank(r), w.as_ref()?.name())));
        if let Some((peer, peer_called)) = others.clone().find(|(_, name)| *name != called) {
            let error = Error::Order { rank: from, called, peer, peer_called };
            return self.fail(from, &error);
        }
        let Some(place) = self.waiting.get_mut(from.0) else {
            let reason = format!("{from} is not one of the {} ranks", self.waiting.len());
            return vec![Action {
                to: from,
                reply: Reply::Failed(Error::Message { rank: from, what: called, reason }),
            }];
        };
        *place = Some(request);
        if self.waiting.iter().any(Option::is_none) {
            return Vec::new();
        }
        let requests: Vec<Request> = self.waiting.iter_mut().filter_map(Option::take).collect();
        let world = requests.len();
        match self.close(requests) {
            Ok(reply) => (0..world).map(|rank| Action { to: Rank(rank), reply: reply.clone() }).collect(),
            Err(error) => fail_all(world, &error),
        }
    }

    /// Everyone who waits, and `from`, learns of the error.
    fn fail(&mut self, from: Rank, error: &Error) -> Vec<Action> {
        let waiting = self.waiting.iter_mut().enumerate().filter_map(|(r, w)| w.take().map(|_| Rank(r)));
        waiting.chain([from]).map(|to| Action { to, reply: Reply::Failed(error.clone()) }).collect()
    }

    /// All ranks are here, each with a request of the same kind, in rank order.
    fn close(&mut self, requests: Vec<Request>) -> Result<Reply> {
        match requests.first() {
            Some(Request::Join { .. }) => self.close_join(requests),
            Some(Request::Contribute(_)) => self.close_round(requests),
            Some(Request::Sum(_)) => close_sum(requests),
            Some(Request::State) => Ok(Reply::State(Arc::new(self.optimizer.state()))),
            _ => Ok(self.close_epoch()),
        }
    }

    fn close_epoch(&mut self) -> Reply {
        self.clocks.fill(Clock::default());
        let reply = self.newest();
        self.all_read(&reply);
        reply
    }

    /// Every rank gets the newest parameters.
    fn all_read(&mut self, reply: &Reply) {
        if let Reply::Parameters { values, .. } | Reply::Joined { values, .. } = reply {
            self.read.fill(Arc::clone(values));
        }
    }

    fn close_join(&mut self, requests: Vec<Request>) -> Result<Reply> {
        let settings = self.settings.round_optimizer();
        let (mut expected, mut begin) = (None, Arc::default());
        for (rank, request) in requests.into_iter().enumerate() {
            let Request::Join { n_parameters, parameters, state, position, range } = request else {
                continue;
            };
            let expected = *expected.get_or_insert(n_parameters);
            same_length(Rank(rank), "join", n_parameters, expected)?;
            if let Some(parameters) = parameters {
                same_length(Rank(rank), "join", parameters.len(), range.len())?;
                self.optimizer = match state {
                    Some(state) => Optimizer::restore(settings.clone(), &state, range, n_parameters)?,
                    None => Optimizer::new(settings.clone(), parameters.len()),
                };
                self.parameters = parameters;
                self.version = position.round;
                begin = position;
            }
        }
        let values = self.parameters.as_slice().into();
        let reply = Reply::Joined { version: self.version, values, position: begin };
        self.all_read(&reply);
        Ok(reply)
    }

    fn close_round(&mut self, requests: Vec<Request>) -> Result<Reply> {
        let mut sum = Share { gradient: Vec::new(), samples: 0, loss: 0.0 };
        let mut by_rank = Vec::with_capacity(requests.len());
        for (rank, request) in requests.into_iter().enumerate() {
            let Request::Contribute(share) = request else { continue };
            same_length(Rank(rank), "step", share.gradient.len(), self.parameters.len())?;
            by_rank.push(share.samples);
            sum.samples += share.samples;
            sum.loss += share.loss;
            if rank == 0 {
                sum.gradient = share.gradient;
            } else {
                sum.gradient.iter_mut().zip(&share.gradient).for_each(|(a, b)| *a += b);
            }
        }
        let version = self.version;
        self.update(&mut sum.gradient, sum.samples);
        let values = self.parameters.as_slice().into();
        Ok(Reply::Closed { version, samples: by_rank.into(), loss: sum.loss, values })
    }
}

fn close_sum(requests: Vec<Request>) -> Result<Reply> {
    let mut sum: Option<Vec<f64>> = None;
    for (rank, request) in requests.into_iter().enumerate() {
        let Request::Sum(values) = request else { continue };
        match &mut sum {
            None => sum = Some(values),
            Some(sum) => {
                same_length(Rank(rank), "sum", values.len(), sum.len())?;
                sum.iter_mut().zip(&values).for_each(|(a, b)| *a += b);
            }
        }
    }
    Ok(Reply::Sum(sum.unwrap_or_default().into()))
}

fn peer_left(rank: Rank, peer: Rank, what: &'static str) -> Action {
    Action { to: rank, reply: Reply::Failed(Error::PeerLeft { rank, peer, what }) }
}

fn fail_all(world: usize, error: &Error) -> Vec<Action> {
    (0..world).map(|rank| Action { to: Rank(rank), reply: Reply::Failed(error.clone()) }).collect()
}

fn same_length(rank: Rank, what: &'static str, found: usize, expected: usize) -> Result<()> {
    if found == expected { Ok(()) } else { Err(Error::Length { rank, what, found, expected }) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::{Consistency, OptimizerKind, OptimizerSettings};

    fn shard(world: usize) -> Shard {
        Shard::new(&settings(), world)
    }

    fn settings() -> SyncSettings {
        let optimizer = OptimizerKind::Sgd;
        let optimizer = OptimizerSettings { optimizer, learning_rate: 1.0, ..OptimizerSettings::default() };
        SyncSettings { optimizer, ..SyncSettings::default() }
    }

    #[test]
    fn nobody_leads_the_slowest_by_more_than_ssp_allows() {
        let settings = SyncSettings { consistency: Consistency::Ssp(Some(1)), ..settings() };
        let mut shard = Shard::new(&settings, 2);
        let mut tick = |rank: usize, finished| -> Vec<usize> {
            let actions = shard.handle(Rank(rank), Request::Tick { finished });
            actions.iter().map(|action| action.to.0).collect()
        };
        assert_eq!(tick(0, false), [0]);
        assert!(tick(0, false).is_empty());
        assert_eq!(tick(1, false), [0, 1]);
        assert!(tick(0, false).is_empty());
        // Nobody waits for a rank without rows.
        assert_eq!(tick(1, true), [0, 1]);
        assert_eq!(tick(0, false), [0]);
        let mut shard = Shard::new(&settings, 2);
        for _ in 0..2 {
            shard.handle(Rank(0), Request::Tick { finished: false });
        }
        assert_eq!(shard.missing(), [Rank(1)]);
        assert_eq!(shard.handle(Rank(1), Request::Leave), [peer_left(Rank(0), Rank(1), "step")]);
    }

    #[test]
    fn a_late_gradient_is_compensated_by_what_its_rank_read() {
        let settings =
            SyncSettings { consistency: Consistency::Async, delay_compensation: 0.5, ..settings() };
        let mut shard = Shard::new(&settings, 2);
        shard.handle(Rank(0), join(0, &[5.0]));
        shard.handle(Rank(1), join(1, &[0.0]));
        shard.handle(Rank(0), Request::Push(share(&[4.0], 2)));
        // w = 5 − 2 = 3, read at 5: 2 + 0.5·4·(3 − 5) = −2.
        shard.handle(Rank(1), Request::Push(share(&[4.0], 2)));
        let actions = shard.handle(Rank(1), Request::Fetch);
        assert_eq!(actions[0].reply, Reply::Parameters { version: 2, values: [5.0].into() });
    }

    fn join(rank: usize, parameters: &[f32]) -> Request {
        let n = parameters.len();
        let parameters = (rank == 0).then(|| parameters.to_vec());
        Request::Join { n_parameters: n, parameters, state: None, position: Arc::default(), range: 0..n }
    }

    fn share(gradient: &[f32], samples: u64) -> Share {
        Share { gradient: gradient.to_vec(), samples, loss: samples as f64 }
    }

    #[test]
    fn a_round_closes_with_the_last_rank_and_weighs_by_samples() {
        let mut shard = shard(2);
        assert!(shard.handle(Rank(1), join(1, &[0.0])).is_empty());
        assert_eq!(shard.missing(), [Rank(0)]);
        assert_eq!(shard.handle(Rank(0), join(0, &[5.0])).len(), 2);
        assert!(shard.handle(Rank(1), Request::Contribute(share(&[3.0], 3))).is_empty());
        let actions = shard.handle(Rank(0), Request::Contribute(share(&[1.0], 1)));
        let values: Arc<[f32]> = [4.0].into();
        let reply = Reply::Closed { version: 0, samples: [1, 3].into(), loss: 4.0, values };
        assert_eq!(actions, [0, 1].map(|r| Action { to: Rank(r), reply: reply.clone() }));
    }

    #[test]
    fn a_round_without_samples_is_no_update() {
        let mut shard = shard(1);
        shard.handle(Rank(0), join(0, &[5.0]));
        for _ in 0..2 {
            let actions = shard.handle(Rank(0), Request::Contribute(share(&[0.0], 0)));
            assert!(matches!(actions[0].reply, Reply::Closed { version: 0, .. }), "{actions:?}");
        }
    }

    #[test]
    fn pushes_are_applied_at_once_and_numbered() {
        let mut shard = shard(2);
        shard.handle(Rank(0), join(0, &[5.0]));
        shard.handle(Rank(1), join(1, &[0.0]));
        for version in 0..3 {
            let actions = shard.handle(Rank(1), Request::Push(share(&[2.0], 2)));
            assert_eq!(actions, [Action { to: Rank(1), reply: Reply::Pushed { version } }]);
        }
        let actions = shard.handle(Rank(0), Request::Fetch);
        assert_eq!(actions[0].reply, Reply::Parameters { version: 3, values: [2.0].into() });
    }

    #[test]
    fn whoever_waits_for_a_rank_that_leaves_is_told() {
        let mut shard = shard(3);
        for rank in 0..3 {
            shard.handle(Rank(rank), join(rank, &[5.0]));
        }
        shard.handle(Rank(0), Request::Synchronise);
        shard.handle(Rank(1), Request::Synchronise);
        let told = shard.handle(Rank(2), Request::Leave);
        assert_eq!(told, [0, 1].map(|r| peer_left(Rank(r), Rank(2), "synchronise")));
        let later = shard.handle(Rank(0), Request::Sum(vec![1.0]));
        assert_eq!(later, [peer_left(Rank(0), Rank(2), "sum")]);
        // A push needs nobody.
        assert!(matches!(
            shard.handle(Rank(0), Request::Push(share(&[1.0], 1)))[0].reply,
            Reply::Pushed { .. }
        ));
    }

    #[test]
    fn different_calls_at_once_are_an_error_for_both() {
        let mut shard = shard(2);
        shard.handle(Rank(0), Request::Synchronise);
        let actions = shard.handle(Rank(1), Request::Sum(vec![1.0]));
        assert_eq!(actions.len(), 2);
        let Reply::Failed(error) = &actions[0].reply else { panic!("{actions:?}") };
        assert!(error.to_string().contains("rank 1 called sum while rank 0 called synchronise"), "{error}");
    }

    #[test]
    fn another_length_names_its_rank() {
        let mut shard = shard(2);
        shard.handle(Rank(1), join(1, &[0.0, 0.0]));
        let actions = shard.handle(Rank(0), join(0, &[5.0]));
        let expected = Error::Length { rank: Rank(1), what: "join", found: 2, expected: 1 };
        assert_eq!(actions, fail_all(2, &expected));
    }
}
