//! Reports: their content, their exports (called deliveries), and their schedules.
//!
//! An export is a row and a job. The worker creates the file (`worker/src/jobs/export_report`).

use crier_domain::mail::MailStatus;
use crier_domain::plan::Feature;
use crier_domain::recurrence::Frequency;
use crier_domain::report::{self, ReportDeliveryStatus, ReportErrorCode, ReportFormat, ReportRecipient, WidgetType};
use crier_domain::report_schedule;
use crier_store::{Conn, Tx, report_deliveries, report_schedules, reports};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::PREFIX;
use crate::context::Context;
use crate::endpoint::AnyEndpoint;
use crate::error::{ApiError, Result};
use crate::fields::{Fields, PatchField};
use crate::openapi::schema::TextEnum;
use crate::request::Format;
use crate::response::{ScheduledTimestamp, Timestamp};

pub mod create;
pub mod create_schedule;
pub mod delete;
pub mod delete_schedule;
pub mod deliveries;
pub mod delivery;
pub mod document;
pub mod download;
pub mod export;
pub mod list;
pub mod show;
pub mod update;

pub const TAG: &str = "Reports";
const FEATURES: &[Feature] = &[Feature::Reports];

pub fn endpoints() -> Vec<AnyEndpoint> {
    vec![
        list::endpoint().erase(),
        create::endpoint().erase(),
        show::endpoint().erase(),
        update::endpoint().erase(),
        delete::endpoint().erase(),
        export::endpoint().erase(),
        deliveries::endpoint().erase(),
        delivery::endpoint().erase(),
        download::endpoint().erase(),
        create_schedule::endpoint().erase(),
        delete_schedule::endpoint().erase(),
    ]
}

/// The options of a note.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WidgetOptions {
    /// Plain text with line breaks. Markdown and HTML are not interpreted.
    #[schemars(extend("examples" = ["October was our best month yet."]))]
    pub text: Option<String>,
}

/// A widget of a report.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ReportWidget {
    #[schemars(with = "TextEnum<WidgetType>")]
    pub r#type: WidgetType,
    /// The title above the widget. Null uses the default title of the type.
    #[schemars(extend("examples" = ["At a glance"]))]
    pub title: Option<String>,
    /// The options of a note. Null for other types.
    pub options: Option<WidgetOptions>,
}

/// A schedule on which Crier exports and emails a report.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ReportSchedule {
    pub id: i64,
    pub report_id: i64,
    #[schemars(with = "TextEnum<Frequency>")]
    pub frequency: Frequency,
    /// A cron expression with five POSIX fields. Null for other frequencies.
    #[schemars(extend("examples" = [null], "x-extension" = true))]
    pub cron: Option<String>,
    /// The local time, as `HH:MM`. Null if `frequency` is `cron`.
    #[schemars(extend("examples" = ["09:00"], "x-extension" = true))]
    pub time: Option<String>,
    /// The brand's time zone.
    #[schemars(extend("examples" = ["Europe/Berlin"]))]
    pub timezone: String,
    #[schemars(extend("examples" = [["ann@example.com"]]))]
    pub recipients: Vec<String>,
    #[schemars(with = "TextEnum<ReportFormat>")]
    pub format: ReportFormat,
    /// Whether a CSV file begins with a byte order mark.
    #[schemars(extend("examples" = [false], "x-extension" = true))]
    pub bom: bool,
    pub next_run_at: ScheduledTimestamp,
    pub last_run_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A report.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    pub id: i64,
    #[schemars(extend("examples" = ["Monthly report"]))]
    pub name: String,
    pub widgets: Vec<ReportWidget>,
    /// The schedules, oldest first.
    pub schedules: Vec<ReportSchedule>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The reason an export or an email failed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReportProblem {
    #[schemars(with = "TextEnum<ReportErrorCode>")]
    pub code: ReportErrorCode,
    /// A human-readable message.
    pub message: String,
}

/// An email with a scheduled report.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReportMail {
    #[schemars(email)]
    pub recipient: String,
    #[schemars(with = "TextEnum<MailStatus>")]
    pub status: MailStatus,
    pub error: Option<ReportProblem>,
}

