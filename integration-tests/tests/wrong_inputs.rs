//! Wrong inputs, as users give them: each is refused with exit code 2 and a message that names the thing and
//! what to do, and leaves nothing half-written.

use crate::program::{files_below, root, run_text, voxelflow};
use std::{
    fs,
    path::{Path, PathBuf},
};
use voxelflow_formats::{NiftiSpec, NiftiWriter};

const AFFINE: [[f64; 4]; 4] =
    [[2.0, 0.0, 0.0, -3.0], [0.0, 2.0, 0.0, -3.0], [0.0, 0.0, 2.0, -3.0], [0.0, 0.0, 0.0, 1.0]];

fn bold() -> PathBuf {
    root().join("examples/data/ds003_sub-01_mc.nii.gz")
}

/// A 4×4×4 image with `volumes` volumes of a signal that differs in every voxel; `change` may spoil it.
fn image(path: &Path, volumes: usize, affine: [[f64; 4]; 4], change: impl Fn(usize, &mut [f32])) {
    let spec = NiftiSpec::new([4, 4, 4], volumes).with_affine(affine, 1).with_t_r(2.0);
    let mut writer = NiftiWriter::create(path, &spec).unwrap();
    for t in 0..volumes {
        let signal = |v: usize| 100.0 + v as f32 + ((t * (v + 3)) as f32 * 0.7).sin();
        let mut values: Vec<f32> = (0..64).map(signal).collect();
        change(t, &mut values);
        writer.write_volume(&values).unwrap();
    }
    writer.finish().unwrap();
}

fn table(location: &Path, mask: &str) -> String {
    format!(
        "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{}' OPTIONS (mask '{mask}');",
        location.display()
    )
}

/// Runs `text`; it must be refused with all of `said`, and no table, model or map may be there.
#[track_caller]
fn refused(text: &str, said: &[&str]) {
    refused_on(&[], text, said);
}

/// The same, where `flags` say.
#[track_caller]
fn refused_on(flags: &[&str], text: &str, said: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("wrong.vf"), folder.path().join("out"));
    fs::write(&file, text).unwrap();
    let run = ["run", file.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let ended = voxelflow(run.iter().chain(flags)).expect_code(2);
    for words in said {
        assert!(ended.stderr.contains(words), "`{words}` is missing in\n{}", ended.stderr);
    }
    // Statements before the wrong one may have had something for the ledger.
    let known = |file: &String| file == "voxelflow.json" || file.starts_with("ledger/");
    let left: Vec<String> = files_below(&out).into_iter().filter(|file| !known(file)).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// Checks `text`; it must be refused with all of `said` and a caret at `place`, a line and column, and nothing is written.
#[track_caller]
fn refused_by_check(text: &str, place: &str, said: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("wrong.vf"), folder.path().join("out"));
    fs::write(&file, text).unwrap();
    let ended = voxelflow(["check", file.to_str().unwrap(), "--out", out.to_str().unwrap()]).expect_code(2);
    let place = format!("wrong.vf:{place}\n");
    for words in said.iter().chain(&[place.as_str(), "^"]) {
        assert!(ended.stderr.contains(words), "`{words}` is missing in\n{}", ended.stderr);
    }
    assert!(!out.exists());
}

#[test]
fn a_missing_file() {
    refused(&table(Path::new("no/such/bold.nii.gz"), "auto"), &["no/such/bold.nii.gz"]);
    let ended = voxelflow(["run", "no/such/pipeline.vf"]).expect_code(2);
    assert!(ended.stderr.contains("no/such/pipeline.vf"), "{}", ended.stderr);
}

#[test]
fn a_truncated_image() {
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut.nii.gz");
    fs::write(&cut, &fs::read(bold()).unwrap()[..8192]).unwrap();
    let text = table(&cut, "none") + "CREATE TABLE series AS SELECT * FROM bold;";
    refused(&text, &["cut.nii.gz", "byte"]);
}

#[test]
fn a_mask_of_another_grid() {
    let folder = tempfile::tempdir().unwrap();
    let (run, mask) = (folder.path().join("run.nii"), folder.path().join("mask.nii"));
    image(&run, 20, AFFINE, |_, _| {});
    let mut shifted = AFFINE;
    shifted[0][3] += 1.0;
    image(&mask, 1, shifted, |_, values| values.fill(1.0));
    let text = table(&run, mask.to_str().unwrap()) + "CREATE TABLE series AS SELECT * FROM bold;";
    refused(&text, &["mask.nii", "run.nii", "1"]);
}

