//! `POST /brands/{brand}/reports`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::report::{self, MAX_NOTE, MAX_NOTES_BYTES, MAX_REPORTS, MAX_TITLE, MAX_WIDGETS, WidgetType};
use crier_store::{Tx, brands, reports};
use serde_json::json;

use super::{FEATURES, Report, TAG, not_empty, show};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::{Fields, PatchField};
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The options of a note.
#[derive(Clone, Debug, Request)]
pub struct NewWidgetOptions {
    /// Required for a note. Plain text with line breaks. Markdown and HTML are not interpreted.
    #[field(text(1..=MAX_NOTE))]
    pub text: Option<String>,
}

/// A widget of a report.
#[derive(Clone, Debug, Request)]
#[request(check = check_widget)]
pub struct NewReportWidget {
    #[field(enum_value())]
    pub r#type: WidgetType,
    #[field(text(0..=MAX_TITLE))]
    pub title: Option<String>,
    #[field(object())]
    pub options: Option<NewWidgetOptions>,
}

/// The report to create.
#[derive(Clone, Debug, Request)]
#[request(name = "NewReport", check = check)]
pub struct CreateReportRequest {
    #[field(text(1..=MAX_TITLE), example = "Monthly report")]
    pub name: String,
    #[field(
        not_empty(objects(MAX_WIDGETS), "Choose at least one widget."),
        example = json!([
            { "type": "summary" },
            { "type": "note", "title": "In short", "options": { "text": "October was our best month yet." } },
            { "type": "followers_over_time", "title": "Followers" },
            { "type": "top_posts" },
        ])
    )]
    pub widgets: Vec<NewReportWidget>,
}

pub fn endpoint() -> Endpoint<CreateReportRequest, One<Report>> {
    Endpoint::post("/brands/{brand}/reports", "createReport", Scope::ReportsWrite)
        .tag(TAG)
        .adds(Growth::Records)
        .summary("Create a report")
        .description(
            "A report defines the content of its files. Its widgets cannot be changed later. A brand can have at most 500 \
             reports. The notes of a report can have at most 65,536 bytes in total.",
        )
        .features(FEATURES)
        .status(201)
        .error_codes(&[ErrorCode::LimitReached])
        .checks_then_writes(create)
        .with_rerender("report", show::show)
}

impl NewReportWidget {
    /// Returns the text of a note. `None` for other types.
    fn note(&self) -> Option<&str> {
        let text = self.options.as_ref()?.text.as_deref()?;
        (self.r#type == WidgetType::Note).then_some(text)
    }
}

impl From<&NewReportWidget> for report::ReportWidget {
    fn from(new: &NewReportWidget) -> Self {
        let title = new.title.clone().filter(|title| !title.trim().is_empty());
        Self { widget_type: new.r#type, title, text: new.note().map(str::to_owned) }
    }
}

fn check_widget(widget: &NewReportWidget, fields: &Fields<'_>) {
    if widget.r#type == WidgetType::Note {
        fields.required("options.text", widget.note().map_or(PatchField::Omitted, PatchField::Value));
    }
}

fn check(request: &CreateReportRequest, fields: &Fields<'_>) {
    let bytes: usize = request.widgets.iter().filter_map(NewReportWidget::note).map(str::len).sum();
    if bytes > MAX_NOTES_BYTES {
        let message =
            format!("The notes of a report can have at most {MAX_NOTES_BYTES} bytes in total; these have {bytes}.");
        fields.problem("widgets", message);
    }
}

async fn create(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<CreateReportRequest>>) -> Result<Reply<Report>> {
    let brand = cx.brand()?.id;
    let new = parsed.valid()?;
    brands::lock(tx, brand).await?;
    ApiError::check_cap("A brand", MAX_REPORTS, "reports", reports::count(tx, brand).await?, 1)?;
    let widgets: Vec<report::ReportWidget> = new.widgets.iter().map(Into::into).collect();
    let created = reports::create(tx, brand, &new.name, &widgets).await?;
    let id = created.id;
    let record = Report::load_one(cx, tx, created).await?;
    Ok(Reply::at(&format!("/brands/{brand}/reports/{id}"), record).with_records([id]))
}
