//! The application of a request: a registration, or the metadata document at the URL that is its ID.

use std::sync::Arc;

use crier_domain::untrusted;
use crier_endpoints::app::App;
use crier_endpoints::client_documents::ClientDocument;
use crier_store::oauth::clients;
use crier_store::{Result as StoreResult, StoreError};

use crate::redirect_uri;

/// The maximum length of a name, in characters.
const MAX_NAME: usize = 80;
/// The name of an application that gives none.
const NO_NAME: &str = "An application without a name";

/// An application, as it describes itself.
#[derive(Debug)]
pub struct Client {
    pub id: String,
    pub name: String,
    pub redirect_uris: Vec<String>,
    pub is_metadata_document: bool,
}

/// Why there is no application.
#[derive(Debug)]
pub enum ClientError {
    /// The message is for the user.
    Rejected(String),
    Store(StoreError),
}

/// Finds an application by its ID.
pub async fn find(app: &Arc<App>, id: &str) -> Result<Client, ClientError> {
    if id.contains("://") {
        return find_document(app, id).await;
    }
    let found = find_registration(app, id).await.map_err(ClientError::Store)?;
    found.ok_or_else(|| {
        let message = "This application is not registered, or its registration has expired. Remove the connection in \
                       the application, then connect it again.";
        ClientError::Rejected(message.to_owned())
    })
}

async fn find_registration(app: &Arc<App>, id: &str) -> StoreResult<Option<Client>> {
    let mut conn = app.store.read().await?;
    let found = clients::find(&mut conn, id, app.store.now()).await?;
    Ok(found.map(|client| Client {
        id: client.id,
        name: client.name,
        redirect_uris: client.redirect_uris,
        is_metadata_document: false,
    }))
}

async fn find_document(app: &Arc<App>, url: &str) -> Result<Client, ClientError> {
    let rejected = |reason: String| ClientError::Rejected(format!("The application's metadata document {reason}."));
    let document =
        app.client_documents.find(url, app.store.now()).await.map_err(|error| rejected(error.to_string()))?;
    if !is_public(&document) {
        return Err(rejected("requires a client secret or a signature, which Crier does not support".to_owned()));
    }
    let uris = &document.redirect_uris;
    if uris.is_empty() || uris.len() > redirect_uri::MAX_COUNT {
        return Err(rejected(format!("must contain 1 to {} redirect URIs", redirect_uri::MAX_COUNT)));
    }
    Ok(Client {
        id: url.to_owned(),
        name: name(document.client_name.as_deref()),
        redirect_uris: uris.clone(),
        is_metadata_document: true,
    })
}

/// Returns whether an application can get tokens without a secret: that is its method, or one of them.
fn is_public(document: &ClientDocument) -> bool {
    let mut offered = document.token_endpoint_auth_methods_supported.iter().flatten();
    document.token_endpoint_auth_method.as_deref().is_none_or(|method| method == "none")
        || offered.any(|method| method == "none")
}

/// Returns the name of an application as one line, without characters that hide or reorder others.
pub fn name(text: Option<&str>) -> String {
    let text: String = text.unwrap_or_default().chars().filter(|c| !is_hidden(*c)).take(MAX_NAME * 4).collect();
    untrusted::some_line(&text, MAX_NAME).unwrap_or_else(|| NO_NAME.to_owned())
}

/// Returns whether a character is invisible, or changes the direction of others.
fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            // Letters without a shape (Hangul fillers, the blank of Braille), which would be a name that nobody sees.
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_visible_line() {
        assert_eq!(name(Some("  Claude\n\u{202e}Code\u{200b} ")), "Claude Code");
        assert_eq!(name(Some(&"a".repeat(1_000))).len(), MAX_NAME);
        assert_eq!((name(None), name(Some("\u{200b}\0"))), (NO_NAME.to_owned(), NO_NAME.to_owned()));
        assert_eq!(name(Some("\u{3164} \u{2800}\u{115f}\u{ffa0}\u{fe0f}\u{e0100}\u{34f}")), NO_NAME);
    }
}
