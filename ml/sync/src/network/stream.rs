//! One connection, plain or TLS: frames go in and come out, tensors straight from and into slices.
//!
//! ```text
//!   &[f32] ──(bf16: block by block)──► [TLS] ──► socket … socket ──► [TLS] ──► &mut [f32]
//! ```
//!
//! Blocking sockets of the standard library: a connection has a thread of its own where it needs one, and
//! nothing stands between a slice and the kernel. Deadlines are those of progress: they pass when not one byte
//! moves for so long, however large the tensor is.

use super::{
    frame::{Codec, Dtype, HEADER, Header},
    native::{put_bf16, put_f32, take_bf16, take_f32},
    payload::Payload,
};
use crate::{Error, Result};
use half::{bf16, slice::HalfFloatSliceExt};
use std::{
    io::{self, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

/// Reads of the kernel: small frames come with one, and TLS records several at a time.
const READ: usize = 256 << 10;
/// What is put together before it is written: a small frame is one write, so one packet.
const WRITE: usize = 64 << 10;
/// Values that are converted at once: they stay in the cache of a core.
const BLOCK: usize = 32 << 10;

/// A connection to a peer.
pub struct TensorStream {
    socket: BufReader<TcpStream>,
    tls: Option<Box<rustls::Connection>>,
    /// As errors name it.
    peer: String,
    deadline: Duration,
    /// The timeout that the socket has now.
    waits: Option<Duration>,
    /// Bytes that one write takes.
    buffer: Vec<u8>,
}

impl std::fmt::Debug for TensorStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TensorStream({}, {})", self.peer, if self.tls.is_some() { "TLS" } else { "plain" })
    }
}

impl TensorStream {
    /// A connection over `socket`; `peer` names it in errors. With `tls`, the handshake is done here.
    ///
    /// # Errors
    /// [`Error::Connection`] when the socket cannot be set up or the handshake fails.
    pub fn new(
        socket: TcpStream,
        tls: Option<rustls::Connection>,
        peer: impl Into<String>,
        deadline: Duration,
    ) -> Result<Self> {
        let mut stream = Self {
            socket: BufReader::with_capacity(READ, socket),
            tls: tls.map(Box::new),
            peer: peer.into(),
            deadline,
            waits: None,
            buffer: Vec::with_capacity(WRITE),
        };
        let set_up = |socket: &TcpStream| -> io::Result<()> {
            socket.set_nodelay(true)?;
            socket.set_write_timeout(Some(deadline))
        };
        set_up(stream.socket.get_ref()).map_err(|e| stream.broke("setting up", &e))?;
        stream.shake_hands()?;
        Ok(stream)
    }

    fn shake_hands(&mut self) -> Result<()> {
        const WHAT: &str = "the TLS handshake";
        self.wait_at_most(Some(self.deadline), WHAT)?;
        while let Some(tls) = &mut self.tls {
            if !tls.is_handshaking() && !tls.wants_write() {
                break;
            }
            let done = if tls.wants_write() {
                tls.write_tls(self.socket.get_mut()).map(|_| 1)
            } else {
                tls.read_tls(&mut self.socket)
            };
            let read = done.map_err(|e| self.broke(WHAT, &e))?;
            if read == 0 {
                return Err(self.broke(WHAT, &io::ErrorKind::UnexpectedEof.into()));
            }
            let processed = self.tls.as_mut().map(|tls| tls.process_new_packets());
            if let Some(Err(reason)) = processed {
                // The peer learns from an alert why, if it still listens.
                if let Some(tls) = &mut self.tls {
                    let _ = tls.write_tls(self.socket.get_mut());
                }
                let reason = reason.to_string();
                return Err(Error::Connection { peer: self.peer.clone(), what: WHAT, reason });
            }
        }
        Ok(())
    }

