//! Measures the waits of people at the page and behind it: lists, streams of events, and in a real
//! browser the board and the chat.
//!
//! The browser's figures need Debian's chromium and chromium-driver, and are left out without them.
#![allow(clippy::disallowed_methods, reason = "a bench waits and asks the time")]

mod support;

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fantoccini::{Client, ClientBuilder, Locator};
use serde_json::{Value, json};
use support::agent::{self, Role};
use support::bed::{Bed, Wanted};
use support::clients::{Control, Follower, Mcp, TIMEOUT};
use support::figures::{Figure, Target, Times, print};
use support::proc::memory;

const N_TASKS: usize = 2_000;
const N_LISTED: usize = 1_000;
const N_STREAMS: usize = 200;
const N_CHANGES: usize = 300;
const SETTINGS: &str = "chat: { poll_hold: 5m, idle_timeout: 1d }";

fn main() -> Result<()> {
    if agent::is_agent() {
        return Ok(());
    }
    let mut figures = Vec::new();
    let bed = Bed::serve(&Wanted { settings: SETTINGS, role: Role::Exit, n_agents: 1 })?;
    add_tasks(&bed)?;
    lists(&bed, &mut figures)?;
    streams(&bed, &mut figures)?;
    match Browser::start(&bed)? {
        Some(browser) => {
            board(&bed, &browser, &mut figures)?;
            panel(&bed, &browser, &mut figures)?;
            chat(&bed, &browser, &mut figures)?;
        }
        None => {
            eprintln!("no browser: without chromium and chromium-driver its figures are left out");
        }
    }
    print(&figures);
    Ok(())
}

/// Makes a project with a board of `N_TASKS`, and one with `N_LISTED`.
fn add_tasks(bed: &Bed) -> Result<()> {
    let mut manifest = String::from("tasks:\n");
    for n in 0..N_TASKS {
        let status = ["backlog", "todo", "done", "cancelled"][n % 4];
        writeln!(
            manifest,
            "  tsk_b{n:05}: {{ project: board, title: Task number {n} of the board, status: {status} }}"
        )?;
    }
    for n in 0..N_LISTED {
        writeln!(
            manifest,
            "  tsk_l{n:05}: {{ project: list, title: Task number {n} of the list, status: todo }}"
        )?;
    }
    let work = bed.path().display();
    writeln!(manifest, "projects:\n  board: {{ name: Board, working_directory: {work} }}")?;
    writeln!(manifest, "  list: {{ name: List, working_directory: {work} }}")?;
    bed.apply(&manifest)
}

fn lists(bed: &Bed, figures: &mut Vec<Figure>) -> Result<()> {
    let mut control = bed.control()?;
    let (mut times, mut floor) = (Times::default(), Times::default());
    for _ in 0..500 {
        let began = Instant::now();
        let tasks = control.get("/tasks?project=list")?;
        times.add(began.elapsed());
        ensure!(
            tasks.as_array().is_some_and(|tasks| tasks.len() == N_LISTED),
            "not {N_LISTED} tasks"
        );
        let began = Instant::now();
        control.get("/tasks/tsk_l00001")?;
        floor.add(began.elapsed());
    }
    let floor = Some(floor.median());
    figures.push(Figure {
        p99_target: Some(Target::AtMost(20.0)),
        floor,
        ..Figure::of_times("GET /tasks, 1,000 of them (floor: one)", &times)
    });
    Ok(())
}

/// The path that the followers follow.
const EVENTS: &str = "/events?project=board";

fn streams(bed: &Bed, figures: &mut Vec<Figure>) -> Result<()> {
    let mut control = bed.control()?;
    let mut alone = bed.follow_events(EVENTS)?;
    let floor = heard(&mut control, &mut alone, "tsk_b00000")?;
    let before = memory(bed.pid(), "VmRSS")?;
    let mut followers =
        (0..N_STREAMS - 1).map(|_| bed.follow_events(EVENTS)).collect::<Result<Vec<_>>>()?;
    // Most of them read only at the end. Meanwhile the text for them is in the kernel, or waits.
    let times = heard(&mut control, &mut alone, "tsk_b00001")?;
    for follower in followers.iter_mut().step_by(10) {
        follower.until_heard(|event| event.contains("tsk_b00001"))?;
    }
    let mib = memory(bed.pid(), "VmRSS")? - before;
    figures.push(Figure {
        target: Some(Target::AtMost(20.0)),
        ..Figure::new("200 followers of events", "MiB", mib)
    });
    figures.push(Figure {
        floor: Some(floor.median()),
        max_ratio: Some(2.0),
        ..Figure::of_times("a change -> heard, 199 others don't read", &times)
    });
    Ok(())
}

fn heard(control: &mut Control, follower: &mut Follower, task: &str) -> Result<Times> {
    let mut times = Times::default();
    for n in 0..N_CHANGES {
        let began = Instant::now();
        control.patch(&format!("/tasks/{task}"), &json!({ "title": format!("title {n}") }))?;
        follower.until_heard(|event| event.contains(task))?;
        times.add(began.elapsed());
    }
    Ok(times)
}

