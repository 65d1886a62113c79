//! Lists, labels and comments that the clients read and write.

use domain::forge::marker::harmless;
use domain::forge::{ForgeKind, ItemKind, LabelDelta};
use forge::{Conditional, Feed, ForgeError, Listing, MAX_COMMENTS};

use super::fake::{Item, OWNER};
use super::{BOTH, Bed, NAME, fresh};

#[tokio::test]
async fn a_list_has_all_its_pages_in_order() {
    for forge in BOTH {
        let bed = Bed::new(forge);
        for n in 0..250 {
            bed.repository.issue(&format!("n {n}")).assign(OWNER);
        }
        let others = [
            bed.repository.issue("nobody's"),
            bed.repository.issue("Ann's"),
            bed.repository.issue("closed"),
        ];
        others[1].assign("ann");
        others[2].assign(OWNER).close();
        let (items, n_pages) = bed.all(bed.client.feeds()[0], &bed.assigned()).await;
        assert_eq!((items.len(), n_pages), (250, 3), "{forge}");
        assert!(items.iter().map(|item| item.number).is_sorted());
        assert_eq!(bed.fake.n_requests("*"), 3);
    }
}

#[tokio::test]
async fn what_changed_is_listed_whatever_became_of_it() {
    for forge in BOTH {
        let bed = Bed::new(forge);
        let [old, closed, unassigned] =
            ["old", "closed", "unassigned"].map(|title| bed.repository.issue(title));
        let since = bed.facts(&unassigned).await.updated_at;
        closed.assign(OWNER);
        unassigned.assign(OWNER).unassign(OWNER);
        closed.close();
        let (items, _) = bed.all(bed.client.feeds()[0], &Listing::ChangedSince(since)).await;
        let found: Vec<_> = items.iter().map(|item| (item.title.as_str(), item.is_open)).collect();
        assert_eq!(found, [("unassigned", true), ("closed", false)], "{forge}");
        assert!(old.is_open());
    }
}

#[tokio::test]
async fn pulls_are_found_beside_issues() {
    for forge in BOTH {
        let bed = Bed::new(forge);
        let [issue, pull] = [bed.repository.issue("issue"), bed.repository.pull("pull")];
        issue.assign(OWNER);
        pull.assign(OWNER).label("coding agent");
        let mut found = Vec::new();
        for feed in bed.client.feeds() {
            found.extend(bed.all(*feed, &bed.assigned()).await.0);
        }
        let pulls =
            if forge == ForgeKind::GitHub { ItemKind::PullRequest } else { ItemKind::MergeRequest };
        assert_eq!(
            found.iter().map(|item| item.kind).collect::<Vec<_>>(),
            [ItemKind::Issue, pulls]
        );
        assert_eq!(bed.facts(&pull).await, found[1]);
        pull.merge();
        assert!(!bed.facts(&pull).await.is_open);
        issue.close();
        assert!(!bed.facts(&issue).await.is_open);
        issue.reopen();
        assert!(bed.facts(&issue).await.is_open);
    }
}

#[tokio::test]
async fn a_merge_request_is_open_while_it_is_being_merged() {
    let bed = Bed::new(ForgeKind::GitLab);
    let pull = bed.repository.pull("pull");
    pull.say("state", "locked".into());
    assert!(bed.facts(&pull).await.is_open);
}

#[tokio::test]
async fn the_bot_is_found_by_its_login_where_its_number_is_unknown() {
    for forge in BOTH {
        let bed = Bed::new(forge);
        bed.repository.issue("issue").assign(OWNER);
        let by_number = bed.assigned();
        bed.fake.rename_user(OWNER, "Robot-2");
        let login = |login: &str| Listing::Assigned {
            bot: domain::forge::ForgeUser { id: None, login: login.to_owned() },
        };
        let feed = bed.client.feeds()[0];
        assert_eq!(bed.all(feed, &login("robot-2")).await.0.len(), 1, "{forge}");
        assert_eq!(bed.all(feed, &login(OWNER)).await.0.len(), 0, "{forge}");
        // GitHub has no list by number.
        let n_by_number = bed.all(feed, &by_number).await.0.len();
        assert_eq!(n_by_number, usize::from(forge == ForgeKind::GitLab));
    }
}

