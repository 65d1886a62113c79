"""A scripted model behind the streaming APIs of the six CLIs, with a fixed usage. `record` uses it."""
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# The usage of each response, and of each response to a side question such as one for a title.
USAGE = {"input": 1000, "cached": 300, "cache_write": 100, "output": 50, "reasoning": 20}
SIDE_USAGE = {"input": 200, "cached": 0, "cache_write": 0, "output": 10, "reasoning": 0}
# The names of the CLIs' tools for shell commands.
SHELLS = {"Bash", "exec_command", "run_shell_command", "bash"}
# The mark of the prompts of `record`. Only requests with it follow the plan.
MARK = "MAIN-TASK"


class Model:
    """Answers the next requests by a plan, a list of ("run", COMMAND) and ("say", TEXT).

    `is_refusing` returns whether a request gets the status 429. `log` has an entry for each answer.
    """

    def __init__(self):
        self.plan = []
        self.log = []
        self.is_refusing = lambda: False
        self._n = 0
        self._lock = threading.Lock()
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                self.reply(200, "application/json", '{"data": [], "models": []}')

            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
                self.reply(*model.answer(self.path.split("?")[0], request))

            def reply(self, status, kind, text):
                content = text.encode()
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, path, request):
        """Returns the status, the type and the text of the answer."""
        if "ount" in path.rsplit("/", 1)[-1] and "oken" in path:
            return 200, "application/json", '{"input_tokens": 1, "totalTokens": 1}'
        shell = next(iter(sorted(set(tools(request)) & SHELLS)), None)
        with self._lock:
            if self.is_refusing():
                self.log.append({"path": path, "status": 429})
                return 429, "application/json", '{"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}'
            self._n += 1
            n = self._n
            step, usage = ("say", "{}"), SIDE_USAGE
            if shell and MARK in json.dumps(request):
                step = self.plan.pop(0) if self.plan else ("say", "Nothing is left.")
                usage = USAGE
            self.log.append({"path": path, "n": n, "step": list(step), "usage": usage})
        if path.endswith("/messages"):
            return 200, "text/event-stream", messages(n, step, shell, usage)
        if path.endswith("/responses"):
            return 200, "text/event-stream", responses(n, step, shell, usage)
        if path.endswith("/chat/completions"):
            return 200, "text/event-stream", completions(n, step, shell, usage)
        if path.endswith(":streamGenerateContent"):
            return 200, "text/event-stream", stream([generated(n, step, shell, usage)])
        if path.endswith(":generateContent"):
            return 200, "application/json", json.dumps(generated(n, step, shell, usage))
        return 404, "application/json", "{}"


def tools(request):
    """Yields the names of the tools in a request of any API."""
    for tool in request.get("tools") or []:
        declared = tool.get("functionDeclarations") or [tool.get("function") or tool]
        yield from (each["name"] for each in declared if "name" in each)


def arguments(shell, command):
    if shell == "exec_command":
        return {"cmd": command, "yield_time_ms": 30000}
    if shell == "run_shell_command":
        return {"command": command, "description": "run it", "is_background": False}
    return {"command": command, "description": "run it"}


def text_of(step):
    return step[1] if step[0] == "say" else "I run it."


def stream(events):
    names = (f"event: {event['type']}\n" if "type" in event else "" for event in events)
    return "".join(f"{name}data: {json.dumps(event)}\n\n" for name, event in zip(names, events))


def messages(n, step, shell, usage):
    first = {
        "input_tokens": usage["input"] - usage["cached"] - usage["cache_write"],
        "cache_read_input_tokens": usage["cached"],
        "cache_creation_input_tokens": usage["cache_write"],
        "output_tokens": 1,
    }
    blocks = [({"type": "text", "text": ""}, {"type": "text_delta", "text": text_of(step)})]
    if step[0] == "run":
        call = json.dumps(arguments(shell, step[1]))
        blocks.append((
            {"type": "tool_use", "id": f"toolu_{n:02}", "name": shell, "input": {}},
            {"type": "input_json_delta", "partial_json": call},
        ))
    message = {
        "id": f"msg_{n:02}", "type": "message", "role": "assistant", "model": "scripted", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": first,
    }
    events = [{"type": "message_start", "message": message}]
    for index, (block, delta) in enumerate(blocks):
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    end = {"stop_reason": "tool_use" if step[0] == "run" else "end_turn", "stop_sequence": None}
    last = {**first, "output_tokens": usage["output"]}
    events += [{"type": "message_delta", "delta": end, "usage": last}, {"type": "message_stop"}]
    return stream(events)


def responses(n, step, shell, usage):
    content = [{"type": "output_text", "text": text_of(step), "annotations": []}]
    items = [{"type": "message", "id": f"msg_{n:02}", "role": "assistant", "status": "completed", "content": content}]
    if step[0] == "run":
        items.append({
            "type": "function_call", "id": f"fc_{n:02}", "call_id": f"call_{n:02}", "name": shell,
            "arguments": json.dumps(arguments(shell, step[1])), "status": "completed",
        })
    counts = {
        "input_tokens": usage["input"], "input_tokens_details": {"cached_tokens": usage["cached"]},
        "output_tokens": usage["output"], "output_tokens_details": {"reasoning_tokens": usage["reasoning"]},
        "total_tokens": usage["input"] + usage["output"],
    }
    done = [
        {"type": "response.output_item.done", "output_index": index, "item": item}
        for index, item in enumerate(items)
    ]
    response = {"id": f"resp_{n:02}"}
    end = {"type": "response.completed", "response": {**response, "usage": counts}}
    return stream([{"type": "response.created", "response": response}, *done, end])


def completions(n, step, shell, usage):
    def chunk(delta, reason=None):
        return {
            "id": f"chatcmpl_{n:02}", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        }

    chunks = [chunk({"role": "assistant", "content": text_of(step)})]
    if step[0] == "run":
        call = {"name": shell, "arguments": json.dumps(arguments(shell, step[1]))}
        chunks.append(chunk({"tool_calls": [{"index": 0, "id": f"call_{n:02}", "type": "function", "function": call}]}))
    chunks.append(chunk({}, "tool_calls" if step[0] == "run" else "stop"))
    chunks[-1]["usage"] = {
        "prompt_tokens": usage["input"], "prompt_tokens_details": {"cached_tokens": usage["cached"]},
        "completion_tokens": usage["output"], "completion_tokens_details": {"reasoning_tokens": usage["reasoning"]},
        "total_tokens": usage["input"] + usage["output"],
    }
    return stream(chunks) + "data: [DONE]\n\n"


def generated(n, step, shell, usage):
    parts = [{"text": text_of(step)}]
    if step[0] == "run":
        call = {"command": step[1], "description": "run it"}
        parts.append({"functionCall": {"id": f"call_{n:02}", "name": shell, "args": call}})
    counts = {
        "promptTokenCount": usage["input"], "cachedContentTokenCount": usage["cached"],
        "candidatesTokenCount": usage["output"] - usage["reasoning"], "thoughtsTokenCount": usage["reasoning"],
        "totalTokenCount": usage["input"] + usage["output"],
    }
    candidate = {"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": parts}}
    return {
        "candidates": [candidate], "usageMetadata": counts, "modelVersion": "scripted", "responseId": f"gen_{n:02}",
    }
