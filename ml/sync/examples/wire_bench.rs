//! How fast a model's gradient and parameters travel over loopback: push of 24 MB, fetch of 24 MB, again and
//! again, over 1, 2 and 4 connections; as frames (plain and TLS), and over bidirectional streams of tonic (plain).
//!
//! ```text
//! cargo run --release -p voxelflow-sync --example wire_bench -- [CYCLES]
//! ```
//!
//! Prints a JSON line for each: bytes of both directions by wall-clock time. `integration-tests/bench/wire.py`
//! runs it in turn with iperf3.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use bytes::{Buf, BufMut, Bytes};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant},
};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{
    Request, Response, Status, Streaming,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    transport::{Endpoint, Server, server::TcpIncoming},
};
use voxelflow_sync::{
    Error, Result,
    network::{
        Listener, Passport, Payload, Security, TensorStream, Visitors,
        frame::{Codec as Numbers, Header, PAYLOAD_LIMIT},
    },
};

mod generated {
    #![allow(clippy::all, clippy::pedantic, missing_docs, unused_qualifications)]
    include!(concat!(env!("OUT_DIR"), "/voxelflow.wire_bench.Wire.rs"));
}
use generated::{
    wire_client::WireClient,
    wire_server::{Wire, WireServer},
};

/// Values of the published autoencoder.
const VALUES: usize = 6_000_000;
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const DEADLINE: Duration = Duration::from_secs(60);

const PUSH: u64 = 1;
const FETCH: u64 = 2;

/// Answers pushes with an empty frame and fetches with as many values.
struct Holder {
    values: usize,
}

impl Visitors for Holder {
    fn arrived(&self, _: u32) -> Result<(), String> {
        Ok(())
    }
    fn serve(&self, _: u32, stream: &mut TensorStream) -> Result<()> {
        let mut values = vec![0.0; self.values];
        while let Some(header) = stream.receive_header(None, PAYLOAD_LIMIT, "a request")? {
            if header.seq == PUSH {
                stream.receive_f32(&header, &mut [&mut values])?;
                stream.send(Header::default(), &[], Payload::EMPTY)?;
            } else {
                stream.send(Header::default(), &[], Payload::F32(&[&values], Numbers::Plain))?;
            }
        }
        Ok(())
    }
    fn left(&self, _: u32, _: Option<Error>) {}
}

fn cycle(stream: &mut TensorStream, values: &mut [f32]) -> Result<()> {
    let push = Header { seq: PUSH, ..Header::default() };
    stream.send(push, &[], Payload::F32(&[values], Numbers::Plain))?;
    stream.receive_header(Some(DEADLINE), 0, "an answer")?;
    stream.send(Header { seq: FETCH, ..Header::default() }, &[], Payload::EMPTY)?;
    let header = stream.receive_header(Some(DEADLINE), PAYLOAD_LIMIT, "parameters")?.expect("an answer");
    stream.receive_f32(&header, &mut [values])
}

/// Seconds of `cycles`.
fn frames(security: &Security, streams: usize, cycles: usize) -> f64 {
    let passport = |member| Passport::new(1, member, "bench", security, DEADLINE).unwrap();
    let holder = Arc::new(Holder { values: VALUES / streams });
    let listener = Listener::bind(LOOPBACK, Arc::new(passport(0)), holder).unwrap();
    let barrier = Barrier::new(streams + 1);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..streams)
            .map(|stream| {
                let (passport, address, barrier) =
                    (passport(1 + stream as u32), listener.address(), &barrier);
                scope.spawn(move || {
                    let mut stream = passport.connect(address, 0).unwrap();
                    let mut values = vec![1.0; VALUES / streams];
                    cycle(&mut stream, &mut values).unwrap();
                    barrier.wait();
                    for _ in 0..cycles {
                        cycle(&mut stream, &mut values).unwrap();
                    }
                })
            })
            .collect();
        barrier.wait();
        let start = Instant::now();
        threads.into_iter().for_each(|t| t.join().unwrap());
        start.elapsed().as_secs_f64()
    })
}

