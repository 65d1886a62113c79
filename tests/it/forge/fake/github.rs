//! The fake's GitHub.

use domain::forge::{ForgeKind, ItemKind};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::world::{
    Away, Branches, CommentState, ItemState, Reply, State, World, links, page, time,
};
use super::{Request, git};

pub const ROUTES: &[&str] = &[
    "GET /user",
    "GET /users/{username}",
    "GET /repositories/{repository_id}",
    "GET /repos/{owner}/{repo}",
    "GET /repos/{owner}/{repo}/issues",
    "GET /repos/{owner}/{repo}/issues/{issue_number}",
    "GET /repos/{owner}/{repo}/issues/{issue_number}/comments",
    "POST /repos/{owner}/{repo}/issues/{issue_number}/comments",
    "DELETE /repos/{owner}/{repo}/issues/comments/{comment_id}",
    "GET /repos/{owner}/{repo}/issues/{issue_number}/dependencies/blocked_by",
    "POST /repos/{owner}/{repo}/issues/{issue_number}/labels",
    "DELETE /repos/{owner}/{repo}/issues/{issue_number}/labels",
    "DELETE /repos/{owner}/{repo}/issues/{issue_number}/labels/{name}",
    "GET /repos/{owner}/{repo}/labels",
    "POST /repos/{owner}/{repo}/labels",
    "GET /repos/{owner}/{repo}/assignees/{assignee}",
    "GET /repos/{owner}/{repo}/branches/{branch}",
    "GET /repos/{owner}/{repo}/pulls",
    "POST /repos/{owner}/{repo}/pulls",
    "GET /repos/{owner}/{repo}/pulls/{pull_number}",
    "GET /repos/{owner}/{repo}/pulls/{pull_number}/comments",
];

/// The longest label. A longer one is refused.
const MAX_LABEL: usize = 50;
/// GitHub doesn't tell numbers apart by kind.
const ANY: ItemKind = ItemKind::Issue;

pub fn answer(world: &mut World, request: &Request, parameters: &[String]) -> Reply {
    if request.header("user-agent").is_none() {
        return Reply::error(403, "Request forbidden by administrative rules.");
    }
    let token = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    if !world.admit(token) {
        return Reply::error(401, "Bad credentials");
    }
    if request.route == "/repositories/{repository_id}" {
        return match world.find_repository(ForgeKind::GitHub, &parameters[0]) {
            Some(repository) => in_repository(world, request, repository, "", &[]),
            None => Reply::error(404, "Not Found"),
        };
    }
    let route = request.route.strip_prefix("/repos/{owner}/{repo}");
    let Some(route) = route else {
        return account(world, request, parameters);
    };
    let name = format!("{}/{}", parameters[0], parameters[1]);
    match world.find_repository(ForgeKind::GitHub, &name) {
        Some(repository) => in_repository(world, request, repository, route, &parameters[2..]),
        None => match world.find_renamed(ForgeKind::GitHub, &name) {
            Some(repository) => redirect(world, request, repository),
            None => Reply::error(404, "Not Found"),
        },
    }
}

/// Returns GitHub's answer for the old name of a repository.
fn redirect(world: &World, request: &Request, repository: u64) -> Reply {
    let (before, after) = request.path.split_once("/repos/").unwrap();
    let rest: String = after.split('/').skip(2).flat_map(|part| ["/", part]).collect();
    let url = format!("http://{}{before}/repositories/{repository}{rest}", world.address);
    let status = if request.method == "GET" { 301 } else { 307 };
    Reply::error(status, "Moved Permanently").header("location", &url)
}

fn account(world: &World, request: &Request, parameters: &[String]) -> Reply {
    if request.route == "/user" {
        return Reply::ok(user(world, world.asking)).header("x-oauth-scopes", &"repo, read:user");
    }
    match world.find_user(&parameters[0]) {
        Some(id) => Reply::ok(user(world, id)),
        None => Reply::error(404, "Not Found"),
    }
}

