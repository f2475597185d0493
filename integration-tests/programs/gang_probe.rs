//! A driver program that shows what runs where, for tests of clusters: `gang_probe gang …`, `slow …`, `panic`,
//! `poison …`.
//!
//! Members of its gangs meet in a folder: each leaves a file there and waits until it sees enough of the others'.

use arrow::{
    array::{ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, UInt64Array},
    datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, UInt64Type},
};
use datafusion::error::{DataFusionError, Result as PlanResult};
use futures::{FutureExt, TryStreamExt, future::BoxFuture};
use serde::{Deserialize, Serialize};
use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use voxelflow::{
    Error, Result, Session,
    dataset::{
        function,
        nodes::{GangFunction, GangRequest, GangTask, gang_plan},
        runner::Runner,
    },
};

/// How long a member waits for the others.
const MEETING_LIMIT: Duration = Duration::from_secs(20);

/// What members are told.
#[derive(Serialize, Deserialize)]
struct Meeting {
    folder: PathBuf,
    /// How many must be there before anybody leaves.
    enough: usize,
}

fn columns() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("member", DataType::UInt64, false),
        Field::new("process", DataType::UInt64, false),
        Field::new("met", DataType::Boolean, false),
    ]))
}

fn meet(task: GangTask) -> BoxFuture<'static, PlanResult<RecordBatch>> {
    let external = |e: std::io::Error| DataFusionError::External(Box::new(e));
    async move {
        let meeting: Meeting =
            serde_json::from_slice(&task.payload).map_err(|e| DataFusionError::External(Box::new(e)))?;
        let (member, process) = (task.member as u64, std::process::id());
        log::warn!("member {member} is here");
        // A member that runs twice leaves two files.
        let file = tempfile_in(&meeting.folder, &format!("member-{member}-{process}-"));
        std::fs::write(file, b"").map_err(external)?;
        let until = Instant::now() + MEETING_LIMIT;
        let mut met = false;
        while !met && Instant::now() < until && !task.cancelled.load(Ordering::Relaxed) {
            met = std::fs::read_dir(&meeting.folder).map_err(external)?.count() >= meeting.enough;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let row: Vec<ArrayRef> = vec![
            Arc::new(UInt64Array::from_value(member, 1)),
            Arc::new(UInt64Array::from_value(u64::from(process), 1)),
            Arc::new(BooleanArray::from(vec![met])),
        ];
        Ok(RecordBatch::try_new(columns(), row)?)
    }
    .boxed()
}

inventory::submit! { GangFunction { name: "probe_meet", schema: columns, run: meet } }

/// A name in `folder` that nobody else takes.
fn tempfile_in(folder: &std::path::Path, begin: &str) -> PathBuf {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    folder.join(format!("{begin}{}", since.as_nanos()))
}

#[voxelflow::main]
async fn main(session: Session) -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["gang", folder, members, at_least, kind, deadline] => {
            let number = |text: &str| text.parse::<usize>().map_err(|e| Error::input(text, e));
            let request = GangRequest {
                name: "probe".into(),
                members: number(members)?,
                min_members: number(at_least)?,
                strict: kind == "strict",
                deadline_seconds: deadline.parse().map_err(|e| Error::input(deadline, e))?,
                ..GangRequest::default()
            };
            let meeting = Meeting { folder: folder.into(), enough: request.min_members };
            gang(&session, request, &meeting).await
        }
        ["slow", file] => slow(&session, file, 4000).await,
        ["slow", file, batches] => {
            slow(&session, file, batches.parse().map_err(|e| Error::input(batches, e))?).await
        }
        ["panic"] => panic(&session).await,
        ["poison", effect] => poison(&session, effect).await,
        _ => Err(Error::input(
            "arguments",
            "gang FOLDER MEMBERS AT_LEAST strict|elastic DEADLINE, slow FILE [BATCHES], panic, or poison panics|refuses",
        )),
    }
}

/// Prints a line for every member.
async fn gang(session: &Session, request: GangRequest, meeting: &Meeting) -> Result<()> {
    let payload = serde_json::to_vec(meeting).map_err(|e| Error::input("meeting", e))?;
    let plan = gang_plan(request, "probe_meet", payload.into())?;
    let context = session.context().task_ctx();
    let run = Runner::of(&context).run(plan, context).await?;
    let all = run.streams.into_iter().map(|rows| rows.try_collect::<Vec<_>>());
    for batch in futures::future::try_join_all(all).await?.into_iter().flatten() {
        let number = |column: usize| batch.column(column).as_primitive::<UInt64Type>().value(0);
        let met = batch.column(2).as_boolean().value(0);
        println!("{}", serde_json::json!({ "member": number(0), "process": number(1), "met": met }));
    }
    Ok(())
}

/// Four partitions that share so many small batches, a tenth of a second a batch; each adds a byte to `file`.
async fn slow(session: &Session, file: &str, batches: i64) -> Result<()> {
    let crawl = function!("crawl", |batch, file: String| -> Result<RecordBatch, std::io::Error> {
        use std::io::Write;
        std::fs::OpenOptions::new().append(true).create(true).open(file)?.write_all(b".")?;
        std::thread::sleep(Duration::from_millis(100));
        Ok(batch)
    });
    let rows: Vec<RecordBatch> = (0..batches).map(|n| numbers(n..n + 1)).collect::<Result<_>>()?;
    let counted = session.from_batches(&rows, 4)?.map_partitions(crawl, file.to_owned()).count().await?;
    println!("{counted}");
    Ok(())
}

async fn panic(session: &Session) -> Result<()> {
    let careless = function!("careless", |batch| -> Result<RecordBatch, std::io::Error> {
        let odd = batch.column(0).as_primitive::<Int64Type>().values().contains(&57);
        assert!(!odd, "out of cheese");
        Ok(batch)
    });
    let rows = session.from_batches(&[numbers(0..100)?], 4)?.map_partitions(careless, ());
    println!("{}", rows.count().await?);
    Ok(())
}

/// Arguments that only executors cannot read.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Poison(String);

impl TryFrom<String> for Poison {
    type Error = &'static str;

    fn try_from(effect: String) -> Result<Self, Self::Error> {
        let executor = std::env::args().nth(1).is_some_and(|part| part == "executor");
        match effect.as_str() {
            "panics" if executor => panic!("arguments that nobody can swallow"),
            "refuses" if executor => Err("arguments that nobody can stomach"),
            _ => Ok(Self(effect)),
        }
    }
}

impl From<Poison> for String {
    fn from(poison: Poison) -> Self {
        poison.0
    }
}

/// A plan that executors fail to decode, with an error or with a panic.
async fn poison(session: &Session, effect: &str) -> Result<()> {
    let poisoned =
        function!("poisoned", |batch, _poison: Poison| -> Result<RecordBatch, std::io::Error> { Ok(batch) });
    let rows =
        session.from_batches(&[numbers(0..100)?], 4)?.map_partitions(poisoned, Poison(effect.to_owned()));
    println!("{}", rows.count().await?);
    Ok(())
}

fn numbers(range: std::ops::Range<i64>) -> Result<RecordBatch> {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(range));
    Ok(RecordBatch::try_from_iter([("n", column)]).map_err(DataFusionError::from)?)
}
