//! A real browser without a screen, used like by a person. Each test has one of its own: new windows,
//! and nothing stored.

mod running;

use std::time::Duration;

use fantoccini::actions::{
    InputSource as _, KeyAction, KeyActions, MOUSE_BUTTON_LEFT, MouseActions, PointerAction,
};
use fantoccini::elements::Element;
use fantoccini::{Client, Locator};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use self::running::{Permit, Running};
use crate::daemon::Daemon;
use crate::support::{skip, until_some_within};

/// The deadline of a wait.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A browser with one window.
pub struct Browser {
    running: Option<Running>,
    /// The address of the daemon's pages.
    pub base: String,
    /// The origins of all pages that it has logged in at.
    origins: Vec<String>,
    _permit: Permit,
}

impl Browser {
    /// Returns a browser that is logged in at `daemon`. If this machine has no browser, prints that
    /// and returns `None`. CI must have one.
    pub fn at(daemon: &Daemon, role: &str, language: &str) -> Option<Self> {
        let permit = Permit::wait();
        let Some(running) = Running::find(language) else {
            assert!(std::env::var_os("CI").is_none(), "CI has chromium and chromium-driver");
            skip("no browser: it takes Debian's chromium and chromium-driver");
            return None;
        };
        let mut browser = Self {
            running: Some(running),
            base: String::new(),
            origins: Vec::new(),
            _permit: permit,
        };
        browser.resize(1500, 900);
        browser.log_in(daemon, &["--role", role]);
        Some(browser)
    }

    /// Logs in with a new link, as another person or at another daemon.
    pub fn log_in(&mut self, daemon: &Daemon, arguments: &[&str]) {
        let link = daemon.done(&[&["login"], arguments].concat()).trim().to_owned();
        link.split("/login").next().unwrap().clone_into(&mut self.base);
        self.origins.push(self.base.splitn(4, '/').take(3).collect::<Vec<_>>().join("/"));
        self.go_to(&link[self.base.len()..]);
        self.find("main button").click();
        self.until("it is logged in", || self.path() == "/ui/projects");
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("there is one until the end")
    }

    fn client(&self) -> &Client {
        &self.running().client
    }

    fn runtime(&self) -> &Runtime {
        &self.running().runtime
    }

    pub fn go_to(&self, path: &str) {
        self.runtime().block_on(self.client().goto(&format!("{}{path}", self.base))).unwrap();
    }

    /// Returns the path of the page below the address of the daemon's pages, without its query.
    pub fn path(&self) -> String {
        let url = self.runtime().block_on(self.client().current_url()).unwrap();
        let base = self.base.splitn(4, '/').nth(3).map(|path| format!("/{path}"));
        let path = url.path();
        path.strip_prefix(&base.unwrap_or_default()).unwrap_or(path).to_owned()
    }

    pub fn resize(&self, width: u32, height: u32) {
        self.runtime().block_on(self.client().set_window_size(width, height)).unwrap();
    }

    /// Presses keys together, for the element with the focus.
    pub fn press(&self, keys: &[char]) {
        let down = keys.iter().map(|&value| KeyAction::Down { value });
        let up = keys.iter().rev().map(|&value| KeyAction::Up { value });
        let actions = down.chain(up).fold(KeyActions::new("keyboard".to_owned()), KeyActions::then);
        self.runtime().block_on(self.client().perform_actions(actions)).unwrap();
    }

    /// Presses a button of the mouse on an element, this many times.
    pub fn press_mouse(&self, button: u64, selector: &str, n_times: usize) {
        let presses = [PointerAction::Down { button }, PointerAction::Up { button }];
        let actions = presses.iter().cycle().take(2 * n_times).cloned();
        self.use_mouse([self.pointing_to(selector)].into_iter().chain(actions));
    }

    /// Drags an element with the mouse to the middle of another one.
    pub fn drag(&self, from: &str, to: &str) {
        let button = MOUSE_BUTTON_LEFT;
        // A drag begins with the first step, and what is dragged is over an element after the second
        // step on it.
        let step = PointerAction::MoveBy { duration: None, x: 8.0, y: 8.0 };
        let (start, end) = (self.pointing_to(from), self.pointing_to(to));
        self.use_mouse([
            start,
            PointerAction::Down { button },
            step.clone(),
            end,
            step,
            PointerAction::Up { button },
        ]);
    }

    fn pointing_to(&self, selector: &str) -> PointerAction {
        let element = self.find(selector).element;
        PointerAction::MoveToElement { element, duration: None, x: 0.0, y: 0.0 }
    }

    fn use_mouse(&self, actions: impl IntoIterator<Item = PointerAction>) {
        let mouse = MouseActions::new("mouse".to_owned());
        let actions = actions.into_iter().fold(mouse, MouseActions::then);
        self.runtime().block_on(self.client().perform_actions(actions)).unwrap();
    }

    /// Returns the result of a script.
    pub fn run(&self, script: &str) -> Value {
        self.runtime().block_on(self.client().execute(script, Vec::new())).unwrap()
    }

    /// Returns the value that an asynchronous script passes to its callback.
    pub fn run_async(&self, script: &str) -> Value {
        self.runtime().block_on(self.client().execute_async(script, Vec::new())).unwrap()
    }

