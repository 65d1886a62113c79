"""An agent that does its task with the official Python SDK, and prints what it saw as one JSON object.

    python_sdk.py auto|legacy URL|PROGRAM

A PROGRAM is run as `PROGRAM mcp` and spoken to on its standard input and output.
"""

import asyncio
import json
import os
import sys

from mcp import Client, StdioServerParameters


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
        seen["tools"] = [tool.name for tool in (await client.list_tools()).tools]
        seen["health_check"] = await call("health_check")
        who = {"agent_id": "agt_a", "project_id": "prj"}
        seen["refusal"] = await call("authenticate", passkey="wrong", **who)
        seen["authenticate"] = await call("authenticate", passkey="key_a", **who)
        session = {"session_token": seen["authenticate"]["answer"]["session_token"]}
        seen["get_my_task"] = await call("get_my_task", **session)
        seen["report_completed"] = await call("report_completed", result="success", summary="done", **session)
    print(json.dumps(seen))


asyncio.run(main(*sys.argv[1:]))