/// Messages of a gRPC stream.
const MESSAGE: usize = 1 << 20;

/// Bytes as they are: tonic at its best.
#[derive(Default)]
pub struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;
    fn encoder(&mut self) -> Self {
        Self
    }
    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// Takes so many bytes, then answers as many, again and again.
struct Echo {
    bytes: usize,
}

#[tonic::async_trait]
impl Wire for Echo {
    type EchoStream = ReceiverStream<Result<Bytes, Status>>;

    async fn echo(&self, request: Request<Streaming<Bytes>>) -> Result<Response<Self::EchoStream>, Status> {
        let (sender, receiver) = tokio::sync::mpsc::channel(4);
        let (mut incoming, bytes) = (request.into_inner(), self.bytes);
        tokio::spawn(async move {
            let (mut taken, message) = (0, Bytes::from(vec![0; MESSAGE]));
            while let Some(Ok(bytes_in)) = incoming.next().await {
                taken += bytes_in.len();
                if taken < bytes {
                    continue;
                }
                taken = 0;
                for _ in 0..bytes / MESSAGE {
                    if sender.send(Ok(message.clone())).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

const WINDOW: u32 = 16 << 20;

async fn tonic_stream(address: SocketAddr, bytes: usize, cycles: usize, start: Arc<tokio::sync::Barrier>) {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .tcp_nodelay(true);
    let mut client = WireClient::new(endpoint.connect().await.unwrap())
        .max_decoding_message_size(2 * MESSAGE)
        .max_encoding_message_size(2 * MESSAGE);
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    let message = Bytes::from(vec![1; MESSAGE]);
    // The answer to the call comes with the first message, so both must be under way.
    let mut incoming = client.echo(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    for cycle in 0..=cycles {
        if cycle == 1 {
            start.wait().await;
        }
        for _ in 0..bytes / MESSAGE {
            sender.send(message.clone()).await.unwrap();
        }
        let mut taken = 0;
        while taken < bytes {
            taken += incoming.next().await.unwrap().unwrap().len();
        }
    }
}

/// Seconds of `cycles`.
async fn tonic_streams(streams: usize, cycles: usize) -> f64 {
    let bytes = 4 * VALUES / streams / MESSAGE * MESSAGE;
    let incoming = TcpIncoming::bind((LOOPBACK, 0).into()).unwrap().with_nodelay(Some(true));
    let address = incoming.local_addr().unwrap();
    let service = WireServer::new(Echo { bytes })
        .max_decoding_message_size(2 * MESSAGE)
        .max_encoding_message_size(2 * MESSAGE);
    let server = Server::builder()
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .add_service(service)
        .serve_with_incoming(incoming);
    let server = tokio::spawn(server);
    let barrier = Arc::new(tokio::sync::Barrier::new(streams + 1));
    let clients: Vec<_> = (0..streams)
        .map(|_| tokio::spawn(tonic_stream(address, bytes, cycles, Arc::clone(&barrier))))
        .collect();
    barrier.wait().await;
    let start = Instant::now();
    for client in clients {
        client.await.unwrap();
    }
    let seconds = start.elapsed().as_secs_f64();
    server.abort();
    // What was cut to whole messages is counted as if it had been sent.
    seconds * (4 * VALUES / streams) as f64 / bytes as f64
}

fn print(transport: &str, security: &str, streams: usize, cycles: usize, seconds: f64) {
    let gigabytes = (cycles * 2 * 4 * VALUES) as f64 / 1e9;
    let line = serde_json::json!({
        "transport": transport, "security": security, "streams": streams,
        "gigabytes_per_second": gigabytes / seconds,
    });
    println!("{line}");
}

fn main() {
    let cycles = std::env::args().nth(1).map_or(100, |text| text.parse().expect("the number of cycles"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for streams in [1, 2, 4] {
        for (name, security) in [("plain", Security::insecure().unwrap()), ("tls", Security::tls().unwrap())]
        {
            print("frames", name, streams, cycles, frames(&security, streams, cycles));
        }
        print("tonic", "plain", streams, cycles, runtime.block_on(tonic_streams(streams, cycles)));
    }
}
