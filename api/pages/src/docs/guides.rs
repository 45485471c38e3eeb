//! `/docs/{guide}`: the documents in `docs/` for users of the API.
//!
//! **To add one:** a line in [`GUIDES`], and a link to it in the templates.

use std::sync::{Arc, OnceLock};

use askama::Template;
use crier_domain::platform::Descriptor;
use crier_endpoints::app::App;
use crier_endpoints::error::CATALOGUE;
use crier_endpoints::page_body::PageBody;
use http::StatusCode;
use salvo::{Depot, FlowCtrl, Request, Response, Router};

use super::markdown::{self, Rendered};
use crate::{headers, notice, styles};

/// The names in the path, and the Markdown texts.
const GUIDES: &[(&str, &str)] = &[
    ("getting-started", include_str!("../../../../docs/getting-started.md")),
    ("errors", CATALOGUE),
    ("mcp", include_str!("../../../../docs/mcp.md")),
    ("platforms", include_str!("../../../../docs/platforms.md")),
    ("webhooks", include_str!("../../../../docs/webhooks.md")),
];
/// The URL in the texts, which is replaced by the public URL of this server.
const LOCAL: &str = "http://127.0.0.1:8080";

/// Returns the anchor of a platform's section in the guide `platforms`.
pub fn section_of(platform: &Descriptor) -> String {
    platform.name.to_lowercase().replace(' ', "-")
}

pub fn router() -> Router {
    GUIDES.iter().fold(Router::new(), |router, (name, text)| {
        let guide = Guide { text, page: Arc::default() };
        router.push(Router::with_path(*name).get(guide.clone()).head(guide))
    })
}

/// A guide, rendered when it is first requested.
#[derive(Clone)]
struct Guide {
    text: &'static str,
    page: Arc<OnceLock<Option<PageBody>>>,
}

#[derive(Template)]
#[template(path = "guide.html")]
struct GuidePage {
    guide: Rendered,
}

fn render(text: &str, public_url: &str) -> Option<PageBody> {
    let page = GuidePage { guide: markdown::render(&text.replace(LOCAL, public_url)) };
    let html = page.render().inspect_err(|error| tracing::error!(%error, "failed to render a guide"));
    html.ok().map(PageBody::new)
}

#[salvo::async_trait]
impl salvo::Handler for Guide {
    async fn handle(&self, req: &mut Request, depot: &mut Depot, res: &mut Response, _ctrl: &mut FlowCtrl) {
        let public_url = depot.get_typed::<Arc<App>>().map(|app| app.public_url.as_str()).unwrap_or(LOCAL);
        match self.page.get_or_init(|| render(self.text, public_url)) {
            Some(page) => {
                styles::send(req, res, page, "text/html; charset=utf-8", "no-cache");
                headers(res);
            }
            None => notice(res, StatusCode::INTERNAL_SERVER_ERROR, "This page cannot be shown."),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crier_domain::catalogue;
    use crier_domain::platform::Mode;

    use super::*;
    use crier_endpoints::error::ErrorCode;

    fn guide(name: &str) -> Rendered {
        let (_, text) = GUIDES.iter().find(|(known, _)| *known == name).unwrap();
        markdown::render(text)
    }

    #[test]
    fn the_catalogue_has_every_error_code() {
        let html = guide("errors").html;
        let ids = html.split("<h3 id=\"").skip(1).filter_map(|rest| rest.split('"').next());
        let ids: BTreeSet<&str> = ids.collect();
        assert_eq!(ids, ErrorCode::ALL.iter().map(|code| code.as_str()).collect());
    }

    #[test]
    fn every_error_code_is_under_its_status() {
        for part in CATALOGUE.split("\n## ").skip(1) {
            let status = part.split(' ').next().unwrap();
            for code in part.split("\n### `").skip(1).filter_map(|rest| rest.split('`').next()) {
                let code: ErrorCode = code.parse().unwrap();
                assert_eq!(code.status().as_str(), status, "{code}");
            }
        }
    }

    /// The console links to these sections from its page for connecting an account.
    #[test]
    fn each_platform_with_a_page_for_connecting_has_a_section() {
        let html = guide("platforms").html;
        for platform in catalogue::all().iter().filter(|platform| platform.mode != Mode::SelfConnect) {
            assert!(html.contains(&format!("id=\"{}\"", section_of(platform))), "{}", platform.name);
        }
    }

    #[test]
    fn links_of_guides_lead_somewhere() {
        for (name, _) in GUIDES {
            let rendered = guide(name);
            for link in rendered.html.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                match link.strip_prefix('#') {
                    Some(id) => assert!(rendered.html.contains(&format!("id=\"{id}\"")), "{name}: {link}"),
                    None => {
                        let known = link.strip_prefix("/docs/").is_some_and(|to| {
                            to.is_empty() || GUIDES.iter().any(|(known, _)| to.split('#').next() == Some(known))
                        });
                        assert!(known || link.starts_with("http"), "{name}: {link}");
                    }
                }
            }
        }
    }
}
