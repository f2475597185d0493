//! What a BIDS file name says: `sub-01_ses-2_task-motor_run-1_space-MNI_bold.nii.gz`.

use serde::{Deserialize, Serialize};
use std::path::Path;

/// Entities of a file name, without their prefixes; `None` where the name is silent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BidsName {
    /// `sub-`
    pub subject: Option<String>,
    /// `ses-`
    pub session: Option<String>,
    /// `task-`
    pub task: Option<String>,
    /// `run-`
    pub run: Option<String>,
    /// `space-`
    pub space: Option<String>,
}

impl BidsName {
    /// Reads the entities of `path`'s last part. A name that follows no convention gives nothing.
    pub fn of(path: &Path) -> Self {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let mut entities = Self::default();
        for part in stem(&name).split('_') {
            let Some((key, value)) = part.split_once('-').filter(|(_, value)| !value.is_empty()) else {
                continue;
            };
            let place = match key {
                "sub" => &mut entities.subject,
                "ses" => &mut entities.session,
                "task" => &mut entities.task,
                "run" => &mut entities.run,
                "space" => &mut entities.space,
                _ => continue,
            };
            *place = Some(value.to_owned());
        }
        entities
    }

    /// The values in the order of the key columns.
    pub fn values(&self) -> [Option<&str>; 5] {
        [&self.subject, &self.session, &self.task, &self.run, &self.space].map(Option::as_deref)
    }
}

/// A file name without `.nii` or `.nii.gz`.
pub(crate) fn stem(name: &str) -> &str {
    let name = name.strip_suffix(".gz").unwrap_or(name);
    name.strip_suffix(".nii").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_are_read_without_their_prefix() {
        let name = BidsName::of(Path::new("x/sub-01_ses-a_task-x_run-1_space-Y_desc-preproc_bold.nii.gz"));
        assert_eq!(name.values(), [Some("01"), Some("a"), Some("x"), Some("1"), Some("Y")]);
    }

    #[test]
    fn another_name_gives_nothing() {
        for name in ["bold.nii", "sub-_x.nii.gz", "functional-old.nii", ""] {
            assert_eq!(BidsName::of(Path::new(name)), BidsName::default(), "{name}");
        }
    }
}
