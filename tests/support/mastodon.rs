//! A fake Mastodon server of version 4.3 or later, as docs.joinmastodon.org describes it. With [`Switches`] and
//! [`Limits`], it is a compatible server that differs from Mastodon.

#![allow(clippy::result_large_err, reason = "an error is a response of the fake server")]
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use unicode_segmentation::UnicodeSegmentation;
use url::Url;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::oauth::{OAuthServer, TokenRules, bearer, error, form};

/// A published status.
#[derive(Clone, Debug)]
pub struct Toot {
    pub id: String,
    pub text: String,
    pub media: Vec<String>,
    pub body: Value,
    pub visibility: String,
    created_at: String,
}

/// Deviations of a compatible server, and faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Switches {
    /// Strips texts: white space at both ends, CRLF, and repeated empty lines.
    pub strips_texts: bool,
    /// Creates another post if an `Idempotency-Key` is repeated.
    pub forgets_keys: bool,
    /// Has no sources of posts, only their HTML.
    pub has_no_sources: bool,
    /// The maximum number of characters, which the server publishes. Overrides that of [`Limits`].
    pub max_characters: Option<usize>,
    /// Publishes posts and loses the response.
    pub loses_responses: bool,
    /// Loses posts before it publishes them.
    pub loses_posts: bool,
}

/// The software of a server, and its limits.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The name in NodeInfo. Empty if the server has no NodeInfo.
    pub software: &'static str,
    pub max_characters: usize,
    pub max_images: usize,
    /// `None` if the server has no limit.
    pub max_alt_text: Option<usize>,
    pub max_image_bytes: usize,
    pub max_image_pixels: u64,
    pub mime_types: &'static [&'static str],
    /// Whether the server has only `/api/v1/instance`, with `max_toot_chars`.
    pub is_old: bool,
}

impl Default for Limits {
    /// Returns the limits of Mastodon 4.5.
    fn default() -> Self {
        Self {
            software: "mastodon",
            max_characters: 500,
            max_images: 4,
            max_alt_text: Some(1_500),
            max_image_bytes: 16 << 20,
            max_image_pixels: 33_177_600,
            mime_types: &[
                "image/jpeg",
                "image/png",
                "image/gif",
                "image/heic",
                "image/webp",
                "image/avif",
                "video/mp4",
            ],
            is_old: false,
        }
    }
}

impl Limits {
    fn configuration(&self, most: usize) -> Value {
        json!({
            "statuses": {
                "max_characters": most, "max_media_attachments": self.max_images, "characters_reserved_per_url": 23,
            },
            "media_attachments": {
                "supported_mime_types": self.mime_types, "description_limit": self.max_alt_text,
                "image_size_limit": self.max_image_bytes, "image_matrix_limit": self.max_image_pixels,
                "video_size_limit": 103_809_024, "video_matrix_limit": 8_294_400, "video_frame_rate_limit": 120,
            },
        })
    }

    /// Counts the characters of a post as the software does. Only spaces separate words.
    fn count(&self, warning: &str, text: &str) -> usize {
        let graphemes = |text: &str| text.graphemes(true).count();
        match self.software {
            "mastodon" | "" => {
                let word = |word: &str| match word.strip_prefix('@').and_then(|mention| mention.split_once('@')) {
                    _ if word.starts_with("https://") => 23,
                    Some((user, _)) => 1 + graphemes(user),
                    None => graphemes(word),
                };
                let spaces = text.matches(' ').count();
                graphemes(warning) + text.split(' ').map(word).sum::<usize>() + spaces
            }
            "pleroma" | "akkoma" => graphemes(warning) + graphemes(text),
            _ => warning.chars().count() + text.chars().count(),
        }
    }

