//! Writes float32 data on a surface: maps and time series, all of a file or nothing.

use super::intent::Intent;
use crate::Result;
use crate::whole_file::WholeFile;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, write::ZlibEncoder};
use quick_xml::escape::escape;
use std::io::Write;
use std::path::Path;

/// Writes a `.func.gii` or `.shape.gii` of float32 arrays, one per time point or map, as compressed binary
/// (little-endian). Dropped before [`Self::finish`] it leaves nothing behind.
pub struct GiftiWriter {
    file: WholeFile,
    vertices: usize,
    arrays: usize,
    intent: Intent,
    written: usize,
}

impl GiftiWriter {
    /// Begins a file at `path` of `arrays` arrays of `vertices` numbers; `metadata` are names and values of
    /// the file, such as `AnatomicalStructurePrimary`.
    ///
    /// # Errors
    /// [`crate::Error::Content`] for a name that does not end in `.gii` or an empty shape,
    /// [`crate::Error::Write`] from the system.
    pub fn create(
        path: impl AsRef<Path>,
        vertices: usize,
        arrays: usize,
        intent: Intent,
        metadata: &[(&str, &str)],
    ) -> Result<Self> {
        let mut file = WholeFile::create(path.as_ref())?;
        if !path.as_ref().to_string_lossy().to_ascii_lowercase().ends_with(".gii") {
            return Err(file.refuse("the name of a GIFTI file ends in .gii".into()));
        }
        if vertices == 0 || arrays == 0 {
            return Err(file.refuse(format!("{arrays} array(s) of {vertices} vertices are empty")));
        }
        let head = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <!DOCTYPE GIFTI SYSTEM \"http://www.nitrc.org/frs/download.php/115/gifti.dtd\">\n\
             <GIFTI Version=\"1.0\" NumberOfDataArrays=\"{arrays}\">\n{}<LabelTable/>\n",
            meta_data(metadata)
        );
        file.write_all(head.as_bytes())?;
        Ok(Self { file, vertices, arrays, intent, written: 0 })
    }

    /// Writes the next array, `[vertices]`; `metadata` are names and values of it, such as `TimeStep` or `Name`.
    ///
    /// # Errors
    /// [`crate::Error::Content`] for another count of numbers or one array too many, [`crate::Error::Write`]
    /// from the system.
    pub fn write_array(&mut self, values: &[f32], metadata: &[(&str, &str)]) -> Result<()> {
        let array = self.written + 1;
        if values.len() != self.vertices {
            let reason = format!("array {array} has {} values for {} vertices", values.len(), self.vertices);
            return Err(self.file.refuse(reason));
        }
        if array > self.arrays {
            let reason = format!("it was created for {} array(s), this is one more", self.arrays);
            return Err(self.file.refuse(reason));
        }
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
        let packed = packed.write_all(&bytes).and_then(|()| packed.finish());
        // A vector takes all that is written.
        let packed = packed.map_err(|error| self.file.refuse(error.to_string()))?;
        let text = format!(
            "<DataArray Intent=\"{}\" DataType=\"NIFTI_TYPE_FLOAT32\" ArrayIndexingOrder=\"RowMajorOrder\" \
             Dimensionality=\"1\" Dim0=\"{}\" Encoding=\"GZipBase64Binary\" Endian=\"LittleEndian\" \
             ExternalFileName=\"\" ExternalFileOffset=\"\">\n{}<Data>{}</Data>\n</DataArray>\n",
            escape(self.intent.name()),
            self.vertices,
            meta_data(metadata),
            STANDARD.encode(packed)
        );
        self.file.write_all(text.as_bytes())?;
        self.written = array;
        Ok(())
    }

    /// Completes the file and gives it its name, replacing what had it before.
    ///
    /// # Errors
    /// [`crate::Error::Content`] when arrays are missing, [`crate::Error::Write`] from the system. Then nothing
    /// is left behind, and a previous file of that name is as it was.
    pub fn finish(mut self) -> Result<()> {
        if self.written < self.arrays {
            let reason = format!("{} of {} arrays were written", self.written, self.arrays);
            return Err(self.file.refuse(reason));
        }
        self.file.write_all(b"</GIFTI>\n")?;
        self.file.publish()
    }
}

fn meta_data(entries: &[(&str, &str)]) -> String {
    let mut text = "<MetaData>\n".to_owned();
    for (name, value) in entries {
        text.push_str(&format!("<MD><Name>{}</Name><Value>{}</Value></MD>\n", escape(*name), escape(*value)));
    }
    text + "</MetaData>\n"
}
