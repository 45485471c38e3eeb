//! The errors of the Bot API.

use crier_domain::failure::{Category, Failure};

use crate::CallError;

/// The error of a method.
pub(super) enum MethodError {
    /// The chat has moved to this id.
    Migrated(i64),
    Call(CallError),
}

impl From<CallError> for MethodError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl MethodError {
    pub(super) fn into_error(self) -> CallError {
        match self {
            Self::Call(error) => error,
            Self::Migrated(_) => CallError::Permanent(
                Failure::of(Category::Account, "The chat was moved on Telegram; connect the account again.")
                    .from_platform("migrate_to_chat_id"),
            ),
        }
    }
}

/// Classifies an error by its description, because the Bot API has no codes besides the status.
pub(super) fn classify_error(status: u16, description: &str, quoted: Option<String>) -> CallError {
    let has = |words: &[&str]| {
        let description = description.to_lowercase();
        words.iter().any(|word| description.contains(word))
    };
    let quoted = quoted.map_or_else(|| ".".to_owned(), |detail| format!(": {detail}"));
    let failure = |category, text: &str| Failure::of(category, format!("{text}{quoted}")).from_platform(status);
    match status {
        // All methods in use exist, so a 404 means a malformed token.
        401 | 404 => CallError::Reauth(failure(
            Category::AuthExpired,
            "Telegram does not know this bot token; get one from @BotFather and connect again",
        )),
        403 => CallError::Permanent(failure(Category::Account, "The bot is not allowed to write to this chat")),
        _ if has(&["chat not found", "peer_id_invalid", "user not found", "chat_id is empty"]) => {
            CallError::Permanent(failure(Category::Account, "Telegram cannot find this chat"))
        }
        _ if has(&["can't be deleted", "rights to delete", "message_delete_forbidden"]) => {
            CallError::Permanent(cannot_delete().from_platform(status))
        }
        _ if has(&["to be replied not found", "replied message not found", "reply message not found"]) => {
            CallError::ParentMissing(failure(Category::PlatformRejected, "The post does not exist on Telegram"))
        }
        _ if has(&["rights", "chat_write_forbidden", "topic_closed", "chat_admin_required", "chat_send_"]) => {
            CallError::Permanent(failure(Category::Account, "The bot is not allowed to write to this chat"))
        }
        _ if has(&["too long", "is empty", "photo", "image", "video", "file", "too big", "too large"]) => {
            CallError::Permanent(failure(Category::InvalidContent, "Telegram does not accept this post"))
        }
        _ => CallError::Permanent(failure(Category::PlatformRejected, "Telegram rejected this")),
    }
}

fn cannot_delete() -> Failure {
    let message = "Telegram does not let the bot delete this post. It must be less than 48 hours old, or the bot must be \
                   an administrator with the right to delete messages. Delete the post on Telegram.";
    Failure::with_code(Category::Account, "missing_permission", message)
}

/// Returns the description without its prefix (`Bad Request: chat not found`).
pub(super) fn strip_prefix(description: &str) -> &str {
    ["Bad Request: ", "Forbidden: ", "Unauthorized: "]
        .iter()
        .find_map(|prefix| description.strip_prefix(prefix))
        .unwrap_or(description)
}
