//! A user who connects an account in a browser: keeps cookies and submits forms. Redirects are not followed
//! automatically.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses only a part")]

use url::Url;

use super::app::{Reply, TestApp};

pub struct Person<'a> {
    app: &'a TestApp,
    pub cookie: Option<String>,
}

impl<'a> Person<'a> {
    pub fn new(app: &'a TestApp) -> Self {
        Self { app, cookie: None }
    }

    /// Opens a page by its URL, or by its path on the first replica.
    pub async fn open(&mut self, url: &str) -> Reply {
        self.send("GET", url, None).await
    }

    pub async fn submit(&mut self, url: &str, form: &[(&str, &str)]) -> Reply {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        self.send("POST", url, Some(body)).await
    }

    async fn send(&mut self, method: &str, url: &str, body: Option<String>) -> Reply {
        let url = if url.starts_with('/') { format!("{}{url}", self.app.url) } else { url.to_owned() };
        let mut request = self.app.visit(method, &url);
        if let Some(cookie) = &self.cookie {
            request = request.header("cookie", cookie);
        }
        if let Some(body) = body {
            request = request.raw(body).header("content-type", "application/x-www-form-urlencoded");
        }
        let reply = request.send().await;
        if let Some(cookie) = reply.header("set-cookie") {
            for wanted in ["; HttpOnly", "; SameSite=Lax", "; Path=/;", "; Max-Age=1800"] {
                assert!(cookie.contains(wanted), "{cookie}");
            }
            assert_eq!(cookie.starts_with("__Host-"), cookie.contains("; Secure"), "{cookie}");
            self.cookie = cookie.split(';').next().map(str::to_owned);
        }
        assert_eq!(reply.header("referrer-policy"), Some("same-origin"), "{url}");
        assert_eq!(reply.header("cache-control"), Some("no-store"), "{url}");
        let policy = reply.header("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert!(!reply.text().contains("<script"), "no page has a script");
        reply
    }

    /// Submits the form of the first page, and returns the URL of the platform's page.
    pub async fn leave(&mut self, url: &str) -> Url {
        let page = self.submit(url, &[]).await;
        page.assert_status(200);
        let html = page.text();
        assert!(html.contains("<meta http-equiv=\"refresh\" content=\"0; url="), "{html}");
        button(&html)
    }

    /// Opens the callback, which connects the account.
    pub async fn finish(&mut self, callback: &str) {
        let response = self.open(callback).await;
        assert_page(&self.follow(&response).await, 200, "Connected");
    }

    /// Follows a redirect to another step.
    pub async fn follow(&mut self, reply: &Reply) -> Reply {
        reply.assert_status(303);
        let to = reply.header("location").expect("a location").to_owned();
        assert!(to.starts_with("/connect/"), "{to}");
        self.open(&to).await
    }
}

/// Returns the URL of the page's button.
pub fn button(html: &str) -> Url {
    let (_, rest) = html.split_once("<a class=\"button\" href=\"").expect("a link");
    let href = rest.split('"').next().unwrap().replace("&#38;", "&").replace("&amp;", "&");
    Url::parse(&href).expect("an address")
}

/// Asserts the status and the title of a page.
#[track_caller]
pub fn assert_page(reply: &Reply, status: u16, title: &str) {
    reply.assert_status(status);
    assert!(reply.text().contains(&format!("<h1>{title}</h1>")), "{}", reply.text());
}
