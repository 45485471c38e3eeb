//! `POST /brands/{brand}/reports`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::report::{self, MAX_NOTE, MAX_NOTES_BYTES, MAX_REPORTS, MAX_TITLE, MAX_WIDGETS, WidgetType};
use crier_store::{Tx, brands, reports};
use schemars::JsonSchema;
use serde_json::json;

use super::{FEATURES, Report, TAG, show};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::{Fields, ParsedBody, PatchField};
use crate::openapi::schema::TextEnum;
use crate::request::Parsed;
use crate::response::{One, Reply};

/// The options of a note.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub struct NewWidgetOptions {
    /// Required for a note. Plain text with line breaks. Markdown and HTML are not interpreted.
    #[schemars(length(min = 1, max = MAX_NOTE))]
    pub text: Option<String>,
}

/// A widget of a report.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub struct NewReportWidget {
    #[schemars(with = "TextEnum<WidgetType>")]
    pub r#type: WidgetType,
    #[schemars(length(max = MAX_TITLE))]
    pub title: Option<String>,
    pub options: Option<NewWidgetOptions>,
}

/// The report to create.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
#[schemars(rename = "NewReport")]
pub struct CreateReportRequest {
    #[schemars(length(min = 1, max = MAX_TITLE))]
    pub name: String,
    #[schemars(length(min = 1, max = MAX_WIDGETS))]
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

// EXAMPLE CreateReportRequest: json!({ "name": "Monthly report", "widgets": [ { "type": "summary" }, { "type": "note", "title": "In short", "options": { "text": "October was our best month yet." } }, { "type": "followers_over_time", "title": "Followers" }, { "type": "top_posts" }, ], })
}

/// A parsed body.
struct ParsedReport {
    name: String,
    widgets: Vec<report::ReportWidget>,
}

fn read(f: &Fields<'_>) -> Option<ParsedReport> {
    let name = f.required("name", f.text("name", 1..=MAX_TITLE));
    let widgets = match f.objects("widgets", MAX_WIDGETS, read_widget) {
        PatchField::Value(widgets) if widgets.is_empty() && !f.problems.has("widgets") => {
            f.problem("widgets", "Choose at least one widget.");
            PatchField::Omitted
        }
        widgets => widgets,
    };
    let widgets = f.required("widgets", widgets)?;
    let bytes: usize = widgets.iter().filter_map(|widget| widget.text.as_ref()).map(String::len).sum();
    if bytes > MAX_NOTES_BYTES {
        let message =
            format!("The notes of a report can have at most {MAX_NOTES_BYTES} bytes in total; these have {bytes}.");
        f.problem("widgets", message);
    }
    Some(ParsedReport { name: name?, widgets })
}

fn read_widget(f: &Fields<'_>) -> Option<report::ReportWidget> {
    let widget_type = f.required("type", f.enum_value("type"));
    let title = f.text("title", 0..=MAX_TITLE).value().filter(|title| !title.trim().is_empty());
    let options = f.object("options").value();
    let text = match (widget_type, options) {
        (Some(WidgetType::Note), options) => {
            let empty = serde_json::Map::new();
            let within = f.within("options", options.unwrap_or(&empty));
            Some(within.required("text", within.text("text", 1..=MAX_NOTE))?)
        }
        _ => None,
    };
    Some(report::ReportWidget { widget_type: widget_type?, title, text })
}

async fn create(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<ParsedReport>>) -> Result<Reply<Report>> {
    let brand = cx.brand()?.id;
    let new = parsed.valid()?;
    brands::lock(tx, brand).await?;
    ApiError::check_cap("A brand", MAX_REPORTS, "reports", reports::count(tx, brand).await?, 1)?;
    let created = reports::create(tx, brand, &new.name, &new.widgets).await?;
    let id = created.id;
    let record = Report::load_one(cx, tx, created).await?;
    Ok(Reply::at(&format!("/brands/{brand}/reports/{id}"), record).with_records([id]))
}
