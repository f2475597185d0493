//! The columns that each component of a strategy stands for.

use super::{
    CompcorComponent, CompcorCount, CompcorKind, Component, ConfoundSettings, ConfoundTable, Expansion,
    IcaAroma, table::fits,
};
use crate::{Error, Result};

const MOTION: [&str; 6] = ["trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z"];

/// Names of the columns that `settings` ask for, sorted and each once, and what there was to remark.
pub(super) fn columns(
    table: &ConfoundTable,
    sidecar: &[CompcorComponent],
    settings: &ConfoundSettings,
) -> Result<(Vec<String>, Vec<String>)> {
    let (mut names, mut absent, mut remarks) = (Vec::new(), Vec::new(), Vec::new());
    for component in &settings.strategy {
        let asked = match component {
            Component::Motion => expand(&MOTION, settings.motion),
            Component::WmCsf => expand(&["csf", "white_matter"], settings.wm_csf),
            Component::GlobalSignal => expand(&["global_signal"], settings.global_signal),
            Component::HighPass => {
                let cosines = containing(table, "cosine");
                if cosines.is_empty() {
                    remarks.push("high_pass: the table has no `cosine` columns, so no drifts".to_owned());
                }
                cosines
            }
            Component::Compcor => compcor(table, sidecar, settings)?,
            Component::IcaAroma => match settings.ica_aroma {
                IcaAroma::Full => Vec::new(),
                IcaAroma::Basic => {
                    let found = containing(table, "aroma");
                    if found.is_empty() {
                        absent.push("aroma_motion_*".to_owned());
                    }
                    found
                }
            },
            Component::Scrub | Component::NonSteadyState => Vec::new(),
        };
        names.extend(asked);
    }
    for pattern in &settings.columns {
        let found: Vec<_> = table.names().filter(|n| fits(pattern, n)).map(str::to_owned).collect();
        if found.is_empty() {
            absent.push(pattern.clone());
        }
        names.extend(found);
    }
    names.sort_unstable();
    names.dedup();
    absent.extend(names.iter().filter(|name| !table.has(name)).cloned());
    if absent.is_empty() { Ok((names, remarks)) } else { Err(table.missing(&absent)) }
}

fn expand(parameters: &[&str], expansion: Expansion) -> Vec<String> {
    let suffixes: &[&str] = match expansion {
        Expansion::Basic => &[""],
        Expansion::Power2 => &["", "_power2"],
        Expansion::Derivatives => &["", "_derivative1"],
        Expansion::Full => &["", "_derivative1", "_power2", "_derivative1_power2"],
    };
    parameters.iter().flat_map(|p| suffixes.iter().map(move |s| format!("{p}{s}"))).collect()
}

fn containing(table: &ConfoundTable, keyword: &str) -> Vec<String> {
    table.names().filter(|n| n.contains(keyword)).map(str::to_owned).collect()
}

/// The components of each mask by ascending number, the first `n_compcor` of each.
///
/// Anatomical components need the sidecar, which alone says from which mask they come; fMRIPrep 21 and later also
/// name those of one tissue `w_comp_cor_…` and `c_comp_cor_…`.
fn compcor(
    table: &ConfoundTable,
    sidecar: &[CompcorComponent],
    settings: &ConfoundSettings,
) -> Result<Vec<String>> {
    let (temporal, masks): (bool, &[&str]) = match settings.compcor {
        CompcorKind::AnatCombined => (false, &["combined"]),
        CompcorKind::AnatSeparated => (false, &["WM", "CSF"]),
        CompcorKind::Temporal => (true, &[]),
        CompcorKind::TemporalAnatCombined => (true, &["combined"]),
        CompcorKind::TemporalAnatSeparated => (true, &["WM", "CSF"]),
    };
    let first = |mut names: Vec<String>| -> Vec<String> {
        names.sort_by_key(|name| name.rsplit('_').next().and_then(|number| number.parse::<u32>().ok()));
        if let CompcorCount::First(n) = settings.n_compcor {
            names.truncate(n);
        }
        names
    };
    let mut taken = Vec::new();
    if temporal {
        let found = table.names().filter(|n| n.starts_with("t_comp_cor_")).map(str::to_owned).collect();
        taken.extend(some(first(found), "temporal", "the table has no `t_comp_cor_…` columns")?);
    }
    if !masks.is_empty() && sidecar.is_empty() {
        let fault = table.sidecar_fault().map(|fault| format!(": {fault}")).unwrap_or_default();
        let reason = format!(
            "anatomical CompCor needs the JSON sidecar of the confounds, which says from which mask a component comes \
             (fMRIPrep 1.4 and later write it){fault}"
        );
        return Err(Error::Setting { setting: "compcor", reason });
    }
    for mask in masks {
        let of_mask = |prefix: &str| {
            let fits = |c: &&CompcorComponent| {
                c.name.starts_with(prefix) && c.mask.as_deref().is_some_and(|m| m == *mask)
            };
            sidecar.iter().filter(fits).map(|c| c.name.clone()).collect::<Vec<_>>()
        };
        let mut found = first(of_mask("a_comp_cor_"));
        match *mask {
            "WM" => found.extend(first(of_mask("w_comp_cor_"))),
            "CSF" => found.extend(first(of_mask("c_comp_cor_"))),
            _ => {}
        }
        taken.extend(some(found, mask, "the sidecar lists no component of this mask")?);
    }
    Ok(taken)
}

/// The names, of which there must be some.
fn some(names: Vec<String>, what: &str, none: &str) -> Result<Vec<String>> {
    match names.is_empty() {
        true => Err(Error::Setting { setting: "compcor", reason: format!("{what}: {none}") }),
        false => Ok(names),
    }
}