    /// Returns the error for an upload that the server rejects.
    fn rejection(&self, request: &Request) -> Option<&'static str> {
        let (file, alt) = (part(&request.body, "file"), part(&request.body, "description"));
        let alt = String::from_utf8_lossy(alt.unwrap_or_default()).chars().count();
        let file = file.unwrap_or_default();
        let image = image::ImageReader::new(std::io::Cursor::new(file)).with_guessed_format().unwrap();
        let kind = image.format().map(|format| format.to_mime_type());
        let sides = image.into_dimensions().unwrap_or_default();
        let pixels = u64::from(sides.0) * u64::from(sides.1);
        if self.max_alt_text.is_some_and(|most| alt > most) {
            return Some("Validation failed: Description is too long");
        }
        if file.len() > self.max_image_bytes || pixels > self.max_image_pixels {
            return Some("Validation failed: File is too large");
        }
        if kind == Some("image/gif") && pixels > 1280 * 720 {
            return Some("Validation failed: GIF files of this size are not supported");
        }
        // Some tests upload bytes that are not an image.
        let is_taken = kind.is_none_or(|kind| self.mime_types.contains(&kind));
        (!is_taken).then_some("Validation failed: File content type is invalid")
    }
}

/// Returns a part of a multipart body.
fn part<'a>(body: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let find =
        |from: usize, text: &[u8]| body[from..].windows(text.len()).position(|part| part == text).map(|at| from + at);
    let head = find(0, format!("name=\"{name}\"").as_bytes())?;
    let begin = find(head, b"\r\n\r\n")? + 4;
    Some(&body[begin..find(begin, b"\r\n--")?])
}

#[derive(Default)]
struct State {
    switches: Switches,
    limits: Limits,
    /// The files of uploaded images, in order.
    files: Vec<Vec<u8>>,
    toots: Vec<Toot>,
    by_key: BTreeMap<String, usize>,
    /// The request bodies of uploaded images, by id.
    media: BTreeMap<String, String>,
    registrations: usize,
    /// Responses to the next calls, by path, instead of the usual ones.
    scripted: VecDeque<(String, ResponseTemplate)>,
    /// The status of the response for an uploaded image. Default: 200.
    media_status: Option<u16>,
    /// The number of lookups after which the uploads are processed.
    lookups_while_processing: usize,
    /// The visibility of posts that name none. Default: public.
    default_visibility: Option<&'static str>,
    /// The ids of deleted posts, and whether their images were deleted with them.
    deleted: BTreeMap<String, bool>,
    now: String,
    older: bool,
}

/// The server; clones share its state.
#[derive(Clone)]
pub struct Mastodon {
    pub oauth: Arc<OAuthServer>,
    state: Arc<Mutex<State>>,
    /// The base URL of the running server.
    base: Arc<Mutex<String>>,
}

pub struct RunningMastodon {
    pub fake: Mastodon,
    pub server: MockServer,
}

impl Mastodon {
    /// Starts a server whose clock stands at `now` (RFC 3339).
    pub async fn start(now: &str) -> RunningMastodon {
        let state = State { now: now.to_owned(), ..State::default() };
        let fake = Self {
            oauth: Arc::new(OAuthServer::new(TokenRules::default())),
            state: Arc::new(Mutex::new(state)),
            base: Arc::default(),
        };
        let server = MockServer::start().await;
        *fake.base.lock().unwrap() = server.uri();
        Mock::given(any()).respond_with(fake.clone()).mount(&server).await;
        RunningMastodon { fake, server }
    }

    /// Sets the response to the next call of a path.
    pub fn script(&self, path: &str, response: ResponseTemplate) {
        self.state.lock().unwrap().scripted.push_back((path.to_owned(), response));
    }

    pub fn set_limits(&self, limits: Limits) {
        self.state.lock().unwrap().limits = limits;
    }

    /// Returns the files of the uploaded images, in order.
    pub fn files(&self) -> Vec<Vec<u8>> {
        self.state.lock().unwrap().files.clone()
    }

    pub fn set(&self, switches: Switches) {
        self.state.lock().unwrap().switches = switches;
    }

    /// Sets the server's clock (RFC 3339).
    pub fn set_now(&self, now: &str) {
        self.state.lock().unwrap().now = now.to_owned();
    }

    /// Publishes a post as a user does, with another application. `None`: the server does not show the application.
    pub fn publish_as_user(&self, text: &str, application: Option<&str>) {
        let mut state = self.state.lock().unwrap();
        let (id, created_at) = (format!("{}", 1000 + state.toots.len()), state.now.clone());
        let (body, visibility) = (json!({ "application": application }), "public".to_owned());
        state.toots.push(Toot { id, text: text.to_owned(), media: Vec::new(), body, visibility, created_at });
    }

