//! `POST /brands/{brand}/ai/captions`

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::ai::{self, Length, Operation};
use crier_domain::platform::{Descriptor, Platform};
use crier_store::{Tx, accounts};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use super::{CreditReservation, ERROR_CODES, MAX_PROMPT_CHARS, TAG, call_provider, not_configured};
use crate::ai::CaptionRequest;
use crate::context::Context;
use crate::endpoint::{Endpoint, WriteStep};
use crate::error::Result;
use crate::fields::{Fields, PatchField};
use crate::request::formats::text;
use crate::request::{Format, Parsed, Request};
use crate::response::{One, Reply};

const COUNT_RANGE: RangeInclusive<i64> = 1..=10;
const DEFAULT_COUNT: i64 = 3;
const MAX_TONE_CHARS: usize = 60;
const MAX_LANGUAGE_CHARS: usize = 35;

/// Options for captions.
#[derive(Clone, Debug, Default, Request)]
pub struct CaptionOptions {
    /// The platform of the captions. No caption is longer than the platform allows. For Mastodon, the limit is the
    /// smallest of the brand's accounts.
    #[field(enum_value(), example = "bluesky")]
    pub platform: Option<Platform>,
    /// The number of captions.
    #[field(number(COUNT_RANGE), default = DEFAULT_COUNT, example = 3)]
    pub count: Option<i64>,
    /// The tone, in a few words.
    #[field(text(1..=MAX_TONE_CHARS), extension, example = "warm")]
    pub tone: Option<String>,
    /// A BCP 47 tag, such as `de` or `pt-BR`. Default: the language of the prompt.
    #[field(language(), extension, example = "en")]
    pub language: Option<String>,
    #[field(enum_value(), extension, example = "short")]
    pub length: Option<Length>,
    /// Whether to include hashtags. If omitted, the model decides.
    #[field(flag(), extension, example = true)]
    pub include_hashtags: Option<bool>,
    /// Whether to include emojis. If omitted, the model decides.
    #[field(flag(), extension, example = false)]
    pub include_emojis: Option<bool>,
}

/// The captions to generate.
#[derive(Clone, Debug, Request)]
#[request(name = "NewCaptions")]
pub struct GenerateCaptionsRequest {
    #[field(text(1..=MAX_PROMPT_CHARS), example = "Our sourdough is out of the oven at seven every morning.")]
    pub prompt: String,
    #[field(object(), example)]
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
}

async fn prepare(cx: &Context, parsed: Arc<Parsed<GenerateCaptionsRequest>>) -> Result<WriteStep<CaptionResult>> {
    let request = model_request(cx, parsed.valid()?.clone()).await?;
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

/// Returns the request to the model.
async fn model_request(cx: &Context, request: GenerateCaptionsRequest) -> Result<CaptionRequest> {
    let options = request.options.unwrap_or_default();
    let platform = match options.platform {
        Some(platform) => Some(with_limits(cx, platform).await?),
        None => None,
    };
    Ok(CaptionRequest {
        prompt: request.prompt,
        platform,
        count: usize::try_from(options.count.unwrap_or(DEFAULT_COUNT)).unwrap_or_default(),
        tone: options.tone,
        language: options.language,
        length: options.length,
        include_hashtags: options.include_hashtags,
        include_emojis: options.include_emojis,
    })
}

/// Returns the platform, with the smallest limits of the brand's accounts if each server sets its own.
async fn with_limits(cx: &Context, platform: Platform) -> Result<Cow<'static, Descriptor>> {
    let descriptor = cx.app.platforms.descriptor(platform);
    if !platform.has_server_limits() {
        return Ok(Cow::Borrowed(descriptor));
    }
    let limits = accounts::limits(&mut cx.app.store.read().await?, cx.brand()?.id, platform).await?;
    let platforms = limits.iter().map(|one| descriptor.with_limits(one.as_ref()));
    let smallest = platforms.min_by_key(|one| one.capabilities.text.max.unwrap_or(u32::MAX));
    Ok(smallest.unwrap_or(Cow::Borrowed(descriptor)))
}

/// A tag in the form of BCP 47: letters, then subtags of letters and digits.
fn language() -> Language {
    Language
}

struct Language;

impl Format for Language {
    type Value = String;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<String> {
        match text(1..=MAX_LANGUAGE_CHARS).read(fields, name) {
            PatchField::Value(tag) if !is_language_tag(&tag) => {
                fields.problem(name, "Must be a language tag, such as de or pt-BR.");
                PatchField::Omitted
            }
            tag => tag,
        }
    }

    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "maxLength": MAX_LANGUAGE_CHARS })
    }
}

fn is_language_tag(tag: &str) -> bool {
    let mut parts = tag.split('-');
    let first = parts.next().is_some_and(|p| (2..=8).contains(&p.len()) && p.bytes().all(|b| b.is_ascii_alphabetic()));
    first && parts.all(|p| (1..=8).contains(&p.len()) && p.bytes().all(|b| b.is_ascii_alphanumeric()))
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
