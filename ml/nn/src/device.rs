//! The device that a setting names.

use burn::tensor::Device;
use std::path::PathBuf;
use voxelflow_cuda::{Card, cache_folder};
use voxelflow_stage::{Error, Placement, Result};

/// burn's device for `cpu`: its Flex backend on all cores of this process. Models are applied there wherever they were
/// trained.
///
/// # Errors
/// Another name.
pub fn device(name: &str) -> Result<Device> {
    match Placement::of(name)? {
        Placement::Cpu => Ok(Device::flex()),
        Placement::Cards(_) => Err(refused(format!("`{name}` trains; models are applied on: cpu"))),
    }
}

/// Whether this machine has the cards that `name`, the `device` of a training, names.
///
/// # Errors
/// A name that is no device's, a card that is not there or cannot be opened.
pub fn check_device(name: &str) -> Result<()> {
    match Placement::of(name)? {
        Placement::Cpu => Ok(()),
        Placement::Cards(ordinals) => Card::open_all(&ordinals).map(drop).map_err(card_failed),
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
    let refused =
        |reason: String| Error::OptionValue { what: "warm-up".into(), option: "--device".into(), reason };
    let Placement::Cards(ordinals) = name.parse().map_err(refused)? else {
        return Err(refused("`cpu` has nothing to compile; name a card: cuda:0".into()));
    };
    let failed = |error| failed_in(error, refused);
    let cards = Card::open_all(&ordinals).map_err(failed)?;
    cards.iter().try_for_each(|card| card.warm_up()).map_err(failed)?;
    Ok(WarmedUp { cards: cards.iter().map(|card| card.name().into()).collect(), kernels: cache_folder() })
}

/// The setting of a training is wrong.
fn refused(reason: String) -> Error {
    Error::OptionValue { what: "TRAIN".into(), option: "device".into(), reason }
}

/// A card's fault as this crate's: what the machine lacks is the option's.
pub(crate) fn card_failed(error: voxelflow_cuda::Error) -> Error {
    failed_in(error, refused)
}

fn failed_in(error: voxelflow_cuda::Error, refused: fn(String) -> Error) -> Error {
    if error.is_input() { refused(error.to_string()) } else { Error::Device { reason: error.to_string() } }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn models_are_applied_on_the_cpu() {
        assert!(device("cpu").is_ok());
        for name in ["tpu", "cuda:0"] {
            assert!(device(name).unwrap_err().is_input());
        }
    }

    #[test]
    fn only_cards_are_warmed_up() {
        for (name, said) in
            [("cpu", "cuda:0"), ("tpu", "cuda:0"), ("cuda:97", "device => 'cpu'"), ("cuda:0,0", "twice")]
        {
            let e = warm_up(name).unwrap_err();
            assert!(e.is_input() && e.to_string().contains(said), "{e}");
            assert_eq!(e.option(), Some("--device"));
        }
    }

    #[test]
    fn devices_are_looked_for_before_anything_runs() {
        check_device("cpu").unwrap();
        for name in ["tpu", "cuda:97"] {
            let e = check_device(name).unwrap_err();
            assert!(e.is_input() && e.option() == Some("device"), "{e}");
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
