//! The files that `init` writes for a daemon that has no configuration yet.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::{Choice, Report};
use crate::app;
use crate::cli::error::CliError;
use ::config::{self, Environment, FILE_NAME, Loaded};
use domain::workspace::WorkspaceMode;
use domain::{AgentId, ProjectId, TaskId};
use machine::sys::regular_file;

const MANIFEST: &str = "manifest.yaml";
const CONFIGURATION: &str = "\
# The configuration of agent-coordinator. `agent-coordinator check` checks it.
# config/coordinator_config.yaml of the documentation has all settings.
# Projects, agents and tasks that exist from the start:
manifest: manifest.yaml
# The number of agents that may live at once:
max_concurrent: 3
";
/// The longest part of an id that comes from a name.
const LONGEST_SLUG: usize = 40;

/// Returns the project of the manifest that has this folder.
///
/// # Errors
/// The manifest has mistakes.
pub(super) fn listed(
    loaded: &Loaded,
    directory: &Path,
    environment: &Environment,
) -> Result<Option<ProjectId>, CliError> {
    let Some(manifest) = &loaded.config.general.manifest else {
        return Ok(None);
    };
    let manifest =
        config::manifest::load(manifest, environment).map_err(CliError::Configuration)?;
    let same = manifest.wanted.projects.iter().find(|each| {
        let path = &each.working_directory;
        path == directory || path.canonicalize().is_ok_and(|path| path == directory)
    });
    Ok(same.map(|project| project.id.clone()))
}

/// Writes the manifest and the configuration. The configuration comes last: until then a second run
/// begins anew.
///
/// # Errors
/// A file exists or cannot be written. It is named, and keeps its content.
pub(super) fn write(folder: &Path, choice: &Choice, report: &mut Report) -> Result<(), CliError> {
    std::fs::create_dir_all(folder)
        .map_err(|error| CliError::Failed(format!("{}: {error}", folder.display())))?;
    let slug = slug(&choice.name);
    let id = |prefix: &str, rest: &str| format!("{prefix}_{rest}");
    let project = id("prj", &slug);
    let agent = id("agt", &choice.ai_type);
    let task = id("tsk", &format!("{slug}-1"));
    let mut written = Written { folder, report };
    written.file(MANIFEST, &manifest(choice, [&project, &agent, &task]))?;
    written.file(FILE_NAME, &configuration(choice))?;
    report.is_changed = true;
    report.project_id = project.parse::<ProjectId>().ok();
    report.agent_id = agent.parse::<AgentId>().ok();
    report.task_id = choice.task.as_ref().and_then(|_| task.parse::<TaskId>().ok());
    report.next = match &choice.task {
        Some(_) => format!(
            "next: start the daemon with `agent-coordinator run`; it starts {agent}, and \
             `agent-coordinator task wait {task}` waits for its result"
        ),
        None => format!(
            "next: start the daemon with `agent-coordinator run`, and give {agent} work with \
             `agent-coordinator task add --project {project} --assignee {agent} \
             --status in_progress --title …`"
        ),
    };
    Ok(())
}

struct Written<'a> {
    folder: &'a Path,
    report: &'a mut Report,
}

impl Written<'_> {
    fn file(&mut self, name: &str, text: &str) -> Result<(), CliError> {
        let path: PathBuf = self.folder.join(name);
        let mut options = std::fs::OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(0o644).open(&path);
        let written = opened.and_then(|mut file| {
            let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
            // A part of a file would stand in the way of a second run.
            written.inspect_err(|_| drop(std::fs::remove_file(&path)))
        });
        match written {
            Ok(()) => self.report.files.push(path),
            // An earlier run was interrupted.
            Err(error)
                if error.kind() == std::io::ErrorKind::AlreadyExists
                    && regular_file::check_named(&path).is_ok()
                    && std::fs::read_to_string(&path).is_ok_and(|found| found == text) => {}
            Err(error) => {
                let advice = match error.kind() {
                    std::io::ErrorKind::AlreadyExists => {
                        "; it has other content: move it away first"
                    }
                    _ => "",
                };
                return Err(CliError::Failed(format!("{}: {error}{advice}", path.display())));
            }
        }
        Ok(())
    }
}

