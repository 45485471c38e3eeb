//! `/brands/{brand}/reports` and `…/reports/new`: the reports of the brand, and the form for a new one.
//! `…/new?from={report}` copies the widgets of another report, because the widgets of a report cannot be changed.

use std::collections::BTreeMap;

use askama::Template;
use crier_domain::recurrence::Frequency;
use crier_domain::report::WidgetType;
use crier_endpoints::error::{ApiError, Result};
use crier_endpoints::request;
use crier_endpoints::routes::reports::{self, Report, ReportSchedule, ReportWidget};
use crier_endpoints::runner::call::Written;
use http::StatusCode;
use serde_json::{Value, json};

use super::lists;
use super::paging;
use super::route::PageRoute;
use super::shared::{FieldErrors, Pages, Time};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};
use crate::numbers::counted;

/// The maximum number of rows in the form: 30 widgets of a copied report, and the types and notes that it lacks.
const MAX_ROW: usize = 60;
/// The number of notes in a new form.
const NOTES: usize = 3;

#[derive(Template)]
#[template(path = "console/reports.html")]
struct Reports {
    shell: Shell,
    reports: Vec<ReportRow>,
    pages: Pages,
}

struct ReportRow {
    id: i64,
    name: String,
    /// "At a glance, Posts over time and 3 more".
    widgets: String,
    /// "Weekly, to 3 people". `None` if there is no schedule.
    schedule: Option<String>,
    next_run: Option<Time>,
    created: Time,
}

#[derive(Template)]
#[template(path = "console/report_form.html")]
struct ReportForm {
    shell: Shell,
    /// Errors of `name`, `widgets`, `widgets.N.title`, `widgets.N.options.text`. N is the row in this form.
    errors: FieldErrors,
    name: String,
    widgets: Vec<WidgetChoice>,
}

/// A row of the form.
#[derive(Default)]
struct WidgetChoice {
    /// The index in the form, starting at 0.
    index: usize,
    kind: String,
    label: String,
    hint: String,
    is_chosen: bool,
    /// The position in the report, starting at 1.
    position: i64,
    title: String,
    /// The text of a note.
    text: Option<String>,
}

impl WidgetChoice {
    /// Returns the name of a field: `widgets.3.title`.
    fn path(&self, field: &str) -> String {
        format!("widgets.{}.{field}", self.index)
    }
}

/// Returns the text of a note.
pub fn note(widget: &ReportWidget) -> Option<&str> {
    widget.options.as_ref()?.text.as_deref()
}

pub const fn kind(widget: WidgetType) -> &'static str {
    match widget {
        WidgetType::Summary => "At a glance",
        WidgetType::PostsOverTime => "Posts over time",
        WidgetType::EngagementOverTime => "Engagement over time",
        WidgetType::FollowersOverTime => "Followers over time",
        WidgetType::TopPosts => "Top posts",
        WidgetType::PostsTable => "All posts",
        WidgetType::AccountsTable => "Accounts",
        WidgetType::Note => "Note",
    }
}

const fn hint(widget: WidgetType) -> &'static str {
    match widget {
        WidgetType::Summary => "Totals and their changes from the previous period.",
        WidgetType::PostsOverTime => "Number of published posts.",
        WidgetType::EngagementOverTime => "Likes, comments, shares and clicks.",
        WidgetType::FollowersOverTime => "Number of followers of each account.",
        WidgetType::TopPosts => "Posts with the most engagement.",
        WidgetType::PostsTable => "Each post with its metrics.",
        WidgetType::AccountsTable => "Each account with its metrics.",
        WidgetType::Note => "Your own text.",
    }
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/reports", list),
        PageRoute::get("/brands/{brand}/reports/new", show_new),
        PageRoute::post("/brands/{brand}/reports/new", create),
    ]
}