    /// Waits for the first element and returns it.
    #[track_caller]
    pub fn find(&self, selector: &str) -> Found<'_> {
        let found = self.until_some(selector, || self.all(selector).into_iter().next());
        Found { element: found, browser: self }
    }

    /// Returns whether there is one now.
    pub fn has(&self, selector: &str) -> bool {
        !self.all(selector).is_empty()
    }

    fn all(&self, selector: &str) -> Vec<Element> {
        self.runtime().block_on(self.client().find_all(Locator::Css(selector))).unwrap()
    }

    /// Returns the texts of all matching elements, as they are in the page.
    pub fn texts(&self, selector: &str) -> Vec<String> {
        let script = format!(
            "return [...document.querySelectorAll({})].map(e => e.textContent)",
            json!(selector)
        );
        serde_json::from_value(self.run(&script)).unwrap()
    }

    #[track_caller]
    pub fn until(&self, what: &str, fact: impl Fn() -> bool) {
        self.until_some(what, || fact().then_some(()));
    }

    #[track_caller]
    pub fn until_some<T>(&self, what: &str, fact: impl Fn() -> Option<T>) -> T {
        until_some_within(TIMEOUT, fact, || {
            let main = self.run("return document.querySelector('main').outerHTML");
            format!(
                "waited in vain for: {what}\n{}\n{}\n{:?}",
                self.path(),
                main.as_str().unwrap(),
                self.complaints()
            )
        })
    }

    /// Returns the errors that the browser wrote to its console.
    pub fn complaints(&self) -> Vec<Value> {
        let answer = self.running().ask("se/log", &json!({ "type": "browser" })).unwrap();
        let lines = answer.as_array().unwrap_or_else(|| panic!("{answer}"));
        lines.iter().filter(|line| line["level"] == "SEVERE").cloned().collect()
    }

    /// Gives the page a screen of this size, also of one that is smaller than a window can be.
    pub fn emulate_screen(&self, width: u32, height: u32) {
        self.emulate_device(width, height, false);
    }

    /// Gives the page a screen of this size that is touched.
    pub fn emulate_phone(&self, width: u32, height: u32) {
        self.emulate_device(width, height, true);
        self.emulate("setTouchEmulationEnabled", &json!({ "enabled": true }));
    }

    fn emulate_device(&self, width: u32, height: u32, is_phone: bool) {
        let device =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone });
        self.emulate("setDeviceMetricsOverride", &device);
    }

    /// Calls a method of the domain `Emulation` of the browser's own protocol.
    pub fn emulate(&self, method: &str, parameters: &Value) {
        self.call(&format!("Emulation.{method}"), parameters);
    }

    /// Delays each answer by this time.
    pub fn emulate_latency(&self, latency: Duration) {
        self.call("Network.enable", &json!({}));
        let conditions = json!({
            "offline": false,
            "latency": latency.as_millis(),
            "downloadThroughput": -1,
            "uploadThroughput": -1,
        });
        self.call("Network.emulateNetworkConditions", &conditions);
    }

    /// Adds a script to each page that is opened from now on.
    pub fn add_script(&self, source: &str) {
        self.call("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": source }));
    }

    /// Calls a method of the browser's own protocol.
    fn call(&self, method: &str, parameters: &Value) {
        self.running().call(method, parameters).unwrap();
    }

    /// Returns a picture of the window, as PNG.
    pub fn picture(&self) -> Vec<u8> {
        self.runtime().block_on(self.client().screenshot()).unwrap()
    }

    /// Opens a second window of the same person.
    pub fn open_window(&self) -> String {
        self.runtime().block_on(async {
            let window = self.client().new_window(true).await.unwrap();
            self.client().switch_to_window(window.handle.clone()).await.unwrap();
            window.handle.into()
        })
    }

    pub fn window(&self) -> String {
        self.runtime().block_on(self.client().window()).unwrap().into()
    }

    /// Returns all windows, in no order.
    pub fn windows(&self) -> Vec<String> {
        let windows = self.runtime().block_on(self.client().windows()).unwrap();
        windows.into_iter().map(Into::into).collect()
    }

    pub fn switch_to(&self, window: &str) {
        self.runtime()
            .block_on(self.client().switch_to_window(window.to_owned().try_into().unwrap()))
            .unwrap();
    }

    pub fn close_window(&self) {
        self.runtime().block_on(self.client().close_window()).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A failed test may have left its browser in any state.
        let running = self.running.take().filter(|_| !std::thread::panicking());
        if let Some(running) = running {
            running.leave(&self.origins);
        }
    }
}

/// An element of the page.
pub struct Found<'a> {
    element: Element,
    browser: &'a Browser,
}

impl Found<'_> {
    pub fn click(&self) {
        self.browser.runtime().block_on(self.element.click()).unwrap();
    }

    pub fn type_in(&self, text: &str) {
        self.browser.runtime().block_on(self.element.send_keys(text)).unwrap();
    }

    pub fn text(&self) -> String {
        self.browser.runtime().block_on(self.element.text()).unwrap()
    }

    pub fn is_shown(&self) -> bool {
        self.browser.runtime().block_on(self.element.is_displayed()).unwrap()
    }
}
