//! Trees of files as fMRIPrep writes them, given as lists of paths, and what is found in them.
#![allow(clippy::unwrap_used)]

use super::*;
use std::io;

/// Reads nothing.
fn nothing(_: &str) -> io::Result<String> {
    Err(io::ErrorKind::NotFound.into())
}

/// fMRIPrep 23 with sessions, runs and two spaces, of which one in two resolutions.
fn fmriprep_23() -> Vec<String> {
    let mut paths = vec!["dataset_description.json".into(), "sub-01.html".into(), "logs/CITATION.md".into()];
    for (session, run) in [("pre", "1"), ("pre", "2"), ("post", "1")] {
        let stem = format!("sub-01/ses-{session}/func/sub-01_ses-{session}_task-motor_run-{run}");
        for variant in ["space-MNI152NLin2009cAsym_res-1", "space-MNI152NLin2009cAsym_res-2", "space-T1w"] {
            for file in [
                "boldref.nii.gz",
                "desc-brain_mask.nii.gz",
                "desc-preproc_bold.nii.gz",
                "desc-preproc_bold.json",
            ] {
                paths.push(format!("{stem}_{variant}_{file}"));
            }
        }
        paths.push(format!("{stem}_desc-confounds_timeseries.tsv"));
        paths.push(format!("{stem}_desc-confounds_timeseries.json"));
        paths.push(format!("{stem}_from-boldref_to-T1w_mode-image_desc-coreg_xfm.txt"));
    }
    paths.push("sub-01/anat/sub-01_space-MNI152NLin2009cAsym_desc-brain_mask.nii.gz".into());
    paths.push("sub-01/figures/sub-01_ses-pre_task-motor_run-1_desc-carpetplot_bold.svg".into());
    paths
}

