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
    // NULL on the left is neither in a list nor not in it, unless the list is empty.
    Case {
        query: "SELECT count(*) AS n FROM numbers WHERE x NOT IN (SELECT x FROM numbers WHERE id < 0)",
        rows: &["20"],
    },
    Case {
        query: "SELECT count(*) AS n FROM numbers WHERE x NOT IN (SELECT t FROM volumes WHERE t > 16)",
        rows: &["16"],
    },
    Case { query: "SELECT count(*) AS n FROM numbers WHERE x NOT IN (SELECT t FROM volumes)", rows: &["8"] },
    // A NULL in the list leaves nothing.
    Case {
        query: "SELECT count(*) AS n FROM numbers WHERE x NOT IN (SELECT x FROM numbers WHERE id < 5)",
        rows: &["0"],
    },
    // The same below a group.
    Case {
        query: "SELECT g, count(*) AS n FROM (SELECT id % 3 AS g, x FROM numbers WHERE x NOT IN (SELECT t FROM volumes)) AS q GROUP BY g",
        rows: &["0 2", "1 4", "2 2"],
    },
    // Rows without a partner, of joins without an equality.
    Case {
        query: "SELECT e.id, v.id FROM events AS e LEFT JOIN volumes AS v ON v.t BETWEEN e.onset AND e.ending",
        rows: &["0 1", "0 2", "1 2", "1 3", "1 4", "2 NULL", "3 6", "4 NULL"],
    },
    Case {
        query: "SELECT count(*), count(e.id), count(v.id), sum(e.id), sum(v.id) FROM events AS e RIGHT JOIN volumes AS v ON v.t BETWEEN e.onset AND e.ending",
        rows: &["13 6 13 6 68"],
    },
    Case {
        query: "SELECT count(*), count(e.id), count(v.id), sum(e.id), sum(v.id) FROM events AS e FULL JOIN volumes AS v ON v.t BETWEEN e.onset AND e.ending",
        rows: &["15 8 13 12 68"],
    },
    Case {
        query: "SELECT count(*), count(n.id), count(v.id), sum(n.x), sum(v.id) FROM numbers AS n FULL JOIN volumes AS v ON v.t > n.x + 12",
        rows: &["44 37 33 201 273"],
    },
    Case {
        query: "SELECT id FROM volumes AS v WHERE NOT EXISTS (SELECT 1 FROM events AS e WHERE v.t BETWEEN e.onset AND e.ending)",
        rows: &["0", "10", "11", "5", "7", "8", "9"],
    },
    Case {
        query: "SELECT id FROM volumes AS v WHERE EXISTS (SELECT 1 FROM events AS e WHERE v.t > e.onset + 10) OR v.id = 1",
        rows: &["1", "10", "11", "7", "8", "9"],
    },
    // Unions of files, in an order.
    Case {
        query: "SELECT * FROM (SELECT id, x FROM numbers UNION ALL SELECT id, t FROM volumes) AS q ORDER BY id, x NULLS LAST LIMIT 6",
        rows: &["0 0", "0 0", "1 1", "1 2", "2 2", "2 4"],
    },
    Case {
        query: "SELECT id FROM numbers WHERE id > 17 UNION ALL SELECT id FROM volumes WHERE id < 3 ORDER BY id",
        rows: &["0", "1", "18", "19", "2"],
    },
    // A recursion, alone and with tables.
    Case {
        query: "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 6) SELECT n FROM r",
        rows: &["1", "2", "3", "4", "5", "6"],
    },
    Case {
        query: "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 6) SELECT count(*), sum(v.t) FROM r JOIN volumes AS v ON v.id = r.n",
        rows: &["6 42"],
    },
    // An order that an offset relies on, below a group; a window over what was limited, in a join.
    Case {
        query: "SELECT g, count(*), sum(id) FROM (SELECT id, id % 3 AS g FROM numbers ORDER BY id OFFSET 7) AS q GROUP BY g",
        rows: &["0 4 54", "1 5 65", "2 4 50"],
    },
    Case {
        query: "SELECT v.id, q.n FROM volumes AS v JOIN (SELECT id, row_number() OVER (PARTITION BY id % 2 ORDER BY id) AS n FROM (SELECT id FROM numbers ORDER BY id LIMIT 8) AS l) AS q ON v.id = q.n",
        rows: &["1 1", "1 1", "2 2", "2 2", "3 3", "3 3", "4 4", "4 4"],
    },
    // Sides that are collected, below a union.
    Case {
        query: "SELECT count(*) FROM (SELECT v.id FROM volumes AS v CROSS JOIN events AS e UNION ALL SELECT v.id FROM volumes AS v LEFT JOIN events AS e ON e.onset > v.t UNION ALL SELECT count(*) FROM events) AS q",
        rows: &["94"],
    },
    // A list within a row, which DataFusion refuses to make of a row before it; a row that is asked for by another.
    Case {
        query: "SELECT e.id, u.v FROM events AS e, LATERAL (SELECT unnest([e.onset, e.ending]) AS v) AS u",
        rows: &["sql: Schema error: No field named e.onset."],
    },
    Case {
        query: "SELECT id FROM volumes AS v WHERE v.t NOT IN (SELECT n.id FROM numbers AS n WHERE n.id > v.id + 6)",
        rows: &["0", "1", "10", "11", "2", "3", "4", "5", "6"],
    },
    // Generated rows of which no column is asked for.
    Case { query: "SELECT count(*) FROM generate_series(1, 5) AS g(n) CROSS JOIN events", rows: &["25"] },
    // An order that follows from a column's being the same in all rows, below an exchange.
    Case {
        query: "SELECT v.id, q.n FROM volumes AS v JOIN (SELECT id, row_number() OVER (PARTITION BY c ORDER BY id) AS n \
                FROM (SELECT id, 'a' AS c FROM numbers) AS l) AS q ON v.id = q.n WHERE v.t NOT IN (SELECT id FROM events)",
        rows: &["10 10", "11 11", "3 3", "4 4", "5 5", "6 6", "7 7", "8 8", "9 9"],
    },
    // Conditions on a subquery that stand elsewhere than alone in WHERE; NOT IN of a query that asks the row outside.
    Case {
        query: "SELECT id FROM numbers WHERE x NOT IN (SELECT t FROM volumes) OR id = 3",
        rows: &["1", "11", "13", "15", "19", "3", "5", "7", "9"],
    },
    Case {
        query: "SELECT id FROM numbers WHERE x NOT IN (SELECT x FROM numbers WHERE id > 15) OR id = 10",
        rows: &["10"],
    },
    Case {
        query: "SELECT id FROM numbers WHERE NOT (x IN (SELECT t FROM volumes) AND id < 10)",
        rows: &["1", "10", "11", "12", "13", "14", "15", "16", "17", "18", "19", "5", "7", "9"],
    },
    Case {
        query: "SELECT id FROM numbers WHERE (x IN (SELECT t FROM volumes)) IS NULL",
        rows: &["10", "17", "3"],
    },
    Case {
        query: "SELECT id, x IN (SELECT t FROM volumes WHERE t < 7) AS found FROM numbers WHERE id < 5",
        rows: &["0 true", "1 false", "2 true", "3 NULL", "4 true"],
    },
    Case {
        query: "SELECT id, x NOT IN (SELECT x FROM numbers WHERE id IN (2, 3)) AS found FROM numbers WHERE id < 5",
        rows: &["0 NULL", "1 NULL", "2 false", "3 NULL", "4 NULL"],
    },
    Case {
        query: "SELECT id, x IN (SELECT t FROM volumes WHERE t > 100) AS found FROM numbers WHERE id < 5",
        rows: &["0 false", "1 false", "2 false", "3 false", "4 false"],
    },
    Case {
        query: "SELECT id, EXISTS (SELECT 1 FROM volumes WHERE t = x) AS found FROM numbers WHERE id < 5",
        rows: &["0 true", "1 false", "2 true", "3 false", "4 true"],
    },
    Case {
        query: "SELECT odd, count(*) AS n FROM (SELECT CASE WHEN x NOT IN (SELECT t FROM volumes) THEN 1 ELSE 0 END AS odd FROM numbers) AS q GROUP BY odd",
        rows: &["0 12", "1 8"],
    },
    Case {
        query: "SELECT e.id FROM events AS e WHERE e.onset NOT IN (SELECT x FROM numbers WHERE numbers.id = e.id + 2)",
        rows: &["2", "3", "4"],
    },
    Case {
        query: "SELECT n.id FROM numbers AS n WHERE n.x NOT IN (SELECT t FROM volumes WHERE volumes.id = n.id - 3)",
        rows: &["0", "1", "11", "12", "13", "14", "15", "16", "17", "18", "19", "2", "4", "5", "7", "8", "9"],
    },
    Case {
        query: "SELECT n.id FROM numbers AS n WHERE n.x NOT IN (SELECT m.x FROM numbers AS m WHERE m.id > n.id + 10)",
        rows: &["10", "11", "12", "13", "14", "15", "16", "17", "18", "19", "7", "8", "9"],
    },
    // NULL is NULL, also where joins could stand in another order.
    Case {
        query: "SELECT a.id, b.id FROM numbers AS a JOIN numbers AS b ON a.x IS NOT DISTINCT FROM b.x JOIN volumes AS v ON v.id = a.id WHERE a.id < 12 AND a.x IS NULL",
        rows: &["10 10", "10 17", "10 3", "3 10", "3 17", "3 3"],
    },
    // What stands behind a comparison of NULLs is no part of it.
    Case {
        query: "SELECT id FROM numbers WHERE x IS DISTINCT FROM 4 AND id < 6",
        rows: &["0", "1", "2", "3", "5"],
    },
    Case {
        query: "SELECT id FROM numbers WHERE id = 7 OR x IS NOT DISTINCT FROM NULL AND id < 12 OR id = 19",
        rows: &["10", "19", "3", "7"],
    },
];
