//! The requests of `forge check`, hosts at other addresses, and the names of projects.

use std::time::Duration;

use domain::forge::{ForgeKind, ForgeUser, ItemKind};
use forge::ForgeError;

use super::fake::{Fault, OWNER, TOKEN, Times};
use super::{BOTH, Bed, NAME};

#[tokio::test]
async fn the_tokens_owner_and_its_scopes_are_told() {
    for forge in BOTH {
        let bed = Bed::new(forge);
        let identity = bed.client.identity().await.unwrap();
        assert_eq!(
            identity.user,
            ForgeUser { id: Some(bed.fake.user(OWNER)), login: OWNER.to_owned() }
        );
        let scopes: &[&str] =
            if forge == ForgeKind::GitHub { &["repo", "read:user"] } else { &["api"] };
        assert_eq!(identity.scopes.unwrap(), scopes);
        assert_eq!(bed.client.user("ROBOT").await.unwrap(), Some(identity.user));
        assert_eq!(bed.client.user("nobody").await.unwrap(), None);
        bed.fake.set_token("another");
        assert!(matches!(bed.client.identity().await, Err(ForgeError::Unauthorized { .. })));
    }
}

#[tokio::test]
async fn scopes_are_unknown_where_gitlab_does_not_tell_them() {
    let bed = Bed::new(ForgeKind::GitLab);
    bed.fake.fail("GET */personal_access_tokens/self", Times::Always, Fault::status(404));
    assert_eq!(bed.client.identity().await.unwrap().scopes, None);
}

#[tokio::test]
async fn a_repository_tells_what_may_be_done_there() {
    for forge in BOTH {
        let bed = Bed::new(forge);
        let facts = bed.client.repository("Ann/Site").await.unwrap();
        assert_eq!(
            (facts.full_name.as_str(), facts.is_archived, facts.may_triage),
            (NAME, false, Some(true))
        );
        bed.repository.forbid_triage();
        bed.repository.archive();
        let facts = bed.client.repository(NAME).await.unwrap();
        assert_eq!(
            (facts.is_archived, facts.has_issues, facts.may_triage),
            (true, true, Some(false))
        );
        let bob = ForgeUser { id: None, login: "bob".to_owned() };
        assert!(!bed.client.is_assignable(NAME, &bob).await.unwrap());
        bed.repository.add_member("bob");
        assert!(bed.client.is_assignable(NAME, &bob).await.unwrap());
        bed.repository.remove();
        assert!(matches!(bed.client.repository(NAME).await, Err(ForgeError::NotFound { .. })));
    }
}

#[tokio::test]
async fn labels_are_listed_and_made_once() {
    for forge in BOTH {
        let bed = Bed::new(forge);
        for n in 0..150 {
            bed.repository.create_label(&format!("label {n}"));
        }
        for _ in 0..2 {
            bed.client.create_label(NAME, "🤖 done", "The coding agent is done").await.unwrap();
        }
        let labels = bed.client.labels(NAME).await.unwrap();
        assert_eq!((labels.len(), labels.contains(&"🤖 done".to_owned())), (151, true));
        assert_eq!(labels, bed.repository.labels());
    }
}

#[tokio::test]
async fn a_project_is_named_by_its_path_or_its_number() {
    let bed = Bed::new(ForgeKind::GitLab);
    let deep = bed.fake.repository(ForgeKind::GitLab, "group/sub group/site");
    let number = deep.issue("issue").number;
    let by_number = deep.id().to_string();
    for project in ["group/sub group/site", by_number.as_str()] {
        bed.client.item(project, ItemKind::Issue, number).await.unwrap();
    }
    let paths: Vec<String> = bed.fake.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(
        paths,
        [
            "/gitlab/api/v4/projects/group%2Fsub%20group%2Fsite/issues/1".to_owned(),
            format!("/gitlab/api/v4/projects/{by_number}/issues/1")
        ]
    );
}

#[tokio::test]
async fn a_name_that_is_none_of_a_repository_is_refused_unasked() {
    let bed = Bed::new(ForgeKind::GitHub);
    for name in ["site", "a/b/c", "/", "a/..", "a/"] {
        let refused = bed.client.repository(name).await;
        assert!(matches!(refused, Err(ForgeError::Refused { .. })), "{name}");
    }
    assert_eq!(bed.fake.n_requests("*"), 0);
}

#[test]
fn the_site_for_people_is_told_apart_from_the_api() {
    let url = "https://github.com/";
    let error = super::try_client(url, ForgeKind::GitHub, Duration::ZERO).unwrap_err().to_string();
    assert!(error.contains("`https://api.github.com`"), "{error}");
}

#[tokio::test]
async fn an_own_github_is_asked_below_its_path() {
    let bed = Bed::new(ForgeKind::GitHub);
    let url = format!("{}/", bed.fake.enterprise_url());
    let own = super::client(&url, ForgeKind::GitHub);
    own.identity().await.unwrap();
    own.repository(NAME).await.unwrap();
    let requests = bed.fake.requests();
    assert_eq!(requests[1].path, "/api/v3/repos/ann/site");
    assert_eq!(requests[1].header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));
    bed.fake.forget_requests();
    assert_eq!(bed.fake.n_requests("*"), 0);
}
