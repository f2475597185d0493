//! Somebody who has no business with a cluster, and tries everything all the same.
//!
//!     stranger knock ADDRESSES [--key FILE]… [--job ID] [--executor ID]
//!     stranger flood ADDRESS [--key FILE]
//!     stranger idle ADDRESS COUNT
//!
//! `knock` speaks plain bytes, HTTP/1, and the protocols of Ballista and Arrow Flight to every address: in the clear,
//! over TLS without a certificate, and over TLS with a certificate from each key. It believes every server. A line of
//! JSON for each attempt says what came back. `flood` sends messages that are too long and frames that are too many;
//! `idle` holds connections open, until its standard input ends.

use arrow_flight::Ticket;
use ballista_core::serde::protobuf::{
    self as ballista, CancelJobParams, CancelTasksParams, CleanJobDataParams, CreateUpdateSessionParams,
    ExecuteQueryParams, ExecutorRegistration, ExecutorStoppedParams, FetchPartition, GetJobMetricsParams,
    GetJobStatusParams, HeartBeatParams, LaunchMultiTaskParams, LaunchTaskParams, PollWorkParams,
    RegisterExecutorParams, RemoveJobDataParams, RemoveSessionParams, RunningTaskInfo, StopExecutorParams,
    UpdateTaskStatusParams, action::ActionType, execute_query_params::Query,
};
use bytes::Bytes;
use futures::{StreamExt, future::join_all, stream};
use http::{Method, Request};
use prost::Message;
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use serde::Serialize;
use std::{error::Error, io, path::Path, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use voxelflow_sync::network::{ClusterKey, JobCredentials, server_name};

type Failure = Box<dyn Error + Send + Sync>;
type Result<T, E = Failure> = std::result::Result<T, E>;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(3);
/// Calls at once over one wire to one address.
const AT_ONCE: usize = 8;
/// Bytes of an answer that are looked at.
const ANSWER: u64 = 64 << 10;
/// What a message's head announces in a flood.
const ANNOUNCED: u32 = 1 << 30;
/// Frames of a flood.
const FRAMES: usize = 100_000;

/// How it speaks.
#[derive(Clone)]
struct Wire {
    name: String,
    tls: Option<Arc<ClientConfig>>,
}

/// An attempt, and what came of it.
#[derive(Serialize)]
struct Attempt {
    address: String,
    wire: String,
    what: String,
    /// Whether a service has answered, and not only its door.
    reached: bool,
    answer: String,
}

/// Believes every server.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

impl Wire {
    fn plain() -> Self {
        Self { name: "plain".into(), tls: None }
    }

    /// TLS without a certificate of its own.
    fn anonymous() -> Result<Self> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        Ok(Self::over("TLS without a certificate".into(), config))
    }

    /// TLS with a certificate that the key in a file vouches for.
    fn with_key(file: &str) -> Result<Self> {
        let credentials = JobCredentials::of_cluster(&ClusterKey::read(Path::new(file))?)?;
        let name = Path::new(file).file_name().unwrap_or_default().to_string_lossy();
        Ok(Self::over(format!("TLS with {name}"), ClientConfig::clone(&*credentials.client()?)))
    }

    fn over(name: String, mut config: ClientConfig) -> Self {
        let anybody = Anybody(Arc::new(ring::default_provider()));
        config.dangerous().set_certificate_verifier(Arc::new(anybody));
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self { name, tls: Some(Arc::new(config)) }
    }

    async fn connect(&self, address: &str) -> Result<Box<dyn Stream>> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let Some(config) = &self.tls else { return Ok(Box::new(socket)) };
        Ok(Box::new(TlsConnector::from(Arc::clone(config)).connect(server_name()?, socket).await?))
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// An executor that is none.
fn imposter() -> ExecutorRegistration {
    ExecutorRegistration {
        id: "imposter".into(),
        host: Some("127.0.0.1".into()),
        port: 9,
        grpc_port: 9,
        ..ExecutorRegistration::default()
    }
}

/// Paths of calls and their messages: what Ballista's own clients send, and what they never would.
fn calls(job: &str, executor: &str) -> Vec<(String, Vec<u8>)> {
    let scheduler =
        |name: &str, message: Vec<u8>| (format!("/ballista.protobuf.SchedulerGrpc/{name}"), message);
    let on_executor =
        |name: &str, message: Vec<u8>| (format!("/ballista.protobuf.ExecutorGrpc/{name}"), message);
    let flight =
        |name: &str, message: Vec<u8>| (format!("/arrow.flight.protocol.FlightService/{name}"), message);
    let query = |query| {
        let query = ExecuteQueryParams { query: Some(query), ..ExecuteQueryParams::default() };
        query.encode_to_vec()
    };
    let (job_id, executor_id) = (job.to_owned(), executor.to_owned());
    let mut calls = vec![
        scheduler("RegisterExecutor", RegisterExecutorParams { metadata: Some(imposter()) }.encode_to_vec()),
        scheduler(
            "HeartBeatFromExecutor",
            HeartBeatParams {
                executor_id: "imposter".into(),
                metadata: Some(imposter()),
                ..HeartBeatParams::default()
            }
            .encode_to_vec(),
        ),
        scheduler(
            "PollWork",
            PollWorkParams { metadata: Some(imposter()), ..PollWorkParams::default() }.encode_to_vec(),
        ),
        scheduler("CreateUpdateSession", CreateUpdateSessionParams::default().encode_to_vec()),
        scheduler("RemoveSession", RemoveSessionParams::default().encode_to_vec()),
        scheduler("ExecuteQuery", query(Query::PhysicalPlan(b"no plan".to_vec()))),
        scheduler("ExecuteQuery", query(Query::LogicalPlan(b"no plan".to_vec()))),
        scheduler("ExecuteQueryPush", query(Query::PhysicalPlan(b"no plan".to_vec()))),
        scheduler("GetJobStatus", GetJobStatusParams { job_id: job_id.clone() }.encode_to_vec()),
        scheduler("GetJobMetrics", GetJobMetricsParams { job_id: job_id.clone() }.encode_to_vec()),
        scheduler(
            "UpdateTaskStatus",
            UpdateTaskStatusParams { executor_id: executor_id.clone(), ..UpdateTaskStatusParams::default() }
                .encode_to_vec(),
        ),
        scheduler("CancelJob", CancelJobParams { job_id: job_id.clone() }.encode_to_vec()),
        scheduler(
            "CleanJobData",
            CleanJobDataParams { job_id: job_id.clone(), ..CleanJobDataParams::default() }.encode_to_vec(),
        ),
        scheduler(
            "ExecutorStopped",
            ExecutorStoppedParams { executor_id: executor_id.clone(), reason: "a stranger".into() }
                .encode_to_vec(),
        ),
        ("/voxelflow.cluster.ClusterControl/Jobs".to_owned(), Vec::new()),
        ("/voxelflow.cluster.ClusterControl/Executors".to_owned(), Vec::new()),
        ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo".to_owned(), Vec::new()),
        on_executor("LaunchTask", LaunchTaskParams::default().encode_to_vec()),
        on_executor("LaunchMultiTask", LaunchMultiTaskParams::default().encode_to_vec()),
        on_executor(
            "CancelTasks",
            CancelTasksParams {
                task_infos: vec![RunningTaskInfo { task_id: 0, job_id: job_id.clone(), stage_id: 1 }],
            }
            .encode_to_vec(),
        ),
        on_executor(
            "RemoveJobData",
            RemoveJobDataParams { job_id: job_id.clone(), ..RemoveJobDataParams::default() }.encode_to_vec(),
        ),
        on_executor(
            "RemoveJobData",
            RemoveJobDataParams { job_id: "../executor-0".into(), ..RemoveJobDataParams::default() }
                .encode_to_vec(),
        ),
        flight("ListActions", Vec::new()),
        flight("ListFlights", Vec::new()),
    ];
    for wanted in [job, "../../", "../../../../../../../../etc/passwd\0", "/etc"] {
        for stage_id in [1, 2] {
            let fetch = FetchPartition { job_id: wanted.to_owned(), stage_id, ..FetchPartition::default() };
            let action = ballista::Action {
                action_type: Some(ActionType::FetchPartition(fetch)),
                ..ballista::Action::default()
            };
            let ticket = Bytes::from(action.encode_to_vec());
            calls.push(flight("DoGet", Ticket { ticket: ticket.clone() }.encode_to_vec()));
            let action = arrow_flight::Action { r#type: "IO_BLOCK_TRANSPORT".into(), body: ticket };
            calls.push(flight("DoAction", action.encode_to_vec()));
        }
    }
    // Last, because it may succeed.
    calls.push(on_executor(
        "StopExecutor",
        StopExecutorParams { executor_id, reason: "a stranger".into(), force: true }.encode_to_vec(),
    ));
    calls
}

/// Bytes that are no call, by what they are.
fn noises() -> Vec<(&'static str, Vec<u8>)> {
    let mut knock = b"vfnode1\n".to_vec();
    knock.extend(64_u32.to_le_bytes());
    knock.extend([7; 64]);
    vec![
        ("HTTP/1", b"GET / HTTP/1.1\r\nHost: cluster\r\n\r\n".to_vec()),
        ("HTTP/1 of a path", b"POST /jobs HTTP/1.1\r\nHost: cluster\r\nContent-Length: 2\r\n\r\n{}".to_vec()),
        ("zeros", vec![0; 512]),
        ("noise", (0..512_u32).map(|n| (n * n % 251) as u8).collect()),
        ("an agent's knock", knock),
        ("nothing", Vec::new()),
    ]
}

fn grpc_frame(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    Bytes::from([&[0][..], &length.to_be_bytes(), message].concat())
}

fn request(address: &str, path: &str) -> Result<Request<()>> {
    let request = Request::builder().method(Method::POST).uri(format!("http://{address}{path}"));
    let request = request.header("content-type", "application/grpc").header("te", "trailers");
    Ok(request.header("ballista-version", ballista_core::BALLISTA_VERSION).body(())?)
}

/// Calls `path`; gives what the service answers, heads and body.
async fn call(wire: &Wire, address: &str, path: &str, message: &[u8]) -> Result<String> {
    let (sender, connection) = h2::client::handshake(wire.connect(address).await?).await?;
    let connection = tokio::spawn(connection);
    let mut sender = sender.ready().await?;
    let (response, mut body) = sender.send_request(request(address, path)?, false)?;
    body.send_data(grpc_frame(message), true)?;
    let response = response.await?;
    let mut answer = format!("{} {:?} ", response.status(), response.headers()).into_bytes();
    let mut body = response.into_body();
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
        answer.extend(data);
        if answer.len() as u64 > ANSWER {
            break;
        }
    }
    if let Ok(Some(trailers)) = body.trailers().await {
        answer.extend(format!(" {trailers:?}").into_bytes());
    }
    connection.abort();
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Sends `noise`; gives what comes back until the other end has said enough.
async fn make_noise(address: &str, noise: &[u8]) -> Result<Vec<u8>> {
    let mut socket = TcpStream::connect(address).await?;
    socket.write_all(noise).await?;
    let mut answer = Vec::new();
    // Whatever has come by then is the answer, however it ends.
    let _ = timeout(PATIENCE / 3, (&mut socket).take(ANSWER).read_to_end(&mut answer)).await;
    Ok(answer)
}

/// Whether bytes come from a door that stays closed: an alert of TLS, or an agent's No.
fn is_closed_door(answer: &[u8]) -> bool {
    const ALERT: &[u8] = &[0x15, 0x03];
    answer.is_empty() || answer == b"-" || (answer.starts_with(ALERT) && answer.len() == 7)
}

/// The error and what it came from.
fn whole(error: &(dyn Error + Send + Sync)) -> String {
    let mut text = error.to_string();
    let mut inner = error.source();
    while let Some(error) = inner {
        text = format!("{text}: {error}");
        inner = error.source();
    }
    text
}

/// All attempts at one address over one wire.
async fn attempts(wire: &Wire, address: &str, calls: &[(String, Vec<u8>)]) -> Vec<Attempt> {
    let attempt = &|what: &str, reached: bool, answer: String| Attempt {
        address: address.to_owned(),
        wire: wire.name.clone(),
        what: what.to_owned(),
        reached,
        answer,
    };
    let mut attempts = Vec::new();
    if wire.tls.is_none() {
        for (what, noise) in noises() {
            attempts.push(match make_noise(address, &noise).await {
                Ok(answer) => {
                    attempt(what, !is_closed_door(&answer), String::from_utf8_lossy(&answer).into_owned())
                }
                Err(e) => attempt(what, false, whole(&*e)),
            });
        }
    }
    let answers = calls.iter().map(|(path, message)| async move {
        match timeout(PATIENCE, call(wire, address, path, message)).await {
            Ok(Ok(answer)) => attempt(path, true, answer),
            Ok(Err(e)) => attempt(path, false, whole(&*e)),
            Err(_) => attempt(path, false, "silence".into()),
        }
    });
    attempts.extend(stream::iter(answers).buffered(AT_ONCE).collect::<Vec<_>>().await);
    attempts
}

async fn knock(addresses: &str, arguments: &[String]) -> Result<()> {
    let (mut wires, mut job, mut executor) = (vec![Wire::plain(), Wire::anonymous()?], "", "");
    for pair in arguments.chunks(2) {
        match pair {
            [flag, value] if flag == "--key" => wires.push(Wire::with_key(value)?),
            [flag, value] if flag == "--job" => job = value,
            [flag, value] if flag == "--executor" => executor = value,
            _ => return Err(format!("what is {pair:?}?").into()),
        }
    }
    let calls = calls(job, executor);
    let pairs = addresses.split(',').flat_map(|address| wires.iter().map(move |wire| (wire, address)));
    let all = join_all(pairs.map(|(wire, address)| attempts(wire, address, &calls))).await;
    for attempt in all.into_iter().flatten() {
        println!("{}", serde_json::to_string(&attempt)?);
    }
    Ok(())
}

/// A record of TLS that begins a message of 16 MiB, which goes on in records of one byte.
async fn tiny_records(address: &str) -> Result<()> {
    let mut socket = TcpStream::connect(address).await?;
    let record = |byte: u8| [0x16, 0x03, 0x01, 0x00, 0x01, byte];
    let head = [0x01, 0xff, 0xff, 0xff].into_iter().chain(std::iter::repeat_n(0, FRAMES));
    let records: Vec<u8> = head.flat_map(record).collect();
    Ok(socket.write_all(&records).await?)
}

/// A message whose head announces a gibibyte, and which comes in frames of one byte.
async fn tiny_frames(wire: &Wire, address: &str, path: &str) -> Result<()> {
    let (sender, connection) = h2::client::handshake(wire.connect(address).await?).await?;
    tokio::spawn(connection);
    let mut sender = sender.ready().await?;
    let (response, mut body) = sender.send_request(request(address, path)?, false)?;
    let head = [&[0][..], &ANNOUNCED.to_be_bytes()].concat();
    body.send_data(Bytes::from(head), false)?;
    for _ in 0..FRAMES {
        body.send_data(Bytes::from_static(b"."), false)?;
        tokio::task::yield_now().await;
    }
    println!("{}", response.await?.status());
    Ok(())
}

async fn flood(address: &str, key: Option<&str>) -> Result<()> {
    let mut wires = vec![Wire::plain(), Wire::anonymous()?];
    if let Some(key) = key {
        wires.push(Wire::with_key(key)?);
    }
    for head in [&b"vfnode1\n"[..], b""] {
        let noise = [head, &ANNOUNCED.to_le_bytes(), &[0; 4096]].concat();
        println!(
            "a length: {:?}",
            make_noise(address, &noise).await.map(|answer| answer.len()).map_err(|e| whole(&*e))
        );
    }
    println!("tiny records: {:?}", timeout(PATIENCE * 3, tiny_records(address)).await);
    for wire in &wires {
        for path in
            ["/ballista.protobuf.SchedulerGrpc/ExecuteQuery", "/arrow.flight.protocol.FlightService/DoGet"]
        {
            let sent = timeout(PATIENCE * 3, tiny_frames(wire, address, path)).await;
            println!("tiny frames, {}: {sent:?}", wire.name);
        }
    }
    Ok(())
}

async fn idle(address: &str, count: &str) -> Result<()> {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)?;
    let mut open = Vec::new();
    for _ in 0..count.parse::<usize>()? {
        // A door that takes no more of them is a good one.
        match timeout(PATIENCE, TcpStream::connect(address)).await {
            Ok(Ok(socket)) => open.push(socket),
            _ => break,
        }
    }
    println!("{} connections are open", open.len());
    tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["knock", addresses, ..] => knock(addresses, &arguments[2..]).await,
        ["flood", address] => flood(address, None).await,
        ["flood", address, "--key", key] => flood(address, Some(key)).await,
        ["idle", address, count] => idle(address, count).await,
        _ => Err(io::Error::other("knock ADDRESSES …, flood ADDRESS …, or idle ADDRESS COUNT").into()),
    }
}
