//! The entries that continue conversations, and the arguments that begin and continue one.

use super::{LaunchRequest, Providers, preset};
use config::{CommandLine, ProviderConfig, Template};
use domain::Secret;
use domain::conversation::{Entry, Reach, new_session};

impl Providers {
    /// Returns the facts that decide whether a launch of `ai_type` continues a conversation.
    pub fn entry(&self, ai_type: &str) -> Entry {
        let (name, provider) = self.find(ai_type);
        let (program, model) = match &provider.command_line {
            CommandLine::Own { program, .. } => (program.as_str(), None),
            CommandLine::Preset { preset, program, model, .. } => {
                let usual = preset::of(*preset).program;
                (program.as_deref().unwrap_or(usual), model.clone())
            }
        };
        // The wrapper may contain secrets of the configuration, and the store keeps the account.
        let identity = format!("{program} {:?} {:?}", provider.run_as, provider.wrap);
        let identity = Secret::new(identity).token_hash();
        Entry {
            ai_type: ai_type.to_owned(),
            account: format!("{name} {}", identity.as_str()),
            model,
            reach: reach(&provider),
        }
    }
}

/// Returns the directories in which an entry continues conversations. A wrapper may keep nothing of
/// them, so an entry with one continues none.
fn reach(provider: &ProviderConfig) -> Reach {
    if !provider.continues || !provider.wrap.is_empty() {
        return Reach::Nowhere;
    }
    let has = |args: &[String]| args.iter().any(|arg| Template::Conversation.is_in(arg));
    match provider.command_line {
        CommandLine::Own { .. } => {
            let is_told = has(&provider.begin_args) && has(&provider.resume_args);
            if is_told || has(&provider.cli_args) { Reach::SameDirectory } else { Reach::Nowhere }
        }
        CommandLine::Preset { preset, .. } => match &preset::of(preset).conversing {
            Some(conversing) if !decides(&provider.cli_args, conversing.own_options) => {
                conversing.reach
            }
            _ => Reach::Nowhere,
        },
    }
}

/// Returns whether arguments contain one of these options.
fn decides(args: &[String], options: &[&str]) -> bool {
    args.iter().any(|arg| {
        let name = arg.split_once('=').map_or(arg.as_str(), |(name, _)| name);
        options.contains(&name)
    })
}

/// Returns the `cli_args` of an entry with those that begin or continue the conversation of a
/// launch. The options of a preset come first, as its others do.
pub(super) fn with_conversation<'a>(
    provider: &'a ProviderConfig,
    request: &LaunchRequest,
) -> Vec<&'a str> {
    let own = |args: &'a [String]| args.iter().map(String::as_str).collect::<Vec<_>>();
    let cli_args = own(&provider.cli_args);
    let Some(order) = &request.conversation else { return cli_args };
    let is_resumed = order.resumed.is_some();
    match provider.command_line {
        CommandLine::Own { .. } => {
            let args = if is_resumed { &provider.resume_args } else { &provider.begin_args };
            [cli_args, own(args)].concat()
        }
        CommandLine::Preset { preset, .. } => match &preset::of(preset).conversing {
            Some(it) => {
                [if is_resumed { it.resume } else { it.begin }, cli_args.as_slice()].concat()
            }
            None => cli_args,
        },
    }
}

/// Returns the id of the conversation of a launch. A launch without an order has one that no other
/// launch has, because `cli_args` may always name it.
pub(super) fn session_of(request: &LaunchRequest) -> String {
    match &request.conversation {
        Some(order) => order.cli_session.clone(),
        None => new_session(&request.launch),
    }
}
