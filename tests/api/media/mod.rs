//! The media library.

mod imports;
mod library;
mod serving;
mod upload;
