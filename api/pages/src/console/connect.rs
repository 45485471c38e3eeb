//! `/brands/{brand}/accounts/connect/{platform}`: connects an account, with the credential fields of the platform's
//! descriptor or through the pages under `/connect`.

use std::time::Duration;

use askama::Template;
use crier_domain::platform::{
    ConnectTarget, CredentialField as FieldRule, Descriptor, FieldType, Mode, Platform as PlatformKey,
};
use crier_endpoints::admission;
use crier_endpoints::error::{ApiError, FieldProblems, Result};
use crier_endpoints::routes::accounts::connect::{self, ConnectAccountRequest};
use crier_endpoints::routes::accounts::{authorize, not_configured, save, unavailable};
use crier_platforms::ConnectError;
use crier_platforms::oauth::ConnectRequest;
use crier_store::{accounts, applications};
use http::StatusCode;
use serde_json::{Map, Value};

use super::accounts::{lower_first, not_configured as not_configured_text};
use super::form_write::{FormWrite, Submission};
use super::route::{Access, PageRoute};
use super::shared::{Choice, FieldErrors, Link, Platform};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};
use crate::docs::guides::section_of;

/// The time limit for checking a server that the user entered.
const INSTANCE_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Template)]
#[template(path = "console/connect.html")]
struct Connect {
    shell: Shell,
    errors: FieldErrors,
    platform: Platform,
    /// What to do, in one or two sentences.
    help: &'static str,
    /// The link to the documentation of the platform.
    docs: Option<Link>,
    method: ConnectMethod,
    /// The name of the account that is reconnected.
    reconnects: Option<String>,
}

enum ConnectMethod {
    /// Fields named `credentials.NAME`.
    Credentials(Vec<CredentialField>),
    /// A button that continues to the platform, with a field for the server if the platform has many servers, and the
    /// choice of what to connect if there is one.
    Authorize { instance: Option<InstanceField>, targets: Vec<Choice> },
    /// The operator must configure the platform. Contains the message.
    NotConfigured(String),
}

struct CredentialField {
    name: &'static str,
    label: &'static str,
    kind: FieldType,
    required: bool,
    hint: &'static str,
    value: String,
}

struct InstanceField {
    label: &'static str,
    hint: &'static str,
    value: String,
}

impl CredentialField {
    /// Creates a field with the submitted value, unless the value is a secret.
    fn new(visit: &Visit, platform: PlatformKey, rule: &FieldRule) -> Self {
        let typed = visit.form.get(&format!("credentials.{}", rule.name));
        Self {
            name: rule.name,
            label: rule.label,
            kind: rule.field_type,
            required: rule.required,
            hint: hint(platform, rule.name),
            value: if rule.field_type == FieldType::Password { String::new() } else { typed.to_owned() },
        }
    }

    fn path(&self) -> String {
        format!("credentials.{}", self.name)
    }

    const fn kind(&self) -> &'static str {
        self.kind.as_str()
    }
}

pub fn routes() -> Vec<PageRoute> {
    let path = "/brands/{brand}/accounts/connect/{*}";
    vec![PageRoute::get(path, show).access(Access::Publisher), PageRoute::post(path, connect).access(Access::Publisher)]
}

fn descriptor(visit: &Visit) -> Result<&'static Descriptor> {
    let platform = visit.word.as_deref().and_then(|word| word.parse::<PlatformKey>().ok());
    let platform = platform.ok_or_else(|| ApiError::not_found("platform"))?;
    Ok(visit.app.platforms.descriptor(platform))
}

async fn show(visit: &Visit) -> Result<PageReply> {
    render(visit, StatusCode::OK, descriptor(visit)?, FieldErrors::default()).await
}

async fn connect(visit: &Visit) -> Result<PageReply> {
    let descriptor = descriptor(visit)?;
    let connected = match descriptor.mode {
        Mode::SelfConnect => by_credentials(visit, descriptor).await,
        Mode::Oauth => authorize(visit, descriptor.platform).await,
        Mode::SelfConnectOauth => at_instance(visit, descriptor.platform).await,
    };
    match connected {
        Ok(reply) => Ok(reply),
        Err(error) => render(visit, StatusCode::UNPROCESSABLE_ENTITY, descriptor, form_errors(error)?).await,
    }
}

