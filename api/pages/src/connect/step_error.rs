//! The errors of the steps. Each has a page that says what happened and what to do.

use askama::Template;
use crier_endpoints::routes::accounts::save::{OWNED_BY_OTHERS, SaveError};
use crier_platforms::ConnectError;
use crier_store::StoreError;
use http::StatusCode;

/// The reason why a step failed.
#[derive(Debug)]
pub(super) enum StepError {
    /// The URL does not exist.
    Unknown,
    Expired,
    Used,
    /// The user denied access. Contains the platform's name, as in the other variants.
    Denied(&'static str),
    /// The platform's response does not belong to an attempt in progress.
    WrongState,
    /// The response names a different issuer than the requested server.
    WrongIssuer(&'static str),
    /// The platform signs its responses, and the signature of this one is missing or wrong.
    NotAuthentic(&'static str),
    OtherBrowser,
    OtherSite,
    /// The purposes of the permissions that were not granted.
    MissingPermission(&'static str, Vec<String>),
    /// The platform returned nothing to choose from. The second value is the noun for it, such as "page".
    NothingToChoose(&'static str, &'static str),
    /// The submitted choice is not in the list.
    InvalidChoice,
    AccountLimit(u64),
    /// The account is connected to brands of other users, with other credentials.
    OtherBrand,
    /// The platform is unavailable, with the reason.
    PlatformUnavailable(&'static str, String),
    /// The platform rejected the request, with the reason.
    PlatformRejected(&'static str, String),
    NotConfigured,
    RateLimited,
    /// Crier's database is unavailable.
    Unavailable,
}

#[derive(Template)]
#[template(path = "connect_notice.html")]
pub(super) struct Notice {
    title: String,
    sentences: Vec<String>,
    items: Vec<String>,
    advice: &'static str,
}

const OPEN_AGAIN: &str = "To start again, open your link again.";
const ASK_FOR_NEW: &str = "Ask the person who sent you the link for a new one.";
const ASK_OPERATOR: &str = "Ask the operator of this Crier installation to fix this.";

/// A notice without variable parts.
struct FixedNotice {
    title: &'static str,
    sentence: &'static str,
    advice: &'static str,
}

impl FixedNotice {
    fn notice(&self) -> Notice {
        Notice::new(self.title, self.sentence, self.advice)
    }
}

const UNKNOWN: FixedNotice = FixedNotice {
    title: "This link does not exist",
    sentence: "No account can be connected with this URL.",
    advice: "Check that you copied the whole link, or ask the sender for a new one.",
};
const EXPIRED: FixedNotice = FixedNotice {
    title: "This link has expired",
    sentence: "A link to connect an account works for 30 minutes.",
    advice: ASK_FOR_NEW,
};
const USED: FixedNotice = FixedNotice {
    title: "This link has already been used",
    sentence: "An account was connected with this link. Each link works once.",
    advice: "If that was not you, tell the person who sent you the link. To connect another account, ask for a new \
             link.",
};
const WRONG_STATE: FixedNotice = FixedNotice {
    title: "This response does not match a connection",
    sentence: "The platform's response does not belong to a connection in progress. You may have started again in another \
               window, or loaded this page twice.",
    advice: OPEN_AGAIN,
};
const OTHER_BROWSER: FixedNotice = FixedNotice {
    title: "This is a different browser",
    sentence: "The connection was started in a different browser, or the cookies were deleted in the meantime.",
    advice: "Continue in the browser in which you started, or open your link in this browser. Cookies must be allowed.",
};
const OTHER_SITE: FixedNotice = FixedNotice {
    title: "This form did not come from this page",
    sentence: "Another website sent this form. No account was connected.",
    advice: OPEN_AGAIN,
};
const INVALID_CHOICE: FixedNotice = FixedNotice {
    title: "This choice is not available",
    sentence: "Your choice is not in the list.",
    advice: OPEN_AGAIN,
};
const NOT_CONFIGURED: FixedNotice = FixedNotice {
    title: "This platform is not set up",
    sentence: "This installation no longer has an application for this platform.",
    advice: ASK_OPERATOR,
};
const RATE_LIMITED: FixedNotice = FixedNotice {
    title: "Too many requests",
    sentence: "There were too many requests from your address.",
    advice: "Wait a minute, then reload this page.",
};
const UNAVAILABLE: FixedNotice = FixedNotice {
    title: "Crier is unavailable",
    sentence: "The database does not respond. No account was connected.",
    advice: "Wait a minute, then open your link again.",
};

impl StepError {
    /// Returns the error for a failed call to the platform.
    pub(super) fn of(platform: &'static str, error: ConnectError) -> Self {
        match error {
            ConnectError::Field { message, .. } | ConnectError::Rejected(message) => {
                Self::PlatformRejected(platform, message)
            }
            ConnectError::Unavailable(message) => Self::PlatformUnavailable(platform, message),
        }
    }

    pub(super) fn of_save(platform: &'static str, error: SaveError) -> Self {
        match error {
            SaveError::Full(cap) => Self::AccountLimit(cap),
            SaveError::OwnedByOthers => Self::OtherBrand,
            SaveError::Rejected(error) => Self::of(platform, error),
            SaveError::Store(error) => error.into(),
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Unknown => StatusCode::NOT_FOUND,
            Self::Expired | Self::Used => StatusCode::GONE,
            Self::WrongState | Self::WrongIssuer(_) | Self::NotAuthentic(_) | Self::InvalidChoice => {
                StatusCode::BAD_REQUEST
            }
            Self::Denied(_) | Self::OtherBrowser | Self::OtherSite | Self::MissingPermission(..) => {
                StatusCode::FORBIDDEN
            }
            Self::NothingToChoose(..) | Self::AccountLimit(_) | Self::OtherBrand => StatusCode::CONFLICT,
            Self::PlatformUnavailable(..) | Self::PlatformRejected(..) => StatusCode::BAD_GATEWAY,
            Self::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Self::NotConfigured | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    pub(super) fn page(self) -> Notice {
        match self {
            Self::Unknown => UNKNOWN.notice(),
            Self::Expired => EXPIRED.notice(),
            Self::Used => USED.notice(),
            Self::WrongState => WRONG_STATE.notice(),
            Self::OtherBrowser => OTHER_BROWSER.notice(),
            Self::OtherSite => OTHER_SITE.notice(),
            Self::InvalidChoice => INVALID_CHOICE.notice(),
            Self::NotConfigured => NOT_CONFIGURED.notice(),
            Self::RateLimited => RATE_LIMITED.notice(),
            Self::Unavailable => UNAVAILABLE.notice(),
            Self::Denied(platform) => {
                let sentence = format!("{platform} reports that access was not granted.");
                Notice::new("No account was connected", sentence, OPEN_AGAIN)
            }
            Self::WrongIssuer(platform) => wrong_sender(format!(
                "The response names a different server than the {platform} server that you were sent to. Crier rejected it."
            )),
            Self::NotAuthentic(platform) => {
                wrong_sender(format!("The response is not signed by {platform}. Crier rejected it."))
            }
            Self::MissingPermission(platform, missing) => missing_permission(platform, missing),
            Self::NothingToChoose(platform, noun) => nothing_to_choose(platform, noun),
            Self::AccountLimit(cap) => account_limit(cap),
            Self::OtherBrand => other_brand(),
            Self::PlatformUnavailable(platform, reason) => {
                let advice = "Wait a few minutes, then open your link again.";
                Notice::with_reason(format!("{platform} is unavailable"), reason, advice)
            }
            Self::PlatformRejected(platform, reason) => {
                Notice::with_reason(format!("{platform} rejected the connection"), reason, OPEN_AGAIN)
            }
        }
    }
}

impl Notice {
    fn new(title: impl Into<String>, sentence: impl Into<String>, advice: &'static str) -> Self {
        Self { title: title.into(), sentences: vec![sentence.into()], items: Vec::new(), advice }
    }

    /// Returns the notice for an error of the platform.
    fn with_reason(title: String, reason: String, advice: &'static str) -> Self {
        Self { title, sentences: vec![reason, "No account was connected.".to_owned()], items: Vec::new(), advice }
    }
}

fn wrong_sender(sentence: String) -> Notice {
    Notice::new("The response came from somewhere else", sentence, OPEN_AGAIN)
}

fn missing_permission(platform: &str, missing: Vec<String>) -> Notice {
    let sentence = format!("{platform} did not give Crier permission to:");
    let advice = "Open your link again, and keep all permissions enabled.";
    Notice { items: missing, ..Notice::new("A permission is missing", sentence, advice) }
}

fn nothing_to_choose(platform: &str, noun: &str) -> Notice {
    Notice::new(
        "There is nothing to connect",
        format!("{platform} returned no {noun} that you can publish to."),
        "Check on the platform that you manage one and that you gave Crier access to it. Then open the link again.",
    )
}

fn other_brand() -> Notice {
    Notice::new(
        "Another brand has this account",
        format!("{OWNED_BY_OTHERS} No account was connected."),
        "Ask a member of that brand to connect the account to this brand.",
    )
}

fn account_limit(cap: u64) -> Notice {
    Notice::new(
        "The brand cannot have another account",
        format!("The brand has the maximum number of accounts in its plan: {cap}. No account was connected."),
        "Ask the person who sent you the link to disconnect another account, or to ask the operator of this Crier \
         installation for a larger plan. Then open the link again.",
    )
}

impl From<StoreError> for StepError {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "failed to connect an account");
        Self::Unavailable
    }
}
