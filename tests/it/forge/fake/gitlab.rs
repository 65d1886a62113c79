//! The fake's GitLab.

use domain::forge::{ForgeKind, ItemKind};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::world::{
    Away, Branches, CommentState, ItemState, Reply, State, World, links, page, time,
};
use super::{Request, git};

pub const ROUTES: &[&str] = &[
    "GET /api/v4/user",
    "GET /api/v4/users",
    "GET /api/v4/personal_access_tokens/self",
    "GET /api/v4/projects/{id}",
    "GET /api/v4/projects/{id}/labels",
    "POST /api/v4/projects/{id}/labels",
    "GET /api/v4/projects/{id}/members/all/{user_id}",
    "GET /api/v4/projects/{id}/issues",
    "GET /api/v4/projects/{id}/issues/{issue_iid}",
    "PUT /api/v4/projects/{id}/issues/{issue_iid}",
    "GET /api/v4/projects/{id}/issues/{issue_iid}/notes",
    "POST /api/v4/projects/{id}/issues/{issue_iid}/notes",
    "DELETE /api/v4/projects/{id}/issues/{issue_iid}/notes/{note_id}",
    "GET /api/v4/projects/{id}/issues/{issue_iid}/links",
    "GET /api/v4/projects/{id}/repository/branches/{branch}",
    "GET /api/v4/projects/{id}/merge_requests",
    "POST /api/v4/projects/{id}/merge_requests",
    "GET /api/v4/projects/{id}/merge_requests/{merge_request_iid}",
    "PUT /api/v4/projects/{id}/merge_requests/{merge_request_iid}",
    "GET /api/v4/projects/{id}/merge_requests/{merge_request_iid}/notes",
    "POST /api/v4/projects/{id}/merge_requests/{merge_request_iid}/notes",
    "DELETE /api/v4/projects/{id}/merge_requests/{merge_request_iid}/notes/{note_id}",
];

/// The longest label. A longer one is refused.
const MAX_LABEL: usize = 255;

/// An item with its path.
#[derive(Clone, Copy)]
struct At {
    project: u64,
    kind: ItemKind,
    number: u64,
}

pub fn answer(world: &mut World, request: &Request, parameters: &[String]) -> Reply {
    if !world.admit(request.header("private-token")) {
        return Reply::error(401, "401 Unauthorized");
    }
    let route = request.route.strip_prefix("/api/v4").unwrap();
    match route {
        "/user" => Reply::ok(user(world, world.asking)),
        "/users" => {
            let found = request.query("username").and_then(|login| world.find_user(login));
            paged(world, request, found.into_iter().collect(), |id| user(world, id))
        }
        "/personal_access_tokens/self" => {
            Reply::ok(json!({ "id": 1, "scopes": ["api"], "active": true }))
        }
        _ => match world.find_repository(ForgeKind::GitLab, &parameters[0]) {
            Some(project) => in_project(
                world,
                request,
                project,
                route.strip_prefix("/projects/{id}").unwrap(),
                &parameters[1..],
            ),
            None => match world.find_renamed(ForgeKind::GitLab, &parameters[0]) {
                Some(project) => redirect(world, request, project),
                None => Reply::error(404, "404 Project Not Found"),
            },
        },
    }
}

/// Returns GitLab's answer for the old path of a project.
fn redirect(world: &World, request: &Request, project: u64) -> Reply {
    if request.method != "GET" {
        return Reply::error(405, "Non GET methods are not allowed for moved projects");
    }
    let (before, after) = request.path.split_once("/projects/").unwrap();
    let rest: String = after.split('/').skip(1).flat_map(|part| ["/", part]).collect();
    let url = format!("http://{}{before}/projects/{project}{rest}", world.address);
    Reply::error(301, "301 Moved Permanently").header("location", &url)
}

