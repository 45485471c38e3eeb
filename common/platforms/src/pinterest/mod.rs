//! Pinterest, API v5: a pin on a board, with its images in the request, or with a video, which `video.rs` uploads.
//!
//! After a call with an unknown outcome, the newest pins since the first attempt are searched for the same board,
//! title, description and link.
//!
//! Sources: Pinterest's OpenAPI 5.23.0 of December 2025 (`/pins`, `/boards`, `/user_account`, `/oauth/token`).

mod analytics;
mod video;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, NaiveDateTime};
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::catalogue;
use crier_domain::failure::{Category, Failure};
use crier_domain::limits::{AccountLimits, Board};
use crier_domain::platform::{AccountKind, ConnectTarget, Descriptor, Platform};
use crier_http::{HttpResponse, RequestBuilder};
use http::{Method, StatusCode};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::call::{Effect, PlatformClient, connect_error, sanitize_message};
use super::metrics::Metrics;
use super::oauth::{
    self, AuthServer, Choice, ConnectAttempt, ConnectRequest, Grant, OAuthConnector, Permission, protocol, renewal,
};
use super::{
    AnalyticsConnector, CallError, Clients, ConnectError, Connected, Connector, ConnectorAccount, ImageTransfer,
    Marker, MarkerSeed, OutgoingPost, Published, ReconcileResult, RefreshedTokens, UnpublishPost, Video, VideoStep,
    VideoTransfer, options, time_marker,
};
use crate::text::comparable::is_same;
use crate::window::{CallWindow, Listed, find};

const SCOPES: [&str; 5] = ["boards:read", "boards:write", "pins:read", "pins:write", "user_accounts:read"];

const PERMISSIONS: [Permission; 3] = [
    Permission { scopes: &["user_accounts:read"], purpose: "see your name and profile picture" },
    Permission { scopes: &["boards:read", "pins:read"], purpose: "see your boards and pins" },
    Permission { scopes: &["boards:write", "pins:write"], purpose: "publish pins on your boards" },
];

/// The maximum number of recent pins that are searched.
const MAX_RECENT_POSTS: usize = 25;
/// The number of boards that are read: Pinterest's maximum per page. A post can also name another one by its ID.
const BOARDS: usize = 250;

pub(super) struct Pinterest {
    client: PlatformClient,
    config: PlatformsConfig,
    api: String,
    site: String,
    metrics: Metrics,
}

impl Pinterest {
    pub(super) fn new(config: &PlatformsConfig, clients: &Clients, clock: &Clock) -> Self {
        Self {
            client: PlatformClient::new(Platform::Pinterest, clients.trusted.clone(), clock.clone()),
            config: config.clone(),
            api: config.base_url(Platform::Pinterest, "https://api.pinterest.com"),
            site: config.auth_url(Platform::Pinterest, "https://www.pinterest.com"),
            metrics: Metrics::new(Platform::Pinterest, config, clock),
        }
    }

    fn auth_server(&self) -> AuthServer {
        let authorize = format!("{}/oauth/", self.site);
        let mut server = AuthServer::new(authorize, format!("{}/v5/oauth/token", self.api), &SCOPES);
        server.separator = ',';
        // Not documented.
        server.pkce = false;
        server
    }

    fn request(&self, method: Method, path: &str, token: &str) -> RequestBuilder {
        self.client.request(method, &format!("{}/v5{path}", self.api)).bearer_auth(token)
    }

    async fn call<T: DeserializeOwned>(&self, effect: Effect, request: RequestBuilder) -> Result<T, CallError> {
        let response = self.client.send(effect, request).await?;
        match response.status.is_success() {
            true => self.client.read(effect, &response),
            false => Err(self.classify(effect, &response)),
        }
    }

    /// Reads the account's boards. Secret ones are among them only with the scope `boards:read_secret`.
    async fn boards(&self, token: &str) -> Result<AccountLimits, CallError> {
        #[derive(Deserialize)]
        struct Page {
            items: Vec<Board>,
        }
        let request = self.request(Method::GET, "/boards", token).query(&[("page_size", BOARDS)]);
        let page: Page = self.call(Effect::Repeatable, request).await?;
        Ok(AccountLimits { read_at: self.client.now(), boards: page.items, ..AccountLimits::default() })
    }

