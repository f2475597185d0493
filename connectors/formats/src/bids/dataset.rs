//! A dataset as a listing of its files: which there are, and what their JSON sidecars say.

use super::{BidsName, Problem, Role};
use crate::sidecar::{Sidecar, without_nan};
use crate::{Error, Result};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::{fmt, io, rc::Rc};

/// Reads a small text file (JSON) by its path in the dataset.
pub type ReadText<'r> = dyn Fn(&str) -> io::Result<String> + 'r;

/// Top folders that hold no data of the dataset itself.
const ASIDE: [&str; 6] = ["sourcedata", "code", "logs", "stimuli", "phenotype", "work"];

/// The file that describes a dataset.
const DESCRIPTION: &str = "dataset_description.json";

/// A file of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BidsFile {
    /// Path in the dataset, with `/`.
    pub path: String,
    /// Its name, taken apart.
    pub name: BidsName,
}

impl BidsFile {
    /// The folder that it lies in; empty for the dataset's own.
    pub fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

/// Files of a dataset by folder, from a listing of a disk or of an object store alike.
///
/// Hidden files, `figures`, and the top folders `sourcedata`, `code` and `logs` are left aside; of `derivatives` only
/// the names are kept.
pub struct BidsDataset<'r> {
    folders: BTreeMap<String, Vec<BidsFile>>,
    /// Folders under `derivatives/` that hold files.
    derivatives: BTreeSet<String>,
    /// Whether a folder is called as in the output of the HCP pipelines.
    hcp: bool,
    /// Whether there is a [`DESCRIPTION`].
    described: bool,
    problems: Vec<Problem>,
    read: &'r ReadText<'r>,
    sidecars: RefCell<HashMap<String, Rc<Sidecar>>>,
}

impl<'r> BidsDataset<'r> {
    /// `paths` are relative to the dataset's folder, with `/`, in any order; `read` reads one of them.
    pub fn new<S: AsRef<str>>(paths: impl IntoIterator<Item = S>, read: &'r ReadText<'r>) -> Self {
        let mut dataset = Self {
            folders: BTreeMap::new(),
            derivatives: BTreeSet::new(),
            hcp: false,
            described: false,
            problems: Vec::new(),
            read,
            sidecars: RefCell::default(),
        };
        for path in paths {
            dataset.add(path.as_ref().trim_start_matches("./").trim_matches('/'));
        }
        for files in dataset.folders.values_mut() {
            files.sort_by(|a, b| a.path.cmp(&b.path));
        }
        dataset.problems.sort_by(|a, b| a.about.cmp(&b.about));
        dataset
    }

    fn add(&mut self, path: &str) {
        let parts: Vec<&str> = path.split('/').collect();
        let Some((name, folders)) = parts.split_last() else { return };
        if parts.iter().any(|part| part.starts_with('.')) || folders.contains(&"figures") {
            return;
        }
        self.described |= path == DESCRIPTION;
        self.hcp |= folders.contains(&"MNINonLinear");
        match folders {
            ["derivatives", pipeline, ..] => {
                self.derivatives.insert(format!("derivatives/{pipeline}"));
                return;
            }
            [top, ..] if *top == "derivatives" || ASIDE.contains(top) => return,
            _ => {}
        }
        match BidsName::parse(name) {
            Ok(read) => match misplaced(&read, folders) {
                None => {
                    let file = BidsFile { path: path.into(), name: read };
                    self.folders.entry(folders.join("/")).or_default().push(file);
                }
                Some(reason) => self.problems.push(Problem::left_out(path, reason)),
            },
            // Other files (HTML, transforms) are none of ours; of a functional image one wants to know.
            Err(e) if name.starts_with("sub-") && name.contains("_bold") => {
                self.problems.push(Problem::left_out(path, e.to_string()));
            }
            Err(_) => {}
        }
    }

    /// Every file, by folder.
    pub fn files(&self) -> impl Iterator<Item = &BidsFile> {
        self.folders.values().flatten()
    }

    /// Files of one folder, by name.
    pub fn in_folder(&self, folder: &str) -> &[BidsFile] {
        self.folders.get(folder).map_or(&[], Vec::as_slice)
    }

