//! BIDS and HCP tables through a session: the rows of NIFTI tables, each run with its own mask, from disk and from a
//! store; and what is refused.
#![allow(clippy::unwrap_used)]

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::catalog::TableProvider;
use datafusion::prelude::{SessionConfig, SessionContext};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use voxelflow_formats::{NiftiSpec, NiftiWriter};
use voxelflow_signal::{ConfoundSettings, select_confounds};
use voxelflow_stage::{EventFiles, Grid, RunEvent, RunFiles};
use voxelflow_storage::{Listing, StoreRegistry, publish_object};
use voxelflow_tables::{Error, ImageTables, NiftiTable, Stores, read_confounds, read_events};

const SHAPE: [usize; 3] = [5, 4, 3];
const VOLUMES: usize = 7;

fn session() -> SessionContext {
    let ctx = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
    for tables in ImageTables::ALL {
        ctx.state_ref().write().table_factories_mut().insert(tables.name().into(), Arc::new(tables));
    }
    ctx
}

/// An image in which every voxel of every run is another; `shift` in millimetres.
fn write(path: &Path, volumes: usize, shift: f64, value: impl Fn(usize, usize) -> f32) {
    let affine = [
        [-2.0, 0.0, 0.0, 90.0 + shift],
        [0.0, 2.0, 0.0, -126.0],
        [0.0, 0.0, 2.5, -72.0],
        [0.0, 0.0, 0.0, 1.0],
    ];
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let spec = NiftiSpec::new(SHAPE, volumes).with_affine(affine, 2).with_t_r(0.72);
    let mut writer = NiftiWriter::create(path, &spec).unwrap();
    for t in 0..volumes {
        let volume: Vec<f32> = (0..60).map(|v| value(v, t)).collect();
        writer.write_volume(&volume).unwrap();
    }
    writer.finish().unwrap();
}

fn value(subject: usize, voxel: usize, t: usize) -> f32 {
    (1000 * subject + 10 * voxel + t) as f32 + 0.25
}

/// Every second voxel of the first subject, every third of the second …
fn in_mask(subject: usize, voxel: usize) -> bool {
    voxel.is_multiple_of(subject + 1)
}

fn stem(subject: usize) -> String {
    format!("sub-{subject}/func/sub-{subject}_task-motor")
}

/// Derivatives of two subjects, with a sidecar that outranks the headers.
fn derivatives() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("fmriprep");
    for subject in [1, 2] {
        let file = |end: &str| root.join(format!("{}_{end}", stem(subject)));
        write(&file("space-T1w_desc-preproc_bold.nii.gz"), VOLUMES, 0.0, |v, t| value(subject, v, t));
        write(&file("space-T1w_desc-brain_mask.nii.gz"), 1, 0.0, |v, _| f32::from(in_mask(subject, v)));
        std::fs::write(file("desc-confounds_timeseries.tsv"), "trans_x\n0\n").unwrap();
    }
    std::fs::write(root.join("task-motor_bold.json"), r#"{"RepetitionTime": 2.5, "StartTime": 1.2}"#)
        .unwrap();
    (folder, root)
}

async fn create(ctx: &SessionContext, kind: &str, location: &str, options: &str) -> Result<(), Error> {
    let sql =
        format!("CREATE OR REPLACE EXTERNAL TABLE bold STORED AS {kind} LOCATION '{location}' {options}");
    ctx.sql(&sql).await.map(|_| ()).map_err(Error::Plan)
}

async fn refusal(kind: &str, location: &Path, options: &str) -> String {
    let e = create(&session(), kind, location.to_str().unwrap(), options).await.unwrap_err();
    assert!(e.is_input(), "{e}");
    e.to_string()
}

