//! `POST /brands/{brand}/ai/hashtags`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::ai::{self, Operation};
use crier_domain::platform::Platform;
use crier_store::Tx;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::{CreditReservation, ERROR_CODES, MAX_PROMPT_CHARS, TAG, call_provider, descriptor, not_configured};
use crate::context::Context;
use crate::endpoint::{Endpoint, WriteStep};
use crate::error::Result;
use crate::openapi::schema::TextEnum;
use crate::request::Parsed;
use crate::response::{One, Reply};

/// The post to generate hashtags for.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename = "NewHashtags")]
pub struct GenerateHashtagsRequest {
    /// The post's text.
    #[schemars(length(min = 1, max = MAX_PROMPT_CHARS))]
    pub content: String,
    /// The platform of the post. The response contains no more hashtags than are useful there.
    #[schemars(with = "Option<TextEnum<Platform>>")]
    pub platform: Option<Platform>,
}

/// The generated hashtags, best first.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HashtagResult {
    /// Each hashtag is a `#` followed by letters, digits and underscores of any script.
    #[schemars(extend("examples" = [["#bread", "#bakery", "#sourdough"]]))]
    pub hashtags: Vec<String>,
    /// The model that generated the hashtags.
    #[schemars(extend("examples" = ["writer-1"]))]
    pub model: String,
    #[schemars(extend("examples" = [12]))]
    pub credits_used: u64,
    /// The AI credits that remain this month. Null if the plan has no limit.
    #[schemars(extend("examples" = [4988]))]
    pub credits_remaining: Option<u64>,
}

pub fn endpoint() -> Endpoint<GenerateHashtagsRequest, One<HashtagResult>> {
    Endpoint::post("/brands/{brand}/ai/hashtags", "generateHashtags", Scope::AiWrite)
        .tag(TAG)
        .summary("Generate hashtags")
        .description("Costs 12 AI credits, which are refunded if there is no result.")
        .error_codes(ERROR_CODES)
        .reserves_then_writes(prepare)

// EXAMPLE GenerateHashtagsRequest: json!({ "content": "Our sourdough is out of the oven at seven every morning.", "platform": "instagram" }),
}

async fn prepare(cx: &Context, parsed: Arc<Parsed<GenerateHashtagsRequest>>) -> Result<WriteStep<HashtagResult>> {
    let GenerateHashtagsRequest { content, platform } = cx.read(|f| {
        let content = f.required("content", f.text("content", 1..=MAX_PROMPT_CHARS));
        let platform = f.enum_value("platform").value();
        Some(GenerateHashtagsRequest { content: content?, platform })
    })?;
    let text_model = cx.app.ai.text_model().ok_or_else(|| not_configured("CRIER_AI_TEXT_MODEL"))?;
    let reservation = CreditReservation::begin(cx, Operation::Hashtags, ai::HASHTAGS_CREDITS).await?;
    let call = text_model.generate_hashtags(&content, descriptor(cx, platform));
    let result = call_provider(cx, Operation::Hashtags, "content", call).await;
    let hashtags = reservation.or_refund(result).await?;
    let reservation = Arc::new(reservation);
    let output = (reservation.clone(), hashtags, text_model.model.to_owned());
    let finish = WriteStep::new(output, |cx, tx, output| {
        Box::pin(async move { write(cx, tx, &output.0, &output.1, &output.2).await })
    });
    Ok(finish.or_undo(move |_| {
        let reservation = reservation.clone();
        Box::pin(async move { reservation.refund().await })
    }))
}

async fn write(
    cx: &Context,
    tx: &mut Tx,
    reservation: &CreditReservation,
    hashtags: &[String],
    model: &str,
) -> Result<Reply<HashtagResult>> {
    let credits_remaining = reservation.end(cx, tx).await?;
    Ok(Reply::from(HashtagResult {
        hashtags: hashtags.to_vec(),
        model: model.to_owned(),
        credits_used: reservation.request.credits,
        credits_remaining,
    }))
}
