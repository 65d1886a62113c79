// A complete agent with the official MCP SDK for TypeScript: it does its task, or talks in its chat.
//
// The coordinator starts it in the directory of the project. Replace `work` and `reply` by what your agent can do.

import { appendFileSync } from "node:fs";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

type Task = { task_id: string; title: string };
type Message = { content: string };
type Answer = Record<string, any>;

const { AGENT_COORDINATOR, AGENT_ID, AGENT_PASSKEY, COORDINATOR_MCP_SOCKET, COORDINATOR_MCP_URL, PROJECT_ID } =
    process.env as Record<string, string>;

/** Returns the bridge to the server, or its URL if there is no socket. */
function transport() {
    if (!COORDINATOR_MCP_SOCKET) return new StreamableHTTPClientTransport(new URL(COORDINATOR_MCP_URL));
    // The SDK passes only a few variables on by itself.
    return new StdioClientTransport({ command: AGENT_COORDINATOR, args: ["mcp"], env: { COORDINATOR_MCP_SOCKET } });
}

const client = new Client({ name: "example", version: "1" });
await client.connect(transport());
let identity: Answer = {};

/** Makes a call. A refusal is an error, which says why and what to do. */
async function call(tool: string, args: Answer = {}): Promise<Answer> {
    // A call may wait for a minute until there is something to do.
    const result = await client.callTool({ name: tool, arguments: { ...args, ...identity } }, { timeout: 120_000 });
    const answer = result.structuredContent as Answer;
    if (result.isError) throw new Error(`${tool}: ${answer.error} (${answer.error_code}); ${answer.hint ?? ""}`);
    return answer;
}

/** Does the task. The working directory is that of the project. */
function work(task: Task) {
    appendFileSync("hello.txt", `Hello from ${AGENT_ID}: ${task.title}\n`);
    console.log("wrote hello.txt");
}

/** Answers what people said since the last answer. */
function reply(messages: Message[]) {
    return `You said: ${messages.map(message => message.content).join(" / ")}`;
}

async function run() {
    const session = await call("authenticate", { agent_id: AGENT_ID, project_id: PROJECT_ID, passkey: AGENT_PASSKEY });
    identity = { session_token: session.session_token };
    console.log(`started for a ${session.purpose}; role: ${session.system_prompt}`);
    let isDone = false;
    let turn: Answer = {};
    while (true) {
        // The server holds this call until there is something to do.
        const step = await call("get_next_action", turn);
        turn = "turn" in step ? { turn: step.turn } : {};
        switch (step.action) {
            case "get_my_task":
                console.log(`my task: ${(await call("get_my_task")).task.title}`);
                break;
            case "work":
            case "execute_subtask":
                work(step.task);
                await call("update_task_status", { task_id: step.task.task_id, status: "done" });
                isDone = true;
                break;
            case "start_subtask":
                // It is for another agent, which starts now.
                await call("update_task_status", { task_id: step.task.task_id, status: "in_progress" });
                break;
            case "get_pending_messages":
                await call("respond_chat", { content: reply(step.messages) });
                break;
            case "wait_for_messages":
            case "wait_for_subtasks":
                await new Promise(resolve => setTimeout(resolve, 1000 * step.wait_seconds));
                break;
            case "get_notifications":
                for (const notice of (await call("get_notifications")).notifications) {
                    console.log(`notice: ${notice.message}`);
                    isDone = false;
                }
                break;
            case "report_completed":
                await call("report_completed", { result: isDone ? "success" : "blocked", summary: "wrote hello.txt" });
                return;
            case "logout":
                await call("logout");
                return;
            default:
                // "exit": the session has ended.
                return;
        }
    }
}

await run();
await client.close();
