//! The fake's repositories, served by git itself: `git http-backend` behind the token of the API.
//! The tests change them with git like people.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::forge::ForgeKind;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::handles::Repository;
use super::world::{Branches, World};
use super::{Answer, Request, Shared};

/// The path below which the repositories are.
pub const PATH: &str = "/git/";

/// Returns the path of a repository below the folder of all.
pub fn name_of(forge: ForgeKind, name: &str) -> String {
    format!("{}/{name}.git", forge.as_str())
}

/// Returns the address from which a repository is cloned.
pub fn clone_url(world: &World, repository: u64) -> String {
    let state = &world.repositories[&repository];
    format!("http://{}{PATH}{}", world.address, name_of(state.forge, &state.name))
}

/// Answers a request for a repository.
pub async fn answer(world: &Shared, request: &Request, body: &Bytes) -> Answer {
    let path = request.path.strip_prefix(PATH).unwrap().to_owned();
    let pushes =
        path.ends_with("git-receive-pack") || request.query("service") == Some("git-receive-pack");
    let root = {
        let mut world = world.lock();
        let token = password(request);
        if !world.admit(token.as_deref()) {
            return plain(401, "HTTP Basic: Access denied")
                .header("www-authenticate", "Basic realm=\"fake\"")
                .body(empty())
                .unwrap();
        }
        let may_push = world
            .repositories
            .values()
            .any(|state| path.starts_with(&name_of(state.forge, &state.name)) && state.may_push);
        if pushes && !may_push {
            return plain(403, "Permission denied").body(empty()).unwrap();
        }
        world.git.path().to_owned()
    };
    backend(&root, &path, request, body).await
}

fn password(request: &Request) -> Option<String> {
    let encoded = request.header("authorization")?.strip_prefix("Basic ")?;
    let text = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
    Some(text.split_once(':')?.1.to_owned())
}

