//! The device that a setting names.

use burn::tensor::Device;
use voxelflow_stage::{Error, Result};

/// `cpu`: burn's Flex backend on all cores of this process.
///
/// # Errors
/// A device that this build does not have.
pub fn device(name: &str) -> Result<Device> {
    match name {
        "cpu" => Ok(Device::flex()),
        other => Err(Error::OptionValue {
            what: "TRAIN".into(),
            option: "device".into(),
            reason: format!("`{other}` is not a device of this build; the devices are: cpu"),
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_unknown_device_is_the_user_s_fault() {
        assert!(device("cpu").is_ok());
        let e = device("tpu").unwrap_err();
        assert!(e.is_input() && e.to_string().contains("cpu"), "{e}");
    }
}