/// A browser that is logged in.
struct Browser {
    runtime: tokio::runtime::Runtime,
    client: Client,
    driver: Child,
    base: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    fn start(bed: &Bed) -> Result<Option<Self>> {
        let profile = tempfile::tempdir()?;
        let mut command = Command::new("chromedriver");
        command.env("TMPDIR", profile.path()).env("HOME", profile.path());
        let Ok(mut driver) =
            command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
        else {
            return Ok(None);
        };
        let mut lines =
            BufReader::new(driver.stdout.take().context("chromedriver says nothing")?).lines();
        let port = lines.find_map(|line| {
            line.ok()?
                .split("successfully on port ")
                .nth(1)?
                .trim_end_matches('.')
                .parse::<u16>()
                .ok()
        });
        let port = port.context("chromedriver named no port")?;
        std::thread::spawn(move || lines.for_each(drop));
        let arguments = [
            "--headless=new".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--no-proxy-server".to_owned(),
            format!("--user-data-dir={}", profile.path().join("profile").display()),
        ];
        let capabilities = json!({ "goog:chromeOptions": { "args": arguments } });
        let capabilities = capabilities.as_object().cloned().unwrap_or_default();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let mut builder =
            ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new());
        let client = builder.capabilities(capabilities);
        let client = runtime.block_on(client.connect(&format!("http://127.0.0.1:{port}")))?;
        let made = bed.control()?.post("/logins", &json!({ "role": "operator" }))?;
        let link = made["url"].as_str().with_context(|| format!("no link: {made}"))?.to_owned();
        let base = link.split("/login").next().unwrap_or_default().to_owned();
        let browser = Self { runtime, client, driver, base, _profile: profile };
        browser.runtime.block_on(async {
            browser.client.goto(&link).await?;
            browser.client.find(Locator::Css("button")).await?.click().await
        })?;
        Ok(Some(browser))
    }

    fn go_to(&self, path: &str) -> Result<()> {
        Ok(self.runtime.block_on(self.client.goto(&format!("{}{path}", self.base)))?)
    }

    fn run(&self, script: &str) -> Result<Value> {
        Ok(self.runtime.block_on(self.client.execute(script, Vec::new()))?)
    }

    /// Waits for a number that a script of the page leaves in `window.seen`: milliseconds since
    /// 1970.
    fn seen(&self) -> Result<f64> {
        self.number("return window.seen")
    }

    /// Returns the result of a script, once it is a number.
    fn number(&self, script: &str) -> Result<f64> {
        let give_up_at = Instant::now() + TIMEOUT;
        loop {
            if let Some(number) = self.run(script)?.as_f64() {
                return Ok(number);
            }
            ensure!(Instant::now() < give_up_at, "the page shows nothing");
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.runtime.block_on(self.client.clone().close());
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn now() -> f64 {
    let since =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_secs_f64() * 1000.0
}

fn millis(millis: f64) -> Duration {
    Duration::from_secs_f64(millis.max(0.0) / 1000.0)
}

fn board(bed: &Bed, browser: &Browser, figures: &mut Vec<Figure>) -> Result<()> {
    let mut paints = Times::default();
    for _ in 0..20 {
        browser.go_to("/ui/projects/board")?;
        let paint = browser.number(
            "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime",
        )?;
        paints.add(millis(paint));
    }
    let weight = "return performance.getEntries().filter(e => e.encodedBodySize).map(e => \
                  [e.name.startsWith(location.origin) || e.entryType === 'navigation' ? e.encodedBodySize : 0][0])\
                  .reduce((a, b) => a + b, 0)";
    let weight = browser.run(weight)?.as_f64().context("no weight")? / 1024.0;
    let mut control = bed.control()?;
    let mut moved = Times::default();
    for n in 0..50 {
        let (task, status) = ("tsk_b00001", ["backlog", "todo"][n % 2]);
        browser.run(&format!(
            "window.seen = null; const column = document.querySelector('#column-{status}');\
             const watch = new MutationObserver(() => {{ if (column.querySelector('#card-{task}')) {{ \
             window.seen = performance.timeOrigin + performance.now(); watch.disconnect(); }} }});\
             watch.observe(column, {{ childList: true, subtree: true }});"
        ))?;
        let began = now();
        control
            .patch(&format!("/tasks/{task}"), &json!({ "status": status, "priority": "urgent" }))?;
        moved.add(millis(browser.seen()? - began));
    }
    let paint = Figure::of_times("the board with 2,000 tasks, first paint", &paints);
    figures.push(Figure { target: Some(Target::AtMost(200.0)), ..paint });
    figures.push(Figure {
        target: Some(Target::AtMost(60.0)),
        ..Figure::new("all of it, compressed", "KiB", weight)
    });
    let moved = Figure::of_times("a task moved elsewhere -> seen on the board", &moved);
    figures.push(Figure { target: Some(Target::AtMost(200.0)), ..moved });
    Ok(())
}

/// The number of times that a panel is fetched.
const N_PANELS: usize = 300;

/// Measures what a reader waits for until the panel of a task is there, beside 2,000 tasks, also with
/// the longest description in the worst form. The floor is the smallest answer of the same server to
/// the same browser.
fn panel(bed: &Bed, browser: &Browser, figures: &mut Vec<Figure>) -> Result<()> {
    let stars = json!({
        "id": "tsk_stars", "projectId": "board", "title": "Stars", "description": "*".repeat(50_000),
    });
    bed.control()?.post("/tasks", &stars)?;
    browser.go_to("/ui/projects/board")?;
    let script = format!(
        "const done = arguments[arguments.length - 1];\
         const fetched = async (path) => {{ const began = performance.now();\
         const answer = await fetch(path, {{ headers: {{ 'hx-request': 'true' }} }}); await answer.text();\
         return answer.ok ? performance.now() - began : null; }};\
         (async () => {{ const times = []; for (let n = 0; n < {N_PANELS}; n++) times.push([\
         await fetched('/ui/parts/tasks/tsk_b' + String(n).padStart(5, '0')),\
         await fetched('/ui/parts/tasks/tsk_stars'), await fetched('/health/live')]);\
         return times; }})().then(done);"
    );
    let fetched = browser.runtime.block_on(browser.client.execute_async(&script, Vec::new()))?;
    let fetched: Vec<[f64; 3]> = serde_json::from_value(fetched).context("a panel failed")?;
    let times_of = |n: usize| {
        let mut times = Times::default();
        for all in &fetched {
            times.add(millis(all[n]));
        }
        times
    };
    let floor = times_of(2).median();
    for (name, times) in [
        ("the panel of a task (floor: the smallest answer)", times_of(0)),
        ("the same with 50,000 `*`", times_of(1)),
    ] {
        figures.push(Figure {
            target: Some(Target::AtMost(50.0)),
            floor: Some(floor),
            ..Figure::of_times(name, &times)
        });
    }
    Ok(())
}

/// Measures the server's share of a chat. The agent itself takes no time.
fn chat(bed: &Bed, browser: &Browser, figures: &mut Vec<Figure>) -> Result<()> {
    let mut control = bed.control()?;
    control.post("/projects/prj/chat/start", &json!({ "agentId": "agt_0" }))?;
    let mut coordinator = bed.mcp()?;
    let wanted = json!({ "agent_id": "agt_0", "project_id": "prj", "coordinator_id": "crd_bench" });
    let claim = coordinator.call("should_start", &wanted)?;
    let ticket = claim["launch_ticket"].as_str().with_context(|| format!("no ticket: {claim}"))?;
    let mut agent: Mcp = bed.mcp()?;
    let entered = json!({ "agent_id": "agt_0", "passkey": ticket, "project_id": "prj" });
    let token = agent.call("authenticate", &entered)?["session_token"].clone();
    browser.go_to("/ui/projects/prj?chat=agt_0")?;
    let give_up_at = Instant::now() + TIMEOUT;
    while browser.run("return document.querySelector('[data-is-ready]') === null")? != false {
        ensure!(Instant::now() < give_up_at, "the chat is never ready");
    }
    let (mut handed, mut shown) = (Times::default(), Times::default());
    for n in 0..50 {
        // The agent waits before the message is sent.
        let asked = json!({ "session_token": token });
        let waiting = std::thread::scope(|scope| -> Result<(f64, Value)> {
            let waits =
                scope.spawn(|| agent.call("get_next_action", &asked).map(|answer| (now(), answer)));
            browser.run(&format!(
                "window.seen = null; const list = document.querySelector('.messages');\
                 new MutationObserver((_, watch) => {{ if (list.textContent.includes('answer {n}.')) {{ \
                 window.seen = performance.timeOrigin + performance.now(); watch.disconnect(); }} }})\
                 .observe(list, {{ childList: true, subtree: true }});\
                 window.sent = performance.timeOrigin + performance.now();\
                 document.querySelector('#say').value = 'message {n}'; document.querySelector('[data-say]').requestSubmit();"
            ))?;
            waits.join().map_err(|_| anyhow::anyhow!("the agent panicked"))?
        });
        let (at, answer) = waiting?;
        ensure!(answer["action"] == "get_pending_messages", "{answer}");
        let sent = browser.run("return window.sent")?.as_f64().context("not sent")?;
        handed.add(millis(at - sent));
        let began = now();
        agent.call(
            "respond_chat",
            &json!({ "session_token": token, "content": format!("answer {n}.") }),
        )?;
        shown.add(millis(browser.seen()? - began));
    }
    for (name, times) in [
        ("a message sent on the page -> its agent has it", &handed),
        ("its answer -> shown", &shown),
    ] {
        figures
            .push(Figure { target: Some(Target::AtMost(100.0)), ..Figure::of_times(name, times) });
    }
    Ok(())
}
