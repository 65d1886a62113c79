// An agent that does its task with the official TypeScript SDK, then calls every tool there is, and gives up a call that waits; it
// prints what it saw as one JSON object.
//
//     typescript_sdk.mjs sdk|client auto|legacy URL|PROGRAM
//
// `sdk` is the package of the first generation, `client` that of the second. A PROGRAM is run as `PROGRAM mcp` and spoken to on its
// standard input and output. The packages are looked up beside this file. TEST_COORDINATOR_TOKEN is shown to tools for coordinators.

import assert from "node:assert";
import { readFileSync } from "node:fs";

const [generation, mode, target] = process.argv.slice(2);
const { Client, StreamableHTTPClientTransport, StdioClientTransport } = await packages();

async function packages() {
    if (generation === "client") {
        return { ...(await import("@modelcontextprotocol/client")), ...(await import("@modelcontextprotocol/client/stdio")) };
    }
    const from = "@modelcontextprotocol/sdk/client";
    return {
        ...(await import(`${from}/index.js`)),
        ...(await import(`${from}/streamableHttp.js`)),
        ...(await import(`${from}/stdio.js`)),
    };
}

function transport() {
    if (target.startsWith("http")) return new StreamableHTTPClientTransport(new URL(target));
    // The SDK passes only a few variables on by itself.
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => name.startsWith("COORDINATOR_")));
    return new StdioClientTransport({ command: target, args: ["mcp"], env });
}

const client = new Client({ name: "a test", version: "1" }, { versionNegotiation: { mode } });
const seen = { errors: [] };
client.onerror = error => seen.errors.push(String(error));
const carrier = transport();
// The first generation tells its negotiated version to nobody but the transport.
const tell = carrier.setProtocolVersion?.bind(carrier);
carrier.setProtocolVersion = version => {
    seen.protocol = version;
    tell?.(version);
};
await client.connect(carrier);
seen.protocol = client.getNegotiatedProtocolVersion?.() ?? seen.protocol;
seen.server = client.getServerVersion().name;
const { tools } = await client.listTools();
seen.tools = tools.map(tool => tool.name);

async function call(name, args = {}, options = {}) {
    const request = { name, arguments: args };
    const result = await (generation === "sdk" ? client.callTool(request, undefined, options) : client.callTool(request, options));
    assert.deepEqual(JSON.parse(result.content[0].text), result.structuredContent);
    return { is_error: result.isError ?? false, answer: result.structuredContent };
}

seen.health_check = await call("health_check");
const who = { agent_id: "agt_a", project_id: "prj" };
seen.refusal = await call("authenticate", { ...who, passkey: "wrong" });
seen.authenticate = await call("authenticate", { ...who, passkey: "key_a" });
const session = { session_token: seen.authenticate.answer.session_token };
seen.get_my_task = await call("get_my_task", session);
seen.report_completed = await call("report_completed", { ...session, result: "success", summary: "done" });

// Every tool, in sessions of their own.
const known = JSON.parse(readFileSync(new URL("arguments.json", import.meta.url)));
const identity = {
    session_token: session.session_token,
    coordinator_token: process.env.TEST_COORDINATOR_TOKEN,
    coordinator_id: known.by_name.coordinator_id,
};

function sample(schema) {
    if (schema.enum) return schema.enum[0];
    switch (schema.type) {
        case "string": return "x";
        case "integer": case "number": return schema.minimum ?? 1;
        case "boolean": return false;
        case "array": return [sample(schema.items)];
        case "object": return object(schema);
        default: throw new Error(`nothing is known to fit ${JSON.stringify(schema)}`);
    }
}

function object(schema) {
    const names = (schema.required ?? []).map(name => [name, known.by_name[name] ?? sample(schema.properties[name])]);
    return Object.fromEntries(names);
}

function args({ name, inputSchema }) {
    const shown = Object.entries(identity).filter(([argument]) => argument in inputSchema.properties);
    return { ...object(inputSchema), ...known.by_tool[name], ...Object.fromEntries(shown) };
}

async function authenticate() {
    seen.every.authenticate = await call("authenticate", { ...who, passkey: "key_a" });
    identity.session_token = seen.every.authenticate.answer.session_token;
}

seen.every = {};
await authenticate();
for (const tool of tools.filter(({ name }) => name !== "authenticate" && !known.last.includes(name))) {
    seen.every[tool.name] = await call(tool.name, args(tool));
}
for (const name of known.last) {
    seen.every[name] = await call(name, args(tools.find(tool => tool.name === name)));
    if (name !== known.last.at(-1)) await authenticate();
}

// A call that waits: the client is told that it does, and gives up. When there are news, another does.
const waits = args(tools.find(tool => tool.name === "wait_for_work"));
while (!seen.gave_up) {
    const { seen: mark } = (await call("wait_for_work", waits)).answer;
    const giveUp = new AbortController();
    const hears = { signal: giveUp.signal, onprogress: ({ progress }) => giveUp.abort(`after ${progress}`) };
    const waiting = call("wait_for_work", { ...waits, timeout_seconds: 55, seen: mark }, hears);
    seen.gave_up = await waiting.then(() => false, error => String(error));
}
await call("health_check");
// A client that closes complains of what it cuts off itself: its cancel, its listening.
client.onerror = undefined;
await client.close();
console.log(JSON.stringify(seen));