    /// Who is at the other end, as errors name it.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    pub(crate) fn rename(&mut self, peer: String) {
        self.peer = peer;
    }

    pub(crate) fn set_deadline(&mut self, deadline: Duration) -> Result<()> {
        self.deadline = deadline;
        let set = self.socket.get_ref().set_write_timeout(Some(deadline));
        set.map_err(|e| self.broke("setting up", &e))
    }

    /// A handle that ends the connection from another thread: whoever reads or writes it gets an error.
    ///
    /// # Errors
    /// [`Error::Connection`] when the system has no more handles.
    pub fn closer(&self) -> Result<Closer> {
        self.socket.get_ref().try_clone().map(Closer).map_err(|e| self.broke("a second handle", &e))
    }

    /// A handle for a thread that waits for the end of a connection on which nothing is received.
    pub(crate) fn watched(&mut self) -> Result<Closer> {
        self.wait_at_most(None, "the end")?;
        self.closer()
    }

    fn broke(&self, what: &'static str, error: &io::Error) -> Error {
        use io::ErrorKind::{
            BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof, WouldBlock,
        };
        let peer = self.peer.clone();
        let reason = match error.kind() {
            TimedOut | WouldBlock => {
                let seconds = self.waits.unwrap_or(self.deadline).min(self.deadline).as_secs_f64();
                return Error::Silent { peer, what, seconds };
            }
            UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe => "the peer is gone".into(),
            _ => error.to_string(),
        };
        Error::Connection { peer, what, reason }
    }

    fn wait_at_most(&mut self, time: Option<Duration>, what: &'static str) -> Result<()> {
        if self.waits != time {
            self.socket.get_ref().set_read_timeout(time).map_err(|e| self.broke(what, &e))?;
            self.waits = time;
        }
        Ok(())
    }
}

/// Sending.
impl TensorStream {
    /// Sends a frame: `header` with the lengths of `note` and `payload`.
    ///
    /// # Errors
    /// [`Error::Connection`] when the peer is gone or takes nothing for the time of the deadline.
    pub fn send(&mut self, header: Header, note: &[u8], payload: Payload<'_>) -> Result<()> {
        const WHAT: &str = "sending";
        let header = Header { note: note.len() as u32, ..payload.described(header) };
        let sent = self.put(&header.encode()).and_then(|()| self.put(note));
        let sent = sent.and_then(|()| match payload {
            Payload::Bytes(bytes) => self.put(bytes),
            Payload::F32(arrays, codec) => arrays.iter().try_for_each(|array| self.put_array(array, codec)),
        });
        sent.and_then(|()| self.flush()).map_err(|e| self.broke(WHAT, &e))
    }

    fn put_array(&mut self, values: &[f32], codec: Codec) -> io::Result<()> {
        if codec == Codec::Plain {
            return put_f32(values, |bytes| self.put(bytes));
        }
        let mut block = vec![bf16::ZERO; BLOCK.min(values.len())];
        values.chunks(BLOCK).try_for_each(|values| {
            let block = &mut block[..values.len()];
            block.convert_from_f32_slice(values);
            put_bf16(block, |bytes| self.put(bytes))
        })
    }

    /// Small pieces are put together, large ones go as they are.
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.buffer.len() + bytes.len() <= WRITE {
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        self.flush()?;
        self.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let written = self.write(&buffer);
        buffer.clear();
        self.buffer = buffer;
        written
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let socket = self.socket.get_mut();
        let Some(tls) = &mut self.tls else { return socket.write_all(bytes) };
        while !bytes.is_empty() {
            let taken = tls.writer().write(bytes)?;
            bytes = &bytes[taken..];
            while tls.wants_write() {
                tls.write_tls(socket)?;
            }
        }
        Ok(())
    }

    /// Says that nothing follows.
    pub(crate) fn finish(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = tls.write_tls(self.socket.get_mut());
        }
        let _ = self.socket.get_ref().shutdown(Shutdown::Write);
    }
}

const TENSOR: &str = "a tensor";

