//! `POST /brands/{brand}/ai/captions`

use std::borrow::Cow;
use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::ai::{self, Length, Operation};
use crier_domain::platform::Platform;
use crier_store::{Tx, accounts};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::{CreditReservation, ERROR_CODES, MAX_PROMPT_CHARS, TAG, call_provider, descriptor, not_configured};
use crate::ai::CaptionRequest;
use crate::context::Context;
use crate::endpoint::{Endpoint, WriteStep};
use crate::error::Result;
use crate::fields::{Fields, PatchField};
use crate::openapi::schema::TextEnum;
use crate::request::Parsed;
use crate::response::{One, Reply};

const COUNT_RANGE: std::ops::RangeInclusive<i64> = 1..=10;
const MAX_TONE_CHARS: usize = 60;
const MAX_LANGUAGE_CHARS: usize = 35;

/// Options for captions.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub struct CaptionOptions {
    /// The platform of the captions. No caption is longer than the platform allows. For Mastodon, the limit is the
    /// smallest of the brand's accounts.
    #[schemars(with = "Option<TextEnum<Platform>>")]
    pub platform: Option<Platform>,
    /// The number of captions.
    #[schemars(range(min = 1, max = 10), extend("default" = 3))]
    pub count: Option<i64>,
    /// The tone, in a few words.
    #[schemars(length(min = 1, max = MAX_TONE_CHARS), extend("x-extension" = true))]
    pub tone: Option<String>,
    /// A BCP 47 tag, such as `de` or `pt-BR`. Default: the language of the prompt.
    #[schemars(length(max = MAX_LANGUAGE_CHARS), extend("x-extension" = true))]
    pub language: Option<String>,
    #[schemars(with = "Option<TextEnum<Length>>", extend("x-extension" = true))]
    pub length: Option<Length>,
    /// Whether to include hashtags. If omitted, the model decides.
    #[schemars(extend("x-extension" = true))]
    pub include_hashtags: Option<bool>,
    /// Whether to include emojis. If omitted, the model decides.
    #[schemars(extend("x-extension" = true))]
    pub include_emojis: Option<bool>,
}

/// The captions to generate.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
#[schemars(rename = "NewCaptions")]
pub struct GenerateCaptionsRequest {
    #[schemars(length(min = 1, max = MAX_PROMPT_CHARS))]
    pub prompt: String,
    pub options: Option<CaptionOptions>,
}

/// The generated captions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CaptionResult {
    /// The requested number of captions, all different.
    #[schemars(extend("examples" = [[
        "Fresh from the oven, every morning.", "Smell that? The bread is out.", "Six o'clock, warm bread."
    ]]))]
    pub captions: Vec<String>,
    /// The model that generated the captions.
    #[schemars(extend("examples" = ["writer-1"]))]
    pub model: String,
    #[schemars(extend("examples" = [15]))]
    pub credits_used: u64,
    /// The AI credits that remain this month. Null if the plan has no limit.
    #[schemars(extend("examples" = [4985]))]
    pub credits_remaining: Option<u64>,
}

pub fn endpoint() -> Endpoint<GenerateCaptionsRequest, One<CaptionResult>> {
    Endpoint::post("/brands/{brand}/ai/captions", "generateCaptions", Scope::AiWrite)
        .tag(TAG)
        .summary("Generate captions")
        .description("Costs 15 AI credits, which are refunded if there is no result.")
        .error_codes(ERROR_CODES)
        .reserves_then_writes(prepare)

// EXAMPLE GenerateCaptionsRequest: json!({ "prompt": "Our sourdough is out of the oven at seven every morning.", "options": { "platform": "bluesky", "count": 3, "tone": "warm", "language": "en", "length": "short", "include_hashtags": true, "include_emojis": false, }, })
}

