//! Filters that were written for the program when it was one crate, such as
//! `agent_coordinator::coordinator=debug`, and the targets that their modules have now. This module
//! does not know levels. [`super::filter`] calls it.

/// The beginning of the target of each module of the one crate.
const ONE_CRATE: &str = "agent_coordinator::";

/// The modules directly below the one crate, in 0.1.0 or later, and their targets now.
const TARGETS: [(&str, &str); 32] = [
    ("app", "agent_coordinator::app"),
    ("cgroup", "agent_coordinator_machine::cgroup"),
    ("chat_log", "agent_coordinator_service::chat_log"),
    ("cli", "agent_coordinator::cli"),
    ("clock", "agent_coordinator_runtime::clock"),
    ("config", "agent_coordinator_config"),
    ("coordinator", "agent_coordinator_supervisor::coordinator"),
    ("crash_point", "agent_coordinator_machine::crash_point"),
    ("domain", "agent_coordinator_domain"),
    ("folder_watch", "agent_coordinator_runtime::folder_watch"),
    ("forge", "agent_coordinator_forge"),
    ("http", "agent_coordinator_runtime::http"),
    ("instance_dir", "agent_coordinator_machine::instance_dir"),
    ("locks", "agent_coordinator_machine::locks"),
    ("lru", "agent_coordinator_runtime::lru"),
    ("mcp", "agent_coordinator_mcp"),
    ("mcp_client", "agent_coordinator_client"),
    ("nudge", "agent_coordinator_runtime::nudge"),
    ("peer", "agent_coordinator_runtime::peer"),
    ("postgres_url", "agent_coordinator_postgres_url"),
    ("process", "agent_coordinator_supervisor::process"),
    ("provider", "agent_coordinator_supervisor::provider"),
    ("recent", "agent_coordinator_runtime::lru"),
    ("rest", "agent_coordinator_web"),
    ("rows", "agent_coordinator_store::rows"),
    ("service", "agent_coordinator_service"),
    ("shim", "agent_coordinator_shim"),
    ("store", "agent_coordinator_store"),
    ("sys", "agent_coordinator_machine::sys"),
    ("telemetry", "agent_coordinator_runtime::telemetry"),
    ("throttle", "agent_coordinator_runtime::throttle"),
    ("workspace", "agent_coordinator_workspace"),
];

/// Returns `filter` with the targets of now. Other targets stay.
pub(super) fn translated(filter: &str) -> String {
    // `EnvFilter` splits a filter at each comma, also between brackets.
    filter.split(',').map(translated_directive).collect::<Vec<_>>().join(",")
}

fn translated_directive(directive: &str) -> String {
    let parts = directive.split_once(ONE_CRATE).filter(|(space, _)| space.trim().is_empty());
    let Some((space, path)) = parts else { return directive.to_owned() };
    let is_end = |c: char| c != '_' && !c.is_ascii_alphanumeric();
    let (module, rest) = path.split_at(path.find(is_end).unwrap_or(path.len()));
    TARGETS
        .iter()
        .find(|(old, _)| *old == module)
        .map_or_else(|| directive.to_owned(), |(_, target)| format!("{space}{target}{rest}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_directive_of_a_module_names_its_crate() {
        for (old, now) in [
            (
                "agent_coordinator::coordinator=debug",
                "agent_coordinator_supervisor::coordinator=debug",
            ),
            ("agent_coordinator::store::writer=trace", "agent_coordinator_store::writer=trace"),
            ("agent_coordinator::rest", "agent_coordinator_web"),
            ("agent_coordinator::mcp_client=off", "agent_coordinator_client=off"),
            (
                "info, agent_coordinator::mcp[tool{name=x}]=debug,rmcp=warn",
                "info, agent_coordinator_mcp[tool{name=x}]=debug,rmcp=warn",
            ),
        ] {
            assert_eq!(translated(old), now);
        }
    }

    #[test]
    fn other_directives_stay() {
        for filter in [
            "",
            "debug",
            "info,agent_coordinator=debug",
            "agent_coordinator::app::reload=debug",
            "agent_coordinator_store::rows=debug",
            "agent_coordinator::coordinators=debug",
            "[span{path=agent_coordinator::store}]=debug",
        ] {
            assert_eq!(translated(filter), filter);
        }
    }

    #[test]
    fn every_module_of_the_one_crate_has_a_target_that_exists() {
        // The `mod` lines of src/lib.rs in 0.1.0 and just before the crates were made.
        const MODULES: &str = "app cgroup chat_log cli clock config coordinator crash_point domain \
            folder_watch forge http instance_dir locks lru mcp mcp_client nudge peer postgres_url \
            process provider recent rest rows service shim store sys telemetry throttle workspace";
        let listed: Vec<&str> = TARGETS.iter().map(|(old, _)| *old).collect();
        assert_eq!(listed, MODULES.split_whitespace().collect::<Vec<_>>());

        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (_, target) in TARGETS {
            let (name, module) = target.split_once("::").unwrap_or((target, "lib"));
            let folder = match name.strip_prefix("agent_coordinator_") {
                Some(name) => format!("crates/{}", name.replace('_', "-")),
                None => ".".to_owned(),
            };
            let source = root.join(folder).join("src").join(module).with_extension("rs");
            assert!(source.is_file(), "{target}: no {}", source.display());
        }
    }
}
