//! What `jobs`, `logs`, `cancel` and `why-waiting` share: the way to a cluster's control service, and how its
//! answers are shown.

use super::cluster_part::cluster_key;
use crate::{Result, flags::ControlFlags};
use std::{
    fmt::Write,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use voxelflow_cluster::{
    ClusterAddress,
    control::{ControlClient, Guard},
};

/// The control service that `flags` name.
pub(super) fn client(flags: &ControlFlags) -> Result<ControlClient> {
    let address = ClusterAddress::parse(&flags.cluster)?;
    let guard = Guard::of_key(&cluster_key(&flags.cluster_key)?).map_err(voxelflow_cluster::Error::from)?;
    Ok(ControlClient::new(&address, &guard).map_err(voxelflow_cluster::Error::from)?)
}

/// Rows under their heads, columns as wide as they need to be.
pub(super) fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(heads.get(column).map(|head| head.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let mut text = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells.zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        // Writing into a text cannot fail.
        let _ = writeln!(text, "{}", padded.join("  ").trim_end());
    };
    line(&mut heads.iter().copied());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
    text
}

/// For how long something has been so, `3m 20s`, if it began `began_ms` milliseconds after 1970.
pub(super) fn since(began_ms: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    seconds(now.saturating_sub(Duration::from_millis(began_ms)).as_secs())
}

/// `3m 20s`.
pub(super) fn seconds(seconds: u64) -> String {
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_need_to_be() {
        let rows =
            vec![vec!["01H".into(), "läuft".into(), String::new()], vec!["7".into(), "x".into(), "y".into()]];
        assert_eq!(table(&["job", "state", "z"], &rows), "job  state  z\n01H  läuft\n7    x      y\n");
        assert_eq!(seconds(200), "3m 20s");
    }
}
