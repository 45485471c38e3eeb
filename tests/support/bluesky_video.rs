//! A fake of Bluesky's video service, as its lexicons describe it, and of an account's server that issues tokens for
//! it. One fake is both, because their methods have different names.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use wiremock::{Request, Respond, ResponseTemplate};

use super::bluesky::{ACCESS, BlueskyRepo, DID};
use super::oauth::bearer;

/// The size of the parts, in bytes.
pub const PART_SIZE: usize = 6 << 20;
/// The audience that the service requires.
pub const AUDIENCE: &str = "did:web:pds.example";
const UPLOAD: &str = "upload-1";
/// The service processes an upload in another job.
const JOB: &str = "job-7";

#[derive(Default)]
struct State {
    /// The names of the calls.
    calls: Vec<String>,
    /// Responses to the next calls, by name, instead of the usual ones.
    scripted: VecDeque<(String, ResponseTemplate)>,
    tokens: BTreeSet<String>,
    /// The tokens of the calls that finished an upload.
    finishing_tokens: Vec<String>,
    /// The queries for tokens.
    token_queries: Vec<BTreeMap<String, String>>,
    /// The size of the upload in parts.
    size: usize,
    parts: BTreeMap<usize, Vec<u8>>,
    /// The complete videos.
    files: Vec<Vec<u8>>,
    /// The number of lookups after which a video is processed.
    lookups_while_processing: usize,
}

/// The servers; clones share their state.
#[derive(Clone, Default)]
pub struct BlueskyVideo {
    /// The repository of the account.
    pub repo: BlueskyRepo,
    state: Arc<Mutex<State>>,
}

pub fn error(status: u16, name: &str, message: &str) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(json!({ "error": name, "message": message }))
}

fn ok(body: Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(body)
}

/// Returns the blob of a processed video.
pub fn blob() -> Value {
    let link = json!({ "$link": "bafkreiccldh766hwcnuxnf2wh6jgzepf2nlu2lvcllt63eww5p6chi4ity" });
    json!({ "$type": "blob", "ref": link, "mimeType": "video/mp4", "size": 4_321 })
}

impl BlueskyVideo {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap())
    }

    /// Sets the response to the next call of a method, `uploadPart` for instance.
    pub fn script(&self, name: &str, response: ResponseTemplate) {
        self.with(|state| state.scripted.push_back((name.to_owned(), response)));
    }

    /// Makes the next lookups find the video unprocessed.
    pub fn process_for(&self, lookups: usize) {
        self.with(|state| state.lookups_while_processing = lookups);
    }

    /// Loses a part, from 1, which the service received.
    pub fn lose_part(&self, number: usize) {
        self.with(|state| state.parts.remove(&number)).expect("the part");
    }

    /// Returns how often a method was called.
    pub fn calls(&self, name: &str) -> usize {
        self.with(|state| state.calls.iter().filter(|call| *call == name).count())
    }

    /// Returns the complete videos that the service received.
    pub fn files(&self) -> Vec<Vec<u8>> {
        self.with(|state| state.files.clone())
    }

    /// Returns the queries for tokens.
    pub fn token_queries(&self) -> Vec<BTreeMap<String, String>> {
        self.with(|state| state.token_queries.clone())
    }

    /// Returns the tokens of the calls that finished an upload.
    pub fn finishing_tokens(&self) -> Vec<String> {
        self.with(|state| state.finishing_tokens.clone())
    }
}

impl State {
    fn part_count(&self) -> usize {
        self.size.div_ceil(PART_SIZE)
    }

    fn service_auth(&mut self, query: BTreeMap<String, String>) -> ResponseTemplate {
        let token = format!("token-{}", self.token_queries.len());
        if query["aud"] == AUDIENCE && query["lxm"] == "com.atproto.repo.uploadBlob" {
            self.tokens.insert(token.clone());
        }
        self.token_queries.push(query);
        ok(json!({ "token": token }))
    }

    fn start(&mut self, body: &Value) -> ResponseTemplate {
        assert_eq!((&body["mimeType"], &body["durationMs"]), (&json!("video/mp4"), &json!(5_000)));
        assert_eq!((&body["width"], &body["height"]), (&json!(720), &json!(1_280)));
        self.size = usize::try_from(body["sizeBytes"].as_u64().unwrap()).unwrap();
        self.parts.clear();
        ok(json!({
            "jobId": UPLOAD, "partSizeBytes": PART_SIZE, "partCount": self.part_count(),
            "expiresAt": "2026-03-01T13:00:00.000Z",
        }))
    }

