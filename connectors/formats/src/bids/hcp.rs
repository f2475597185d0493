//! Folders as the minimal preprocessing pipelines of the Human Connectome Project write them.
//!
//! ```text
//!   100307/MNINonLinear/Results/tfMRI_MOTOR_LR/
//!     tfMRI_MOTOR_LR.nii.gz                      volumes; tfMRI_MOTOR_LR_hp2000_clean.nii.gz: desc 'hp2000_clean'
//!     tfMRI_MOTOR_LR_Atlas.dtseries.nii          grayordinates; …_Atlas_MSMAll.dtseries.nii: desc 'MSMAll'
//!     brainmask_fs.2.nii.gz                      on the grid of the volumes
//!     Movement_Regressors.txt                    twelve columns
//!     EVs/lh.txt …                               onset, duration, weight
//! ```
//!
//! Source: Glasser et al. 2013, NeuroImage 80; the reference manual of the HCP's S1200 release, appendix 3.

use super::query::list;
use super::run::{ConfoundFiles, EventFiles, Part, Selection};
use super::{BidsRun, BoldKind, Problem};
use std::collections::BTreeMap;

/// MNI space of FSL in which the pipelines' results lie, by its name in TemplateFlow.
const SPACE: &str = "MNI152NLin6Asym";
/// Folder of a subject in which its runs lie.
const RESULTS: &str = "MNINonLinear/Results/";
/// Phase-encoding directions, with which the names of runs end.
const DIRECTIONS: [&str; 4] = ["LR", "RL", "AP", "PA"];
/// Names of events that are no conditions: the moment of the scanner's signal.
const NO_CONDITION: [&str; 1] = ["Sync"];

/// A choice among the runs of an HCP folder. Without values everything is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HcpQuery {
    /// Subjects: `100307`.
    pub subjects: Vec<String>,
    /// Tasks: `MOTOR`, `REST1`; upper or lower case.
    pub tasks: Vec<String>,
    /// Runs, which HCP tells apart by direction: `LR`, `RL`.
    pub runs: Vec<String>,
    /// What follows the name of the run in that of the image: `hp2000_clean`; nothing takes the image without.
    pub desc: Option<String>,
    /// Grayordinates instead of volumes.
    pub grayordinates: bool,
}

/// What lies in the folder of one run.
#[derive(Debug, Default)]
struct Folder<'p> {
    subject: &'p str,
    /// `tfMRI_MOTOR_LR`
    name: &'p str,
    /// Paths by what follows the folder.
    files: BTreeMap<&'p str, &'p str>,
}

/// Runs of a folder that holds subjects' folders; `paths` are relative to it. The key `run` is the direction.
pub fn select_hcp_runs<S: AsRef<str>>(paths: &[S], query: &HcpQuery) -> Selection {
    let mut found = Selection::default();
    let folders = folders(paths);
    if folders.is_empty() {
        let reason = "it holds no <subject>/MNINonLinear/Results/<run>/ of the HCP pipelines: give the folder above \
                      the subjects' folders";
        found.problems.push(Problem::refused("the folder", reason));
        return found;
    }
    let chosen: Vec<&Folder> = folders.values().filter(|folder| folder.is_asked_for(query)).collect();
    if chosen.is_empty() {
        let names: Vec<String> =
            folders.values().map(|folder| format!("{}/{}", folder.subject, folder.name)).collect();
        let reason = format!("no run is of that subject, task and direction; found: {}", list(&names));
        found.problems.push(Problem::refused("the folder", reason));
    }
    for folder in chosen {
        match folder.image(query) {
            Ok(image) => {
                let (run, problems) = folder.run(image, query);
                found.runs.push(run);
                found.problems.extend(problems);
            }
            Err(problem) => found.problems.push(problem),
        }
    }
    found
}

