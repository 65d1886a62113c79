"""An agent that does its task with the official Python SDK, then calls every tool there is; it prints what it saw as one JSON object.

    python_sdk.py auto|legacy URL|PROGRAM

A PROGRAM is run as `PROGRAM mcp` and spoken to on its standard input and output. TEST_COORDINATOR_TOKEN is shown to tools for
coordinators.
"""

import asyncio
import json
import os
import pathlib
import sys

from mcp import Client, StdioServerParameters

KNOWN = json.loads(pathlib.Path(__file__).with_name("arguments.json").read_text())


def sample(schema: dict):
    if "enum" in schema:
        return schema["enum"][0]
    match schema["type"]:
        case "string":
            return "x"
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case "array":
            return [sample(schema["items"])]
        case "object":
            return required(schema)


def required(schema: dict) -> dict:
    properties = schema.get("properties", {})
    by_name = KNOWN["by_name"]
    return {name: by_name[name] if name in by_name else sample(properties[name]) for name in schema.get("required", [])}


def arguments_of(tool, identity: dict) -> dict:
    shown = {name: value for name, value in identity.items() if name in tool.input_schema["properties"]}
    return required(tool.input_schema) | KNOWN["by_tool"].get(tool.name, {}) | shown


async def main(mode: str, target: str) -> None:
    if not target.startswith("http"):
        # The SDK passes only a few variables on by itself.
        places = {name: value for name, value in os.environ.items() if name.startswith("COORDINATOR_")}
        target = StdioServerParameters(command=target, args=["mcp"], env=places)
    seen = {}
    async with Client(target, mode=mode, read_timeout_seconds=20) as client:

        async def call(tool, **arguments):
            result = await client.call_tool(tool, arguments)
            answer = {"is_error": result.is_error, "answer": result.structured_content}
            assert json.loads(result.content[0].text) == result.structured_content, result
            return answer

        seen["protocol"] = client.protocol_version
        seen["server"] = client.server_info.name
        tools = (await client.list_tools()).tools
        seen["tools"] = [tool.name for tool in tools]
        seen["health_check"] = await call("health_check")
        who = {"agent_id": "agt_a", "project_id": "prj"}
        seen["refusal"] = await call("authenticate", passkey="wrong", **who)
        seen["authenticate"] = await call("authenticate", passkey="key_a", **who)
        session = {"session_token": seen["authenticate"]["answer"]["session_token"]}
        seen["get_my_task"] = await call("get_my_task", **session)
        seen["report_completed"] = await call("report_completed", result="success", summary="done", **session)

        # Every tool, in sessions of their own.
        identity = {
            "coordinator_token": os.environ["TEST_COORDINATOR_TOKEN"],
            "coordinator_id": KNOWN["by_name"]["coordinator_id"],
        }
        seen["every"] = {}

        async def authenticate():
            seen["every"]["authenticate"] = await call("authenticate", passkey="key_a", **who)
            identity["session_token"] = seen["every"]["authenticate"]["answer"]["session_token"]

        await authenticate()
        by_name = {tool.name: tool for tool in tools if tool.name != "authenticate"}
        for name in sorted(by_name, key=KNOWN["last"].count):
            seen["every"][name] = await call(name, **arguments_of(by_name[name], identity))
            if name in KNOWN["last"] and len(seen["every"]) < len(tools):
                await authenticate()
    print(json.dumps(seen))


asyncio.run(main(*sys.argv[1:]))
