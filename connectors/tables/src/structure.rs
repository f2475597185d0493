//! Parts of the brain by one name, that of CIFTI without `CIFTI_STRUCTURE_`, whatever a file calls them.

/// `CORTEX_LEFT` of `CIFTI_STRUCTURE_CORTEX_LEFT`.
pub(crate) fn of_cifti(name: &str) -> String {
    name.strip_prefix("CIFTI_STRUCTURE_").unwrap_or(name).to_owned()
}

/// `CORTEX_LEFT` of `CortexLeft`, as GIFTI has it.
pub(crate) fn of_gifti(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 2);
    for (at, letter) in name.trim().char_indices() {
        if at > 0 && letter.is_uppercase() {
            words.push('_');
        }
        words.extend(letter.to_uppercase());
    }
    words
}

/// The hemisphere that a file's name tells: `hemi-L`, or `lh`, `L` between dots (FreeSurfer, HCP).
pub(crate) fn of_name(location: &str) -> Option<String> {
    let name = location.rsplit('/').next().unwrap_or(location);
    let of_part = |part: &str| match part {
        "hemi-L" | "lh" | "L" => Some("CORTEX_LEFT"),
        "hemi-R" | "rh" | "R" => Some("CORTEX_RIGHT"),
        _ => None,
    };
    let mut sides: Vec<&str> = name.split(['.', '_']).filter_map(of_part).collect();
    sides.dedup();
    match sides[..] {
        [side] => Some(side.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_structure_has_one_name() {
        assert_eq!(of_cifti("CIFTI_STRUCTURE_CORTEX_LEFT"), "CORTEX_LEFT");
        assert_eq!(of_gifti("CortexLeft"), "CORTEX_LEFT");
        assert_eq!(of_gifti("Cerebellum"), "CEREBELLUM");
        for (name, side) in [
            ("a/sub-1_hemi-L_space-fsLR_bold.func.gii", Some("CORTEX_LEFT")),
            ("sub-1_task-x_bold_space-fsaverage5.R.func.gii", Some("CORTEX_RIGHT")),
            ("sub-1_run-01.fsa5.rh.mgz", Some("CORTEX_RIGHT")),
            ("s3://b/lh.curv.mgh", Some("CORTEX_LEFT")),
            ("100307.L.thickness.shape.gii", Some("CORTEX_LEFT")),
            ("lh/whole.mgz", None),
            ("lh_to_rh.mgz", None),
        ] {
            assert_eq!(of_name(name).as_deref(), side, "{name}");
        }
    }
}
