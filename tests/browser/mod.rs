//! Pages in a real browser: Debian's Chromium, headless. If chromedriver is not installed, the tests print a notice and
//! pass.
//!
//! Screenshots are saved in `target/screenshots`.
//!
//! **To add one:** add a file here that opens its pages with [`driver::Driver`].

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bio;
mod connect;
mod console;
mod driver;
mod keyboard;
mod planning;
mod threads;
mod video;

/// The sizes of screenshots: width and height in pixels.
const PHONE: (u32, u32) = (390, 844);
const DESKTOP: (u32, u32) = (1280, 800);
