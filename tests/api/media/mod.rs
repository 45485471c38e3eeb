//! The media library.

mod fetching;
mod imports;
mod library;
mod receiving;
mod serving;
mod upload;
mod videos;