fn in_project(
    world: &mut World,
    request: &Request,
    project: u64,
    route: &str,
    parameters: &[String],
) -> Reply {
    let number = || parameters[0].parse::<u64>().unwrap_or(0);
    match (request.method.as_str(), route) {
        ("GET", "") => {
            let state = &world.repositories[&project];
            let access = match (state.may_triage, state.may_push) {
                (false, _) => 10,
                (true, false) => 20,
                (true, true) => 30,
            };
            Reply::ok(json!({
                "id": project,
                "path_with_namespace": state.name,
                "archived": state.is_archived,
                "issues_access_level": "enabled",
                "merge_requests_access_level": "enabled",
                "permissions": { "project_access": { "access_level": access, "notification_level": 3 }, "group_access": null },
                "http_url_to_repo": git::clone_url(world, project),
            }))
        }
        ("GET", "/labels") => {
            let labels = world.repositories[&project].labels.iter().collect();
            paged(world, request, labels, |name| json!({ "name": name }))
        }
        ("POST", "/labels") => {
            let Some(name) = text(request, "name") else {
                return Reply::error(400, "name is missing");
            };
            if !world.state(project).labels.insert(name.clone()) {
                return Reply::error(409, "Label already exists");
            }
            Reply::new(201, json!({ "name": name }))
        }
        ("GET", "/members/all/{user_id}") => {
            if world.repositories[&project].members.contains(&number()) {
                Reply::ok(user(world, number()))
            } else {
                Reply::error(404, "404 Not found")
            }
        }
        ("GET", "/issues") => list(world, request, project, ItemKind::Issue),
        ("GET", "/repository/branches/{branch}") => {
            match git::branch(world, project, &parameters[0]) {
                Some(found) => Reply::ok(found),
                None => Reply::error(404, "404 Branch Not Found"),
            }
        }
        ("POST", "/merge_requests") => open_request(world, request, project),
        ("GET", "/merge_requests") if request.query("source_branch").is_some() => {
            let wanted = request.query("source_branch").unwrap_or_default();
            let is_wanted = |item: &&ItemState| {
                item.branches.as_ref().is_some_and(|branches| branches.branch == wanted)
            };
            let found = world.repositories[&project].items.iter().filter(is_wanted).collect();
            paged(world, request, found, |one| item(world, project, one))
        }
        ("GET", "/merge_requests") => list(world, request, project, ItemKind::MergeRequest),
        (_, route) => {
            let kind =
                if route.starts_with("/issues") { ItemKind::Issue } else { ItemKind::MergeRequest };
            let at = At { project, kind, number: number() };
            match world.find_item(project, kind, at.number).map(|item| item.away.clone()) {
                None => Reply::error(404, "404 Not found"),
                Some(Some(Away::Gone(status))) => Reply::error(status, "404 Not found"),
                Some(_) => in_item(world, request, at, route, parameters),
            }
        }
    }
}

fn in_item(
    world: &mut World,
    request: &Request,
    at: At,
    route: &str,
    parameters: &[String],
) -> Reply {
    let (_, below) = route.split_once('}').unwrap();
    match (request.method.as_str(), below) {
        ("GET", "") => Reply::ok(find(world, at).as_said(item(world, at.project, find(world, at)))),
        ("PUT", "") => update(world, request, at),
        ("GET", "/links") => {
            let state = |number: u64| find(world, At { number, ..at });
            let linked = |(relation, number): &(&'static str, u64)| {
                let other = state(*number);
                let mut json = other.as_said(item(world, at.project, other));
                json["link_type"] = json!(relation);
                json
            };
            Reply::ok(find(world, at).links.iter().map(linked).collect())
        }
        ("GET", "/notes") => {
            let mut notes: Vec<&CommentState> = find(world, at).comments.iter().collect();
            if request.query("sort") != Some("asc") {
                notes.reverse();
            }
            paged(world, request, notes, |one| note(world, one))
        }
        ("POST", "/notes") => add_note(world, request, at),
        ("DELETE", "/notes/{note_id}") => {
            let id = parameters[1].parse::<u64>().unwrap_or(0);
            let item = world.find_item(at.project, at.kind, at.number).unwrap();
            let n_before = item.comments.len();
            item.comments.retain(|comment| comment.id != id);
            let is_removed = item.comments.len() < n_before;
            if is_removed {
                Reply::new(204, Value::Null)
            } else {
                Reply::error(404, "404 Note Not Found")
            }
        }
        (method, route) => panic!("{method} {route} is in the table of routes"),
    }
}