    /// Files of a folder and of those under it.
    pub(super) fn under(&self, folder: &str) -> impl Iterator<Item = &BidsFile> {
        let inside = move |name: &str| {
            folder.is_empty()
                || name.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.folders
            .range(folder.to_owned()..)
            .take_while(move |(name, _)| name.starts_with(folder))
            .filter(move |(name, _)| inside(name))
            .flat_map(|(_, files)| files)
    }

    pub(super) fn is_hcp(&self) -> bool {
        self.hcp
    }

    /// Functional images whose names or places contradict themselves.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Folders of derivatives inside this dataset, such as `derivatives/fmriprep`.
    pub fn derivatives(&self) -> impl Iterator<Item = &str> {
        self.derivatives.iter().map(String::as_str)
    }

    /// Whether `dataset_description.json` says that these are derivatives.
    pub fn says_derivative(&self) -> bool {
        let text = if self.described { (self.read)(DESCRIPTION).ok() } else { None };
        text.and_then(|text| serde_json::from_slice::<Value>(&without_nan(text.as_bytes())).ok()).is_some_and(
            |description| {
                match description.get("DatasetType").and_then(Value::as_str) {
                    Some(kind) => kind == "derivative",
                    // How fMRIPrep said it before BIDS did.
                    None => description.get("PipelineDescription").is_some(),
                }
            },
        )
    }

    /// Sidecars that apply to a file called `name` in `folder`, the farthest first: JSON files of the same suffix in
    /// that folder or above, whose entities the file has too.
    pub fn sidecars_of(&self, name: &BidsName, folder: &str) -> Vec<&BidsFile> {
        self.inherited(name, folder, |file| {
            Role::of(&file.name) == Role::Sidecar
                && file.name.suffix() == name.suffix()
                && file.name.source_suffix() == name.source_suffix()
        })
    }

    /// Files that `fits` and that apply to `name` in `folder`, the farthest first, those that say less before those
    /// that say more.
    pub(super) fn inherited(
        &self,
        name: &BidsName,
        folder: &str,
        fits: impl Fn(&BidsFile) -> bool,
    ) -> Vec<&BidsFile> {
        let mut found = Vec::new();
        for level in levels(folder) {
            let mut here: Vec<&BidsFile> = self
                .in_folder(level)
                .iter()
                .filter(|file| fits(file) && file.name.says_no_more_than(name, |_| true))
                .collect();
            here.sort_by_key(|file| file.name.entities().count());
            found.extend(here);
        }
        found
    }

    /// What the sidecars of a file say together: of a key that several have, the nearest counts.
    ///
    /// # Errors
    /// A sidecar that cannot be read, or that [`Sidecar::from_reader`] refuses.
    pub fn sidecar(&self, name: &BidsName, folder: &str) -> Result<Sidecar> {
        let mut files = self.sidecars_of(name, folder).into_iter();
        files.try_fold(Sidecar::default(), |above, file| {
            Ok(self.read_sidecar(&file.path)?.as_ref().clone().or(above))
        })
    }

    /// One sidecar, read once.
    fn read_sidecar(&self, path: &str) -> Result<Rc<Sidecar>> {
        if let Some(known) = self.sidecars.borrow().get(path) {
            return Ok(Rc::clone(known));
        }
        let text = (self.read)(path).map_err(|source| Error::Open { path: path.into(), source })?;
        let sidecar = Rc::new(Sidecar::from_reader(text.as_bytes(), path)?);
        self.sidecars.borrow_mut().insert(path.into(), Rc::clone(&sidecar));
        Ok(sidecar)
    }
}

impl fmt::Debug for BidsDataset<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BidsDataset").field("folders", &self.folders).finish_non_exhaustive()
    }
}

/// A folder and those above it, the dataset's own first: ``, `sub-1`, `sub-1/func`.
fn levels(folder: &str) -> impl Iterator<Item = &str> {
    let ends = folder.match_indices('/').map(|(at, _)| at).chain([folder.len()]);
    [""].into_iter().chain(ends.map(|end| &folder[..end]).filter(|level| !level.is_empty()))
}

