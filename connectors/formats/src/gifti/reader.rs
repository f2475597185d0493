//! Reads a GIFTI file one array at a time.

use super::array::DataArray;
use super::metadata::Metadata;
use crate::opening::open;
use crate::xml::{Element, Xml};
use crate::{Error, Result};
use std::io::Read;
use std::path::Path;

/// One entry of the label table.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    /// The number that stands for it in arrays.
    pub key: i32,
    /// Its name.
    pub name: String,
    /// Red, green, blue, alpha, 0 to 1; `None` where the table gives none.
    pub colour: Option<[f32; 4]>,
}

/// What stands before the arrays.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct GiftiHeader {
    /// Path or URL, as the caller gave it.
    pub path: String,
    /// Count of arrays, as the file says; checked when the last was read.
    pub arrays: usize,
    /// Names and values that the file carries.
    pub metadata: Metadata,
    /// What the numbers of label arrays stand for.
    pub labels: Vec<Label>,
}

impl GiftiHeader {
    /// The part of the brain, such as `CortexLeft` (`AnatomicalStructurePrimary`).
    pub fn structure(&self) -> Option<&str> {
        self.metadata.get("AnatomicalStructurePrimary")
    }
}

/// Reads one array at a time, in memory of one array and its text.
///
/// After an error the reader gives the end of the file.
pub struct GiftiReader {
    header: GiftiHeader,
    xml: Xml,
    /// The start of the next array, entered already.
    next: Option<Element>,
    read: usize,
}

impl GiftiReader {
    /// Opens `path`.
    ///
    /// # Errors
    /// [`Error::Open`], and those of [`Self::from_reader`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let (file, name) = open(path.as_ref())?;
        Self::from_reader(file, &name)
    }

    /// Reads from `source`; `name` is its path or URL, for messages and to compare its ending with the content.
    ///
    /// # Errors
    /// [`Error::Xml`] for a document that is not GIFTI; [`Error::Truncated`], [`Error::NotGzip`],
    /// [`Error::Gzip`], [`Error::Read`].
    pub fn from_reader(source: impl Read + Send + 'static, name: &str) -> Result<Self> {
        let mut xml = Xml::from_file(Box::new(source), name)?;
        let root = xml.root("GIFTI")?;
        let arrays = xml.attribute(&root, "NumberOfDataArrays")?;
        let header = GiftiHeader { path: name.into(), arrays, ..GiftiHeader::default() };
        let mut reader = Self { header, xml, next: None, read: 0 };
        reader.go_to_next()?;
        Ok(reader)
    }

    /// What stands before the arrays.
    pub fn header(&self) -> &GiftiHeader {
        &self.header
    }

    /// The next array; `None` after the last.
    ///
    /// # Errors
    /// [`Error::Xml`] for an array that cannot be read, or when their count is not what the file says;
    /// [`Error::Truncated`], [`Error::Gzip`], [`Error::Read`].
    pub fn next_array(&mut self) -> Result<Option<DataArray>> {
        let Some(element) = self.next.take() else { return Ok(None) };
        let array = DataArray::read(&mut self.xml, &element, &self.header.path)
            .map_err(|error| numbered(error, self.read + 1))?;
        self.read += 1;
        self.go_to_next()?;
        Ok(Some(array))
    }

    /// Enters the next array; what stands before it goes to the header. At the end checks what can be checked.
    fn go_to_next(&mut self) -> Result<()> {
        while let Some(child) = self.xml.child()? {
            match &child.name[..] {
                "DataArray" => {
                    self.next = Some(child);
                    return Ok(());
                }
                "MetaData" => self.header.metadata = Metadata::read(&mut self.xml)?,
                "LabelTable" => self.header.labels = labels(&mut self.xml)?,
                _ => self.xml.skip()?,
            }
        }
        if self.read != self.header.arrays {
            let reason = format!("it says {} array(s) and has {}", self.header.arrays, self.read);
            return Err(self.xml.fault("GIFTI", reason));
        }
        self.xml.finish()
    }
}

/// Says which array an error is about.
fn numbered(error: Error, array: usize) -> Error {
    match error {
        Error::Xml { path, offset, element, reason } => {
            Error::Xml { path, offset, element: format!("array {array}, {element}"), reason }
        }
        other => other,
    }
}

fn labels(xml: &mut Xml) -> Result<Vec<Label>> {
    let mut labels = Vec::new();
    while let Some(child) = xml.child()? {
        if child.name != "Label" {
            xml.skip()?;
            continue;
        }
        // The draft of the format, which FreeSurfer followed, named it Index.
        let key = if child.attribute("Key").is_some() { "Key" } else { "Index" };
        let key = xml.attribute(&child, key)?;
        let mut colour = [0.0, 0.0, 0.0, 1.0];
        for (value, name) in colour.iter_mut().zip(["Red", "Green", "Blue", "Alpha"]) {
            if child.attribute(name).is_some() {
                *value = xml.attribute(&child, name)?;
            }
        }
        let colour = child.attribute("Red").map(|_| colour);
        labels.push(Label { key, name: xml.text("Label")?.trim().to_owned(), colour });
    }
    Ok(labels)
}

impl std::fmt::Debug for GiftiReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GiftiReader").field("header", &self.header).field("read", &self.read).finish()
    }
}