fn open_request(world: &mut World, request: &Request, project: u64) -> Reply {
    let field = |name: &str| text(request, name).unwrap_or_default();
    let (title, body) = (field("title"), field("description"));
    let branches = Branches {
        branch: field("source_branch"),
        target: field("target_branch"),
        is_draft: title.starts_with("Draft: "),
        of: project,
    };
    match git::open(world, project, &title, &body, branches) {
        Ok(number) => {
            let at = At { project, kind: ItemKind::MergeRequest, number };
            Reply::new(201, item(world, project, find(world, at)))
        }
        Err(error) if error.contains("exists") => {
            let message = "Another open merge request already exists for this source branch: !1";
            Reply::new(409, json!({ "message": [message] }))
        }
        Err(error) => Reply::new(400, json!({ "message": error })),
    }
}

fn find(world: &World, at: At) -> &ItemState {
    let mut items = world.repositories[&at.project].items.iter();
    items.find(|item| item.number == at.number && item.kind == at.kind).unwrap()
}

fn update(world: &mut World, request: &Request, at: At) -> Reply {
    let names = |field: &str| -> Vec<String> {
        let text = text(request, field).unwrap_or_default();
        text.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
    };
    let (added, removed) = (names("add_labels"), names("remove_labels"));
    if added.is_empty() && removed.is_empty() {
        return Reply::error(400, "at least one parameter must be provided");
    }
    if added.iter().any(|name| name.chars().count() > MAX_LABEL) {
        return Reply::new(400, json!({ "message": { "labels": ["is too long"] } }));
    }
    world.state(at.project).labels.extend(added.iter().cloned());
    world.change(at.project, at.kind, at.number, |item, _| {
        for name in &added {
            item.add_label(name);
        }
        for name in &removed {
            item.remove_label(name);
        }
    });
    let author = world.asking;
    world.add_comment(at.project, at.kind, at.number, Some(author), "changed labels", true);
    Reply::ok(item(world, at.project, find(world, at)))
}

/// Adds a note. GitLab executes lines that are commands, and keeps the others.
fn add_note(world: &mut World, request: &Request, at: At) -> Reply {
    let Some(body) = text(request, "body").filter(|body| !body.trim().is_empty()) else {
        return Reply::error(400, "body is missing");
    };
    if find(world, at).is_locked {
        return Reply::error(403, "403 Forbidden");
    }
    let author = world.asking;
    world.change(at.project, at.kind, at.number, |item, _| {
        for line in body.lines().map(str::trim) {
            match line {
                "/close" => item.state = State::Closed,
                "/unassign" => item.assignees.clear(),
                _ => (),
            }
        }
    });
    let is_command = |line: &str| matches!(line.trim(), "/close" | "/unassign");
    let kept: String = body.split_inclusive('\n').filter(|line| !is_command(line)).collect();
    if kept.is_empty() {
        return Reply::new(
            202,
            json!({ "commands_changes": {}, "summary": ["Closed this issue."] }),
        );
    }
    let added =
        world.add_comment(at.project, at.kind, at.number, Some(author), &kept, false).unwrap();
    Reply::new(201, note(world, &added))
}

