//! Checks that the forge documents each request of the clients: its path, its parameters, its body.
//!
//! For GitLab this uses the table below. For GitHub it uses the description that GitHub publishes.
//! That is big and changes weekly, so that neither `cargo test` nor `.ci/run` installs it. By hand:
//! ```sh
//! npm install --ignore-scripts --prefix openapi @octokit/openapi
//! AGENT_COORDINATOR_TEST_OPENAPI=$PWD/openapi/node_modules/@octokit/openapi \
//!     cargo test --test it forge::documented
//! ```
//! Without the variable that test prints that it is skipped, and passes.

use std::fs;
use std::path::PathBuf;

use domain::forge::{ForgeKind, ForgeUser, LabelDelta};
use forge::Listing;
use serde_json::{Value, json};

use super::fake::{self, OWNER, Request};
use super::{Bed, NAME};
use crate::support::skip;

/// The variable that names the folder of the package.
const VARIABLE: &str = "AGENT_COORDINATOR_TEST_OPENAPI";

/// Makes every request that a client can make about issues and pulls.
async fn all_requests(forge: ForgeKind) -> Vec<Request> {
    let bed = Bed::new(forge);
    let bot = ForgeUser { id: Some(bed.fake.user(OWNER)), login: OWNER.to_owned() };
    let unknown = ForgeUser { id: None, ..bot.clone() };
    for item in [bed.repository.issue("issue"), bed.repository.pull("pull")] {
        let (kind, number) = (item.kind, item.number);
        item.label("coding agent");
        bed.client.item(NAME, kind, number).await.unwrap();
        bed.client.comments(NAME, kind, number).await.unwrap();
        let comment = bed.client.add_comment(NAME, kind, number, "Hello.").await.unwrap();
        bed.client.remove_comment(NAME, kind, number, comment).await.unwrap();
        let delta =
            LabelDelta { add: vec!["done".to_owned()], remove: vec!["coding agent".to_owned()] };
        bed.client.change_labels(NAME, kind, number, &delta).await.unwrap();
    }
    let since = Listing::ChangedSince("2026-01-01T00:00:00Z".to_owned());
    for feed in bed.client.feeds() {
        for listing in [
            &since,
            &Listing::Assigned { bot: bot.clone() },
            &Listing::Assigned { bot: unknown.clone() },
        ] {
            bed.client.list(NAME, *feed, listing, 2, None).await.unwrap();
        }
    }
    bed.client.blockers(NAME, 1).await.unwrap();
    bed.client.identity().await.unwrap();
    bed.client.user("ann").await.unwrap();
    bed.client.repository(NAME).await.unwrap();
    bed.client.is_protected(NAME, "feature/login").await.unwrap();
    bed.client.is_assignable(NAME, &bot).await.unwrap();
    bed.client.labels(NAME).await.unwrap();
    bed.client.create_label(NAME, "done", "Done").await.unwrap();
    let requests = bed.fake.requests();
    assert!(requests.iter().all(|request| !request.route.is_empty()), "the fake knows each path");
    requests
}

#[tokio::test]
async fn each_request_says_who_asks_and_what_it_expects() {
    for forge in super::BOTH {
        for request in all_requests(forge).await {
            let agent = concat!("agent-coordinator/", env!("CARGO_PKG_VERSION"));
            assert_eq!(request.header("user-agent"), Some(agent));
            let type_of_body = request.header("content-type");
            assert_eq!(type_of_body, request.body.is_some().then_some("application/json"));
            if forge == ForgeKind::GitHub {
                assert_eq!(request.header("accept"), Some("application/vnd.github+json"));
                assert_eq!(request.header("x-github-api-version"), Some("2022-11-28"));
            }
        }
    }
}

/// An endpoint of GitLab by its documentation: those of our parameters that it knows, and those
/// that it requires.
struct Endpoint {
    method: &'static str,
    path: &'static str,
    query: &'static [&'static str],
    body: &'static [&'static str],
    required: &'static [&'static str],
}

const fn get(path: &'static str, query: &'static [&'static str]) -> Endpoint {
    Endpoint { method: "GET", path, query, body: &[], required: &[] }
}

const fn write(
    method: &'static str,
    path: &'static str,
    body: &'static [&'static str],
    required: &'static [&'static str],
) -> Endpoint {
    Endpoint { method, path, query: &[], body, required }
}