/// Reads the sidecars of preprocessed images.
fn two_seconds(path: &str) -> io::Result<String> {
    if path.ends_with("_desc-preproc_bold.json") {
        Ok(r#"{"RepetitionTime": 2.0}"#.into())
    } else {
        nothing(path)
    }
}

fn select(paths: &[String], query: &BidsQuery) -> Selection {
    select_runs(&BidsDataset::new(paths, &two_seconds), None, query)
}

fn texts(found: &Selection) -> Vec<String> {
    found.problems.iter().map(ToString::to_string).collect()
}

fn mni_2() -> BidsQuery {
    BidsQuery::default().with("task", "motor").with("space", "MNI152NLin2009cAsym").with("res", "2")
}

#[test]
fn every_run_has_the_mask_of_its_grid_and_the_confounds_without_one() {
    let found = select(&fmriprep_23(), &mni_2());
    let labels: Vec<String> = found.runs.iter().map(BidsRun::label).collect();
    assert_eq!(
        labels,
        [
            "sub-01 ses-post task-motor run-1",
            "sub-01 ses-pre task-motor run-1",
            "sub-01 ses-pre task-motor run-2"
        ]
    );
    let run = &found.runs[1];
    let stem = "sub-01/ses-pre/func/sub-01_ses-pre_task-motor_run-1";
    assert_eq!(run.bold, [format!("{stem}_space-MNI152NLin2009cAsym_res-2_desc-preproc_bold.nii.gz")]);
    assert_eq!(run.mask, Some(format!("{stem}_space-MNI152NLin2009cAsym_res-2_desc-brain_mask.nii.gz")));
    let confounds = ConfoundFiles::Table {
        path: format!("{stem}_desc-confounds_timeseries.tsv"),
        sidecars: vec![format!("{stem}_desc-confounds_timeseries.json")],
    };
    assert_eq!(run.confounds, Some(confounds));
    assert_eq!((run.space.as_deref(), run.kind), (Some("MNI152NLin2009cAsym"), BoldKind::Volume));
    assert_eq!(run.t_r, Some(2.0));
}

/// The sidecars are there but cannot be read: a run without its repetition time is not guessed at.
#[test]
fn sidecars_that_cannot_be_read_leave_a_run_out() {
    let mut paths = fmriprep_23();
    paths.push("task-motor_bold.json".into());
    let found = select(&paths, &mni_2());
    assert!(
        found.runs.is_empty()
            && texts(&found).iter().any(|t| t.contains("task-motor_bold.json: cannot be opened"))
    );
}

#[test]
fn two_variants_of_a_run_are_refused_with_the_choices() {
    for (query, says) in [
        (BidsQuery::default().with("space", "MNI152NLin2009cAsym"), "3 runs exist in several variants"),
        (
            BidsQuery::default().with("space", "MNI152NLin2009cAsym"),
            "res is 1, 2; choose, for example res '2'",
        ),
        (BidsQuery::default().with("res", "2,none"), "space is MNI152NLin2009cAsym, T1w"),
        (BidsQuery::default(), "res is 1, 2, none; space is"),
    ] {
        let found = select(&fmriprep_23(), &query);
        assert!(found.runs.is_empty());
        let refusal = found.refusals().next().unwrap().to_string();
        assert!(refusal.contains(says), "{refusal}");
    }
    assert_eq!(select(&fmriprep_23(), &BidsQuery::default().with("resolution", "none")).runs.len(), 3);
}

/// Two acquisitions of one run, each with its mask and confounds.
fn two_acquisitions() -> Vec<String> {
    let mut paths = Vec::new();
    for acq in ["fast", "slow"] {
        for run in [1, 2] {
            let stem = format!("sub-1/func/sub-1_task-x_acq-{acq}_run-{run}");
            for end in ["space-T1w_desc-preproc_bold.nii.gz", "space-T1w_desc-brain_mask.nii.gz"] {
                paths.push(format!("{stem}_{end}"));
            }
            paths.push(format!("{stem}_desc-confounds_timeseries.tsv"));
        }
    }
    paths
}

#[test]
fn several_acquisitions_are_runs_of_their_own_when_they_are_listed() {
    let found = select(&two_acquisitions(), &BidsQuery::default());
    let refusal = found.refusals().next().unwrap().to_string();
    assert!(refusal.contains("acq is fast, slow; choose, for example acq 'slow'"), "{refusal}");
    assert!(refusal.contains("or take them as separate runs: acq 'fast,slow'"), "{refusal}");
    let one = select(&two_acquisitions(), &BidsQuery::default().with("acq", "slow"));
    assert_eq!(one.runs.iter().map(|run| run.run.as_deref().unwrap()).collect::<Vec<_>>(), ["1", "2"]);
    let found = select(&two_acquisitions(), &BidsQuery::default().with("acq", "fast,slow"));
    assert_eq!(found.refusals().count(), 0);
    let runs: Vec<&str> = found.runs.iter().map(|run| run.run.as_deref().unwrap()).collect();
    assert_eq!(runs, ["acq-fast_run-1", "acq-fast_run-2", "acq-slow_run-1", "acq-slow_run-2"]);
    for run in &found.runs {
        let stem = run.bold[0].split("_space").next().unwrap();
        assert_eq!(run.mask, Some(format!("{stem}_space-T1w_desc-brain_mask.nii.gz")));
        let confounds = format!("{stem}_desc-confounds_timeseries.tsv");
        assert!(matches!(&run.confounds, Some(ConfoundFiles::Table { path, .. }) if *path == confounds));
    }
    assert_eq!(found.runs[3].label(), "sub-1 task-x acq-slow run-2");
    // Spaces are the same scan again: a list of them is still two variants.
    let spaces =
        [two_acquisitions(), two_acquisitions().iter().map(|p| p.replace("T1w", "MNI")).collect()].concat();
    let found = select(&spaces, &BidsQuery::default().with("acq", "fast").with("space", "T1w,MNI"));
    assert!(found.refusals().next().unwrap().reason.contains("space is MNI, T1w"));
}

#[test]
fn every_variant_has_a_query_that_finds_each_run_once() {
    let paths = fmriprep_23();
    let dataset = BidsDataset::new(&paths, &two_seconds);
    let variants = variants_of(&dataset);
    let texts: Vec<String> = variants.iter().map(ToString::to_string).collect();
    let mni = |res: u8| format!("desc-preproc res-{res} space-MNI152NLin2009cAsym");
    assert_eq!(texts, [mni(1), mni(2), "desc-preproc space-T1w".into()]);
    for query in &variants {
        assert_eq!(select_runs(&dataset, None, query).runs.len(), 3);
    }
}

#[test]
fn two_descriptions_are_refused_until_one_is_chosen() {
    let stem = "sub-1/func/sub-1_task-x_space-T1w_desc";
    let paths = [format!("{stem}-preproc_bold.nii.gz"), format!("{stem}-smoothAROMAnonaggr_bold.nii.gz")];
    let found = select(&paths, &BidsQuery::default());
    assert!(texts(&found)[0].contains("desc is preproc, smoothAROMAnonaggr"), "{found:?}");
    let found = select(&paths, &BidsQuery::default().with("desc", "preproc"));
    assert_eq!(found.runs[0].bold, [paths[0].clone()]);
}

#[test]
fn what_is_asked_for_and_not_there_is_answered_with_what_is() {
    for (query, says) in [
        (BidsQuery::default().with("task", "motr"), "task 'motr': no image has it; found: motor"),
        (BidsQuery::default().with("subject", "sub-02"), "sub '02': no image has it; found: 01"),
        (BidsQuery::default().with("space", "T1w").with("res", "2"), "with the rest, res may be none"),
        (BidsQuery::default().with("ses", "post").with("run", "2"), "with the rest, run may be 1"),
        (BidsQuery::default().of_kind(BoldKind::Surface), "it holds no surfaces; found: volumes"),
    ] {
        let found = select(&fmriprep_23(), &query);
        let refusal = found.refusals().next().unwrap().to_string();
        assert!(found.runs.is_empty() && refusal.contains(says), "{refusal}");
    }
}

#[test]
fn numbers_of_runs_and_words_of_the_specification_are_understood() {
    for query in [mni_2().with("run", "02"), mni_2().with("run", "run-2"), mni_2().with("run", "2")] {
        assert_eq!(select(&fmriprep_23(), &query).runs.len(), 1);
    }
    let query = mni_2().with("session", "ses-pre").with("subject", "01, 02");
    assert_eq!(select(&fmriprep_23(), &query).runs.len(), 2);
}

#[test]
fn a_missing_mask_names_the_nearest() {
    let mut paths = fmriprep_23();
    paths.retain(|path| {
        !path.contains("ses-pre_task-motor_run-2_space-MNI152NLin2009cAsym_res-2_desc-brain_mask")
    });
    let found = select(&paths, &mni_2());
    assert_eq!((found.runs.len(), found.runs[2].mask.is_some()), (3, false));
    let text = texts(&found).into_iter().find(|text| text.contains("no brain mask")).unwrap();
    assert!(
        text.contains("run-2_space-MNI152NLin2009cAsym_res-1_desc-brain_mask.nii.gz (other res)"),
        "{text}"
    );
    assert!(text.contains("(other run)") && text.contains("more"), "{text}");
}

#[test]
fn missing_or_doubled_confounds_are_named() {
    let mut paths = fmriprep_23();
    let of_run = "sub-01/ses-pre/func/sub-01_ses-pre_task-motor_run-2_desc-confounds_timeseries.tsv";
    paths.push(of_run.replace("timeseries", "regressors"));
    let text = texts(&select(&paths, &mni_2())).join("\n");
    assert!(text.contains("more than one confounds file") && text.contains("regressors.tsv"), "{text}");
    paths.retain(|path| !path.contains("run-2_desc-confounds"));
    paths.push("sub-01/ses-post/func/sub-01_ses-pre_task-motor_run-2_desc-confounds_timeseries.tsv".into());
    let text = texts(&select(&paths, &mni_2())).join("\n");
    assert!(text.contains("it lies in the folder ses-post"), "{text}");
    assert!(
        text.contains("no confounds file")
            && text.contains("run-1_desc-confounds_timeseries.tsv (other run)"),
        "{text}"
    );
}

#[test]
fn early_releases_are_read() {
    let old = |stem: &str| {
        let names = ["space-T1w_preproc.nii.gz", "space-T1w_brainmask.nii.gz", "confounds.tsv"];
        let mut paths = names.map(|name| format!("{stem}_bold_{name}")).to_vec();
        paths.extend(["L", "R"].map(|side| format!("{stem}_bold_space-fsaverage5.{side}.func.gii")));
        paths
    };
    let paths = old("sub-9/func/sub-9_task-rest");
    let found = select(&paths, &BidsQuery::default().with("space", "T1w"));
    assert_eq!(texts(&found), [""; 0]);
    let run = &found.runs[0];
    assert_eq!((&run.bold[0], run.mask.as_ref()), (&paths[0], Some(&paths[1])));
    let confounds = ConfoundFiles::Table { path: paths[2].clone(), sidecars: Vec::new() };
    assert_eq!(run.confounds.as_ref(), Some(&confounds));
    let found = select(&paths, &BidsQuery::default().of_kind(BoldKind::Surface));
    assert_eq!((&found.runs[0].bold[..], found.runs[0].confounds.as_ref()), (&paths[3..], Some(&confounds)));

    let stem = "sub-9/func/sub-9_task-rest";
    let middle = [
        "space-T1w_desc-preproc_bold.nii.gz",
        "space-T1w_desc-brain_mask.nii.gz",
        "desc-confounds_regressors.tsv",
    ]
    .map(|name| format!("{stem}_{name}"));
    let found = select(&middle, &BidsQuery::default());
    assert_eq!(
        found.runs[0].confounds,
        Some(ConfoundFiles::Table { path: middle[2].clone(), sidecars: Vec::new() })
    );
}

/// fMRIPrep with `--me-output-echos`: the combined image and each echo; and the phases of a raw image.
#[test]
fn echoes_and_phases_are_told_apart() {
    let stem = "sub-1/func/sub-1_task-rest";
    let mut paths = vec![
        format!("{stem}_desc-preproc_bold.nii.gz"),
        format!("{stem}_desc-brain_mask.nii.gz"),
        format!("{stem}_desc-confounds_timeseries.tsv"),
    ];
    paths.extend((1..4).map(|echo| format!("{stem}_echo-{echo}_desc-preproc_bold.nii.gz")));
    let refusal = select(&paths, &BidsQuery::default()).problems[0].to_string();
    assert!(refusal.contains("echo is 1, 2, 3, none"), "{refusal}");
    for (echo, image) in [("none", 0), ("2", 4)] {
        let run = select(&paths, &BidsQuery::default().with("echo", echo)).runs.remove(0);
        assert_eq!(run.bold, [paths[image].clone()]);
        assert_eq!(run.mask.as_ref(), Some(&paths[1]));
        assert!(run.confounds.is_some());
    }

    let part = |part: &str, name: &str| format!("{stem}_part-{part}{name}");
    let paths = [
        part("mag", "_desc-preproc_bold.nii.gz"),
        part("phase", "_desc-preproc_bold.nii.gz"),
        part("mag", "_desc-brain_mask.nii.gz"),
        part("mag", "_desc-confounds_timeseries.tsv"),
    ];
    let found = select(&paths, &BidsQuery::default());
    assert_eq!((found.runs[0].bold.as_slice(), found.problems.len()), (&paths[..1], 0), "{found:?}");
    let phase = select(&paths, &BidsQuery::default().with("part", "phase"));
    assert_eq!((&phase.runs[0].bold[0], phase.runs[0].mask.as_ref()), (&paths[1], None));
}

#[test]
fn hemispheres_are_paired() {
    let stem = "sub-1/func/sub-1_task-x";
    let side = |side: &str, space: &str| format!("{stem}_hemi-{side}_space-{space}_bold.func.gii");
    let mut paths = vec![side("R", "fsnative"), side("L", "fsnative"), side("L", "fsaverage5")];
    paths.push(format!("{stem}_desc-confounds_timeseries.tsv"));
    paths.push(format!("{stem}_space-fsLR_den-91k_bold.dtseries.nii"));
    let of_space = |space: &str| select(&paths, &BidsQuery::default().with("space", space));
    let native = of_space("fsnative");
    assert_eq!(native.runs[0].bold, [paths[1].clone(), paths[0].clone()]);
    assert_eq!((native.runs[0].kind, native.runs[0].mask.is_none()), (BoldKind::Surface, true));
    let lone = of_space("fsaverage5");
    assert!(
        lone.runs.is_empty() && texts(&lone)[0].contains("the other hemisphere is missing; hemi 'L'"),
        "{lone:?}"
    );
    let left = select(&paths, &BidsQuery::default().with("space", "fsaverage5").with("hemi", "L"));
    assert_eq!(left.runs[0].bold, [paths[2].clone()]);
    let dense = of_space("fsLR");
    assert_eq!((dense.runs[0].kind, &dense.runs[0].bold[..]), (BoldKind::Grayordinates, &paths[4..]));
    assert!(dense.runs[0].confounds.is_some());
}

#[test]
fn an_image_stored_twice_is_refused() {
    let paths = ["nii", "nii.gz"].map(|ending| format!("sub-1/func/sub-1_task-rest_space-T1w_bold.{ending}"));
    let refusal = select(&paths, &BidsQuery::default()).problems[0].to_string();
    assert!(refusal.contains("more than once") && refusal.contains("remove all but one"), "{refusal}");
}

#[test]
fn events_are_inherited_from_the_raw_dataset() {
    let image =
        |run: u8| format!("sub-1/ses-a/func/sub-1_ses-a_task-x_run-{run}_space-T1w_desc-preproc_bold.nii.gz");
    let images = [image(1), image(2)];
    let raw = [
        "task-x_events.tsv",
        "task-y_events.tsv",
        "sub-1/ses-a/func/sub-1_ses-a_task-x_run-2_events.tsv",
        "sub-1/ses-a/func/sub-1_ses-a_task-x_run-1_bold.nii.gz",
        "task-x_bold.json",
    ];
    let read = |path: &str| match path {
        "task-x_bold.json" => Ok(r#"{"RepetitionTime": 0.8, "StartTime": 9}"#.to_owned()),
        _ => nothing(path),
    };
    let dataset = BidsDataset::new(&images, &nothing);
    let raw = BidsDataset::new(raw, &read);
    let found = select_runs(&dataset, Some(&raw), &BidsQuery::default());
    let events: Vec<_> = found.runs.iter().map(|run| run.events.clone().unwrap()).collect();
    let table = |path: &str| EventFiles::Table(Located { root: Root::Raw, path: path.into() });
    assert_eq!(
        events,
        [table("task-x_events.tsv"), table("sub-1/ses-a/func/sub-1_ses-a_task-x_run-2_events.tsv")]
    );
    // The raw image's repetition time holds for the derivative; when its volumes begin does not.
    assert_eq!((found.runs[0].t_r, found.runs[0].start_time), (Some(0.8), None));

    let without = select_runs(&dataset, None, &BidsQuery::default());
    let text = texts(&without).into_iter().find(|text| text.contains("events")).unwrap();
    assert!(text.contains("2 runs have no events") && text.contains("give it as raw"), "{text}");
    let other = BidsDataset::new(["sub-1/ses-a/func/sub-1_ses-a_task-y_run-1_events.tsv"], &nothing);
    let text = texts(&select_runs(&dataset, Some(&other), &BidsQuery::default())).join("\n");
    assert!(text.contains("no events") && text.contains("task-y_run-1_events.tsv (other task)"), "{text}");
}

#[test]
fn timing_comes_from_the_sidecars_and_is_refused_when_it_cannot_be_right() {
    let stem = "sub-1/func/sub-1_task-rest_space-T1w_desc-preproc_bold";
    let paths = [format!("{stem}.nii.gz"), format!("{stem}.json"), "task-rest_bold.json".into()];
    let select = |json: &str| {
        let own = format!("{stem}.json");
        let read = |path: &str| match path {
            "task-rest_bold.json" => Ok(r#"{"RepetitionTime": 3, "EchoTime": NaN}"#.to_owned()),
            path if path == own => Ok(json.to_owned()),
            path => nothing(path),
        };
        select_runs(&BidsDataset::new(&paths, &read), None, &BidsQuery::default())
    };
    let run = &select(r#"{"RepetitionTime": 2.0, "StartTime": 0.975, "EchoTime": "n/a"}"#).runs[0];
    assert_eq!((run.t_r, run.start_time), (Some(2.0), Some(0.975)));
    let run = &select("{}").runs[0];
    assert_eq!((run.t_r, run.start_time), (Some(3.0), None));
    for (json, says) in [
        (r#"{"RepetitionTime": 1500}"#, "milliseconds?"),
        (r#"{"RepetitionTime": "2"}"#, "RepetitionTime"),
        (r#"{"RepetitionTime": 0}"#, "RepetitionTime"),
        (r#"{"StartTime": "late"}"#, "StartTime"),
        (r#"{"RepetitionTime": 2,"#, "bold.json"),
    ] {
        let found = select(json);
        let left_out =
            found.problems.iter().find(|problem| problem.effect == Effect::LeftOut).unwrap().to_string();
        assert!(found.runs.is_empty() && left_out.contains(says) && left_out.contains(stem), "{left_out}");
    }
}

#[test]
fn raw_datasets_are_sent_to_preprocessing() {
    let raw = ["dataset_description.json", "participants.tsv", "sub-1/func/sub-1_task-x_bold.nii.gz"];
    let find = |paths: &[&str], description: &str| {
        let read = |_: &str| Ok(description.to_owned());
        select_runs(&BidsDataset::new(paths, &read), None, &BidsQuery::default())
    };
    let text = find(&raw, r#"{"DatasetType": "raw"}"#).refusals().next().unwrap().to_string();
    assert!(text.contains("raw dataset") && text.contains("fmriprep.org"), "{text}");
    let mut within = raw.to_vec();
    within.push("derivatives/fmriprep/sub-1/func/sub-1_task-x_desc-preproc_bold.nii.gz");
    let text = find(&within, "{}").refusals().next().unwrap().to_string();
    assert!(text.contains("in derivatives/fmriprep: give one of them as the location"), "{text}");
    // The same names in a dataset that says it is a derivative are preprocessed.
    assert_eq!(find(&raw, r#"{"DatasetType": "derivative"}"#).runs.len(), 1);

    let text = find(&["100307/MNINonLinear/Results/tfMRI_MOTOR_LR/tfMRI_MOTOR_LR.nii.gz"], "{}").problems[0]
        .to_string();
    assert!(text.contains("read it as HCP"), "{text}");
    let text = find(&["notes.txt"], "{}").problems[0].to_string();
    assert!(text.contains("holds no preprocessed functional image"), "{text}");
}

proptest::proptest! {
    #[test]
    fn any_listing_is_answered(
        paths in proptest::collection::vec(
            "(sub-[12]/)?(ses-a/)?(func/)?(sub-[12]_)?(ses-a_)?(task-[xy]_)?(run-0?[12]_)?(echo-[12]_)?(hemi-[LR]_)?\
             (space-[AB]_)?(res-1_)?(desc-(preproc|brain|confounds)_)?(bold_)?(bold|mask|events|timeseries|preproc|confounds)\
             (\\.nii|\\.nii\\.gz|\\.tsv|\\.json|\\.func\\.gii)",
            0..24,
        ),
        task in "[xyz]",
        json in proptest::prop_oneof![
            proptest::strategy::Just("{\"RepetitionTime\": 2}".to_owned()),
            "\\PC{0,20}",
        ],
    ) {
        let read = |_: &str| Ok(json.clone());
        let dataset = BidsDataset::new(&paths, &read);
        for query in [BidsQuery::default(), BidsQuery::default().with("task", &task).with("space", "A")] {
            let found = select_runs(&dataset, Some(&dataset), &query);
            proptest::prop_assert!(!found.runs.is_empty() || !found.problems.is_empty());
            for run in &found.runs {
                // Every file is one of the listing, and no image is given twice.
                proptest::prop_assert!(run.bold.iter().chain(&run.mask).all(|path| paths.contains(path)));
                let elsewhere = found.runs.iter().filter(|other| other.bold == run.bold).count();
                proptest::prop_assert_eq!(elsewhere, 1);
            }
        }
    }
}