/// Why a file lies in a folder of another subject or session.
fn misplaced(name: &BidsName, folders: &[&str]) -> Option<String> {
    folders.iter().filter_map(|folder| folder.split_once('-')).find_map(|(key, value)| {
        let said = name.get(key).filter(|said| matches!(key, "sub" | "ses") && *said != value)?;
        Some(format!(
            "its name says {key}-{said}, but it lies in the folder {key}-{value}: rename or move it"
        ))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PATHS: [&str; 9] = [
        "bold.json",
        "task-rest_bold.json",
        "sub-1/sub-1_task-rest_bold.json",
        "sub-1/func/sub-1_task-rest_run-1_bold.json",
        "sub-1/func/sub-1_task-rest_run-2_bold.json",
        "sub-1/func/sub-1_task-rest_run-1_desc-preproc_bold.nii.gz",
        "sub-1/func/sub-1_task-rest_run-1_events.json",
        "sub-2/func/sub-2_task-rest_bold.json",
        "dataset_description.json",
    ];

    fn read(path: &str) -> io::Result<String> {
        Ok(match path {
            "bold.json" => r#"{"RepetitionTime": 1, "VolumeTiming": [0, 1]}"#.into(),
            "task-rest_bold.json" => r#"{"RepetitionTime": 2, "EchoTime": NaN}"#.into(),
            "sub-1/sub-1_task-rest_bold.json" => r#"{"StartTime": 0.5}"#.into(),
            "sub-1/func/sub-1_task-rest_run-1_bold.json" => r#"{"RepetitionTime": 3}"#.into(),
            "dataset_description.json" => r#"{"DatasetType": "derivative", "Version": NaN}"#.into(),
            "sub-2/func/sub-2_task-rest_bold.json" => "[1]".into(),
            _ => return Err(io::ErrorKind::NotFound.into()),
        })
    }

    #[test]
    fn sidecars_merge_and_the_nearest_wins() {
        let dataset = BidsDataset::new(PATHS, &read);
        let name = BidsName::parse("sub-1_task-rest_run-1_desc-preproc_bold.nii.gz").unwrap();
        let applied: Vec<&str> =
            dataset.sidecars_of(&name, "sub-1/func").iter().map(|file| file.path.as_str()).collect();
        assert_eq!(applied, [PATHS[0], PATHS[1], PATHS[2], PATHS[3]]);
        let sidecar = dataset.sidecar(&name, "sub-1/func").unwrap();
        assert_eq!((sidecar.repetition_time, sidecar.start_time), (Some(3.0), Some(0.5)));
        assert_eq!(sidecar.volume_timing.as_deref(), Some(&[0.0, 1.0][..]));
        assert!(dataset.says_derivative());
    }

    #[test]
    fn a_sidecar_that_is_no_object_is_named() {
        let dataset = BidsDataset::new(PATHS, &read);
        let name = BidsName::parse("sub-2_task-rest_bold.nii.gz").unwrap();
        let e = dataset.sidecar(&name, "sub-2/func").unwrap_err();
        assert!(e.is_input() && e.to_string().contains("sub-2/func/sub-2_task-rest_bold.json"), "{e}");
    }

    #[test]
    fn what_contradicts_itself_is_a_problem_and_the_rest_is_left_aside() {
        let paths = [
            "./sub-1/func/sub-2_task-x_bold.nii.gz",
            "sub-1/ses-a/func/sub-1_ses-b_task-x_bold.nii.gz",
            "sub-1/func/sub-1_task-x_task-y_bold.nii.gz",
            "sub-1/figures/sub-1_task-x_bold.svg",
            "sourcedata/sub-1/func/sub-1_task-x_bold.nii.gz",
            ".git/sub-1_task-x_bold.nii.gz",
            "derivatives/fmriprep/sub-1/func/sub-1_task-x_desc-preproc_bold.nii.gz",
            "sub-1.html",
            "",
        ];
        let dataset = BidsDataset::new(paths, &read);
        let problems: Vec<String> = dataset.problems().iter().map(ToString::to_string).collect();
        assert_eq!(problems.len(), 3, "{problems:?}");
        for says in ["in the folder sub-1", "in the folder ses-a", "`task-` twice"] {
            assert!(problems.iter().any(|p| p.contains(says)), "{says}: {problems:?}");
        }
        assert_eq!(dataset.files().map(|f| f.path.as_str()).collect::<Vec<_>>(), ["sub-1.html"]);
        assert_eq!(dataset.derivatives().collect::<Vec<_>>(), ["derivatives/fmriprep"]);
    }

    #[test]
    fn levels_begin_with_the_dataset() {
        assert_eq!(levels("a/b/c").collect::<Vec<_>>(), ["", "a", "a/b", "a/b/c"]);
        assert_eq!(levels("").collect::<Vec<_>>(), [""]);
    }
}
