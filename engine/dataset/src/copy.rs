//! `COPY … TO`: files of DataFusion's writers, in the place of what was there. DataFusion gives files of a folder names
//! that nobody else has, so that a `COPY` that runs again would add to them.

use crate::{
    Engine,
    error::{Error, Result},
    staging::{Claim, claim_target, replace_target},
    target::absolute,
};
use arrow::datatypes::DataType;
use datafusion::{
    execution::object_store::ObjectStoreUrl,
    logical_expr::{LogicalPlan, dml::CopyTo},
};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path as ObjectPath;
use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
};
use tokio::task::spawn_blocking;
use url::{Position, Url};

impl Engine {
    /// Runs a `COPY`. On this machine the files appear whole; in a store, what was there is removed when they are there.
    ///
    /// # Errors
    /// A target that another process writes or that cannot be written, a partition that fails; then what was there is
    /// there still.
    pub async fn copy(&self, copy: &CopyTo) -> Result<()> {
        let location = copy.output_url.as_str();
        let unfit = |e: &dyn ToString| Error::target(location, e.to_string());
        match Url::parse(location).ok().filter(|_| location.contains("://")) {
            Some(url) if url.scheme() == "file" => {
                let path = url.to_file_path().map_err(|()| unfit(&"not the URL of a local place"))?;
                self.copy_to_disk(copy, &path).await
            }
            Some(url) => self.copy_to_store(copy, &url).await,
            None => self.copy_to_disk(copy, Path::new(location)).await,
        }
    }

    async fn copy_to_disk(&self, copy: &CopyTo, path: &Path) -> Result<()> {
        let location = copy.output_url.as_str();
        let unfit = |e: &dyn ToString| Error::target(location, e.to_string());
        let target = absolute(path).map_err(|e| unfit(&e))?;
        let staged = Staged::new(&target, self.next_number())
            .ok_or_else(|| unfit(&"not a name of a file or folder"))?;
        let is_folder = location.ends_with('/');
        let claimed = {
            let (target, staged) = (target.clone(), staged.clone());
            spawn_blocking(move || staged.open(&target)).await.map_err(|e| unfit(&e))?
        };
        let lock = match claimed.map_err(|e| unfit(&format!("cannot be written: {e}")))? {
            Claim::Busy => {
                return Err(unfit(
                    &"another process is writing it: wait until it has ended, or choose another place",
                ));
            }
            claim => claim,
        };
        let ending = if is_folder { "/" } else { "" };
        let written = self.write_to(copy, format!("{}{ending}", staged.place.display())).await;
        let published = spawn_blocking(move || {
            let published = written.map(|()| staged.publish(&target, is_folder));
            // What is left of a write that failed hides behind its failure.
            drop(fs::remove_dir_all(&staged.folder));
            drop(lock);
            published
        });
        published.await.map_err(|e| unfit(&e))??.map_err(|e| unfit(&e))
    }

    async fn copy_to_store(&self, copy: &CopyTo, url: &Url) -> Result<()> {
        let unfit = |e: &dyn ToString| Error::target(&copy.output_url, e.to_string());
        let store = ObjectStoreUrl::parse(&url[..Position::BeforePath])?;
        let store = self.context().runtime_env().object_store(&store)?;
        let folder = ObjectPath::from_url_path(url.path()).map_err(|e| unfit(&e))?;
        let there: Vec<ObjectPath> =
            store.list(Some(&folder)).map_ok(|o| o.location).try_collect().await.map_err(|e| unfit(&e))?;
        self.write_to(copy, copy.output_url.clone()).await?;
        let removed = store.delete_stream(stream::iter(there.into_iter().map(Ok)).boxed());
        removed.try_collect::<Vec<_>>().await.map(drop).map_err(|e| unfit(&e))
    }

    async fn write_to(&self, copy: &CopyTo, location: String) -> Result<()> {
        let mut copy = CopyTo { output_url: location, ..copy.clone() };
        if copy.file_type.get_ext() == "parquet" {
            // As in our own files, floats have no least and greatest value.
            for field in copy.input.schema().fields() {
                if matches!(field.data_type(), DataType::Float16 | DataType::Float32 | DataType::Float64) {
                    let option = format!("format.statistics_enabled::{}", field.name());
                    copy.options.entry(option).or_insert_with(|| "none".into());
                }
            }
        }
        self.dataset(LogicalPlan::Copy(copy)).collect().await.map(drop)
    }
}

/// Where files are until they are whole: `.name.partial-…/name`, beside the target.
#[derive(Clone, Debug)]
struct Staged {
    folder: PathBuf,
    place: PathBuf,
}

impl Staged {
    fn new(target: &Path, number: u64) -> Option<Self> {
        let name = target.file_name()?.to_str()?;
        let folder = target.with_file_name(format!(".{name}.partial-{}-{number}", process::id()));
        Some(Self { place: folder.join(name), folder })
    }

    fn open(&self, target: &Path) -> io::Result<Claim> {
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        let claim = claim_target(target)?;
        fs::create_dir_all(&self.folder)?;
        Ok(claim)
    }

    fn publish(&self, target: &Path, is_folder: bool) -> io::Result<()> {
        // Without rows nothing may have been written.
        match (self.place.exists(), is_folder) {
            (true, _) => {}
            (false, true) => fs::create_dir(&self.place)?,
            (false, false) => drop(fs::File::create(&self.place)?),
        }
        replace_target(target, &self.place)
    }
}
