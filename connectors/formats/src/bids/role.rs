//! What a file is, by its name: the names of today's fMRIPrep and of its earlier releases.
//!
//! | release | image | mask | confounds |
//! |---|---|---|---|
//! | 20.2 and later | `…_desc-preproc_bold` | `…_desc-brain_mask` | `…_desc-confounds_timeseries.tsv` |
//! | 1.2 to 20.1 | `…_desc-preproc_bold` | `…_desc-brain_mask` | `…_desc-confounds_regressors.tsv` |
//! | up to 1.1 | `…_bold_…_preproc` | `…_bold_…_brainmask` | `…_bold_confounds.tsv` |

use super::BidsName;
use std::fmt;

/// What a functional image is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BoldKind {
    /// Voxels: `.nii`, `.nii.gz`.
    Volume,
    /// Vertices of one hemisphere: `.func.gii`.
    Surface,
    /// Grayordinates: `.dtseries.nii`.
    Grayordinates,
}

impl fmt::Display for BoldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Volume => "volumes",
            Self::Surface => "surfaces",
            Self::Grayordinates => "grayordinates",
        })
    }
}

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A functional image.
    Bold(BoldKind),
    /// The brain on the grid of a functional image.
    BrainMask,
    /// Confounds, a column each.
    Confounds,
    /// Events of a task.
    Events,
    /// Metadata of other files.
    Sidecar,
    /// Something else.
    Other,
}

impl Role {
    /// The role that a name tells.
    pub fn of(name: &BidsName) -> Self {
        let early = name.source_suffix() == Some("bold");
        let modern = name.source_suffix().is_none();
        let image = matches!(name.extension(), ".nii" | ".nii.gz");
        let desc = name.get("desc");
        match name.suffix() {
            _ if name.extension() == ".json" => Self::Sidecar,
            "bold" if modern => bold(name),
            "preproc" | "" if early => bold(name),
            "mask" if modern && image && desc == Some("brain") => Self::BrainMask,
            "brainmask" if early && image => Self::BrainMask,
            "timeseries" | "regressors" if name.extension() == ".tsv" && desc == Some("confounds") => {
                Self::Confounds
            }
            "confounds" if early && name.extension() == ".tsv" => Self::Confounds,
            "events" if name.extension() == ".tsv" => Self::Events,
            _ => Self::Other,
        }
    }
}

fn bold(name: &BidsName) -> Role {
    match name.extension() {
        ".nii" | ".nii.gz" if !name.suffix().is_empty() => Role::Bold(BoldKind::Volume),
        ".func.gii" | ".L.func.gii" | ".R.func.gii" => Role::Bold(BoldKind::Surface),
        ".dtseries.nii" => Role::Bold(BoldKind::Grayordinates),
        _ => Role::Other,
    }
}

/// `L` or `R` of a surface, from `hemi-` or the extension of early names.
pub(super) fn hemisphere(name: &BidsName) -> Option<&str> {
    name.get("hemi").or(match name.extension() {
        ".L.func.gii" => Some("L"),
        ".R.func.gii" => Some("R"),
        _ => None,
    })
}

/// Whether a functional image is as the scanner gave it: nothing in its name tells of preprocessing.
pub(super) fn is_raw(name: &BidsName) -> bool {
    name.source_suffix().is_none()
        && Role::of(name) == Role::Bold(BoldKind::Volume)
        && ["space", "desc", "res", "hemi", "den"].iter().all(|key| name.get(key).is_none())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_of_all_releases_have_their_roles() {
        let volume = Role::Bold(BoldKind::Volume);
        for (name, role) in [
            ("sub-1_task-x_space-T1w_desc-preproc_bold.nii.gz", volume),
            ("sub-1_task-x_bold_space-T1w_preproc.nii.gz", volume),
            ("sub-1_task-x_bold.nii", volume),
            ("sub-1_task-x_hemi-L_space-fsnative_bold.func.gii", Role::Bold(BoldKind::Surface)),
            ("sub-1_task-x_bold_space-fsaverage5.L.func.gii", Role::Bold(BoldKind::Surface)),
            ("sub-1_task-x_space-fsLR_den-91k_bold.dtseries.nii", Role::Bold(BoldKind::Grayordinates)),
            ("sub-1_task-x_space-T1w_desc-brain_mask.nii.gz", Role::BrainMask),
            ("sub-1_task-x_bold_space-T1w_brainmask.nii.gz", Role::BrainMask),
            ("sub-1_label-CSF_desc-thr_mask.nii.gz", Role::Other),
            ("sub-1_task-x_desc-confounds_timeseries.tsv", Role::Confounds),
            ("sub-1_task-x_desc-confounds_regressors.tsv", Role::Confounds),
            ("sub-1_task-x_bold_confounds.tsv", Role::Confounds),
            ("sub-1_task-x_desc-confounds_timeseries.json", Role::Sidecar),
            ("sub-1_task-x_events.tsv", Role::Events),
            ("sub-1_task-x_sbref.nii.gz", Role::Other),
            ("sub-1_task-x_space-T1w_boldref.nii.gz", Role::Other),
            ("sub-1_task-x_desc-coreg_boldref.nii.gz", Role::Other),
        ] {
            assert_eq!(Role::of(&BidsName::parse(name).unwrap()), role, "{name}");
        }
    }

    #[test]
    fn a_raw_image_has_nothing_of_a_derivative() {
        for (name, raw) in [
            ("sub-1_task-x_run-1_echo-2_bold.nii.gz", true),
            ("sub-1_task-x_desc-preproc_bold.nii.gz", false),
            ("sub-1_task-x_space-T1w_bold.nii.gz", false),
            ("sub-1_task-x_bold_preproc.nii.gz", false),
        ] {
            assert_eq!(is_raw(&BidsName::parse(name).unwrap()), raw, "{name}");
        }
    }
}
