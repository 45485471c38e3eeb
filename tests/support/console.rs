//! A user of the console: keeps the session cookie, opens pages, and submits their forms like a browser.

#![allow(dead_code, reason = "each test uses only a part")]

use chrono::TimeDelta;
use crier_store::sessions;
use secrecy::ExposeSecret;

use super::app::{Reply, Request, Tenant, TestApp};

pub struct ConsoleUser<'a> {
    app: &'a TestApp,
    pub cookie: String,
}

/// A page as a user sees it.
#[derive(Debug)]
pub struct Page {
    pub status: u16,
    /// The path of the last request.
    pub path: String,
    /// The HTML with decoded entities.
    pub text: String,
    pub reply: Reply,
}

impl Page {
    fn new(path: &str, reply: Reply) -> Self {
        let html = String::from_utf8_lossy(&reply.body);
        let text = html.replace("&#60;", "<").replace("&#62;", ">").replace("&#34;", "\"").replace("&#39;", "'");
        Self { status: reply.status, path: path.to_owned(), text: text.replace("&#38;", "&"), reply }
    }

    pub fn has(&self, words: &str) -> bool {
        self.text.contains(words)
    }

    #[track_caller]
    pub fn expect(&self, status: u16, words: &str) -> &Self {
        assert_eq!(self.status, status, "{}: {}", self.path, self.text);
        assert!(self.has(words), "{} lacks {words}: {}", self.path, self.text);
        self
    }

    /// Returns the hidden fields of the form with this action, or with a button that has it.
    #[track_caller]
    pub fn hidden_fields(&self, action: &str) -> Vec<(String, String)> {
        let forms = self.text.split("<form").skip(1);
        // A button has a `formaction`, which may end with a fragment.
        let has_action = |form: &&str| {
            let form = form.split("</form>").next().unwrap_or_default();
            ['"', '#'].iter().any(|end| form.contains(&format!("action=\"{action}{end}")))
        };
        let mut own = forms.filter(has_action);
        let form = own.next().unwrap_or_else(|| panic!("{} has no form for {action}: {}", self.path, self.text));
        let form = form.split("</form>").next().unwrap_or_default();
        let inputs = form.split("<input type=\"hidden\" name=\"").skip(1);
        let pair = |input: &str| {
            let (name, rest) = input.split_once('"')?;
            let value = rest.strip_prefix(" value=\"")?.split('"').next()?;
            Some((name.to_owned(), value.to_owned()))
        };
        inputs.filter_map(pair).collect()
    }
}

impl<'a> ConsoleUser<'a> {
    /// Signs in a tenant's user with a sign-in link.
    pub async fn sign_in(tenant: &Tenant<'a>) -> Self {
        let (app, user) = (tenant.app, tenant.user);
        let token = app.write(async |tx| sessions::create_link(tx, user, TimeDelta::minutes(15)).await).await;
        let path = format!("/sign-in/{}", token.expose_secret());
        let reply = app.visit("POST", &format!("{}{path}", app.url)).raw("");
        let reply = reply.header("content-type", "application/x-www-form-urlencoded").send().await;
        reply.assert_status(303);
        let cookie = reply.header("set-cookie").expect("a cookie");
        Self { app, cookie: cookie.split(';').next().unwrap_or_default().to_owned() }
    }

    /// Returns a visitor without a session.
    pub fn signed_out(app: &'a TestApp) -> Self {
        Self { app, cookie: String::new() }
    }

    /// Opens a page, without following redirects.
    pub async fn get(&self, path: &str) -> Page {
        let request = self.app.visit("GET", &format!("{}{path}", self.app.url)).header("cookie", &self.cookie);
        Page::new(path, request.send().await)
    }

    /// Posts only these fields, without following redirects.
    pub async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        Page::new(path, self.form(path, fields).send().await)
    }

    /// Like `post`, from a page of this origin, which browsers name.
    pub async fn post_from_origin(&self, origin: &str, path: &str, fields: &[(&str, &str)]) -> Page {
        Page::new(path, self.form(path, fields).header("origin", origin).send().await)
    }

    fn form(&self, path: &str, fields: &[(&str, &str)]) -> Request<'a> {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = self.app.visit("POST", &format!("{}{path}", self.app.url)).header("cookie", &self.cookie);
        request.raw(body).header("content-type", "application/x-www-form-urlencoded")
    }

    /// Submits the form with this action of a page, with its hidden fields and these fields, and follows one redirect.
    pub async fn submit(&self, from: &str, action: &str, fields: &[(&str, &str)]) -> Page {
        let page = self.get(from).await;
        self.submit_from(&page, action, fields).await
    }

    /// Like `submit`, with a page that is already open. A second call submits the same form twice.
    pub async fn submit_from(&self, page: &Page, action: &str, fields: &[(&str, &str)]) -> Page {
        let hidden = page.hidden_fields(action);
        let hidden = hidden.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let all: Vec<(&str, &str)> = hidden.chain(fields.iter().copied()).collect();
        let sent = self.post(action, &all).await;
        match sent.reply.header("location").map(str::to_owned) {
            Some(to) if sent.status == 303 => self.get(&to).await,
            _ => sent,
        }
    }
}