#[test]
fn a_voxel_that_is_not_a_number() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run.nii");
    image(&run, 20, AFFINE, |t, values| {
        if t == 7 {
            values[21] = f32::NAN;
        }
    });
    let clean = |option: &str| {
        table(&run, "none")
            + &format!("CREATE TABLE series AS SELECT * FROM clean(bold, detrend => true{option});")
    };
    refused(&clean(""), &["NaN", "voxel", "21", "not_finite"]);
    // Found by an executor, it is the user's to mend all the same.
    refused_on(&["--executors", "1"], &clean(""), &["NaN", "voxel", "21", "not_finite"]);

    let out = tempfile::tempdir().unwrap();
    let ended = run_text(&clean(", not_finite => 'drop'"), out.path()).expect_code(0);
    assert!(ended.stdout.contains("63"), "one of 64 rows is left out:\n{}", ended.stdout);
    let record = fs::read_to_string(out.path().join("voxelflow.json")).unwrap();
    assert!(record.contains("dropped voxel: NaN or infinity"), "the ledger has it: {record}");
}

#[test]
fn a_constant_voxel_is_kept_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run.nii");
    image(&run, 20, AFFINE, |_, values| values[5] = 42.0);
    let text = table(&run, "none")
        + "CREATE TABLE series AS SELECT * FROM clean(bold, detrend => true, standardize => 'zscore_sample');";
    let out = tempfile::tempdir().unwrap();
    run_text(&text, out.path()).expect_code(0);
    let record: serde_json::Value =
        serde_json::from_slice(&fs::read(out.path().join("voxelflow.json")).unwrap()).unwrap();
    let ledger = record["statements"]["table series"]["ledger"].to_string();
    assert!(ledger.contains("constant voxel: no variance") && ledger.contains(",1]"), "{ledger}");
}

#[test]
fn a_series_that_is_too_short() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run.nii");
    image(&run, 5, AFFINE, |_, _| {});
    let filtered = "CREATE TABLE series AS SELECT * FROM clean(bold, high_pass => 0.01);";
    refused(&(table(&run, "none") + filtered), &["5", "high_pass"]);
    let trained = "TRAIN MODEL dca USING dist_dca ON bold;";
    refused(&(table(&run, "none") + trained), &["5", "8"]);
}

#[test]
fn unknown_names_answer_with_the_nearest() {
    let start = table(&bold(), "auto");
    let encode = start.clone() + "SELECT encode(dcb, series) FROM bold;";
    refused(&encode, &["dcb", "^^^"]);
    let option = start.clone() + "TRAIN MODEL dca USING dist_dca (lamda => 0.006) ON bold;";
    refused(&option, &["lamda", "did you mean `lambda`", "^^^^^"]);
    let setting = start.clone() + "TRAIN MODEL dca USING dist_dca ON bold WITH (learning_rat => 0.1);";
    refused(&setting, &["learning_rat", "did you mean `learning_rate`"]);
    let stage = start.clone() + "TRAIN MODEL dca USING dist_dcb ON bold;";
    refused(&stage, &["dist_dcb", "did you mean `dist_dca`"]);
    let operator = start + "SELECT * FROM clean(bold, detrent => true);";
    refused(&operator, &["detrent", "did you mean `detrend`"]);
}

#[test]
fn maps_of_a_plan_that_lost_its_keys() {
    let start = table(&bold(), "auto");
    let lost = start.clone() + "EXPORT MAPS FROM (SELECT series FROM bold) TO 'maps/{column}.nii.gz';";
    refused(&lost, &["voxel", "SELECT"]);
    let mixed =
        start + "CREATE TABLE t AS SELECT 1 AS voxel, 2.0 AS r; EXPORT MAPS FROM t TO 'maps/r.nii.gz';";
    refused(&mixed, &["grid"]);
}

