//! `POST /brands/{brand}/ai/hashtags`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::ai::{self, Operation};
use crier_domain::platform::Platform;
use crier_store::Tx;
use schemars::JsonSchema;
use serde::Serialize;

use super::{CreditReservation, ERROR_CODES, MAX_PROMPT_CHARS, TAG, call_provider, not_configured};
use crate::context::Context;
use crate::endpoint::{Endpoint, WriteStep};
use crate::error::Result;
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The post to generate hashtags for.
#[derive(Clone, Debug, Request)]
#[request(name = "NewHashtags")]
pub struct GenerateHashtagsRequest {
    /// The post's text.
    #[field(text(1..=MAX_PROMPT_CHARS), example = "Our sourdough is out of the oven at seven every morning.")]
    pub content: String,
    /// The platform of the post. The response contains no more hashtags than are useful there.
    #[field(enum_value(), example = "instagram")]
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
}

async fn prepare(cx: &Context, parsed: Arc<Parsed<GenerateHashtagsRequest>>) -> Result<WriteStep<HashtagResult>> {
    let GenerateHashtagsRequest { content, platform } = parsed.valid()?;
    let platform = platform.map(|platform| cx.app.platforms.descriptor(platform));
    let text_model = cx.app.ai.text_model().ok_or_else(|| not_configured("CRIER_AI_TEXT_MODEL"))?;
    let reservation = CreditReservation::begin(cx, Operation::Hashtags, ai::HASHTAGS_CREDITS).await?;
    let call = text_model.generate_hashtags(content, platform);
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
