//! What can go wrong on the way, each with a page that says what happened and what to do.

use askama::Template;
use crier_platforms::ConnectError;
use crier_store::StoreError;
use http::StatusCode;

use crate::routes::accounts::save::SaveError;

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
            Self::NothingToChoose(..) | Self::Full(_) => StatusCode::CONFLICT,
            Self::Away(..) | Self::Refused(..) => StatusCode::BAD_GATEWAY,
            Self::TooOften => StatusCode::TOO_MANY_REQUESTS,
            Self::NotConfigured | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    pub(super) fn page(self) -> Notice {
        let notice = |title: &str, sentence: &str, advice| Notice {
            title: title.to_owned(),
            sentences: vec![sentence.to_owned()],
            items: Vec::new(),
            advice,
        };
        match self {
            Self::Unknown => notice(
                "This link does not exist",
                "There is no connection to be made at this address.",
                "Check that the whole link was copied, or ask the sender for a new one.",
            ),
            Self::Expired => {
                notice("This link has expired", "A link to connect an account works for 30 minutes.", ASK_FOR_NEW)
            }
            Self::Used => notice(
                "This link was used",
                "An account was connected with it. Each link connects one account, once.",
                "If that was not you, tell the person who gave you the link; to connect another account, ask for a \
                 new one.",
            ),
            Self::Denied(platform) => notice(
                "Nothing was connected",
                &format!("{platform} says that the access was not granted."),
                OPEN_AGAIN,
            ),
            Self::WrongState => notice(
                "This answer belongs to no connection",
                "The platform's answer does not belong to a connection that is under way here. Perhaps you started again \
                 in another window, or this page was loaded twice.",
                OPEN_AGAIN,
            ),
            Self::WrongIssuer(platform) => notice(
                "The answer came from somewhere else",
                &format!("The answer names another server than the {platform} that you were sent to. It was not used."),
                OPEN_AGAIN,
            ),
            Self::NotAuthentic(platform) => notice(
                "The answer came from somewhere else",
                &format!("The answer does not bear the signature of {platform}. It was not used."),
                OPEN_AGAIN,
            ),
            Self::OtherBrowser => notice(
                "This is another browser",
                "The connection was started in another browser, or its cookies were deleted meanwhile.",
                "Go on in the browser in which you started, or open the link that you were given here. Cookies must be \
                 allowed.",
            ),
            Self::OtherSite => notice(
                "This did not come from this page",
                "Another website sent this form. Nothing was connected.",
                OPEN_AGAIN,
            ),
            Self::MissingPermission(platform, missing) => Notice {
                title: "A permission is missing".to_owned(),
                sentences: vec![format!("{platform} did not give Crier the permission to:")],
                items: missing,
                advice: "Open the link that you were given again, and leave all permissions switched on.",
            },
            Self::NothingToChoose(platform, noun) => notice(
                "There is nothing to connect",
                &format!("{platform} shows no {noun} that you may publish on."),
                "Check at the platform that you manage one and that you gave Crier access to it. Then open the link \
                 again.",
            ),
            Self::NotOffered => {
                notice("This cannot be chosen", "It is not one of those that were offered.", OPEN_AGAIN)
            }
            Self::Full(cap) => notice(
                "There is no room for another account",
                &format!("The brand has as many accounts as its plan allows: {cap}. Nothing was connected."),
                "Ask the owner of the brand to disconnect an account or to change the plan. Then open the link again.",
            ),
            Self::Away(platform, reason) => Notice {
                title: format!("{platform} does not answer"),
                sentences: vec![reason, "Nothing was connected.".to_owned()],
                items: Vec::new(),
                advice: "Wait a few minutes. Then open the link that you were given again.",
            },
            Self::Refused(platform, reason) => Notice {
                title: format!("{platform} did not accept this"),
                sentences: vec![reason, "Nothing was connected.".to_owned()],
                items: Vec::new(),
                advice: OPEN_AGAIN,
            },
            Self::NotConfigured => notice(
                "This platform is not set up",
                "No application for this platform is set up on this installation any more.",
                ASK_OPERATOR,
            ),
            Self::TooOften => notice(
                "Too many requests",
                "There were too many requests from your address.",
                "Wait a minute. Then load this page again.",
            ),
            Self::Unavailable => notice(
                "Crier does not answer",
                "The database of this Crier does not answer right now. Nothing was connected.",
                "Wait a minute. Then open the link that you were given again.",
            ),
        }
    }
}

impl From<StoreError> for WrongTurn {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "a step of connecting an account could not be taken");
        Self::Unavailable
    }
}
