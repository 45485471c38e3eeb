//! The link card in the composer's preview: `/brands/{brand}/posts/card`. The script sends the form there, because
//! reading a page takes longer than the checks of the post.

use askama::Template;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crier_domain::account::SocialAccount;
use crier_domain::snippet::{parts_with, signature_for};
use crier_endpoints::error::{ApiError, Result};
use crier_endpoints::limits::RateLimitSubject;
use crier_platforms::LinkCard;
use crier_platforms::link_card::{self, CardReader, CardRequest};
use crier_store::{accounts, media};
use serde_json::Map;
use url::Url;

use super::composer_input::ComposerInput;
use super::composer_override::AccountOverride;
use super::post_rows::image;
use super::visit::{PageReply, Visit};

/// The maximum number of pages that are read for a user per minute.
const READS_PER_MINUTE: u32 = 30;

/// The card as it will look. An HTML fragment.
#[derive(Template)]
#[template(path = "console/link_card.html")]
struct CardPreview {
    card: Option<LinkCard>,
    host: String,
    /// The URL of the image, or its bytes as a `data:` URL.
    image: Option<String>,
}

/// Returns the card to make for an account. `None` if the post has none there. The link may be in the signature.
pub fn card_request(input: &ComposerInput, account: &SocialAccount, signature: Option<&str>) -> Option<CardRequest> {
    let own = input.override_for(account.id);
    let text = parts_with(signature, input.text_on(account.id)).concat();
    let media = own.and_then(|own| own.media.as_ref()).unwrap_or(&input.media);
    let option = own.and_then(AccountOverride::link_card);
    let options = Map::from_iter(option.map(|card| (link_card::OPTION.to_owned(), card)));
    CardRequest::of(account.platform, &text, !media.is_empty(), &options)
}

/// Shows the card for the account in the query, `account`.
pub async fn show_card(visit: &Visit) -> Result<PageReply> {
    let brand = visit.brand()?.0.id;
    let account_id = visit.query.get("account").and_then(|id| id.parse().ok()).unwrap_or_default();
    let mut conn = visit.app.store.read().await?;
    let account = accounts::find_many(&mut conn, brand, &[account_id]).await?.pop();
    let account = account.ok_or_else(|| ApiError::not_found("account"))?;
    let signature = accounts::summaries(&mut conn, brand, &[account_id]).await?.pop().and_then(|own| own.signature);
    let input = ComposerInput::of_form(&visit.form);
    let signature = signature.as_deref().and_then(|signature| signature_for(signature, input.text_on(account_id)));
    let Some(request) = card_request(&input, &account, signature) else {
        return Ok(PageReply::Html(http::StatusCode::OK, String::new()));
    };
    let chosen: Vec<i64> = request.media_id.into_iter().collect();
    let chosen = media::find_many(&mut conn, brand, &chosen).await?.pop().map(|asset| image(visit, asset).src);
    drop(conn);
    let cards = visit.app.cards.of_workspace(account.workspace_id);
    let page = match request.needs_page() {
        true => {
            let subject = RateLimitSubject::PageReader(visit.user_id());
            let decision = visit.app.limiter.take(subject, READS_PER_MINUTE).await;
            if !decision.allowed {
                return Err(ApiError::rate_limited(decision.retry_after));
            }
            cards.page(&request.url).await
        }
        false => None,
    };
    let card = request.card(page.as_ref());
    let image = match (&card, request.media_id) {
        (Some(_), None) => page_image(visit, &cards, page.and_then(|page| page.image)).await,
        _ => chosen,
    };
    let host = Url::parse(&request.url).ok().and_then(|url| Some(url.host_str()?.to_owned())).unwrap_or_default();
    visit.page(&CardPreview { card, host, image })
}

/// Returns a thumbnail of the page's image as a `data:` URL, because the browser must not load it from the page.
async fn page_image(visit: &Visit, cards: &CardReader, url: Option<String>) -> Option<String> {
    let image = cards.image(&url?).await.ok()?;
    let (kind, thumbnail) = visit.app.library.thumbnail_of(image.bytes.clone()).await.ok()?;
    Some(format!("data:{kind};base64,{}", STANDARD.encode(&thumbnail)))
}
