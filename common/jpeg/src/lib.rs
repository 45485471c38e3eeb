//! Reads JPEGs from SOI to EOI without decoding them (ITU-T T.81): the marker segments, and the codes of all blocks.
//!
//! In goes a file in memory, out come its parts as ranges of bytes ([`Reader`]). A file that lacks data is refused, and
//! the end of each scan's data is known. The codes also yield the picture at an eighth of its size ([`Eighth`]).
//!
//! The reader is our own because no decoder reports all missing data, or where the data of a scan ends; `docs/media.md`
//! has the measurements under "Why JPEGs are read by own code". What is kept of a file, and what users are told about
//! one that is refused, is decided by the caller (`common/media/src/picture/jpeg.rs`).
//!
//! Input is untrusted. Memory and time are bounded by the sides that the frame header claims, so a caller checks them
//! first ([`FrameHead`]): up to 2 bytes for each block of 8 × 8 pixels of each component, and 8 more in a progressive
//! picture.

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

/// Why a JPEG is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The file, a segment or the data of a scan ends too early.
    #[error("the JPEG is truncated")]
    Truncated,
    /// It breaks the rules of the format.
    #[error("the JPEG is invalid")]
    Invalid,
    /// It is neither baseline, extended sequential nor progressive with Huffman codes, or has not 8 bits per sample.
    #[error("the JPEG is of a kind that is not supported")]
    Unsupported,
    /// It has more than [`MAX_SCANS`].
    #[error("the JPEG has too many scans")]
    TooManyScans,
}
