//! PDF in a build without the feature `pdf`: the API rejects the format, and a report that another build accepted fails.

use std::io::Write;

use crier_domain::report::ReportFormat;

use crate::WriteError;
use crate::document::Document;

pub fn write(_: &Document, _: &mut dyn Write) -> Result<(), WriteError> {
    Err(WriteError::of(ReportFormat::Pdf, "this worker was built without PDF"))
}

/// Returns nothing: no text is drawn.
pub const fn missing_characters(_: &[String]) -> Vec<String> {
    Vec::new()
}
