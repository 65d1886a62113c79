//! The addresses of submodules.
//!
//! The file `.gitmodules` comes with the commits, so agents can write any address there. Only those
//! on the host of the project's own repository are fetched.

use std::path::{Component, Path, PathBuf};

/// The place that a submodule is fetched from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubmoduleSource {
    /// A folder of this machine.
    Folder(PathBuf),
    /// An address of HTTP, without a name or a password.
    Url(String),
}

/// Returns the address of a submodule, as git resolves it. `of` is the address of the repository
/// that names it, or its path on this machine.
///
/// # Errors
/// A relative address leads out of everything.
pub fn resolve_address(address: &str, of: &str) -> Result<String, String> {
    if !(address.starts_with("./") || address.starts_with("../")) {
        return Ok(address.to_owned());
    }
    let mut base = of.trim_end_matches('/');
    let mut rest = address;
    loop {
        if let Some(after) = rest.strip_prefix("./") {
            rest = after;
        } else if let Some(after) = rest.strip_prefix("../") {
            let end = base.rfind(['/', ':']).filter(|end| !base[..*end].ends_with([':', '/']));
            base = end.map(|end| &base[..end]).ok_or_else(|| {
                format!("its address `{address}` leads out of `{of}`, of the repository around it")
            })?;
            rest = after;
        } else {
            return Ok(format!("{base}/{rest}"));
        }
    }
}

/// Returns the place that a submodule may be fetched from. `upstream` is the address of the
/// project's own repository; `None` if it has none. `is_local` is true if that repository is on this
/// machine.
///
/// # Errors
/// The address is not one of the host of the project.
pub fn check_address(
    address: &str,
    upstream: Option<&str>,
    is_local: bool,
) -> Result<SubmoduleSource, String> {
    let refused = |why: &str| Err(format!("its address `{}` is not used: {why}", shown(address)));
    if address.starts_with('-') || address.contains(char::is_control) {
        return refused("it is no address");
    }
    let path = address.strip_prefix("file://").unwrap_or(address);
    if path.starts_with('/') {
        if !is_local {
            return refused("the project's repository is not on this machine");
        }
        let path = Path::new(path);
        if path.components().any(|part| part == Component::ParentDir) {
            return refused("it has `..` in it");
        }
        return Ok(SubmoduleSource::Folder(path.to_owned()));
    }
    let Some((scheme, rest)) = address.split_once("://") else {
        return refused("only addresses of HTTPS are, and paths if the repository is local");
    };
    let of_upstream = upstream.and_then(host);
    let is_of_upstream = upstream.is_some_and(|upstream| upstream.starts_with("http://"));
    if !(scheme == "https" || (scheme == "http" && is_of_upstream)) {
        return refused("only addresses of HTTPS are, and paths if the repository is local");
    }
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let clean = format!("{scheme}://{authority}{path}");
    match of_upstream {
        Some(of_upstream) if host(&clean) == Some(of_upstream.clone()) => {
            Ok(SubmoduleSource::Url(clean))
        }
        Some(of_upstream) => refused(&format!("the project's own host is `{of_upstream}`")),
        None => refused("the project's repository has no host"),
    }
}

/// Returns the host of an address, with a port that is not the usual one of HTTPS.
fn host(address: &str) -> Option<String> {
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) => (scheme, rest),
        // The short form of SSH.
        None => ("ssh", address.split_once(':').filter(|(host, _)| !host.contains('/'))?.0),
    };
    let authority = rest.split('/').next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    // Only HTTP has ports that say something about the forge.
    let host = match scheme {
        "https" => host.strip_suffix(":443").unwrap_or(host),
        "http" => host,
        "ssh" => host.split(':').next()?,
        _ => return None,
    };
    Some(host.to_ascii_lowercase()).filter(|host| !host.is_empty())
}

/// Returns an address without a name and a password.
fn shown(address: &str) -> String {
    match address.split_once("://") {
        Some((scheme, rest)) => {
            let end = rest.find('/').unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            format!("{scheme}://{host}{path}")
        }
        None => address.to_owned(),
    }
}

/// Returns whether a submodule may have this name, which becomes a path.
pub fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 200
        && !name.contains('\\')
        && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
        && name.split('/').all(|part| !part.is_empty() && !part.eq_ignore_ascii_case(".git"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_addresses_begin_at_the_repository_around() {
        for (address, of, expected) in [
            ("../lib.git", "https://git.example/acme/shop.git", "https://git.example/acme/lib.git"),
            ("../../x/y", "https://git.example/acme/shop/", "https://git.example/x/y"),
            ("./lib", "/srv/git/shop.git", "/srv/git/shop.git/lib"),
            ("../lib", "/srv/git/shop.git", "/srv/git/lib"),
            ("../lib", "git@git.example:acme/shop", "git@git.example:acme/lib"),
            ("https://git.example/a", "/srv/git", "https://git.example/a"),
        ] {
            assert_eq!(resolve_address(address, of).as_deref(), Ok(expected));
        }
        for (address, of) in [("../../../x", "https://git.example/a"), ("../../x", "/a")] {
            resolve_address(address, of).unwrap_err();
        }
    }

    #[test]
    fn only_addresses_of_the_own_host_are_used() {
        let https = Some("https://git.example/acme/shop.git");
        let ssh = Some("git@git.example:acme/shop.git");
        let url = |url: &str| Ok(SubmoduleSource::Url(url.to_owned()));
        let lib = "https://git.example/acme/lib.git";
        for upstream in [https, ssh, Some("ssh://git@git.example:22/acme/shop")] {
            assert_eq!(check_address(lib, upstream, false), url(lib));
        }
        let named = "https://ann:secret@git.example/acme/lib.git";
        assert_eq!(check_address(named, https, false), url(lib));
        assert_eq!(
            check_address("file:///srv/lib", None, true),
            Ok(SubmoduleSource::Folder("/srv/lib".into()))
        );
        for (address, upstream, is_local) in [
            ("https://evil.example/lib", https, true),
            ("https://git.example:8443/lib", https, false),
            ("https://git.example@evil.example/lib", https, false),
            ("http://git.example/lib", https, false),
            ("ssh://git.example/lib", https, false),
            ("git@git.example:lib", ssh, true),
            ("ext::sh -c evil", https, true),
            ("file:///srv/lib", https, false),
            ("/srv/../etc", https, true),
            ("--upload-pack=evil", https, true),
            ("https://git.example/lib", None, true),
            ("lib", https, true),
        ] {
            let refused = check_address(address, upstream, is_local).unwrap_err();
            assert!(refused.contains("is not used"), "{refused}");
        }
        let refused = check_address("https://a:b@evil.example/", https, false).unwrap_err();
        assert!(refused.contains("`https://evil.example/`"), "{refused}");
    }

    #[test]
    fn names_lead_to_no_other_folder() {
        assert!(["lib", "third-party/lib", "lib.git"].iter().all(|name| is_name(name)));
        for name in ["", "..", "a/../b", "/a", "a//b", ".git", "a/.GIT/b", "a\\b", "./a"] {
            assert!(!is_name(name), "{name}");
        }
    }
}
