//! `PUT /brands/{brand}/reports/{report}`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::report::MAX_TITLE;
use crier_store::{Tx, reports};

use super::{FEATURES, Report, TAG, find, lock, show};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::Result;
use crate::fields::{Fields, PatchField};
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The new name of a report.
#[derive(Clone, Debug, Request)]
#[request(check = check)]
pub struct ReportChanges {
    #[field(text(1..=MAX_TITLE), example = "Quarterly report")]
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
}

fn check(request: &ReportChanges, fields: &Fields<'_>) {
    if request.name == PatchField::Null {
        fields.problem("name", "Must not be null.");
    }
}

async fn update(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<ReportChanges>>) -> Result<Reply<Report>> {
    let report = lock(cx, tx).await?;
    if let PatchField::Value(name) = &parsed.valid()?.name {
        reports::rename(tx, report.brand_id, report.id, name).await?;
    }
    let changed = find(cx, tx).await?;
    Ok(Reply::from(Report::load_one(cx, tx, changed).await?))
}
