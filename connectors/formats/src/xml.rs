//! A pull parser over quick-xml for the two XML formats of the field: elements with attributes, their children,
//! their text, and the byte where each begins.

use crate::byte_stream::ByteStream;
use crate::{Error, Result};
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use std::io::{self, BufReader, Cursor, Read};
use std::str::FromStr;

/// An element that was entered.
#[derive(Debug)]
pub(crate) struct Element {
    pub name: String,
    /// Byte after its start tag.
    pub offset: u64,
    attributes: Vec<(String, String)>,
}

impl Element {
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.trim())
    }
}

/// Where the bytes come from.
enum Source {
    File(ByteStream),
    Memory(Cursor<Vec<u8>>),
}

/// Keeps the error that names path and offset aside, for a parser gives on the system's alone.
struct Bytes {
    source: Source,
    fault: Option<Error>,
}

impl Read for Bytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.source {
            Source::Memory(bytes) => bytes.read(buffer),
            Source::File(stream) => stream.fill(buffer, &|| "the XML document".into()).map_err(|error| {
                self.fault = Some(error);
                io::ErrorKind::Other.into()
            }),
        }
    }
}

/// An XML document that is read from begin to end.
pub(crate) struct Xml {
    reader: Reader<BufReader<Bytes>>,
    buffer: Vec<u8>,
    /// Elements that were entered and not left.
    depth: usize,
    path: String,
    /// Byte of the file where the document begins.
    base: u64,
}

impl Xml {
    /// A whole file.
    pub(crate) fn from_file(source: Box<dyn Read + Send>, path: &str) -> Result<Self> {
        Ok(Self::new(Source::File(ByteStream::try_new(source, path)?), path, 0))
    }

    /// A document within a file, which begins at byte `base` of it.
    pub(crate) fn from_memory(document: Vec<u8>, path: &str, base: u64) -> Self {
        Self::new(Source::Memory(Cursor::new(document)), path, base)
    }

    fn new(source: Source, path: &str, base: u64) -> Self {
        let mut reader = Reader::from_reader(BufReader::new(Bytes { source, fault: None }));
        reader.config_mut().expand_empty_elements = true;
        Self { reader, buffer: Vec::new(), depth: 0, path: path.into(), base }
    }

    /// Enters the document's element, which must be `name`.
    pub(crate) fn root(&mut self, name: &str) -> Result<Element> {
        match self.child()? {
            Some(element) if element.name == name => Ok(element),
            Some(element) => Err(self.fault(&element.name, format!("the document is not {name}"))),
            None => Err(self.fault(name, "the file holds no XML element: another kind of file?".into())),
        }
    }

    /// Enters the next child of the element that was entered last and not left; `None` leaves that element.
    /// Text between children is passed over.
    pub(crate) fn child(&mut self) -> Result<Option<Element>> {
        loop {
            self.buffer.clear();
            let event = self.reader.read_event_into(&mut self.buffer);
            let offset = self.base + self.reader.buffer_position();
            match event {
                Ok(Event::Start(start)) => {
                    self.depth += 1;
                    let element = element(&start, offset);
                    return element.map(Some).map_err(|reason| self.fault("start tag", reason));
                }
                Ok(Event::End(_)) => {
                    self.depth = self.depth.saturating_sub(1);
                    return Ok(None);
                }
                Ok(Event::Eof) if self.depth > 0 => return Err(self.ended()),
                Ok(Event::Eof) => return Ok(None),
                Ok(_) => {}
                Err(error) => return Err(self.explain(&error)),
            }
        }
    }

    /// The text of the element that was entered last, which is left. It has no children.
    pub(crate) fn text(&mut self, of: &str) -> Result<String> {
        let mut text = String::new();
        loop {
            self.buffer.clear();
            let event = self.reader.read_event_into(&mut self.buffer);
            let part = match event {
                Ok(Event::Text(part)) => part.decode().map(|part| text.push_str(&part)).is_ok(),
                Ok(Event::CData(part)) => part.decode().map(|part| text.push_str(&part)).is_ok(),
                Ok(Event::GeneralRef(name)) => character(&name).map(|letter| text.push(letter)).is_some(),
                Ok(Event::Comment(_) | Event::PI(_)) => true,
                Ok(Event::End(_)) => {
                    self.depth = self.depth.saturating_sub(1);
                    return Ok(text);
                }
                Ok(Event::Eof) => return Err(self.ended()),
                Ok(_) => return Err(self.fault(of, "it holds an element instead of text".into())),
                Err(error) => return Err(self.explain(&error)),
            };
            if !part {
                return Err(self.fault(of, "its text is not UTF-8, or holds an unknown entity".into()));
            }
        }
    }

