//! The console: pages for signed-in users.
//!
//! A page reads and writes through the endpoints of the API, called in this process ([`call`]), so it has the same rules
//! and the same errors. Resources without endpoints (keys, members, sessions) use the same functions of the store as
//! the commands. Pages work without JavaScript; the script only adds convenience.
//!
//! A page is a file here with its view and `pub fn routes() -> Vec<PageRoute>`, and its template in
//! `api/pages/templates/console/`. `CONTRIBUTING.md` has the recipe for a new one. The macro `guard` writes the hidden
//! fields `_csrf` and `_key` of a form. `_key` is the `Idempotency-Key` of its write, so a form that is sent twice is
//! executed once.

use std::sync::Arc;

use crier_endpoints::app::App;
use http::Method;
use salvo::Router;

mod assets;
mod call;
mod cookie;
mod error;
mod flash;
mod form;
mod marks;
mod route;
mod shared;
mod shell;
mod sign_in;
mod visit;
mod wording;

mod account_choices;
mod account_signature;
mod accounts;
mod agent_access;
mod agent_clients;
mod agents;
mod analytics;
mod analytics_filter;
mod analytics_top;
mod analytics_totals;
mod applications;
mod avatar;
mod best_times;
mod bio;
mod bio_link;
mod brand_new;
mod calendar;
mod calendar_period;
mod charts;
mod composer;
mod composer_card;
mod composer_check;
mod composer_images;
mod composer_input;
mod composer_override;
mod composer_thread;
mod composer_thread_fields;
mod composer_view;
mod connect;
mod content_plan;
mod content_plans;
mod conversation;
mod days;
mod developers;
mod feed;
mod feed_publishing;
mod feeds;
mod form_write;
mod home;
mod inbox;
mod invitation;
mod kept_form;
mod key_form;
mod keys;
mod lists;
mod media;
mod media_item;
mod media_uploads;
mod members;
mod notifications;
mod oauth_consent;
mod operator;
mod operator_applications;
mod operator_plans;
mod operator_system;
mod operator_users;
mod paging;
mod plan_item;
mod post;
mod post_bulk;
mod post_filters;
mod post_import;
mod post_imports;
mod post_labels;
mod post_list_filter;
mod post_metrics;
mod post_options;
mod post_preview;
mod post_rows;
mod post_target;
mod post_view;
mod posts;
mod queue;
mod recurring;
mod recurring_form;
mod report;
mod reports;
mod requests;
mod session_list;
mod settings;
mod snippet;
mod snippets;
mod video;
mod webhook;
mod webhook_form;
mod webhooks;

use route::{PageRoute, PageRunner};

fn routes() -> Vec<PageRoute> {
    [
        home::routes(),
        posts::routes(),
        post_bulk::routes(),
        post_imports::routes(),
        post_import::routes(),
        calendar::routes(),
        queue::routes(),
        composer::routes(),
        post::routes(),
        recurring::routes(),
        recurring_form::routes(),
        reports::routes(),
        report::routes(),
        bio::routes(),
        bio_link::routes(),
        content_plans::routes(),
        content_plan::routes(),
        plan_item::routes(),
        feeds::routes(),
        feed::routes(),
        feed_publishing::routes(),
        accounts::routes(),
        account_signature::routes(),
        avatar::routes(),
        connect::routes(),
        keys::routes(),
        agents::routes(),
        requests::routes(),
        webhooks::routes(),
        webhook_form::routes(),
        webhook::routes(),
        settings::routes(),
        members::routes(),
        notifications::routes(),
        session_list::routes(),
        applications::routes(),
        oauth_consent::routes(),
        brand_new::routes(),
        media::routes(),
        media_item::routes(),
        snippets::routes(),
        snippet::routes(),
        inbox::routes(),
        conversation::routes(),
        analytics::routes(),
        operator::routes(),
        operator_applications::routes(),
        operator_users::routes(),
        operator_plans::routes(),
        operator_system::routes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the method and the path of every page, with IDs in braces.
pub fn paths() -> Vec<(Method, &'static str)> {
    routes().iter().map(PageRoute::shape).collect()
}

/// Returns the routes of the console, relative to the root of the host.
pub fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new()
        .push(assets::router())
        .push(sign_in::router())
        .push(invitation::router())
        .push(media_uploads::router(app));
    for route in routes() {
        let path = route.pattern();
        let runner = PageRunner::new(app.clone(), route);
        router = router.push(runner.router(&path));
    }
    router
}