/// Receiving.
impl TensorStream {
    /// The next header, for which it waits as long as `patience` (`None`: for ever); `Ok(None)` when the peer
    /// has ended the connection between two frames.
    ///
    /// # Errors
    /// [`Error::Connection`] when the peer is gone or silent, or when it sends what is no frame.
    pub fn receive_header(
        &mut self,
        patience: Option<Duration>,
        limit: u64,
        what: &'static str,
    ) -> Result<Option<Header>> {
        let mut bytes = [0; HEADER];
        self.wait_at_most(patience, what)?;
        let first = self.read(&mut bytes).map_err(|e| self.broke(what, &e))?;
        if first == 0 {
            return Ok(None);
        }
        self.read_exact(&mut bytes[first..], what)?;
        let header = Header::decode(&bytes, limit).map_err(|malformed| self.refused(what, malformed))?;
        Ok(Some(header))
    }

    /// The note of the frame that `header` began.
    ///
    /// # Errors
    /// [`Error::Connection`] when the peer is gone or silent.
    pub fn receive_note(&mut self, header: &Header) -> Result<Vec<u8>> {
        let mut note = vec![0; header.note as usize];
        self.read_exact(&mut note, "a note")?;
        Ok(note)
    }

    /// The payload, as the bytes that were sent.
    ///
    /// # Errors
    /// [`Error::Connection`] when the peer is gone or silent.
    pub fn receive_bytes(&mut self, header: &Header) -> Result<Vec<u8>> {
        const WHAT: &str = "a payload";
        // Grows as bytes arrive: a header alone cannot make this process take much memory.
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < header.length {
            let start = bytes.len();
            let more = (header.length - start as u64).min(1 << 24) as usize;
            bytes.reserve(more);
            bytes.resize(start + more, 0);
            self.read_exact(&mut bytes[start..], WHAT)?;
        }
        Ok(bytes)
    }

    /// The payload's numbers, straight into `arrays`, one after the other.
    ///
    /// # Errors
    /// [`Error::Connection`] when the peer is gone or silent, or when the payload has another length or type.
    pub fn receive_f32(&mut self, header: &Header, arrays: &mut [&mut [f32]]) -> Result<()> {
        let expected: u64 = arrays.iter().map(|array| array.len() as u64).sum();
        let found = header.elements();
        if header.dtype != Dtype::F32 || found != expected {
            return Err(self.refused(TENSOR, format!("{found} {:?}, expected {expected} F32", header.dtype)));
        }
        arrays.iter_mut().try_for_each(|array| self.take_array(array, header.codec))
    }

    fn take_array(&mut self, values: &mut [f32], codec: Codec) -> Result<()> {
        if codec == Codec::Plain {
            return take_f32(values, |bytes| self.read_exact(bytes, TENSOR));
        }
        let mut block = vec![bf16::ZERO; BLOCK.min(values.len())];
        values.chunks_mut(BLOCK).try_for_each(|values| {
            let block = &mut block[..values.len()];
            take_bf16(block, |bytes| self.read_exact(bytes, TENSOR))?;
            block.convert_to_f32_slice(values);
            Ok(())
        })
    }

    /// The payload's numbers as `count` arrays of equal length.
    ///
    /// # Errors
    /// [`Error::Connection`] when the peer is gone or silent, or when the payload is of another type or does not
    /// divide.
    pub fn receive_arrays(&mut self, header: &Header, count: usize) -> Result<Vec<Vec<f32>>> {
        let (elements, parts) = (header.elements(), count as u64);
        let divides = if count == 0 { elements == 0 } else { elements.is_multiple_of(parts) };
        if !divides || (elements > 0 && header.dtype != Dtype::F32) {
            let found = format!("{elements} {:?} are no {count} arrays of equal length", header.dtype);
            return Err(self.refused(TENSOR, found));
        }
        let length = elements.checked_div(parts).unwrap_or(0) as usize;
        let mut arrays = Vec::new();
        for _ in 0..count {
            // Grows as values arrive: a header alone cannot make this process take much memory.
            let mut array = Vec::new();
            while array.len() < length {
                let start = array.len();
                array.resize(length.min(start + (4 << 20)), 0.0);
                self.take_array(&mut array[start..], header.codec)?;
            }
            arrays.push(array);
        }
        Ok(arrays)
    }

