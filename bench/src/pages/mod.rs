//! `crier-bench pages`: measures the public link-in-bio pages.
//!
//! The API and its store are the real ones, reached over TCP by keep-alive connections with a browser's headers (gzip).
//! The clients have their own thread, whose CPU time is not counted as the server's, but share the machine's CPUs. In
//! `page` and `unchanged` a peer can replace Crier.
//!
//! **To add a measurement:** add its word to [`PagesMeasurement`], a file here with a `run(&Bench)` that returns
//! [`Figures`], an arm in [`Suite::measure`], and its figures in `tests/bench/pages.rs`.

use super::{Figures, Suite, api, fail, figure};
use crate::args::{BenchOptions, BenchPages, PagesMeasurement};

mod client;
mod counted;
mod first;
mod page;
mod site;

type Bench = super::Bench<BenchPages>;

impl Suite for BenchPages {
    fn options(&self) -> &BenchOptions {
        &self.options
    }

    async fn measure(bench: &Bench) -> Figures {
        let mut figures = match bench.args.peer {
            Some(peer) => api::about_peer(peer).await?,
            None => figure::machine_figures(&*bench.create_environment().await?).await?,
        };
        let measure = async |measurement| match measurement {
            PagesMeasurement::Page => page::run(bench, "page", false).await,
            PagesMeasurement::Unchanged => page::run(bench, "unchanged", true).await,
            PagesMeasurement::First => first::run(bench).await,
            PagesMeasurement::Counted => counted::run(bench).await,
        };
        const OF_A_PEER: &[PagesMeasurement] = &[PagesMeasurement::Page, PagesMeasurement::Unchanged];
        let only = match bench.args.peer {
            Some(_) if bench.args.only.is_empty() => OF_A_PEER,
            Some(_) if bench.args.only.iter().any(|one| !OF_A_PEER.contains(one)) => {
                return fail("of a peer page and unchanged alone can be measured");
            }
            _ => &bench.args.only,
        };
        figures.extend(bench.each(PagesMeasurement::ALL, only, measure).await?);
        Ok(figures)
    }
}
