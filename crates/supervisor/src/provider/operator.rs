//! The command lines of the operator's own programs: checks and hooks. They run in the wrapper of
//! an agent's provider, as its user, and get no login and no way to the server.

use super::{CommandError, LaunchRequest, Providers, Values, become_of, text};
use config::{CommandLine, PassEnvironment, PromptVia, ProviderConfig};
use domain::check::CheckOrder;
use domain::{CommandSpec, Secret};

/// A program of the operator, which runs beside agents.
struct OperatorProgram<'a> {
    command: &'a [String],
    /// Its own variables.
    variables: Vec<(String, String)>,
    /// The part of the daemon's environment that it gets.
    passed: PassEnvironment,
}

impl Providers {
    /// Returns the command line of a check. It gets the variables that every agent gets.
    ///
    /// # Errors
    /// [`CommandError`], for example if the wrapper needs an address that the server does not have.
    pub fn check_command(
        &self,
        request: &LaunchRequest,
        check: &CheckOrder,
    ) -> Result<CommandSpec, CommandError> {
        let program = OperatorProgram {
            command: &check.command,
            variables: vec![("AGENT_LAUNCH_ID".to_owned(), request.launch.to_string())],
            passed: PassEnvironment::default(),
        };
        self.operator_command(request, &check.provider, program)
    }

    /// Returns the command line of a hook. It gets the variables that the provider passes on.
    ///
    /// # Errors
    /// [`CommandError`], for example if the wrapper needs an address that the server does not have.
    pub fn hook_command(
        &self,
        request: &LaunchRequest,
        provider: &str,
        command: &[String],
        variables: Vec<(String, String)>,
    ) -> Result<CommandSpec, CommandError> {
        let passed = self.find(provider).1.pass_environment.clone();
        self.operator_command(request, provider, OperatorProgram { command, variables, passed })
    }

    /// Returns the command line of a program of the operator.
    fn operator_command(
        &self,
        request: &LaunchRequest,
        provider: &str,
        program: OperatorProgram<'_>,
    ) -> Result<CommandSpec, CommandError> {
        let OperatorProgram { command, variables, passed } = program;
        let (name, provider) = self.find(provider);
        let user = self.user_of(name, &provider)?;
        let values = Values { providers: self, provider: name, request, prompt: "" };
        let wrap = values.wrap(&provider)?;
        let plain = ProviderConfig {
            command_line: CommandLine::Own {
                program: String::new(),
                prompt: PromptVia::Stdin,
                passkey_in_prompt: false,
            },
            pass_environment: passed,
            ..provider.into_owned()
        };
        let mut environment = self.passed_to(&plain);
        environment.remove("TMPDIR");
        if let Some(user) = user {
            become_of(user, &mut environment);
        }
        let own = [
            ("PROJECT_ID", request.key.project.to_string()),
            ("WORKING_DIRECTORY", text(&request.working_directory)),
        ];
        let own = own.map(|(name, value)| (name.to_owned(), value)).into_iter().chain(variables);
        environment.extend(own.map(|(name, value)| (name, Secret::new(value))));
        let mut command = command.iter().cloned();
        Ok(CommandSpec {
            wrap,
            program: command.next().unwrap_or_default(),
            arguments: command.collect(),
            environment: environment.into_iter().collect(),
            working_directory: request.working_directory.clone(),
            stdin: None,
            redact: self.redacted.clone(),
            files: Vec::new(),
            files_in: None,
            transcript: None,
            run_as: user.map(|user| user.run_as.clone()),
        })
    }
}