/// Subject, task and direction of a file's run, by its place: `100307`, `MOTOR` and `LR` of
/// `…/100307/MNINonLinear/Results/tfMRI_MOTOR_LR/EVs/lh.txt`.
pub fn hcp_run_of(path: &str) -> Option<(&str, &str, Option<&str>)> {
    let (subject, name, _) = place(path)?;
    let (task, run) = task_and_run(name);
    Some((subject, task, run))
}

/// Subject, name of the run and file of a path.
fn place(path: &str) -> Option<(&str, &str, &str)> {
    let (before, after) = path.split_once(RESULTS)?;
    let subject = before.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let (name, file) = after.split_once('/')?;
    let is_run = name.starts_with("tfMRI_") || name.starts_with("rfMRI_");
    (is_run && !subject.is_empty()).then_some((subject, name, file))
}

/// `MOTOR` and `LR` of `tfMRI_MOTOR_LR`; `RETCCW_7T` and `AP` of `tfMRI_RETCCW_7T_AP`.
fn task_and_run(name: &str) -> (&str, Option<&str>) {
    let name = name.split_once('_').map_or(name, |(_, rest)| rest);
    match name.rsplit_once('_') {
        Some((task, direction)) if DIRECTIONS.contains(&direction) => (task, Some(direction)),
        _ => (name, None),
    }
}

fn folders<S: AsRef<str>>(paths: &[S]) -> BTreeMap<(&str, &str), Folder<'_>> {
    let mut folders: BTreeMap<(&str, &str), Folder> = BTreeMap::new();
    for path in paths {
        let Some((subject, name, file)) = place(path.as_ref()) else { continue };
        let folder = folders.entry((subject, name)).or_default();
        (folder.subject, folder.name) = (subject, name);
        folder.files.insert(file, path.as_ref());
    }
    folders
}

