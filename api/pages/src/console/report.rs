//! `/brands/{brand}/reports/{report}`: a report with its widgets, files and schedules.

use std::collections::HashMap;

use askama::Template;
use chrono::NaiveDate;
use crier_domain::mail::MailStatus;
use crier_domain::recurrence::Frequency;
use crier_domain::report::{ReportDeliveryStatus, ReportErrorCode, ReportFormat};
use crier_domain::report_schedule::{last_days, local_day};
use crier_endpoints::error::{ApiError, Result};
use crier_endpoints::routes::reports::{self, ReportDelivery, ReportMail, ReportProblem, ReportSchedule, ReportWidget};
use http::StatusCode;
use serde_json::{Map, Value};

use super::days;
use super::form::Form;
use super::lists;
use super::paging;
use super::post_rows::beginning;
use super::reports::{kind, note};
use super::route::PageRoute;
use super::shared::{Badge, Choice, FieldErrors, Link, Pages, Time, Tone};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};
use crate::numbers::counted;

const MAX_NOTE_SHOWN: usize = 300;
/// The default time of a schedule.
const TIME: &str = "09:00";

#[derive(Template)]
#[template(path = "console/report.html")]
struct ReportPage {
    shell: Shell,
    /// Errors of the form that renames the report: `name`.
    name_errors: FieldErrors,
    /// Errors of the export form: `format`, `start`, `end`.
    errors: FieldErrors,
    /// Errors of the schedule form: `frequency`, `time`, `cron`, `recipients`, `format`.
    schedule_errors: FieldErrors,
    id: i64,
    name: String,
    /// The submitted name, else the current one.
    new_name: String,
    widgets: Vec<WidgetRow>,
    schedules: Vec<ScheduleRow>,
    exports: Vec<ExportRow>,
    pages: Pages,
    formats: Vec<Choice>,
    /// Whether a CSV file begins with a byte order mark.
    has_bom: bool,
    /// `YYYY-MM-DD`.
    start: String,
    end: String,
    /// Whether a mail server is configured.
    has_mail: bool,
    frequencies: Vec<Choice>,
    time: String,
    cron: String,
    /// One per line.
    recipients: String,
    schedule_formats: Vec<Choice>,
    schedule_has_bom: bool,
}

struct WidgetRow {
    /// The title of the widget, else that of its type.
    title: String,
    kind: String,
    /// The beginning of the text of a note.
    text: Option<String>,
}

struct ScheduleRow {
    id: i64,
    /// "Every Monday at 09:00", "Custom schedule (0 9 * * 1)"
    when: String,
    format: &'static str,
    recipients: Vec<String>,
    next_run: Time,
    last_run: Option<Time>,
    /// A message about the emails of the last run that a daily limit withheld.
    withheld: Option<String>,
}

struct ExportRow {
    days: String,
    format: &'static str,
    status: Badge,
    error: Option<String>,
    at: Time,
    /// Whether a schedule created the export.
    is_scheduled: bool,
    /// The URL and the size of the file.
    download: Option<Link>,
    mails: Vec<MailRow>,
    /// A message about the emails that a daily limit withheld.
    withheld: Option<String>,
}

struct MailRow {
    recipient: String,
    status: Badge,
    error: Option<String>,
}

/// The errors of the forms of the page, of which at most one was submitted.
#[derive(Default)]
struct Errors {
    name: FieldErrors,
    export: FieldErrors,
    schedule: FieldErrors,
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/reports/{report}", show),
        PageRoute::post("/brands/{brand}/reports/{report}", rename),
        PageRoute::post("/brands/{brand}/reports/{report}/delete", delete),
        PageRoute::post("/brands/{brand}/reports/{report}/export", export),
        PageRoute::get("/brands/{brand}/reports/{report}/exports/{delivery}/download", download),
        PageRoute::post("/brands/{brand}/reports/{report}/schedules", add_schedule),
        PageRoute::post("/brands/{brand}/reports/{report}/schedules/{schedule}/delete", delete_schedule),
    ]
}

async fn show(visit: &Visit) -> Result<PageReply> {
    render(visit, StatusCode::OK, Errors::default()).await
}

async fn render_errors(visit: &Visit, errors: Errors) -> Result<PageReply> {
    render(visit, StatusCode::UNPROCESSABLE_ENTITY, errors).await
}