    fn classify(&self, effect: Effect, response: &HttpResponse) -> CallError {
        #[derive(Deserialize, Default)]
        struct ErrorBody {
            code: Option<i64>,
            #[serde(default)]
            message: String,
        }
        let body: ErrorBody = serde_json::from_slice(&response.body).unwrap_or_default();
        let detail = sanitize_message(&body.message, &[]);
        let code = body.code.map_or_else(|| response.status.as_str().to_owned(), |code| code.to_string());
        let failure = |category, what: &str| {
            let message = match &detail {
                Some(detail) => format!("Pinterest {what}: {detail}"),
                None => format!("Pinterest {what}."),
            };
            Failure::of(category, message).from_platform(&code)
        };
        match response.status {
            StatusCode::UNAUTHORIZED => {
                CallError::AuthExpired(failure(Category::AuthExpired, "rejected the access token"))
            }
            // An application with trial access, a missing scope, or a restricted account.
            StatusCode::FORBIDDEN => CallError::Permanent(failure(Category::Account, "does not allow this")),
            StatusCode::NOT_FOUND => {
                CallError::Permanent(failure(Category::InvalidContent, "does not know this board"))
            }
            StatusCode::BAD_REQUEST => {
                CallError::Permanent(failure(Category::InvalidContent, "does not accept this pin"))
            }
            _ => self.client.classify_status(effect, response, Some(&code), detail),
        }
    }
}

fn board(post: &OutgoingPost) -> Result<&str, CallError> {
    options::text(post, options::BOARD)?
        .ok_or_else(|| CallError::invalid("A pin requires the option board: the board ID."))
}

/// Returns the body of a pin.
fn pin(post: &OutgoingPost) -> Result<Value, CallError> {
    let (title, link) = (options::text(post, "title")?, options::text(post, "link")?);
    let encoded = |image: &super::Image| {
        let mut item = json!({ "content_type": image.mime_type, "data": STANDARD.encode(&image.bytes) });
        if let Some(title) = title {
            item["title"] = Value::from(title);
        }
        if let Some(link) = link {
            item["link"] = Value::from(link);
        }
        item
    };
    let media_source = match (post.video(), post.images.as_slice()) {
        (Some(video), _) => video::media_source(video)?,
        (None, [only]) => json!({
            "source_type": "image_base64",
            "content_type": only.mime_type,
            "data": STANDARD.encode(&only.bytes),
        }),
        (None, several) => json!({
            "source_type": "multiple_image_base64",
            "items": several.iter().map(encoded).collect::<Vec<_>>(),
            "index": 0,
        }),
    };
    let mut body = json!({ "board_id": board(post)?, "description": post.text, "media_source": media_source });
    if let Some(title) = title {
        body["title"] = Value::from(title);
    }
    if let Some(link) = link {
        body["link"] = Value::from(link);
    }
    let alt = match post.video() {
        Some(video) => video.alt_text.as_deref(),
        None => post.images.first().and_then(|image| image.alt_text.as_deref()),
    };
    if let Some(alt) = alt {
        body["alt_text"] = Value::from(alt);
    }
    Ok(body)
}

fn published(id: &str) -> Published {
    Published::new(id, Some(format!("https://www.pinterest.com/pin/{id}/")))
}

#[derive(Deserialize)]
struct Pin {
    id: String,
    board_id: Option<String>,
    title: Option<String>,
    description: Option<String>,
    link: Option<String>,
    created_at: Option<String>,
}

impl Pin {
    fn listed(self, post: &OutgoingPost) -> Result<Listed, CallError> {
        // A time without a zone is in UTC.
        let at = self.created_at.as_deref().and_then(|text| {
            let whole = DateTime::parse_from_rfc3339(text).map(|at| at.to_utc());
            whole.or_else(|_| text.parse::<NaiveDateTime>().map(|at| at.and_utc())).ok()
        });
        fn same(found: Option<&str>, wanted: Option<&str>) -> bool {
            is_same(found.unwrap_or_default(), wanted.unwrap_or_default())
        }
        let is_same = same(self.board_id.as_deref(), Some(board(post)?))
            && same(self.description.as_deref(), Some(&post.text))
            && same(self.title.as_deref(), options::text(post, "title")?)
            && same(self.link.as_deref(), options::text(post, "link")?);
        Ok(Listed { at, is_same, published: published(&self.id) })
    }
}

