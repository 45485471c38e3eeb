//! A fake of Google's OAuth server and the YouTube Data API, as developers.google.com describes them.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::google::token;
use super::inbox::parameter;
use super::oauth::{OAuthServer, TokenRules, bearer, form};

pub const CHANNEL: &str = "UC-channel_1";
const UPLOADS: &str = "UU-channel_1";
/// The sizes of all chunks but the last one are multiples of this, in bytes.
const UNIT: usize = 262_144;

pub struct State {
    /// The base URL of the sessions.
    pub base: String,
    pub has_channel: bool,
    pub sessions: Vec<Session>,
    /// The number of bytes after which the next chunks are cut by an internal error.
    pub cuts: VecDeque<usize>,
    /// The ids of the videos with a cover, and the covers.
    pub covers: Vec<(String, Vec<u8>)>,
    /// The snippets of the comments.
    pub comments: Vec<Value>,
    /// The methods and paths of all calls, with the range of a session's.
    pub calls: Vec<String>,
    /// Responses to the next calls that contain this, which have no effect.
    pub rejected: VecDeque<(&'static str, ResponseTemplate)>,
    /// Calls that contain this, which take effect, but whose response is lost in a gateway.
    pub lost: VecDeque<&'static str>,
    pub revoked: Vec<String>,
}

/// An upload. It is a video when it is complete.
#[derive(Default)]
pub struct Session {
    pub metadata: Value,
    /// The query of the request that began it.
    pub query: String,
    pub size: usize,
    pub bytes: Vec<u8>,
    /// Whether the session no longer exists. Its video stays.
    pub has_ended: bool,
    pub is_deleted: bool,
    /// The `status` of its video.
    pub status: Value,
}

impl Session {
    pub fn is_video(&self) -> bool {
        self.bytes.len() == self.size && !self.is_deleted
    }
}

#[derive(Clone)]
pub struct Youtube {
    pub oauth: Arc<OAuthServer>,
    state: Arc<Mutex<State>>,
}

/// Returns an error response with a reason.
pub fn error(status: u16, reason: &str) -> ResponseTemplate {
    let message = format!("It is <code>{reason}</code>.");
    let errors = json!([{ "domain": "youtube", "reason": reason, "message": message }]);
    let body = json!({ "error": { "code": status, "message": message, "errors": errors } });
    ResponseTemplate::new(status).set_body_json(body)
}

fn ok(body: Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(body)
}

fn header<'a>(request: &'a Request, name: &str) -> &'a str {
    request.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Returns the id of the video of a session.
pub fn video_id(number: usize) -> String {
    format!("video-{number:05}")
}

impl Youtube {
    pub async fn start() -> (Self, MockServer) {
        let rules = TokenRules { expires_in: Some(3_599), refreshes: true, ..TokenRules::default() };
        let server = MockServer::start().await;
        let state = State {
            base: server.uri(),
            has_channel: true,
            sessions: Vec::new(),
            cuts: VecDeque::new(),
            covers: Vec::new(),
            comments: Vec::new(),
            calls: Vec::new(),
            rejected: VecDeque::new(),
            lost: VecDeque::new(),
            revoked: Vec::new(),
        };
        let fake = Self { oauth: Arc::new(OAuthServer::new(rules)), state: Arc::new(Mutex::new(state)) };
        fake.oauth.add_client("id", "secret");
        fake.oauth.add_token("access-0");
        fake.oauth.add_refresh_token("refresh-0");
        Mock::given(any()).respond_with(fake.clone()).mount(&server).await;
        (fake, server)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Returns the number of videos.
    pub fn videos(&self) -> usize {
        self.state().sessions.iter().filter(|session| session.is_video()).count()
    }
}

impl Respond for Youtube {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let path = request.url.path();
        match path {
            "/token" => return token(&self.oauth, request),
            "/revoke" => {
                self.state().revoked.push(form(request)["token"].clone());
                return ok(json!({}));
            }
            _ => {}
        }
        let range = header(request, "content-range");
        let call = format!("{} {path} {range}", request.method).trim_end().to_owned();
        let mut state = self.state();
        state.calls.push(call.clone());
        if !self.oauth.knows(&bearer(request)) {
            return error(401, "authError");
        }
        if let Some((_, response)) = state.rejected.pop_front_if(|(part, _)| call.contains(*part)) {
            return response;
        }
        let response = state.handle(request);
        if state.lost.pop_front_if(|part| call.contains(*part)).is_some() {
            return error(504, "backendError");
        }
        response
    }
}

