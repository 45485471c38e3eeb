//! Faults on real processes. Each test states a law of conservation and checks it from outside: what the API says, what
//! the platform holds.

mod backlog;
mod freeze;
mod kill;
mod killer;
mod kinds;
mod operator;
mod postgres;
mod redis;
mod scaling;
mod schedulers;
mod stop;