#[async_trait]
impl Connector for Pinterest {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(Platform::Pinterest)
    }

    fn oauth(&self) -> Option<&dyn OAuthConnector> {
        Some(self)
    }

    fn analytics(&self) -> Option<&dyn AnalyticsConnector> {
        Some(self)
    }

    async fn refresh(&self, account: &ConnectorAccount) -> Result<RefreshedTokens, CallError> {
        let application = oauth::application_of(account, &self.config, Platform::Pinterest)?;
        oauth::renew(&self.client, &self.auth_server(), account, &application).await.map_err(|failure| {
            // A rejected refresh token returns 401 with an error in Pinterest's own format.
            match (failure.status, failure.code.as_deref()) {
                (Some(StatusCode::UNAUTHORIZED), None) => CallError::Reauth(self.client.reconnect_required()),
                _ => failure.error,
            }
        })
    }

    async fn limits(&self, account: &ConnectorAccount) -> Result<Option<AccountLimits>, CallError> {
        let token = account.secrets.require("access_token")?;
        self.boards(token.expose_secret()).await.map(Some)
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        time_marker(seed)
    }

    fn image_transfer(&self) -> ImageTransfer {
        ImageTransfer::Inline
    }

    fn video_transfer(&self) -> VideoTransfer {
        VideoTransfer::Uploaded
    }

    async fn send_video(
        &self,
        account: &ConnectorAccount,
        _post: &OutgoingPost,
        video: &Video,
    ) -> Result<VideoStep, CallError> {
        self.send_video_step(account, video).await
    }

    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError> {
        #[derive(Deserialize)]
        struct Created {
            id: String,
        }
        let token = account.secrets.require("access_token")?;
        let request = self.request(Method::POST, "/pins", token.expose_secret()).json(&pin(post)?);
        match (self.call::<Created>(Effect::Publishes, request).await, post.video()) {
            (Ok(created), _) => Ok(published(&created.id)),
            (Err(error), Some(video)) => Err(self.pin_error(&token, video, error).await),
            (Err(error), None) => Err(error),
        }
    }

    async fn reconcile(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        #[derive(Deserialize)]
        struct Newest {
            items: Vec<Pin>,
            /// The token of the next page.
            bookmark: Option<String>,
        }
        let token = account.secrets.require("access_token")?;
        let request =
            self.request(Method::GET, "/pins", token.expose_secret()).query(&[("page_size", MAX_RECENT_POSTS)]);
        let newest: Newest = self.call(Effect::Repeatable, request).await?;
        let window = CallWindow::of(post.called_at).with_next_page(newest.bookmark.is_some());
        let listed = newest.items.into_iter().map(|pin| pin.listed(post)).collect::<Result<_, _>>()?;
        Ok(find(window, listed, MAX_RECENT_POSTS))
    }

    async fn unpublish(&self, account: &ConnectorAccount, post: &UnpublishPost) -> Result<(), CallError> {
        let token = account.secrets.require("access_token")?;
        let id = percent_encoding::utf8_percent_encode(&post.external_id, percent_encoding::NON_ALPHANUMERIC);
        let request = self.request(Method::DELETE, &format!("/pins/{id}"), token.expose_secret());
        let response = self.client.send(Effect::Repeatable, request).await?;
        match response.status {
            StatusCode::NOT_FOUND => Ok(()),
            status if status.is_success() => Ok(()),
            _ => Err(self.classify(Effect::Repeatable, &response)),
        }
    }
}

#[async_trait]
impl OAuthConnector for Pinterest {
    fn permissions(&self, _target: ConnectTarget) -> &'static [Permission] {
        &PERMISSIONS
    }

    fn gate(&self, _target: ConnectTarget) -> Option<&'static str> {
        Some(
            "While the application has only trial access at Pinterest, only you can see what it publishes. The \
             operator of Crier can apply for full access.",
        )
    }

    async fn server(&self, _request: ConnectRequest<'_>) -> Result<AuthServer, ConnectError> {
        Ok(self.auth_server())
    }

    async fn exchange(&self, attempt: &ConnectAttempt, code: &str) -> Result<Grant, ConnectError> {
        Ok(protocol::exchange(&self.client, attempt, code).await?)
    }

    async fn finish(&self, grant: &Grant, _choice: Option<&Choice>) -> Result<Connected, ConnectError> {
        #[derive(Deserialize)]
        struct Account {
            id: Option<String>,
            username: String,
            business_name: Option<String>,
            profile_image: Option<String>,
        }
        let request = self.request(Method::GET, "/user_account", grant.access_token());
        let own: Account = self.call(Effect::Repeatable, request).await.map_err(|error| connect_error(error, None))?;
        // Without boards, their IDs must be typed until the boards are read.
        let limits = self.boards(grant.access_token()).await.ok();
        let username = percent_encoding::utf8_percent_encode(&own.username, percent_encoding::NON_ALPHANUMERIC);
        let profile_url = format!("https://www.pinterest.com/{username}/");
        let id = own.id.unwrap_or_else(|| own.username.clone());
        let name = own.business_name.filter(|name| !name.trim().is_empty()).unwrap_or_else(|| own.username.clone());
        Ok(Connected {
            profile_url: Some(profile_url),
            username: Some(own.username),
            avatar_url: own.profile_image,
            renewal: Some(renewal(grant, true)),
            limits,
            ..grant.connected(AccountKind::Profile, id, name)
        })
    }
}