    /// Deletes a post as a user does.
    pub fn delete_as_user(&self, id: &str) {
        self.state.lock().unwrap().deleted.insert(id.to_owned(), false);
    }

    /// Returns the ids of the deleted posts, and whether their images were deleted with them.
    pub fn deleted(&self) -> BTreeMap<String, bool> {
        self.state.lock().unwrap().deleted.clone()
    }

    /// Sets the visibility of posts that name none.
    pub fn set_default_visibility(&self, visibility: &'static str) {
        self.state.lock().unwrap().default_visibility = Some(visibility);
    }

    /// Makes the server older than 4.3: it has no server metadata, no PKCE and no scope `profile`.
    pub fn set_older(&self) {
        self.state.lock().unwrap().older = true;
    }

    /// Makes the server process uploads later: the next lookups find them unfinished.
    pub fn process_for(&self, lookups: usize) {
        self.state.lock().unwrap().lookups_while_processing = lookups;
    }

    pub fn set_media_status(&self, status: u16) {
        self.state.lock().unwrap().media_status = Some(status);
    }

    pub fn toots(&self) -> Vec<Toot> {
        self.state.lock().unwrap().toots.clone()
    }

    pub fn media(&self) -> BTreeMap<String, String> {
        self.state.lock().unwrap().media.clone()
    }

    pub fn registrations(&self) -> usize {
        self.state.lock().unwrap().registrations
    }

    /// Grants the consent of the user. Returns the URL to which the server redirects the browser.
    pub fn agree(&self, authorize_url: &Url) -> Url {
        assert_eq!(authorize_url.path(), "/oauth/authorize");
        self.oauth.agree(authorize_url)
    }

    fn account(&self, request: &Request) -> Result<Value, ResponseTemplate> {
        if !self.oauth.knows(&bearer(request)) {
            let body = json!({ "error": "The access token was revoked" });
            return Err(ResponseTemplate::new(401).set_body_json(body));
        }
        let base = self.base.lock().unwrap().clone();
        Ok(json!({
            "id": "23634", "username": "ann", "acct": "ann", "display_name": "Ann <b>",
            "url": format!("{base}/@ann"), "avatar": format!("{base}/ann.png"),
        }))
    }