async fn render(visit: &Visit, status: StatusCode, errors: Errors) -> Result<PageReply> {
    let report = visit.call().read(reports::show::endpoint(), ()).await?;
    let page = paging::number(visit);
    let listed = visit.call().read(reports::deliveries::endpoint(), paging::pages(page)).await?;
    let shell = visit.shell(Section::Reports, report.name.clone());
    // The newest files are first, so the first file of each schedule is that of its last run.
    let mut of_schedules = HashMap::new();
    for export in listed.rows.iter().filter(|_| page == 1) {
        if let Some(schedule) = export.schedule_id {
            of_schedules.entry(schedule).or_insert_with(|| withheld(export));
        }
    }
    // Only the submitted form shows the submitted values.
    let none = Form::default();
    let typed = |errors: &FieldErrors| if errors.is_empty() { &none } else { &visit.form };
    let (export, schedule) = (typed(&errors.export), typed(&errors.schedule));
    let (start, end) = last_days(local_day(visit.now, visit.zone()));
    let day = |name: &str, default: NaiveDate| export.get_or(name, &default.to_string()).to_owned();
    let view = ReportPage {
        id: report.id,
        new_name: typed(&errors.name).text("name").unwrap_or(&report.name).to_owned(),
        widgets: report.widgets.iter().map(widget).collect(),
        schedules: report.schedules.into_iter().map(|one| schedule_row(visit, one, &of_schedules)).collect(),
        pages: lists::links(&shell.page("reports", report.id, ""), &[], page, listed.rows.len(), listed.total),
        exports: listed.rows.into_iter().map(|one| export_row(visit, &shell, one)).collect(),
        formats: formats(export.get("format")),
        has_bom: export.has("bom"),
        start: day("start", start),
        end: day("end", end),
        has_mail: visit.app.mailer.is_some(),
        frequencies: frequencies(schedule.text("frequency").unwrap_or(Frequency::Weekly.as_str())),
        time: schedule.get_or("time", TIME).to_owned(),
        cron: schedule.get("cron").to_owned(),
        recipients: schedule.get("recipients").to_owned(),
        schedule_formats: formats(schedule.get("format")),
        schedule_has_bom: schedule.has("bom"),
        name: report.name,
        name_errors: errors.name,
        errors: errors.export,
        schedule_errors: errors.schedule,
        shell,
    };
    visit.page_with(status, &view)
}

const fn format_name(format: ReportFormat) -> &'static str {
    match format {
        ReportFormat::Pdf => "PDF",
        ReportFormat::Csv => "CSV",
        ReportFormat::Json => "JSON",
        ReportFormat::Pptx => "PowerPoint",
        ReportFormat::Xlsx => "Excel",
    }
}

fn formats(chosen: &str) -> Vec<Choice> {
    let all = ReportFormat::ALL.iter().filter(|format| format.is_available());
    all.map(|one| Choice::new(one.as_str(), format_name(*one), one.as_str() == chosen)).collect()
}

fn frequencies(chosen: &str) -> Vec<Choice> {
    let label = |one: Frequency| match one {
        Frequency::Daily => "Every day",
        Frequency::Weekly => "Every Monday",
        Frequency::Monthly => "On the 1st of each month",
        Frequency::Cron => "Custom schedule",
    };
    Frequency::ALL.iter().map(|one| Choice::new(one.as_str(), label(*one), one.as_str() == chosen)).collect()
}

