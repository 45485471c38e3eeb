//! `noop`: does nothing; `crier-bench jobs` measures the engine with it.

use super::JobDefinition;

pub struct Noop;

impl JobDefinition for Noop {}
