//! What a folder of BIDS derivatives or of the HCP pipelines would give as a table, and what is wrong with it.

use crate::{Result, Stores};
use voxelflow_formats::bids::{
    BidsDataset, BidsRun, BoldKind, EventFiles, HcpQuery, Problem, Role, select_hcp_runs, select_runs,
    variants_of,
};
use voxelflow_storage::Listing;

/// What was found in a folder.
#[derive(Debug, Default)]
pub struct FolderReport {
    /// `BIDS` or `HCP`: the word after `STORED AS`.
    pub kind: &'static str,
    /// Runs, in each variant (space, resolution, description) that they exist in.
    pub runs: Vec<InspectedRun>,
    /// What is wrong, each once.
    pub problems: Vec<String>,
}

/// A run in one variant.
#[derive(Debug)]
pub struct InspectedRun {
    /// `sub-01 ses-a task-x run-1`.
    pub run: String,
    /// What has to be chosen to get it: `desc-preproc space-T1w`.
    pub variant: String,
    /// Voxels along i, j, k, and volumes; none for surfaces, grayordinates and images that cannot be read.
    pub shape: Option<([usize; 3], usize)>,
    /// Repetition time in seconds: the sidecars', else the header's.
    pub t_r: Option<f64>,
    /// Whether it can be read as voxel series.
    pub usable: bool,
    /// Whether there is a brain mask.
    pub mask: bool,
    /// Whether there are confounds.
    pub confounds: bool,
    /// Where events come from: `table`, or the number of FSL's files.
    pub events: Option<String>,
}

/// Looks at every run of a folder: names, sidecars and headers, no volumes. Nothing when the folder is of no kind
/// that is known here.
///
/// # Errors
/// A folder that cannot be listed.
pub fn inspect_folder(location: &str) -> Result<Option<FolderReport>> {
    let listing = Stores::default().list(location)?;
    if listing.paths().iter().any(|path| path.contains("MNINonLinear/Results/")) {
        return Ok(Some(inspect_hcp(&listing)));
    }
    let read = |path: &str| listing.read_text(path);
    let dataset = BidsDataset::new(listing.paths(), &read);
    let bids = listing.paths().iter().any(|path| path == "dataset_description.json")
        || dataset.files().any(|file| matches!(Role::of(&file.name), Role::Bold(_)));
    Ok(bids.then(|| inspect_bids(&listing, &dataset)))
}

fn inspect_bids(listing: &Listing, dataset: &BidsDataset) -> FolderReport {
    let mut report = FolderReport { kind: "BIDS", ..FolderReport::default() };
    let variants = variants_of(dataset);
    for query in &variants {
        let found = select_runs(dataset, None, query);
        let runs =
            found.runs.iter().map(|run| inspect_run(listing, run, query.to_string(), &mut report.problems));
        let runs: Vec<InspectedRun> = runs.collect();
        report.runs.extend(runs);
        report.take(&found.problems);
    }
    if variants.is_empty() {
        report.take(&select_runs(dataset, None, &Default::default()).problems);
    }
    report.runs.sort_by(|a, b| (&a.run, &a.variant).cmp(&(&b.run, &b.variant)));
    report
}

fn inspect_hcp(listing: &Listing) -> FolderReport {
    let mut report = FolderReport { kind: "HCP", ..FolderReport::default() };
    let found = select_hcp_runs(listing.paths(), &HcpQuery::default());
    for run in &found.runs {
        let inspected = inspect_run(listing, run, String::new(), &mut report.problems);
        report.runs.push(inspected);
    }
    report.take(&found.problems);
    report
}

impl FolderReport {
    fn take(&mut self, problems: &[Problem]) {
        for problem in problems {
            let text = problem.to_string();
            if !self.problems.contains(&text) {
                self.problems.push(text);
            }
        }
    }
}

fn inspect_run(
    listing: &Listing,
    run: &BidsRun,
    variant: String,
    problems: &mut Vec<String>,
) -> InspectedRun {
    let header = match (run.kind, run.bold.first()) {
        (BoldKind::Volume, Some(bold)) => read_header(&listing.location_of(bold), run.t_r),
        (BoldKind::Surface | BoldKind::Grayordinates, _) | (_, None) => Ok(None),
    };
    let (shape, t_r) = match header {
        Ok(Some((shape, t_r))) => (Some(shape), t_r),
        Ok(None) => (None, run.t_r),
        Err(e) => {
            problems.push(e.to_string());
            (None, run.t_r)
        }
    };
    let events = run.events.as_ref().map(|events| match events {
        EventFiles::Table(_) => "table".to_owned(),
        EventFiles::ThreeColumns(files) => format!("{} files", files.len()),
    });
    InspectedRun {
        run: run.label(),
        variant,
        shape,
        t_r,
        usable: shape.is_some(),
        mask: run.mask.is_some(),
        confounds: run.confounds.is_some(),
        events,
    }
}

type Shape = ([usize; 3], usize);

fn read_header(location: &str, t_r: Option<f64>) -> Result<Option<(Shape, Option<f64>)>> {
    let reader = Stores::default().open_image(location)?;
    let header = reader.header();
    let t_r = match t_r {
        Some(t_r) => Some(t_r),
        None => header.t_r()?,
    };
    Ok(Some(((header.shape, header.volumes), t_r)))
}