/// Returns the configuration, with the setting with which agents find their program, if it is
/// needed.
fn configuration(choice: &Choice) -> String {
    let mut text = CONFIGURATION.to_owned();
    if let Some(path) = &choice.path {
        text.push_str("# The program of these agents is in a folder that is not in the PATH:\n");
        text.push_str(&app::setting_of_path(&choice.ai_type, path));
        text.push('\n');
    }
    text
}

/// Returns the part of an id that comes from a name: lower-case letters, digits and `-`.
fn slug(name: &str) -> String {
    let allowed = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let text: String = name.to_lowercase().chars().map(allowed).collect();
    let words: Vec<&str> = text.split('-').filter(|word| !word.is_empty()).collect();
    let slug: String = words.join("-").chars().take(LONGEST_SLUG).collect();
    if slug.is_empty() { "project".to_owned() } else { slug }
}

/// Returns the text as YAML reads it. JSON's texts are texts of YAML as well.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns a path as the manifest reads it. A `$` would begin a variable.
fn quoted_path(path: &Path) -> String {
    quoted(&path.to_string_lossy().replace('$', "$$"))
}

fn manifest(choice: &Choice, [project, agent, task]: [&str; 3]) -> String {
    let mode = match choice.workspace {
        WorkspaceMode::Shared => "shared",
        WorkspaceMode::Clone => "clone",
    };
    let mut text = format!(
        "# The daemon reads this file at its start and when it changes. Reading it again \
         changes nothing.\n\
         agents:\n  {agent}:\n    name: {ai_type}\n    ai_type: {ai_type}\n\
         projects:\n  {project}:\n    name: {name}\n    working_directory: {directory}\n    \
         agents: [{agent}]\n    workspace: {mode}\n",
        ai_type = quoted(&choice.ai_type),
        name = quoted(&choice.name),
        directory = quoted_path(&choice.directory),
    );
    if let Some(title) = &choice.task {
        let _ = write!(
            text,
            "tasks:\n  {task}:\n    project: {project}\n    title: {}\n    assignee: {agent}\n    \
             status: in_progress\n",
            quoted(title)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_the_part_of_an_id() {
        assert_eq!(slug("My Shop"), "my-shop");
        assert_eq!(slug("..a..b.lock"), "a-b-lock");
        assert_eq!(slug("店"), "project");
        assert_eq!(slug(&"a".repeat(200)).len(), LONGEST_SLUG);
    }

    #[test]
    fn the_files_are_read_as_they_were_meant() {
        let folder = tempfile::tempdir().unwrap();
        let name = "a \"quoted\": #name\n${HOME} 店";
        let choice = Choice {
            directory: folder.path().join("with $space: #1"),
            name: name.to_owned(),
            ai_type: config::EXAMPLE.to_owned(),
            path: None,
            workspace: WorkspaceMode::Clone,
            task: Some("- [ ] $HOME".to_owned()),
        };
        let mut report = Report::of(choice.directory.clone(), Vec::new());
        write(folder.path(), &choice, &mut report).unwrap();
        let environment = Environment::new(folder.path(), []);
        let loaded = config::load(Some(&folder.path().join(FILE_NAME)), &environment).unwrap();
        let found = listed(&loaded, &choice.directory, &environment).unwrap();
        assert_eq!(found, report.project_id);
        let manifest = loaded.config.general.manifest.clone().unwrap();
        let manifest = config::manifest::load(&manifest, &environment).unwrap().wanted;
        assert_eq!(manifest.projects[0].name, name);
        assert_eq!(manifest.projects[0].workspace, Some(WorkspaceMode::Clone));
        assert_eq!(manifest.tasks[0].title, "- [ ] $HOME");
        // The files are there, and nothing is written over.
        let other = Choice { name: "other".to_owned(), ..choice };
        let error = write(folder.path(), &other, &mut report).unwrap_err();
        assert!(matches!(error, CliError::Failed(told) if told.contains("manifest.yaml")));
    }
}
