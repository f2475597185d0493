//! `hdfs://host:port/…`, and `hdfs://nameservice/…` where `HADOOP_CONF_DIR` (or `HADOOP_HOME/etc/hadoop`) has
//! `core-site.xml` and `hdfs-site.xml` that say which name nodes those are.
//!
//! What works is what `hdfs-native` does: simple authentication (the user is `HADOOP_USER_NAME`, else the login
//! name); failover between the name nodes of a service; ViewFS and router-based federation. Kerberos works with
//! a ticket that `kinit` has got and `libgssapi_krb5` on the machine, tokens by `HADOOP_TOKEN_FILE_LOCATION`; both,
//! and wire encryption, are the crate's own work, which the tests here do not cover. Encryption zones (KMS) do not work.
//!
//! A file is written under a hidden name and renamed when it is whole; hidden names are not listed. The first
//! write after a start of the cluster may be too early for its data nodes (`NotReplicatedYetException`): it is
//! tried again.

mod retry;
mod upload;

use crate::{Field, fault::Fault, unique};
use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, future, stream::BoxStream};
use hdfs_native_object_store::{HdfsObjectStore, HdfsObjectStoreBuilder};
use object_store::{
    CopyMode, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    RenameOptions, RenameTargetMode, Result, path::Path,
};
use std::{fmt, sync::Arc, sync::OnceLock};
use tokio::runtime::{Handle, Runtime};
use url::Url;

/// A Hadoop file system.
#[derive(Clone, Debug)]
pub(crate) struct Hdfs {
    inner: Arc<HdfsObjectStore>,
    runtime: Handle,
}

/// The file system of `url`. No name node is asked yet.
///
/// # Errors
/// A name service that the configuration does not know, or a configuration that cannot be read.
pub(crate) fn open(url: &Url) -> Result<Hdfs> {
    let runtime = runtime()?;
    let inner = HdfsObjectStoreBuilder::new()
        .with_url(format!("hdfs://{}", url.authority()))
        .with_io_runtime(runtime.clone())
        .build()?;
    Ok(Hdfs { inner: Arc::new(inner), runtime })
}

/// What is wrong where [`open`] fails.
pub(crate) fn unusable(url: &Url, e: &Error) -> Fault {
    let text = e.to_string();
    if !text.contains("No NameNode hosts found") {
        return Fault::new(Field::NameService, text);
    }
    let service = url.host_str().unwrap_or_default();
    let conf =
        std::env::var("HADOOP_CONF_DIR").unwrap_or_else(|_| "HADOOP_CONF_DIR, which is not set,".into());
    let reason = format!(
        "`{service}` has no port, and {conf} does not say which name nodes serve it \
         (dfs.ha.namenodes.{service}); one name node is written with its port, as in hdfs://{service}:8020/"
    );
    Fault::new(Field::NameService, reason)
}

/// Connections outlive the runtime of who opens them first, so they have a runtime of their own.
fn runtime() -> Result<Handle> {
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    let made = RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).thread_name("hdfs").enable_all().build()
    });
    match made {
        Ok(runtime) => Ok(runtime.handle().clone()),
        Err(e) => Err(Error::Generic { store: STORE, source: e.to_string().into() }),
    }
}

const STORE: &str = "hdfs";

/// A hidden name beside `location`, under which it is written.
fn partial(location: &Path) -> Path {
    let name = location.filename().unwrap_or_default();
    let hidden = format!(".{name}.{}{PARTIAL}", unique::name());
    sibling(location, &hidden)
}

/// `name` in the folder of `location`; it is taken as it is, for `location` is encoded already.
fn sibling(location: &Path, name: &str) -> Path {
    let folder = location.as_ref().rsplit_once('/').map(|(folder, _)| folder);
    let whole = folder.map_or_else(|| name.to_owned(), |folder| format!("{folder}/{name}"));
    Path::parse(&whole).unwrap_or_else(|_| Path::from(whole))
}