#[test]
fn an_output_folder_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"in the way").unwrap();
    let ended = run_text("SELECT 1;", &file.join("out")).expect_code(2);
    assert!(ended.stderr.contains(&file.display().to_string()), "{}", ended.stderr);
    assert_eq!(fs::read(&file).unwrap(), b"in the way");
}

/// What text, schemas and the names of files decide is said before hours are spent, at its place.
#[test]
fn what_cannot_be_written_or_computed_is_found_by_check() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"in the way").unwrap();
    let (start, at) = (table(&bold(), "none") + "\n", file.display());
    let in_the_way = [at.to_string(), "is a file, and a folder is needed there".into()];
    let in_the_way = in_the_way.each_ref().map(String::as_str);
    refused_by_check(&format!("{start}COPY bold TO '{at}/' STORED AS PARQUET;"), "2:1", &in_the_way);
    refused_by_check(&format!("{start}COPY bold TO '{at}/bold.parquet';"), "2:1", &in_the_way);
    refused_by_check(&format!("{start}REPORT '{at}/report.html';"), "2:8", &in_the_way);
    let maps = format!("{start}EXPORT MAPS FROM bold TO '{at}/series.nii';");
    refused_by_check(&maps, "2:26", &in_the_way);
    let spool = format!("{start}TRAIN MODEL dca USING dist_dca ON bold WITH (spool => '{at}/spool');");
    refused_by_check(&spool, "2:46", &in_the_way);
    assert_eq!(fs::read(&file).unwrap(), b"in the way");

    let text = |statement: &str| format!("{start}{statement};");
    let target = text("EXPORT MAPS FROM bold TO 'maps/{colum}.nii'");
    refused_by_check(&target, "2:26", &["did you mean {column}?"]);
    let lost = text("EXPORT MAPS FROM (SELECT series FROM bold) TO 'maps/'");
    refused_by_check(&lost, "2:18", &["lost its key column `voxel`"]);
    let cast = text("SELECT arrow_cast(series, 'FixedSizeList(7, Float32)') FROM bold");
    refused_by_check(&cast, "2:1", &["FixedSizeList(7 x Float32)"]);
    refused_by_check(&text("INSERT INTO bold SELECT * FROM bold"), "2:1", &["nsert into"]);
    let same = text("TRAIN MODEL dca USING dist_dca ON bold VALIDATE ON bold");
    refused_by_check(&same, "2:23", &["are the rows to train on", "subject_overlap => 'allow'"]);
}

/// A card is looked for where the file is to run.
#[test]
fn a_card_that_is_not_there_is_found_by_check() {
    let text = table(&bold(), "none")
        + "\nTRAIN MODEL dca USING dist_dca ON bold WITH (epochs => 1, device => 'cuda:97');";
    refused_by_check(&text, "2:59", &["`device`", "device => 'cpu'"]);
    let file = tempfile::Builder::new().suffix(".vf").tempfile().unwrap();
    fs::write(file.path(), text).unwrap();
    let elsewhere = ["check", file.path().to_str().unwrap(), "--cluster", "df://head:50050"];
    voxelflow(elsewhere).expect_code(0);
}

/// What a model takes follows from its statement: what is asked of it later is decided before it is trained.
#[test]
fn calls_of_a_model_that_is_not_trained_yet_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let short = folder.path().join("short.nii");
    image(&short, 12, AFFINE, |_, _| {});
    let start = table(&bold(), "none")
        + &table(&short, "none").replace("TABLE bold", "TABLE short")
        + "TRAIN MODEL dca USING dist_dca (hidden => 2) ON bold;\n";
    for (call, from, said) in [
        ("encode(dca, series)", "short", "`series` has 12 values, the model was trained on 20"),
        ("encode(dca, voxel)", "bold", "`voxel` is UInt32"),
        ("encode(dca, ['a', 'b'])", "bold", "its second argument is a column of series"),
        ("encode(dca, [series])", "bold", "its second argument is a column of series"),
        ("decode(dca, series)", "bold", "`series` has 20 values"),
        ("bin_count(dca, series)", "bold", "is of stage `dist_dca`, which has only encode"),
        ("encode(dca, series, 3)", "bold", "as in encode(model, series), not 2"),
    ] {
        refused_by_check(&format!("{start}SELECT {call} FROM {from};"), "2:8", &[said]);
    }
}
