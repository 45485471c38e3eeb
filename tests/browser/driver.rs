//! A browser that a test drives through Debian's chromedriver: it clicks, types and uploads as a person does.

use std::path::Path;
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Duration;

use fantoccini::actions::{InputSource as _, KeyAction, KeyActions, MOUSE_BUTTON_LEFT, MouseActions, PointerAction};
use fantoccini::elements::Element;
use fantoccini::error::CmdError;
use fantoccini::key::Key;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::support::client::until;
use crate::support::servers::free_port;
use crate::support::size::sized;

const PROGRAM: &str = "/usr/bin/chromedriver";
/// Chromium without a desktop: the same pages in a third of the processor time. The whole browser is used without it.
const HEADLESS_SHELL: &str = "/usr/bin/chromium-headless-shell";
/// How long a page or an element may take to appear.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How often the page is asked. Each time, the browser lays it out.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long the mouse takes from one place to another.
const STROKE: Duration = Duration::from_millis(100);

pub struct Driver {
    client: Client,
    /// The address of the server under test.
    base: String,
    _process: Processes,
    _profile: tempfile::TempDir,
}

/// chromedriver and the browser that it has started, which would go on without it: a process group of their own.
struct Processes(Child);

impl Drop for Processes {
    fn drop(&mut self) {
        if let Some(leader) = self.0.id() {
            let _ = std::process::Command::new("kill").args(["-KILL", "--", &format!("-{leader}")]).status();
        }
    }
}

impl Driver {
    /// Starts a browser with a profile of its own; `None`, with a notice, if there is no chromedriver on this machine.
    #[expect(clippy::print_stderr, reason = "who runs the tests is to see what was left out")]
    pub async fn start(base: &str) -> Option<Self> {
        if !Path::new(PROGRAM).exists() {
            eprintln!("\n*** NOT TESTED: no chromedriver on this machine (apt-get install chromium-driver) ***\n");
            return None;
        }
        let (port, profile) = (free_port(), tempfile::tempdir().unwrap());
        let process = Command::new(PROGRAM)
            .arg(format!("--port={port}"))
            // It creates the browser's profile there: a headless shell with a profile of our choice opens no page.
            .env("TMPDIR", profile.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map(Processes)
            .unwrap();
        let mut options = json!({ "args": [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync"
        ] });
        if Path::new(HEADLESS_SHELL).exists() {
            options["binary"] = json!(HEADLESS_SHELL);
        }
        let Value::Object(capabilities) =
            json!({ "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" } })
        else {
            unreachable!()
        };
        let url = format!("http://127.0.0.1:{port}");
        let client = until("the browser starts", || async {
            let mut builder = ClientBuilder::new(HttpConnector::new());
            builder.capabilities(capabilities.clone()).connect(&url).await.ok()
        })
        .await;
        Some(Self { client, base: base.to_owned(), _process: process, _profile: profile })
    }

    /// Opens a path of the server, or an address.
    pub async fn open(&self, path: &str) {
        let url = if path.starts_with('/') { format!("{}{path}", self.base) } else { path.to_owned() };
        self.client.goto(&url).await.unwrap();
    }

    /// Returns the path that is open.
    pub async fn path(&self) -> String {
        self.client.current_url().await.unwrap().path().to_owned()
    }

    /// Returns the text that the page shows.
    pub async fn text(&self) -> String {
        self.find(Locator::Css("body")).await.text().await.unwrap()
    }

