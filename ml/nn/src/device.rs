//! The device that a setting names.

use burn::tensor::Device;
use std::path::PathBuf;
use voxelflow_cuda::{Card, cache_folder};
use voxelflow_stage::{Error, Result};

/// Where a rank computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// All cores of the process.
    Cpu,
    /// These cards of the machine, counted from 0: at least one, and none twice.
    Cards(Vec<usize>),
}

/// `cpu`; `cuda:0`, `cuda:1` and so on, or `cuda` for the first; `cuda:0,1` for several cards at once. Whether such cards
/// are there is known only on the machine of a rank, when it starts.
///
/// # Errors
/// Another name, or a card that is named twice.
pub fn placement(name: &str) -> Result<Placement> {
    let cards = match name.split_once(':') {
        None if name == "cpu" => return Ok(Placement::Cpu),
        None if name == "cuda" => Some(vec![0]),
        Some(("cuda", numbers)) => numbers.split(',').map(number).collect(),
        _ => None,
    };
    let cards = cards.ok_or_else(|| {
        refused(format!(
            "`{name}` is not a device; the devices are: cpu, and NVIDIA's cards: cuda:0, cuda:1, …, or cuda:0,1 for both"
        ))
    })?;
    let twice = cards.iter().enumerate().find(|(i, card)| cards[..*i].contains(card));
    match twice {
        Some((_, card)) => Err(refused(format!("`{name}` names cuda:{card} twice; name every card once"))),
        None => Ok(Placement::Cards(cards)),
    }
}

/// A card's number: digits, without a sign.
fn number(text: &str) -> Option<usize> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// burn's device for `cpu`: its Flex backend on all cores of this process. Models are applied there wherever they were
/// trained.
///
/// # Errors
/// Another name.
pub fn device(name: &str) -> Result<Device> {
    match placement(name)? {
        Placement::Cpu => Ok(Device::flex()),
        Placement::Cards(_) => Err(refused(format!("`{name}` trains; models are applied on: cpu"))),
    }
}

/// Cards whose kernels are compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmedUp {
    /// The cards, as their maker names them.
    pub cards: Vec<String>,
    /// The folder that its kernels are kept in, one file for each kind of card; machines that are given the file need
    /// no compiler. None if the user has no cache folder.
    pub kernels: Option<PathBuf>,
}

/// Compiles the kernels of the cards that `name` names, unless they are kept already: then the first step of a training begins at
/// once.
///
/// # Errors
/// A name that is no card's, a machine without the cards or without NVRTC, a card that fails.
pub fn warm_up(name: &str) -> Result<WarmedUp> {
    let Placement::Cards(ordinals) = placement(name)? else {
        return Err(refused_by("warm-up", "`cpu` has nothing to compile; name a card: cuda:0".into()));
    };
    let failed = |error| failed_in("warm-up", error);
    let cards = Card::open_all(&ordinals).map_err(failed)?;
    cards.iter().try_for_each(|card| card.warm_up()).map_err(failed)?;
    Ok(WarmedUp { cards: cards.iter().map(|card| card.name().into()).collect(), kernels: cache_folder() })
}

fn refused(reason: String) -> Error {
    refused_by("TRAIN", reason)
}

fn refused_by(what: &str, reason: String) -> Error {
    Error::OptionValue { what: what.into(), option: "device".into(), reason }
}

/// A card's fault as this crate's: what the machine lacks is the option's.
pub(crate) fn card_failed(error: voxelflow_cuda::Error) -> Error {
    failed_in("TRAIN", error)
}

fn failed_in(what: &str, error: voxelflow_cuda::Error) -> Error {
    match error.is_input() {
        true => refused_by(what, error.to_string()),
        false => Error::Device { reason: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_unknown_device_is_the_user_s_fault() {
        assert!(device("cpu").is_ok());
        for name in
            ["tpu", "cuda:", "cuda:x", "cpu:0", "", "cuda:0,", "cuda:,1", "cuda:0, 1", "cuda:+1", "cuda:0-1"]
        {
            let e = placement(name).unwrap_err();
            assert!(e.is_input() && e.to_string().contains("cuda:0"), "{e}");
        }
        assert_eq!(placement("cpu").unwrap(), Placement::Cpu);
        for (name, cards) in [
            ("cuda", vec![0]),
            ("cuda:3", vec![3]),
            ("cuda:0,1", vec![0, 1]),
            ("cuda:2,0,11", vec![2, 0, 11]),
        ] {
            assert_eq!(placement(name).unwrap(), Placement::Cards(cards));
        }
        assert!(device("cuda:0").unwrap_err().is_input());
    }

    #[test]
    fn a_card_is_named_once() {
        for name in ["cuda:1,1", "cuda:0,1,2,1", "cuda:01,1"] {
            let e = placement(name).unwrap_err();
            assert!(e.is_input() && e.to_string().contains("cuda:1 twice"), "{e}");
        }
    }

    #[test]
    fn only_cards_are_warmed_up() {
        for (name, said) in
            [("cpu", "cuda:0"), ("tpu", "cuda:0"), ("cuda:97", "device => 'cpu'"), ("cuda:0,0", "twice")]
        {
            let e = warm_up(name).unwrap_err();
            assert!(e.is_input() && e.to_string().contains(said), "{e}");
        }
    }

    #[test]
    fn a_card_that_is_not_there_is_the_user_s_fault() {
        let missing = voxelflow_cuda::Error::NoCard { missing: "cuda:7".into(), found: "no card".into() };
        let e = card_failed(missing);
        assert!(e.is_input() && e.option() == Some("device"), "{e}");
        assert!(!card_failed(voxelflow_cuda::Error::failed("a kernel", "broken")).is_input());
    }
}