fn in_repository(
    world: &mut World,
    request: &Request,
    id: u64,
    route: &str,
    parameters: &[String],
) -> Reply {
    let number = || parameters[0].parse::<u64>().unwrap_or(0);
    match (request.method.as_str(), route) {
        ("GET", "") => {
            let state = &world.repositories[&id];
            Reply::ok(json!({
                "id": id,
                "full_name": state.name,
                "archived": state.is_archived,
                "has_issues": true,
                "permissions": { "admin": false, "maintain": false, "push": state.may_push && state.may_triage, "triage": state.may_triage, "pull": true },
                "clone_url": git::clone_url(world, id),
            }))
        }
        ("GET", "/issues") => list(world, request, id),
        ("GET", "/pulls") => {
            let owner = world.repositories[&id].name.split('/').next().unwrap().to_owned();
            let wanted = request.query("head").unwrap_or_default().to_owned();
            let is_wanted = |item: &&ItemState| {
                let branches = item.branches.as_ref();
                branches.is_some_and(|branches| wanted == format!("{owner}:{}", branches.branch))
            };
            let pulls = world.repositories[&id].items.iter().filter(is_wanted).collect();
            paged(world, request, pulls, |one| pull(world, id, one))
        }
        ("GET", "/branches/{branch}") => match git::branch(world, id, &parameters[0]) {
            Some(found) => Reply::ok(found),
            None => Reply::error(404, "Branch not found"),
        },
        ("GET", "/pulls/{pull_number}/comments") => {
            let items = &world.repositories[&id].items;
            let found = items.iter().find(|item| item.number == number());
            let comments = found.map(|item| item.reviews.iter().collect()).unwrap_or_default();
            paged(world, request, comments, |(path, one): &(String, CommentState)| {
                let mut json = comment(world, one);
                json["path"] = json!(path);
                json["line"] = json!(7);
                json
            })
        }
        ("POST", "/pulls") => open_pull(world, request, id),
        ("GET", "/pulls/{pull_number}") => {
            let found = world.repositories[&id].items.iter().find(|item| item.number == number());
            match found.filter(|item| item.branches.is_some()) {
                Some(found) => Reply::ok(pull(world, id, found)),
                None => Reply::error(404, "Not Found"),
            }
        }
        ("GET", "/labels") => {
            let labels = world.repositories[&id].labels.iter().collect();
            paged(world, request, labels, |name| label(name))
        }
        ("POST", "/labels") => create_label(world, request, id),
        ("GET", "/assignees/{assignee}") => {
            let user = world.find_user(&parameters[0]);
            let is_member =
                user.is_some_and(|user| world.repositories[&id].members.contains(&user));
            if is_member { Reply::new(204, Value::Null) } else { Reply::error(404, "Not Found") }
        }
        ("DELETE", "/issues/comments/{comment_id}") => {
            let mut is_removed = false;
            for item in &mut world.state(id).items {
                let n_before = item.comments.len();
                item.comments.retain(|comment| comment.id != number());
                is_removed |= item.comments.len() < n_before;
            }
            if is_removed { Reply::new(204, Value::Null) } else { Reply::error(404, "Not Found") }
        }
        (_, route) => match world
            .find_item(id, ANY, number())
            .map(|item| (item.away.clone(), item.is_locked))
        {
            None => Reply::error(404, "Not Found"),
            Some((Some(Away::Gone(status)), _)) => Reply::error(status, "This issue was deleted"),
            Some((Some(Away::Moved { url, .. }), _)) => {
                Reply::error(301, "Moved Permanently").header("location", &url)
            }
            Some((None, is_locked)) => in_item(world, request, id, route, parameters, is_locked),
        },
    }
}