    /// Leaves the element that was entered last, with all its children.
    pub(crate) fn skip(&mut self) -> Result<()> {
        let outside = self.depth.saturating_sub(1);
        while self.depth > outside {
            self.buffer.clear();
            match self.reader.read_event_into(&mut self.buffer) {
                Ok(Event::Start(_)) => self.depth += 1,
                Ok(Event::End(_)) => self.depth -= 1,
                Ok(Event::Eof) => return Err(self.ended()),
                Ok(_) => {}
                Err(error) => return Err(self.explain(&error)),
            }
        }
        Ok(())
    }

    /// After the document's element: nothing but white space and comments follows, and the trailer of a
    /// compressed file is right.
    pub(crate) fn finish(&mut self) -> Result<()> {
        loop {
            self.buffer.clear();
            match self.reader.read_event_into(&mut self.buffer) {
                Ok(Event::Eof) => return Ok(()),
                Ok(Event::Comment(_) | Event::PI(_)) => {}
                // Some writers end the document with zeros.
                Ok(Event::Text(text)) if text.iter().all(|byte| byte.is_ascii_whitespace() || *byte == 0) => {
                }
                Ok(_) => return Err(self.fault("document", "something follows its end".into())),
                Err(error) => return Err(self.explain(&error)),
            }
        }
    }

    /// The attribute `name` of `element` as a number or another value.
    pub(crate) fn attribute<T: FromStr>(&self, element: &Element, name: &str) -> Result<T> {
        let text = self.required(element, name)?;
        text.parse()
            .map_err(|_| self.fault_at(element, format!("its {name} '{}' is not a number", cut(text))))
    }

    /// The attribute `name` of `element`.
    pub(crate) fn required<'a>(&self, element: &'a Element, name: &str) -> Result<&'a str> {
        element.attribute(name).ok_or_else(|| self.fault_at(element, format!("it has no attribute {name}")))
    }

    /// An error at the place that was read last.
    pub(crate) fn fault(&self, element: &str, reason: String) -> Error {
        let offset = self.base + self.reader.buffer_position();
        Error::Xml { path: self.path.clone(), offset, element: element.into(), reason }
    }

    /// An error about an element.
    pub(crate) fn fault_at(&self, element: &Element, reason: String) -> Error {
        Error::Xml { path: self.path.clone(), offset: element.offset, element: element.name.clone(), reason }
    }

    /// The document stops while elements are open.
    fn ended(&self) -> Error {
        let offset = self.base + self.reader.buffer_position();
        Error::Truncated { path: self.path.clone(), offset, place: "the XML document".into() }
    }

    fn explain(&mut self, error: &quick_xml::Error) -> Error {
        if let Some(fault) = self.reader.get_mut().get_mut().fault.take() {
            return fault;
        }
        let offset = self.base + self.reader.error_position();
        Error::Xml {
            path: self.path.clone(),
            offset,
            element: "document".into(),
            reason: format!("not well-formed XML: {error}"),
        }
    }
}

fn element(start: &BytesStart<'_>, offset: u64) -> Result<Element, String> {
    let name = std::str::from_utf8(start.name().into_inner()).map_err(|e| e.to_string())?.to_owned();
    let mut attributes = Vec::new();
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|error| format!("{name}: {error}"))?;
        let key = std::str::from_utf8(attribute.key.into_inner()).map_err(|e| e.to_string())?.to_owned();
        let value = std::str::from_utf8(&attribute.value).map_err(|e| e.to_string())?;
        let value = quick_xml::escape::unescape(value).map_err(|error| format!("{name}: {key}: {error}"))?;
        attributes.push((key, value.into_owned()));
    }
    Ok(Element { name, offset, attributes })
}

/// What `&name;` stands for.
fn character(name: &quick_xml::events::BytesRef<'_>) -> Option<char> {
    if name.is_char_ref() {
        return name.resolve_char_ref().ok().flatten();
    }
    match &**name {
        b"amp" => Some('&'),
        b"lt" => Some('<'),
        b"gt" => Some('>'),
        b"quot" => Some('"'),
        b"apos" => Some('\''),
        _ => None,
    }
}

/// What a message can bear of a text.
pub(crate) fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}
