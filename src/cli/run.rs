//! `run`, `serve`, `supervise`: the daemon in its roles.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::app::{self, Ending, Inherited, Role, Signals};
use config::{Environment, Loaded, LogConfig};
use machine::sys;
use runtime::telemetry::{self, LineForm};

/// The number of worker threads. A daemon that mostly waits needs few.
const N_WORKERS: usize = 2;
/// The limit of open files, as in the service units. It is not higher, because some programs, such
/// as tools of agents, look at every possible descriptor.
const DESCRIPTORS: u64 = 65_536;

pub(super) fn run(role: Role, loaded: Loaded, environment: &Environment) -> ExitCode {
    // Signals are unblocked before anything that may wait, and before the first thread that could
    // take a signal.
    let unblocked = app::unblock();
    sys::machine::keep_heap_small();
    // This changes the environment, so it must come before the process has threads.
    let inherited = Inherited::take();
    let Loaded { config, source, .. } = &loaded;
    let guard = match telemetry::init(
        &config.log.level,
        line_form(&config.log),
        config.log.file.as_deref(),
    ) {
        Ok(guard) => guard,
        Err(error) => {
            let _ = writeln!(io::stderr(), "agent-coordinator: {}", telemetry::ErrorChain(&error));
            return ExitCode::from(super::error::EXIT_FAILED);
        }
    };
    raise_descriptor_limit();
    // Other processes of the same user must not read the memory of this process.
    if let Err(error) = sys::birth::hide_memory() {
        tracing::warn!(%error, "could not protect the memory of the daemon from other processes");
    }
    if let Some(path) = source {
        tracing::info!(config = %path.display(), "configuration read");
    } else {
        tracing::info!("no configuration file found: all settings have their defaults");
    }
    if let Err(error) = unblocked {
        tracing::warn!(%error, "could not unblock signals");
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(N_WORKERS).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "could not start the runtime");
            return ExitCode::from(super::error::EXIT_FAILED);
        }
    };
    let program = std::env::args().next().unwrap_or_else(|| "agent-coordinator".to_owned());
    let invocation = match source {
        Some(path) => format!("{program} --config {}", path.display()),
        None => program,
    };
    let ending = runtime.block_on(async {
        let signals = Signals::listen()?;
        Box::pin(app::run(role, loaded, environment, &invocation, inherited?, signals, guard.log()))
            .await
    });
    // Blocking work that still hangs must not keep the process alive.
    runtime.shutdown_background();
    match ending {
        Ok(Ending::Clean) => ExitCode::SUCCESS,
        Ok(Ending::Hurried(signal)) => ExitCode::from(signal.exit_code()),
        Ok(Ending::Superseded) => ExitCode::from(super::error::EXIT_FAILED),
        Err(error) if app::is_about_configuration(&error) => {
            let _ = writeln!(io::stderr(), "{}", telemetry::ErrorChain(error.as_ref()));
            ExitCode::from(super::error::EXIT_CONFIGURATION)
        }
        Err(error) => {
            tracing::error!(error = %telemetry::ErrorChain(error.as_ref()), "the daemon ended");
            ExitCode::from(super::error::EXIT_FAILED)
        }
    }
}

/// Raises the limit of open files to [`DESCRIPTORS`], or to the hard limit. A thousand agents may
/// wait at once, each on a connection. A login shell gives a soft limit of about a thousand, which
/// a process may raise.
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        let wanted = hard.min(DESCRIPTORS);
        app::give_agents_descriptors(soft);
        if soft < wanted { setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) } else { Ok(()) }
    });
    if let Err(error) = raised {
        tracing::warn!(%error, "could not raise the limit of open files");
    }
}

fn line_form(config: &LogConfig) -> LineForm {
    let is_terminal = config.file.is_none() && io::stderr().is_terminal();
    match (config.is_json(is_terminal), is_terminal) {
        (true, _) => LineForm::Json,
        (false, true) => LineForm::ColoredText,
        (false, false) => LineForm::Text,
    }
}