fn in_item(
    world: &mut World,
    request: &Request,
    id: u64,
    route: &str,
    parameters: &[String],
    is_locked: bool,
) -> Reply {
    let number = parameters[0].parse().unwrap();
    let labels_of =
        |item: &ItemState| Value::Array(item.labels.iter().map(|name| label(name)).collect());
    match (request.method.as_str(), route.strip_prefix("/issues/{issue_number}").unwrap()) {
        ("GET", "") => {
            let said = find(world, id, number).as_said(item(world, id, find(world, id, number)));
            Reply::ok(said)
        }
        ("GET", "/comments") => {
            let comments = find(world, id, number).comments.iter().collect();
            paged(world, request, comments, |one| comment(world, one))
        }
        ("GET", "/dependencies/blocked_by") => {
            let others = find(world, id, number).links.iter();
            let others = others.filter(|(relation, _)| *relation == "is_blocked_by");
            let others = others.map(|(_, other)| find(world, id, *other)).collect();
            paged(world, request, others, |one| one.as_said(item(world, id, one)))
        }
        ("POST", "/comments") if is_locked => {
            Reply::error(403, "Unable to create comment because issue is locked.")
        }
        ("POST", "/comments") => {
            let Some(body) = text(request, "body").filter(|body| !body.trim().is_empty()) else {
                return Reply::error(422, "Validation Failed");
            };
            let author = world.asking;
            let added = world.add_comment(id, ANY, number, Some(author), &body, false).unwrap();
            Reply::new(201, comment(world, &added))
        }
        ("POST", "/labels") => {
            let Some(names) = request.body.as_ref().and_then(|body| body.get("labels")?.as_array())
            else {
                return Reply::error(422, "Invalid request.");
            };
            let names: Vec<String> =
                names.iter().filter_map(Value::as_str).map(str::to_owned).collect();
            if names.iter().any(|name| name.chars().count() > MAX_LABEL) {
                return too_long();
            }
            world.state(id).labels.extend(names.iter().cloned());
            let labels = world.change(id, ANY, number, |item, _| {
                for name in &names {
                    item.add_label(name);
                }
                labels_of(item)
            });
            Reply::ok(labels.unwrap())
        }
        ("DELETE", "/labels") => {
            world.change(id, ANY, number, |item, _| item.labels.clear());
            Reply::new(204, Value::Null)
        }
        ("DELETE", "/labels/{name}") => {
            if !find(world, id, number).has_label(&parameters[1]) {
                return Reply::error(404, "Label does not exist");
            }
            let labels = world.change(id, ANY, number, |item, _| {
                item.remove_label(&parameters[1]);
                labels_of(item)
            });
            Reply::ok(labels.unwrap())
        }
        (method, route) => panic!("{method} {route} is in the table of routes"),
    }
}

fn find(world: &World, id: u64, number: u64) -> &ItemState {
    world.repositories[&id].items.iter().find(|item| item.number == number).unwrap()
}

fn list(world: &World, request: &Request, id: u64) -> Reply {
    // An account that doesn't exist is assigned to nothing.
    let assignee = request.query("assignee").map(|login| world.find_user(login).unwrap_or(0));
    let since = request.query("since").map(|since| since.parse::<Timestamp>().unwrap().as_second());
    let state = request.query("state").unwrap_or("open");
    let is_wanted = |item: &ItemState| {
        item.away.is_none()
            && (state == "all" || (state == "open") == (item.state == State::Open))
            && assignee.is_none_or(|assignee| item.assignees.contains(&assignee))
            && since.is_none_or(|since| item.updated >= since)
    };
    let mut items: Vec<&ItemState> =
        world.repositories[&id].items.iter().filter(|item| is_wanted(item)).collect();
    items.sort_by_key(|item| {
        if request.query("sort") == Some("updated") { item.updated } else { item.created }
    });
    if request.query("direction") != Some("asc") {
        items.reverse();
    }
    paged(world, request, items, |one| one.as_said(item(world, id, one)))
}

fn paged<T>(world: &World, request: &Request, all: Vec<T>, json: impl Fn(T) -> Value) -> Reply {
    let (shown, page, last) = page(request, all, 30);
    let reply = Reply::ok(shown.into_iter().map(json).collect());
    match links(world, request, page, last) {
        Some(links) => reply.header("link", &links),
        None => reply,
    }
}

