//! The media library.

mod library;
mod serving;
mod upload;
