//! The reasons why a key may or may not start.

use crate::domain::words::words;

words! {
    /// The reason why a key may or may not start. It contains no state of a task, which a
    /// coordinator does not know (R-004-2).
    pub enum StartReason as "start reason" {
        Ready = "ready",
        /// No such agent or project.
        Unknown = "unknown",
        NotAssigned = "not_assigned",
        /// The agent or the project is not active.
        Inactive = "inactive",
        Starting = "starting",
        Running = "running",
        /// On its way out: its tree is not empty yet.
        Stopping = "stopping",
        NoWork = "no_work",
        Paused = "paused",
        Held = "held",
        /// It failed too often in too short a time, and waits for a person.
        Suspended = "suspended",
        /// It can't work as it is configured, and waits for a person.
        Misconfigured = "misconfigured",
        /// The account of its provider failed, and waits; or another one is trying whether it works
        /// again.
        Parked = "parked",
        /// It failed lately and waits before the next try.
        Backoff = "backoff",
        /// The clone for its task is not ready.
        PreparingWorkspace = "preparing_workspace",
        /// The clone for its task needs a person.
        WorkspaceBroken = "workspace_broken",
        /// A command of the operator failed in the clone for its task, and is tried again.
        HookFailed = "hook_failed",
        /// There is no disk space for the clone for its task.
        WorkspaceDisk = "workspace_disk",
        /// The clone for its task is on the host of another coordinator.
        OnOtherHost = "on_other_host",
        /// The number of agents in its git work tree has reached its limit.
        DirectoryInUse = "directory_in_use",
        /// A snapshot of its git work tree is being taken.
        TakingSnapshot = "taking_snapshot",
        /// All slots are taken.
        NoFreeSlot = "no_free_slot",
        /// The free slots are reserved for chats.
        ChatReserve = "chat_reserve",
        /// Its project has as many as it may.
        ProjectLimit = "project_limit",
        /// Its agent has as many as it may.
        AgentLimit = "agent_limit",
        /// Its provider has as many as it may.
        ProviderLimit = "provider_limit",
        /// There is too little free space where the daemon keeps its state.
        LowDisk = "low_disk",
        /// There is too little free memory.
        LowMemory = "low_memory",
        /// The configuration of the coordinator has no passkey for the agent (R-004-8).
        NoPasskey = "no_passkey",
        /// No coordinator is connected, so nothing starts.
        NoCoordinator = "no_coordinator",
    }
}

impl StartReason {
    /// Returns whether a chat that does not start for this reason also refuses messages.
    pub const fn refuses_messages(self) -> bool {
        matches!(self, Self::Unknown | Self::NotAssigned | Self::Inactive)
    }

    /// Returns whether the start waits for a person, or for something else without a known end.
    pub const fn waits_indefinitely(self) -> bool {
        matches!(
            self,
            Self::Unknown
                | Self::NotAssigned
                | Self::Inactive
                | Self::Held
                | Self::Suspended
                | Self::Misconfigured
                | Self::Paused
                | Self::Parked
                | Self::WorkspaceBroken
                | Self::WorkspaceDisk
        )
    }

    /// Returns whether coordinators give this reason, and not their server.
    pub const fn is_of_coordinator(self) -> bool {
        matches!(
            self,
            Self::DirectoryInUse
                | Self::TakingSnapshot
                | Self::NoFreeSlot
                | Self::ChatReserve
                | Self::ProjectLimit
                | Self::AgentLimit
                | Self::ProviderLimit
                | Self::LowDisk
                | Self::LowMemory
                | Self::NoPasskey
        )
    }
}
