//! The forge of a bed: a bare repository of the person in which strangers opened requests, served
//! by `git http-backend` on the loopback interface.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::sync::OnceLock;

use super::*;
use domain::Secret;
use domain::workspace::{FetchOrder, ForgeBase, PushOrder, PushWay, Pushed, Remote, RemoteError};

const NOT_AUTHORIZED: &[u8] = b"HTTP/1.1 401 Unauthorized\r\n\
    WWW-Authenticate: Basic realm=\"forge\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Makes the forge of the template. The request with a number has the crafted commit with this
/// index, and the one after them has the commit of the source. It borrows all objects.
pub(super) fn make(bed: &Bed, crafted: &[String]) {
    let folder = bed.folder.path();
    let init = ["init", "--quiet", "--bare", "--template=", "--initial-branch=main", "forge.git"];
    bed.git(folder, &init);
    let objects = format!("{}\n", folder.join("crafted/objects").display());
    std::fs::create_dir_all(folder.join("forge.git/objects/info")).unwrap();
    std::fs::write(folder.join("forge.git/objects/info/alternates"), objects).unwrap();
    let main = bed.git(&bed.source(), &["rev-parse", "HEAD"]);
    let requests = crafted.iter().chain([&main]).enumerate();
    let mut refs = vec![format!("{main} refs/heads/main")];
    refs.extend(requests.map(|(n, commit)| format!("{commit} refs/pull/{n}/head")));
    std::fs::write(folder.join("forge.git/packed-refs"), refs.join("\n") + "\n").unwrap();
}

/// Fetches a request of a fork, and returns what work on it begins at.
pub(super) async fn fetch(bed: &Bed, n: usize) -> Result<Option<ForgeBase>, RemoteError> {
    let remote = remote(bed);
    let upstream = remote.url.clone();
    let refs = vec![format!("refs/pull/{n}/head")];
    let order = FetchOrder {
        project: "shop".parse().unwrap(),
        remote,
        forks: refs.clone(),
        refs,
        submodules: n.is_multiple_of(2),
        max_disk: 1 << 40,
    };
    let fetched = bed.checkouts.remotes.fetch(&order).await?;
    let commit = fetched.commits.into_iter().flatten().next();
    let target = "main".to_owned();
    Ok(commit.map(|commit| ForgeBase { target, commit, upstream, is_of_fork: true }))
}

/// Gives the forge a branch with a commit of the keep repository.
pub(super) async fn push(bed: &Bed, commit: String) -> Result<Pushed, RemoteError> {
    let order = PushOrder {
        project: "shop".parse().unwrap(),
        remote: remote(bed),
        commit,
        branch: "agents/one".to_owned(),
        way: PushWay::Create,
    };
    bed.checkouts.remotes.push(&order).await
}

/// The token is a secret that no step may say and no file may have.
fn remote(bed: &Bed) -> Remote {
    static ADDRESS: OnceLock<String> = OnceLock::new();
    let url = format!("{}{}/forge.git", ADDRESS.get_or_init(serve), bed.folder.path().display());
    Remote { url, user: "robot", token: Secret::new(SECRET) }
}

/// Serves the forges of all beds until the process ends. Returns the address.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    address
}

/// Answers a request for a repository, as the person.
fn answer(mut stream: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut words = first.split_whitespace();
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return Ok(()) };
    let mut headers = BTreeMap::new();
    for line in reader.by_ref().lines() {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let header = |name: &str| headers.get(name).cloned().unwrap_or_default();
    let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
    reader.read_exact(&mut body)?;
    if header("authorization").is_empty() {
        return stream.write_all(NOT_AUTHORIZED);
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut git = Command::new("git")
        .arg("http-backend")
        .envs([("GIT_PROJECT_ROOT", "/"), ("GIT_HTTP_EXPORT_ALL", "1"), ("HOME", "/nonexistent")])
        .envs([("GIT_CONFIG_NOSYSTEM", "1"), ("REMOTE_USER", "robot")])
        .envs([("PATH_INFO", path), ("QUERY_STRING", query), ("REQUEST_METHOD", method)])
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .current_dir("/")
        .uid(PERSON)
        .gid(PERSON)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    // Git does not read a request that it refuses.
    let _ = git.stdin.take().unwrap().write_all(&body);
    let output = git.wait_with_output()?.stdout;
    let end = output.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(output.len());
    let head = String::from_utf8_lossy(&output[..end]);
    let status = head.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
    write!(stream, "HTTP/1.1 {status}\r\n{head}\r\nConnection: close")?;
    stream.write_all(&output[end..])
}
