//! Examples of issues for the tests of this module.

use domain::forge::{ForgeKind, ItemFacts, ItemKey, ItemKind};

/// Returns the key of issue 7.
pub(super) fn key() -> ItemKey {
    ItemKey {
        forge: ForgeKind::GitHub,
        host: "api.github.com".to_owned(),
        repository: "acme/shop".to_owned(),
        kind: ItemKind::Issue,
        number: 7,
    }
}

/// Returns an open issue without labels, as its forge reports it.
pub(super) fn issue(number: u64, updated_at: &str) -> ItemFacts {
    ItemFacts {
        kind: ItemKind::Issue,
        number,
        title: "Login".to_owned(),
        body: String::new(),
        url: format!("https://forge.example/acme/shop/issues/{number}"),
        author: None,
        labels: Vec::new(),
        assignees: Vec::new(),
        is_open: true,
        is_locked: false,
        n_blockers: 0,
        updated_at: updated_at.to_owned(),
    }
}