fn widget(widget: &ReportWidget) -> WidgetRow {
    let kind = kind(widget.r#type);
    WidgetRow {
        title: widget.title.as_deref().unwrap_or(kind).to_owned(),
        kind: kind.to_owned(),
        text: note(widget).map(|text| beginning(text, MAX_NOTE_SHOWN)),
    }
}

/// `withheld` has the message of each schedule about the withheld emails of its last run, by schedule ID.
fn schedule_row(visit: &Visit, schedule: ReportSchedule, withheld: &HashMap<i64, Option<String>>) -> ScheduleRow {
    let time = schedule.time.unwrap_or_default();
    ScheduleRow {
        id: schedule.id,
        when: match schedule.frequency {
            Frequency::Daily => format!("Every day at {time}"),
            Frequency::Weekly => format!("Every Monday at {time}"),
            Frequency::Monthly => format!("On the 1st of each month at {time}"),
            Frequency::Cron => format!("Custom schedule ({})", schedule.cron.unwrap_or_default()),
        },
        format: format_name(schedule.format),
        recipients: schedule.recipients,
        next_run: visit.time(schedule.next_run_at.0),
        last_run: schedule.last_run_at.map(|at| visit.time(at.0)),
        withheld: withheld.get(&schedule.id).cloned().flatten(),
    }
}

/// Returns a message about the emails that a daily limit withheld.
fn withheld(export: &ReportDelivery) -> Option<String> {
    let errors = export.mail.iter().filter_map(|mail| mail.error.as_ref());
    let errors: Vec<&ReportProblem> = errors.filter(|error| error.code == ReportErrorCode::MailLimitReached).collect();
    let message = &errors.first()?.message;
    Some(format!("{} not sent. {message}", counted(errors.len(), "email was", "emails were")))
}

fn export_row(visit: &Visit, shell: &Shell, export: ReportDelivery) -> ExportRow {
    use ReportDeliveryStatus::{Failed, Pending, Processing, Sent};
    let file = export.download_url.is_some();
    let path = format!("reports/{}/exports", export.report_id);
    ExportRow {
        withheld: withheld(&export),
        days: days::range(Some(export.start), Some(export.end)),
        format: format_name(export.format),
        status: match export.status {
            Pending => Badge::new(Tone::Plain, "Waiting"),
            Processing => Badge::new(Tone::Info, "Creating"),
            Sent if file => Badge::new(Tone::Good, "Ready"),
            Sent => Badge::new(Tone::Plain, "File deleted"),
            Failed => Badge::new(Tone::Bad, "Failed"),
        },
        error: export.error.map(|error| error.message),
        at: visit.time(export.created_at.0),
        is_scheduled: export.schedule_id.is_some() || !export.mail.is_empty(),
        download: file.then(|| Link {
            label: size(export.size_bytes.unwrap_or_default()),
            href: shell.page(path, export.id, "download"),
        }),
        mails: export.mail.into_iter().map(mail).collect(),
    }
}

fn mail(mail: ReportMail) -> MailRow {
    let status = match mail.status {
        MailStatus::Pending => Badge::new(Tone::Plain, "Waiting"),
        MailStatus::Sent => Badge::new(Tone::Good, "Sent"),
        MailStatus::Failed => Badge::new(Tone::Bad, "Failed"),
    };
    MailRow { recipient: mail.recipient, status, error: mail.error.map(|error| error.message) }
}

fn size(bytes: i64) -> String {
    const KIB: i64 = 1 << 10;
    const MIB: i64 = 1 << 20;
    if bytes < MIB { format!("{} KiB", (bytes + KIB - 1) / KIB) } else { format!("{} MiB", (bytes + MIB - 1) / MIB) }
}

/// Redirects to the page of the report.
fn back(visit: &Visit, note: &'static str) -> Result<PageReply> {
    visit.to(&format!("reports/{}", visit.id("report").unwrap_or_default()), note)
}

async fn rename(visit: &Visit) -> Result<PageReply> {
    // The error for null would differ from that for an empty name.
    let body = Map::from_iter([("name".to_owned(), Value::from(visit.form.text("name").unwrap_or_default()))]);
    match visit.call().write(reports::update::endpoint(), visit.parse(&body)).await {
        Ok(_) => back(visit, "report-renamed"),
        Err(error) => render_errors(visit, Errors { name: form_errors(error)?, ..Errors::default() }).await,
    }
}

async fn delete(visit: &Visit) -> Result<PageReply> {
    visit.call().write(reports::delete::endpoint(), ()).await?;
    visit.to("reports", "report-deleted")
}

async fn export(visit: &Visit) -> Result<PageReply> {
    let mut body = visit.form.texts(&["format", "start", "end"]);
    body.insert("bom".to_owned(), visit.form.has("bom").into());
    match visit.call().write(reports::export::endpoint(), visit.parse(&body)).await {
        Ok(_) => back(visit, "report-exported"),
        Err(error) => render_errors(visit, Errors { export: form_errors(error)?, ..Errors::default() }).await,
    }
}

async fn download(visit: &Visit) -> Result<PageReply> {
    let delivery = visit.call().read(reports::delivery::endpoint(), ()).await?;
    if Some(delivery.report_id) != visit.id("report") {
        return Err(ApiError::not_found("file of this report"));
    }
    Ok(PageReply::File(Box::new(visit.call().download(reports::download::endpoint()).await?)))
}

async fn add_schedule(visit: &Visit) -> Result<PageReply> {
    let form = &visit.form;
    let mut body = form.texts(&["frequency", "time", "cron", "format"]);
    // The form contains both. The API accepts only the one that the frequency uses.
    body.insert("bom".to_owned(), form.has("bom").into());
    let unused = if form.get("frequency") == Frequency::Cron.as_str() { "time" } else { "cron" };
    body.remove(unused);
    let recipients = form.get("recipients").split(['\n', ',', ';']).map(str::trim);
    body.insert("recipients".to_owned(), recipients.filter(|address| !address.is_empty()).collect());
    match visit.call().write(reports::create_schedule::endpoint(), visit.parse(&body)).await {
        Ok(_) => back(visit, "schedule-added"),
        Err(error) => render_errors(visit, Errors { schedule: form_errors(error)?, ..Errors::default() }).await,
    }
}

async fn delete_schedule(visit: &Visit) -> Result<PageReply> {
    visit.call().write(reports::delete_schedule::endpoint(), ()).await?;
    back(visit, "schedule-deleted")
}
