//! Error pages in the layout of the console.

use askama::Template;
use crier_domain::plan::Feature;
use crier_endpoints::error::{ApiError, ErrorCode};
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use salvo::Response;
use salvo::writing::Text;

use super::shared::Link;
use super::shared::feature_label;
use super::shell::{Section, Shell};
use super::visit::Visit;
use super::wording::in_quotes;

/// Allows only styles, scripts, images, videos and form targets on this host.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data: blob:; media-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

#[derive(Template)]
#[template(path = "console/error.html")]
pub struct ErrorPage {
    shell: Shell,
    /// What is wrong and what to do.
    text: String,
    action: Link,
    /// Whether the plan does not permit the action.
    is_plan: bool,
    /// The request ID of an internal error, for the operator.
    request_id: Option<String>,
}

impl ErrorPage {
    pub fn render(visit: &Visit, error: &ApiError, res: &mut Response) {
        let status = error.code.status();
        let is_plan = matches!(error.code, ErrorCode::FeatureNotAvailable | ErrorCode::LimitReached);
        let title = match error.code {
            ErrorCode::NotFound => "Page not found",
            ErrorCode::InsufficientScope | ErrorCode::BrandForbidden => "You cannot do this",
            ErrorCode::RateLimited => "Too many requests",
            _ if is_plan => "Not in your plan",
            _ if status.is_server_error() => "Something went wrong",
            _ => "This action could not be completed",
        };
        let action = match &visit.referrer_path {
            Some(path) => Link::new("Go back", path),
            None => Link::new("Go to the home page", "/"),
        };
        let shell = Shell { section: None, ..visit.shell(Section::Home, title) };
        let request_id = status.is_server_error().then(|| visit.request_id.clone());
        let page = Self { shell, text: message(error), action, is_plan, request_id };
        res.status_code(status);
        let failed = "Something went wrong on our side. If the problem persists, tell the operator.";
        res.render(Text::Html(page.render().unwrap_or_else(|_| failed.to_owned())));
    }
}

/// Returns the errors of the fields, or the message if there are none.
pub fn message(error: &ApiError) -> String {
    let problems: Vec<String> = error.fields.values().flatten().map(|problem| in_quotes(problem)).collect();
    if problems.is_empty() { general_message(error) } else { problems.join(" ") }
}

/// Returns the message of an error. It contains the names that features have in the console.
pub fn general_message(error: &ApiError) -> String {
    if error.features.is_empty() {
        return in_quotes(&error.message);
    }
    let name = |one: &Feature| match one {
        Feature::Inbox => "the inbox".to_owned(),
        other => feature_label(*other).to_lowercase(),
    };
    let names: Vec<String> = error.features.iter().map(name).collect();
    format!("Your plan does not include {}. Ask the operator of this installation to change it.", names.join(" or "))
}

/// Sets the headers of a page of the console. It is not cached, because its content is private.
pub fn page_headers(res: &mut Response) {
    let headers = res.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

#[cfg(test)]
mod tests {
    use crier_endpoints::error::FieldProblems;

    use super::*;

    #[test]
    fn a_backtick_of_a_user_changes_only_its_own_problem() {
        let problems = vec!["No account is called `it`s`.".to_owned(), "Must be `draft`.".to_owned()];
        let error = ApiError::validation(FieldProblems::from([("accounts".to_owned(), problems)]));
        assert_eq!(message(&error), "No account is called `it`s`. Must be “draft”.");
    }
}