    fn try_respond(&self, request: &Request) -> Result<ResponseTemplate, ResponseTemplate> {
        let path = request.url.path().to_owned();
        {
            let mut state = self.state.lock().unwrap();
            if state.scripted.front().is_some_and(|(scripted, _)| *scripted == path) {
                return Err(state.scripted.pop_front().unwrap().1);
            }
        }
        let json = |body: Value| Ok(ResponseTemplate::new(200).set_body_json(body));
        let base = self.base.lock().unwrap().clone();
        match (request.method.as_str(), path.as_str()) {
            ("GET", "/.well-known/oauth-authorization-server") if self.state.lock().unwrap().older => {
                Err(ResponseTemplate::new(404))
            }
            ("GET", "/.well-known/oauth-authorization-server") => json(json!({
                "issuer": format!("{base}/"),
                "authorization_endpoint": format!("{base}/oauth/authorize"),
                "token_endpoint": format!("{base}/oauth/token"),
                "scopes_supported": ["read", "write", "profile", "read:accounts", "read:statuses", "write:statuses"],
                "code_challenge_methods_supported": ["S256"],
            })),
            ("POST", "/api/v1/apps") => {
                let mut state = self.state.lock().unwrap();
                state.registrations += 1;
                let (id, secret) = (format!("app-{}", state.registrations), format!("shh-{}", state.registrations));
                self.oauth.add_client(&id, &secret);
                json(json!({ "id": "1", "name": "Crier", "client_id": id, "client_secret": secret }))
            }
            ("POST", "/oauth/token") => Ok(self.oauth.token(request)),
            ("POST", "/oauth/revoke") => {
                self.oauth.revoke(&form(request)["token"]);
                json(json!({}))
            }
            ("GET", "/api/v1/accounts/verify_credentials") => json(self.account(request)?),
            ("GET", "/api/v2/instance" | "/api/v1/instance") => self.instance(&path),
            ("GET", "/.well-known/nodeinfo") => {
                let href = format!("{base}/nodeinfo/2.0");
                json(json!({ "links": [{ "rel": "http://nodeinfo.diaspora.software/ns/schema/2.0", "href": href }] }))
            }
            ("GET", "/nodeinfo/2.0") => match self.state.lock().unwrap().limits.software {
                "" => Err(error(404, "Not found")),
                name => json(json!({ "version": "2.0", "software": { "name": name, "version": "4.5.0" } })),
            },
            ("GET", "/api/v1/notifications") => {
                self.account(request)?;
                json(json!([]))
            }
            ("POST", "/api/v2/media") => {
                self.account(request)?;
                let mut state = self.state.lock().unwrap();
                if let Some(rejection) = state.limits.rejection(request) {
                    return Err(ResponseTemplate::new(422).set_body_json(json!({ "error": rejection })));
                }
                state.files.push(part(&request.body, "file").unwrap_or_default().to_vec());
                let id = format!("{}", 100 + state.media.len());
                state.media.insert(id.clone(), String::from_utf8_lossy(&request.body).into_owned());
                if state.lookups_while_processing > 0 {
                    let body = json!({ "id": id, "type": "video", "url": null });
                    return Ok(ResponseTemplate::new(202).set_body_json(body));
                }
                json(json!({ "id": id, "type": "image", "url": format!("{base}/{id}.png") }))
            }
            ("POST", "/api/v1/statuses") => self.publish(request),
            ("GET", "/api/v1/accounts/23634/statuses") => {
                self.account(request)?;
                let toots = self.visible();
                json(Value::from(toots.iter().rev().map(|toot| self.shown(toot)).collect::<Vec<_>>()))
            }
            (_, path) if path.starts_with("/api/v1/media/") => {
                self.account(request)?;
                let mut state = self.state.lock().unwrap();
                let status = match state.lookups_while_processing {
                    0 => state.media_status.unwrap_or(200),
                    _ => 206,
                };
                state.lookups_while_processing = state.lookups_while_processing.saturating_sub(1);
                Ok(ResponseTemplate::new(status).set_body_json(json!({ "id": "100" })))
            }
            (_, path) if path.ends_with("/source") => {
                self.account(request)?;
                if self.state.lock().unwrap().switches.has_no_sources {
                    return Err(error(404, "Record not found"));
                }
                let toots = self.visible();
                let toot = toots.iter().find(|toot| path == format!("/api/v1/statuses/{}/source", toot.id));
                let toot = toot.ok_or_else(|| error(404, "Record not found"))?;
                json(json!({ "id": toot.id, "text": toot.text, "spoiler_text": "" }))
            }
            (method @ ("GET" | "DELETE"), path) if path.starts_with("/api/v1/statuses/") => {
                self.account(request)?;
                let toots = self.visible();
                let toot = toots.iter().find(|toot| path == format!("/api/v1/statuses/{}", toot.id));
                let toot = toot.ok_or_else(|| not_found("Record not found"))?;
                if method == "DELETE" {
                    let with_media = request.url.query() == Some("delete_media=true");
                    self.state.lock().unwrap().deleted.insert(toot.id.clone(), with_media);
                }
                json(self.shown(toot))
            }
            other => panic!("no such call: {other:?}"),
        }
    }

    /// Returns the description of the server.
    fn instance(&self, path: &str) -> Result<ResponseTemplate, ResponseTemplate> {
        let state = self.state.lock().unwrap();
        let (limits, is_older_api) = (&state.limits, path == "/api/v1/instance");
        let most = state.switches.max_characters.unwrap_or(limits.max_characters);
        match (limits.is_old, is_older_api) {
            (true, false) => Err(error(404, "Not found")),
            (true, true) => {
                let body = json!({
                    "max_toot_chars": most, "description_limit": limits.max_alt_text,
                    "upload_limit": limits.max_image_bytes,
                });
                Ok(ResponseTemplate::new(200).set_body_json(body))
            }
            (false, _) => {
                Ok(ResponseTemplate::new(200).set_body_json(json!({ "configuration": limits.configuration(most) })))
            }
        }
    }

