//! `crier-bench reports`: writes a sample report in each format, as the worker does after it has read the data.
//!
//! All formats are measured, so a new one needs no change here.

use std::time::Instant;

use crier_domain::report::ReportFormat;
use crier_reports::sample;

use super::figure::{self, Figure};
use super::{Figures, Suite, fail, resident};
use crate::args::{BenchOptions, BenchReports};

type Bench = super::Bench<BenchReports>;

const NAME: &str = "reports";

impl Suite for BenchReports {
    fn options(&self) -> &BenchOptions {
        &self.options
    }

    async fn measure(bench: &Bench) -> Figures {
        let mut figures = figure::machine_figures(&*bench.create_environment().await?).await?;
        for posts in &bench.args.posts {
            for format in ReportFormat::ALL {
                if bench.args.only.is_empty() || bench.args.only.contains(format) {
                    bench.show_progress(format_args!("reports: {posts} posts as {format}"));
                    figures.extend(measure(*format, *posts)?);
                }
            }
        }
        Ok(figures)
    }
}

/// Measures one file. The peak memory is that of the process, and includes the document and the file.
fn measure(format: ReportFormat, posts: u32) -> Figures {
    let document = sample::document(posts as usize);
    resident::reset_peak();
    let (began, mut file) = (Instant::now(), Vec::new());
    if let Err(error) = crier_reports::write(&document, format, &mut file) {
        return fail(format!("{posts} posts as {format}: {error}"));
    }
    let took = began.elapsed();
    let of = |what: &str| format!("{format}, {posts} posts, {what}");
    let mut figures = vec![Figure::time(NAME, of("time"), took)];
    figures.extend(Figure::size(NAME, of("peak memory"), resident::peak()));
    figures.extend(Figure::size(NAME, of("file"), Some(file.len() as u64)));
    Ok(figures)
}
