//! Finding and reading files with any content.

use super::*;

fn folder_with(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a file in a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
    folder
}

#[test]
fn the_first_file_found_counts() {
    let folder = folder_with(&[
        ("named.yaml", "max_concurrent: 11"),
        ("variable.yaml", "max_concurrent: 12"),
        ("here/coordinator_config.yaml", "max_concurrent: 13"),
        ("home/.config/agent-coordinator/coordinator_config.yaml", "max_concurrent: 14"),
        ("xdg/agent-coordinator/coordinator_config.yaml", "max_concurrent: 15"),
    ]);
    let at = |name: &str| folder.path().join(name).to_str().expect("a UTF-8 path").to_owned();
    let check = |path: Option<&str>,
                 here: &str,
                 variables: &[(&str, String)],
                 expected: usize,
                 source: &str| {
        let environment = Environment::new(
            at(here),
            variables.iter().map(|(name, value)| (*name, value.as_str())),
        );
        let loaded = load(path.map(Path::new), &environment).expect("a valid file");
        assert_eq!(loaded.config.general.max_concurrent, expected);
        assert_eq!(loaded.source, Some(PathBuf::from(at(source))));
    };
    let home = ("HOME", at("home"));
    let variable = (FILE_VARIABLE, at("variable.yaml"));
    let user = "home/.config/agent-coordinator/coordinator_config.yaml";
    check(Some("named.yaml"), ".", std::slice::from_ref(&variable), 11, "./named.yaml");
    check(None, "here", &[variable, home.clone()], 12, "variable.yaml");
    check(None, "here", std::slice::from_ref(&home), 13, "here/coordinator_config.yaml");
    check(None, "nowhere", std::slice::from_ref(&home), 14, user);
    check(
        None,
        "nowhere",
        &[home, ("XDG_CONFIG_HOME", at("xdg"))],
        15,
        "xdg/agent-coordinator/coordinator_config.yaml",
    );
}

#[test]
fn a_named_file_must_be_there() {
    let folder = folder_with(&[]);
    let environment = Environment::new(folder.path(), [(FILE_VARIABLE, "missing.yaml")]);
    let check = |path: Option<&str>, expected: &str| {
        let error = load(path.map(Path::new), &environment).expect_err("no such file");
        assert_eq!(error.to_string(), expected);
        assert!(std::error::Error::source(&error).is_some());
    };
    check(None, "could not read `missing.yaml`, which $AGENT_COORDINATOR_CONFIG names");
    check(Some("other.yaml"), "could not read `other.yaml`, which --config names");
    check(Some("."), "could not read `.`, which --config names");
}

#[test]
fn no_file_at_all_is_said() {
    let folder = folder_with(&[]);
    let home = folder.path().to_str().expect("a UTF-8 path");
    let loaded = load(None, &Environment::new(folder.path(), [("HOME", home)])).expect("defaults");
    // A machine that runs the daemon may have a system-wide file.
    assert!(loaded.source.is_none_or(|path| path.starts_with("/etc")));
}

#[test]
fn relative_paths_start_at_the_folder_of_the_file() {
    let folder = folder_with(&[("sub/c.yaml", "state_dir: ../state\nmanifest: m.yaml\n")]);
    let loaded = load(Some(Path::new("sub/c.yaml")), &Environment::new(folder.path(), []))
        .expect("a valid file");
    assert_eq!(loaded.config.paths.state_dir, folder.path().join("sub/../state"));
    assert_eq!(loaded.config.general.manifest, Some(folder.path().join("sub/m.yaml")));
}

#[test]
fn files_that_are_no_configuration_are_refused() {
    let folder = folder_with(&[]);
    let environment = Environment::new(folder.path(), []);
    let check = |bytes: &[u8], expected: &str| {
        std::fs::write(folder.path().join("c.yaml"), bytes).expect("a file");
        let report = load(Some(Path::new("c.yaml")), &environment)
            .expect_err("no configuration")
            .to_string();
        assert!(report.contains(expected), "{report}");
    };
    check(&vec![b'#'; 1024 * 1024 + 1], "c.yaml: larger than 1 MiB");
    check(b"# \xff\xfe", "c.yaml:1:3: not a text in UTF-8 from here on");
    check(
        "max_concurrent: 1"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect::<Vec<_>>()
            .as_slice(),
        "c.yaml:1:",
    );
    check(&vec![b'['; 1024 * 1024], "nested too deeply");
}

#[test]
fn hostile_files_are_refused_quickly() {
    let megabyte = |piece: &str| piece.repeat(1_000_000 / piece.len());
    let unknown_keys = (0..45_000).map(|i| format!("polling_{i}:\n")).collect::<Vec<_>>().concat();
    let files = [
        megabyte("a: 1\n"),
        megabyte("${"),
        megabyte("x: ${${}\n"),
        format!("agents: {{ a: {{ passkey: '{}' }} }}", megabyte("${A:")),
        format!("agents: {{ a: {{ passkey: '{}' }} }}\nx: 1", megabyte("${HOME}")),
        format!("k: {}", megabyte("é")),
        format!("? {}\n: 1", megabyte("k")),
        unknown_keys,
    ];
    let started = std::time::Instant::now();
    for text in files {
        assert!(report(&text).len() < 100_000);
    }
    // The limit is generous for an unoptimized build on a busy machine. The fault that this test
    // finds takes minutes.
    assert!(started.elapsed() < Duration::from_mins(1), "{:?}", started.elapsed());
}
