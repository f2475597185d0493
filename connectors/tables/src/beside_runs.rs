//! Files that belong to the runs of a table of named files: what its options `confounds` and `events` say.

use crate::volume_options::whole_path;
use crate::{Error, Result, RunKeys, Stores, image::sidecar_beside};
use voxelflow_stage::{EventFiles, RunFiles};

/// The options.
#[derive(Clone, Copy)]
pub(crate) struct BesideRuns<'o> {
    pub confounds: Option<&'o str>,
    pub events: Option<&'o str>,
}

impl BesideRuns<'_> {
    /// The runs of `files`, of which keys and location are known, each with its confounds and events; none where no option
    /// names any. Files of the same keys are of one run, as hemispheres are.
    ///
    /// # Errors
    /// Another number of files than there are runs; events that are neither a table nor a folder of FSL's files.
    pub fn of<'f>(
        self,
        location: &str,
        files: impl Iterator<Item = (&'f RunKeys, &'f str)>,
        stores: &Stores,
    ) -> Result<Vec<RunFiles>> {
        if self.confounds.is_none() && self.events.is_none() {
            return Ok(Vec::new());
        }
        let mut runs: Vec<RunFiles> = Vec::new();
        for (keys, image) in files {
            let keys = keys.run();
            if runs.iter().all(|run| run.keys != keys) {
                let image = image.to_owned();
                runs.push(RunFiles { keys, image, ..RunFiles::default() });
            }
        }
        let named = |option: &str, files: Option<&str>| -> Result<Vec<Option<String>>> {
            let Some(files) = files else { return Ok(vec![None; runs.len()]) };
            let files: Vec<Option<String>> =
                files.split(',').map(|file| whole_path(file.trim()).map(Some)).collect::<Result<_>>()?;
            if files.len() == runs.len() {
                return Ok(files);
            }
            let images: Vec<&str> = runs.iter().map(|run| run.image.as_str()).collect();
            let reason = format!(
                "{option} names {} files, and by the names of the images there are {} runs ({}): name one for each, \
                 separated by commas, in this order; what tells runs apart can be given as subject, session, task and run",
                files.len(),
                runs.len(),
                images.join(", ")
            );
            Err(Error::Location { location: location.into(), reason })
        };
        let (confounds, events) = (named("confounds", self.confounds)?, named("events", self.events)?);
        for (run, (confounds, events)) in runs.iter_mut().zip(confounds.into_iter().zip(events)) {
            let sidecar =
                confounds.as_ref().and_then(|path| Some(format!("{}.json", path.strip_suffix(".tsv")?)));
            run.confounds_sidecars =
                sidecar.into_iter().filter(|path| stores.stamp(path).is_some()).collect();
            run.confounds = confounds;
            run.events = events.map(|events| events_at(events, stores)).transpose()?;
            if run.events.is_some() {
                run.start_time = sidecar_beside(&run.image, stores)?.start_time;
            }
        }
        Ok(runs)
    }
}

/// A table, or FSL's three columns: a file, or a folder with one for each condition.
fn events_at(location: String, stores: &Stores) -> Result<EventFiles> {
    let condition = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        name.strip_suffix(".txt").map(str::to_owned)
    };
    if location.ends_with(".tsv") {
        return Ok(EventFiles::Table(location));
    }
    if let Some(name) = condition(&location) {
        return Ok(EventFiles::ThreeColumns(vec![(name, location)]));
    }
    let listing = stores.list(&location)?;
    let own = listing.paths().iter().filter(|path| !path.contains('/'));
    let files: Vec<(String, String)> =
        own.filter_map(|path| Some((condition(path)?, listing.location_of(path)))).collect();
    if files.is_empty() {
        let reason =
            "events are a .tsv file, or a folder with a .txt file of three columns for each condition".into();
        return Err(Error::Location { location, reason });
    }
    Ok(EventFiles::ThreeColumns(files))
}
