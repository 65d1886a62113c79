#!/bin/sh
# An agent in its smallest form: it does with `agent-coordinator call` what a real agent CLI does over MCP.
# The coordinator starts it in the project's directory and tells it in its environment who it is.
set -eu
call() { "$AGENT_COORDINATOR" call "$@"; }

# Who am I? The passkey comes from AGENT_PASSKEY, never from an argument.
AGENT_SESSION_TOKEN=$(call authenticate --get session_token)
export AGENT_SESSION_TOKEN

# In a chat, it has the same answer to everything. It asks what is next until the chat ends.
while next=$(call get_next_action --get action); do
    case $next in
    get_pending_messages) call respond_chat '{"content": "I am the example agent. I only do tasks: assign me one."}' ;;
    wait_for_messages) sleep 1 ;;
    logout) call logout && exit ;;
    exit) exit ;;
    *) break ;; # There is a task.
    esac
done

# What am I to do?
task=$(call get_my_task --get task)
echo "my task: $task"

# Do it.
echo "Hello from $AGENT_ID, $(date)" >>hello.txt
echo "wrote $PWD/hello.txt"

# In a clone of its own, the result is what it commits.
if [ "${AGENT_WORKSPACE:-}" = clone ]; then
    git add hello.txt
    git commit --quiet --message "Say hello"
fi

# Say how it went, and go.
call report_completed '{"result": "success", "summary": "wrote hello.txt"}'