impl Folder<'_> {
    fn is_asked_for(&self, query: &HcpQuery) -> bool {
        let (task, run) = task_and_run(self.name);
        let among = |wanted: &[String], value: &str| {
            wanted.is_empty() || wanted.iter().any(|wanted| wanted.eq_ignore_ascii_case(value))
        };
        among(&query.subjects, self.subject)
            && among(&query.tasks, task)
            && among(&query.runs, run.unwrap_or_default())
    }

    /// What images of this run are called after its name, by kind.
    fn descriptions(&self, query: &HcpQuery) -> Vec<(String, &str)> {
        let (front, back) = match query.grayordinates {
            true => (format!("{}_Atlas", self.name), ".dtseries.nii"),
            false => (self.name.to_owned(), ".nii.gz"),
        };
        let desc = |file: &str| {
            let desc = file.strip_prefix(&front)?.strip_suffix(back)?;
            let desc = if desc.is_empty() { desc } else { desc.strip_prefix('_')? };
            (desc != "SBRef").then(|| desc.to_owned())
        };
        self.files.iter().filter_map(|(file, path)| Some((desc(file)?, *path))).collect()
    }

    fn image(&self, query: &HcpQuery) -> Result<&str, Problem> {
        let images = self.descriptions(query);
        let wanted = query.desc.as_deref().unwrap_or_default();
        if let Some((_, path)) = images.iter().find(|(desc, _)| desc == wanted) {
            return Ok(path);
        }
        let about = format!("{}/{RESULTS}{}", self.subject, self.name);
        let what = if query.grayordinates { "grayordinates" } else { "volumes" };
        let of = if wanted.is_empty() { String::new() } else { format!(" of desc '{wanted}'") };
        let found: Vec<String> =
            images.into_iter().map(|(desc, _)| if desc.is_empty() { "none".into() } else { desc }).collect();
        let found =
            if found.is_empty() { "no other".to_owned() } else { format!("desc is {}", list(&found)) };
        Err(Problem::left_out(about, format!("it has no {what}{of}; found: {found}")))
    }

    fn run(&self, image: &str, query: &HcpQuery) -> (BidsRun, Vec<Problem>) {
        let (task, run) = task_and_run(self.name);
        let kind = if query.grayordinates { BoldKind::Grayordinates } else { BoldKind::Volume };
        let file = |name: &str| self.files.get(name).map(|path| (*path).to_owned());
        let mask = (kind == BoldKind::Volume).then(|| file("brainmask_fs.2.nii.gz")).flatten();
        let confounds = file("Movement_Regressors.txt");
        let events = self.events();
        let mut problems = Vec::new();
        let mut lacks = |part, what: &str| {
            let names: Vec<String> = self.files.keys().map(|name| (*name).to_owned()).collect();
            problems.push(Problem::lacking(
                part,
                image,
                format!("no {what} in its folder; found: {}", list(&names)),
            ));
        };
        if mask.is_none() && kind == BoldKind::Volume {
            lacks(Part::Mask, "brainmask_fs.2.nii.gz");
        }
        if confounds.is_none() {
            lacks(Part::Confounds, "Movement_Regressors.txt");
        }
        if events.is_none() && self.name.starts_with("tfMRI_") {
            lacks(Part::Events, "EVs/*.txt");
        }
        let run = BidsRun {
            subject: self.subject.to_owned(),
            session: None,
            task: Some(task.to_owned()),
            run: run.map(str::to_owned),
            space: Some(SPACE.to_owned()),
            kind,
            bold: vec![image.to_owned()],
            mask,
            confounds: confounds.map(ConfoundFiles::MovementRegressors),
            events,
            t_r: None,
            start_time: None,
        };
        (run, problems)
    }

    fn events(&self) -> Option<EventFiles> {
        let conditions: Vec<(String, String)> = self
            .files
            .iter()
            .filter_map(|(file, path)| Some((file.strip_prefix("EVs/")?.strip_suffix(".txt")?, path)))
            .filter(|(name, _)| !name.contains('/') && !NO_CONDITION.contains(name))
            .map(|(name, path)| (name.to_owned(), (*path).to_owned()))
            .collect();
        (!conditions.is_empty()).then_some(EventFiles::ThreeColumns(conditions))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn tree() -> Vec<String> {
        let run = |subject: &str, name: &str| {
            let folder = format!("{subject}/MNINonLinear/Results/{name}");
            let files = [
                format!("{name}.nii.gz"),
                format!("{name}_SBRef.nii.gz"),
                format!("{name}_Atlas.dtseries.nii"),
                format!("{name}_Atlas_MSMAll.dtseries.nii"),
                "brainmask_fs.2.nii.gz".into(),
                "Movement_Regressors.txt".into(),
                "Movement_Regressors_dt.txt".into(),
                "Movement_RelativeRMS.txt".into(),
            ];
            files.map(|file| format!("{folder}/{file}"))
        };
        let mut paths: Vec<String> = run("100307", "tfMRI_MOTOR_LR").into();
        paths.extend(run("100307", "tfMRI_MOTOR_RL"));
        paths.extend(run("100408", "rfMRI_REST1_7T_PA"));
        for event in ["lh", "rf", "Sync"] {
            paths.push(format!("100307/MNINonLinear/Results/tfMRI_MOTOR_LR/EVs/{event}.txt"));
        }
        paths.push("100307/MNINonLinear/T1w_restore.2.nii.gz".into());
        paths.push(
            "100408/MNINonLinear/Results/rfMRI_REST1_7T_PA/rfMRI_REST1_7T_PA_hp2000_clean.nii.gz".into(),
        );
        paths
    }

    #[test]
    fn a_run_has_its_mask_its_movement_and_its_events() {
        let query = HcpQuery { tasks: vec!["motor".into()], runs: vec!["LR".into()], ..HcpQuery::default() };
        let found = select_hcp_runs(&tree(), &query);
        assert_eq!((found.runs.len(), found.problems.len()), (1, 0), "{:?}", found.problems);
        let run = &found.runs[0];
        let at = |file: &str| format!("100307/MNINonLinear/Results/tfMRI_MOTOR_LR/{file}");
        assert_eq!(run.label(), "sub-100307 task-MOTOR run-LR");
        assert_eq!(run.bold, [at("tfMRI_MOTOR_LR.nii.gz")]);
        assert_eq!(run.mask, Some(at("brainmask_fs.2.nii.gz")));
        assert_eq!(run.confounds, Some(ConfoundFiles::MovementRegressors(at("Movement_Regressors.txt"))));
        let events = vec![("lh".into(), at("EVs/lh.txt")), ("rf".into(), at("EVs/rf.txt"))];
        assert_eq!(run.events, Some(EventFiles::ThreeColumns(events)));
    }

    #[test]
    fn a_file_is_known_by_its_place() {
        let at = "/data/100307/MNINonLinear/Results/tfMRI_MOTOR_LR/EVs/lh.txt";
        assert_eq!(hcp_run_of(at), Some(("100307", "MOTOR", Some("LR"))));
        let at = "1/MNINonLinear/Results/rfMRI_REST1_7T_PA/Movement_Regressors.txt";
        assert_eq!(hcp_run_of(at), Some(("1", "REST1_7T", Some("PA"))));
        for other in ["sub-1/func/a.txt", "MNINonLinear/Results/tfMRI_X_LR/a", "1/MNINonLinear/Results/a.txt"]
        {
            assert_eq!(hcp_run_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_run_without_events_is_there_and_says_what_it_lacks() {
        let found = select_hcp_runs(&tree(), &HcpQuery::default());
        let labels: Vec<String> = found.runs.iter().map(BidsRun::label).collect();
        assert_eq!(
            labels,
            [
                "sub-100307 task-MOTOR run-LR",
                "sub-100307 task-MOTOR run-RL",
                "sub-100408 task-REST1_7T run-PA"
            ]
        );
        assert_eq!(found.problems.len(), 1);
        let text = found.problems[0].to_string();
        assert!(text.contains("tfMRI_MOTOR_RL.nii.gz: no EVs/*.txt") && text.contains("Movement"), "{text}");
    }

    #[test]
    fn denoised_images_and_grayordinates_are_chosen_by_their_names() {
        let clean = HcpQuery {
            tasks: vec!["REST1_7T".into()],
            desc: Some("hp2000_clean".into()),
            ..HcpQuery::default()
        };
        let found = select_hcp_runs(&tree(), &clean);
        assert!(found.runs[0].bold[0].ends_with("_PA_hp2000_clean.nii.gz"));
        let msm = HcpQuery { desc: Some("MSMAll".into()), grayordinates: true, ..HcpQuery::default() };
        let found = select_hcp_runs(&tree(), &msm);
        assert!(
            found
                .runs
                .iter()
                .all(|run| run.bold[0].ends_with("_Atlas_MSMAll.dtseries.nii") && run.mask.is_none())
        );
        assert_eq!(found.runs.len(), 3);
    }

    #[test]
    fn what_is_not_there_is_answered_with_what_is() {
        let query =
            HcpQuery { desc: Some("clean".into()), subjects: vec!["100408".into()], ..HcpQuery::default() };
        let text = select_hcp_runs(&tree(), &query).problems[0].to_string();
        assert!(text.contains("no volumes of desc 'clean'") && text.contains("none, hp2000_clean"), "{text}");
        let query = HcpQuery { tasks: vec!["MOTRO".into()], ..HcpQuery::default() };
        let text = select_hcp_runs(&tree(), &query).problems[0].to_string();
        assert!(text.contains("100307/tfMRI_MOTOR_LR"), "{text}");
        for paths in [
            vec!["sub-1/func/sub-1_task-x_desc-preproc_bold.nii.gz"],
            vec!["MNINonLinear/Results/tfMRI_X_LR/a"],
        ] {
            let text = select_hcp_runs(&paths, &HcpQuery::default()).problems[0].to_string();
            assert!(text.contains("above the subjects' folders"), "{text}");
        }
    }
}