const PAGED: &[&str] = &["page", "per_page"];
const NOTES: &[&str] = &["sort", "order_by", "activity_filter", "page", "per_page"];
const ITEMS: &[&str] = &[
    "scope",
    "state",
    "assignee_id",
    "assignee_username[]",
    "updated_after",
    "order_by",
    "sort",
    "page",
    "per_page",
    "labels",
];
const UPDATE: &[&str] = &["add_labels", "remove_labels"];

/// The endpoints of docs.gitlab.com/api: users, personal access tokens, projects, members, labels,
/// issues, merge requests, notes.
const GITLAB: &[Endpoint] = &[
    get("/user", &[]),
    get("/users", &["username", "page", "per_page"]),
    get("/personal_access_tokens/self", &[]),
    get("/projects/{id}", &["license", "statistics", "with_custom_attributes"]),
    get("/projects/{id}/members/all/{user_id}", &[]),
    get("/projects/{id}/labels", PAGED),
    write(
        "POST",
        "/projects/{id}/labels",
        &["name", "color", "description", "priority"],
        &["name", "color"],
    ),
    get("/projects/{id}/issues", ITEMS),
    get("/projects/{id}/issues/{issue_iid}", &[]),
    write("PUT", "/projects/{id}/issues/{issue_iid}", UPDATE, &[]),
    get("/projects/{id}/issues/{issue_iid}/notes", NOTES),
    write(
        "POST",
        "/projects/{id}/issues/{issue_iid}/notes",
        &["body", "internal", "created_at"],
        &["body"],
    ),
    write("DELETE", "/projects/{id}/issues/{issue_iid}/notes/{note_id}", &[], &[]),
    get("/projects/{id}/issues/{issue_iid}/links", &[]),
    get("/projects/{id}/repository/branches/{branch}", &[]),
    get("/projects/{id}/merge_requests", ITEMS),
    get("/projects/{id}/merge_requests/{merge_request_iid}", &["render_html"]),
    write("PUT", "/projects/{id}/merge_requests/{merge_request_iid}", UPDATE, &[]),
    get("/projects/{id}/merge_requests/{merge_request_iid}/notes", NOTES),
    write(
        "POST",
        "/projects/{id}/merge_requests/{merge_request_iid}/notes",
        &["body", "internal"],
        &["body"],
    ),
    write("DELETE", "/projects/{id}/merge_requests/{merge_request_iid}/notes/{note_id}", &[], &[]),
];

/// The allowed values of these parameters.
const WORDS: &[(&str, &[&str])] = &[
    ("scope", &["all"]),
    ("state", &["opened", "closed", "merged", "all"]),
    ("order_by", &["created_at", "updated_at"]),
    ("sort", &["asc", "desc"]),
];

#[tokio::test]
async fn each_request_is_one_that_gitlab_documents() {
    let requests = all_requests(ForgeKind::GitLab).await;
    for request in &requests {
        let path = request.path.strip_prefix("/gitlab/api/v4").unwrap();
        let is_it = |endpoint: &&Endpoint| {
            endpoint.method == request.method && fake::parameters(endpoint.path, path).is_some()
        };
        let endpoint =
            GITLAB.iter().find(is_it).unwrap_or_else(|| panic!("{} {path}", request.method));
        for (name, value) in &request.query {
            assert!(endpoint.query.contains(&name.as_str()), "{} {path}: {name}", request.method);
            let words = WORDS.iter().find(|(other, _)| other == name);
            assert!(
                words.is_none_or(|(_, words)| words.contains(&value.as_str())),
                "{path}: {name}={value}"
            );
        }
        let body = request.body.as_ref().and_then(Value::as_object);
        let given: Vec<&str> = body.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        assert!(given.iter().all(|name| endpoint.body.contains(name)), "{path}: {given:?}");
        assert!(endpoint.required.iter().all(|name| given.contains(name)), "{path}: {given:?}");
    }
    for endpoint in GITLAB {
        let is_asked = requests.iter().any(|request| {
            request.method == endpoint.method
                && request.route.strip_prefix("/api/v4") == Some(endpoint.path)
        });
        assert!(is_asked, "{} {} is never asked", endpoint.method, endpoint.path);
    }
}

/// GitHub's description of its API.
struct Description(Value);