    /// Waits until the page shows the words.
    pub async fn sees(&self, words: &str) {
        let shown = |text: &str| text.to_lowercase().contains(&words.to_lowercase());
        let waited = tokio::time::timeout(TIMEOUT, async {
            while !shown(&self.try_text().await) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
        if waited.await.is_err() {
            panic!("{} does not show {words:?}: {}", self.path().await, self.try_text().await);
        }
    }

    async fn try_text(&self) -> String {
        // While a page is loading, its body may go.
        match self.client.find(Locator::Css("body")).await {
            Ok(body) => body.text().await.unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    pub async fn does_not_see(&self, words: &str) {
        let text = self.text().await;
        assert!(!text.contains(words), "{words:?}: {text}");
    }

    async fn find(&self, locator: Locator<'_>) -> Element {
        let found = self.client.wait().at_most(TIMEOUT).for_element(locator).await;
        match found {
            Ok(element) => element,
            Err(error) => panic!("{}: {locator:?}: {error}: {}", self.path().await, self.try_text().await),
        }
    }

    /// Returns the shown button, link or summary with these words; the first one if there are several.
    async fn pressable(&self, words: &str) -> Element {
        let path = format!(
            "//*[self::button or self::a or self::summary][normalize-space(.)={0} or starts-with(normalize-space(.), {0})]",
            quoted(words)
        );
        self.find(Locator::XPath(&path)).await;
        for element in self.client.find_all(Locator::XPath(&path)).await.unwrap() {
            if element.is_displayed().await.unwrap_or_default() {
                return element;
            }
        }
        panic!("{} shows nothing to press with {words:?}: {}", self.path().await, self.text().await);
    }

    /// Presses the button or link with these words, and waits for the page that it leads to.
    pub async fn press(&self, words: &str) {
        let button = self.pressable(words).await;
        self.leaves(words, async { button.click().await.unwrap() }).await;
    }

    /// Presses a key for what has the focus.
    pub async fn press_key(&self, key: Key) {
        let presses = [KeyAction::Down { value: key.into() }, KeyAction::Up { value: key.into() }];
        let presses = presses.into_iter().fold(KeyActions::new("keyboard".to_owned()), KeyActions::then);
        self.client.perform_actions(presses).await.unwrap();
    }

    /// Drags the element to the middle of another one.
    pub async fn drag(&self, from: &str, to: &str) {
        let (from, to) = (self.find(Locator::Css(from)).await, self.find(Locator::Css(to)).await);
        let over = |element: Element, x| PointerAction::MoveToElement { element, duration: Some(STROKE), x, y: x };
        let moves = [
            over(from, 0.0),
            PointerAction::Down { button: MOUSE_BUTTON_LEFT },
            over(to.clone(), 3.0),
            over(to, 0.0),
            PointerAction::Up { button: MOUSE_BUTTON_LEFT },
        ];
        let moves = moves.into_iter().fold(MouseActions::new("mouse".to_owned()), MouseActions::then);
        self.client.perform_actions(moves).await.unwrap();
    }

    /// Does what leads to another page, and waits for that.
    pub async fn leaves(&self, words: &str, action: impl Future<Output = ()>) {
        let before = self.client.find(Locator::Css("html")).await.unwrap();
        action.await;
        let gone = tokio::time::timeout(TIMEOUT, async {
            // An element of a page that was left is stale.
            while before.tag_name().await.is_ok() {
                tokio::task::yield_now().await;
            }
        });
        assert!(gone.await.is_ok(), "{words:?} leads nowhere: {}", self.text().await);
        self.ready().await;
    }

    /// Like `press`, for the button inside of what [`Driver::toggle`] has opened with the same words.
    pub async fn press_inner(&self, words: &str) {
        let path = format!("//details[@open]//button[normalize-space(.)={}]", quoted(words));
        let button = self.find(Locator::XPath(&path)).await;
        self.leaves(words, async { button.click().await.unwrap() }).await;
    }

    /// Presses what changes the page without leaving it.
    pub async fn toggle(&self, words: &str) {
        self.pressable(words).await.click().await.unwrap();
    }

    async fn ready(&self) {
        let ready = tokio::time::timeout(TIMEOUT, async {
            while self.script("return document.readyState").await != json!("complete") {
                tokio::task::yield_now().await;
            }
        });
        assert!(ready.await.is_ok(), "the page is never complete");
    }

    pub async fn script(&self, script: &str) -> Value {
        self.client.execute(script, Vec::new()).await.unwrap_or_default()
    }

    /// Fills the field with this name.
    pub async fn fill(&self, name: &str, value: &str) {
        let css = format!("[name={}]", quoted(name));
        let field = self.find(Locator::Css(&css)).await;
        if field.attr("type").await.unwrap().as_deref() != Some("file") {
            field.clear().await.unwrap();
        }
        field.send_keys(value).await.unwrap();
    }

    /// Sets the value of a date and time, whose typing depends on the browser's language.
    pub async fn set_time(&self, name: &str, value: &str) {
        let script = "const f = document.getElementsByName(arguments[0])[0]; f.value = arguments[1]; \
             f.dispatchEvent(new Event('input', { bubbles: true })); return f.value";
        let set = self.client.execute(script, vec![json!(name), json!(value)]).await.unwrap();
        assert_eq!(set, json!(value));
    }

    /// Ticks the box whose label has these words.
    pub async fn tick(&self, words: &str) {
        let path = format!("//label[contains(normalize-space(.), {})]", quoted(words));
        self.find(Locator::XPath(&path)).await.click().await.unwrap();
    }

    /// Returns the text of the first element.
    pub async fn text_of(&self, css: &str) -> String {
        self.find(Locator::Css(css)).await.text().await.unwrap()
    }

    /// Saves screenshots of the page, and looks for faults: on a phone in light and a desktop in dark, in full runs also the
    /// other way round.
    pub async fn pictures(&self, name: &str) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/screenshots/console");
        std::fs::create_dir_all(&folder).unwrap();
        let both: &[&str] = &["light", "dark"];
        let (phone, desktop) = sized((both, both), (&["light"], &["dark"]));
        for (size, width, height, schemes) in [("phone", 390, 844, phone), ("desktop", 1280, 900, desktop)] {
            self.client.set_window_size(width, height).await.unwrap();
            for scheme in schemes {
                self.emulate(scheme).await.unwrap();
                let wide = self.script("return document.documentElement.scrollWidth > innerWidth").await;
                assert_eq!(wide, json!(false), "{name} is wider than a {size}");
                self.assert_accessible(&format!("{name} on a {size}, {scheme}")).await;
                let png = self.client.screenshot().await.unwrap();
                std::fs::write(folder.join(format!("{name}-{size}-{scheme}.png")), png).unwrap();
            }
        }
        self.emulate("light").await.unwrap();
        self.assert_no_messages(name).await;
    }

    /// Opens a page in a window of this size, and saves a screenshot. Fails if the page has errors, is wider than the window
    /// or has faults that axe-core finds. Returns the page as the browser parsed it.
    pub async fn picture(&self, path: &str, name: &str, (width, height): (u32, u32)) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/screenshots");
        std::fs::create_dir_all(&folder).unwrap();
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", size).await.unwrap();
        self.open(path).await;
        // On a busy machine, the browser has no text of the page for a moment.
        self.find(Locator::Css("h1")).await;
        let page = self.client.source().await.unwrap();
        let wide = self.script("return document.documentElement.scrollWidth > innerWidth").await;
        assert_eq!(wide, json!(false), "{name} is wider than {width} pixels");
        let png = self.client.screenshot().await.unwrap();
        std::fs::write(folder.join(format!("{name}-{width}x{height}.png")), png).unwrap();
        self.assert_accessible(name).await;
        self.assert_no_messages(name).await;
        page
    }

    /// Fails if axe-core finds a fault of the page, with everything open that can be opened.
    #[expect(clippy::print_stderr, reason = "who runs the tests is to see what was left out")]
    async fn assert_accessible(&self, page: &str) {
        let Some(axe) = axe() else {
            eprintln!("\n*** NOT TESTED: CRIER_TEST_AXE names no axe-core (scripts/test installs it from npm) ***\n");
            return;
        };
        if self.script("return typeof axe").await == json!("undefined") {
            self.script(axe).await;
        }
        let script = "
            const [done] = arguments;
            const closed = [...document.querySelectorAll('details:not([open])')];
            closed.forEach((details) => { details.open = true; });
            axe.run(document, { preload: false, resultTypes: ['violations'] }).then(
                ({ violations }) => violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html)}`),
                (error) => [String(error)],
            ).then((found) => {
                closed.forEach((details) => { details.open = false; });
                done(found);
            });";
        let found = self.client.execute_async(script, Vec::new()).await.unwrap();
        assert_eq!(found, json!([]), "{page}: faults that axe-core finds");
    }

    /// Fails if a page had errors, or something that the policy forbids.
    async fn assert_no_messages(&self, name: &str) {
        let log = ChromeCommand("se/log", json!({ "type": "browser" }));
        let mut messages = self.client.issue_cmd(log).await.unwrap();
        // That a page says it is not found is no error of the page.
        let own = format!("{} - Failed to load resource", self.client.current_url().await.unwrap());
        if let Some(messages) = messages.as_array_mut() {
            messages.retain(|message| !message["message"].as_str().unwrap_or_default().starts_with(&own));
        }
        assert_eq!(messages, json!([]), "{name}: messages of the browser");
    }

    /// Sets the colour scheme that the person prefers, without transitions, which a picture would catch half-way.
    async fn emulate(&self, scheme: &str) -> Result<(), CmdError> {
        let features = json!({ "features": [
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ] });
        self.devtools("Emulation.setEmulatedMedia", features).await
    }

    async fn devtools(&self, command: &str, parameters: Value) -> Result<(), CmdError> {
        let parameters = json!({ "cmd": command, "params": parameters });
        self.client.issue_cmd(ChromeCommand("goog/cdp/execute", parameters)).await.map(drop)
    }

    pub async fn quit(self) {
        self.client.close().await.unwrap();
    }
}

/// Returns the text of axe-core, if it is installed.
#[expect(clippy::disallowed_methods, reason = "a test's own switch")]
fn axe() -> Option<&'static str> {
    static AXE: LazyLock<Option<String>> = LazyLock::new(|| {
        let file = std::env::var_os("CRIER_TEST_AXE")?;
        Some(std::fs::read_to_string(file).expect("CRIER_TEST_AXE names axe.min.js"))
    });
    AXE.as_deref()
}

/// A command that only Chrome has: its path and its parameters.
#[derive(Debug)]
struct ChromeCommand(&'static str, Value);

impl fantoccini::wd::WebDriverCompatibleCommand for ChromeCommand {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.0))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.1.to_string()))
    }
}

/// Returns the words in quotes of XPath and CSS.
fn quoted(words: &str) -> String {
    assert!(!words.contains('"'), "{words}");
    format!("\"{words}\"")
}
