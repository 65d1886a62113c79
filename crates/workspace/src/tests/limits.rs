//! The limits that are settings (`workspace.limits`).

use super::*;
use domain::workspace::{CleanOrder, PublishOrder};

/// Returns the workspaces of the bed for a daemon that was started again with these limits.
fn limited(bed: &Bed, limits: GitLimits) -> Checkouts {
    let settings = HostSettings::new(bed.folder.path().join("workspaces"));
    Checkouts::with_settings(HostSettings { limits, ..settings })
}

#[test]
fn a_step_beyond_a_limit_waits_for_a_person_and_one_that_was_ended_is_repeated() {
    let command = "add".to_owned();
    let limit = std::time::Duration::from_mins(2);
    for (error, needs_person) in [
        (GitError::TooSlow { command: command.clone(), limit }, true),
        (GitError::TooMuch { command: command.clone() }, true),
        (GitError::TooLarge { command: command.clone(), n_mib: 256 }, true),
        (GitError::TimedOut { command: command.clone(), limit }, false),
        (GitError::Killed { command }, false),
    ] {
        let error = CheckoutError::from(error);
        assert_eq!(error.needs_person(), needs_person, "{error}");
        let inside = CheckoutError::Submodule { name: "lib".to_owned(), source: Box::new(error) };
        assert_eq!(inside.needs_person(), needs_person, "{inside:?}");
    }
}

#[test]
fn a_publication_beyond_a_limit_is_given_up_and_so_is_each_fresh_clone_that_is_refused() {
    let checkouts = Checkouts::new("/nowhere".into());
    let publication = Job::Publish(PublishOrder {
        id: "one".parse().unwrap(),
        project: "shop".parse().unwrap(),
        source: "/source".into(),
        branch: "agents/one".to_owned(),
        commit: "1234".to_owned(),
        last: None,
    });
    let order = CleanOrder {
        id: "one".parse().unwrap(),
        project: "shop".parse().unwrap(),
        commit: Some("1234".to_owned()),
        base_commit: None,
        agent: "dev".parse().unwrap(),
        protected: Vec::new(),
    };
    let clone = Job::PrepareClean { order: Box::new(order), max_disk: 1 };
    let beyond = || CheckoutError::from(GitError::TooMuch { command: "diff-tree".to_owned() });
    let refused = || CheckoutError::Refused("no name is free".to_owned());
    for (job, error, is_given_up) in [
        (&publication, beyond(), true),
        (&publication, refused(), false),
        (&clone, beyond(), true),
        (&clone, refused(), true),
    ] {
        assert_eq!(checkouts.give_up(job, &error), is_given_up, "{job:?}: {error}");
        let noted = lock(&checkouts.given_up).remove(job.workspace());
        assert_eq!(noted, is_given_up.then(|| job.clone()));
    }
}

#[tokio::test]
async fn what_a_clone_has_beyond_the_limits_stays_there_and_is_named() {
    let mut bed = Bed::new();
    let (one, tree) = bed.prepare("one").await;
    for name in ["a.txt", "b.txt", "c.txt"] {
        bed.commit(&tree, name, name);
    }
    std::fs::write(tree.join("open.txt"), "open\n").unwrap();
    let all = GitLimits::default();
    for (limits, said) in [
        (GitLimits { objects: 8, ..all }, "more than 8 objects (`workspace.limits.objects`)"),
        (GitLimits { files: 4, ..all }, "more than 4 files and folders (`workspace.limits.files`)"),
    ] {
        bed.checkouts = limited(&bed, limits);
        let kept = bed.keep("one", &one).await;
        let named = kept.left_out.join("\n");
        assert!(named.contains(said), "{named}");
        assert_eq!((kept.head_commit, kept.proof), (one.base_commit.clone(), None));
        assert!(kept.n_uncommitted > 0, "its files are kept");
    }
    bed.checkouts = limited(&bed, all);
    let kept = bed.keep("one", &one).await;
    assert_eq!(kept.left_out, [""; 0]);
    assert_eq!(kept.head_commit, Some(bed.git(&tree, &["rev-parse", "HEAD"])));
}
