//! The server's half of a daemon: the store, the use cases, and the listeners that serve them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use tokio::net::UnixListener;
use tokio::sync::watch;

use super::parts::Parts;
use super::secrets::secrets;
use super::state_dir::create_state_dir;
use super::{
    Inherited, ManifestProblems, http, identity, isolation, locate, lock, programs, socket, store,
};
use ::mcp::{self, McpServer};
use ::store::rows::Store;
use config::manifest::{self, Manifest, WantedTask};
use config::{Config, Environment, Forges, Secrets};
use domain::redact::Redactor;
use domain::{AgentId, Secret};
use machine::locks;
use runtime::nudge::{Nudge, Nudges};
use runtime::telemetry::ErrorChain;
use service::world::SystemWorld;
use service::{Applied, AppliedAs, ApplyError, Service, Settings};
use supervisor::provider::Providers;
use web::{self, ConfigurationHandle, Programs, RestState, WebhookEndpoint};
use workspace::Checkouts;

/// The store and the use cases, before and after the listeners are open.
pub(super) struct Server {
    pub(super) store: Arc<Store>,
    pub(super) service: Arc<Service>,
    mcp: McpServer,
    /// The coordinator token that was made here, for a configuration without one.
    made_token: Secret,
    /// The providers in use, for the search for their programs.
    pub(super) providers: watch::Sender<Arc<Providers>>,
    /// The settings of the watcher of forges.
    forges: watch::Sender<Forges>,
    /// Makes the watcher look at a forge at once.
    forge_pokes: Nudges<String>,
    /// The manifest as it was last applied.
    manifest: Mutex<Option<Manifest>>,
    /// Held for the life of the daemon.
    _locks: (lock::RoleLock, Option<lock::RoleLock>),
}

/// The bound sockets. Connections wait from the bind on until they are served.
pub(super) struct Listeners {
    mcp: UnixListener,
    control: UnixListener,
    http: Option<http::HttpListener>,
}

impl Listeners {
    /// Returns the address where the server listens for HTTP.
    pub(super) fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(http::HttpListener::address)
    }
}

impl Server {
    /// Opens the store and applies the configuration. Each change that concerns coordinators wakes
    /// `nudge`. `checkouts` are the clones of this host, if the coordinator runs in this process.
    pub(super) async fn start(
        config: &Config,
        environment: &Environment,
        invocation: &str,
        nudge: Nudge,
        checkouts: Option<Arc<Checkouts>>,
    ) -> anyhow::Result<Self> {
        // The manifest is read before anything is made: a daemon that refuses to start leaves
        // nothing behind.
        let manifest = manifest::load_configured(config, environment)?;
        let state_dir = &config.paths.state_dir;
        create_state_dir(state_dir)?;
        let lock = lock::RoleLock::take(&state_dir.join("server.lock")).await?;
        let (store, store_lock) = store::open(&config.store).await?;
        let store = Arc::new(store);
        // The token is made even if the configuration has another one: tickets are made with it,
        // and must outlive a change of the configuration.
        let made_token = identity::coordinator_token(state_dir)?;
        let settings = settings(config, &secrets(config, manifest.as_ref()), &made_token);
        let service = Arc::new(Service::new(store.clone(), Arc::new(SystemWorld), settings, nudge));
        if let Some(checkouts) = checkouts {
            service.workspaces.serve_from(checkouts);
        }
        service.launches.count_ended_launches().await?;
        // A pause file that exists holds the first start. A store that is full or away must not
        // keep this daemon from its running agents.
        if let Err(error) =
            service.hold_starts(forge::pause_file(&config.forges.pause_resume)).await
        {
            tracing::warn!(
                file = %config.forges.pause_resume.signal_file.display(),
                error = %ErrorChain(&error),
                "could not store whether the pause file exists; will try again"
            );
        }
        let mcp = McpServer::new(service.clone(), coordinator_token(config, &made_token));
        let manifest_before = Mutex::default();
        let locks = (lock, store_lock);
        let server = Self {
            store,
            service,
            mcp,
            made_token,
            providers: watch::Sender::new(Arc::new(programs::providers(config, environment))),
            forges: watch::Sender::new(config.forges.clone()),
            forge_pokes: Nudges::default(),
            manifest: manifest_before,
            _locks: locks,
        };
        server.learn_from(config, manifest, invocation).await?;
        Ok(server)
    }

    /// Applies the configuration and its manifest to the state. A manifest that is the same as
    /// before is not applied again, so that later changes by people stay. An invalid one changes
    /// nothing.
    pub(super) async fn learn(
        &self,
        config: &Config,
        environment: &Environment,
        invocation: &str,
    ) -> anyhow::Result<()> {
        let manifest = manifest::load_configured(config, environment)?;
        self.learn_from(config, manifest, invocation).await
    }

