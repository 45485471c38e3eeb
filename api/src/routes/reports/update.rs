//! `PUT /brands/{brand}/reports/{report}`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::report::MAX_TITLE;
use crier_store::{Tx, reports};
use schemars::JsonSchema;
use serde_json::json;

use super::{FEATURES, Report, TAG, find, lock, show};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::Result;
use crate::fields::{Fields, ParsedBody, PatchField};
use crate::request::Parsed;
use crate::response::{One, Reply};

/// The new name of a report.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub struct ReportChanges {
    #[schemars(length(min = 1, max = MAX_TITLE))]
    pub name: PatchField<String>,
}

pub fn endpoint() -> Endpoint<ReportChanges, One<Report>> {
    Endpoint::put("/brands/{brand}/reports/{report}", "updateReport", Scope::ReportsWrite)
        .tag(TAG)
        .adds(Growth::Records)
        .summary("Rename a report")
        .features(FEATURES)
        .checks_then_writes(update)
        .with_rerender("report", show::show)

// EXAMPLE ReportChanges: json!({ "name": "Quarterly report" })
}

fn read(f: &Fields<'_>) -> Option<String> {
    let name = f.text("name", 1..=MAX_TITLE);
    if name == PatchField::Null {
        f.problem("name", "Must not be null.");
    }
    name.value()
}

async fn update(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<String>>) -> Result<Reply<Report>> {
    let report = lock(cx, tx).await?;
    parsed.problems().into_result()?;
    if let Some(name) = &parsed.value {
        reports::rename(tx, report.brand_id, report.id, name).await?;
    }
    let changed = find(cx, tx).await?;
    Ok(Reply::from(Report::load_one(cx, tx, changed).await?))
}