fn list(world: &World, request: &Request, project: u64, kind: ItemKind) -> Reply {
    let assignee = match (request.query("assignee_id"), request.query("assignee_username[]")) {
        (Some(_), Some(_)) => {
            return Reply::new(
                400,
                json!({ "error": "assignee_id, assignee_username are mutually exclusive" }),
            );
        }
        (Some(id), None) => Some(id.parse().unwrap_or(0)),
        (None, Some(login)) => Some(world.find_user(login).unwrap_or(0)),
        (None, None) => None,
    };
    let since =
        request.query("updated_after").map(|since| since.parse::<Timestamp>().unwrap().as_second());
    let state = request.query("state").unwrap_or("all");
    let is_wanted = |item: &ItemState| {
        item.kind == kind
            && !matches!(item.away, Some(Away::Gone(_)))
            && (state == "all" || state == said_state(item))
            && assignee.is_none_or(|assignee| item.assignees.contains(&assignee))
            && since.is_none_or(|since| item.updated >= since)
            // Without the scope, GitLab shows only items that the token's owner wrote.
            && (request.query("scope") == Some("all") || item.author == Some(world.asking))
    };
    let mut items: Vec<&ItemState> =
        world.repositories[&project].items.iter().filter(|item| is_wanted(item)).collect();
    items.sort_by_key(|item| {
        if request.query("order_by") == Some("updated_at") { item.updated } else { item.created }
    });
    if request.query("sort") != Some("asc") {
        items.reverse();
    }
    paged(world, request, items, |one| one.as_said(item(world, project, one)))
}

fn paged<T>(world: &World, request: &Request, all: Vec<T>, json: impl Fn(T) -> Value) -> Reply {
    let (shown, page, last) = page(request, all, 20);
    let next = if page < last { (page + 1).to_string() } else { String::new() };
    let reply = Reply::ok(shown.into_iter().map(json).collect())
        .header("x-page", &page)
        .header("x-total-pages", &last)
        .header("x-next-page", &next);
    match links(world, request, page, last) {
        Some(links) => reply.header("link", &links),
        None => reply,
    }
}

fn text(request: &Request, name: &str) -> Option<String> {
    Some(request.body.as_ref()?.get(name)?.as_str()?.to_owned())
}

fn user(world: &World, id: u64) -> Value {
    json!({ "id": id, "username": world.users[&id], "name": "A Name", "state": "active" })
}

fn note(world: &World, state: &CommentState) -> Value {
    json!({
        "id": state.id,
        "author": state.author.map(|author| user(world, author)),
        "body": state.body,
        "created_at": time(state.created),
        "system": state.is_system,
    })
}

fn said_state(item: &ItemState) -> &'static str {
    match item.state {
        State::Open => "opened",
        State::Closed => "closed",
        State::Merged => "merged",
    }
}

fn item(world: &World, project: u64, state: &ItemState) -> Value {
    let name = &world.repositories[&project].name;
    let is_issue = state.kind == ItemKind::Issue;
    let path = if is_issue { "issues" } else { "merge_requests" };
    let assignees: Vec<Value> = state.assignees.iter().map(|id| user(world, *id)).collect();
    let mut json = json!({
        "id": state.id,
        "iid": state.number,
        "project_id": project,
        "title": state.title,
        "description": (!state.body.is_empty()).then_some(&state.body),
        "state": said_state(state),
        "author": state.author.map(|author| user(world, author)),
        "assignee": assignees.first(),
        "assignees": assignees,
        "labels": state.labels,
        "discussion_locked": state.is_locked,
        "user_notes_count": state.comments.len(),
        "web_url": format!("https://forge.example/{name}/-/{path}/{}", state.number),
        "created_at": time(state.created),
        "updated_at": time(state.updated),
    });
    if let Some(branches) = &state.branches {
        json["source_branch"] = json!(branches.branch);
        json["target_branch"] = json!(branches.target);
        json["source_project_id"] = json!(branches.of);
        json["target_project_id"] = json!(project);
        json["draft"] = json!(branches.is_draft);
    }
    if is_issue {
        json["moved_to_id"] = match &state.away {
            Some(Away::Moved { id, .. }) => json!(id),
            _ => Value::Null,
        };
    }
    json
}
