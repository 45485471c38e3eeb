//! Imports of posts from a file, and the columns that imports and exports have.
//!
//! ```text
//!              a run begins
//!  pending ────────────────> running ────> completed
//!   ^  ^ │                     │ │          │ (a dry run)
//!   │  │ └──────> failed <─────┘ │          │
//!   │  └── by the operator ┘     └─ again ──┤
//!   └──────────── start ────────────────────┘
//! ```

use chrono::{DateTime, Utc};

crier_base::text_enum! {
    /// The state of an import of posts.
    pub enum PostImportStatus { Pending = "pending", Running = "running", Completed = "completed", Failed = "failed" }
}

impl PostImportStatus {
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}

crier_base::text_enum! {
    /// The order of the numbers in dates such as `02/03/2026`. ISO 8601 is always accepted.
    pub enum DateFormat { Iso = "iso", DayFirst = "dmy", MonthFirst = "mdy", YearFirst = "ymd" }
}

crier_base::text_enum! {
    /// The format of exported posts.
    pub enum PostExportFormat { Csv = "csv", Json = "json" }
}

impl PostExportFormat {
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv",
            Self::Json => "application/json",
        }
    }
}

crier_base::text_enum! {
    /// When the post of a row is published: not yet, at its time, or at the next free slot of the brand's queue.
    pub enum PostSchedule { Draft = "draft", Scheduled = "scheduled", Queue = "queue" }
}

crier_base::text_enum! {
    /// A column of imported and exported posts.
    pub enum PostColumn {
        Content = "content",
        ScheduledAt = "scheduled_at",
        Schedule = "schedule",
        Accounts = "accounts",
        MediaUrls = "media_urls",
        Labels = "labels",
        FirstComment = "first_comment",
        ExternalRef = "external_ref",
    }
}

impl PostColumn {
    /// Returns the column of a field of a post, by its path (`media.0`).
    pub fn of(path: &str) -> Option<Self> {
        Some(match path.split('.').next()? {
            "content" => Self::Content,
            "scheduled_at" => Self::ScheduledAt,
            "schedule_type" => Self::Schedule,
            "accounts" => Self::Accounts,
            "media" => Self::MediaUrls,
            "labels" => Self::Labels,
            "first_comment" => Self::FirstComment,
            _ => return None,
        })
    }
}

/// The maximum size of a file, in bytes.
pub const MAX_IMPORT_BYTES: usize = 10 << 20;
/// The maximum number of posts in a file.
pub const MAX_IMPORT_ROWS: usize = 5_000;
/// The maximum number of errors of an import that are stored.
pub const MAX_IMPORT_ERRORS: i64 = 1_000;
/// The maximum length of an error's message, in characters.
pub const MAX_IMPORT_MESSAGE: usize = 500;
/// The maximum number of stored imports of a brand. A new one replaces the oldest one.
pub const MAX_POST_IMPORTS: i64 = 100;
/// The maximum number of default accounts of an import.
pub const MAX_IMPORT_ACCOUNTS: usize = 100;
/// The maximum length of a client's own name of a post, in characters.
pub const MAX_EXTERNAL_REF: usize = 200;

/// An import of posts.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct PostImport {
    pub id: i64,
    pub brand_id: i64,
    /// The author of the posts. `None` if the user was deleted.
    pub user_id: Option<i64>,
    pub status: PostImportStatus,
    /// Whether the rows are only checked.
    pub dry_run: bool,
    pub filename: Option<String>,
    /// The time zone of times without an offset.
    pub timezone: String,
    pub date_format: DateFormat,
    /// The accounts of rows that name none.
    #[cfg_attr(feature = "sqlx", sqlx(json))]
    pub accounts: Vec<i64>,
    /// The number of rows that were processed.
    pub rows_done: i32,
    pub rows_total: i32,
    pub rows_valid: i32,
    /// The number of valid rows whose posts take slots of the queue.
    pub rows_queued: i32,
    pub rows_imported: i32,
    pub rows_skipped: i32,
    /// Why the import failed, or why it ended early.
    pub error: Option<String>,
    /// Since when it waits for the files of its posts. `None` if it does not wait.
    pub waiting_since: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// A problem of a row. Row 1 has the headings.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct PostImportError {
    pub row_number: i32,
    /// The column. Empty if the problem is not that of a column.
    pub column_name: String,
    pub message: String,
}