#[tokio::test]
async fn what_did_not_change_is_not_sent_again() {
    for forge in BOTH {
        let bed = Bed::new(forge);
        let issue = bed.repository.issue("issue");
        issue.assign(OWNER);
        let list = bed.assigned();
        let page = fresh(bed.page(&list, 1, None).await.unwrap());
        let again = bed.page(&list, 1, page.etag.as_deref()).await.unwrap();
        assert_eq!(again, Conditional::NotModified, "{forge}");
        issue.set_body("more");
        let changed = fresh(bed.page(&list, 1, page.etag.as_deref()).await.unwrap());
        assert_eq!(changed.items[0].body, "more");
    }
}

async fn change(bed: &Bed, item: &Item, add: &[&str], remove: &[&str]) -> Result<(), ForgeError> {
    let owned = |labels: &[&str]| labels.iter().map(|&label| label.to_owned()).collect();
    let delta = LabelDelta { add: owned(add), remove: owned(remove) };
    bed.client.change_labels(NAME, item.kind, item.number, &delta).await
}

#[tokio::test]
async fn labels_of_all_kinds_come_and_go_alone() {
    let fifty = "🤖".repeat(50);
    let labels = [
        "coding agent",
        "🤖 agent",
        "a/b",
        "ü ?&#+%2F;\\",
        "k8s::stage",
        "../x",
        "%2e%2e",
        fifty.as_str(),
    ];
    for forge in BOTH {
        let bed = Bed::new(forge);
        for item in [bed.repository.issue("issue"), bed.repository.pull("pull")] {
            item.label("bug");
            change(&bed, &item, &labels, &[]).await.unwrap();
            assert_eq!(item.labels().len(), labels.len() + 1);
            assert_eq!(bed.facts(&item).await.labels, item.labels());
            for label in labels {
                change(&bed, &item, &[], &[label]).await.unwrap();
                assert!(!item.labels().contains(&label.to_owned()), "{forge} {label}");
            }
            assert_eq!(item.labels(), ["bug"], "{forge}");
            change(&bed, &item, &[], &["was never there"]).await.unwrap();
            item.unlabel("bug");
            change(&bed, &item, &[], &[]).await.unwrap();
        }
        assert!(bed.fake.requests().iter().all(|request| !request.route.is_empty()));
    }
}

#[tokio::test]
async fn a_label_that_would_name_all_labels_is_refused() {
    let bed = Bed::new(ForgeKind::GitHub);
    let issue = bed.repository.issue("issue");
    issue.label("bug");
    for label in ["..", ".", ""] {
        let refused = change(&bed, &issue, &["done"], &[label]).await;
        assert!(matches!(refused, Err(ForgeError::Refused { .. })), "{refused:?}");
    }
    assert_eq!((issue.labels(), bed.fake.n_requests("*")), (vec!["bug".to_owned()], 0));
}

