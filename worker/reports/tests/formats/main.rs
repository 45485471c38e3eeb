//! Tests that read every format with independent libraries (`tests/read_back.py`) and compare the result with the
//! document.
//!
//! **To add a format:** a reader in `read_back.py`, a module here, and its line in `any_text::CHECKS`.

mod any_text;
mod csv;
mod json;
mod pdf;
mod pptx;
mod support;
mod xlsx;

use crier_domain::report::ReportFormat;
use crier_reports::sample;

/// Two exports of the same values can be compared, and an export that runs again after a crash stores the same file.
#[test]
fn the_same_document_results_in_the_same_bytes() {
    for format in ReportFormat::ALL {
        let [first, second] = [(); 2].map(|()| support::bytes(&sample::document(40), *format));
        assert!(first == second, "{format}");
    }
}
