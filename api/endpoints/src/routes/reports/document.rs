//! The schema of a report's JSON file. The worker writes the file (`worker/reports/src/json.rs`); a test validates one
//! against this schema.

use chrono::NaiveDate;
use crier_domain::report::WidgetType;
use schemars::JsonSchema;
use serde_json::{Map, Value};

use crate::openapi::schema::TextEnum;

/// The days of a report, both included.
#[derive(JsonSchema)]
pub struct ReportDocumentPeriod {
    pub start: NaiveDate,
    pub end: NaiveDate,
}

/// A column of a widget's rows.
#[derive(JsonSchema)]
pub struct ReportDocumentColumn {
    /// The name of the value in each row.
    #[schemars(extend("examples" = ["published_at"]))]
    pub key: String,
    /// The heading of the column.
    #[schemars(extend("examples" = ["Published"]))]
    pub label: String,
    #[schemars(extend("enum" = ["text", "count", "percent", "date", "time", "link"]))]
    pub r#type: String,
}

/// A widget with its values.
#[derive(JsonSchema)]
pub struct ReportDocumentWidget {
    #[schemars(with = "TextEnum<WidgetType>")]
    pub r#type: WidgetType,
    #[schemars(extend("examples" = ["At a glance"]))]
    pub title: String,
    /// The reason there are no values, or a description of what was omitted.
    #[schemars(extend("examples" = [null]))]
    pub remark: Option<String>,
    pub columns: Vec<ReportDocumentColumn>,
    /// A value for each column: an integer, a percentage with one decimal place, a date, a local time such as
    /// `2026-10-01T09:30:00`, or text. Null if the value is unknown.
    #[schemars(extend("examples" = [[{ "metric": "Posts", "value": 12, "previous": 10, "change": 20.0 }]]))]
    pub rows: Vec<Map<String, Value>>,
}

/// The JSON file of a report.
#[derive(JsonSchema)]
pub struct ReportDocument {
    /// The version of the format. It increases when the format changes incompatibly.
    #[schemars(extend("examples" = [1], "const" = 1))]
    pub version: i64,
    #[schemars(extend("examples" = ["Monthly report"]))]
    pub title: String,
    #[schemars(extend("examples" = ["Brot & Söhne"]))]
    pub brand: String,
    #[schemars(extend("examples" = ["Agentur Müller"]))]
    pub workspace: String,
    pub period: ReportDocumentPeriod,
    /// The time zone of all dates and times.
    #[schemars(extend("examples" = ["Europe/Berlin"]))]
    pub timezone: String,
    /// The time at which the values were read.
    #[schemars(extend("examples" = ["2026-11-01T09:00:04"]))]
    pub created_at: String,
    pub widgets: Vec<ReportDocumentWidget>,
}
