//! `/brands/{brand}/accounts/{account}/signature`: the choice of an account's signature.

use askama::Template;
use crier_domain::snippet::SnippetKind;
use crier_endpoints::error::{ApiError, Result};
use crier_endpoints::routes::{accounts as account_endpoints, snippets};
use crier_store::accounts;
use http::StatusCode;
use serde_json::{Map, Value};

use super::avatar::avatar_url;
use super::post_rows::chip;
use super::route::{Access, PageRoute};
use super::shared::{AccountChip, Choice, FieldErrors};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};

#[derive(Template)]
#[template(path = "console/account_signature.html")]
struct AccountSignature {
    shell: Shell,
    /// Errors of `signature_id`.
    errors: FieldErrors,
    id: i64,
    account: AccountChip,
    /// The URL of the avatar.
    avatar: Option<String>,
    /// The first choice is none.
    signatures: Vec<Choice>,
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::form("/brands/{brand}/accounts/{account}/signature", render).access(Access::Publisher),
        PageRoute::post("/brands/{brand}/accounts/{account}/signature", update).access(Access::Publisher),
    ]
}

async fn render(visit: &Visit, status: StatusCode, errors: FieldErrors) -> Result<PageReply> {
    let id = visit.id("account").unwrap_or_default();
    let mut conn = visit.app.store.read().await?;
    let brand = visit.brand()?.0.id;
    let found = accounts::find(&mut conn, brand, id).await?;
    drop(conn);
    let account = found.ok_or_else(|| ApiError::not_found("social account"))?;
    let all = visit.call().read(snippets::list::endpoint(), ()).await?;
    let own = all.into_iter().filter(|snippet| snippet.kind == SnippetKind::Signature);
    let stored = account.signature_id.map_or_else(String::new, |id| id.to_string());
    let chosen = visit.form.get_or("signature_id", &stored);
    let choice = |snippet: snippets::Snippet| {
        let id = snippet.id.to_string();
        Choice::new(&id, &snippet.name, id == chosen)
    };
    let none = Choice::new("", "None", chosen.is_empty());
    let view = AccountSignature {
        shell: visit.shell(Section::Accounts, "Signature"),
        errors,
        id,
        account: chip(&account),
        avatar: avatar_url(brand, &account),
        signatures: [none].into_iter().chain(own.map(choice)).collect(),
    };
    visit.page_with(status, &view)
}

async fn update(visit: &Visit) -> Result<PageReply> {
    let id = |text: &str| text.parse::<i64>().map_or_else(|_| Value::from(text), Value::from);
    let signature = visit.form.text("signature_id").map_or(Value::Null, id);
    let request = visit.parse(&Map::from_iter([("signature_id".to_owned(), signature)]));
    match visit.call().write(account_endpoints::update::endpoint(), request).await {
        Ok(_) => visit.to("accounts", "signature-saved"),
        Err(error) => render(visit, StatusCode::UNPROCESSABLE_ENTITY, form_errors(error)?).await,
    }
}
