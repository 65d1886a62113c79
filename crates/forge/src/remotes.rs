//! The repositories of a host, as git reaches them: the address that the API names, with the token.

use reqwest::Url;

use super::Forge;
use super::host_state::{HostState, Unanswered};
use domain::forge::ForgeKind;
use domain::workspace::Remote;
use machine::locks::lock;

/// The reason why git cannot be used with a repository.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoRemote {
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// The forge names no address, or one that must not get the token.
    #[error("{0}")]
    Untrusted(String),
}

impl HostState {
    /// Returns a repository with the present token. The forge is asked for its address once.
    ///
    /// # Errors
    /// A forge without an answer, and an address at another host.
    pub(super) async fn remote(&self, forge: &Forge, repository: &str) -> Result<Remote, NoRemote> {
        let token = self.token()?;
        let user = match self.config.kind {
            ForgeKind::GitHub => "x-access-token",
            ForgeKind::GitLab => "oauth2",
        };
        let known = lock(&self.clone_urls).get(repository).cloned();
        let url = if let Some(url) = known {
            url
        } else {
            let ask = |name: String| async move { forge.repository(&name).await };
            let facts = self.ask_in(forge, repository, ask).await?;
            let url = facts.clone_url.ok_or_else(|| {
                NoRemote::Untrusted("the forge names no address to clone it from".to_owned())
            })?;
            let url = checked(&url, &self.config.account.base_url).map_err(NoRemote::Untrusted)?;
            lock(&self.clone_urls).insert(repository.to_owned(), url.clone());
            url
        };
        Ok(Remote { url, user, token })
    }

    /// Forgets the address of a repository, because it may have another one now.
    pub(super) fn forget_remote(&self, repository: &str) {
        lock(&self.clone_urls).remove(repository);
    }
}

/// Returns the address of a repository, if its host is that of the API. No other host gets the
/// token.
fn checked(clone_url: &str, base_url: &str) -> Result<String, String> {
    let parsed = Url::parse(clone_url).and_then(|url| Ok((url, Url::parse(base_url)?)));
    let Ok((url, base)) = parsed else {
        return Err(format!("`{clone_url}` is not an address that git clones from"));
    };
    let host = base.host_str().map(host_of_clones);
    let is_same =
        url.host_str() == host && url.port_or_known_default() == base.port_or_known_default();
    let has_scheme = url.scheme() == "https" || (url.scheme() == "http" && base.scheme() == "http");
    let has_user = !url.username().is_empty() || url.password().is_some();
    if is_same && has_scheme && !has_user {
        Ok(url.to_string())
    } else {
        Err(format!(
            "the forge names `{clone_url}` to clone from, and `base_url` is `{base_url}`: \
             the token is sent only to that host, over its scheme"
        ))
    }
}

/// Returns the host from which repositories are cloned whose API is at `host`. GitHub's own hosts
/// have the API beside it: `api.github.com`, `api.NAME.ghe.com`.
fn host_of_clones(host: &str) -> &str {
    match host.strip_prefix("api.") {
        Some(site) if site == "github.com" || site.ends_with(".ghe.com") => site,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_goes_only_to_the_host_of_the_api() {
        let is_good = |clone_url: &str, base_url: &str| checked(clone_url, base_url).is_ok();
        assert!(is_good("https://github.com/acme/shop.git", "https://api.github.com"));
        assert!(is_good("https://ghe.example/acme/shop.git", "https://ghe.example/api/v3"));
        assert!(is_good("https://ghe.example:443/a/b.git", "https://ghe.example/gitlab"));
        assert!(is_good("http://127.0.0.1:80/a/b.git", "http://127.0.0.1"));
        assert!(is_good("https://acme.ghe.com/acme/shop.git", "https://api.acme.ghe.com"));
        assert!(is_good("https://api.example/a/b.git", "https://api.example/v3"));
        for clone_url in ["https://api.acme.ghe.com/a/b.git", "https://other.ghe.com/a/b.git"] {
            assert!(!is_good(clone_url, "https://api.acme.ghe.com"), "{clone_url}");
        }
        assert!(!is_good("https://ghe.com/a/b.git", "https://api.ghe.com"));
        assert!(!is_good("https://example/a/b.git", "https://api.example"));
        for clone_url in [
            "https://api.github.com/acme/shop.git",
            "https://github.com.evil.example/acme/shop.git",
            "http://github.com/acme/shop.git",
            "https://github.com:8443/acme/shop.git",
            "https://ann:x@github.com/acme/shop.git",
            "ssh://git@github.com/acme/shop.git",
            "git@github.com:acme/shop.git",
            "file:///srv/shop.git",
        ] {
            assert!(!is_good(clone_url, "https://api.github.com"), "{clone_url}");
        }
    }
}
