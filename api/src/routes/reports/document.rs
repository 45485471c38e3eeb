//! The schema of a report's JSON file. The worker writes it (`worker/reports/src/json.rs`); a test validates one against
//! this.

use chrono::NaiveDate;
use crier_domain::report::WidgetType;
use serde_json::{Map, Value};

use crate::openapi::schema::described;

described! {
    /// The days of a report, both included.
    pub struct ReportDocumentPeriod {
        pub start: NaiveDate,
        pub end: NaiveDate,
    }

    /// A column of a widget's rows.
    pub struct ReportDocumentColumn {
        /// The name of the value in each row.
        pub key: String { "examples": ["published_at"] },
        /// For people.
        pub label: String { "examples": ["Published"] },
        pub r#type: String { "enum": ["text", "count", "date", "time", "link"] },
    }

    /// A widget with its values.
    pub struct ReportDocumentWidget {
        pub r#type: WidgetType,
        pub title: String { "examples": ["At a glance"] },
        /// Why there are no values, or what was left out.
        pub remark: Option<String> { "examples": [null] },
        pub columns: Vec<ReportDocumentColumn>,
        /// A value for each column: a whole number, a day, a local time such as `2026-10-01T09:30:00`, or text; null
        /// where no platform gave one.
        pub rows: Vec<Map<String, Value>> { "examples": [[{ "metric": "Posts", "value": 12, "previous": null }]] },
    }

    /// The JSON file of a report.
    pub struct ReportDocument {
        /// Rises when the shape changes in a way that programs notice.
        pub version: i64 { "const": 1, "examples": [1] },
        pub title: String { "examples": ["Monthly report"] },
        pub brand: String { "examples": ["Brot & Söhne"] },
        pub workspace: String { "examples": ["Agentur Müller"] },
        pub period: ReportDocumentPeriod,
        /// All days and times are local ones of this zone.
        pub timezone: String { "examples": ["Europe/Berlin"] },
        /// When the values were read.
        pub created_at: String { "examples": ["2026-11-01T09:00:04"] },
        pub widgets: Vec<ReportDocumentWidget>,
    }
}
