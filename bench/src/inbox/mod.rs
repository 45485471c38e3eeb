//! `crier-bench inbox`: measures lists and searches of the inbox, in one brand with very many conversations, through
//! the functions that the API calls.
//!
//! **To add a measurement:** a line in [`lists::CASES`], and its figures in `tests/bench/inbox.rs`.

use super::{Figures, Suite, figure};
use crate::args::{BenchInbox, BenchOptions, InboxMeasurement};

mod lists;
mod sample;

type Bench = super::Bench<BenchInbox>;

impl Suite for BenchInbox {
    fn options(&self) -> &BenchOptions {
        &self.options
    }

    async fn measure(bench: &Bench) -> Figures {
        let mut figures = figure::machine_figures(&*bench.create_environment().await?).await?;
        let measure = async |measurement| match measurement {
            InboxMeasurement::Lists => lists::run(bench).await,
        };
        figures.extend(bench.each(InboxMeasurement::ALL, &[], measure).await?);
        Ok(figures)
    }
}
