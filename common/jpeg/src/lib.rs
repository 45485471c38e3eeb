//! Reads JPEGs from SOI to EOI without decoding them (ITU-T T.81): the marker segments, and the codes of all blocks.
//!
//! The input is a file in memory, and the output is its parts as ranges of bytes ([`Reader`]). A file with missing data
//! is rejected, and the end of each scan's data is known. The codes also contain the image at an eighth of its size
//! ([`Eighth`]).
//!
//! Crier has its own reader because no decoder reports all missing data, or the end of a scan's data; `docs/media.md`
//! has the measurements under "Why Crier has its own JPEG reader". The caller decides which parts of a file are kept,
//! and has the error messages for users (`common/media/src/images/jpeg.rs`).
//!
//! Input is untrusted. The width and height in the frame header limit memory and time, so check them first
//! ([`FrameHead`]): reading takes up to 2 bytes for each block of 8 × 8 pixels of each component, and 8 more for a
//! progressive image.

mod bits;
mod eighth;
mod frame;
mod input;
mod reader;
mod scans;
mod tables;
#[cfg(test)]
mod tests;

pub use eighth::{ColorInfo, Eighth, Plane, ycbcr_to_rgb};
pub use frame::FrameHead;
pub use reader::{MAX_SCANS, Part, Reader, Segment};

/// Why a JPEG is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The file, a segment or the data of a scan ends too early.
    #[error("the JPEG is truncated")]
    Truncated,
    /// It violates the rules of the format.
    #[error("the JPEG is invalid")]
    Invalid,
    /// It is neither baseline, extended sequential nor progressive with Huffman codes, or does not have 8 bits per
    /// sample.
    #[error("this kind of JPEG is not supported")]
    Unsupported,
    /// It has more than [`MAX_SCANS`] scans.
    #[error("the JPEG has too many scans")]
    TooManyScans,
}
