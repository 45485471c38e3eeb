//! A browser that tests control through Debian's chromedriver: it clicks, types and uploads as a user does.

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
use crate::support::process::Installation;
use crate::support::servers::free_port;
use crate::support::size::sized;

const PROGRAM: &str = "/usr/bin/chromedriver";
/// Chromium without a desktop. It renders the same pages in a third of the processor time. If it is not installed, the
/// full browser is used.
const HEADLESS_SHELL: &str = "/usr/bin/chromium-headless-shell";
/// The maximum time until a page or an element appears.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The interval of queries to the page. For each query, the browser updates the layout.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The duration of a mouse movement.
const MOUSE_MOVE_DURATION: Duration = Duration::from_millis(100);

pub struct Driver {
    client: Client,
    /// The URL of the server under test.
    base_url: String,
    /// Whether [`Driver::save_screenshots`] and [`Driver::assert_tab_order`] check the pages.
    checks_pages: bool,
    _process: Processes,
    _profile: tempfile::TempDir,
}

/// The rules of axe-core that depend on colors.
const COLOR_RULES: [&str; 2] = ["color-contrast", "link-in-text-block"];

/// The rules of axe-core for a page. A second color scheme changes only colors.
#[derive(Clone, Copy)]
enum AxeRules {
    All,
    Colors,
}

/// chromedriver and the browser that it started, in a process group of their own: the browser would survive
/// chromedriver.
struct Processes(Child);

impl Drop for Processes {
    fn drop(&mut self) {
        if let Some(process_group) = self.0.id() {
            let _ = std::process::Command::new("kill").args(["-KILL", "--", &format!("-{process_group}")]).status();
        }
    }
}

impl Driver {
    /// Starts a browser with a profile of its own. Returns `None`, with a notice, if chromedriver is not installed.
    #[expect(clippy::print_stderr, reason = "the person who runs the tests must see what was not tested")]
    pub async fn start(base_url: &str) -> Option<Self> {
        if !Path::new(PROGRAM).exists() {
            eprintln!("\n*** NOT TESTED: no chromedriver on this machine (apt-get install chromium-driver) ***\n");
            return None;
        }
        let (port, profile) = (free_port(), tempfile::tempdir().unwrap());
        let process = Command::new(PROGRAM)
            .arg(format!("--port={port}"))
            // chromedriver creates the profile in this directory. With a profile directory of our choice, the headless
            // shell opens no page.
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
        Some(Self { client, base_url: base_url.to_owned(), checks_pages: true, _process: process, _profile: profile })
    }

    /// Like `start`, for an installation. Both forms have the same pages, so only those of the embedded form are checked
    /// for their appearance and their tab order, which takes longer than everything else.
    pub async fn start_on(crier: &Installation) -> Option<Self> {
        let browser = Self::start(&crier.url).await?;
        Some(Self { checks_pages: !crier.is_split(), ..browser })
    }

    pub fn checks_pages(&self) -> bool {
        self.checks_pages
    }

    /// Opens a path of the server, or a URL.
    pub async fn open(&self, path: &str) {
        let url = if path.starts_with('/') { format!("{}{path}", self.base_url) } else { path.to_owned() };
        self.client.goto(&url).await.unwrap();
    }

    /// Returns the path of the current page.
    pub async fn path(&self) -> String {
        self.client.current_url().await.unwrap().path().to_owned()
    }

    /// Returns the visible text of the page.
    pub async fn text(&self) -> String {
        self.find(Locator::Css("body")).await.text().await.unwrap()
    }

