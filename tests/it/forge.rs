//! The clients of GitHub and GitLab against a server that has both APIs.
#![allow(clippy::unwrap_used, reason = "a test")]

pub mod fake;

use agent_coordinator::domain::Secret;
use agent_coordinator::domain::forge::{ForgeKind, ForgeUser, ItemKind, LabelDelta};
use agent_coordinator::forge::github::GitHub;
use agent_coordinator::forge::gitlab::GitLab;
use agent_coordinator::forge::{Conditional, Feed, Forge, ForgeError, FoundItem, Listing, Page};

use self::fake::{Fake, Fault, Item, OWNER, Repository, TOKEN, Times};

const BOTH: [ForgeKind; 2] = [ForgeKind::GitHub, ForgeKind::GitLab];
const NAME: &str = "ann/site";

fn client(fake: &Fake, forge: ForgeKind) -> Box<dyn Forge> {
    let token = Secret::new(TOKEN);
    match forge {
        ForgeKind::GitHub => Box::new(GitHub::new(&fake.github_url(), token).unwrap()),
        ForgeKind::GitLab => Box::new(GitLab::new(&fake.gitlab_url(), token).unwrap()),
    }
}

#[tokio::test]
async fn an_item_is_found_labelled_and_commented() {
    for forge in BOTH {
        let fake = Fake::start();
        let client = client(&fake, forge);
        let issue = fake.repository(forge, NAME).issue("Login");
        issue.label("coding agent").assign(OWNER);
        let bot = client.user("Robot").await.unwrap().unwrap();
        let feed = client.feeds()[0];
        let page = client.list(NAME, feed, &Listing::Assigned { bot }, 1, None).await.unwrap();
        let Conditional::Fresh(page) = page else { panic!("{page:?}") };
        assert_eq!(page.items.len(), 1);
        let delta =
            LabelDelta { add: vec!["coding agent processing".to_owned()], remove: vec!["coding agent".to_owned()] };
        client.change_labels(NAME, issue.kind, issue.number, &delta).await.unwrap();
        assert_eq!(issue.labels(), ["coding agent processing"]);
        client.add_comment(NAME, issue.kind, issue.number, "Hello.").await.unwrap();
        assert_eq!(issue.comments(), ["Hello."]);
    }
}
