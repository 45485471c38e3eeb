//! What can go wrong on the way, each with a page that says what happened and what to do.

use askama::Template;
use crier_platforms::ConnectError;
use crier_store::StoreError;
use http::StatusCode;

use crate::routes::accounts::save::{IS_OF_OTHERS, SaveError};

/// Why a step cannot be taken.
#[derive(Debug)]
pub(super) enum WrongTurn {
    /// No such URL.
    Unknown,
    Expired,
    Used,
    /// The person said no at the platform, whose name this is.
    Denied(&'static str),
    /// The platform's answer belongs to no attempt that is under way.
    WrongState,
    /// The answer names another issuer than the server that was asked.
    WrongIssuer(&'static str),
    /// The platform, which signs its answers, did not sign this one.
    NotAuthentic(&'static str),
    OtherBrowser,
    OtherSite,
    /// The purposes of the permissions that were not given, and the platform.
    MissingPermission(&'static str, Vec<String>),
    /// The platform, and what there would be to choose.
    NothingToChoose(&'static str, &'static str),
    /// The choice is not one of those that were offered.
    NotOffered,
    Full(u64),
    /// Brands of other users have the account, with other credentials.
    OfOthers,
    /// The platform does not answer, with its reason.
    Away(&'static str, String),
    /// The platform refused, with its reason.
    Refused(&'static str, String),
    NotConfigured,
    TooOften,
    /// Our database does not answer.
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

const OPEN_AGAIN: &str = "Open the link that you were given again to start once more.";
const ASK_FOR_NEW: &str = "Ask the person who gave you the link for a new one.";
const ASK_OPERATOR: &str = "Ask the operator of this Crier to look at it.";

/// A notice that is always the same.
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
    sentence: "There is no connection to be made at this address.",
    advice: "Check that the whole link was copied, or ask the sender for a new one.",
};
const EXPIRED: FixedNotice = FixedNotice {
    title: "This link has expired",
    sentence: "A link to connect an account works for 30 minutes.",
    advice: ASK_FOR_NEW,
};
const USED: FixedNotice = FixedNotice {
    title: "This link was used",
    sentence: "An account was connected with it. Each link connects one account, once.",
    advice: "If that was not you, tell the person who gave you the link; to connect another account, ask for a new \
             one.",
};
const WRONG_STATE: FixedNotice = FixedNotice {
    title: "This answer belongs to no connection",
    sentence: "The platform's answer does not belong to a connection that is under way here. Perhaps you started again \
               in another window, or this page was loaded twice.",
    advice: OPEN_AGAIN,
};
const OTHER_BROWSER: FixedNotice = FixedNotice {
    title: "This is another browser",
    sentence: "The connection was started in another browser, or its cookies were deleted meanwhile.",
    advice: "Go on in the browser in which you started, or open the link that you were given here. Cookies must be \
             allowed.",
};
const OTHER_SITE: FixedNotice = FixedNotice {
    title: "This did not come from this page",
    sentence: "Another website sent this form. Nothing was connected.",
    advice: OPEN_AGAIN,
};
const NOT_OFFERED: FixedNotice = FixedNotice {
    title: "This cannot be chosen",
    sentence: "It is not one of those that were offered.",
    advice: OPEN_AGAIN,
};
const NOT_CONFIGURED: FixedNotice = FixedNotice {
    title: "This platform is not set up",
    sentence: "No application for this platform is set up on this installation any more.",
    advice: ASK_OPERATOR,
};
const TOO_OFTEN: FixedNotice = FixedNotice {
    title: "Too many requests",
    sentence: "There were too many requests from your address.",
    advice: "Wait a minute. Then load this page again.",
};
const UNAVAILABLE: FixedNotice = FixedNotice {
    title: "Crier does not answer",
    sentence: "The database of this Crier does not answer right now. Nothing was connected.",
    advice: "Wait a minute. Then open the link that you were given again.",
};

impl WrongTurn {
    /// Returns the turn for a call to the platform that failed.
    pub(super) fn of(platform: &'static str, error: ConnectError) -> Self {
        match error {
            ConnectError::Field { message, .. } | ConnectError::Refused(message) => Self::Refused(platform, message),
            ConnectError::Unavailable(message) => Self::Away(platform, message),
        }
    }

    pub(super) fn of_save(platform: &'static str, error: SaveError) -> Self {
        match error {
            SaveError::Full(cap) => Self::Full(cap),
            SaveError::OfOthers => Self::OfOthers,
            SaveError::Refused(error) => Self::of(platform, error),
            SaveError::Store(error) => error.into(),
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Unknown => StatusCode::NOT_FOUND,
            Self::Expired | Self::Used => StatusCode::GONE,
            Self::WrongState | Self::WrongIssuer(_) | Self::NotAuthentic(_) | Self::NotOffered => {
                StatusCode::BAD_REQUEST
            }
            Self::Denied(_) | Self::OtherBrowser | Self::OtherSite | Self::MissingPermission(..) => {
                StatusCode::FORBIDDEN
            }
            Self::NothingToChoose(..) | Self::Full(_) | Self::OfOthers => StatusCode::CONFLICT,
            Self::Away(..) | Self::Refused(..) => StatusCode::BAD_GATEWAY,
            Self::TooOften => StatusCode::TOO_MANY_REQUESTS,
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
            Self::NotOffered => NOT_OFFERED.notice(),
            Self::NotConfigured => NOT_CONFIGURED.notice(),
            Self::TooOften => TOO_OFTEN.notice(),
            Self::Unavailable => UNAVAILABLE.notice(),
            Self::Denied(platform) => {
                let sentence = format!("{platform} says that the access was not granted.");
                Notice::new("Nothing was connected", sentence, OPEN_AGAIN)
            }
            Self::WrongIssuer(platform) => from_elsewhere(format!(
                "The answer names another server than the {platform} that you were sent to. It was not used."
            )),
            Self::NotAuthentic(platform) => {
                from_elsewhere(format!("The answer does not bear the signature of {platform}. It was not used."))
            }
            Self::MissingPermission(platform, missing) => missing_permission(platform, missing),
            Self::NothingToChoose(platform, noun) => nothing_to_choose(platform, noun),
            Self::Full(cap) => full(cap),
            Self::OfOthers => of_others(),
            Self::Away(platform, reason) => {
                let advice = "Wait a few minutes. Then open the link that you were given again.";
                Notice::with_reason(format!("{platform} does not answer"), reason, advice)
            }
            Self::Refused(platform, reason) => {
                Notice::with_reason(format!("{platform} did not accept this"), reason, OPEN_AGAIN)
            }
        }
    }
}

impl Notice {
    fn new(title: impl Into<String>, sentence: impl Into<String>, advice: &'static str) -> Self {
        Self { title: title.into(), sentences: vec![sentence.into()], items: Vec::new(), advice }
    }

    /// The platform failed or refused, with its reason.
    fn with_reason(title: String, reason: String, advice: &'static str) -> Self {
        Self { title, sentences: vec![reason, "Nothing was connected.".to_owned()], items: Vec::new(), advice }
    }
}

fn from_elsewhere(sentence: String) -> Notice {
    Notice::new("The answer came from somewhere else", sentence, OPEN_AGAIN)
}

fn missing_permission(platform: &str, missing: Vec<String>) -> Notice {
    let sentence = format!("{platform} did not give Crier the permission to:");
    let advice = "Open the link that you were given again, and leave all permissions switched on.";
    Notice { items: missing, ..Notice::new("A permission is missing", sentence, advice) }
}

fn nothing_to_choose(platform: &str, noun: &str) -> Notice {
    Notice::new(
        "There is nothing to connect",
        format!("{platform} shows no {noun} that you may publish on."),
        "Check at the platform that you manage one and that you gave Crier access to it. Then open the link again.",
    )
}

fn of_others() -> Notice {
    Notice::new(
        "Another brand has this account",
        format!("{IS_OF_OTHERS} Nothing was connected."),
        "Ask a member of that brand to connect the account here, too.",
    )
}

fn full(cap: u64) -> Notice {
    Notice::new(
        "There is no room for another account",
        format!("The brand has as many accounts as its plan allows: {cap}. Nothing was connected."),
        "Ask the owner of the brand to disconnect an account or to change the plan. Then open the link again.",
    )
}

impl From<StoreError> for WrongTurn {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "a step of connecting an account could not be taken");
        Self::Unavailable
    }
}
