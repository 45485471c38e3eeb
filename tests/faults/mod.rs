//! Fault tests. Each test states an invariant and checks it from outside: API responses, the posts on the platform,
//! database rows. Some tests use real processes. Most use a worker whose clock, platform and notifier the test
//! controls, so that the fault happens at an exact point.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod ai;
mod backlog;
mod clock;
mod connections;
mod crash;
mod cut_off;
mod database;
mod disk;
mod first_start;
mod freeze;
mod import;
mod inbox;
mod kill;
mod killer;
mod kinds;
mod notifier;
mod operator;
mod panics;
mod platforms;
mod poison;
mod postgres;
mod redis;
mod reports;
mod resumed;
mod rolling;
mod scaling;
mod schedulers;
mod stop;
mod surge;
mod threads;
mod undecodable;
mod video;
mod video_transfer;
mod visits;
