//! Reports: widgets, formats, and the status of an export, which is called a delivery.
//!
//! ```text
//!           a run begins            the file is stored
//!  pending ─────────────> processing ─────────────────> sent
//!   ^ │ ^────── retry ─────────┘ │
//!   │ └────────> failed <────────┘      (final error, no attempts left)
//!   └─ by the operator ─┘
//! ```
//! A delivery whose run crashed stays `processing` until the next run starts. `sent` means that the file is ready; the
//! emails of a scheduled delivery have their own status.

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};

use super::mail::MailStatus;
use super::untrusted::{self, MAX_MESSAGE};

/// Maximum number of reports of a brand.
pub const MAX_REPORTS: usize = 500;
/// Maximum number of schedules of a report. They are not paginated.
pub const MAX_SCHEDULES: usize = 20;
pub const MAX_RECIPIENTS: usize = 20;
pub const MAX_WIDGETS: usize = 30;
/// Maximum length of a report's name and of a widget's title, in characters.
pub const MAX_TITLE: usize = 120;
/// Maximum length of a note, in characters.
pub const MAX_NOTE: usize = 20_000;
/// Maximum total size of the notes of a report, in bytes: the list of reports contains them.
pub const MAX_NOTES_BYTES: usize = 64 << 10;
/// Maximum number of days that a report covers.
pub const MAX_DAYS: i64 = 366;

/// The registry of formats: passes one line per format to a macro, `Format = name { extension }`. It is the only list
/// of formats.
///
/// **To add a format** `odt`: a line here, and `worker/reports/src/odt.rs` with its `write`.
///
/// The name is used in the API and stored: never change it.
#[macro_export]
macro_rules! for_each_report_format {
    ($macro:ident) => {
        $macro! {
            Pdf = pdf { "application/pdf" },
            Csv = csv { "text/csv; charset=utf-8" },
            Json = json { "application/json" },
            Pptx = pptx { "application/vnd.openxmlformats-officedocument.presentationml.presentation" },
            Xlsx = xlsx { "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" },
        }
    };
}

/// Generates [`ReportFormat`].
macro_rules! declare_report_format {
    ($($format:ident = $name:ident { $media_type:literal }),+ $(,)?) => {
        crier_base::text_enum! {
            /// A file format of reports. Its name is also the file's extension.
            pub enum ReportFormat { $($format = stringify!($name)),+ }
        }

        impl ReportFormat {
            /// Returns the value of `Content-Type`.
            pub const fn media_type(self) -> &'static str {
                match self { $(Self::$format => $media_type),+ }
            }
        }
    };
}

for_each_report_format!(declare_report_format);

impl ReportFormat {
    /// Returns whether this build writes the format.
    pub const fn is_available(self) -> bool {
        !matches!(self, Self::Pdf) || cfg!(feature = "pdf")
    }

    /// Fails with a message for the user if this build does not write the format.
    pub fn check_available(self) -> Result<(), String> {
        let message = || format!("This service was built without {self}. Choose another format.");
        self.is_available().then_some(()).ok_or_else(message)
    }
}

crier_base::text_enum! {
    /// What a widget shows.
    pub enum WidgetType {
        Summary = "summary",
        PostsOverTime = "posts_over_time",
        EngagementOverTime = "engagement_over_time",
        FollowersOverTime = "followers_over_time",
        TopPosts = "top_posts",
        PostsTable = "posts_table",
        AccountsTable = "accounts_table",
        Note = "note",
    }
}

crier_base::text_enum! {
    pub enum ReportDeliveryStatus { Pending = "pending", Processing = "processing", Sent = "sent", Failed = "failed" }
}

impl ReportDeliveryStatus {
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Sent | Self::Failed)
    }

    /// Returns the next status if the diagram allows the transition.
    pub fn to(self, next: Self) -> Result<Self, ReportDeliveryTransitionError> {
        use ReportDeliveryStatus::{Failed, Pending, Processing, Sent};
        let allowed = match self {
            Pending => matches!(next, Processing | Failed),
            Processing => matches!(next, Pending | Processing | Sent | Failed),
            Failed => matches!(next, Pending),
            Sent => false,
        };
        allowed.then_some(next).ok_or(ReportDeliveryTransitionError { from: self, to: next })
    }
}