    fn part(&mut self, request: &Request, query: &BTreeMap<String, String>) -> ResponseTemplate {
        let number: usize = query["partNumber"].parse().unwrap();
        if query["jobId"] != UPLOAD || self.size == 0 {
            return error(400, "UploadNotFound", "No such upload");
        }
        if !(1..=self.part_count()).contains(&number) {
            return error(400, "InvalidPartNumber", "Out of range");
        }
        let expected = (self.size - (number - 1) * PART_SIZE).min(PART_SIZE);
        let length = request.headers.get("content-length").and_then(|length| length.to_str().ok());
        if length != Some(expected.to_string().as_str()) || request.body.len() != expected {
            return error(400, "PartSizeMismatch", "Wrong length");
        }
        self.parts.insert(number, request.body.clone());
        ok(json!({ "partNumber": number, "sizeBytes": expected }))
    }

    fn finish(&mut self, token: String, body: &Value) -> ResponseTemplate {
        if body["jobId"] != UPLOAD {
            return error(400, "UploadNotFound", "No such upload");
        }
        if self.parts.len() < self.part_count() {
            return error(400, "MissingParts", "Missing parts");
        }
        self.finishing_tokens.push(token);
        self.files.push(self.parts.values().cloned().collect::<Vec<_>>().concat());
        ok(json!({ "completedJobId": JOB, "jobStatus": job("JOB_STATE_CREATED") }))
    }

    fn job_status(&mut self, query: &BTreeMap<String, String>) -> ResponseTemplate {
        if query["jobId"] != JOB {
            return error(400, "InvalidRequest", "Job not found");
        }
        if self.lookups_while_processing > 0 {
            self.lookups_while_processing -= 1;
            return ok(json!({ "jobStatus": job("JOB_STATE_ENCODING") }));
        }
        let mut done = job("JOB_STATE_COMPLETED");
        done["blob"] = blob();
        ok(json!({ "jobStatus": done }))
    }

    /// Responds to a call of the service that requires a token.
    fn respond(&mut self, name: &str, request: &Request, query: &BTreeMap<String, String>) -> ResponseTemplate {
        let (token, body): (_, Value) = (bearer(request), request.body_json().unwrap_or_default());
        if !self.tokens.contains(&token) {
            return error(401, "BadJwt", "jwt signature does not match the issuer");
        }
        match name {
            "startUpload" => self.start(&body),
            "uploadPart" => self.part(request, query),
            "finishUpload" => self.finish(token, &body),
            "abortUpload" => {
                if body["jobId"] != UPLOAD {
                    return error(400, "UploadNotFound", "No such upload");
                }
                self.size = 0;
                self.parts.clear();
                ok(json!({ "state": "aborted" }))
            }
            "getUploadStatus" => {
                let received: Vec<usize> = self.parts.keys().copied().collect();
                ok(json!({
                    "jobId": UPLOAD, "partSizeBytes": PART_SIZE, "partCount": self.part_count(), "state": "created",
                    "receivedParts": received, "expiresAt": "2026-03-01T13:00:00.000Z",
                }))
            }
            "uploadVideo" => {
                assert_eq!(query["did"], DID);
                assert!(query["name"].ends_with(".mp4") || request.headers["content-type"] != "video/mp4");
                self.files.push(request.body.clone());
                // Without the object that the lexicon has around it.
                ok(job("JOB_STATE_CREATED"))
            }
            _ => error(501, "MethodNotImplemented", "Method Not Implemented"),
        }
    }
}

/// Returns the status of the job.
pub fn job(state: &str) -> Value {
    json!({ "jobId": JOB, "did": DID, "state": state })
}

impl Respond for BlueskyVideo {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let Some(method) = request.url.path().strip_prefix("/xrpc/") else { return ResponseTemplate::new(404) };
        let name = method.rsplit('.').next().unwrap();
        let query: BTreeMap<String, String> = request.url.query_pairs().into_owned().collect();
        let scripted = self.with(|state| {
            state.calls.push(name.to_owned());
            let next = state.scripted.iter().position(|(scripted, _)| scripted == name)?;
            state.scripted.remove(next)
        });
        if let Some((_, response)) = scripted {
            return response;
        }
        match (method, bearer(request) == ACCESS) {
            ("com.atproto.server.getSession", true) => {
                let service = json!({ "id": "#atproto_pds", "serviceEndpoint": "https://pds.example" });
                ok(json!({ "did": DID, "handle": "alice.example", "didDoc": { "id": DID, "service": [service] } }))
            }
            ("com.atproto.server.getServiceAuth", true) => self.with(|state| state.service_auth(query)),
            ("app.bsky.video.getJobStatus", _) => self.with(|state| state.job_status(&query)),
            (method, _) if method.starts_with("app.bsky.video.") => {
                self.with(|state| state.respond(name, request, &query))
            }
            _ => self.repo.respond(request),
        }
    }
}