    pub(crate) fn refused(&self, what: &'static str, reason: impl std::fmt::Display) -> Error {
        Error::Connection { peer: self.peer.clone(), what, reason: reason.to_string() }
    }

    fn read_exact(&mut self, mut bytes: &mut [u8], what: &'static str) -> Result<()> {
        self.wait_at_most(Some(self.deadline), what)?;
        while !bytes.is_empty() {
            match self.read(bytes) {
                Ok(0) => return Err(self.broke(what, &io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => bytes = &mut bytes[n..],
                Err(e) => return Err(self.broke(what, &e)),
            }
        }
        Ok(())
    }

    /// As [`Read::read`]; 0 when the peer has ended the connection.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match &mut self.tls {
                None => self.socket.read(bytes),
                Some(tls) => read_tls(tls, &mut self.socket, bytes),
            };
            match read {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

fn read_tls(
    tls: &mut rustls::Connection,
    socket: &mut BufReader<TcpStream>,
    bytes: &mut [u8],
) -> io::Result<usize> {
    loop {
        match tls.reader().read(bytes) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
        tls.read_tls(socket)?;
        tls.process_new_packets().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
    }
}

/// Ends a connection from another thread.
#[derive(Debug)]
pub struct Closer(TcpStream);

impl Closer {
    /// Ends it, in both directions.
    pub fn close(&self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }

    /// Waits until the peer ends the connection. Only for one on which the peer sends nothing, after
    /// [`TensorStream::watched`].
    pub(crate) fn wait_for_end(mut self) {
        let _ = self.0.read(&mut [0; 64]);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::network::{
        Security,
        credentials::server_name,
        frame::{Kind, PAYLOAD_LIMIT},
    };
    use rustls::{ClientConnection, Connection, ServerConnection};
    use std::{net::TcpListener, thread};

    const SOON: Duration = Duration::from_secs(30);

    /// Both ends of a connection.
    fn pair(security: &Security, deadline: Duration) -> (TensorStream, TensorStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (ours, theirs) = match security {
            Security::Insecure { .. } => (None, None),
            Security::Tls(job) => (
                Some(Connection::Client(
                    ClientConnection::new(job.client().unwrap(), server_name().unwrap()).unwrap(),
                )),
                Some(Connection::Server(ServerConnection::new(job.server().unwrap()).unwrap())),
            ),
        };
        let accepts = thread::spawn(move || {
            TensorStream::new(listener.accept().unwrap().0, theirs, "client", deadline)
        });
        let client =
            TensorStream::new(TcpStream::connect(address).unwrap(), ours, "server", deadline).unwrap();
        (client, accepts.join().unwrap().unwrap())
    }

    fn securities() -> [Security; 2] {
        [Security::insecure().unwrap(), Security::tls().unwrap()]
    }

    #[test]
    fn tensors_arrive_as_they_were_sent() {
        let whole: Vec<f32> = (0..300_000).map(|i| (i as f32 - 1e5) * 1.7).collect();
        for security in securities() {
            let (mut client, mut server) = pair(&security, SOON);
            let sent = whole.clone();
            let sends = thread::spawn(move || {
                for split in [0, 1, 5_000, 299_999, 300_000] {
                    let (a, b) = sent.split_at(split);
                    let header = Header { round: split as u64, seq: 3, ..Header::default() };
                    client.send(header, &[9; 70], Payload::F32(&[a, b], Codec::Plain)).unwrap();
                    client.send(header, &[], Payload::F32(&[a, b], Codec::Bf16)).unwrap();
                    client.send(header, &[1], Payload::Bytes(&[5; 100_000])).unwrap();
                }
                client.finish();
            });
            for split in [0, 1, 5_000, 299_999, 300_000] {
                let header = server.receive_header(Some(SOON), PAYLOAD_LIMIT, "it").unwrap().unwrap();
                assert_eq!((header.round, header.seq, header.kind), (split as u64, 3, Kind::Message));
                assert_eq!(header.length, 1_200_000);
                assert_eq!(server.receive_note(&header).unwrap(), [9; 70]);
                let (mut a, mut b) = (vec![0.0; split], vec![0.0; 300_000 - split]);
                server.receive_f32(&header, &mut [&mut a, &mut b]).unwrap();
                assert_eq!([a, b].concat(), whole);

                let header = server.receive_header(Some(SOON), PAYLOAD_LIMIT, "it").unwrap().unwrap();
                assert_eq!((header.codec, header.length), (Codec::Bf16, 600_000));
                let halves = server.receive_arrays(&header, 2).unwrap();
                let near = halves.concat().iter().zip(&whole).all(|(a, b)| *a == bf16::from_f32(*b).to_f32());
                assert!(near && halves[0].len() == 150_000);

                let header = server.receive_header(Some(SOON), PAYLOAD_LIMIT, "it").unwrap().unwrap();
                assert_eq!(server.receive_note(&header).unwrap(), [1]);
                assert_eq!(server.receive_bytes(&header).unwrap(), [5; 100_000]);
            }
            assert!(server.receive_header(Some(SOON), PAYLOAD_LIMIT, "it").unwrap().is_none());
            sends.join().unwrap();
        }
    }

    #[test]
    fn another_length_or_type_is_refused() {
        let (mut client, mut server) = pair(&securities()[0], SOON);
        client.send(Header::default(), &[], Payload::F32(&[&[1.0; 6]], Codec::Plain)).unwrap();
        client.send(Header::default(), &[], Payload::Bytes(&[1; 24])).unwrap();
        let header = server.receive_header(Some(SOON), 100, "it").unwrap().unwrap();
        let error = server.receive_f32(&header, &mut [&mut [0.0; 5]]).unwrap_err().to_string();
        assert!(error.contains("6 F32, expected 5"), "{error}");
        assert!(server.receive_arrays(&header, 4).is_err());
        assert!(server.receive_arrays(&header, 0).is_err());
        assert_eq!(server.receive_arrays(&header, 3).unwrap(), [[1.0; 2]; 3]);
        let header = server.receive_header(Some(SOON), 100, "it").unwrap().unwrap();
        assert!(server.receive_f32(&header, &mut [&mut [0.0; 24]]).is_err());
        assert!(server.receive_arrays(&header, 24).is_err());
    }

    #[test]
    fn silence_and_death_are_told_apart() {
        for security in securities() {
            let (client, mut server) = pair(&security, Duration::from_millis(100));
            let error = server.receive_header(Some(Duration::from_millis(100)), 0, "a frame").unwrap_err();
            assert!(matches!(error, Error::Silent { what: "a frame", .. }), "{error}");
            assert!(error.to_string().contains("client") && error.to_string().contains("0.1 s"), "{error}");
            // As a process that dies does: no farewell of TLS.
            client.closer().unwrap().close();
            let end = server.receive_header(Some(SOON), 0, "a frame");
            assert!(matches!(end, Ok(None) | Err(Error::Connection { .. })), "{end:?}");
            drop(client);
        }
    }

    #[test]
    fn a_peer_that_takes_nothing_is_silent_too() {
        let (mut client, server) = pair(&securities()[0], Duration::from_millis(200));
        let error = client.send(Header::default(), &[], Payload::Bytes(&vec![0; 64 << 20])).unwrap_err();
        assert!(matches!(error, Error::Silent { what: "sending", .. }), "{error}");
        drop(server);
    }

    #[test]
    fn a_frame_that_is_cut_is_an_error() {
        for security in securities() {
            let (mut client, mut server) = pair(&security, SOON);
            let header = Header { length: 1000, ..Header::default() };
            client.write(&header.encode()).unwrap();
            client.write(&[0; 10]).unwrap();
            client.finish();
            let header = server.receive_header(Some(SOON), 1000, "it").unwrap().unwrap();
            let error = server.receive_bytes(&header).unwrap_err().to_string();
            assert!(error.contains("the peer is gone"), "{error}");
        }
    }
}
