//! Folders of BIDS derivatives and of the HCP pipelines, as processes read them: the rows that images alone give,
//! confounds of each run, what `inspect` says.

use crate::bids_tree::{BOLD, Tree, VOLUMES, confounds};
use crate::program::{Ended, larger_data, program, root, run_text, voxelflow};
use crate::servers;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The rows of a table that a pipeline wrote.
fn rows(out: &Path, table: &str) -> String {
    let under = format!("tables/{table}/");
    let files = crate::program::files_below(out);
    let part = files.iter().find(|file| file.starts_with(&under)).unwrap();
    let folder = out.join(part).parent().unwrap().to_owned();
    let query = format!("SELECT * FROM '{}/' ORDER BY run, voxel", folder.display());
    voxelflow(["sql", &query, "--format", "json"]).expect_code(0).stdout
}

fn run(text: &str) -> (tempfile::TempDir, Ended) {
    let out = tempfile::tempdir().unwrap();
    let ended = run_text(text, out.path());
    (out, ended)
}

#[test]
fn a_bids_table_holds_the_rows_of_its_images() {
    let tree = Tree::new();
    let clean = "detrend => true, high_pass => 0.02, standardize => 'zscore_sample'";
    let (image, mask) = (
        tree.file(2, "space-T1w_desc-preproc_bold.nii.gz"),
        tree.file(2, "space-T1w_desc-brain_mask.nii.gz"),
    );
    let text = format!(
        "CREATE EXTERNAL TABLE all_runs STORED AS BIDS LOCATION '{}' OPTIONS (task 'rhyme', space 'T1w');
         CREATE TABLE of_folder AS SELECT * FROM clean(all_runs, {clean}) WHERE run = '2';
         CREATE EXTERNAL TABLE one STORED AS NIFTI LOCATION '{}' OPTIONS (mask '{}', t_r 2);
         CREATE TABLE of_image AS SELECT * FROM clean(one, {clean});
         SELECT run, count(*) AS voxels FROM all_runs GROUP BY run ORDER BY run;",
        tree.root.display(),
        image.display(),
        mask.display()
    );
    let (out, ended) = run(&text);
    let ended = ended.expect_code(0);
    let found = rows(out.path(), "of_folder");
    assert!(found.lines().count() > 500, "{found}");
    assert_eq!(found, rows(out.path(), "of_image"));
    assert!(ended.stdout.contains("| 1   |") && ended.stdout.contains("| 2   |"), "{}", ended.stdout);
}

#[test]
fn confounds_of_each_run_are_removed_here_and_on_executors_alike() {
    let tree = Tree::new();
    let text = format!(
        "CREATE EXTERNAL TABLE bold STORED AS BIDS LOCATION '{}' OPTIONS (space 'T1w');
         CREATE TABLE series AS SELECT * FROM clean(bold, confounds => 'motion', motion => 'derivatives');",
        tree.root.display()
    );
    let (here, ended) = run(&text);
    ended.expect_code(0);
    let found = rows(here.path(), "series");
    let file = here.path().join("motion.vf");
    fs::write(&file, &text).unwrap();
    let there = tempfile::tempdir().unwrap();
    let arguments =
        ["run".as_ref(), file.as_os_str(), "--executors".as_ref(), "2".as_ref(), "--out".as_ref()];
    voxelflow(arguments.into_iter().chain([there.path().as_os_str()])).expect_code(0);
    assert!(found.lines().count() > 1000, "{found}");
    assert!(found == rows(there.path(), "series"), "rows of executors differ");
    let plain = text.replace("confounds => 'motion', motion => 'derivatives'", "detrend => true");
    let (plain_out, ended) = run(&plain);
    ended.expect_code(0);
    assert!(found != rows(plain_out.path(), "series"), "the confounds change the series");
}

