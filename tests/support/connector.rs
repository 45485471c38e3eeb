//! A scripted connector that replaces the sandbox.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use async_trait::async_trait;
use crier_domain::catalogue;
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{AccountKind, Descriptor, Platform};
use crier_platforms::sandbox::Sandbox;
use crier_platforms::{
    CallError, ConnectError, Connected, Connector, ConnectorAccount, InboxConnector, OutgoingPost, Published,
    ReconcileResult, RefreshedTokens, Revocation, Secrets, Video, VideoStep, VideoTransfer,
};
use secrecy::ExposeSecret;
use serde_json::json;
use tokio::sync::Semaphore;

/// Connects any handle except `refused`, `away`, `wrong` and `panics`. `waits` blocks until the test releases it, `odd`
/// returns values that must not be stored unchanged, and `nul` returns an id that cannot be stored. The account's
/// handle also selects the result of a refresh. A handle with a suffix (`demo+other`) connects the account of the
/// handle before the `+`. Each connect returns a new token, except for the handle `same`.
pub struct FakeConnector {
    pub connects: AtomicUsize,
    pub revoked: Mutex<Vec<String>>,
    /// The real sandbox, if the test uses it to connect and publish.
    pub real: OnceLock<Sandbox>,
    /// Has a permit for each waiting call. Each permit of `go` releases one.
    pub waiting: Semaphore,
    pub go: Semaphore,
}

impl Default for FakeConnector {
    fn default() -> Self {
        let (waiting, go) = (Semaphore::new(0), Semaphore::new(0));
        Self { connects: AtomicUsize::new(0), revoked: Mutex::default(), real: OnceLock::new(), waiting, go }
    }
}

impl FakeConnector {
    async fn wait(&self) {
        self.waiting.add_permits(1);
        self.go.acquire().await.expect("the semaphore stays open").forget();
    }
}

fn failure(message: &str) -> Failure {
    Failure::of(Category::PlatformError, message)
}

#[async_trait]
impl Connector for FakeConnector {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(Platform::Sandbox)
    }

    fn claims_handle(&self) -> bool {
        self.real.get().is_some()
    }

    async fn connect(&self, workspace_id: i64, credentials: &Secrets) -> Result<Connected, ConnectError> {
        let n = self.connects.fetch_add(1, Ordering::SeqCst);
        if let Some(real) = self.real.get() {
            return real.connect(workspace_id, credentials).await;
        }
        let handle = credentials.get("handle").map(|h| h.expose_secret().to_owned()).unwrap_or_default();
        match handle.as_str() {
            "refused" => return Err(ConnectError::Rejected("The platform knows no such handle.".into())),
            "away" => return Err(ConnectError::Unavailable("The platform does not answer.".into())),
            "wrong" => return Err(ConnectError::Field { field: "handle", message: "is no handle".into() }),
            "panics" => panic!("a connector of the tests panics"),
            "waits" => self.wait().await,
            _ => {}
        }
        let odd = handle == "odd";
        let access = if handle == "same" { handle.clone() } else { format!("access-{n}") };
        let external_id = handle.split('+').next().unwrap_or_default().to_owned();
        Ok(Connected {
            external_id: if handle == "nul" { "n\0l".to_owned() } else { external_id },
            name: if odd { format!("\0Odd\r\n{}", "x".repeat(3_900_000)) } else { handle.to_uppercase() },
            username: Some(if odd { "\0".to_owned() } else { handle.clone() }),
            profile_url: odd.then(|| "javascript:alert(1)".to_owned()),
            avatar_url: odd.then(|| "https://odd.example/a\0.png".to_owned()),
            kind: AccountKind::Profile,
            token_expires_at: None,
            renewal: None,
            limits: None,
            application: None,
            secrets: credentials.with(&[("token", &format!("hunter2-{n}")), ("access_token", &access)]),
        })
    }

    async fn refresh(&self, account: &ConnectorAccount) -> Result<RefreshedTokens, CallError> {
        match account.external_id.as_str() {
            "late-refusal" => {
                self.wait().await;
                Err(CallError::Reauth(failure("The token is rejected.")))
            }
            "late-tokens" => {
                self.wait().await;
                Ok(RefreshedTokens {
                    secrets: Some(account.secrets.with(&[("token", "stale")])),
                    token_expires_at: None,
                    refresh_expires_at: None,
                })
            }
            "expired" => Err(CallError::Reauth(failure("The token is rejected."))),
            "down" => Err(CallError::Transient(failure("The platform is down."))),
            _ => Ok(RefreshedTokens { secrets: None, token_expires_at: None, refresh_expires_at: None }),
        }
    }

    fn inbox(&self) -> Option<&dyn InboxConnector> {
        self.real.get().and_then(Connector::inbox)
    }

    fn can_reconcile(&self) -> bool {
        false
    }

    fn video_transfer(&self) -> VideoTransfer {
        self.real.get().map_or(VideoTransfer::Fetched, Connector::video_transfer)
    }

    async fn send_video(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
        video: &Video,
    ) -> Result<VideoStep, CallError> {
        match self.real.get() {
            Some(real) => real.send_video(account, post, video).await,
            None => Err(CallError::Permanent(failure("This platform takes no videos."))),
        }
    }

    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError> {
        if let Some(real) = self.real.get() {
            return real.publish(account, post).await;
        }
        Err(CallError::Permanent(Failure::of(Category::PlatformRejected, json!("not here").to_string())))
    }

    async fn reconcile(&self, _account: &ConnectorAccount, _post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        Ok(ReconcileResult::Unsupported)
    }

    fn revocation(&self) -> Option<Revocation> {
        Some(Revocation::Token)
    }

    async fn revoke(&self, account: &ConnectorAccount) -> Result<(), CallError> {
        self.revoked.lock().expect("no test panics while it revokes").push(account.external_id.clone());
        Ok(())
    }
}
