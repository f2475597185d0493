//! `COPY` replaces what was there, however often it runs; `EXPLAIN` of a query in a file.

use crate::program::{files_below, run_text, voxelflow};
use std::{fs, path::Path};

/// Lines of all files below a folder, or of a file.
fn lines(place: &Path) -> Vec<String> {
    let files = match place.is_dir() {
        true => files_below(place).iter().map(|file| place.join(file)).collect(),
        false => vec![place.to_owned()],
    };
    let mut lines: Vec<String> = files
        .iter()
        .flat_map(|file| fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    lines.sort();
    lines
}

#[test]
fn a_copy_that_runs_again_replaces_what_it_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let copies = |rows: usize| {
        let query = format!("SELECT value AS id, value % 2 AS part FROM generate_series(1, {rows})");
        let to = |name: &str, rest: &str| {
            format!("COPY ({query}) TO '{}' STORED AS {rest};\n", at(name).display())
        };
        [
            to("csv/", "CSV"),
            to("one.csv", "CSV"),
            to("parts/", "CSV PARTITIONED BY (part)"),
            to("json/", "JSON"),
        ]
        .concat()
            + &to("parquet/", "PARQUET PARTITIONED BY (part)")
    };
    let out = at("out");
    let mut seen = Vec::new();
    for rows in [5, 5, 3] {
        run_text(&copies(rows), &out).expect_code(0);
        let header = 1;
        assert_eq!(lines(&at("one.csv")).len(), rows + header);
        assert_eq!(lines(&at("json")).len(), rows);
        assert_eq!(lines(&at("csv")).iter().filter(|line| !line.starts_with("id")).count(), rows);
        let parts = files_below(&at("parts"));
        assert_eq!(parts.iter().filter(|file| file.starts_with("part=1/")).count(), 1, "{parts:?}");
        assert_eq!(lines(&at("parts")).iter().filter(|line| *line != "id").count(), rows);
        let query = format!(
            "SELECT part, count(*) AS n FROM '{}' GROUP BY part ORDER BY part",
            at("parquet").display()
        );
        let read = voxelflow(["sql", &query, "--format", "csv"]).expect_code(0);
        seen.push(read.stdout);
    }
    assert_eq!(seen, ["part,n\n0,2\n1,3\n", "part,n\n0,2\n1,3\n", "part,n\n0,1\n1,2\n"]);
    let copy = format!("COPY (SELECT 7 AS id) TO '{}' STORED AS CSV", at("csv/").display());
    for _ in 0..2 {
        voxelflow(["sql", &copy]).expect_code(0);
        assert_eq!(lines(&at("csv")), ["7", "id"]);
    }
    let left: Vec<String> =
        fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert!(left.iter().all(|name| !name.starts_with('.')), "{left:?}");
}

#[test]
fn a_query_in_a_file_is_explained() {
    let out = tempfile::tempdir().unwrap();
    let text =
        "EXPLAIN SELECT value FROM generate_series(1, 3) WHERE value > 1;\nEXPLAIN ANALYZE SELECT 1 AS one;";
    let ended = run_text(text, out.path()).expect_code(0);
    assert!(
        ended.stdout.contains("logical_plan") && ended.stdout.contains("Plan with Metrics"),
        "{}",
        ended.stdout
    );
}
