//! The files that a browser needs beside the pages. They are embedded and named by their content,
//! so that a browser fetches each once and never uses an outdated one.

use std::borrow::Cow;
use std::sync::LazyLock;

use axum::Router;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use sha2::{Digest as _, Sha256};

use crate::{Problem, RestState};

struct Asset {
    name: &'static str,
    kind: &'static str,
    content: &'static str,
    /// The lines that are comments are not sent.
    has_comments: bool,
}

const CSS: Asset = Asset {
    name: "app.css",
    kind: "text/css; charset=utf-8",
    content: concat!(
        include_str!("assets/tokens.css"),
        include_str!("assets/components.css"),
        include_str!("assets/app.css"),
    ),
    has_comments: false,
};
const APP: Asset = script(
    "app.js",
    concat!(
        include_str!("assets/app.js"),
        include_str!("assets/forms.js"),
        include_str!("assets/board.js"),
        include_str!("assets/panel.js"),
        include_str!("assets/chat.js"),
        include_str!("assets/palette.js"),
        include_str!("assets/launches.js"),
        include_str!("assets/begin.js"),
    ),
);
/// For pages with the output of a launch, after the script of all pages.
const LAUNCH: Asset = script(
    "launch.js",
    concat!(include_str!("assets/transcript.js"), include_str!("assets/output.js")),
);
/// For all pages, also that of the login.
const THEME: Asset =
    script("theme.js", concat!(include_str!("assets/theme.js"), include_str!("assets/once.js")));
const HTMX: Asset =
    Asset { has_comments: false, ..script("htmx.js", include_str!("assets/htmx.min.js")) };
const ICON: Asset = Asset {
    name: "icon.svg",
    kind: "image/svg+xml",
    content: include_str!("assets/icon.svg"),
    has_comments: false,
};

/// The icon of a page while something needs its reader.
const ICON_WAITS: Asset =
    Asset { name: "icon-waits.svg", content: include_str!("assets/icon_waits.svg"), ..ICON };

const fn script(name: &'static str, content: &'static str) -> Asset {
    Asset { name, kind: "text/javascript; charset=utf-8", content, has_comments: true }
}

/// The path of each file.
#[derive(Debug)]
pub(super) struct Assets {
    pub(super) css: String,
    pub(super) app: String,
    pub(super) launch: String,
    pub(super) theme: String,
    pub(super) htmx: String,
    pub(super) icon: String,
    pub(super) icon_waits: String,
}

impl Assets {
    pub(super) fn get() -> &'static Self {
        static ASSETS: LazyLock<Assets> = LazyLock::new(|| Assets {
            css: CSS.path(),
            app: APP.path(),
            launch: LAUNCH.path(),
            theme: THEME.path(),
            htmx: HTMX.path(),
            icon: ICON.path(),
            icon_waits: ICON_WAITS.path(),
        });
        &ASSETS
    }
}

impl Asset {
    fn path(&self) -> String {
        format!("/assets/{}/{}", self.version(), self.name)
    }

    /// Returns what a browser gets.
    fn sent(&self) -> Cow<'static, str> {
        if self.has_comments {
            Cow::Owned(without_comments(self.content))
        } else {
            Cow::Borrowed(self.content)
        }
    }

    fn version(&self) -> String {
        let digest = Sha256::digest(self.sent().as_bytes());
        let (start, _) = digest.split_at(8);
        start.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
    }
}

/// Returns a script without the lines that are comments, and without indentation. No line of our
/// scripts begins inside a text.
fn without_comments(script: &str) -> String {
    let lines = script.lines().map(str::trim_start);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines.fold(String::new(), |sent, line| sent + line + "\n")
}

pub(super) fn routes() -> Router<RestState> {
    Router::new().route("/assets/{version}/{name}", get(asset)).route("/favicon.ico", get(icon))
}

async fn asset(Path((version, name)): Path<(String, String)>) -> Result<Response, Problem> {
    let asset = [CSS, APP, LAUNCH, THEME, HTMX, ICON, ICON_WAITS]
        .into_iter()
        .find(|asset| asset.name == name);
    let asset = asset.filter(|asset| asset.version() == version).ok_or_else(|| {
        let detail = format!("there is no `{name}` of this version; load the page again");
        Problem::new(StatusCode::NOT_FOUND, "no_such_asset", detail)
    })?;
    Ok(sent(&asset))
}

async fn icon() -> Response {
    sent(&ICON)
}

fn sent(asset: &Asset) -> Response {
    let headers = [
        (header::CONTENT_TYPE, asset.kind),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    (headers, asset.sent()).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The scripts of a page share their names, and a page with one name twice runs no script.
    #[test]
    fn no_name_is_declared_twice() {
        let words = ["async function ", "function ", "const ", "let "];
        let declared = |line: &'static str| {
            let rest = words.iter().find_map(|word| line.strip_prefix(word))?;
            rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()
        };
        let mut names = BTreeSet::new();
        for script in [APP, LAUNCH] {
            for name in script.content.lines().filter_map(declared) {
                assert!(name.is_empty() || names.insert(name), "`{name}` is declared twice");
            }
        }
    }

    #[test]
    fn no_text_of_a_script_goes_over_a_line_end() {
        for script in [APP, LAUNCH, THEME] {
            let quotes = |line: &str| line.matches('`').count();
            let open = script.content.lines().find(|line| quotes(line) % 2 == 1);
            assert_eq!(open, None, "{}: a line could be taken for a comment", script.name);
        }
    }

    #[test]
    fn a_script_is_sent_without_comments_and_indentation() {
        let script = "// why\nfirst(); // stays\n\n  // why\n  second(`//`);\n";
        assert_eq!(without_comments(script), "first(); // stays\nsecond(`//`);\n");
    }
}