#[test]
fn what_is_missing_or_ambiguous_is_said_with_a_caret() {
    let tree = Tree::new();
    let create = |options: &str| {
        format!(
            "CREATE EXTERNAL TABLE bold STORED AS BIDS LOCATION '{}' OPTIONS ({options});",
            tree.root.display()
        )
    };
    let refused = |text: &str, says: &[&str]| {
        let (_out, ended) = run(text);
        let ended = ended.expect_code(2);
        for says in says {
            assert!(ended.stderr.contains(says), "{says} is missing in\n{}", ended.stderr);
        }
    };
    refused(&create("task 'ryhme'"), &["task 'ryhme'", "found: rhyme"]);
    refused(&create("tsk 'rhyme'"), &["did you mean `task`?"]);
    let clean =
        |options: &str| format!("{}\nSELECT count(*) FROM clean(bold, {options});", create("task 'rhyme'"));
    refused(&clean("confounds => 'wm_csf'"), &["csf", "sub-01 task-rhyme run-1"]);
    refused(&clean("confounds => 'motion', motion => 'all'"), &["motion", "derivatives", "^"]);
    fs::remove_file(tree.file(2, "desc-confounds_timeseries.tsv")).unwrap();
    refused(&clean("confounds => 'motion', motion => 'basic'"), &["run-2", "no confounds file"]);
    fs::remove_file(tree.file(1, "space-T1w_desc-brain_mask.nii.gz")).unwrap();
    refused(
        &create("task 'rhyme'"),
        &["run-1_space-T1w_desc-preproc_bold.nii.gz: no brain mask", "other run"],
    );
    let (_out, ended) = run(&format!("{}\nSELECT DISTINCT run FROM bold;", create("incomplete 'skip'")));
    let shown = ended.expect_code(0).stdout;
    assert!(shown.contains("| 2   |") && !shown.contains("| 1   |"), "{shown}");
}

