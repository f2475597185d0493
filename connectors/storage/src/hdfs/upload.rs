//! A file written part by part. A task of its own writes the parts in the order in which they were given.
//!
//! The first parts are held until there is enough for a write that can be repeated (see [`super::retry`]); a file
//! that is smaller is written in one go. A writer that goes away without a word leaves nothing.

use super::{Hdfs, clients_own, partial, retry};
use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use object_store::{
    Error, MultipartUpload, ObjectStoreExt, PutPayload, PutResult, RenameTargetMode, Result, UploadPart,
    path::Path,
};
use tokio::sync::{mpsc, oneshot};

/// Bytes that the first write takes together.
const FIRST_WRITE: usize = 32 << 20;

type Answer<T> = oneshot::Sender<Result<T>>;

/// What the writing task is told.
enum Order {
    Part(PutPayload, Answer<()>),
    Complete(Answer<PutResult>),
    Abort(Answer<()>),
}

/// A file that is being written.
#[derive(Debug)]
pub(super) struct HdfsUpload {
    orders: mpsc::UnboundedSender<Order>,
}

impl HdfsUpload {
    /// Starts to write what will be `location`.
    pub fn start(store: Hdfs, location: Path) -> Self {
        let (orders, received) = mpsc::unbounded_channel();
        let runtime = store.runtime.clone();
        runtime.spawn(Writing { store, location, held: Vec::new(), size: 0, open: None }.follow(received));
        Self { orders }
    }

    async fn tell<T>(&self, order: impl FnOnce(Answer<T>) -> Order) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        // Where the task has gone the answer is dropped with the order.
        let _ = self.orders.send(order(answer));
        answered.await.unwrap_or_else(|_| Err(over()))
    }
}

#[async_trait]
impl MultipartUpload for HdfsUpload {
    fn put_part(&mut self, part: PutPayload) -> UploadPart {
        let (answer, answered) = oneshot::channel();
        let _ = self.orders.send(Order::Part(part, answer));
        async { answered.await.unwrap_or_else(|_| Err(over())) }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.tell(Order::Complete).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.tell(Order::Abort).await
    }
}

/// What comes after a failure, `complete` or `abort`.
fn over() -> Error {
    Error::Generic { store: super::STORE, source: "the file is no longer being written".into() }
}

/// The state of the task that writes.
struct Writing {
    store: Hdfs,
    location: Path,
    /// The first parts, as long as they are fewer bytes than [`FIRST_WRITE`].
    held: Vec<Bytes>,
    size: usize,
    /// The file under its hidden name, once its first parts are written.
    open: Option<(Path, Box<dyn MultipartUpload>)>,
}

impl Writing {
    async fn follow(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        while let Some(order) = orders.recv().await {
            match order {
                Order::Part(part, answer) => {
                    let written = self.part(part).await;
                    let failed = written.is_err();
                    let _ = answer.send(written);
                    if failed {
                        break;
                    }
                }
                Order::Complete(answer) => {
                    let _ = answer.send(self.complete().await);
                    return;
                }
                Order::Abort(answer) => {
                    self.forget().await;
                    let _ = answer.send(Ok(()));
                    return;
                }
            }
        }
        self.forget().await;
    }

    async fn part(&mut self, part: PutPayload) -> Result<()> {
        if let Some((_, open)) = &mut self.open {
            return open.put_part(part).await;
        }
        self.size += part.content_length();
        self.held.extend(part);
        if self.size >= FIRST_WRITE {
            let opened = retry::cold_writes(|| first_write(&self.store, &self.location, &self.held)).await?;
            self.open = Some(opened);
            self.held = Vec::new();
        }
        Ok(())
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let Some((partial, mut open)) = self.open.take() else {
            return self.store.put(&self.location, self.held.drain(..).collect()).await;
        };
        if let Err(e) = open.complete().await {
            self.store.forget(&partial).await;
            return Err(e);
        }
        self.store.show(&partial, &self.location, RenameTargetMode::Overwrite).await?;
        let written = self.store.head(&self.location).await?;
        Ok(PutResult { e_tag: written.e_tag, version: None })
    }

    async fn forget(&mut self) {
        if let Some((partial, mut open)) = self.open.take() {
            abandon(&partial, open.as_mut()).await;
        }
    }
}

/// Opens the file and writes its first parts; where that fails nothing stays.
async fn first_write(
    store: &Hdfs,
    location: &Path,
    held: &[Bytes],
) -> Result<(Path, Box<dyn MultipartUpload>)> {
    let partial = partial(location);
    let mut open = store.inner.put_multipart(&partial).await?;
    match open.put_part(held.iter().cloned().collect()).await {
        Ok(()) => Ok((partial, open)),
        Err(e) => {
            abandon(&partial, open.as_mut()).await;
            Err(e)
        }
    }
}

async fn abandon(partial: &Path, open: &mut dyn MultipartUpload) {
    if let Err(e) = open.abort().await {
        log::debug!("{} is left behind: {e}", clients_own(partial));
    }
}