/// An export of a report.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReportDelivery {
    pub id: i64,
    pub report_id: i64,
    /// The schedule that started the export. Null if the export was requested directly or the schedule was deleted.
    #[schemars(extend("examples" = [null]))]
    pub schedule_id: Option<i64>,
    /// The status of the export. The file is available if it is `sent`.
    #[schemars(with = "TextEnum<ReportDeliveryStatus>")]
    pub status: ReportDeliveryStatus,
    #[schemars(with = "TextEnum<ReportFormat>")]
    pub format: ReportFormat,
    /// The first day.
    pub start: chrono::NaiveDate,
    /// The last day.
    pub end: chrono::NaiveDate,
    #[schemars(extend("examples" = [48213]))]
    pub size_bytes: Option<i64>,
    /// The reason the export failed or, while it is pending, the reason the previous attempt failed.
    #[schemars(extend("examples" = [null]))]
    pub error: Option<ReportProblem>,
    /// The absolute path of the file on this host. Null until the file is available and after it is deleted.
    #[schemars(extend("examples" = ["/api/public/v1/brands/17/reports/deliveries/42/download"], "format" = "uri-reference"))]
    pub download_url: Option<String>,
    /// The emails of a scheduled export.
    #[schemars(extend("x-extension" = true))]
    pub mail: Vec<ReportMail>,
    pub completed_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl From<report::ReportWidget> for ReportWidget {
    fn from(w: report::ReportWidget) -> Self {
        let options = w.text.map(|text| WidgetOptions { text: Some(text) });
        Self { r#type: w.widget_type, title: w.title, options }
    }
}

impl ReportSchedule {
    fn new(s: report_schedule::ReportSchedule, timezone: &str) -> Self {
        Self {
            id: s.id,
            report_id: s.report_id,
            frequency: s.frequency,
            cron: s.cron,
            time: s.time,
            timezone: timezone.to_owned(),
            recipients: s.recipients,
            format: s.format,
            bom: s.has_bom,
            next_run_at: s.next_run_at.into(),
            last_run_at: s.last_run_at.map(Into::into),
            created_at: s.created_at.into(),
            updated_at: s.updated_at.into(),
        }
    }
}

impl Report {
    /// Returns reports with their schedules.
    async fn load(cx: &Context, conn: &mut Conn, found: Vec<report::Report>) -> Result<Vec<Self>> {
        let ids: Vec<i64> = found.iter().map(|report| report.id).collect();
        let schedules = report_schedules::of_reports(conn, &ids).await?;
        let records = found.into_iter().map(|report| Self {
            id: report.id,
            schedules: schedules
                .iter()
                .filter(|schedule| schedule.report_id == report.id)
                .map(|schedule| ReportSchedule::new(schedule.clone(), cx.zone()))
                .collect(),
            name: report.name,
            widgets: report.widgets.into_iter().map(Into::into).collect(),
            created_at: report.created_at.into(),
            updated_at: report.updated_at.into(),
        });
        Ok(records.collect())
    }

    async fn load_one(cx: &Context, conn: &mut Conn, found: report::Report) -> Result<Self> {
        let mut loaded = Self::load(cx, conn, vec![found]).await?;
        loaded.pop().ok_or_else(|| ApiError::bug("a report was not loaded"))
    }
}

impl From<report::ReportError> for ReportProblem {
    fn from(error: report::ReportError) -> Self {
        Self { code: error.code, message: error.message }
    }
}

impl ReportDelivery {
    /// Returns deliveries with their emails.
    async fn load(conn: &mut Conn, found: Vec<report::ReportDelivery>) -> Result<Vec<Self>> {
        let ids: Vec<i64> = found.iter().map(|delivery| delivery.id).collect();
        let recipients = report_deliveries::recipients_of(conn, &ids).await?;
        let mails = |id: i64| recipients.iter().filter(move |to| to.delivery_id == id).cloned().map(ReportMail::from);
        Ok(found.into_iter().map(|delivery| Self::new(mails(delivery.id).collect(), delivery)).collect())
    }

    async fn load_one(conn: &mut Conn, found: report::ReportDelivery) -> Result<Self> {
        let mut loaded = Self::load(conn, vec![found]).await?;
        loaded.pop().ok_or_else(|| ApiError::bug("a delivery was not loaded"))
    }

    fn new(mail: Vec<ReportMail>, d: report::ReportDelivery) -> Self {
        let path = || format!("{PREFIX}{}/download", delivery_path(d.brand_id, d.id));
        Self {
            id: d.id,
            report_id: d.report_id,
            schedule_id: d.schedule_id,
            status: d.status,
            format: d.format,
            start: d.starts_on,
            end: d.ends_on,
            size_bytes: d.size_bytes,
            error: d.error.map(Into::into),
            download_url: d.file_id.map(|_| path()),
            mail,
            completed_at: d.completed_at.map(Into::into),
            created_at: d.created_at.into(),
            updated_at: d.updated_at.into(),
        }
    }
}

impl From<ReportRecipient> for ReportMail {
    fn from(to: ReportRecipient) -> Self {
        Self { recipient: to.recipient, status: to.status, error: to.error.map(Into::into) }
    }
}

/// Adds a problem if this build cannot write the format.
fn check_available(fields: &Fields<'_>, format: ReportFormat) {
    if let Err(message) = format.check_available() {
        fields.problem("format", message);
    }
}

/// A list that is not empty. `message` is the problem of an empty one.
fn not_empty<F>(list: F, message: &'static str) -> NotEmpty<F> {
    NotEmpty { list, message }
}

struct NotEmpty<F> {
    list: F,
    message: &'static str,
}

impl<T, F: Format<Value = Vec<T>>> Format for NotEmpty<F> {
    type Value = Vec<T>;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<Vec<T>> {
        match self.list.read(fields, name) {
            // A list may be empty because all its elements have problems.
            PatchField::Value(list) if list.is_empty() && !fields.problems.has(&fields.path(name)) => {
                fields.problem(name, self.message);
                PatchField::Omitted
            }
            found => found,
        }
    }

    fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        let mut schema = self.list.schema(generator);
        schema.insert("minItems".to_owned(), 1.into());
        schema
    }
}

/// Returns the path of a delivery, relative to the API's base.
fn delivery_path(brand_id: i64, delivery_id: i64) -> String {
    format!("/brands/{brand_id}/reports/deliveries/{delivery_id}")
}

/// Returns the report in the path; 404 if it does not exist.
async fn find(cx: &Context, conn: &mut Conn) -> Result<report::Report> {
    let found = reports::find(conn, cx.brand()?.id, cx.id("report")?).await?;
    found.ok_or_else(|| ApiError::not_found("report"))
}

/// Locks and returns the report in the path; 404 if it does not exist.
async fn lock(cx: &Context, tx: &mut Tx) -> Result<report::Report> {
    let found = reports::find_for_update(tx, cx.brand()?.id, cx.id("report")?).await?;
    found.ok_or_else(|| ApiError::not_found("report"))
}