async fn prepare(cx: &Context, parsed: Arc<Parsed<GenerateCaptionsRequest>>) -> Result<WriteStep<CaptionResult>> {
    let request = with_limits(cx, cx.read(|f| read(cx, f))?).await?;
    let text_model = cx.app.ai.text_model().ok_or_else(|| not_configured("CRIER_AI_TEXT_MODEL"))?;
    let reservation = CreditReservation::begin(cx, Operation::Captions, ai::CAPTIONS_CREDITS).await?;
    let result = call_provider(cx, Operation::Captions, "prompt", text_model.generate_captions(&request)).await;
    let captions = reservation.or_refund(result).await?;
    let reservation = Arc::new(reservation);
    let output = (reservation.clone(), captions, text_model.model.to_owned());
    let finish = WriteStep::new(output, |cx, tx, output| {
        Box::pin(async move { write(cx, tx, &output.0, &output.1, &output.2).await })
    });
    Ok(finish.or_undo(move |_| {
        let reservation = reservation.clone();
        Box::pin(async move { reservation.refund().await })
    }))
}

fn read(cx: &Context, f: &Fields<'_>) -> Option<CaptionRequest> {
    let prompt = f.required("prompt", f.text("prompt", 1..=MAX_PROMPT_CHARS));
    let empty = serde_json::Map::new();
    let options = f.object("options").value();
    let o = f.within("options", options.unwrap_or(&empty));
    let platform = descriptor(cx, o.enum_value("platform").value());
    let count = o.number("count", COUNT_RANGE).value().unwrap_or(3);
    let tone = o.text("tone", 1..=MAX_TONE_CHARS).value();
    let language = language(&o);
    let length = o.enum_value("length").value();
    let (include_hashtags, include_emojis) = (o.flag("include_hashtags").value(), o.flag("include_emojis").value());
    Some(CaptionRequest {
        prompt: prompt?,
        platform: platform.map(Cow::Borrowed),
        count: usize::try_from(count).ok()?,
        tone,
        language,
        length,
        include_hashtags,
        include_emojis,
    })
}

/// Returns the request with the smallest limits of the brand's accounts, if each server of the platform sets its own.
async fn with_limits(cx: &Context, request: CaptionRequest) -> Result<CaptionRequest> {
    let Some(platform) = request.platform.as_deref().map(|found| found.platform).filter(|p| p.has_server_limits())
    else {
        return Ok(request);
    };
    let limits = accounts::limits(&mut cx.app.store.read().await?, cx.brand()?.id, platform).await?;
    let platforms = limits.iter().map(|one| cx.app.platforms.descriptor(platform).with_limits(one.as_ref()));
    let smallest = platforms.min_by_key(|one| one.capabilities.text.max.unwrap_or(u32::MAX));
    Ok(CaptionRequest { platform: smallest.or(request.platform), ..request })
}

/// Parses a tag in the form of BCP 47: letters, then subtags of letters and digits.
fn language(f: &Fields<'_>) -> Option<String> {
    let PatchField::Value(tag) = f.text("language", 1..=MAX_LANGUAGE_CHARS) else { return None };
    let mut parts = tag.split('-');
    let first = parts.next().is_some_and(|p| (2..=8).contains(&p.len()) && p.bytes().all(|b| b.is_ascii_alphabetic()));
    let rest = parts.all(|p| (1..=8).contains(&p.len()) && p.bytes().all(|b| b.is_ascii_alphanumeric()));
    if !(first && rest) {
        f.problem("language", "Must be a language tag, such as de or pt-BR.");
        return None;
    }
    Some(tag)
}

async fn write(
    cx: &Context,
    tx: &mut Tx,
    reservation: &CreditReservation,
    captions: &[String],
    model: &str,
) -> Result<Reply<CaptionResult>> {
    let credits_remaining = reservation.end(cx, tx).await?;
    Ok(Reply::from(CaptionResult {
        captions: captions.to_vec(),
        model: model.to_owned(),
        credits_used: reservation.request.credits,
        credits_remaining,
    }))
}
