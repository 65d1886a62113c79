//! The clients of GitHub and GitLab against a server that has both APIs.
#![allow(clippy::unwrap_used, reason = "a test")]

mod answers;
mod documented;
pub mod fake;
mod items;
mod places;

use std::time::Duration;

use config::{ForgeAccount, ForgeHost};
use domain::Secret;
use domain::forge::{ForgeKind, ForgeUser, ItemFacts, LabelNames};
use forge::{
    Conditional, ConnectError, Feed, Forge, ForgeError, FoundItem, Listing, Page, connect,
};

use self::fake::{Fake, Item, OWNER, Repository, TOKEN};

const BOTH: [ForgeKind; 2] = [ForgeKind::GitHub, ForgeKind::GitLab];
const NAME: &str = "ann/site";

/// A forge with a repository, and a client of it.
struct Bed {
    fake: Fake,
    repository: Repository,
    client: Forge,
}

impl Bed {
    fn new(forge: ForgeKind) -> Self {
        Self::with_timeout(forge, Duration::from_secs(20))
    }

    fn with_timeout(forge: ForgeKind, timeout: Duration) -> Self {
        let fake = Fake::start();
        let client = client(&fake.url(forge), forge).with_timeout(timeout);
        Self { repository: fake.repository(forge, NAME), fake, client }
    }

    fn assigned(&self) -> Listing {
        Listing::Assigned {
            bot: ForgeUser { id: Some(self.fake.user(OWNER)), login: OWNER.to_owned() },
        }
    }

    async fn page(
        &self,
        listing: &Listing,
        page: u32,
        etag: Option<&str>,
    ) -> Result<Conditional<Page>, ForgeError> {
        self.client.list(NAME, self.client.feeds()[0], listing, page, etag).await
    }

    /// Returns the items of all pages, and the number of pages.
    async fn all(&self, feed: Feed, listing: &Listing) -> (Vec<ItemFacts>, u32) {
        let mut items = Vec::new();
        for n in 1.. {
            let page = fresh(self.client.list(NAME, feed, listing, n, None).await.unwrap());
            items.extend(page.items);
            if !page.has_more {
                return (items, n);
            }
        }
        unreachable!("the numbers don't end")
    }

    async fn find(&self, item: &Item) -> Result<FoundItem, ForgeError> {
        self.client.item(NAME, item.kind, item.number).await
    }

    async fn facts(&self, item: &Item) -> ItemFacts {
        match self.find(item).await.unwrap() {
            FoundItem::Here(facts) => *facts,
            other => panic!("{other:?}"),
        }
    }
}

fn client(url: &str, forge: ForgeKind) -> Forge {
    try_client(url, forge, Duration::ZERO).unwrap()
}

/// Returns a client whose writes are this long apart.
fn try_client(url: &str, kind: ForgeKind, write_interval: Duration) -> Result<Forge, ConnectError> {
    let account = ForgeAccount {
        base_url: url.to_owned(),
        token: Secret::new(TOKEN),
        ..ForgeAccount::default()
    };
    let labels = LabelNames::default();
    let host = ForgeHost { kind, account, labels, repositories: Vec::new() };
    connect(&host, write_interval)
}

#[track_caller]
fn fresh<T: std::fmt::Debug>(answer: Conditional<T>) -> T {
    match answer {
        Conditional::Fresh(fresh) => fresh,
        Conditional::NotModified => panic!("not modified"),
    }
}