impl Description {
    /// Returns the operation of a request: the operation of the matching path with the fewest
    /// parameters.
    fn operation(&self, request: &Request) -> Option<(&Value, &Value)> {
        let paths = self.0["paths"].as_object().unwrap();
        let like_it = paths.iter().filter_map(|(template, item)| {
            fake::parameters(template, &request.path).map(|parameters| (parameters.len(), item))
        });
        let (_, path) = like_it.min_by_key(|(n_parameters, _)| *n_parameters)?;
        Some((path, path.get(request.method.to_lowercase())?))
    }

    /// Returns the value that a `$ref` refers to.
    fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value.get("$ref").and_then(Value::as_str) {
            Some(reference) => {
                self.resolved(self.0.pointer(reference.trim_start_matches('#')).unwrap())
            }
            None => value,
        }
    }

    /// Returns the mistake in a request.
    fn problem(&self, request: &Request) -> Option<String> {
        let Some((path, operation)) = self.operation(request) else {
            return Some("is no operation".to_owned());
        };
        let lists = [&path["parameters"], &operation["parameters"]];
        let documented: Vec<&Value> = lists
            .into_iter()
            .filter_map(Value::as_array)
            .flatten()
            .map(|one| self.resolved(one))
            .collect();
        for (name, value) in &request.query {
            let parameter =
                documented.iter().find(|one| one["in"] == "query" && one["name"] == **name);
            let Some(parameter) = parameter else {
                return Some(format!("has the unknown parameter {name}"));
            };
            let words = self.resolved(&parameter["schema"])["enum"].as_array();
            if words.is_some_and(|words| !words.contains(&value.as_str().into())) {
                return Some(format!("has the unknown {name}={value}"));
            }
        }
        let expected = &operation["requestBody"];
        let schema = &expected["content"]["application/json"]["schema"];
        match &request.body {
            None => (expected["required"] == true).then(|| "has no body".to_owned()),
            Some(body) => {
                (!self.fits(schema, body)).then(|| format!("has a body that isn't {schema}"))
            }
        }
    }

    /// Returns whether an object has the fields that a schema requires, and no unknown ones.
    fn fits(&self, schema: &Value, body: &Value) -> bool {
        let schema = self.resolved(schema);
        if let Some(any) =
            schema.get("oneOf").or_else(|| schema.get("anyOf")).and_then(Value::as_array)
        {
            return any.iter().any(|schema| self.fits(schema, body));
        }
        let (Some(properties), Some(body)) = (schema["properties"].as_object(), body.as_object())
        else {
            return false;
        };
        let required = schema["required"].as_array();
        required.into_iter().flatten().all(|name| body.contains_key(name.as_str().unwrap()))
            && body.keys().all(|name| properties.contains_key(name))
    }
}

#[tokio::test]
async fn each_request_is_one_that_github_documents() {
    let Some(folder) = std::env::var_os(VARIABLE) else {
        skip(&format!(
            "{VARIABLE} names no folder with GitHub's description (see tests/it/forge/documented.rs)"
        ));
        return;
    };
    let file = PathBuf::from(folder).join("generated/api.github.com.json");
    let Ok(text) = fs::read(&file) else {
        skip(&format!("{VARIABLE} names a folder without {}", file.display()));
        return;
    };
    let description = Description(serde_json::from_slice(&text).unwrap());
    let requests = all_requests(ForgeKind::GitHub).await;
    for request in &requests {
        assert_eq!(description.problem(request), None, "{request:?}");
    }
    // The check finds mistakes.
    let wrong = |is_it: &dyn Fn(&Request) -> bool, change: &dyn Fn(&mut Request)| {
        let mut request = requests.iter().find(|request| is_it(request)).unwrap().clone();
        change(&mut request);
        assert!(description.problem(&request).is_some(), "{request:?}");
    };
    wrong(&|request| request.query("sort").is_some(), &|request| {
        request.query[0].0 = "assigned".to_owned();
    });
    wrong(&|request| request.query("sort").is_some(), &|request| {
        request.query.push(("sort".into(), "up".into()));
    });
    wrong(&|request| request.body.is_some(), &|request| {
        request.body = Some(json!({ "text": "Hello." }));
    });
    wrong(&|request| request.route.ends_with("/labels"), &|request| {
        "PUSH".clone_into(&mut request.method);
    });
}
