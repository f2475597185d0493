//! Stores that do not list what is hidden: files and folders whose names begin with `.` or `_` are no rows but what
//! writers leave beside them (`_SUCCESS`, `.part-0.crc`, `_temporary/…`). Folders such as `_year=2026` are. Whoever names
//! a hidden file or folder reads it.

use async_trait::async_trait;
use datafusion::{error::Result as PlanResult, execution::object_store::ObjectStoreRegistry};
use futures::{StreamExt, TryStreamExt, future, stream::BoxStream};
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result, path::Path,
};
use std::{fmt, sync::Arc};
use url::Url;

/// A registry of such stores.
#[derive(Debug)]
pub(crate) struct VisibleFiles(pub Arc<dyn ObjectStoreRegistry>);

impl ObjectStoreRegistry for VisibleFiles {
    fn register_store(&self, url: &Url, store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        self.0.register_store(url, store)
    }

    fn deregister_store(&self, url: &Url) -> PlanResult<Arc<dyn ObjectStore>> {
        self.0.deregister_store(url)
    }

    fn get_store(&self, url: &Url) -> PlanResult<Arc<dyn ObjectStore>> {
        Ok(Arc::new(Visible(self.0.get_store(url)?)))
    }
}

#[derive(Debug)]
struct Visible(Arc<dyn ObjectStore>);

impl fmt::Display for Visible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether a path is hidden below `prefix`.
fn is_hidden(path: &Path, prefix: Option<&Path>) -> bool {
    let root = Path::default();
    let below = path.prefix_match(prefix.unwrap_or(&root));
    below.into_iter().flatten().any(|part| {
        let part = part.as_ref();
        part.starts_with('.') || (part.starts_with('_') && !part.contains('='))
    })
}

fn visible<'a>(
    listed: BoxStream<'a, Result<ObjectMeta>>,
    prefix: Option<&Path>,
) -> BoxStream<'a, Result<ObjectMeta>> {
    let prefix = prefix.cloned();
    listed.try_filter(move |file| future::ready(!is_hidden(&file.location, prefix.as_ref()))).boxed()
}

#[async_trait]
impl ObjectStore for Visible {
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        visible(self.0.list(prefix), prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        visible(self.0.list_with_offset(prefix, offset), prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut listed = self.0.list_with_delimiter(prefix).await?;
        listed.objects.retain(|file| !is_hidden(&file.location, prefix));
        listed.common_prefixes.retain(|folder| !is_hidden(folder, prefix));
        Ok(listed)
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(location, options).await
    }

    async fn get_ranges(
        &self,
        location: &Path,
        ranges: &[std::ops::Range<u64>],
    ) -> Result<Vec<bytes::Bytes>> {
        self.0.get_ranges(location, ranges).await
    }

    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.0.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(locations)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.0.rename_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_below_the_folder_that_is_read() {
        let hidden = |path: &str, prefix: &str| is_hidden(&Path::from(path), Some(&Path::from(prefix)));
        for path in ["a/_SUCCESS", "a/.part-0.crc", "a/_temporary/0/part-0.parquet", "a/x=1/_x.parquet"] {
            assert!(hidden(path, "a"), "{path}");
        }
        for path in ["a/part-0.parquet", "a/b/c.parquet", "a/_year=2026/part-0.parquet"] {
            assert!(!hidden(path, "a"), "{path}");
        }
        assert!(!hidden("_lab/.cache/x.parquet", "_lab/.cache"));
    }
}