async fn by_credentials(visit: &Visit, descriptor: &Descriptor) -> Result<PageReply> {
    check_required(visit, descriptor)?;
    let typed = descriptor.credential_fields.iter().filter_map(|field| {
        let value = visit.form.text(&format!("credentials.{}", field.name))?;
        Some((field.name.to_owned(), Value::from(value)))
    });
    let credentials = typed.collect::<Map<String, Value>>().into();
    let request = ConnectAccountRequest { platform: descriptor.platform, credentials };
    visit.call().write(connect::endpoint(), request).await?;
    visit.to("accounts", "account-connected")
}

/// Fails if required fields are empty, with what to enter.
fn check_required(visit: &Visit, descriptor: &Descriptor) -> Result<()> {
    let required = descriptor.credential_fields.iter().filter(|field| field.required);
    let problems: FieldProblems = required
        .map(|field| (format!("credentials.{}", field.name), vec![format!("Enter the {}.", lower_first(field.label))]))
        .filter(|(path, _)| visit.form.text(path).is_none())
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(ApiError::validation(problems)) }
}

async fn authorize(visit: &Visit, platform: PlatformKey) -> Result<PageReply> {
    let mut typed = visit.form.texts(&["target"]);
    typed.insert("platform".to_owned(), Value::from(platform.as_str()));
    let created = visit.call().write(authorize::endpoint(), visit.parse(&typed)).await?;
    redirect(visit, &created.into_value()?.authorization_url)
}

/// Creates an authorization at the server that the user entered. No endpoint does this.
async fn at_instance(visit: &Visit, platform: PlatformKey) -> Result<PageReply> {
    let empty = match platform {
        PlatformKey::Shopify => "Enter the domain of your shop, such as example.myshopify.com.",
        _ => "Enter your server, such as mastodon.social.",
    };
    let typed = visit.form.text("instance").ok_or_else(|| ApiError::field("instance", empty))?;
    let connector =
        visit.app.platforms.get(platform).ok_or_else(|| not_configured(platform, ConnectTarget::Default))?;
    let oauth = connector.oauth().ok_or_else(|| not_configured(platform, ConnectTarget::Default))?;
    let checked = tokio::time::timeout(INSTANCE_TIMEOUT, oauth.check_instance(typed)).await;
    let late = || unavailable("The server did not respond within 20 seconds. Retry later.".to_owned());
    let instance = checked.map_err(|_| late())?.map_err(|error| match error {
        ConnectError::Field { message, .. } | ConnectError::Rejected(message) => ApiError::field("instance", message),
        ConnectError::Unavailable(message) => unavailable(message),
    })?;
    let mut write = match FormWrite::begin(visit).await? {
        Submission::Repeated(url) => return redirect(visit, &String::from_utf8_lossy(&url)),
        Submission::First(write) => write,
    };
    let caller = &visit.authenticated.caller;
    let place = save::Place {
        workspace_id: caller.workspace_id,
        brand_id: visit.brand()?.0.id,
        user_id: Some(caller.user_id),
        key_id: None,
        cap: admission::plan(&visit.app, caller)?.social_accounts,
        trace: Some(&visit.request_id),
    };
    let request = ConnectRequest { target: ConnectTarget::Default, instance: &instance };
    let url = match authorize::issue(&visit.app, &mut write.tx, place, request, platform).await {
        Ok(url) => url,
        Err(error) => return write.reject(error).await,
    };
    write.finish(url.as_bytes()).await?;
    redirect(visit, &url)
}

/// Redirects to the page under `/connect`.
fn redirect(visit: &Visit, url: &str) -> Result<PageReply> {
    let path = url.strip_prefix(&visit.app.public_url).filter(|path| path.starts_with("/connect/"));
    let path = path.ok_or_else(|| ApiError::bug("the connect page is not at the public URL"))?;
    Ok(PageReply::SeeOther(path.to_owned()))
}

