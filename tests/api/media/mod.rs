//! The media library.

mod upload;
