//! The media library.

mod imports;
mod upload;
