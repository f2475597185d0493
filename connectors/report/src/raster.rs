//! Small images as PNG data URIs.

use crate::{Error, Result};
use base64::{Engine, engine::general_purpose::STANDARD};

/// An image of `width` × `height` pixels with 1 (grey), 3 (RGB) or 4 (RGBA) bytes each, rows from the top.
#[derive(Clone, Debug)]
pub(crate) struct Raster<const CHANNELS: usize> {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl<const CHANNELS: usize> Raster<CHANNELS> {
    /// An image whose pixel at column x, row y is `pixel(x, y)`.
    pub(crate) fn from_fn(
        width: usize,
        height: usize,
        pixel: impl Fn(usize, usize) -> [u8; CHANNELS],
    ) -> Self {
        let mut pixels = Vec::with_capacity(width * height * CHANNELS);
        for y in 0..height {
            for x in 0..width {
                pixels.extend_from_slice(&pixel(x, y));
            }
        }
        Self { width, height, pixels }
    }

    /// The image as `data:image/png;base64,…`.
    ///
    /// # Errors
    /// An image without pixels, or one larger than PNG allows.
    pub(crate) fn data_uri(&self) -> Result<String> {
        let png = self.png().map_err(|e| Error::Figure {
            figure: format!("image of {} × {} pixels", self.width, self.height),
            reason: e.to_string(),
        })?;
        Ok(format!("data:image/png;base64,{}", base64(&png)))
    }

    fn png(&self) -> Result<Vec<u8>, png::EncodingError> {
        let mut bytes = Vec::new();
        let size = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let mut encoder = png::Encoder::new(&mut bytes, size(self.width), size(self.height));
        encoder.set_color(match CHANNELS {
            1 => png::ColorType::Grayscale,
            3 => png::ColorType::Rgb,
            _ => png::ColorType::Rgba,
        });
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.pixels)?;
        writer.finish()?;
        Ok(bytes)
    }
}

/// Standard base64 with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_png_reads_back() {
        let image = Raster::from_fn(3, 2, |x, y| [x as u8 * 10, y as u8, 7, 255]);
        let uri = image.data_uri().unwrap();
        let bytes = STANDARD.decode(uri.strip_prefix("data:image/png;base64,").unwrap()).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (3, 2));
        assert_eq!(&pixels[pixels.len() - 4..], [20, 1, 7, 255]);
    }

    #[test]
    fn an_image_without_pixels_is_an_error() {
        let e = Raster::from_fn(0, 4, |_, _| [0]).data_uri().unwrap_err();
        assert!(e.to_string().contains("0 × 4"), "{e}");
    }
}
