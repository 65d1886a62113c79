//! Compares the package, the image and the compose files with the program and the tree. No
//! container engine runs here; `packaging/try` carries out what these tests only read.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use ::config::{self, Environment};
use serde_json::Value;

use crate::daemon::{Daemon, PROGRAM};
use crate::documents::targets;
use crate::units::setting;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

// ── The Debian package ──

/// Returns the files of the tree that a pattern of an asset names. Only the last part of it may
/// have a `*`.
fn matching(pattern: &str) -> Vec<String> {
    let (folder, name) = pattern.rsplit_once('/').unwrap_or(("", pattern));
    let Some((begin, end)) = name.split_once('*') else { return vec![pattern.to_owned()] };
    let entries = fs::read_dir(root().join(folder)).unwrap_or_else(|_| panic!("no {folder}"));
    let names = entries.map(|entry| entry.unwrap()).filter(|entry| entry.path().is_file());
    let names = names.map(|entry| entry.file_name().into_string().unwrap());
    let fits = |name: &String| name.starts_with(begin) && name.ends_with(end);
    names.filter(fits).map(|name| format!("{folder}/{name}")).collect()
}

/// Returns where each file of the tree is in the package, and the patterns of what is built.
fn packaged() -> (BTreeMap<String, PathBuf>, Vec<String>) {
    let manifest = text("Cargo.toml");
    let (_, assets) = manifest.split_once("\nassets = [\n").unwrap();
    let (assets, _) = assets.split_once("\n]\n").unwrap();
    let (mut places, mut built) = (BTreeMap::new(), Vec::new());
    for line in assets.lines() {
        let [source, place, mode]: [String; 3] =
            serde_json::from_str(line.trim().trim_end_matches(',')).unwrap();
        assert!(["644", "755"].contains(&mode.as_str()), "{line}");
        if source.starts_with("target/") {
            built.push(source);
            continue;
        }
        let found = matching(&source);
        assert!(!found.is_empty(), "no file is {source}");
        for file in found {
            assert!(root().join(&file).is_file(), "there is no {file}");
            let name = Path::new(&file).file_name().unwrap();
            let is_folder = place.ends_with('/');
            let to = if is_folder { Path::new(&place).join(name) } else { PathBuf::from(&place) };
            places.insert(file, to);
        }
    }
    (places, built)
}

/// Returns a path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut normal, part| {
        match part {
            Component::ParentDir => assert!(normal.pop(), "{}", path.display()),
            Component::CurDir => {}
            other => normal.push(other),
        }
        normal
    })
}

fn is_document(file: &str) -> bool {
    Path::new(file).extension() == Some("md".as_ref())
}

