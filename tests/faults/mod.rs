//! Faults on real processes, one file a family. Each test states a law of conservation and checks it from outside: what the
//! API says, what the platform holds, what an endpoint hears.

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