impl State {
    fn handle(&mut self, request: &Request) -> ResponseTemplate {
        let path = request.url.path();
        match (request.method.as_str(), path) {
            ("GET", "/youtube/v3/channels") => self.channels(request),
            ("POST", "/upload/youtube/v3/videos") => self.begin(request),
            ("PUT", "/upload/youtube/v3/videos") => {
                let number: usize = parameter(request, "upload_id").unwrap().parse().unwrap();
                self.receive(number, request)
            }
            ("POST", "/upload/youtube/v3/thumbnails/set") => {
                assert_eq!(header(request, "content-type"), "image/png");
                self.covers.push((parameter(request, "videoId").unwrap(), request.body.clone()));
                ok(json!({ "kind": "youtube#thumbnailSetResponse" }))
            }
            ("GET", "/youtube/v3/playlistItems") => self.playlist(request),
            ("GET", "/youtube/v3/videos") => self.statistics(request),
            ("DELETE", "/youtube/v3/videos") => {
                let id = parameter(request, "id").unwrap();
                match self.videos().find(|(one, _)| *one == id).map(|(_, session)| session.is_deleted = true) {
                    Some(()) => ResponseTemplate::new(204),
                    None => error(404, "videoNotFound"),
                }
            }
            ("POST", "/youtube/v3/commentThreads") => self.comment(request),
            ("GET", "/youtube/v3/commentThreads") => self.threads(request),
            ("DELETE", "/youtube/v3/comments") => match self.comments.is_empty() {
                true => error(404, "commentNotFound"),
                false => {
                    self.comments.clear();
                    ResponseTemplate::new(204)
                }
            },
            other => panic!("no such call: {other:?}"),
        }
    }

    /// Returns the videos with their ids.
    fn videos(&mut self) -> impl Iterator<Item = (String, &mut Session)> {
        let numbered = self.sessions.iter_mut().enumerate().map(|(number, session)| (video_id(number), session));
        numbered.filter(|(_, session)| session.is_video())
    }

    fn channels(&mut self, request: &Request) -> ResponseTemplate {
        assert_eq!(parameter(request, "mine").as_deref(), Some("true"));
        if !self.has_channel {
            return ok(json!({ "kind": "youtube#channelListResponse", "pageInfo": { "totalResults": 0 } }));
        }
        ok(json!({ "items": [{
            "id": CHANNEL,
            "snippet": {
                "title": "Rye Bakery",
                "customUrl": "@rye-bakery",
                "thumbnails": {
                    "default": { "url": "https://yt3.example/88.jpg" },
                    "medium": { "url": "https://yt3.example/240.jpg" },
                },
            },
            "contentDetails": { "relatedPlaylists": { "likes": "", "uploads": UPLOADS } },
            "statistics": { "viewCount": "900", "subscriberCount": "1230", "videoCount": "7" },
        }] }))
    }

    fn begin(&mut self, request: &Request) -> ResponseTemplate {
        assert_eq!(parameter(request, "uploadType").as_deref(), Some("resumable"));
        assert_eq!(header(request, "x-upload-content-type"), "video/mp4");
        self.sessions.push(Session {
            metadata: request.body_json().unwrap(),
            query: request.url.query().unwrap_or_default().to_owned(),
            size: header(request, "x-upload-content-length").parse().unwrap(),
            ..Session::default()
        });
        let number = self.sessions.len() - 1;
        let session = format!("{}/upload/youtube/v3/videos?uploadType=resumable&upload_id={number}", self.base);
        ResponseTemplate::new(200).insert_header("location", session)
    }

