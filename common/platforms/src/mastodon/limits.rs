//! The limits that a server states, and the software that it runs.
//!
//! Sources: docs.joinmastodon.org, "instance" (v2, v1); NodeInfo 2.0; the API documents of Pleroma (`max_toot_chars`,
//! `description_limit`, `upload_limit`) and GoToSocial.
//!
//! A server may state anything. What is not a number, or too small for any post, counts as not stated; what is larger
//! than any post of Crier, or than any known server states, is reduced.

use std::ops::RangeInclusive;

use crier_domain::limits::{AccountLimits, IMAGE_TYPES, VIDEO_TYPES};
use http::{Method, StatusCode};
use serde_json::Value;

use super::super::CallError;
use super::super::call::Effect;
use super::rest::Instance;

/// The maximum length of a software's name.
const MAX_SOFTWARE: usize = 64;
/// Pixelfed truncates alt texts to this length, without stating it.
const PIXELFED_ALT_TEXT: u32 = 1_000;
const MAX_CHARACTERS: &str = "/configuration/statuses/max_characters";

const CHARACTERS: RangeInclusive<u64> = 1..=1_000_000;
/// All known servers state 23. A text is counted once per length, however many accounts it is for, so the number of
/// lengths must be small.
const URL_CHARACTERS: RangeInclusive<u64> = 1..=32;
const IMAGES: RangeInclusive<u64> = 1..=1_000;
const FILE_BYTES: RangeInclusive<u64> = 1 << 10..=1 << 40;
const PIXELS: RangeInclusive<u64> = 16 * 16..=1 << 40;
const FRAME_RATE: RangeInclusive<u64> = 1..=1_000;

/// Reads the limits of a server. Fails if the server does not describe itself.
pub(super) async fn read(instance: &Instance<'_>) -> Result<AccountLimits, CallError> {
    let (documents, software) = (instance_documents(instance).await?, software(instance).await?);
    let number = |paths: &[&str], accepted: RangeInclusive<u64>| {
        let is_accepted = |number: &u64| number >= accepted.start();
        let stated = |path: &&str| documents.iter().find_map(|one| one.pointer(path)?.as_u64().filter(is_accepted));
        paths.iter().find_map(stated).map(|number| number.min(*accepted.end()))
    };
    let count = |paths: &[&str], accepted| number(paths, accepted).and_then(|number| u32::try_from(number).ok());
    let media = |name: &str| format!("/configuration/media_attachments/{name}");
    let alt_text =
        count(&[&media("description_limit"), "/pleroma/metadata/description_limit", "/description_limit"], CHARACTERS);
    let listed = |types: &[&str]| {
        let path = media("supported_mime_types");
        documents.iter().find_map(|one| stated_types(one.pointer(&path)?, types)).unwrap_or_default()
    };
    let (image_types, video_types) = (listed(&IMAGE_TYPES), listed(&VIDEO_TYPES));
    // A list of images without videos means that the server takes none. A list without both says nothing.
    let video_types = (!image_types.is_empty() || !video_types.is_empty()).then_some(video_types);
    let is_pixelfed = software.as_deref() == Some("pixelfed");
    Ok(AccountLimits {
        read_at: instance.client.now(),
        max_characters: count(&[MAX_CHARACTERS, "/max_toot_chars"], CHARACTERS),
        url_length: count(&["/configuration/statuses/characters_reserved_per_url"], URL_CHARACTERS),
        max_images: count(&["/configuration/statuses/max_media_attachments"], IMAGES),
        max_alt_text: alt_text.or(is_pixelfed.then_some(PIXELFED_ALT_TEXT)),
        max_image_bytes: number(&[&media("image_size_limit"), "/upload_limit"], FILE_BYTES),
        max_image_pixels: number(&[&media("image_matrix_limit")], PIXELS),
        mime_types: image_types,
        max_video_bytes: number(&[&media("video_size_limit"), "/upload_limit"], FILE_BYTES),
        max_video_pixels: number(&[&media("video_matrix_limit")], PIXELS),
        max_frame_rate: count(&[&media("video_frame_rate_limit")], FRAME_RATE),
        video_types,
        software,
        boards: Vec::new(),
    })
}

/// Returns the types that are in a server's list. `None` if it is not a list.
fn stated_types(list: &Value, types: &[&str]) -> Option<Vec<String>> {
    let list = list.as_array()?;
    let is_named = |kind: &&&str| list.iter().any(|named| named.as_str() == Some(**kind));
    Some(types.iter().filter(is_named).map(|kind| (*kind).to_owned()).collect())
}

/// Returns the server's instance documents: v2, and v1 if v2 lacks the maximum length of posts. A server with neither
/// has a fault, because all software has one of them. It must not look like a server without limits.
async fn instance_documents(instance: &Instance<'_>) -> Result<Vec<Value>, CallError> {
    let newer = find(instance, "/api/v2/instance").await?;
    if newer.as_ref().is_some_and(|newer| newer.pointer(MAX_CHARACTERS).is_some()) {
        return Ok(newer.into_iter().collect());
    }
    let older = find(instance, "/api/v1/instance").await?;
    let documents: Vec<Value> = newer.into_iter().chain(older).filter(Value::is_object).collect();
    if documents.is_empty() {
        return Err(instance.client.classify_unknown_effect(
            Effect::Repeatable,
            "returned no information about the server",
            None,
        ));
    }
    Ok(documents)
}

/// Returns the name of the server's software. The version does not identify it, because other software reports a
/// version of Mastodon.
async fn software(instance: &Instance<'_>) -> Result<Option<String>, CallError> {
    let Some(known) = find(instance, "/.well-known/nodeinfo").await? else { return Ok(None) };
    let Some(path) = document_path(&known, &instance.base) else { return Ok(None) };
    let Some(document) = find(instance, &path).await? else { return Ok(None) };
    let name = document.pointer("/software/name").and_then(Value::as_str).unwrap_or_default();
    let is_name = !name.is_empty() && name.len() <= MAX_SOFTWARE && name.bytes().all(|byte| byte.is_ascii_graphic());
    Ok(is_name.then(|| name.to_ascii_lowercase()))
}

/// Returns the path of a document that `/.well-known/nodeinfo` lists. Documents on other servers are ignored.
fn document_path(known: &Value, base: &str) -> Option<String> {
    let links = known.get("links")?.as_array()?;
    let mut paths = links.iter().filter_map(|link| link.get("href")?.as_str()?.strip_prefix(base));
    paths.rfind(|path| path.starts_with('/')).map(str::to_owned)
}

/// Returns a document. `None` if the server does not have it or returns something else.
async fn find(instance: &Instance<'_>, path: &str) -> Result<Option<Value>, CallError> {
    let response = instance.client.send(Effect::Repeatable, instance.request(Method::GET, path)).await?;
    match response.status {
        status if status.is_success() => Ok(serde_json::from_slice(&response.body).ok()),
        StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::GONE => Ok(None),
        _ => Err(instance.client.classify_status(Effect::Repeatable, &response, None, None)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_of_other_servers_are_not_read() {
        let at = |href: &str| {
            document_path(&json!({ "links": [{ "rel": "x" }, { "rel": "y", "href": href }] }), "https://a.example")
        };
        assert_eq!(at("https://a.example/nodeinfo/2.0"), Some("/nodeinfo/2.0".to_owned()));
        for href in
            ["https://b.example/nodeinfo/2.0", "https://a.example.evil.example/x", "https://a.example@b.example/", "/x"]
        {
            assert_eq!(at(href), None, "{href}");
        }
    }
}
