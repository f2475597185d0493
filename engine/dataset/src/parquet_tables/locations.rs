//! Locations: a file, a folder or a glob, on disk and in stores alike.

use crate::target::absolute;
use datafusion::{
    common::plan_err,
    datasource::listing::ListingTableUrl,
    error::{DataFusionError, Result},
    execution::SessionState,
};
use futures::TryStreamExt;
use glob::{MatchOptions, Pattern};
use object_store::{ObjectStore, path::Path};
use url::Url;

/// `*` stops at folders and at hidden names, `**` goes through folders: as shells have it.
const AS_SHELLS: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

/// The files and folders that `location` names: of a glob the files that match it.
///
/// # Errors
/// A text that is no location, a glob that nothing matches, a store that does not answer.
pub(super) async fn resolve(state: &SessionState, location: &str) -> Result<Vec<ListingTableUrl>> {
    let unfit = |reason: String| DataFusionError::Plan(format!("`{location}`: {reason}"));
    let (folder, pattern) = match split_glob(location) {
        // A file may have such a name.
        Some(_) if std::path::Path::new(location).exists() => {
            let path = absolute(std::path::Path::new(location)).map_err(|e| unfit(e.to_string()))?;
            let url =
                if path.is_dir() { Url::from_directory_path(&path) } else { Url::from_file_path(&path) };
            let url = url.map_err(|()| unfit("is no location of files".into()))?;
            return Ok(vec![ListingTableUrl::try_new(url, None)?]);
        }
        Some(split) => split,
        None => return Ok(vec![ListingTableUrl::parse(location)?]),
    };
    let pattern = Pattern::new(pattern).map_err(|e| unfit(e.to_string()))?;
    let folder = ListingTableUrl::parse(folder)?;
    let url = Url::parse(folder.as_str()).map_err(|e| unfit(e.to_string()))?;
    let store = state.runtime_env().object_store(&folder)?;
    let mut files = Vec::new();
    for path in listed(store.as_ref(), folder.prefix()).await? {
        let Some(below) = path.prefix_match(folder.prefix()) else { continue };
        let below: Vec<_> = below.map(|part| part.as_ref().to_owned()).collect();
        if pattern.matches_with(&below.join("/"), AS_SHELLS) {
            let mut file = url.clone();
            let segments = file.path_segments_mut().map_err(|()| unfit("is no location of files".into()));
            segments?.pop_if_empty().extend(&below);
            files.push(ListingTableUrl::try_new(file, None)?);
        }
    }
    if files.is_empty() {
        return plan_err!("no file matches `{location}`");
    }
    files.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    Ok(files)
}

async fn listed(store: &dyn ObjectStore, folder: &Path) -> Result<Vec<Path>> {
    let files = store.list(Some(folder)).map_ok(|file| file.location).try_collect().await;
    files.map_err(|e| DataFusionError::ObjectStore(Box::new(e)))
}

/// The folder before the first special character of a glob, with its `/`, and the rest.
fn split_glob(location: &str) -> Option<(&str, &str)> {
    if location.starts_with("http://") || location.starts_with("https://") {
        // A question mark begins a query there, and folders are not listed.
        return None;
    }
    let special = location.find(['*', '?', '['])?;
    match location[..special].rfind('/') {
        Some(end) => Some(location.split_at(end + 1)),
        None => Some(("./", location)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_is_split_where_its_folder_ends() {
        assert_eq!(split_glob("s3://lab/runs/*.parquet"), Some(("s3://lab/runs/", "*.parquet")));
        assert_eq!(split_glob("/data/sub-*/x.parquet"), Some(("/data/", "sub-*/x.parquet")));
        assert_eq!(split_glob("*.csv"), Some(("./", "*.csv")));
        assert_eq!(split_glob("/data/x.parquet"), None);
        assert_eq!(split_glob("https://host/x.parquet?v=1"), None);
    }
}
