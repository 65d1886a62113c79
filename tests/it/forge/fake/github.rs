//! The fake's GitHub.

use agent_coordinator::domain::forge::{ForgeKind, ItemKind};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Request;
use super::world::{Away, CommentState, ItemState, Reply, State, World, links, page, time};

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
    "POST /repos/{owner}/{repo}/issues/{issue_number}/labels",
    "DELETE /repos/{owner}/{repo}/issues/{issue_number}/labels",
    "DELETE /repos/{owner}/{repo}/issues/{issue_number}/labels/{name}",
    "GET /repos/{owner}/{repo}/labels",
    "POST /repos/{owner}/{repo}/labels",
    "GET /repos/{owner}/{repo}/assignees/{assignee}",
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
                "permissions": { "admin": false, "maintain": false, "push": false, "triage": state.may_triage, "pull": true },
            }))
        }
        ("GET", "/issues") => list(world, request, id),
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
