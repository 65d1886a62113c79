//! The secrets of a configuration, and those that are long enough to be removed from text.

use super::*;

fn texts(secrets: &[Secret]) -> Vec<&str> {
    secrets.iter().map(Secret::reveal).collect()
}

#[test]
fn every_secret_setting_is_known() {
    let config = valid(
        "coordinator_token: \"${DEV_PASSKEY}-${HOME}\"\n\
         agents: { agt_a: { passkey: short }, agt_b: { passkey: a long passkey } }\n\
         github: { token: \"${GITHUB_TOKEN}\", bot_name: bot }\n\
         gitlab: [{ token: glpat-01234567, bot_name: bot }, { token_file: /run/token, bot_name: bot, base_url: 'https://x' }]\n\
         forge: { webhook: { secret: a webhook secret } }\n\
         ai_providers: { x: { cli_command: x, environment: { API_KEY: the key of an agent, MODEL: a-large-model } } }\n",
    );
    let secrets = Secrets::of(&config);
    assert_eq!(
        texts(&secrets.withheld()),
        [
            "dev-hunter2-/home/me",
            "short",
            "a long passkey",
            "gh-hunter2",
            "glpat-01234567",
            "a webhook secret",
            "/run/token"
        ]
    );
    assert_eq!(
        texts(&secrets.redacted()),
        [
            "dev-hunter2-/home/me",
            "a long passkey",
            "glpat-01234567",
            "a webhook secret",
            "the key of an agent"
        ]
    );
    assert_eq!(secrets.too_short().collect::<Vec<_>>(), ["agents.agt_a.passkey", "github.token"]);
    assert_eq!(Vec::from_iter(secrets.variables()), ["DEV_PASSKEY", "GITHUB_TOKEN", "HOME"]);
}
