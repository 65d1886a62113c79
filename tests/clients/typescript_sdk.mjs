// An agent that does its task with the official TypeScript SDK, and prints what it saw as one JSON object.
//
//     typescript_sdk.mjs sdk|client auto|legacy URL|PROGRAM
//
// `sdk` is the package of the first generation, `client` that of the second. A PROGRAM is run as `PROGRAM mcp` and spoken to on its
// standard input and output. The packages are looked up beside this file.

import assert from "node:assert";

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
seen.tools = (await client.listTools()).tools.map(tool => tool.name);

async function call(name, args = {}) {
    const result = await client.callTool({ name, arguments: args });
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
await client.close();
console.log(JSON.stringify(seen));
