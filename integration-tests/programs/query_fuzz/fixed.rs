//! Queries that were answered wrongly on executors, and what they give.

use crate::tables::Table;
use std::path::Path;
use voxelflow::Result;

/// A query over the [tables](tables) of this module.
pub struct Case {
    pub query: &'static str,
    /// Its rows, sorted, values separated by blanks.
    pub rows: &'static [&'static str],
}

impl Case {
    /// The rows as answers have them.
    pub fn written(&self) -> Vec<Vec<String>> {
        self.rows.iter().map(|row| vec![(*row).to_owned()]).collect()
    }
}

/// `numbers`: id from 0 to 19, x = id, but NULL where id is 3, 10 or 17; in two files. `events`: from `onset` to `ending`.
/// `volumes`: at `t`.
pub fn tables(folder: &Path) -> Result<Vec<Table>> {
    let x = |id: i64| (![3, 10, 17].contains(&id)).then_some(id);
    let numbers = (0..20).map(|id| vec![Some(id), x(id)]).collect::<Vec<_>>();
    let events = [(0, 2, 5), (1, 4, 9), (2, 30, 31), (3, 12, 12), (4, 40, 50)];
    let events = events.map(|(id, onset, ending)| vec![Some(id), Some(onset), Some(ending)]);
    let volumes = (0..12).map(|id| vec![Some(id), Some(2 * id)]).collect::<Vec<_>>();
    Ok(vec![
        Table::of_numbers("numbers", folder, &["id", "x"], &[&numbers[..9], &numbers[9..]])?,
        Table::of_numbers("events", folder, &["id", "onset", "ending"], &[&events[..2], &events[2..]])?,
        Table::of_numbers("volumes", folder, &["id", "t"], &[&volumes[..5], &[], &volumes[5..]])?,
    ])
}

pub const CASES: &[Case] = &[
    // NULL on the left is neither in nor not in a list that has rows.
    Case {
        query: "SELECT count(*) AS n FROM numbers WHERE x NOT IN (SELECT x FROM numbers WHERE id < 0)",
        rows: &["20"],
    },
    Case {
        query: "SELECT count(*) AS n FROM numbers WHERE x NOT IN (SELECT t FROM volumes WHERE t > 100)",
        rows: &["20"],
    },
    Case { query: "SELECT count(*) AS n FROM numbers WHERE x NOT IN (SELECT t FROM volumes)", rows: &["8"] },
    // A NULL in the list leaves nothing.
    Case {
        query: "SELECT count(*) AS n FROM numbers WHERE x NOT IN (SELECT x FROM numbers WHERE id < 5)",
        rows: &["0"],
    },
    Case {
        query: "SELECT g, count(*) AS n FROM (SELECT id % 3 AS g, x FROM numbers WHERE x NOT IN (SELECT t FROM volumes)) \
                AS q GROUP BY g",
        rows: &["0 2", "1 3", "2 3"],
    },
];
