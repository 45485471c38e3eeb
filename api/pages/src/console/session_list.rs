//! `/brands/{brand}/settings/sessions`: the sessions of the user.

use askama::Template;
use crier_endpoints::error::{ApiError, ErrorCode, Result};
use crier_store::sessions;

use super::form_write::{FormWrite, Submission};
use super::lists;
use super::route::PageRoute;
use super::settings::tabs;
use super::shared::{Choice, Pages, Time};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit};

/// The maximum length of an unknown user agent, in characters.
const MAX_AGENT: usize = 60;

#[derive(Template)]
#[template(path = "console/sessions.html")]
struct Sessions {
    shell: Shell,
    sessions: Vec<Session>,
    pages: Pages,
}

struct Session {
    id: i64,
    device: String,
    address: String,
    created: Time,
    last_used: Time,
    is_this: bool,
}

impl Sessions {
    fn tabs(&self) -> Vec<Choice> {
        tabs(&self.shell, "sessions")
    }
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/settings/sessions", list),
        PageRoute::post("/brands/{brand}/settings/sessions/revoke-others", revoke_others),
        PageRoute::post("/brands/{brand}/settings/sessions/{session}/revoke", revoke),
    ]
}

fn own_id(visit: &Visit) -> i64 {
    visit.authenticated.caller.key_id
}

async fn list(visit: &Visit) -> Result<PageReply> {
    let mut all = sessions::list(&mut visit.app.store.read().await?, visit.user_id(), visit.now).await?;
    all.sort_by_key(|session| session.id != own_id(visit));
    let shell = visit.shell(Section::Settings, "Sessions");
    let (rows, pages) = lists::paginate(visit, &shell.at("settings/sessions"), all);
    let session = |row: sessions::SessionRow| Session {
        id: row.id,
        device: device(&row.user_agent),
        address: row.address,
        created: visit.time(row.created_at),
        last_used: visit.time(row.last_used_at.unwrap_or(row.created_at)),
        is_this: row.id == own_id(visit),
    };
    visit.page(&Sessions { shell, sessions: rows.into_iter().map(session).collect(), pages })
}

/// Returns the name of a device, such as "Firefox on Linux".
fn device(agent: &str) -> String {
    // The order matters: user agents also contain the names of compatible browsers.
    let browsers = [
        ("Edg", "Edge"),
        ("OPR/", "Opera"),
        ("Firefox/", "Firefox"),
        ("FxiOS/", "Firefox"),
        ("Chrome/", "Chrome"),
        ("CriOS/", "Chrome"),
        ("Safari/", "Safari"),
    ];
    let systems = [
        ("iPhone", "iPhone"),
        ("iPad", "iPad"),
        ("Android", "Android"),
        ("CrOS", "ChromeOS"),
        ("Windows", "Windows"),
        ("Mac OS X", "macOS"),
        ("Linux", "Linux"),
    ];
    let first = |words: &[(&str, &'static str)]| words.iter().find(|(word, _)| agent.contains(word)).map(|(_, n)| *n);
    match (first(&browsers), first(&systems)) {
        (Some(browser), Some(system)) => format!("{browser} on {system}"),
        (Some(name), None) | (None, Some(name)) => name.to_owned(),
        (None, None) if agent.trim().is_empty() => "Unknown device".to_owned(),
        (None, None) => agent.chars().take(MAX_AGENT).collect(),
    }
}

async fn revoke(visit: &Visit) -> Result<PageReply> {
    let id = visit.id("session").unwrap_or_default();
    if id == own_id(visit) {
        let message = "This is the session that you are using. Use \u{201c}Sign out\u{201d} to end it.";
        return Err(ApiError::new(ErrorCode::InsufficientScope, message));
    }
    if let Submission::First(mut write) = FormWrite::begin(visit).await? {
        let is_revoked = sessions::revoke(&mut write.tx, visit.user_id(), id).await?;
        write.end(is_revoked.then_some(()).ok_or_else(|| ApiError::not_found("session"))).await?;
    }
    visit.to("settings/sessions", "session-revoked")
}

async fn revoke_others(visit: &Visit) -> Result<PageReply> {
    if let Submission::First(mut write) = FormWrite::begin(visit).await? {
        sessions::revoke_others(&mut write.tx, visit.user_id(), own_id(visit)).await?;
        write.finish("").await?;
    }
    visit.to("settings/sessions", "sessions-revoked")
}

#[cfg(test)]
mod tests {
    use super::device;

    #[test]
    fn devices_have_the_names_that_people_know() {
        let chrome = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36";
        let iphone = "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/19.0 Mobile/15E148 Safari/604.1";
        assert_eq!(
            device("Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Gecko/20100101 Firefox/144.0"),
            "Firefox on Linux"
        );
        assert_eq!((device(chrome), device(iphone)), ("Chrome on Windows".to_owned(), "Safari on iPhone".to_owned()));
        assert_eq!(device(&format!("{chrome} Edg/142.0")), "Edge on Windows");
        assert_eq!((device("curl/8.17.0"), device(" ")), ("curl/8.17.0".to_owned(), "Unknown device".to_owned()));
    }
}