/// Two acquisitions of every run are ambiguous until one, or a list of them, is asked for.
#[test]
fn several_acquisitions_are_separate_runs_when_they_are_listed() {
    let tree = Tree::new();
    let func = tree.root.join("sub-01/func");
    for (run, acq) in [(1, "fast"), (2, "slow")] {
        for end in [
            "space-T1w_desc-preproc_bold.nii.gz",
            "space-T1w_desc-brain_mask.nii.gz",
            "desc-confounds_timeseries.tsv",
        ] {
            let to = func.join(format!("sub-01_task-rhyme_acq-{acq}_run-1_{end}"));
            fs::rename(tree.file(run, end), to).unwrap();
        }
    }
    let create = |options: &str| {
        format!(
            "CREATE EXTERNAL TABLE bold STORED AS BIDS LOCATION '{}' OPTIONS (space 'T1w'{options});",
            tree.root.display()
        )
    };
    let (_out, ended) = run(&create(""));
    let said = ended.expect_code(2).stderr;
    let help = "choose, for example acq 'slow', or take them as separate runs: acq 'fast,slow'";
    assert!(said.contains("acq is fast, slow") && said.contains(help), "{said}");
    let clean =
        "CREATE TABLE series AS SELECT * FROM clean(bold, confounds => 'motion', motion => 'derivatives');";
    let of = |options: &str| {
        let (out, ended) = run(&format!("{}\n{clean}", create(options)));
        ended.expect_code(0);
        rows(out.path(), "series")
    };
    // Each has the confounds of its own: together they are what each is alone.
    let one = |acq: &str| of(&format!(", acq '{acq}'"));
    let named = |acq: &str| one(acq).replace(r#""run":"1""#, &format!(r#""run":"acq-{acq}_run-1""#));
    let together = of(", acq 'fast,slow'");
    assert!(together.lines().count() > 1000 && together == named("fast") + &named("slow"), "{together}");
    let both = fs::read_dir(&func).unwrap().count();
    assert_eq!(both, 6);
}

/// What is read beside the images is part of what a statement is: also files of the raw dataset.
#[test]
fn a_statement_runs_again_when_a_file_beside_the_images_has_changed() {
    let tree = Tree::new();
    let raw = tempfile::tempdir().unwrap();
    let raw_func = raw.path().join("sub-01/func");
    fs::create_dir_all(&raw_func).unwrap();
    let events = raw_func.join("sub-01_task-rhyme_run-1_events.tsv");
    let raw_sidecar = raw.path().join("task-rhyme_bold.json");
    fs::write(&events, "onset\tduration\n0\t2\n").unwrap();
    fs::write(&raw_sidecar, "{}").unwrap();
    let text = format!(
        "CREATE EXTERNAL TABLE bold STORED AS BIDS LOCATION '{}' OPTIONS (space 'T1w', raw '{}');
         CREATE TABLE series AS SELECT * FROM clean(bold, confounds => 'motion', motion => 'derivatives');",
        tree.root.display(),
        raw.path().display()
    );
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("series.vf");
    fs::write(&file, text).unwrap();
    let note = || {
        let arguments = ["run", file.to_str().unwrap(), "--json", "--out", out.path().to_str().unwrap()];
        let said = voxelflow(arguments).expect_code(0).stdout;
        let line = said.lines().find(|line| line.contains("CREATE TABLE series")).unwrap().to_owned();
        serde_json::from_str::<serde_json::Value>(&line).unwrap()["note"].as_str().unwrap().to_owned()
    };
    assert_eq!([note(), note()], ["ran", "unchanged"]);
    let sidecar = tree.root.join("task-rhyme_bold.json");
    for (path, with) in [
        (&events, "onset\tduration\n0\t3.5\n"),
        (&raw_sidecar, r#"{"EchoTime": 0.03}"#),
        (&sidecar, r#"{"RepetitionTime": 2.0, "StartTime": 0.5}"#),
        (&tree.file(2, "desc-confounds_timeseries.tsv"), confounds(VOLUMES, 3).as_str()),
    ] {
        fs::write(path, with).unwrap();
        assert_eq!([note(), note()], ["ran", "unchanged"], "{}", path.display());
    }
}

#[test]
fn inspect_shows_runs_and_faults() {
    let tree = Tree::new();
    fs::remove_file(tree.file(1, "desc-confounds_timeseries.tsv")).unwrap();
    let location = tree.root.to_str().unwrap();
    let ended = voxelflow(["inspect", location]).expect_code(0);
    for shown in [
        "kind        BIDS",
        "sub-01 task-rhyme run-1  desc-preproc space-T1w  16×16×9",
        "2 s",
        "run-1_space-T1w_desc-preproc_bold.nii.gz: no confounds file",
        "2 runs have no events",
        "2 can be read STORED AS BIDS",
    ] {
        assert!(ended.stdout.contains(shown), "{shown} is missing in\n{}", ended.stdout);
    }
    let raw = tempfile::tempdir().unwrap();
    fs::create_dir_all(raw.path().join("sub-01/func")).unwrap();
    fs::copy(root().join(BOLD), raw.path().join("sub-01/func/sub-01_task-rhyme_bold.nii.gz")).unwrap();
    // With the raw dataset, events are known: those of the first run are there.
    let events = raw.path().join("sub-01/func/sub-01_task-rhyme_run-1_events.tsv");
    fs::write(events, "onset\tduration\n0\t2\n").unwrap();
    let ended = voxelflow(["inspect", location, "--raw", raw.path().to_str().unwrap()]).expect_code(0);
    let of_run =
        |run| ended.stdout.lines().find(|line| line.starts_with(&format!("sub-01 task-rhyme run-{run}")));
    assert!(of_run(1).unwrap().ends_with("table") && of_run(2).unwrap().ends_with("no"), "{}", ended.stdout);
    assert!(ended.stdout.contains("run-2_space-T1w_desc-preproc_bold.nii.gz: no events"), "{}", ended.stdout);
    let ended = voxelflow(["inspect", location, "--raw", "/no/such/folder"]).expect_code(2);
    assert!(ended.stderr.contains("/no/such/folder"), "{}", ended.stderr);
    let ended = voxelflow(["inspect", raw.path().to_str().unwrap()]).expect_code(2);
    assert!(
        ended.stdout.contains("raw dataset") && ended.stdout.contains("fmriprep.org"),
        "{}",
        ended.stdout
    );
}

#[test]
fn a_whole_brain_run_of_a_bids_folder_is_cleaned_like_its_image() {
    let Some(data) = larger_data() else { return };
    let bold = data.join("fmri/studyforrest/sub-02_task-visloc_bold.nii.gz");
    let folder = tempfile::tempdir().unwrap();
    let func = folder.path().join("sub-02/func");
    fs::create_dir_all(&func).unwrap();
    let image = func.join("sub-02_task-visloc_space-T1w_desc-preproc_bold.nii.gz");
    std::os::unix::fs::symlink(fs::canonicalize(&bold).unwrap(), &image).unwrap();
    fs::write(func.join("sub-02_task-visloc_desc-confounds_timeseries.tsv"), confounds(156, 1)).unwrap();
    let columns = "subject, task, voxel, i, j, k, array_to_string(series, ' ') AS text";
    let text = format!(
        "CREATE EXTERNAL TABLE of_folder STORED AS BIDS LOCATION '{}' OPTIONS (mask 'auto');
         CREATE EXTERNAL TABLE of_image STORED AS NIFTI LOCATION '{}' OPTIONS (mask 'auto');
         SELECT count(*) AS different FROM (
           SELECT {columns} FROM clean(of_folder, high_pass => 0.008) WHERE k = 17
           EXCEPT SELECT {columns} FROM clean(of_image, high_pass => 0.008) WHERE k = 17);
         SELECT count(*) AS removed FROM clean(of_folder, confounds => 'motion', motion => 'full') WHERE k = 17;",
        folder.path().display(),
        image.display()
    );
    let (_out, ended) = run(&text);
    let shown = ended.expect_code(0).stdout;
    assert!(shown.contains("different") && shown.contains("| 0         |"), "{shown}");
    assert!(shown.contains("removed"), "{shown}");
}

/// Images and confounds are read from the store that the pipeline's settings describe, on executors too.
#[test]
fn a_bids_folder_in_s3_is_cleaned_as_from_disk() {
    let Some(server) = servers::s3() else { return };
    let tree = Tree::new();
    for file in crate::program::files_below(&tree.root) {
        let to = format!("{}/buckets/tests/bids/{file}", server.files);
        let from = tree.root.join(&file);
        let sent =
            Command::new("curl").args(["-sf", "-o", "/dev/null", "-T"]).arg(from).arg(to).status().unwrap();
        assert!(sent.success(), "{file}");
    }
    let text = |location: &str| {
        format!(
            "SET s3.endpoint = '{}';
             CREATE EXTERNAL TABLE bold STORED AS BIDS LOCATION '{location}' OPTIONS (space 'T1w');
             CREATE TABLE series AS SELECT * FROM clean(bold, confounds => 'motion', motion => 'derivatives');",
            server.endpoint
        )
    };
    let (disk, ended) = run(&text(tree.root.to_str().unwrap()));
    ended.expect_code(0);
    let expected = rows(disk.path(), "series");
    for more in [&[][..], &["--executors", "2"][..]] {
        let out = tempfile::tempdir().unwrap();
        let file = out.path().join("series.vf");
        fs::write(&file, text("s3://tests/bids")).unwrap();
        let mut command = program("voxelflow");
        command.args(["run".as_ref(), file.as_os_str(), "--out".as_ref(), out.path().as_os_str()]).args(more);
        command
            .env("AWS_ACCESS_KEY_ID", servers::ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", servers::SECRET_KEY);
        Ended::from(command.output().unwrap()).expect_code(0);
        assert!(rows(out.path(), "series") == expected, "rows from the store differ: {more:?}");
    }
}