    async fn learn_from(
        &self,
        config: &Config,
        manifest: Option<Manifest>,
        invocation: &str,
    ) -> anyhow::Result<()> {
        let is_new = manifest != *locks::lock(&self.manifest);
        if let (Some(path), Some(manifest), true) = (&config.general.manifest, &manifest, is_new) {
            apply_manifest(&self.service, path, manifest, invocation).await?;
        }
        *locks::lock(&self.manifest) = manifest;
        let passkeys =
            config.agents.iter().map(|(agent, credentials)| (agent, &credentials.passkey));
        for unknown in self.service.catalog.learn_passkeys(passkeys).await? {
            tracing::info!(agent_id = %unknown, "the configuration has a passkey for an agent that does not exist (yet)");
        }
        Ok(())
    }

    /// Returns the secrets of the configuration and of the last applied manifest.
    pub(super) fn secrets(&self, config: &Config) -> Secrets {
        secrets(config, locks::lock(&self.manifest).as_ref())
    }

    /// Uses these settings from now on.
    pub(super) fn reconfigure(&self, config: &Config, environment: &Environment) {
        self.providers.send_replace(Arc::new(programs::providers(config, environment)));
        self.service.reconfigure(settings(config, &self.secrets(config), &self.made_token));
        self.mcp.set_coordinator_token(coordinator_token(config, &self.made_token));
        self.forges.send_if_modified(|forges| {
            let is_news = *forges != config.forges;
            forges.clone_from(&config.forges);
            is_news
        });
        // A reload reads the present state, even if the configuration is the same.
        self.service.forges.look();
    }

    /// Lets misconfigured agents start once more. The settings must be in use everywhere. A store
    /// that is away does not undo the reload.
    pub(super) async fn release_misconfigured(&self) {
        if let Err(error) = self.service.launches.release_misconfigured().await {
            let error = ErrorChain(&error);
            tracing::warn!(%error, "could not let misconfigured agents start again; reload later");
        }
    }

    /// Binds the sockets that were not inherited.
    pub(super) async fn bind(config: &Config, inherited: Inherited) -> anyhow::Result<Listeners> {
        let http = match inherited.http {
            Some(listener) => Some(http::HttpListener::inherited(listener)?),
            None => http::HttpListener::open(&config.http, &config.paths.state_dir).await?,
        };
        let mcp = match inherited.mcp {
            Some(listener) => UnixListener::from_std(listener)
                .context("could not use the inherited socket `mcp`")?,
            None if config.providers.values().any(|provider| provider.run_as.is_some()) => {
                socket::bind(&config.paths.mcp_socket_path, socket::For::AgentsOfOthers)?
            }
            None => socket::bind(&config.paths.mcp_socket_path, socket::For::Owner)?,
        };
        Ok(Listeners {
            mcp,
            control: socket::bind(&config.paths.control_socket(), socket::For::Owner)?,
            http,
        })
    }

    /// Serves until `parts.serving` is cancelled.
    pub(super) fn serve(
        &self,
        config: &Config,
        listeners: Listeners,
        configuration: ConfigurationHandle,
        programs: Programs,
        parts: &Parts,
    ) {
        let Self { service, store, .. } = self;
        let serving = &parts.serving;
        let mcp_server = self.mcp.clone();
        let http = listeners.http_address();
        let public_url = config.http.public_url.clone();
        let closing = serving.clone();
        let rest_state = RestState {
            service: service.clone(),
            http,
            public_url,
            guesses: Arc::default(),
            configuration,
            programs,
            closing,
        };
        if let Some(http) = listeners.http {
            let public = config.http.public_url.iter().map(|url| url.origin().host().clone());
            let allowed = config.http.allowed_hosts.iter().cloned().chain(public).collect();
            let webhooks = WebhookEndpoint::new(self.forges.subscribe(), self.forge_pokes.clone());
            parts.spawn(http.serve(&mcp_server, &rest_state, webhooks, allowed));
        }
        parts.spawn(mcp::socket::serve(listeners.mcp, mcp_server, serving.clone()));
        parts.spawn(web::serve_control(
            listeners.control,
            web::router(rest_state),
            serving.clone(),
        ));
        let mirroring = service.clone();
        let serves = serving.clone();
        parts.spawn(async move { mirroring.chats.mirror_chats(serves).await });
        let kept = Arc::clone(service);
        let serves = serving.clone();
        parts.spawn(async move {
            serves.run_until_cancelled(kept.maintenance.look_after()).await;
        });
        let told = Arc::clone(service);
        let serves = serving.clone();
        parts.spawn(async move {
            serves.run_until_cancelled(told.events.hand_out()).await;
        });
        let watching = Arc::clone(service);
        let serves = serving.clone();
        let forges = self.forges.subscribe();
        let pokes = self.forge_pokes.clone();
        let state_dir = config.paths.state_dir.clone();
        parts.spawn(async move {
            serves
                .run_until_cancelled(Box::pin(forge::watch(watching, &state_dir, forges, pokes)))
                .await;
        });
        let storage = store.clone();
        let serves = serving.clone();
        parts.spawn(async move {
            tokio::select! {
                () = serves.cancelled() => {}
                () = storage.closed() => tracing::error!("the store's writer ended"),
            }
        });
    }
}

