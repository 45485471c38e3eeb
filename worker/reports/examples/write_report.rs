//! Writes a sample report, to inspect it and to measure its writer:
//! `/usr/bin/time -v target/release/examples/write_report xlsx 10000 /tmp/report.xlsx`. With `0` posts, the report
//! covers a period in which nothing happened.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};

use crier_domain::report::ReportFormat;
use crier_reports::{sample, write};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [format, posts, path] = arguments.as_slice() else {
        return Err("usage: write_report FORMAT POSTS FILE".into());
    };
    let format: ReportFormat = format.parse()?;
    let document = match posts.parse()? {
        0 => sample::empty_document(),
        posts => sample::document(posts),
    };
    let mut out = BufWriter::new(File::create(path)?);
    write(&document, format, &mut out)?;
    out.flush()?;
    Ok(())
}