const PARTIAL: &str = ".partial";

/// The name that the client gives to a file that it writes as `location`, as long as no other writes the same.
fn clients_own(location: &Path) -> Path {
    sibling(location, &format!(".{}.tmp.1", location.filename().unwrap_or_default()))
}

/// True for the names of files that are being written.
fn is_partial(location: &Path) -> bool {
    let name = location.filename().unwrap_or_default();
    name.starts_with('.') && (name.ends_with(PARTIAL) || name.ends_with(".partial.tmp.1"))
}

impl Hdfs {
    /// Writes a whole file under a hidden name; where that fails nothing stays.
    async fn put_partial(&self, location: &Path, payload: PutPayload) -> Result<(Path, PutResult)> {
        retry::cold_writes(|| async {
            let partial = partial(location);
            match self.inner.put(&partial, payload.clone()).await {
                Ok(written) => Ok((partial, written)),
                Err(e) => {
                    self.forget(&partial).await;
                    Err(e)
                }
            }
        })
        .await
    }

    /// Gives a file its own name.
    async fn show(&self, partial: &Path, location: &Path, mode: RenameTargetMode) -> Result<()> {
        let options = RenameOptions::default().with_target_mode(mode);
        let shown = self.inner.rename_opts(partial, location, options).await;
        if shown.is_err() {
            self.forget(partial).await;
        }
        shown
    }

    /// Removes what was written under a hidden name. It is not seen anyway, so a failure is no error.
    async fn forget(&self, partial: &Path) {
        for path in [partial, &clients_own(partial)] {
            if let Err(e) = self.inner.delete(path).await {
                log::debug!("{path} is left behind: {e}");
            }
        }
    }
}

impl fmt::Display for Hdfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(STORE)
    }
}

#[async_trait]
impl ObjectStore for Hdfs {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let mode = match options.mode {
            PutMode::Overwrite => RenameTargetMode::Overwrite,
            PutMode::Create => {
                // Asked before the work; the rename asks again, so that of two writers one is refused.
                match self.inner.head(location).await {
                    Err(Error::NotFound { .. }) => RenameTargetMode::Create,
                    Err(e) => return Err(e),
                    Ok(_) => return Err(exists(location)),
                }
            }
            PutMode::Update(_) => {
                return Err(Error::NotImplemented {
                    operation: "a write on condition of a version".into(),
                    implementer: STORE.into(),
                });
            }
        };
        let (partial, written) = self.put_partial(location, payload).await?;
        self.show(&partial, location, mode).await?;
        Ok(written)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(upload::HdfsUpload::start(self.clone(), location.clone())))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix).try_filter(|found| future::ready(!is_partial(&found.location))).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut level = self.inner.list_with_delimiter(prefix).await?;
        level.objects.retain(|found| !is_partial(&found.location));
        Ok(level)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let mode = match options.mode {
            CopyMode::Overwrite => RenameTargetMode::Overwrite,
            CopyMode::Create => RenameTargetMode::Create,
        };
        let partial = partial(to);
        if let Err(e) = self.inner.copy(from, &partial).await {
            self.forget(&partial).await;
            return Err(e);
        }
        self.show(&partial, to, mode).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}

fn exists(location: &Path) -> Error {
    Error::AlreadyExists { path: location.to_string(), source: "a file has this name".into() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn hidden_names_are_beside_the_file_and_known_again() {
        for text in ["a/b c=1.parquet", "top"] {
            let location = Path::parse(text).unwrap();
            let partial = partial(&location);
            let folder = |p: &Path| p.as_ref().rsplit_once('/').map(|(folder, _)| folder.to_owned());
            assert_eq!(folder(&partial), folder(&location));
            assert!(is_partial(&partial) && is_partial(&clients_own(&partial)) && !is_partial(&location));
        }
        assert!(!is_partial(&Path::from("a/.hidden")) && !is_partial(&Path::from("a/x.partial")));
    }
}