fn settings(config: &Config, secrets: &Secrets, coordinator_token: &Secret) -> Settings {
    Settings {
        language: config.general.language,
        start: config.start.clone(),
        stop: config.stop.clone(),
        run: config.run,
        notice: config.notice.clone(),
        chat: config.chat.clone(),
        session: config.session.clone(),
        backoff: config.backoff,
        creation: config.creation,
        retention: config.retention.clone(),
        workspace: config.workspace.clone(),
        hook_timeout: config.hooks.timeout,
        agents_have_users: config.providers.values().any(|provider| provider.run_as.is_some()),
        checks: config.checks.clone(),
        checks_rounds: config.general.checks_rounds,
        page_url: config.http.public_url.as_ref().map(ToString::to_string),
        parking: config.parking,
        conversations: config.conversations,
        state_dir: config.paths.state_dir.clone(),
        file_owners: isolation::file_owners(config),
        passkeys: config
            .agents
            .iter()
            .map(|(agent, known)| (agent.clone(), known.passkey.clone()))
            .collect(),
        ticket_key: coordinator_token.derive("", "launch tickets"),
        mcp_socket: config.paths.mcp_socket_path.clone(),
        redactor: Arc::new(Redactor::for_texts(secrets.redacted().iter().map(Secret::reveal))),
        serves_agents_over_http: config.http.agents,
        providers: config.providers.keys().cloned().collect(),
    }
}

/// Returns the token that coordinators must present.
fn coordinator_token(config: &Config, made_token: &Secret) -> Secret {
    config.general.coordinator_token.clone().unwrap_or_else(|| made_token.clone())
}

async fn apply_manifest(
    service: &Service,
    path: &Path,
    manifest: &Manifest,
    invocation: &str,
) -> anyhow::Result<()> {
    let mut applied = match service.catalog.apply(&manifest.wanted).await {
        Ok(applied) => applied,
        Err(ApplyError::Problems(problems)) => {
            let located =
                problems.into_iter().map(|problem| (locate(manifest, &problem), problem.message));
            return Err(ManifestProblems(manifest.report(located)).into());
        }
        Err(ApplyError::Service(error)) => {
            return Err(error).context("could not apply the manifest");
        }
    };
    let n_changed = applied.iter().filter(|entry| entry.what.is_change()).count();
    for entry in &mut applied {
        entry.locate_warnings(manifest);
        for warning in &entry.warnings {
            tracing::warn!(problem = warning.message, "a part of the manifest is left out");
        }
    }
    tracing::info!(manifest = %path.display(), n_entries = applied.len(), n_changed, "manifest applied");
    let is_left_out = |entry: &&Applied| entry.what == AppliedAs::LeftOut && entry.kind == "task";
    let left_out: BTreeSet<&str> =
        applied.iter().filter(is_left_out).map(|entry| entry.id.as_str()).collect();
    let is_applied = |task: &&WantedTask| !left_out.contains(task.id.as_str());
    let tasks: Vec<&WantedTask> = manifest.wanted.tasks.iter().filter(is_applied).collect();
    say_what_is_left(service, &tasks, invocation).await
}

/// Logs that all applied tasks of a manifest are finished, and how to add the next one: such a
/// manifest starts nothing.
async fn say_what_is_left(
    service: &Service,
    tasks: &[&WantedTask],
    invocation: &str,
) -> anyhow::Result<()> {
    let mut open = 0;
    for task in tasks {
        open += usize::from(service.tasks.view(&task.id).await?.task.status.is_open());
    }
    if let (Some(last), 0) = (tasks.last(), open) {
        let assignee = last.assignee.as_ref().map_or("AGENT", AgentId::as_str);
        tracing::info!(
            task_id = %last.id, status = "done",
            next = format!(
                "{invocation} task add --project {} --assignee {assignee} --status in_progress --title '…'",
                last.project
            ),
            "every task of the manifest is done; give the next one"
        );
    }
    Ok(())
}