    /// Waits until the page shows the text. Ignores case.
    pub async fn wait_for_text(&self, words: &str) {
        let is_shown = |text: &str| text.to_lowercase().contains(&words.to_lowercase());
        let result = tokio::time::timeout(TIMEOUT, async {
            while !is_shown(&self.try_text().await) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
        if result.await.is_err() {
            panic!("{} does not show {words:?}: {}", self.path().await, self.try_text().await);
        }
    }

    async fn try_text(&self) -> String {
        // The body may disappear while a page is loading.
        match self.client.find(Locator::Css("body")).await {
            Ok(body) => body.text().await.unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    pub async fn assert_not_shown(&self, words: &str) {
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

    /// Returns the first visible button, link or summary with this text.
    async fn find_button(&self, words: &str) -> Element {
        let path = format!(
            "//*[self::button or self::a or self::summary][normalize-space(.)={0} or starts-with(normalize-space(.), {0})]",
            quoted(words)
        );
        let found = tokio::time::timeout(TIMEOUT, async {
            loop {
                for element in self.client.find_all(Locator::XPath(&path)).await.unwrap_or_default() {
                    if element.is_displayed().await.unwrap_or_default() {
                        return element;
                    }
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
        match found.await {
            Ok(element) => element,
            Err(_) => panic!("{} shows nothing to press with {words:?}: {}", self.path().await, self.text().await),
        }
    }

    /// Clicks the button or link with this text, and waits for the next page.
    pub async fn press(&self, words: &str) {
        let button = self.find_button(words).await;
        self.navigate(words, async { button.click().await.unwrap() }).await;
    }

    /// Presses a key in the element with the focus.
    pub async fn press_key(&self, key: Key) {
        self.press_key_times(key, 1).await;
    }

    /// Presses a key several times, each time in the element that then has the focus.
    pub async fn press_key_times(&self, key: Key, times: usize) {
        let press = |_| [KeyAction::Down { value: key.into() }, KeyAction::Up { value: key.into() }];
        let presses = (0..times).flat_map(press).fold(KeyActions::new("keyboard".to_owned()), KeyActions::then);
        self.client.perform_actions(presses).await.unwrap();
    }

    /// Drags the first element to the middle of the second one.
    pub async fn drag(&self, from: &str, to: &str) {
        let (from, to) = (self.find(Locator::Css(from)).await, self.find(Locator::Css(to)).await);
        let move_to = |element: Element, x| PointerAction::MoveToElement {
            element,
            duration: Some(MOUSE_MOVE_DURATION),
            x,
            y: x,
        };
        let moves = [
            move_to(from, 0.0),
            PointerAction::Down { button: MOUSE_BUTTON_LEFT },
            move_to(to.clone(), 3.0),
            move_to(to.clone(), 0.0),
            // The event after that of entering an element is the one that allows the drop.
            move_to(to, 1.0),
            PointerAction::Up { button: MOUSE_BUTTON_LEFT },
        ];
        let moves = moves.into_iter().fold(MouseActions::new("mouse".to_owned()), MouseActions::then);
        self.client.perform_actions(moves).await.unwrap();
    }

    /// Presses the mouse on the first element, moves it over the others, and releases it on the last one.
    pub async fn paint(&self, elements: &[&str]) {
        let scroll = "document.querySelector(arguments[0]).scrollIntoView({ block: 'center' })";
        self.client.execute(scroll, vec![json!(elements[0])]).await.unwrap();
        let mut moves = MouseActions::new("mouse".to_owned());
        for (n, css) in elements.iter().enumerate() {
            let element = self.find(Locator::Css(css)).await;
            let duration = Some(MOUSE_MOVE_DURATION);
            moves = moves.then(PointerAction::MoveToElement { element, duration, x: 0.0, y: 0.0 });
            if n == 0 {
                moves = moves.then(PointerAction::Down { button: MOUSE_BUTTON_LEFT });
            }
        }
        let moves = moves.then(PointerAction::Up { button: MOUSE_BUTTON_LEFT });
        self.client.perform_actions(moves).await.unwrap();
    }

    /// Performs an action that leads to another page, and waits for that page.
    pub async fn navigate(&self, words: &str, action: impl Future<Output = ()>) {
        let before = self.client.find(Locator::Css("html")).await.unwrap();
        action.await;
        let result = tokio::time::timeout(TIMEOUT, async {
            // An element becomes stale when its page is left.
            while before.tag_name().await.is_ok() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
        assert!(result.await.is_ok(), "{words:?} leads nowhere: {}", self.text().await);
        self.wait_until_loaded().await;
    }

    /// Clicks the button with this text in an open `details` element, and waits for the next page. [`Driver::toggle`]
    /// opens such an element.
    pub async fn press_inner(&self, words: &str) {
        let path = format!("//details[@open]//button[normalize-space(.)={}]", quoted(words));
        let button = self.find(Locator::XPath(&path)).await;
        self.navigate(words, async { button.click().await.unwrap() }).await;
    }

    /// Clicks an element that changes the page without leaving it.
    pub async fn toggle(&self, words: &str) {
        self.find_button(words).await.click().await.unwrap();
    }

    async fn wait_until_loaded(&self) {
        let ready = tokio::time::timeout(TIMEOUT, async {
            while self.script("return document.readyState").await != json!("complete") {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
        assert!(ready.await.is_ok(), "the page is never complete");
    }

    pub async fn script(&self, script: &str) -> Value {
        self.client.execute(script, Vec::new()).await.unwrap_or_default()
    }

    /// Fills the field with this name. For a file field, the value is a path.
    pub async fn fill(&self, name: &str, value: &str) {
        self.fill_field(&format!("[name={}]", quoted(name)), value).await;
    }

    /// Fills the first field that matches the selector. For a file field, the value is a path.
    pub async fn fill_field(&self, css: &str, value: &str) {
        let field = self.find(Locator::Css(css)).await;
        if field.attr("type").await.unwrap().as_deref() != Some("file") {
            field.clear().await.unwrap();
        }
        field.send_keys(value).await.unwrap();
    }

    /// Sets the value of a date and time field by a script, because typing in it depends on the browser's language.
    pub async fn set_time(&self, name: &str, value: &str) {
        let script = "const f = document.getElementsByName(arguments[0])[0]; f.value = arguments[1]; \
             f.dispatchEvent(new Event('input', { bubbles: true })); return f.value";
        let set = self.client.execute(script, vec![json!(name), json!(value)]).await.unwrap();
        assert_eq!(set, json!(value));
    }

    /// Clicks the label that contains this text, which selects its checkbox or radio button.
    pub async fn select(&self, words: &str) {
        let path = format!("//label[contains(normalize-space(.), {})]", quoted(words));
        self.find(Locator::XPath(&path)).await.click().await.unwrap();
    }

    /// Returns the text of the first element that matches the selector.
    pub async fn text_of(&self, css: &str) -> String {
        self.find(Locator::Css(css)).await.text().await.unwrap()
    }

    /// Sets the size of the window.
    pub async fn resize(&self, (width, height): (u32, u32)) {
        self.client.set_window_size(width, height).await.unwrap();
    }

    /// Saves screenshots of the page and checks it: on a phone with the light color scheme and on a desktop with the
    /// dark one. Full runs also check the colors of the other scheme on both. Leaves the window with the size of a
    /// desktop.
    pub async fn save_screenshots(&self, name: &str) {
        if !self.checks_pages {
            self.resize((1280, 900)).await;
            self.emulate("light").await.unwrap();
            return self.assert_no_messages(name).await;
        }
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/screenshots/console");
        std::fs::create_dir_all(&directory).unwrap();
        for (size, width, height, schemes) in
            [("phone", 390, 844, ["light", "dark"]), ("desktop", 1280, 900, ["dark", "light"])]
        {
            self.resize((width, height)).await;
            for (number, scheme) in schemes.into_iter().take(sized(2, 1)).enumerate() {
                self.emulate(scheme).await.unwrap();
                let page = format!("{name} on a {size}, {scheme}");
                // The schemes differ only in colors.
                if number > 0 {
                    self.assert_accessible(&page, AxeRules::Colors).await;
                    continue;
                }
                let is_too_wide = self.script("return document.documentElement.scrollWidth > innerWidth").await;
                assert_eq!(is_too_wide, json!(false), "{name} is wider than a {size}");
                self.assert_accessible(&page, AxeRules::All).await;
                let png = self.client.screenshot().await.unwrap();
                std::fs::write(directory.join(format!("{name}-{size}-{scheme}.png")), png).unwrap();
            }
        }
        self.emulate("light").await.unwrap();
        self.assert_no_messages(name).await;
    }

    /// Opens a page in a window of this size, and saves a screenshot. Fails if the page has errors, is wider than the
    /// window, or violates a rule of axe-core. Returns the HTML as the browser parsed it.
    pub async fn save_screenshot(&self, path: &str, name: &str, (width, height): (u32, u32)) -> String {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/screenshots");
        std::fs::create_dir_all(&directory).unwrap();
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", size).await.unwrap();
        self.open(path).await;
        // On a busy machine, the page has no text for a moment.
        self.find(Locator::Css("h1")).await;
        let page = self.client.source().await.unwrap();
        let is_too_wide = self.script("return document.documentElement.scrollWidth > innerWidth").await;
        assert_eq!(is_too_wide, json!(false), "{name} is wider than {width} pixels");
        let png = self.client.screenshot().await.unwrap();
        std::fs::write(directory.join(format!("{name}-{width}x{height}.png")), png).unwrap();
        self.assert_accessible(name, AxeRules::All).await;
        self.assert_no_messages(name).await;
        page
    }

    /// Fails if axe-core finds a violation, with all `details` elements open.
    #[expect(clippy::print_stderr, reason = "the person who runs the tests must see what was not tested")]
    async fn assert_accessible(&self, page: &str, rules: AxeRules) {
        let Some(axe) = axe() else {
            eprintln!("\n*** NOT TESTED: CRIER_TEST_AXE names no axe-core (scripts/test installs it from npm) ***\n");
            return;
        };
        if self.script("return typeof axe").await == json!("undefined") {
            self.script(axe).await;
        }
        let script = "
            const [only, done] = arguments;
            const closed = [...document.querySelectorAll('details:not([open])')];
            closed.forEach((details) => { details.open = true; });
            axe.run(document, { preload: false, resultTypes: ['violations'], ...only }).then(
                ({ violations }) => violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html)}`),
                (error) => [String(error)],
            ).then((found) => {
                closed.forEach((details) => { details.open = false; });
                done(found);
            });";
        let only = match rules {
            AxeRules::All => json!({}),
            AxeRules::Colors => json!({ "runOnly": { "type": "rule", "values": COLOR_RULES } }),
        };
        let found = self.client.execute_async(script, vec![only]).await.unwrap();
        assert_eq!(found, json!([]), "{page}: faults that axe-core finds");
    }

    /// Fails if the browser logged errors or violations of the content security policy.
    async fn assert_no_messages(&self, name: &str) {
        let log = ChromeCommand("se/log", json!({ "type": "browser" }));
        let mut messages = self.client.issue_cmd(log).await.unwrap();
        // The browser logs the status of an error page, and that of a response that rejects the script's input. Neither
        // is an error in the page.
        let status_message = format!("{} - Failed to load resource", self.client.current_url().await.unwrap());
        if let Some(messages) = messages.as_array_mut() {
            messages.retain(|message| {
                let text = message["message"].as_str().unwrap_or_default();
                !text.starts_with(&status_message) && !text.contains("status of 422")
            });
        }
        assert_eq!(messages, json!([]), "{name}: messages of the browser");
    }

    /// Sets the preferred color scheme, and disables transitions, which a screenshot would show half-finished.
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

/// Returns the source of axe-core, if it is installed.
#[expect(clippy::disallowed_methods, reason = "a test's own switch")]
fn axe() -> Option<&'static str> {
    static AXE: LazyLock<Option<String>> = LazyLock::new(|| {
        let file = std::env::var_os("CRIER_TEST_AXE")?;
        Some(std::fs::read_to_string(file).expect("CRIER_TEST_AXE names axe.min.js"))
    });
    AXE.as_deref()
}

/// A command that only Chrome supports: its path and its parameters.
#[derive(Debug)]
struct ChromeCommand(&'static str, Value);

impl fantoccini::wd::WebDriverCompatibleCommand for ChromeCommand {
    fn endpoint(&self, base_url: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base_url.join(&format!("session/{}/{}", session.unwrap_or_default(), self.0))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.1.to_string()))
    }
}

/// Returns the text in quotes, as XPath and CSS need it.
fn quoted(words: &str) -> String {
    assert!(!words.contains('"'), "{words}");
    format!("\"{words}\"")
}