/// The diagram does not allow this transition.
#[derive(Debug, thiserror::Error)]
#[error("a report delivery that is {from} cannot become {to}")]
pub struct ReportDeliveryTransitionError {
    pub from: ReportDeliveryStatus,
    pub to: ReportDeliveryStatus,
}

crier_base::text_enum! {
    /// The code of a failed export, or of a failed email with one.
    pub enum ReportErrorCode {
        StorageLimitExceeded = "storage_limit_exceeded",
        MailNotConfigured = "mail_not_configured",
        /// The mail server permanently rejects emails to this recipient.
        MailRefused = "mail_refused",
        /// The recipient unsubscribed from the workspace's reports.
        Unsubscribed = "unsubscribed",
        /// The workspace or the address has reached its limit of emails with reports on this UTC day.
        MailLimitReached = "mail_limit_reached",
        ReportFailed = "report_failed",
        InternalError = "internal_error",
    }
}

/// Why an export, its last attempt, or an email failed. The message is for users and reveals no internals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportError {
    pub code: ReportErrorCode,
    pub message: String,
}

impl ReportError {
    pub fn new(code: ReportErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: untrusted::line(&message.into(), MAX_MESSAGE) }
    }
}

/// A part of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportWidget {
    #[serde(rename = "type")]
    pub widget_type: WidgetType,
    pub title: Option<String>,
    /// The text of a note; `None` for other types.
    pub text: Option<String>,
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct Report {
    pub id: i64,
    pub brand_id: i64,
    pub name: String,
    #[cfg_attr(feature = "sqlx", sqlx(json))]
    pub widgets: Vec<ReportWidget>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// An export of a report.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct ReportDelivery {
    pub id: i64,
    pub report_id: i64,
    pub brand_id: i64,
    /// `None`: a user requested it, or its schedule was deleted.
    pub schedule_id: Option<i64>,
    pub status: ReportDeliveryStatus,
    pub format: ReportFormat,
    /// Whether a CSV file begins with a byte order mark.
    pub has_bom: bool,
    pub starts_on: NaiveDate,
    /// The last day, inclusive.
    pub ends_on: NaiveDate,
    /// `None`: the file does not exist yet, or was deleted.
    pub file_id: Option<i64>,
    pub size_bytes: Option<i64>,
    #[cfg_attr(feature = "sqlx", sqlx(json(nullable)))]
    pub error: Option<ReportError>,
    pub completed_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// A recipient of a delivery, with the status of the email.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct ReportRecipient {
    pub delivery_id: i64,
    pub recipient: String,
    pub status: MailStatus,
    #[cfg_attr(feature = "sqlx", sqlx(json(nullable)))]
    pub error: Option<ReportError>,
}

#[cfg(test)]
mod tests {
    use super::ReportDeliveryStatus::{self, Failed, Pending, Processing, Sent};

    /// `.ci/run` also tests a build without the feature.
    #[test]
    fn every_format_but_pdf_is_in_every_build() {
        use super::ReportFormat::{self, Pdf};
        assert!(ReportFormat::ALL.iter().all(|format| *format == Pdf || format.check_available() == Ok(())));
        let without_pdf = Err("This service was built without pdf. Choose another format.".to_owned());
        assert_eq!(Pdf.check_available(), if cfg!(feature = "pdf") { Ok(()) } else { without_pdf });
    }

    #[test]
    fn only_allowed_delivery_transitions_are_accepted() {
        let arrows = [
            (Pending, Processing),
            (Pending, Failed),
            (Processing, Pending),
            (Processing, Processing),
            (Processing, Sent),
            (Processing, Failed),
            (Failed, Pending),
        ];
        for from in ReportDeliveryStatus::ALL {
            for to in ReportDeliveryStatus::ALL {
                assert_eq!(from.to(*to).is_ok(), arrows.contains(&(*from, *to)), "{from} to {to}");
            }
        }
    }
}
