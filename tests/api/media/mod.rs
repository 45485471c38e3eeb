//! The media library.

mod imports;
mod library;
mod receiving;
mod serving;
mod upload;
