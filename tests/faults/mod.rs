//! Faults. Each test states a law of conservation and checks it from outside: what the API says, what the platform holds,
//! what the rows say. Some are done to real processes, most to a worker whose clock, platform and bell are in the test's
//! hand, so that the fault comes at an exact moment.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod ai;
mod backlog;
mod bell;
mod clock;
mod connections;
mod crash;
mod cut_off;
mod database;
mod disk;
mod first_start;
mod freeze;
mod import;
mod kill;
mod killer;
mod kinds;
mod operator;
mod panics;
mod poison;
mod postgres;
mod redis;
mod scaling;
mod schedulers;
mod stop;
mod surge;
mod undecodable;
mod visits;
mod woken;