#[tokio::test]
async fn a_label_that_a_forge_does_not_take_is_refused() {
    for (forge, label) in
        [(ForgeKind::GitHub, "x".repeat(51)), (ForgeKind::GitLab, "a,b".to_owned())]
    {
        let bed = Bed::new(forge);
        let issue = bed.repository.issue("issue");
        let refused = change(&bed, &issue, &[&label], &[]).await.unwrap_err();
        assert!(matches!(refused, ForgeError::Refused { .. }), "{refused}");
        assert_eq!(issue.labels(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn comments_are_read_in_order_without_the_forges_own() {
    for forge in BOTH {
        let bed = Bed::new(forge);
        let issue = bed.repository.issue("issue");
        for n in 0..120 {
            issue.comment("ann", &format!("n {n}"));
        }
        change(&bed, &issue, &["done"], &[]).await.unwrap();
        let id = bed.client.add_comment(NAME, issue.kind, issue.number, "ours").await.unwrap();
        let comments = bed.client.comments(NAME, issue.kind, issue.number).await.unwrap();
        assert_eq!(comments.len(), 121, "{forge}");
        assert!(comments.iter().map(|comment| comment.id).is_sorted());
        assert_eq!(
            (comments[0].body.as_str(), comments[120].body.as_str(), comments[120].id),
            ("n 0", "ours", id)
        );
        assert_eq!(comments[120].author.as_ref().map(|author| author.login.as_str()), Some(OWNER));
        for _ in 0..2 {
            bed.client.remove_comment(NAME, issue.kind, issue.number, id).await.unwrap();
        }
        assert_eq!(issue.comments().len(), 120);
        assert_eq!(bed.facts(&issue).await.labels, ["done"]);
    }
}

#[tokio::test]
async fn of_very_many_comments_the_newest_are_read() {
    for forge in BOTH {
        let bed = Bed::new(forge);
        let issue = bed.repository.issue("issue");
        let n_comments = MAX_COMMENTS + 150;
        for n in 1..=n_comments {
            issue.comment("ann", &n.to_string());
        }
        let comments = bed.client.comments(NAME, issue.kind, issue.number).await.unwrap();
        assert!(
            (MAX_COMMENTS - 100..=MAX_COMMENTS).contains(&comments.len()),
            "{}",
            comments.len()
        );
        assert_eq!(comments.last().unwrap().body, n_comments.to_string());
        assert!(comments.iter().map(|comment| comment.id).is_sorted());
    }
}

#[tokio::test]
async fn long_texts_are_read_and_written_whole() {
    let long = "ü🤖x\n".repeat(150_000);
    for forge in BOTH {
        let bed = Bed::new(forge);
        let issue = bed.repository.issue("issue");
        issue.set_body(&long);
        assert_eq!(bed.facts(&issue).await.body.len(), long.len());
        bed.client.add_comment(NAME, issue.kind, issue.number, &long).await.unwrap();
        assert!(issue.comments() == [long.as_str()], "not what was written");
    }
}

#[tokio::test]
async fn an_answer_that_would_only_fill_our_memory_is_not_read() {
    let bed = Bed::new(ForgeKind::GitHub);
    let issue = bed.repository.issue("issue");
    issue.say("title", "x".repeat(17 << 20).into());
    assert!(matches!(bed.find(&issue).await, Err(ForgeError::NotUnderstood { .. })));
}

#[tokio::test]
async fn a_locked_conversation_is_forbidden_and_its_labels_are_not() {
    for forge in BOTH {
        let bed = Bed::new(forge);
        let issue = bed.repository.issue("issue");
        assert!(!bed.facts(&issue).await.is_locked);
        issue.lock();
        assert!(bed.facts(&issue).await.is_locked);
        let refused = bed.client.add_comment(NAME, issue.kind, issue.number, "Hello.").await;
        assert!(matches!(refused, Err(ForgeError::Forbidden { .. })), "{refused:?}");
        change(&bed, &issue, &["done"], &[]).await.unwrap();
        assert_eq!(issue.labels(), ["done"]);
    }
}

#[tokio::test]
async fn what_an_agent_says_commands_nothing_at_gitlab() {
    let bed = Bed::new(ForgeKind::GitLab);
    let issue = bed.repository.issue("issue");
    issue.assign(OWNER);
    let said = "Done.\n/close\n/unassign";
    bed.client.add_comment(NAME, issue.kind, issue.number, &harmless(said)).await.unwrap();
    assert!(issue.is_open() && issue.assignees() == [OWNER]);
    bed.client.add_comment(NAME, issue.kind, issue.number, said).await.unwrap();
    assert!(!issue.is_open() && issue.assignees().is_empty(), "it would have");
}

#[tokio::test]
async fn merge_requests_and_issues_of_one_number_are_two() {
    let bed = Bed::new(ForgeKind::GitLab);
    let [issue, pull] = [bed.repository.issue("issue"), bed.repository.pull("pull")];
    assert_eq!(issue.number, pull.number);
    change(&bed, &pull, &["done"], &[]).await.unwrap();
    assert_eq!((issue.labels().len(), pull.labels().len()), (0, 1));
    assert_eq!(
        bed.all(Feed::Issues, &Listing::ChangedSince("2026-01-01T00:00:00Z".to_owned()))
            .await
            .0
            .len(),
        1
    );
}

#[tokio::test]
async fn an_issue_that_blocks_another_counts_whatever_the_forge_shows_of_it() {
    for forge in BOTH {
        let bed = Bed::new(forge);
        let [blocked, other, closed] =
            ["blocked", "other", "closed"].map(|title| bed.repository.issue(title));
        blocked.link("is_blocked_by", &other).link("is_blocked_by", &closed);
        closed.close();
        for field in ["html_url", "web_url", "assignees", "labels", "updated_at"] {
            other.omit(field);
        }
        let blockers = bed.client.blockers(NAME, blocked.number).await.unwrap();
        assert_eq!(blockers, [""], "{forge}: it has no link");
    }
}
