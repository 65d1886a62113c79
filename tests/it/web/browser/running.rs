//! The browsers that run, each with its driver. A test that passes leaves its browser to a later
//! test, because a start takes a second of a processor. All of them end with this process, also if
//! it is killed.

use std::error::Error;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use fantoccini::{Client, ClientBuilder};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// The largest number of browsers in use. Each waits for its daemon half of the time, so that two of
/// them use two cores.
const N_AT_ONCE: usize = 2;

/// The driver and its browser are a process group. When the input of the shell ends, the shell kills
/// the group and removes its folder. The input ends with this process.
const DRIVER: &str = r#"setsid chromedriver --port=0 & exec >/dev/null
read -r _; kill -KILL "-$!"; wait
rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }"#;

static BROWSERS: Mutex<Browsers> = Mutex::new(Browsers { n_in_use: 0, idle: Vec::new() });
static ONE_IS_RETURNED: Condvar = Condvar::new();

struct Browsers {
    n_in_use: usize,
    idle: Vec<Running>,
}

fn browsers() -> MutexGuard<'static, Browsers> {
    BROWSERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The permission to use one browser.
pub struct Permit(());

impl Permit {
    pub fn wait() -> Self {
        let are_enough = |browsers: &mut Browsers| browsers.n_in_use == N_AT_ONCE;
        let waited = ONE_IS_RETURNED.wait_while(browsers(), are_enough);
        waited.unwrap_or_else(PoisonError::into_inner).n_in_use += 1;
        Self(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        browsers().n_in_use -= 1;
        ONE_IS_RETURNED.notify_one();
    }
}

/// A browser whose pages are in this language.
pub struct Running {
    pub client: Client,
    pub runtime: Runtime,
    session: String,
    language: String,
    driver: Driver,
}

impl Running {
    /// Returns a browser with one empty window. Returns `None` if this machine has no browser.
    pub fn find(language: &str) -> Option<Self> {
        while let Some(left) = take_idle(language) {
            if left.runtime.block_on(left.client.window()).is_ok() {
                return Some(left);
            }
        }
        Some(Self::start(language, Driver::start()?))
    }

    fn start(language: &str, driver: Driver) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let arguments = [
            "--headless=new".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--no-proxy-server".to_owned(),
            format!("--user-data-dir={}", driver.folder.join("profile").display()),
            format!("--lang={language}"),
        ];
        let capabilities = json!({
            "goog:chromeOptions": { "args": arguments, "prefs": { "intl.accept_languages": language } },
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let Value::Object(capabilities) = capabilities else { unreachable!("it is an object") };
        let mut builder =
            ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new());
        let url = format!("http://127.0.0.1:{}", driver.port);
        let client = runtime.block_on(builder.capabilities(capabilities).connect(&url)).unwrap();
        let session = runtime.block_on(client.session_id()).unwrap().unwrap();
        Self { client, runtime, session, language: language.to_owned(), driver }
    }

    /// Keeps it for a later test, without its windows and without what pages of these origins have
    /// stored. It ends if that fails.
    pub fn leave(self, origins: &[String]) {
        if self.clear(origins).is_ok() {
            browsers().idle.push(self);
        }
    }

    fn clear(&self, origins: &[String]) -> Result<(), Box<dyn Error>> {
        self.runtime.block_on(async {
            let old = self.client.windows().await?;
            let new = self.client.new_window(true).await?;
            for window in old {
                self.client.switch_to_window(window).await?;
                self.client.close_window().await?;
            }
            self.client.switch_to_window(new.handle).await?;
            Ok::<(), Box<dyn Error>>(())
        })?;
        // Without it, no element of the new window would get the focus.
        self.call("Page.bringToFront", &json!({}))?;
        self.call("Network.clearBrowserCookies", &json!({}))?;
        self.call("Network.clearBrowserCache", &json!({}))?;
        for origin in origins {
            let stored = json!({ "origin": origin, "storageTypes": "all" });
            self.call("Storage.clearDataForOrigin", &stored)?;
        }
        // A line of the console is read once.
        self.ask("se/log", &json!({ "type": "browser" }))?;
        Ok(())
    }

    /// Calls a method of the browser's own protocol.
    pub fn call(&self, method: &str, parameters: &Value) -> io::Result<Value> {
        self.ask("goog/cdp/execute", &json!({ "cmd": method, "params": parameters }))
    }

    /// Returns the value of a command of the driver that the client library does not know.
    pub fn ask(&self, command: &str, body: &Value) -> io::Result<Value> {
        let body = body.to_string();
        let request = format!(
            "POST /session/{}/{command} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.session,
            body.len()
        );
        let mut stream = TcpStream::connect(("127.0.0.1", self.driver.port))?;
        stream.write_all(request.as_bytes())?;
        let mut stream = BufReader::new(stream);
        let mut length: usize = 0;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            match line.trim().to_ascii_lowercase().split_once(':') {
                Some(("content-length", value)) => {
                    length = value.trim().parse().map_err(io::Error::other)?;
                }
                Some(_) => {}
                None if line.starts_with("HTTP/") => {}
                None => break,
            }
        }
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer)?;
        let mut answer: Value = serde_json::from_slice(&answer)?;
        if !answer["value"]["error"].is_null() {
            return Err(io::Error::other(format!("{command}: {answer}")));
        }
        Ok(answer["value"].take())
    }
}

fn take_idle(language: &str) -> Option<Running> {
    let mut browsers = browsers();
    let at = browsers.idle.iter().position(|running| running.language == language)?;
    Some(browsers.idle.swap_remove(at))
}

struct Driver {
    shell: Child,
    port: u16,
    /// All files of the driver and its browser are in it.
    folder: PathBuf,
}

impl Driver {
    /// The driver ends at once if another test takes its port in the moment in which it chooses one,
    /// and is started again.
    fn start() -> Option<Self> {
        (0..3).find_map(|_| Self::start_once())
    }

    fn start_once() -> Option<Self> {
        // The shell removes it.
        let folder = tempfile::tempdir().unwrap().keep();
        let mut command = Command::new("sh");
        command.args(["-c", DRIVER, "sh"]).arg(&folder);
        command.env("TMPDIR", &folder).env("HOME", &folder);
        // A group of its own, so that the shell still runs after Ctrl-C at the terminal.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = command.spawn().unwrap();
        let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| {
            line.ok()?.split("successfully on port ").nth(1)?.trim_end_matches('.').parse().ok()
        });
        let Some(port) = port else {
            let _ = shell.wait();
            return None;
        };
        // Its later output is discarded, because a full pipe would stop it.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { shell, port, folder })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // This closes the input of the shell first.
        let _ = self.shell.wait();
    }
}