async fn backend(root: &Path, path: &str, request: &Request, body: &Bytes) -> Answer {
    let query: Vec<String> =
        request.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let header = |name: &str| request.header(name).unwrap_or_default().to_owned();
    let mut child = Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("PATH_INFO", format!("/{path}"))
        .env("REQUEST_METHOD", &request.method)
        .env("QUERY_STRING", query.join("&"))
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .env("REMOTE_USER", "robot")
        .env("REMOTE_ADDR", "127.0.0.1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let body = body.clone();
    let write = async move {
        let _ = stdin.write_all(&body).await;
        drop(stdin);
    };
    let ((), output) = tokio::join!(write, child.wait_with_output());
    let output = output.unwrap().stdout;
    let end = output.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(output.len());
    let mut answer = hyper::Response::builder().status(200);
    for line in String::from_utf8_lossy(&output[..end]).lines() {
        let Some((name, value)) = line.split_once(": ") else { continue };
        if name.eq_ignore_ascii_case("status") {
            let status = value.split(' ').next().unwrap().parse::<u16>().unwrap();
            answer = answer.status(status);
        } else {
            answer = answer.header(name, value);
        }
    }
    let content = Bytes::copy_from_slice(output.get(end + 4..).unwrap_or_default());
    answer.body(Full::new(content).map_err(|never| match never {}).boxed()).unwrap()
}

fn plain(status: u16, text: &str) -> hyper::http::response::Builder {
    hyper::Response::builder().status(status).header("x-reason", text)
}

fn empty() -> http_body_util::combinators::BoxBody<Bytes, std::io::Error> {
    Full::new(Bytes::new()).map_err(|never| match never {}).boxed()
}

/// The parts of a repository that git has.
impl Repository {
    /// Makes the repository of git with a commit on `main`, and returns its folder.
    pub fn init_git(&self) -> PathBuf {
        let folder = self.git();
        std::fs::create_dir_all(&folder).unwrap();
        run(&folder, &["init", "-q", "--bare", "-b", "main"]);
        self.commit("main", "README.md", "# Site\n");
        folder
    }

    /// Returns the folder of the repository of git.
    pub fn git(&self) -> PathBuf {
        self.with_state(|root, state| root.join(name_of(state.forge, &state.name)))
    }

    /// Commits a file to a branch, which begins at `main` if it is new. Returns the commit.
    pub fn commit(&self, branch: &str, file: &str, content: &str) -> String {
        let folder = self.git();
        let work = tempfile::tempdir().unwrap();
        let name = format!("refs/heads/{branch}");
        let path = work.path();
        run(path, &["init", "-q", "-b", "work"]);
        let address = folder.to_str().unwrap();
        for from in [name.as_str(), "refs/heads/main"] {
            let known = run(&folder, &["for-each-ref", from]);
            if !known.is_empty() {
                run(path, &["fetch", "-q", address, from]);
                run(path, &["reset", "-q", "--hard", "FETCH_HEAD"]);
                break;
            }
        }
        std::fs::write(path.join(file), content).unwrap();
        run(path, &["add", "."]);
        run(path, &["commit", "-q", "-m", &format!("Change {file}")]);
        run(path, &["push", "-q", address, &format!("HEAD:{name}")]);
        run(path, &["rev-parse", "HEAD"])
    }

    /// Returns the commit of a branch, if there is one.
    pub fn branch(&self, branch: &str) -> Option<String> {
        let name = format!("refs/heads/{branch}");
        let found = run(&self.git(), &["for-each-ref", "--format=%(objectname)", &name]);
        (!found.is_empty()).then_some(found)
    }

    /// Takes the right to push from the token.
    pub fn forbid_push(&self) {
        self.change_state(|state| state.may_push = false);
    }

    pub fn allow_push(&self) {
        self.change_state(|state| state.may_push = true);
    }

    /// Protects a branch.
    pub fn protect(&self, branch: &str) {
        self.change_state(|state| {
            state.protected_branches.insert(branch.to_owned());
        });
    }

    /// Makes a hook of the repository refuse each push with this message.
    pub fn refuse_pushes(&self, message: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let hook = self.git().join("hooks/pre-receive");
        std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
        std::fs::write(&hook, format!("#!/bin/sh\necho '{message}' >&2\nexit 1\n")).unwrap();
        std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub fn accept_pushes(&self) {
        std::fs::remove_file(self.git().join("hooks/pre-receive")).unwrap();
    }
}

/// Returns whether a repository has a branch.
pub fn has_branch(world: &World, repository: u64, branch: &str) -> bool {
    let state = &world.repositories[&repository];
    let folder = world.git.path().join(name_of(state.forge, &state.name));
    folder.is_dir() && !run(&folder, &["for-each-ref", &format!("refs/heads/{branch}")]).is_empty()
}

/// Returns a branch of a repository as both APIs show it.
pub fn branch(world: &World, repository: u64, branch: &str) -> Option<serde_json::Value> {
    let is_protected = world.repositories[&repository].protected_branches.contains(branch);
    has_branch(world, repository, branch)
        .then(|| serde_json::json!({ "name": branch, "protected": is_protected }))
}

/// Opens a request from one branch to another. Returns its number, or an error with its status.
pub fn open(
    world: &mut World,
    repository: u64,
    title: &str,
    body: &str,
    branches: Branches,
) -> Result<u64, String> {
    let state = &world.repositories[&repository];
    let is_same =
        |other: &Branches| (&other.branch, &other.target) == (&branches.branch, &branches.target);
    let is_open = |item: &&super::world::ItemState| item.state == super::world::State::Open;
    let mut open = state.items.iter().filter(is_open);
    if open.any(|item| item.branches.as_ref().is_some_and(is_same)) {
        return Err("already exists".to_owned());
    }
    if !has_branch(world, repository, &branches.branch)
        || !has_branch(world, repository, &branches.target)
    {
        return Err("invalid branch".to_owned());
    }
    let author = world.asking;
    let number = world.add_request(repository, title, body, branches);
    let items = &mut world.state(repository).items;
    items.last_mut().unwrap().author = Some(author);
    Ok(number)
}

/// Runs git as a person does.
#[track_caller]
pub fn run(folder: &Path, arguments: &[&str]) -> String {
    let output = std::process::Command::new("git")
        .args(["-c", "user.name=Ann", "-c", "user.email=ann@example.invalid"])
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .expect("git is installed");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {message}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
