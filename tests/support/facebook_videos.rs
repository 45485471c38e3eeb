//! A fake of the videos of a Facebook page, as Meta's documentation describes them: reels and stories, which are uploaded,
//! and videos for the feed, which Facebook downloads.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::facebook::error;
use super::forms::{FormPart, form_parts};
use super::oauth::{OAuthServer, TokenRules, bearer};

pub const PAGE: &str = "42";
pub const TOKEN: &str = "page-42";
const UPLOAD_PATH: &str = "/video-upload/v25.0/";
const FIRST_ID: usize = 7_000;

#[derive(Default)]
pub struct State {
    /// The base URL of the upload URLs.
    pub base: String,
    /// The videos with the ids 7000, 7001 and so on. `None` if it was deleted.
    pub videos: Vec<Option<FakeVideo>>,
    /// The next states of a video (`status`). After them, its state depends on what was done with it.
    pub states: VecDeque<Value>,
    /// The number of bytes of the next transfer after which the connection breaks.
    pub breaks_after: Option<usize>,
    /// The time at which all videos were created.
    pub created_time: String,
    /// Whether the lists do not show the videos yet.
    pub hides_videos: bool,
    /// The methods and paths of all calls.
    pub calls: Vec<String>,
    /// Responses to the next calls whose method and path contain this, which have no effect.
    pub rejected: VecDeque<(&'static str, ResponseTemplate)>,
    /// Calls whose method and path contain this, which take effect, but whose response is lost in a gateway.
    pub lost: VecDeque<&'static str>,
}

#[derive(Clone, Debug, Default)]
pub struct FakeVideo {
    pub edge: String,
    pub bytes: Vec<u8>,
    pub is_complete: bool,
    /// The requests that published it: the body of `finish`, or the fields of the form.
    pub published: Vec<Value>,
    pub cover: Option<Vec<u8>>,
}

#[derive(Clone)]
pub struct FacebookVideos {
    pub oauth: Arc<OAuthServer>,
    state: Arc<Mutex<State>>,
}

/// Returns an error of an upload URL.
pub fn upload_error(status: u16, is_retriable: bool, kind: &str, message: &str) -> ResponseTemplate {
    let info = json!({ "retriable": is_retriable, "type": kind, "message": message });
    ResponseTemplate::new(status).set_body_json(json!({ "debug_info": info }))
}

fn ok(body: Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(body)
}

fn gone() -> ResponseTemplate {
    error(400, 100, Some(33), "Unsupported get request. Object does not exist")
}

impl FacebookVideos {
    pub async fn start() -> (Self, MockServer) {
        let server = MockServer::start().await;
        let state =
            State { base: server.uri(), created_time: "2026-03-01T12:00:05+0000".to_owned(), ..State::default() };
        let rules = TokenRules { expires_in: None, refreshes: false, ..TokenRules::default() };
        let fake = Self { oauth: Arc::new(OAuthServer::new(rules)), state: Arc::new(Mutex::new(state)) };
        fake.oauth.add_token(TOKEN);
        Mock::given(any()).respond_with(fake.clone()).mount(&server).await;
        (fake, server)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Respond for FacebookVideos {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let path = request.url.path();
        let call = format!("{} {path}", request.method);
        let mut state = self.state();
        state.calls.push(call.clone());
        assert!(!request.url.as_str().contains(TOKEN), "the token is in no URL");
        let token = match path.starts_with(UPLOAD_PATH) {
            true => header(request, "authorization").strip_prefix("OAuth ").unwrap_or_default().to_owned(),
            false => bearer(request),
        };
        if !self.oauth.knows(&token) {
            return error(400, 190, Some(460), "The session has been invalidated");
        }
        if let Some((_, response)) = state.rejected.pop_front_if(|(part, _)| call.contains(*part)) {
            return response;
        }
        let response = match path.strip_prefix(UPLOAD_PATH) {
            Some(id) => state.receive(id, request),
            None => state.handle(request, path.strip_prefix("/v25.0/").expect("the version")),
        };
        if state.lost.pop_front_if(|part| call.contains(*part)).is_some() {
            return ResponseTemplate::new(504);
        }
        response
    }
}

fn header(request: &Request, name: &str) -> String {
    request.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

impl State {
    /// Returns the only video, or the newest one.
    pub fn newest(&self) -> &FakeVideo {
        self.videos.last().unwrap().as_ref().unwrap()
    }

    /// Returns the methods and paths of the calls, without the version, except those that read something.
    pub fn writes(&self) -> Vec<String> {
        let writes = self.calls.iter().filter(|call| !call.starts_with("GET"));
        writes.map(|call| call.replace("/v25.0", "")).collect()
    }

    fn video(&mut self, id: &str) -> Option<&mut FakeVideo> {
        let index = id.parse::<usize>().unwrap().checked_sub(FIRST_ID)?;
        self.videos.get_mut(index)?.as_mut()
    }

    fn add(&mut self, video: FakeVideo) -> String {
        self.videos.push(Some(video));
        (FIRST_ID + self.videos.len() - 1).to_string()
    }

    fn receive(&mut self, id: &str, request: &Request) -> ResponseTemplate {
        let breaks_after = self.breaks_after.take();
        let Some(video) = self.video(id) else {
            return upload_error(404, false, "NotFoundError", "The video does not exist");
        };
        let offset: usize = header(request, "offset").parse().unwrap();
        let file_size: usize = header(request, "file_size").parse().unwrap();
        if offset != video.bytes.len() {
            return upload_error(400, false, "OffsetInvalidError", "Request offset does not match");
        }
        let sent = breaks_after.unwrap_or(request.body.len());
        video.bytes.extend_from_slice(&request.body[..sent]);
        video.is_complete = video.bytes.len() == file_size;
        if breaks_after.is_some() { ResponseTemplate::new(502) } else { ok(json!({ "success": video.is_complete })) }
    }

    fn handle(&mut self, request: &Request, path: &str) -> ResponseTemplate {
        let steps: Vec<&str> = path.split('/').collect();
        match (request.method.as_str(), steps.as_slice()) {
            ("POST", [PAGE, edge @ ("video_reels" | "video_stories")]) => {
                let body: Value = request.body_json().unwrap();
                match body["upload_phase"].as_str() {
                    Some("start") => {
                        let id = self.add(FakeVideo { edge: (*edge).to_owned(), ..FakeVideo::default() });
                        ok(json!({ "video_id": id, "upload_url": format!("{}{UPLOAD_PATH}{id}", self.base) }))
                    }
                    Some("finish") => self.finish(edge, body),
                    other => panic!("no such phase: {other:?}"),
                }
            }
            ("POST", [PAGE, "videos"]) => {
                let id = self.download(&form_parts(request));
                ok(json!({ "id": id }))
            }
            ("GET", [PAGE, edge @ ("videos" | "video_reels")]) => self.list(edge, request),
            ("POST", [id, "thumbnails"]) => {
                let source = form_parts(request).into_iter().find(|part| part.name == "source").unwrap();
                self.video(id).unwrap().cover = Some(source.bytes);
                ok(json!({ "success": true }))
            }
            ("GET", [PAGE]) => ok(json!({ "id": PAGE })),
            ("GET", [id]) => self.show(id),
            ("DELETE", [id]) => match self.video(id).is_some() {
                true => {
                    let index = id.parse::<usize>().unwrap() - FIRST_ID;
                    self.videos[index] = None;
                    ok(json!({ "success": true }))
                }
                false => gone(),
            },
            other => panic!("no such call: {other:?}"),
        }
    }

    fn finish(&mut self, edge: &str, body: Value) -> ResponseTemplate {
        let Some(video) = self.video(body["video_id"].as_str().unwrap()) else { return gone() };
        assert_eq!(video.edge, edge);
        if !video.published.is_empty() {
            return error(400, 100, None, "The video was already published");
        }
        if !video.is_complete {
            return error(400, 6_000, Some(1_363_033), "The video upload is not complete");
        }
        video.published.push(body);
        match edge {
            "video_stories" => ok(json!({ "success": true, "post_id": 9_000 })),
            _ => ok(json!({ "success": true })),
        }
    }

    fn download(&mut self, form: &[FormPart]) -> String {
        let is_cover = |part: &&FormPart| part.name == "thumb";
        let cover = form.iter().find(is_cover).map(|part| part.bytes.clone());
        let fields: BTreeMap<&str, String> =
            form.iter().filter(|part| !is_cover(part)).map(|part| (part.name.as_str(), part.text())).collect();
        let published = vec![json!(fields)];
        self.add(FakeVideo { edge: "videos".to_owned(), is_complete: true, published, cover, ..FakeVideo::default() })
    }

    fn list(&self, edge: &str, request: &Request) -> ResponseTemplate {
        let since = request.url.query_pairs().find(|(name, _)| name == "since");
        assert!(since.is_none_or(|(_, since)| since.parse::<i64>().is_ok()), "it is a Unix time");
        let listed = self.videos.iter().enumerate().rev().filter_map(|(index, video)| {
            let video = video.as_ref().filter(|video| video.edge == edge && !video.published.is_empty())?;
            Some(json!({
                "id": (FIRST_ID + index).to_string(),
                "description": video.published[0]["description"],
                "created_time": self.created_time,
                "permalink_url": format!("/42/videos/{}/", FIRST_ID + index),
                "post_id": (9_000 + index).to_string(),
            }))
        });
        let data: Vec<Value> = if self.hides_videos { Vec::new() } else { listed.collect() };
        ok(json!({ "data": data }))
    }

    fn show(&mut self, id: &str) -> ResponseTemplate {
        let next = self.states.pop_front();
        let Some(video) = self.video(id) else { return gone() };
        let is_published = !video.published.is_empty() && next.is_none();
        let phase = |is_complete: bool| if is_complete { "complete" } else { "not_started" };
        let status = next.unwrap_or_else(|| {
            let video_status = match (is_published, video.is_complete) {
                (true, _) => "ready",
                (false, true) => "upload_complete",
                (false, false) => "uploading",
            };
            let uploading = if video.is_complete { "complete" } else { "in_progress" };
            json!({
                "video_status": video_status,
                "uploading_phase": { "status": uploading, "bytes_transfered": video.bytes.len() },
                "processing_phase": { "status": phase(is_published) },
                "publishing_phase": { "status": phase(is_published), "publish_status": "published" },
            })
        });
        let mut node = json!({ "id": id, "status": status, "published": is_published });
        if is_published {
            node["permalink_url"] = json!(format!("/reel/{id}/"));
            if video.edge != "video_stories" {
                node["post_id"] = json!("9000");
            }
        }
        ok(node)
    }
}