async fn render(visit: &Visit, status: StatusCode, descriptor: &Descriptor, errors: FieldErrors) -> Result<PageReply> {
    let (brand, workspace) = (visit.brand()?.0.id, visit.authenticated.caller.workspace_id);
    let mut conn = visit.app.store.read().await?;
    let set = applications::platforms(&mut conn, workspace, brand).await?;
    let reconnects = match visit.query.get("account").and_then(|id| id.parse().ok()) {
        Some(id) => accounts::find(&mut conn, brand, id).await?.filter(|a| a.platform == descriptor.platform),
        None => None,
    };
    let is_configured = visit.app.platforms.is_configured(descriptor.platform, set.contains(&descriptor.platform));
    let is_sandbox = descriptor.platform == PlatformKey::Sandbox;
    let name = if is_sandbox { "the sandbox" } else { descriptor.name };
    let page = Connect {
        shell: visit.shell(Section::Accounts, format!("Connect {name}")),
        errors,
        platform: Platform::of(descriptor.platform.as_str()),
        help: help(descriptor.platform),
        docs: (descriptor.mode != Mode::SelfConnect)
            .then(|| Link::new("Learn more", &format!("/docs/platforms#{}", section_of(descriptor)))),
        method: if is_configured {
            method(visit, descriptor)
        } else {
            ConnectMethod::NotConfigured(not_configured_text(descriptor))
        },
        reconnects: reconnects.map(|account| account.name),
    };
    visit.page_with(status, &page)
}

fn method(visit: &Visit, descriptor: &Descriptor) -> ConnectMethod {
    let platform = descriptor.platform;
    if descriptor.mode == Mode::SelfConnect {
        let fields = descriptor.credential_fields.iter().map(|rule| CredentialField::new(visit, platform, rule));
        return ConnectMethod::Credentials(fields.collect());
    }
    let value = visit.form.get("instance").to_owned();
    let (label, hint) = match platform {
        PlatformKey::Shopify => ("Shop domain", "Such as example.myshopify.com."),
        _ => ("Server", "Such as mastodon.social."),
    };
    let has_instance = descriptor.mode == Mode::SelfConnectOauth;
    let instance = has_instance.then_some(InstanceField { label, hint, value });
    ConnectMethod::Authorize { instance, targets: targets(visit, platform) }
}

/// Returns the choices of what to connect. Empty if the platform has only one.
fn targets(visit: &Visit, platform: PlatformKey) -> Vec<Choice> {
    let texts = match platform {
        PlatformKey::Linkedin => [
            ("My profile", "Posts appear under your name."),
            ("A page", "You choose the page after signing in. You must be one of its administrators."),
        ],
        PlatformKey::Instagram => [
            ("Sign in to Instagram", "A business or creator account."),
            ("Through a Facebook page", "A business or creator account that is linked to a Facebook page."),
        ],
        _ => return Vec::new(),
    };
    let chosen = visit.form.text("target").unwrap_or(ConnectTarget::Default.as_str());
    let choice = |(target, (label, hint)): (&ConnectTarget, (&str, &str))| {
        let choice = Choice::new(target.as_str(), label, target.as_str() == chosen);
        Choice { hint: hint.to_owned(), ..choice }
    };
    [ConnectTarget::Default, ConnectTarget::Page].iter().zip(texts).map(choice).collect()
}

const fn help(platform: PlatformKey) -> &'static str {
    match platform {
        PlatformKey::Sandbox => "The sandbox is a platform inside Crier for trying things out. Choose any handle.",
        PlatformKey::Telegram => {
            "Create a bot with @BotFather, and add it to the channel as an administrator with permission to post."
        }
        PlatformKey::Bluesky => {
            "Create an app password in Bluesky's settings, under \u{201c}Privacy and security\u{201d}. It is not the \
             password that you sign in with."
        }
        PlatformKey::Wordpress => {
            "Create an application password on your profile page in WordPress, as a user with permission to publish."
        }
        PlatformKey::Woocommerce => {
            "Create a REST API key with read and write permission in WooCommerce's settings, under \
             \u{201c}Advanced\u{201d}."
        }
        PlatformKey::Mastodon => "Sign in to your own server and authorize Crier. You then return here.",
        PlatformKey::Shopify => "Install the application in your shop and choose a blog. You then return here.",
        PlatformKey::Youtube => {
            "Sign in to Google, choose the channel, and leave all permissions selected. You then return here."
        }
        _ => "Sign in to the platform and authorize Crier. You then return here.",
    }
}

fn hint(platform: PlatformKey, field: &str) -> &'static str {
    match (platform, field) {
        (PlatformKey::Telegram, "bot_token") => "Shown by @BotFather.",
        (PlatformKey::Telegram, "chat_id") => "Such as @acme or -1001234567890.",
        (PlatformKey::Bluesky, "identifier") => "Such as acme.bsky.social.",
        (PlatformKey::Bluesky, "service") => "Leave empty to use Bluesky's own server.",
        (PlatformKey::Wordpress, "site_url") | (PlatformKey::Woocommerce, "store_url") => "Including https://.",
        _ => "",
    }
}