async fn rows(ctx: &SessionContext) -> RecordBatch {
    let batches =
        ctx.sql("SELECT * FROM bold ORDER BY subject, run, voxel").await.unwrap().collect().await.unwrap();
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

/// The rows are those of a NIFTI table of each image with its mask, one after the other.
async fn check_rows(found: &RecordBatch, root: &Path) {
    let mut first = 0;
    for subject in [1, 2] {
        let ctx = session();
        let file = |end: &str| root.join(format!("{}_space-T1w_desc-{end}.nii.gz", stem(subject)));
        let options = format!("OPTIONS (mask '{}', t_r 2.5)", file("brain_mask").display());
        create(&ctx, "NIFTI", file("preproc_bold").to_str().unwrap(), &options).await.unwrap();
        let expected = rows(&ctx).await;
        assert_eq!(expected.num_rows(), 60_usize.div_ceil(subject + 1));
        let found = found.slice(first, expected.num_rows());
        assert_eq!(found.columns(), expected.columns());
        first += expected.num_rows();
    }
    assert_eq!(first, found.num_rows());
}

/// As DataLad leaves them until they are fetched.
#[tokio::test(flavor = "multi_thread")]
async fn runs_whose_files_are_elsewhere_are_skipped_where_that_is_asked() {
    let object = "../../.git/annex/objects/Xz/0w/MD5E-s123--0.nii.gz/MD5E-s123--0.nii.gz";
    for (file, pointer, says) in [
        (
            "space-T1w_desc-preproc_bold.nii.gz",
            None,
            "MD5E-s123--0.nii.gz, which is not there: get it with `datalad get`",
        ),
        (
            "space-T1w_desc-preproc_bold.nii.gz",
            Some("/annex/objects/MD5E-s123--0.nii.gz\n"),
            "pointer that a data manager left",
        ),
        (
            "space-T1w_desc-brain_mask.nii.gz",
            Some("version https://git-lfs.github.com/spec/v1\n"),
            "`git lfs pull`",
        ),
        ("space-T1w_desc-brain_mask.nii.gz", None, "datalad get"),
        (
            "space-T1w_desc-preproc_bold.nii.gz",
            Some("damaged, and long enough to be looked at"),
            "gzip begins with 1f 8b",
        ),
    ] {
        let (_folder, root) = derivatives();
        let path = root.join(format!("{}_{file}", stem(2)));
        std::fs::remove_file(&path).unwrap();
        match pointer {
            Some(text) => std::fs::write(&path, text).unwrap(),
            None => std::os::unix::fs::symlink(object, &path).unwrap(),
        }
        let text = refusal("BIDS", &root, "").await;
        assert!(text.contains(says) && text.contains("sub-2"), "{text}");
        let ctx = session();
        create(&ctx, "BIDS", root.to_str().unwrap(), "OPTIONS (incomplete 'skip')").await.unwrap();
        let found = rows(&ctx).await;
        assert_eq!(found.num_rows(), 30, "those of the first subject");
        let history = Grid::of(&found.schema()).unwrap().history.join("\n");
        assert!(
            history.contains("left out") && history.contains("sub-2") && history.contains(says),
            "{history}"
        );
        let table = ctx.table_provider("bold").await.unwrap();
        let ledger = table.downcast_ref::<NiftiTable>().unwrap().ledger();
        let dropped: Vec<_> = ledger.iter().filter(|entry| entry.what().name() == "dropped").collect();
        assert_eq!((dropped.len(), dropped[0].run()[0].as_deref()), (1, Some("2")));
    }
    // Where nothing is left, it is said why.
    let (_folder, root) = derivatives();
    for subject in [1, 2] {
        std::fs::write(root.join(format!("{}_space-T1w_desc-preproc_bold.nii.gz", stem(subject))), "x")
            .unwrap();
    }
    let text = refusal("BIDS", &root, "OPTIONS (incomplete 'skip')").await;
    assert!(text.contains("sub-1") && text.contains("sub-2"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_run_is_read_with_its_own_mask() {
    let (_folder, root) = derivatives();
    let ctx = session();
    create(&ctx, "BIDS", root.to_str().unwrap(), "OPTIONS (task 'motor', space 'T1w')").await.unwrap();
    let found = rows(&ctx).await;
    check_rows(&found, &root).await;
    let grid = Grid::of(&found.schema()).unwrap();
    assert_eq!((grid.t_r, grid.source.as_str()), (Some(2.5), root.to_str().unwrap()));
    assert!(grid.mask_hash.starts_with("brain:") && grid.history.is_empty(), "{grid:?}");
    let runs = RunFiles::of(&found.schema()).unwrap();
    let confounds = root.join(format!("{}_desc-confounds_timeseries.tsv", stem(2)));
    assert_eq!((runs.len(), runs[1].confounds.as_deref()), (2, confounds.to_str()));
    assert_eq!((runs[1].label().as_str(), runs[1].start_time), ("sub-2 task-motor", Some(1.2)));
    assert_eq!(runs[1].events, None);

    let plan = ctx.sql("SELECT voxel FROM bold").await.unwrap().create_physical_plan().await.unwrap();
    let text = datafusion::physical_plan::displayable(plan.as_ref()).indent(false).to_string();
    assert!(text.contains("files=2, mask=brain"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_gives_the_same_rows() {
    let (_folder, root) = derivatives();
    let location = StoreRegistry::global().resolve("memory://bids/lab/fmriprep").unwrap();
    let listing = Listing::of(root.to_str().unwrap()).unwrap();
    for path in listing.paths() {
        let bytes = std::fs::read(root.join(path)).unwrap();
        let object = path.split('/').fold(location.path.clone(), |object, part| object.join(part));
        publish_object(&location.store, &object, bytes.as_slice()).await.unwrap();
    }
    let ctx = session();
    ctx.register_object_store(&location.store_url, Arc::clone(&location.store));
    create(&ctx, "BIDS", "memory://bids/lab/fmriprep", "OPTIONS (task 'motor')").await.unwrap();
    check_rows(&rows(&ctx).await, &root).await;

    let image = format!("memory://bids/lab/fmriprep/{}_space-T1w_desc-preproc_bold.nii.gz", stem(1));
    create(&ctx, "NIFTI", &image, "OPTIONS (mask 'none')").await.unwrap();
    assert_eq!(rows(&ctx).await.num_rows(), 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn masks_may_be_found_or_left_out() {
    let (_folder, root) = derivatives();
    let ctx = session();
    create(&ctx, "BIDS", root.to_str().unwrap(), "OPTIONS (mask 'none', subject 2)").await.unwrap();
    assert_eq!(rows(&ctx).await.num_rows(), 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_cannot_be_used_are_refused_or_skipped_with_a_word() {
    let (_folder, root) = derivatives();
    let mask = root.join(format!("{}_space-T1w_desc-brain_mask.nii.gz", stem(2)));
    std::fs::remove_file(&mask).unwrap();
    let text = refusal("BIDS", &root, "").await;
    assert!(text.contains("sub-2_task-motor_space-T1w_desc-preproc_bold.nii.gz: no brain mask"), "{text}");
    assert!(text.contains("incomplete 'skip'"), "{text}");
    let ctx = session();
    create(&ctx, "BIDS", root.to_str().unwrap(), "OPTIONS (incomplete 'skip')").await.unwrap();
    let found = rows(&ctx).await;
    assert_eq!(found.num_rows(), 30);
    let grid = Grid::of(&found.schema()).unwrap();
    assert!(grid.history[0].starts_with("left out: sub-2/func/"), "{:?}", grid.history);

    write(&mask, 1, 1.0, |_, _| 1.0);
    let text = refusal("BIDS", &root, "").await;
    assert!(
        text.contains("does not lie on the grid") && text.contains("(1.0000, 0.0000, 0.0000) mm"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn choices_are_named() {
    let (folder, root) = derivatives();
    let other = root.join(format!("{}_space-MNI_desc-preproc_bold.nii.gz", stem(1)));
    write(&other, VOLUMES, 0.0, |_, _| 1.0);
    for (options, says) in [
        ("", "space is MNI, T1w; choose, for example space 'T1w'"),
        ("OPTIONS (task 'rest', space 'T1w')", "task 'rest': no image has it; found: motor"),
        ("OPTIONS (spce 'T1w')", "did you mean `space`?"),
        ("OPTIONS (incomplete 'maybe')", "incomplete"),
    ] {
        let text = refusal("BIDS", &root, options).await;
        assert!(text.contains(says), "{text}");
    }
    let text = refusal("BIDS", &folder.path().join("nowhere"), "").await;
    assert!(text.contains("nowhere"), "{text}");
    let text = refusal("NIFTI", &other, "OPTIONS (mask 'brain')").await;
    assert!(text.contains("BIDS"), "{text}");

    let raw = folder.path().join("raw");
    write(&raw.join("sub-1/func/sub-1_task-motor_bold.nii.gz"), VOLUMES, 0.0, |_, _| 1.0);
    let text = refusal("BIDS", &raw, "").await;
    assert!(text.contains("raw dataset") && text.contains("fMRIPrep"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_of_the_hcp_pipelines_are_read() {
    let folder = tempfile::tempdir().unwrap();
    for direction in ["LR", "RL"] {
        let run = folder.path().join(format!("100307/MNINonLinear/Results/tfMRI_MOTOR_{direction}"));
        write(&run.join(format!("tfMRI_MOTOR_{direction}.nii.gz")), VOLUMES, 0.0, |v, t| value(1, v, t));
        write(&run.join("brainmask_fs.2.nii.gz"), 1, 0.0, |v, _| f32::from(in_mask(1, v)));
        std::fs::write(run.join("Movement_Regressors.txt"), "0 0 0 0 0 0 0 0 0 0 0 0\n").unwrap();
        std::fs::create_dir(run.join("EVs")).unwrap();
        for (name, text) in [("lh", "71.35 12 1\n"), ("cue", "8.03 3 1\n23.2 3 1\n"), ("Sync", "11.9\n")] {
            std::fs::write(run.join(format!("EVs/{name}.txt")), text).unwrap();
        }
    }
    let ctx = session();
    create(&ctx, "HCP", folder.path().to_str().unwrap(), "OPTIONS (task 'motor')").await.unwrap();
    let found = rows(&ctx).await;
    assert_eq!(found.num_rows(), 60);
    let text = |column: &str, row: usize| {
        found.column_by_name(column).unwrap().as_string::<i32>().value(row).to_owned()
    };
    assert_eq!(
        ["subject", "task", "run", "space"].map(|c| text(c, 30)),
        ["100307", "MOTOR", "RL", "MNI152NLin6Asym"]
    );
    let runs = RunFiles::of(&found.schema()).unwrap();
    assert!(runs[0].confounds.as_ref().unwrap().ends_with("tfMRI_MOTOR_LR/Movement_Regressors.txt"));
    let events = read_events(&runs[1], &Stores::default()).unwrap();
    let shown: Vec<_> =
        events.iter().map(|e| (e.condition.as_deref().unwrap(), e.onset, e.duration)).collect();
    assert_eq!(shown, [("cue", 8.03, Some(3.0)), ("cue", 23.2, Some(3.0)), ("lh", 71.35, Some(12.0))]);
    assert!((Grid::of(&found.schema()).unwrap().t_r.unwrap() - 0.72).abs() < 1e-6);
}

#[test]
fn confounds_come_with_the_components_that_are_retained() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let sidecar = r#"{"a_comp_cor_00": {"Method": "aCompCor", "Mask": "combined", "Retained": true},
                      "dropped_0": {"Method": "aCompCor", "Mask": "combined", "Retained": false},
                      "cosine_00": {"Method": "cosine"}}"#;
    let run = RunFiles {
        confounds: Some(file(
            "c.tsv",
            "trans_x\ttrans_x_derivative1\ta_comp_cor_00\n1\tn/a\t0.5\n2\t1\t-0.5\n",
        )),
        confounds_sidecars: vec![file("c.json", sidecar)],
        ..RunFiles::default()
    };
    let (table, components) = read_confounds(&run, &Stores::default()).unwrap();
    assert_eq!(table.names().collect::<Vec<_>>(), ["trans_x", "trans_x_derivative1", "a_comp_cor_00"]);
    assert_eq!(table.volumes(), 2);
    assert_eq!(components.len(), 1);
    assert_eq!(
        (components[0].name.as_str(), components[0].mask.as_deref()),
        ("a_comp_cor_00", Some("combined"))
    );

    // What no strategy takes is not judged: text, infinity, empty cells, truth values, a broken sidecar.
    let odd = "trans_x\tnotes\tdvars\tgap\tkept\n1\teyes open\tinf\t\tTrue\n2\tx\t1\t3\tFalse\n";
    let untidy = RunFiles {
        confounds: Some(file("odd.tsv", odd)),
        confounds_sidecars: vec![file("odd.json", "{\"a\": ")],
        ..RunFiles::default()
    };
    let (table, components) = read_confounds(&untidy, &Stores::default()).unwrap();
    assert_eq!((table.volumes(), table.names().count(), components.len()), (2, 5, 0));
    let choose = |names: &[&str]| {
        let settings = ConfoundSettings::of_columns(names.iter().map(|name| (*name).to_owned()).collect());
        select_confounds(&table, &components, &settings).map(|chosen| chosen.columns)
    };
    assert_eq!(choose(&["trans_x"]).unwrap(), [[-0.5, 0.5]]);
    // An empty cell of the first volume is filled as `n/a` is, which pandas reads alike.
    assert_eq!(choose(&["gap"]).unwrap(), [[0.0, 0.0]]);
    for (name, says) in [
        ("notes", "odd.tsv: line 2, column notes: 'eyes open' is not a number"),
        ("dvars", "'inf' is not finite"),
        ("kept", "'True' is not a number"),
    ] {
        let e = choose(&[name]).unwrap_err().to_string();
        assert!(e.contains(says) && e.contains("leave the column out"), "{e}");
    }

    let movement = RunFiles {
        confounds: Some(file(
            "Movement_Regressors.txt",
            "1 2 3 4 5 6 0 0 0 0 0 0\n2 3 4 5 6 7 1 1 1 1 1 1\n",
        )),
        ..RunFiles::default()
    };
    let (table, components) = read_confounds(&movement, &Stores::default()).unwrap();
    assert_eq!((table.volumes(), table.names().count(), components.len()), (2, 24, 0));
    for name in ["trans_x", "rot_z_power2", "trans_y_derivative1", "rot_x_derivative1_power2"] {
        assert!(table.has(name), "{name}");
    }

    let gone = RunFiles { confounds: Some("/nowhere/c.tsv".into()), ..RunFiles::default() };
    for (run, says) in [(&gone, "/nowhere/c.tsv"), (&RunFiles::default(), "no confounds file")] {
        let e = read_confounds(run, &Stores::default()).unwrap_err();
        assert!(e.is_input() && e.to_string().contains(says), "{e}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_come_from_the_raw_dataset_and_belong_to_what_a_table_is() {
    let (folder, root) = derivatives();
    let raw = folder.path().join("raw");
    let events = |subject: usize| raw.join(format!("{}_events.tsv", stem(subject)));
    for subject in [1, 2] {
        std::fs::create_dir_all(events(subject).parent().unwrap()).unwrap();
        std::fs::write(
            events(subject),
            format!("onset\tduration\ttrial_type\n-5\t{subject}\tlh\n9\tn/a\tn/a\n"),
        )
        .unwrap();
    }
    let ctx = session();
    let options = format!("OPTIONS (raw '{}')", raw.display());
    let table = async || {
        create(&ctx, "BIDS", root.to_str().unwrap(), &options).await.unwrap();
        ctx.table_provider("bold").await.unwrap()
    };
    let identity =
        |table: &Arc<dyn TableProvider>| table.downcast_ref::<NiftiTable>().unwrap().identity().unwrap();
    let found = table().await;
    let runs = RunFiles::of(&found.schema()).unwrap();
    assert_eq!(runs[1].events, Some(EventFiles::Table(events(2).display().to_string())));
    let event = |onset, duration, condition: Option<&str>, line| RunEvent {
        onset,
        duration,
        condition: condition.map(str::to_owned),
        modulation: 1.0,
        file: 0,
        line,
    };
    let expected = [event(-5.0, Some(2.0), Some("lh"), 2), event(9.0, None, None, 3)];
    assert_eq!(read_events(&runs[1], &Stores::default()).unwrap(), expected);
    // Other events make other designs: the table's identity says so.
    let before = identity(&found);
    assert_eq!(identity(&table().await), before);
    std::fs::write(events(2), "onset\tduration\tmodulation\n1\t2\t0.5\n3\t4\tn/a\n").unwrap();
    assert_ne!(identity(&table().await), before);
    let text = read_events(&runs[1], &Stores::default()).unwrap_err().to_string();
    assert!(
        text.contains("sub-2_task-motor_events.tsv") && text.contains("line 3: its modulation is n/a"),
        "{text}"
    );
    std::fs::remove_file(events(2)).unwrap();
    let text = read_events(&runs[1], &Stores::default()).unwrap_err().to_string();
    assert!(text.contains("not there any more"), "{text}");
    let text = read_events(&RunFiles::default(), &Stores::default()).unwrap_err().to_string();
    assert!(text.contains("no events were found") && text.contains("inspect"), "{text}");
}

#[test]
fn conditions_of_three_column_files_are_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(format!("{name}.txt"));
        std::fs::write(&path, text).unwrap();
        (name.to_owned(), path.display().to_string())
    };
    let files = vec![file("lh", "10.5 12 1\n60 12 0.5\n"), file("never", ""), file("rf", "30 12 1\n")];
    let run = RunFiles { events: Some(EventFiles::ThreeColumns(files)), ..RunFiles::default() };
    let found = read_events(&run, &Stores::default()).unwrap();
    let shown: Vec<_> = found
        .iter()
        .map(|e| (e.condition.as_deref().unwrap(), e.onset, e.modulation, e.file, e.line))
        .collect();
    assert_eq!(shown, [("lh", 10.5, 1.0, 0, 1), ("lh", 60.0, 0.5, 0, 2), ("rf", 30.0, 1.0, 2, 1)]);
    std::fs::write(folder.path().join("rf.txt"), "30 -12 1\n").unwrap();
    let text = read_events(&run, &Stores::default()).unwrap_err().to_string();
    assert!(text.contains("rf.txt") && text.contains("is negative"), "{text}");
}
