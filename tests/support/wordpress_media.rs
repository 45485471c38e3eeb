//! A fake of a WordPress site with a media library, as the REST API handbook describes it.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use wiremock::{Request, Respond, ResponseTemplate};

/// A file of the media library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    pub id: i64,
    pub filename: String,
    pub mime_type: String,
    pub bytes: Vec<u8>,
}

#[derive(Default)]
struct State {
    files: Vec<StoredFile>,
    posts: Vec<Value>,
    /// Responses to the next uploads, instead of the usual ones.
    scripted: VecDeque<ResponseTemplate>,
}

/// The site; clones share its state. It accepts any credentials.
#[derive(Clone, Default)]
pub struct WordpressMedia(Arc<Mutex<State>>);

impl WordpressMedia {
    /// Sets the response to the next upload, instead of the usual one.
    pub fn script_upload(&self, response: ResponseTemplate) {
        self.0.lock().unwrap().scripted.push_back(response);
    }

    /// Deletes a file as a user does.
    pub fn delete_file(&self, id: i64) {
        self.0.lock().unwrap().files.retain(|file| file.id != id);
    }

    pub fn files(&self) -> Vec<StoredFile> {
        self.0.lock().unwrap().files.clone()
    }

    /// Returns the bodies of the posts.
    pub fn posts(&self) -> Vec<Value> {
        self.0.lock().unwrap().posts.clone()
    }
}

impl StoredFile {
    /// WordPress makes the slug from the name without its extension.
    fn slug(&self) -> &str {
        self.filename.rsplit_once('.').unwrap().0
    }

    fn shown(&self) -> Value {
        json!({ "id": self.id, "source_url": format!("https://blog.example/{}", self.filename), "slug": self.slug() })
    }
}

impl State {
    fn upload(&mut self, request: &Request) -> ResponseTemplate {
        if let Some(response) = self.scripted.pop_front() {
            return response;
        }
        let header = |name: &str| request.headers[name].to_str().unwrap().to_owned();
        assert_eq!(header("content-length"), request.body.len().to_string());
        let disposition = header("content-disposition");
        let filename = disposition.strip_prefix("attachment; filename=\"").unwrap().strip_suffix('"').unwrap();
        let id = 31 + i64::try_from(self.files.len()).unwrap();
        let file = StoredFile {
            id,
            filename: filename.to_owned(),
            mime_type: header("content-type"),
            bytes: request.body.clone(),
        };
        let response = ResponseTemplate::new(201).set_body_json(file.shown());
        self.files.push(file);
        response
    }

    fn found(&self, query: &BTreeMap<String, String>) -> ResponseTemplate {
        let ids: Option<Vec<i64>> =
            query.get("include").map(|ids| ids.split(',').map(|id| id.parse().unwrap()).collect());
        let is_found = |file: &&StoredFile| match &ids {
            Some(ids) => ids.contains(&file.id),
            None => file.slug() == query["slug"],
        };
        let found: Vec<Value> = self.files.iter().filter(is_found).map(StoredFile::shown).collect();
        ResponseTemplate::new(200).set_body_json(found)
    }
}

impl Respond for WordpressMedia {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let query: BTreeMap<String, String> = request.url.query_pairs().into_owned().collect();
        let mut state = self.0.lock().unwrap();
        match (request.method.as_str(), request.url.path()) {
            ("POST", "/wp-json/wp/v2/media") => state.upload(request),
            ("GET", "/wp-json/wp/v2/media") => state.found(&query),
            ("POST", path) if path.starts_with("/wp-json/wp/v2/media/") => {
                ResponseTemplate::new(200).set_body_json(json!({ "id": 1 }))
            }
            ("POST", "/wp-json/wp/v2/posts") => {
                let post: Value = request.body_json().unwrap();
                let shown = json!({ "id": 11, "link": "https://blog.example/post/", "slug": post["slug"] });
                state.posts.push(post);
                ResponseTemplate::new(201).set_body_json(shown)
            }
            ("GET", "/wp-json/wp/v2/posts") => {
                let found: Vec<Value> =
                    state.posts.iter().filter(|post| post["slug"] == query["slug"]).cloned().collect();
                let shown =
                    |post: Value| json!({ "id": 11, "link": "https://blog.example/post/", "slug": post["slug"] });
                ResponseTemplate::new(200).set_body_json(found.into_iter().map(shown).collect::<Vec<_>>())
            }
            other => panic!("no such call: {other:?}"),
        }
    }
}