    fn visible(&self) -> Vec<Toot> {
        let state = self.state.lock().unwrap();
        state.toots.iter().filter(|toot| !state.deleted.contains_key(&toot.id)).cloned().collect()
    }

    fn publish(&self, request: &Request) -> Result<ResponseTemplate, ResponseTemplate> {
        self.account(request)?;
        let body: Value = request.body_json().unwrap();
        let key = request.headers.get("idempotency-key").expect("a key").to_str().unwrap().to_owned();
        let mut text = body["status"].as_str().unwrap().to_owned();
        let visible = self.visible();
        let mut state = self.state.lock().unwrap();
        if body["in_reply_to_id"].as_str().is_some_and(|parent| visible.iter().all(|toot| toot.id != parent)) {
            return Err(not_found("The post you are trying to reply to does not appear to exist."));
        }
        let switches = state.switches;
        let most = switches.max_characters.unwrap_or(state.limits.max_characters);
        let images = body["media_ids"].as_array().map_or(0, Vec::len);
        if images > state.limits.max_images {
            return Err(ResponseTemplate::new(422).set_body_json(json!({ "error": "Cannot attach so many files" })));
        }
        if state.limits.count(body["spoiler_text"].as_str().unwrap_or_default(), &text) > most {
            let body = json!({ "error": format!("Validation failed: Text character limit of {most} exceeded") });
            return Err(ResponseTemplate::new(422).set_body_json(body));
        }
        if switches.loses_posts {
            return Err(ResponseTemplate::new(502));
        }
        if switches.strips_texts {
            text = stripped(&text);
        }
        let index = match state.by_key.get(&key) {
            Some(index) if !switches.forgets_keys => *index,
            _ => {
                let media = body["media_ids"].as_array().unwrap();
                let visibility = body["visibility"].as_str().or(state.default_visibility).unwrap_or("public");
                let toot = Toot {
                    id: format!("{}", 1000 + state.toots.len()),
                    text,
                    media: media.iter().map(|id| id.as_str().unwrap().to_owned()).collect(),
                    visibility: visibility.to_owned(),
                    body,
                    created_at: state.now.clone(),
                };
                state.toots.push(toot);
                let index = state.toots.len() - 1;
                state.by_key.insert(key, index);
                index
            }
        };
        let toot = state.toots[index].clone();
        drop(state);
        if switches.loses_responses {
            return Err(ResponseTemplate::new(502));
        }
        Ok(ResponseTemplate::new(200).set_body_json(self.shown(&toot)))
    }

    fn shown(&self, toot: &Toot) -> Value {
        let base = self.base.lock().unwrap().clone();
        let media: Vec<Value> = toot.media.iter().map(|id| json!({ "id": id })).collect();
        json!({
            "id": toot.id, "url": format!("{base}/@ann/{}", toot.id), "created_at": toot.created_at,
            "content": rendered(&toot.text), "media_attachments": media, "visibility": toot.visibility,
            "in_reply_to_id": toot.body.get("in_reply_to_id"),
            "application": match toot.body.get("application") {
                Some(by_hand) => by_hand.as_str().map(|name| json!({ "name": name })),
                None => Some(json!({ "name": "Crier", "website": null })),
            },
        })
    }
}

impl Respond for Mastodon {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let now: DateTime<Utc> = self.state.lock().unwrap().now.parse().unwrap();
        let date = now.format("%a, %d %b %Y %H:%M:%S GMT").to_string();
        self.try_respond(request).unwrap_or_else(|error| error).insert_header("date", date.as_str())
    }
}

fn not_found(message: &str) -> ResponseTemplate {
    ResponseTemplate::new(404).set_body_json(json!({ "error": message }))
}

fn stripped(text: &str) -> String {
    let mut text = text.replace("\r\n", "\n").trim().to_owned();
    while text.contains("\n\n\n") {
        text = text.replace("\n\n\n", "\n\n");
    }
    text
}

fn rendered(text: &str) -> String {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!("<p>{}</p>", escaped.replace("\r\n", "\n").replace("\n\n", "</p><p>").replace('\n', "<br />"))
}
