"""A complete agent with the official MCP SDK for Python: it does its task, or talks in its chat.

The coordinator starts it in the directory of the project. Replace `work` and `reply` by what your agent can do.
"""

import asyncio
import os
from pathlib import Path

from mcp import Client, StdioServerParameters


class Refused(Exception):
    """The server refused a call. The answer says why and what to do."""


class Agent:
    def __init__(self, client: Client):
        self.client = client
        self.identity = {}

    async def call(self, tool: str, **arguments) -> dict:
        result = await self.client.call_tool(tool, arguments | self.identity)
        answer = result.structured_content
        if result.is_error:
            raise Refused(f"{tool}: {answer['error']} ({answer['error_code']}); {answer.get('hint', '')}")
        return answer

    async def run(self) -> None:
        session = await self.call(
            "authenticate",
            agent_id=os.environ["AGENT_ID"],
            project_id=os.environ["PROJECT_ID"],
            passkey=os.environ["AGENT_PASSKEY"],
        )
        self.identity = {"session_token": session["session_token"]}
        print(f"started for a {session['purpose']}; role: {session['system_prompt']}", flush=True)
        is_done, turn = False, {}
        while True:
            # The server holds this call until there is something to do.
            step = await self.call("get_next_action", **turn)
            turn = {"turn": step["turn"]} if "turn" in step else {}
            match step["action"]:
                case "get_my_task":
                    task = (await self.call("get_my_task"))["task"]
                    print(f"my task: {task['title']}", flush=True)
                case "work" | "execute_subtask":
                    work(step["task"])
                    await self.call("update_task_status", task_id=step["task"]["task_id"], status="done")
                    is_done = True
                case "start_subtask":
                    # It is for another agent, which starts now.
                    await self.call("update_task_status", task_id=step["task"]["task_id"], status="in_progress")
                case "get_pending_messages":
                    await self.call("respond_chat", content=reply(step["messages"]))
                case "wait_for_messages" | "wait_for_subtasks":
                    await asyncio.sleep(step["wait_seconds"])
                case "get_notifications":
                    for notice in (await self.call("get_notifications"))["notifications"]:
                        print(f"notice: {notice['message']}", flush=True)
                        is_done = False
                case "report_completed":
                    result = "success" if is_done else "blocked"
                    await self.call("report_completed", result=result, summary="wrote hello.txt")
                    return
                case "logout":
                    await self.call("logout")
                    return
                case _:
                    # "exit": the session has ended.
                    return


def work(task: dict) -> None:
    """Does the task. The working directory is that of the project."""
    with Path("hello.txt").open("a") as file:
        file.write(f"Hello from {os.environ['AGENT_ID']}: {task['title']}\n")
    print("wrote hello.txt", flush=True)


def reply(messages: list[dict]) -> str:
    """Answers what people said since the last answer."""
    return "You said: " + " / ".join(message["content"] for message in messages)


def server() -> StdioServerParameters | str:
    """Returns the bridge to the server, or its URL if there is no socket."""
    if "COORDINATOR_MCP_SOCKET" not in os.environ:
        return os.environ["COORDINATOR_MCP_URL"]
    # The SDK passes only a few variables on by itself.
    places = {name: value for name, value in os.environ.items() if name.startswith("COORDINATOR_")}
    return StdioServerParameters(command=os.environ["AGENT_COORDINATOR"], args=["mcp"], env=places)


async def main() -> None:
    async with Client(server(), read_timeout_seconds=120) as client:
        await Agent(client).run()


asyncio.run(main())
