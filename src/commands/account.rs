//! `crier account list | connect`

use crier_domain::account::AccountStatus;
use crier_domain::authorization::LIFETIME;
use crier_domain::platform::{Mode, Platform};
use crier_http::{self as http, Guard};
use crier_platforms::ConnectError;
use crier_runtime::{StartError, platforms_of};
use crier_store::{accounts, applications, authorizations, brands};
use secrecy::ExposeSecret;
use serde::Serialize;

use super::{BRAND_HINT, Context, Result, fail};
use crate::cli::{AccountCommand, ConnectAccount};
use crate::output::{output_time, print_link, print_rows};

#[derive(Serialize)]
struct AccountLine {
    id: i64,
    workspace_id: i64,
    platform: Platform,
    name: String,
    external_id: String,
    status: AccountStatus,
    token_expires_at: Option<chrono::DateTime<chrono::Utc>>,
}

pub async fn run(cx: &Context, command: AccountCommand) -> Result {
    match command {
        AccountCommand::List(format) => {
            let all = accounts::all(&mut cx.store.read().await?).await?;
            let list: Vec<AccountLine> = all
                .into_iter()
                .map(|a| AccountLine {
                    id: a.id,
                    workspace_id: a.workspace_id,
                    platform: a.platform,
                    name: a.name,
                    external_id: a.external_id,
                    status: a.status,
                    token_expires_at: a.token_expires_at.map(|at| output_time(at, format.json)),
                })
                .collect();
            print_rows(&list, format.json);
            Ok(())
        }
        AccountCommand::Connect(args) => connect(cx, args).await,
    }
}

async fn connect(cx: &Context, args: ConnectAccount) -> Result {
    let ConnectAccount { platform, brand, instance, target } = args;
    http::check_root_certificates().map_err(|error| StartError::Invalid(error.to_string()))?;
    let guard = Guard::new(cx.config.guard.allowed_private_networks.clone());
    let registry = platforms_of(&cx.config, &cx.store, &guard);
    let connector = registry.get(platform);
    let Some(oauth) = connector.as_ref().and_then(|connector| connector.oauth()) else {
        return fail(match registry.descriptor(platform).mode {
            Mode::SelfConnect => format!("{platform} is connected with credentials, in the console or with the API"),
            _ => format!("this version cannot connect {platform}"),
        });
    };
    if !oauth.targets().contains(&target) {
        return fail(format!("{platform} does not support --target {target}; omit --target"));
    }
    let instance = match (registry.descriptor(platform).mode, instance) {
        (Mode::SelfConnectOauth, Some(typed)) => match oauth.check_instance(&typed).await {
            Ok(instance) => instance,
            Err(ConnectError::Field { message, .. } | ConnectError::Rejected(message)) => return fail(message),
            Err(ConnectError::Unavailable(message)) => return fail(message),
        },
        (Mode::SelfConnectOauth, None) if platform == Platform::Shopify => {
            return fail("shopify requires --shop, such as example.myshopify.com".to_owned());
        }
        (Mode::SelfConnectOauth, None) => {
            return fail(format!("{platform} requires --instance, the URL of the person's server"));
        }
        (_, Some(_)) => return fail(format!("{platform} has one server; omit --instance")),
        (_, None) => String::new(),
    };
    let mut tx = cx.store.begin().await?;
    let Some((workspace, plan)) = brands::plan_of(&mut tx, brand).await? else {
        return fail(format!("there is no brand {brand}; {BRAND_HINT}"));
    };
    if registry.descriptor(platform).needs_application() && registry.application(platform, target).is_none() {
        let cipher = cx.store.cipher();
        if applications::of_brand(&mut tx, cipher, platform, target, workspace, brand).await?.is_none() {
            return fail(format!("no application is set for {platform}; see `crier app set --help`"));
        }
    }
    let cap = cx.config.plans.get(&plan).and_then(|plan| plan.social_accounts);
    let count = accounts::count(&mut tx, brand).await?;
    let is_full = cap.is_some_and(|cap| count >= i64::try_from(cap).unwrap_or(i64::MAX));
    if is_full && !accounts::has_platform(&mut tx, brand, platform).await? {
        return fail(format!(
            "the brand has {count} accounts, the maximum of its plan; disconnect one in the console, or change the plan \
             with `crier plan set`"
        ));
    }
    let new = authorizations::NewAuthorization {
        brand_id: brand,
        user_id: None,
        key_id: None,
        platform,
        target,
        instance: &instance,
    };
    let token = authorizations::create(&mut tx, new).await?;
    tx.commit().await?;
    print_link(cx.config.absolute(&format!("/connect/{}", token.expose_secret())), LIFETIME);
    Ok(())
}