    /// Responds at the URL of a session.
    fn receive(&mut self, number: usize, request: &Request) -> ResponseTemplate {
        let session = &mut self.sessions[number];
        if session.has_ended {
            return ResponseTemplate::new(404);
        }
        let range = header(request, "content-range").strip_prefix("bytes ").unwrap();
        let (range, size) = range.split_once('/').unwrap();
        assert_eq!(size.parse::<usize>().unwrap(), session.size);
        if let Some((start, end)) = range.split_once('-') {
            let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse().unwrap());
            assert_eq!((start, request.body.len()), (session.bytes.len(), end + 1 - start), "the missing bytes");
            assert!(end + 1 == session.size || request.body.len().is_multiple_of(UNIT), "{range}");
            if let Some(cut) = self.cuts.pop_front() {
                session.bytes.extend_from_slice(&request.body[..cut]);
                return error(503, "backendError");
            }
            session.bytes.extend_from_slice(&request.body);
        } else {
            assert_eq!((range, request.body.len()), ("*", 0));
        }
        if session.bytes.len() == session.size {
            return ResponseTemplate::new(201).set_body_json(json!({ "id": video_id(number) }));
        }
        let response = ResponseTemplate::new(308);
        match session.bytes.len() {
            0 => response,
            length => response.insert_header("range", format!("bytes=0-{}", length - 1)),
        }
    }

    fn playlist(&mut self, request: &Request) -> ResponseTemplate {
        assert_eq!(parameter(request, "playlistId").as_deref(), Some(UPLOADS));
        let item = |(id, session): (String, &mut Session)| {
            let snippet = &session.metadata["snippet"];
            json!({ "snippet": {
                "publishedAt": "2026-03-01T12:00:05Z",
                "title": snippet["title"],
                "description": snippet["description"],
                "resourceId": { "kind": "youtube#video", "videoId": id },
            } })
        };
        let mut items: Vec<Value> = self.videos().map(item).collect();
        items.reverse();
        ok(json!({ "items": items }))
    }

    fn statistics(&mut self, request: &Request) -> ResponseTemplate {
        let ids = parameter(request, "id").unwrap();
        let known = self.videos().filter(|(id, _)| ids.split(',').any(|one| one == id));
        let counts = json!({ "viewCount": "1234567", "likeCount": "12", "favoriteCount": "0" });
        let item = |(id, session): (String, &mut Session)| match parameter(request, "part").as_deref() {
            Some("status") => json!({ "id": id, "status": session.status }),
            _ => json!({ "id": id, "statistics": counts }),
        };
        let items: Vec<Value> = known.map(item).collect();
        ok(json!({ "items": items }))
    }

    fn comment(&mut self, request: &Request) -> ResponseTemplate {
        let snippet = request.body_json::<Value>().unwrap()["snippet"].clone();
        if !self.videos().any(|(id, _)| snippet["videoId"] == id.as_str()) {
            return error(404, "videoNotFound");
        }
        self.comments.push(snippet);
        ok(json!({ "id": format!("Ugx-{}", self.comments.len()) }))
    }

    fn threads(&mut self, request: &Request) -> ResponseTemplate {
        assert_eq!(parameter(request, "order").as_deref(), Some("time"));
        let thread = |(number, comment): (usize, &Value)| {
            let id = format!("Ugx-{}", number + 1);
            let text = &comment["topLevelComment"]["snippet"]["textOriginal"];
            let first = json!({ "id": id, "snippet": {
                "textDisplay": text,
                "authorDisplayName": "@rye-bakery",
                "authorChannelId": { "value": comment["channelId"] },
                "publishedAt": "2026-03-01T12:00:05Z",
            } });
            json!({ "id": id, "snippet": { "videoId": comment["videoId"], "topLevelComment": first } })
        };
        let items: Vec<Value> = self.comments.iter().enumerate().map(thread).collect();
        ok(json!({ "items": items }))
    }
}
