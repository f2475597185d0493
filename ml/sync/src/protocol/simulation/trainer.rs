//! The loop of a rank, as a trainer must write it: what it does after `join` follows from the position alone.

use super::plan::Plan;
use crate::{
    Error, Lease, Position,
    protocol::{Call, Done},
};

/// Parameters and the position that they stand for.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    pub parameters: Vec<f32>,
    pub position: Position,
}

impl Checkpoint {
    /// Before the first step.
    pub fn fresh(plan: &Plan) -> Self {
        Self { parameters: vec![0.0; plan.rows + 1], position: Position::default() }
    }

    /// Every sample of every epoch counts once, and nothing else.
    pub fn check(&self, plan: &Plan) {
        let mut expected = vec![self.position.epoch as f32; plan.rows];
        let blocks = self.position.cursors.len();
        for (cursor, block) in self.position.cursors.iter().zip(crate::equal_ranges(plan.rows, blocks)) {
            for visit in cursor.done().iter().cloned().flatten() {
                expected[block.start + visit] += 1.0;
            }
        }
        assert_eq!(&self.parameters[..plan.rows], &expected[..], "at {:?}", self.position);
    }
}

/// What a trainer does.
#[derive(Clone, Debug, PartialEq)]
pub enum Doing {
    Joining,
    Leasing,
    Computing(Option<Lease>),
    Stepping(Option<Lease>),
    WarmingUp,
    Synchronising { warm: bool },
    Summing,
    Over,
}

/// What is to happen next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    Call(Call),
    /// Work for a while, then [`Trainer::computed`].
    Compute,
    /// Load the newest checkpoint, then join.
    Restore,
    /// Write a checkpoint, then join.
    Rescue,
    /// The work is done.
    Finish,
    /// The rank has failed, or was told to go.
    Fail(Error),
}

/// One rank's training loop.
#[derive(Debug)]
pub struct Trainer {
    pub doing: Doing,
    epoch: u64,
    round: u64,
    warm: bool,
    /// A checkpoint may be written: the parameters are those of the position.
    pub consistent: bool,
    /// The driver is lost, and the parameters are those of the last closed round.
    pub rescues: bool,
}

impl Trainer {
    pub fn new() -> Self {
        Self { doing: Doing::Joining, epoch: 0, round: 0, warm: false, consistent: false, rescues: false }
    }

    fn call(&mut self, doing: Doing, call: Call) -> Next {
        self.doing = doing;
        Next::Call(call)
    }

    /// A call is over.
    pub fn done(&mut self, plan: &Plan, leads: bool, outcome: Result<Done, Error>) -> Next {
        self.consistent = false;
        self.rescues = matches!(outcome, Err(Error::DriverLost { .. })) && self.doing != Doing::Joining;
        match outcome {
            Err(Error::StateLost) => Next::Restore,
            Err(error @ Error::DriverLost { .. }) => {
                assert!(error.wants_join());
                Next::Rescue
            }
            Err(error) if error.wants_join() => Next::Rescue,
            Err(error) => {
                self.doing = Doing::Over;
                Next::Fail(error)
            }
            Ok(Done::Joined(position)) => {
                (self.epoch, self.round) = (position.epoch, position.round);
                self.warm = position.round < plan.warm_up && position.epoch == 0 && position.at_epoch_start();
                self.next(plan, leads)
            }
            Ok(Done::Leased(lease)) => {
                self.doing = Doing::Computing(lease);
                Next::Compute
            }
            Ok(Done::Stepped(round)) => {
                self.consistent = true;
                self.round += u64::from(round.samples > 0);
                match std::mem::replace(&mut self.doing, Doing::Over) {
                    Doing::Stepping(None) if round.finished => {
                        self.call(Doing::Synchronising { warm: false }, Call::Synchronise)
                    }
                    _ => self.next(plan, leads),
                }
            }
            Ok(Done::Synchronised(_)) => {
                self.consistent = true;
                if self.doing == (Doing::Synchronising { warm: false }) {
                    self.epoch += 1;
                }
                self.warm = false;
                self.next(plan, leads)
            }
            Ok(Done::Summed(_)) => {
                self.doing = Doing::Over;
                Next::Finish
            }
            Ok(Done::State { .. }) => Next::Rescue,
        }
    }

    fn next(&mut self, plan: &Plan, leads: bool) -> Next {
        if self.warm && leads && self.round < plan.warm_up {
            return self.call(
                Doing::WarmingUp,
                Call::Step { samples: 1, loss: 0.0, alone: true, differences: false },
            );
        }
        if self.warm {
            return self.call(Doing::Synchronising { warm: true }, Call::Synchronise);
        }
        // An epoch without rows never ends, so there is none.
        if self.epoch >= plan.epochs || plan.rows == 0 {
            return self.call(Doing::Summing, Call::Sum(vec![1.0]));
        }
        self.call(Doing::Leasing, Call::Lease { at_most: plan.minibatch })
    }
}