#[test]
fn links_between_documents_of_the_package_lead_to_files_of_the_package() {
    let (places, built) = packaged();
    let (mut missing, mut n_links) = (Vec::new(), 0);
    for (file, place) in places.iter().filter(|(file, _)| is_document(file)) {
        for target in targets(&text(file)) {
            let path = target.split('#').next().unwrap();
            // Links into the sources are for developers, who have the tree.
            if path.is_empty()
                || path.contains(':')
                || path.starts_with("src/")
                || path.starts_with("crates/")
            {
                continue;
            }
            n_links += 1;
            let to = normal(&place.parent().unwrap().join(path));
            if !places.values().any(|other| other.starts_with(&to)) {
                missing.push(format!("{file} links {target}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(n_links > 50, "only {n_links} links were found");
    // A script makes the rest before the package is built.
    let script = text("packaging/build-deb");
    let is_made = |part: &str| script.contains(part);
    assert!(is_made("cargo build --release") && is_made("generated=target/packaging"));
    let programs = ["agent-coordinator", "agent-coordinator-shim"];
    let generated = ["man/*", "bash", "zsh", "fish"];
    let expected = programs
        .map(|name| format!("target/release/{name}"))
        .into_iter()
        .chain(generated.map(|name| format!("target/packaging/{name}")));
    assert_eq!(built, expected.collect::<Vec<_>>());
    assert!(is_made("completions \"$shell\"") && is_made("man \"$generated/man\""));
}

#[test]
fn the_package_has_every_unit_and_its_script_makes_the_user() {
    let (places, _) = packaged();
    for (folder, installed) in
        [("systemd", "usr/lib/systemd/user"), ("systemd/system", "usr/lib/systemd/system")]
    {
        for unit in ["service", "socket"].map(|end| matching(&format!("{folder}/*.{end}"))).concat()
        {
            assert_eq!(places[&unit].parent().unwrap(), Path::new(installed), "{unit}");
        }
    }
    let script = text("packaging/debian/postinst");
    for (file, program) in
        [("sysusers", "systemd-sysusers"), ("tmpfiles", "systemd-tmpfiles --create")]
    {
        let place = &places[&format!("systemd/system/{file}.conf")];
        assert_eq!(place.parent().unwrap(), Path::new("usr/lib").join(format!("{file}.d")));
        let name = place.file_name().unwrap().to_str().unwrap();
        assert!(script.contains(&format!("{program} {name}\n")), "{script}");
    }
}

// ── The image ──

/// The instructions of a file in their order, with continued lines joined.
fn instructions(file: &str) -> Vec<(String, String)> {
    let text = text(file);
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    let lines = joined.lines().map(str::trim).filter(|line| !line.is_empty());
    let split = lines.map(|line| line.split_once(' ').unwrap_or((line, "")));
    split.map(|(name, rest)| (name.to_owned(), rest.trim().to_owned())).collect()
}

#[track_caller]
fn last<'a>(instructions: &'a [(String, String)], name: &str) -> &'a str {
    let found = instructions.iter().rfind(|(it, _)| it == name);
    &found.unwrap_or_else(|| panic!("there is no {name}")).1
}

fn words(json: &str) -> Vec<String> {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

const CONTAINERFILE: &str = "packaging/Containerfile";

#[test]
fn the_image_is_built_from_what_its_script_makes() {
    let instructions = instructions(CONTAINERFILE);
    let script = text("packaging/build-image");
    for (_, rest) in instructions.iter().filter(|(name, _)| name == "COPY" || name == "ADD") {
        let source = rest.split(' ').next().unwrap();
        assert!(script.contains(source), "packaging/build-image makes no {source}");
    }
    assert!(root().join("packaging/container/coordinator_config.yaml").is_file());
    // The package that tini and git come from is made by another script.
    assert!(text("packaging/base").contains("--include=ca-certificates,git,tini"));
    for script in ["build-image", "base", "build-deb", "try"] {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(root().join("packaging").join(script)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o111, 0o111, "packaging/{script} is not executable");
    }
}

#[test]
fn the_image_runs_the_program_as_an_ordinary_user_below_an_init() {
    let all = instructions(CONTAINERFILE);
    assert_eq!(last(&all, "USER"), "agent-coordinator");
    let entry = [words(last(&all, "ENTRYPOINT")), words(last(&all, "CMD"))].concat();
    assert_eq!(entry[..3], ["/usr/bin/tini", "--", "/usr/bin/agent-coordinator"]);
    let help = Command::new(PROGRAM).args(&entry[3..]).arg("--help").output().unwrap();
    assert!(help.status.success(), "{help:?}");
    // The home of the user is a volume, and the state of the daemon is below it.
    let home = all.iter().find_map(|(_, rest)| rest.strip_prefix("HOME=")).unwrap();
    assert!(words(last(&all, "VOLUME")).iter().any(|volume| volume == home), "{home}");
    let added = instructions("packaging/container/Containerfile.claude");
    assert_eq!(added.last().unwrap(), &("USER".to_owned(), "agent-coordinator".to_owned()));
}

/// Returns whether a text is a whole version, not a tag or a range.
fn is_version(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    parts.len() == 3 && parts.iter().all(|part| part.parse::<u32>().is_ok())
}

#[test]
fn each_package_of_npm_has_a_version_and_runs_no_script_as_root() {
    let folders = ["packaging", "packaging/container", "packaging/debian"];
    let mut n_packages = 0;
    for file in folders.map(|folder| matching(&format!("{folder}/*"))).concat() {
        let all = instructions(&file);
        let lines: Vec<String> = all.iter().map(|(name, rest)| format!("{name} {rest}")).collect();
        let commands = lines.iter().flat_map(|line| line.split([';', '&', '|']));
        let commands = commands.map(|it| it.trim().trim_start_matches("RUN "));
        for command in commands.filter(|it| it.starts_with("npm ")) {
            let mut words = command.split_whitespace().skip(1);
            // Its short forms and `npx` would have to be looked for as well.
            let verb = words.next().unwrap();
            assert!(["install", "cache"].contains(&verb), "{file}: {command}");
            if verb != "install" {
                continue;
            }
            let (options, packages): (Vec<&str>, Vec<&str>) =
                words.partition(|word| word.starts_with('-'));
            assert!(options.contains(&"--ignore-scripts"), "{file}: {command}");
            for package in packages {
                n_packages += 1;
                let (name, version) = package.rsplit_once('@').unwrap_or((package, ""));
                assert!(!name.is_empty(), "{file}: {package} has no version");
                let argument = version.strip_prefix("${").and_then(|it| it.strip_suffix('}'));
                let version = argument.map_or(version, |argument| {
                    let value = all.iter().filter(|(name, _)| name == "ARG");
                    let value = value.filter_map(|(_, rest)| rest.split_once('='));
                    let mut value = value.filter(|(name, _)| *name == argument);
                    value.next().unwrap_or_else(|| panic!("{file}: no default of {argument}")).1
                });
                assert!(is_version(version), "{file}: {package} has version {version:?}");
                // It is the version that the presets were tested with.
                let short = name.rsplit('/').next().unwrap().trim_end_matches("-code");
                let tested = format!("{short} {version},");
                assert!(text("docs/providers.md").contains(&tested), "{file}: {tested}");
            }
        }
    }
    assert!(n_packages > 0, "no package of npm was found");
    for no_version in ["", "latest", "2", "2.1", "^2.1.0", "2.1.x"] {
        assert!(!is_version(no_version), "{no_version}");
    }
}

#[test]
fn the_health_check_tells_a_daemon_that_answers_from_one_that_is_away() {
    let all = instructions(CONTAINERFILE);
    let check = last(&all, "HEALTHCHECK").split_once("CMD ").unwrap().1;
    let check = words(check);
    assert_eq!(check[..2], ["/bin/sh", "-c"]);
    let mut daemon = Daemon::configured("");
    // The command finds the program by PATH, and the daemon by its configuration.
    let healthy = |daemon: &Daemon| {
        let folder = daemon.folder().join("bin");
        let _ = fs::create_dir(&folder);
        let _ = std::os::unix::fs::symlink(PROGRAM, folder.join("agent-coordinator"));
        let path = format!("{}:/usr/bin:/bin", folder.display());
        let mut command = Command::new(&check[0]);
        command.args(&check[1..]).env_clear().env("PATH", path);
        command.env("AGENT_COORDINATOR_CONFIG", daemon.config());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().unwrap().code()
    };
    // Engines know no other exit codes.
    assert_eq!(healthy(&daemon), Some(1));
    daemon.start();
    assert_eq!(healthy(&daemon), Some(0));
}

/// Returns what is wrong with a configuration of a container, if these variables are set.
fn fault(file: &str, variables: &[(&str, &str)]) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment::new(folder.path(), variables.iter().copied());
    let loaded = config::load(Some(&root().join(file)), &environment);
    loaded.err().map(|error| error.to_string())
}

#[test]
fn the_configurations_of_containers_are_valid_with_a_token_alone() {
    for file in ["packaging/container/coordinator_config.yaml", "packaging/container/postgres.yaml"]
    {
        let home = ("HOME", "/var/lib/agent-coordinator");
        let token = ("COORDINATOR_TOKEN", "a token");
        // The file with the password is in the container only.
        let known =
            fault(file, &[home, token]).filter(|fault| !fault.contains("postgres_password"));
        assert_eq!(known, None, "{file}");
        let fault = fault(file, &[home]).unwrap_or_else(|| panic!("{file} needs no token"));
        assert!(fault.contains("COORDINATOR_TOKEN") && fault.contains("openssl rand"), "{fault}");
    }
}

#[test]
fn no_file_of_the_packaging_contains_a_token() {
    let mut n_found = 0;
    let folders = ["packaging", "packaging/container", "packaging/debian", "systemd/system"];
    let files = folders.map(|folder| matching(&format!("{folder}/*"))).concat();
    for file in files {
        for line in text(&file).lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            let line = line.to_lowercase();
            let Some((name, value)) = line.split_once([':', '=']) else { continue };
            let is_secret = ["token", "password", "secret"].iter().any(|it| name.ends_with(it));
            if !is_secret || file == "packaging/try" {
                continue;
            }
            n_found += 1;
            let value = value.trim().trim_matches('"');
            // The name of a file of the person, or a part of a structure.
            let is_open = value.is_empty() || value.starts_with("${");
            assert!(is_open, "{file} contains a secret: {line}");
        }
    }
    assert!(n_found > 3, "only {n_found} settings of secrets were found");
}

// ── Compose ──

fn compose(file: &str) -> Value {
    serde_saphyr::from_str(&text(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns the named volumes, secrets or configs that services use.
fn used(compose: &Value, kind: &str) -> Vec<String> {
    let services = compose["services"].as_object().unwrap().values();
    let uses = services.flat_map(|service| service[kind].as_array().into_iter().flatten());
    let names = uses.map(|it| it.as_str().or(it["source"].as_str()).unwrap().to_owned());
    names.filter(|name| !name.starts_with('$')).collect()
}

#[test]
fn what_a_compose_file_uses_is_defined_and_fits_the_image() {
    let all = instructions(CONTAINERFILE);
    for file in ["packaging/compose.yaml", "packaging/compose.postgres.yaml"] {
        let compose = compose(file);
        for kind in ["volumes", "secrets", "configs"] {
            for name in used(&compose, kind) {
                let name = name.split(':').next().unwrap();
                assert!(compose[kind].get(name).is_some(), "{file}: {kind} has no {name}");
            }
        }
        for config in compose["configs"].as_object().into_iter().flat_map(|it| it.values()) {
            let named = config["file"].as_str().unwrap();
            assert!(root().join("packaging").join(named).is_file(), "{file}: no {named}");
        }
    }
    let daemon = &compose("packaging/compose.yaml")["services"]["daemon"];
    let volumes = daemon["volumes"].as_array().unwrap();
    let mounted = volumes.iter().map(|it| it.as_str().unwrap().rsplit_once(':').unwrap().1);
    assert_eq!(mounted.collect::<Vec<_>>(), words(last(&all, "VOLUME")));
    // Other machines reach it by a proxy only.
    let ports = &daemon["ports"];
    assert_eq!(ports, &serde_json::json!(["127.0.0.1:7420:7420"]));
    assert_eq!(last(&all, "EXPOSE"), "7420");
    // An engine is as patient as systemd.
    let patience = format!("{}s", setting("agent-coordinator.service", "TimeoutStopSec"));
    assert_eq!(daemon["stop_grace_period"], patience);
    // The second file changes the first one.
    let with_postgres = &compose("packaging/compose.postgres.yaml")["services"];
    let target = &with_postgres["daemon"]["configs"][0]["target"];
    assert_eq!(target, "/etc/agent-coordinator/coordinator_config.yaml");
    let secret = with_postgres["daemon"]["secrets"][0].as_str().unwrap();
    let named = format!("password_file: /run/secrets/{secret}\n");
    assert!(text("packaging/container/postgres.yaml").contains(&named));
    assert!(with_postgres.get("postgres").is_some());
}
