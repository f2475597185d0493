//! `http://` and `https://`, to read from. Servers that only serve files cannot be listed: a location names the file.

use crate::patience::Patience;
use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    http::{HttpBuilder, HttpStore},
    path::Path,
};
use std::fmt;
use url::Url;

/// An HTTP server that is read from.
#[derive(Debug)]
pub(crate) struct ReadOnlyHttp {
    inner: HttpStore,
}

/// The server of `url`.
pub(crate) fn open(url: &Url, patience: Patience) -> Result<ReadOnlyHttp> {
    let inner = HttpBuilder::new()
        .with_url(format!("{}://{}", url.scheme(), url.authority()))
        .with_client_options(patience.client(url.scheme() == "http"))
        .with_retry(patience.retries())
        .build()?;
    Ok(ReadOnlyHttp { inner })
}

fn refused(reason: impl Into<String>) -> Error {
    Error::NotSupported { source: reason.into().into() }
}

fn read_only(path: &Path) -> Error {
    refused(format!("{path}: http:// and https:// can be read only; write to a local path, s3:// or hdfs://"))
}

fn not_listed(e: Error) -> Error {
    match e {
        Error::Generic { source, .. } => {
            refused(format!("this HTTP server cannot be listed: name the file in the location ({source})"))
        }
        other => other,
    }
}

/// A server that answers with the whole file where a part was asked for.
fn without_ranges(e: Error, path: &Path) -> Error {
    match &e {
        Error::NotSupported { source } if source.to_string().contains("Range request") => {
            refused(format!("{path}: this HTTP server does not give parts of files: copy the file first"))
        }
        _ => e,
    }
}

impl fmt::Display for ReadOnlyHttp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for ReadOnlyHttp {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await.map_err(|e| without_ranges(e, location))
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix).map(|found| found.map_err(not_listed)).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await.map_err(not_listed)
    }

    async fn put_opts(&self, location: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(read_only(location))
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(read_only(location))
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        locations.map(|location| Err(read_only(&location?))).boxed()
    }

    async fn copy_opts(&self, _: &Path, to: &Path, _: CopyOptions) -> Result<()> {
        Err(read_only(to))
    }
}
