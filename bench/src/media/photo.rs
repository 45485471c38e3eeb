//! Images with the size and decoding time of photographs: smooth colors with a little noise.

use bytes::Bytes;
use image::RgbImage;
use image::codecs::jpeg::JpegEncoder;

use super::BenchError;

/// The marker of a quantization table in a JPEG. The first table is used.
const TABLE: &[u8] = &[0xff, 0xdb];
/// The last four entries of the table (the finest details), relative to the marker.
const FINEST: std::ops::Range<usize> = 65..69;

/// Returns a JPEG with this many megapixels in 4:3; `noise` (0 to 255) and `quality` determine its size.
pub fn jpeg(megapixels: u32, noise: u32, quality: u8) -> Result<Bytes, BenchError> {
    let height = (f64::from(megapixels) * 1e6 * 3.0 / 4.0).sqrt() as u32;
    let width = height * 4 / 3;
    let pixel = |x: u32, y: u32| {
        // A cheap hash, the same in each run.
        let hash = (x.wrapping_mul(0x9e37_79b1) ^ y.wrapping_mul(0x85eb_ca6b)).wrapping_mul(0xc2b2_ae35) >> 8;
        let grain = hash % (noise + 1);
        let [r, g, b] = [x * 200 / width + grain, y * 180 / height + grain, (x + y) * 160 / (width + height) + grain];
        image::Rgb([r, g, b].map(|channel| u8::try_from(channel).unwrap_or(u8::MAX)))
    };
    let picture = RgbImage::from_fn(width, height, pixel);
    let mut out = Vec::new();
    let written = JpegEncoder::new_with_quality(&mut out, quality).encode_image(&picture);
    written.map_err(|error| BenchError::Failed(format!("a photograph could not be made: {error}")))?;
    Ok(out.into())
}

/// Returns the same photograph as a different file, in chunks. Only the quantization of its finest details differs.
pub fn another(photo: &Bytes, number: u32) -> [Bytes; 3] {
    let table = photo.windows(TABLE.len()).position(|bytes| bytes == TABLE).unwrap_or_default();
    let at = table + FINEST.start..table + FINEST.end;
    // Base-200 digits plus 1, since no entry may be 0.
    let digit = |place: u32| 1 + u8::try_from(number / 200u32.pow(place) % 200).unwrap_or_default();
    let finest = Bytes::copy_from_slice(&[digit(3), digit(2), digit(1), digit(0)]);
    [photo.slice(..at.start), finest, photo.slice(at.end..)]
}
