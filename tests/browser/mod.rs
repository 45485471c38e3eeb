//! Pages in a real browser: Debian's chromium, headless. Without a browser the tests print a notice and pass.
//!
//! Screenshots are left in `target/screenshots` for inspection.
//!
//! **To add one:** add a file here that opens its pages with [`driver::Driver`].

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bio;
mod connect;
mod console;
mod driver;
mod keyboard;

/// The sizes of screenshots: width and height.
const PHONE: (u32, u32) = (390, 844);
const DESKTOP: (u32, u32) = (1280, 800);