fn create_label(world: &mut World, request: &Request, id: u64) -> Reply {
    let Some(name) = text(request, "name") else {
        return Reply::error(422, "Validation Failed");
    };
    if name.chars().count() > MAX_LABEL {
        return too_long();
    }
    let labels = &mut world.state(id).labels;
    if labels.iter().any(|other| other.to_lowercase() == name.to_lowercase()) {
        let errors = json!([{ "resource": "Label", "code": "already_exists", "field": "name" }]);
        return Reply::new(422, json!({ "message": "Validation Failed", "errors": errors }));
    }
    labels.insert(name.clone());
    Reply::new(201, label(&name))
}

fn open_pull(world: &mut World, request: &Request, id: u64) -> Reply {
    let field = |name: &str| text(request, name).unwrap_or_default();
    let is_draft = request.body.as_ref().is_some_and(|body| body["draft"] == true);
    if is_draft && world.repositories[&id].has_no_drafts {
        return Reply::error(422, "Draft pull requests are not supported in this repository.");
    }
    let branches = Branches { branch: field("head"), target: field("base"), is_draft, of: id };
    let named = branches.branch.clone();
    match git::open(world, id, &field("title"), &field("body"), branches) {
        Ok(number) => Reply::new(201, pull(world, id, find(world, id, number))),
        Err(error) => {
            let owner = world.repositories[&id].name.split('/').next().unwrap();
            let message = format!("A pull request {error} for {owner}:{named}.");
            let errors =
                json!([{ "resource": "PullRequest", "code": "custom", "message": message }]);
            Reply::new(422, json!({ "message": "Validation Failed", "errors": errors }))
        }
    }
}

fn pull(world: &World, id: u64, state: &ItemState) -> Value {
    let mut json = item(world, id, state);
    let branches = state.branches.as_ref().unwrap();
    json["draft"] = json!(branches.is_draft);
    json["head"] = json!({ "ref": branches.branch, "repo": { "id": branches.of } });
    json["base"] = json!({ "ref": branches.target, "repo": { "id": id } });
    json
}

fn too_long() -> Reply {
    let errors = json!([{ "resource": "Label", "code": "invalid", "field": "name" }]);
    Reply::new(422, json!({ "message": "Validation Failed", "errors": errors }))
}

fn text(request: &Request, name: &str) -> Option<String> {
    Some(request.body.as_ref()?.get(name)?.as_str()?.to_owned())
}

fn user(world: &World, id: u64) -> Value {
    let login = &world.users[&id];
    json!({ "id": id, "login": login, "type": "User", "html_url": format!("https://forge.example/{login}") })
}

fn label(name: &str) -> Value {
    json!({ "name": name, "color": "ededed", "default": false, "description": null })
}

fn comment(world: &World, state: &CommentState) -> Value {
    json!({
        "id": state.id,
        "user": state.author.map(|author| user(world, author)),
        "body": state.body,
        "created_at": time(state.created),
        "updated_at": time(state.created),
    })
}

fn item(world: &World, repository: u64, state: &ItemState) -> Value {
    let name = &world.repositories[&repository].name;
    let is_pull = state.kind != ItemKind::Issue;
    let url = format!(
        "https://forge.example/{name}/{}/{}",
        if is_pull { "pull" } else { "issues" },
        state.number
    );
    let assignees: Vec<Value> = state.assignees.iter().map(|id| user(world, *id)).collect();
    let mut json = json!({
        "id": state.id,
        "number": state.number,
        "title": state.title,
        "body": (!state.body.is_empty()).then_some(&state.body),
        "state": if state.state == State::Open { "open" } else { "closed" },
        "user": state.author.map(|author| user(world, author)),
        "assignee": assignees.first(),
        "assignees": assignees,
        "labels": state.labels.iter().map(|name| label(name)).collect::<Vec<_>>(),
        "locked": state.is_locked,
        "comments": state.comments.len(),
        "html_url": url,
        "created_at": time(state.created),
        "updated_at": time(state.updated),
    });
    if is_pull {
        let merged = (state.state == State::Merged).then(|| time(state.updated));
        json["pull_request"] = json!({ "html_url": url, "merged_at": merged });
    }
    json
}