async fn list(visit: &Visit) -> Result<PageReply> {
    let page = paging::number(visit);
    let listed = visit.call().read(reports::list::endpoint(), paging::pages(page)).await?;
    let shell = visit.shell(Section::Reports, "Reports");
    let row = |report: Report| ReportRow {
        id: report.id,
        widgets: widgets(&report.widgets),
        schedule: schedule(&report.schedules),
        next_run: report.schedules.iter().map(|one| one.next_run_at.0).min().map(|at| visit.time(at)),
        created: visit.time(report.created_at.0),
        name: report.name,
    };
    let pages = lists::links(&shell.at("reports"), &[], page, listed.rows.len(), listed.total);
    visit.page(&Reports { shell, reports: listed.rows.into_iter().map(row).collect(), pages })
}

fn widgets(all: &[ReportWidget]) -> String {
    const NAMED: usize = 2;
    let names: Vec<&str> = all.iter().take(NAMED).map(|widget| kind(widget.r#type)).collect();
    match all.len().saturating_sub(NAMED) {
        0 => names.join(" and "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

fn schedule(all: &[ReportSchedule]) -> Option<String> {
    let [one] = all else { return (!all.is_empty()).then(|| counted(all.len(), "schedule", "schedules")) };
    let when = match one.frequency {
        Frequency::Daily => "Daily",
        Frequency::Weekly => "Weekly",
        Frequency::Monthly => "Monthly",
        Frequency::Cron => "Custom",
    };
    Some(format!("{when}, to {}", counted(one.recipients.len(), "person", "people")))
}

async fn show_new(visit: &Visit) -> Result<PageReply> {
    let from = visit.query.get("from").and_then(|id| id.parse().ok()).filter(|id: &i64| *id > 0);
    let (name, rows) = match from {
        Some(id) => {
            let report = visit.call().id("report", id).read(reports::show::endpoint(), ()).await?;
            (report.name, rows(report.widgets))
        }
        None => {
            // Shows an error before the user fills in the form if the plan does not include reports.
            visit.call().read(reports::list::endpoint(), request::Pages { page: 1, per_page: 1 }).await?;
            (String::new(), rows(Vec::new()))
        }
    };
    render(visit, StatusCode::OK, FieldErrors::default(), name, rows)
}

fn render(
    visit: &Visit,
    status: StatusCode,
    errors: FieldErrors,
    name: String,
    widgets: Vec<WidgetChoice>,
) -> Result<PageReply> {
    let shell = visit.shell(Section::Reports, "New report");
    visit.page_with(status, &ReportForm { shell, errors, name, widgets })
}

/// Returns the rows of a new form: these widgets, then the other types and a few notes.
fn rows(chosen: Vec<ReportWidget>) -> Vec<WidgetChoice> {
    let is_new = chosen.is_empty();
    let missing: Vec<WidgetType> = WidgetType::ALL
        .iter()
        .copied()
        .filter(|one| *one != WidgetType::Note && chosen.iter().all(|widget| widget.r#type != *one))
        .collect();
    let notes = chosen.iter().filter(|widget| widget.r#type == WidgetType::Note).count();
    let missing = missing.into_iter().chain(std::iter::repeat_n(WidgetType::Note, NOTES.saturating_sub(notes)));
    let mut rows: Vec<WidgetChoice> = chosen
        .into_iter()
        .map(|widget| WidgetChoice {
            text: (widget.r#type == WidgetType::Note).then(|| note(&widget).unwrap_or_default().to_owned()),
            title: widget.title.unwrap_or_default(),
            is_chosen: true,
            ..row(widget.r#type)
        })
        .chain(missing.map(row))
        .collect();
    if is_new && let Some(first) = rows.first_mut() {
        first.is_chosen = true;
    }
    for (index, row) in rows.iter_mut().enumerate() {
        row.index = index;
        row.position = i64::try_from(index + 1).unwrap_or_default();
    }
    rows
}

fn row(widget: WidgetType) -> WidgetChoice {
    WidgetChoice {
        kind: widget.to_string(),
        label: kind(widget).to_owned(),
        hint: hint(widget).to_owned(),
        text: (widget == WidgetType::Note).then(String::new),
        ..WidgetChoice::default()
    }
}

/// Returns the submitted rows, in the order of the form.
fn submitted_rows(visit: &Visit) -> Vec<WidgetChoice> {
    let mut rows: BTreeMap<usize, WidgetChoice> = BTreeMap::new();
    for (path, value) in visit.form.under("widgets.") {
        let Some((index, field)) = path.split_once('.') else { continue };
        let Some(index) = index.parse().ok().filter(|index| *index < MAX_ROW) else { continue };
        let row = rows.entry(index).or_insert_with(|| WidgetChoice { index, ..WidgetChoice::default() });
        match field {
            "type" => {
                let known = value.parse().map(self::row).unwrap_or_else(|_| WidgetChoice {
                    kind: value.to_owned(),
                    label: value.to_owned(),
                    ..WidgetChoice::default()
                });
                (row.kind, row.label, row.hint) = (known.kind, known.label, known.hint);
                row.text = row.text.take().or(known.text);
            }
            "use" => row.is_chosen = true,
            "position" => row.position = value.parse().unwrap_or(99),
            "title" => row.title = value.to_owned(),
            "options.text" => row.text = Some(value.to_owned()),
            _ => {}
        }
    }
    rows.into_values().collect()
}

async fn create(visit: &Visit) -> Result<PageReply> {
    let rows = submitted_rows(visit);
    let mut chosen: Vec<&WidgetChoice> = rows.iter().filter(|row| row.is_chosen).collect();
    chosen.sort_by_key(|row| (row.position, row.index));
    let mut body = visit.form.texts(&["name"]);
    body.insert("widgets".to_owned(), chosen.iter().map(|row| widget(row)).collect());
    let created = visit.call().write(reports::create::endpoint(), visit.parse(&body)).await;
    match created.and_then(Written::into_value) {
        Ok(created) => visit.to(&format!("reports/{}", created.id), "report-made"),
        Err(error) => {
            let indexes: Vec<usize> = chosen.iter().map(|row| row.index).collect();
            let errors = form_errors(at_rows(error, &indexes))?;
            let rows = if rows.is_empty() { self::rows(Vec::new()) } else { rows };
            render(visit, StatusCode::UNPROCESSABLE_ENTITY, errors, visit.form.get("name").to_owned(), rows)
        }
    }
}

fn widget(row: &WidgetChoice) -> Value {
    let title = Some(row.title.trim()).filter(|title| !title.is_empty());
    match row.text.as_deref().map(str::trim).filter(|text| !text.is_empty()) {
        Some(text) => json!({ "type": row.kind, "title": title, "options": { "text": text } }),
        None => json!({ "type": row.kind, "title": title }),
    }
}

/// Changes the paths of errors from the position in the request to the row in the form.
fn at_rows(error: ApiError, indexes: &[usize]) -> ApiError {
    let at_row = |path: &str| {
        let (index, field) = path.strip_prefix("widgets.")?.split_once('.')?;
        Some(format!("widgets.{}.{field}", indexes.get(index.parse::<usize>().ok()?)?))
    };
    let fields = error.fields.into_iter().map(|(path, problems)| (at_row(&path).unwrap_or(path), problems)).collect();
    ApiError { fields, ..error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crier_endpoints::routes::reports::WidgetOptions;

    #[test]
    fn a_new_form_has_each_type_once_and_a_copy_keeps_its_widgets() {
        let new = rows(Vec::new());
        assert_eq!((new.len(), new.iter().filter(|row| row.is_chosen).count()), (WidgetType::ALL.len() - 1 + NOTES, 1));
        let note = |text: &str| ReportWidget {
            r#type: WidgetType::Note,
            title: None,
            options: Some(WidgetOptions { text: Some(text.to_owned()) }),
        };
        let copy = rows(vec![note("a"), note("b")]);
        assert_eq!(copy.iter().filter_map(|row| row.text.as_deref()).collect::<Vec<_>>(), ["a", "b", ""]);
        assert_eq!(copy.iter().filter(|row| row.is_chosen).count(), 2);
    }

    #[test]
    fn problems_are_put_at_their_rows() {
        let error = at_rows(ApiError::field("widgets.1.options.text", "Missing."), &[0, 7]);
        assert_eq!(error.fields.keys().collect::<Vec<_>>(), ["widgets.7.options.text"]);
        let error = at_rows(ApiError::field("widgets", "Missing."), &[]);
        assert_eq!(error.fields.keys().collect::<Vec<_>>(), ["widgets"]);
    }
}
