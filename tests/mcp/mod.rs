//! The tools of agents at `/mcp`. `scripts/mcp` runs the official clients against them.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod client;
mod http;
mod official;
mod outputs;
mod results;
mod schemas;
mod writes;
