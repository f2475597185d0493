//! Reads that do not stand still. A server may answer and then send nothing: who waits for the client's own limit, which
//! is meant for the largest files, waits for minutes. Here a body that brings nothing for half a minute is asked for
//! again, from the byte at which it stopped, by a connection of its own.

use async_trait::async_trait;
use bytes::Bytes;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
    path::Path,
};
use std::{fmt, future::Future, ops::Range, sync::Arc, time::Duration};
use tokio::time::timeout;

/// How long a read may bring nothing.
const STALL: Duration = Duration::from_secs(30);
/// How often a read is asked for again.
const AGAIN: u32 = 3;

/// A store whose reads are asked for again when they stand still.
#[derive(Clone, Debug)]
pub(crate) struct Steady {
    inner: Arc<dyn ObjectStore>,
    stall: Duration,
}

impl Steady {
    pub fn new(inner: impl ObjectStore) -> Self {
        Self { inner: Arc::new(inner), stall: STALL }
    }

    /// The answer of the store, asked for again when it does not come.
    async fn ask(&self, location: &Path, options: &GetOptions) -> Result<GetResult> {
        for left in (0..=AGAIN).rev() {
            match self.bounded(self.inner.get_opts(location, options.clone())).await {
                Some(answer) => return answer,
                None => {
                    log::debug!("{location}: no answer within {:?}, asked again {left} times", self.stall)
                }
            }
        }
        Err(self.silent(location))
    }

    async fn bounded<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        timeout(self.stall, work).await.ok()
    }

    fn silent(&self, location: &Path) -> Error {
        let source =
            format!("{location}: nothing came within {:?}, {} times in a row", self.stall, AGAIN + 1);
        Error::Generic { store: "object", source: source.into() }
    }
}

/// A body that is being read.
struct Body {
    store: Steady,
    location: Path,
    options: GetOptions,
    stream: BoxStream<'static, Result<Bytes>>,
    /// Bytes of the object that are still to come.
    left: Range<u64>,
    again: u32,
}

impl Body {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>> {
        loop {
            match self.store.bounded(self.stream.next()).await {
                Some(Some(Ok(bytes))) => {
                    self.left.start += bytes.len() as u64;
                    self.again = AGAIN;
                    return Ok(Some((bytes, self)));
                }
                Some(Some(Err(e))) => return Err(e),
                Some(None) => return Ok(None),
                None if self.again == 0 || self.left.is_empty() => {
                    return Err(self.store.silent(&self.location));
                }
                None => self.go_on().await?,
            }
        }
    }

    async fn go_on(&mut self) -> Result<()> {
        self.again -= 1;
        log::debug!(
            "{}: nothing came for {:?}, read again from byte {}",
            self.location,
            self.store.stall,
            self.left.start
        );
        self.options.range = Some(GetRange::Bounded(self.left.clone()));
        self.stream = self.store.ask(&self.location, &self.options).await?.into_stream();
        Ok(())
    }
}

impl fmt::Display for Steady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Steady {
    async fn get_opts(&self, location: &Path, mut options: GetOptions) -> Result<GetResult> {
        let mut result = self.ask(location, &options).await?;
        let GetResultPayload::Stream(stream) = result.payload else { return Ok(result) };
        // The rest must be of the same content.
        options.if_match = options.if_match.or_else(|| result.meta.e_tag.clone());
        let body = Body {
            store: self.clone(),
            location: location.clone(),
            options,
            stream,
            left: result.range.clone(),
            again: AGAIN,
        };
        result.payload = GetResultPayload::Stream(stream::try_unfold(body, Body::next).boxed());
        Ok(result)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use object_store::{ObjectStoreExt, memory::InMemory};
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Its first bodies bring three bytes each and then nothing.
    #[derive(Debug)]
    struct Stalling {
        inner: InMemory,
        stalls: AtomicU32,
        asked: Arc<std::sync::Mutex<Vec<Option<GetRange>>>>,
    }

    impl fmt::Display for Stalling {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("stalling")
        }
    }

    #[async_trait]
    impl ObjectStore for Stalling {
        async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
            self.asked.lock().unwrap().push(options.range.clone());
            let mut result = self.inner.get_opts(location, options).await?;
            let stalls =
                self.stalls.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if stalls.is_ok() {
                let GetResultPayload::Stream(whole) = result.payload else { panic!("no stream") };
                let some = whole.map(|bytes| bytes.map(|bytes| bytes.slice(..3)));
                result.payload = GetResultPayload::Stream(some.chain(stream::pending()).boxed());
            }
            Ok(result)
        }
        fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
            self.inner.list(prefix)
        }
        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
            self.inner.list_with_delimiter(prefix).await
        }
        async fn put_opts(
            &self,
            location: &Path,
            payload: PutPayload,
            options: PutOptions,
        ) -> Result<PutResult> {
            self.inner.put_opts(location, payload, options).await
        }
        async fn put_multipart_opts(
            &self,
            location: &Path,
            options: PutMultipartOptions,
        ) -> Result<Box<dyn MultipartUpload>> {
            self.inner.put_multipart_opts(location, options).await
        }
        fn delete_stream(
            &self,
            locations: BoxStream<'static, Result<Path>>,
        ) -> BoxStream<'static, Result<Path>> {
            self.inner.delete_stream(locations)
        }
        async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
            self.inner.copy_opts(from, to, options).await
        }
    }

    async fn read(stalls: u32) -> (Result<Bytes>, Vec<Option<GetRange>>) {
        let asked = Arc::default();
        let stalling = Stalling { inner: InMemory::new(), stalls: stalls.into(), asked: Arc::clone(&asked) };
        let store = Steady { inner: Arc::new(stalling), stall: Duration::from_millis(20) };
        let path = Path::from("scan");
        store.put(&path, "0123456789".into()).await.unwrap();
        let read = store.get_range(&path, 1..9).await;
        let asked = asked.lock().unwrap().clone();
        (read, asked)
    }

    #[tokio::test]
    async fn a_body_that_stands_still_is_read_on_from_where_it_stopped() {
        let (bytes, asked) = read(2).await;
        assert_eq!(bytes.unwrap(), "12345678");
        let range = |from| Some(GetRange::Bounded(from..9));
        assert_eq!(asked, [range(1), range(4), range(7)]);
        assert_eq!(read(0).await.0.unwrap(), "12345678");
    }

    #[tokio::test]
    async fn a_store_that_goes_on_saying_nothing_is_told_of() {
        let store = Steady { inner: Arc::new(InMemory::new()), stall: Duration::from_millis(5) };
        let silent = store.bounded(std::future::pending::<()>()).await;
        assert!(silent.is_none());
        let told = store.silent(&Path::from("scan")).to_string();
        assert!(told.contains("scan: nothing came within 5ms"), "{told}");
    }
}
