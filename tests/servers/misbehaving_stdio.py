"""An MCP server over stdio that misbehaves on demand, to test clients with.

    python tests/servers/misbehaving_stdio.py --noise --die-after 2
    misbehaving("--hang", "tools/list")           a `StdioTarget` for it

Every fault is a switch; without one it is a well-behaved server of both eras. It uses the standard library only and
imports little, so that it starts fast. `--replay FILE` serves a recorded server instead of its own tools. Its HTTP
sister is `misbehaving_http.py`.
"""

import argparse
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolfold.types import ServerSpec
    from toolfold.wire import StdioTarget

MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
NAME = "misbehaving"
OBJECT = {"type": "object"}
CAPABILITIES = {"tools": {"listChanged": True}}

Json = dict[str, Any]

ANSWERS = {
    "initialize": "initialize",
    "server/discover": "discover",
    "tools/list": "list_tools",
    "tools/call": "call",
    "subscriptions/listen": "listen",
}

NOISE = (
    b'Starting up...\n\x1b[32mINFO\x1b[0m ready\n{not json\n[1, 2\n\xff\xfe broken\n\n{}\n[]\n17\n"text"\n\x00\n'
    b'{"level":"info","id":1,"msg":"a log line"}\n{"jsonrpc":"2.0","method":17}\n'
)

OWN_TOOLS = {
    "echo": "Gives its arguments back.",
    "sleep": "Answers after `seconds`; a file `mark` says that it began.",
    "big": "Answers with a text of `bytes`.",
    "progress": "Tells `steps` steps of progress, then answers.",
    "ask": "Asks the user for a name `times` times, then greets.",
    "environment": "The environment and the process id of this server.",
    "grandchild": "Starts a process in a session of its own and gives its id back.",
    "change": "Adds a tool, and says that the list changed.",
    "raw_answer": "Writes `text` (latin-1) to stdout in place of an answer.",
    "raw_result": "Writes `text` (latin-1) as the result of the answer.",
    "raw_error": "Answers with the error that `text` holds.",
    "crash": "Ends the process with exit code 3.",
    "cancelled": "Which requests were cancelled so far.",
    "fail": "Answers with a JSON-RPC error.",
}


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The switches, read."""
    parser = argparse.ArgumentParser(prog="misbehaving_stdio.py", description="an MCP server that misbehaves")
    add = parser.add_argument
    add("--era", choices=("legacy", "modern", "dual"), default="dual", help="which protocol it speaks")
    add("--version", default="2025-11-25", help="the handshake version it answers with")
    add("--tools", type=int, default=0, metavar="N", help="N more tools, tool_0 and on")
    add("--tool-bytes", type=int, default=0, metavar="N", help="length of their descriptions")
    add("--replay", metavar="FILE", help="serve a recorded server: a JSON file with `initialize` and `tools`")
    add("--start-delay", type=float, default=0, metavar="S", help="sleep before reading anything")
    add("--start-when", metavar="FILE", help="read nothing before there is this file")
    add("--answer-delay", type=float, default=0, metavar="S", help="answer each request so much later")
    add("--pages", type=int, default=1, metavar="N", help="give the tools in N pages")
    add("--pages-loop", action="store_true", help="the cursor never advances")
    add("--pages-endless", action="store_true", help="there is always one more page")
    add("--ttl", type=int, metavar="MS", help="ttlMs of the list")
    add("--noise", action="store_true", help="lines that are no messages before each answer")
    add("--noise-inline", action="store_true", help="noise on the same line as the answer")
    add("--noise-stderr", action="store_true", help="a megabyte on stderr before each answer")
    add("--bom", action="store_true", help="a byte order mark before each line")
    add("--crlf", action="store_true", help="lines end with CR LF")
    add("--latin1", action="store_true", help="text that is no UTF-8 in each result")
    add("--ids", choices=("string", "float", "wrong", "null"), help="how answers name their request")
    add("--duplicate", action="store_true", help="each answer twice")
    add("--stray", action="store_true", help="answers to requests that nobody made")
    add("--batch", action="store_true", help="each answer in an array, with a notification")
    add("--split", type=int, default=0, metavar="N", help="write in pieces of N bytes")
    add("--no-jsonrpc", action="store_true", help="messages without `jsonrpc`")
    add("--both", action="store_true", help="answers with result and error")
    add("--neither", metavar="METHOD", help="an answer without result and error")
    add("--bare-error", metavar="METHOD", help="an error without code and message")
    add("--bad-tools", action="store_true", help="entries of the list that are no tools")
    add("--ask-unasked", action="store_true", help="requests that nobody declared, and a ping, before each answer")
    add("--hang", metavar="METHOD", help="never answer METHOD")
    add("--ignore-unknown", action="store_true", help="never answer what it does not know")
    add("--die-after", type=int, default=-1, metavar="N", help="end after N answers")
    add("--die-on", metavar="METHOD", help="end when METHOD arrives")
    add("--die-on-probe", action="store_true", help="end when the first message is not `initialize`")
    add("--close-mid", metavar="METHOD", help="end in the middle of the answer to METHOD")
    add("--changes", type=int, default=0, metavar="N", help="say N times a second that the list changed")
    add("--stubborn", action="store_true", help="ignore the end of stdin and SIGTERM")
    add("--grandchild", action="store_true", help="start a process in a session of its own at once")
    return parser.parse_args(arguments)


class Server:
    """Reads a line, answers a line, as badly as told."""

    def __init__(self, faults: argparse.Namespace) -> None:
        self.faults = faults
        self.answers = 0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.asked: dict[str, Callable[[Json], None]] = {}
        self.cancelled: list[object] = []
        self.first = True
        self.recorded: Json | None = None
        if faults.replay:
            with open(faults.replay, encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs start-up time
                self.recorded = json.load(file)

    def run(self) -> None:
        pending = b""
        if self.faults.changes:
            self.say_changed()
        while True:
            wait = max(0.0, min(at for at, _ in self.timers) - time.monotonic()) if self.timers else None
            if select.select([0], [], [], wait)[0]:
                data = os.read(0, 1 << 20)
                if not data:
                    break
                *lines, pending = (pending + data).split(b"\n")
                for line in lines:
                    self.read(line)
            due = [timer for timer in self.timers if timer[0] <= time.monotonic()]
            self.timers = [timer for timer in self.timers if timer not in due]
            for _, action in due:
                action()
        while self.faults.stubborn:
            time.sleep(60)

    def say_changed(self) -> None:
        """Every hundredth of a second or so, with another list each time."""
        if self.answers:
            self.faults.tools = 1 + self.faults.tools % 7
            self.notify("notifications/tools/list_changed", {})
        self.timers.append((time.monotonic() + 1 / self.faults.changes, self.say_changed))

    def read(self, line: bytes) -> None:
        if not line.strip():
            return
        message = json.loads(line)
        method = message.get("method", "")
        if self.faults.die_on_probe and self.first and method != "initialize":
            os._exit(1)
        self.first = False
        if method and method == self.faults.die_on:
            os._exit(1)
        if not method:
            action = self.asked.pop(str(message.get("id")), None)
            if action:
                action(message)
        elif "id" not in message:
            if method == "notifications/cancelled":
                self.cancelled.append(message["params"]["requestId"])
        elif method != self.faults.hang:
            delay = self.faults.answer_delay
            if delay:
                self.timers.append((time.monotonic() + delay, lambda: self.handle(message)))
            else:
                self.handle(message)

    def handle(self, message: Json) -> None:
        method, params = message["method"], message.get("params") or {}
        modern = META + "protocolVersion" in (params.get("_meta") or {})
        answer = ANSWERS.get(method)
        wrong_era = (modern and self.faults.era == "legacy") or (not modern and self.faults.era == "modern")
        if method == "ping":
            self.answer(message, {})
        elif answer is None or wrong_era or (method == "server/discover" and not modern):
            self.refuse(message, method)
        elif (result := getattr(self, answer)(message, params)) is not None:
            self.answer(message, result)

    def refuse(self, message: Json, method: str) -> None:
        if method == "initialize":
            data = {"supported": [MODERN], "requested": message["params"].get("protocolVersion")}
            self.error(message, -32022, "Unsupported protocol version", data)
        elif not self.faults.ignore_unknown:
            self.error(message, -32601, f"Method not found: {method}")

    def initialize(self, message: Json, params: Json) -> Json:
        if self.recorded is not None:
            return dict(self.recorded["initialize"])
        info = {"name": NAME, "version": "1"}
        return {"protocolVersion": self.faults.version, "capabilities": CAPABILITIES, "serverInfo": info}

    def discover(self, message: Json, params: Json) -> Json:
        meta = {META + "serverInfo": {"name": NAME, "version": "1"}}
        fresh = {"ttlMs": 0, "cacheScope": "public"}
        return {"supportedVersions": [MODERN], "capabilities": CAPABILITIES, "_meta": meta, **fresh}

    def listen(self, message: Json, params: Json) -> None:
        granted = {"_meta": {META + "subscriptionId": message["id"]}, "notifications": params["notifications"]}
        self.notify("notifications/subscriptions/acknowledged", granted)

    def tools(self) -> list[Any]:
        if self.recorded is not None:
            return list(self.recorded["tools"])
        tools: list[Any] = [
            {"name": name, "description": text, "inputSchema": OBJECT} for name, text in OWN_TOOLS.items()
        ]
        filler = "x" * self.faults.tool_bytes
        tools += [
            {"name": f"tool_{number}", "description": f"Tool {number}. {filler}", "inputSchema": OBJECT}
            for number in range(self.faults.tools)
        ]
        if self.faults.bad_tools:
            tools += ["a text", None, 7, [], {}, {"name": 5}, {"name": "bare"}, {"name": ""}]
        return tools

    def list_tools(self, message: Json, params: Json) -> Json:
        tools, pages = self.tools(), max(1, self.faults.pages)
        cursor = int(params.get("cursor", 0))
        size = -(-len(tools) // pages)
        result: Json = {"tools": tools[cursor * size : (cursor + 1) * size]}
        if self.faults.pages_loop:
            result = {"tools": tools, "nextCursor": "1"}
        elif self.faults.pages_endless or cursor + 1 < pages:
            result["nextCursor"] = str(cursor + 1)
        if self.faults.ttl is not None:
            result |= {"ttlMs": self.faults.ttl, "cacheScope": "public"}
        return result

    def call(self, message: Json, params: Json) -> Json | None:
        name, arguments = params["name"], params.get("arguments") or {}
        if name in SIMPLE:
            return SIMPLE[name](self, arguments)
        action = getattr(self, "tool_" + name, None) if name in OWN_TOOLS else None
        found: Json | None = action(message, arguments) if action else text(f"called {name}")
        return found

    def tool_sleep(self, message: Json, arguments: Json) -> None:
        if mark := arguments.get("mark"):
            os.close(os.open(mark, os.O_CREAT | os.O_WRONLY))

        def done() -> None:
            if message["id"] not in self.cancelled:
                self.answer(message, text("awake"))

        self.timers.append((time.monotonic() + float(arguments.get("seconds", 1)), done))

    def tool_progress(self, message: Json, arguments: Json) -> Json:
        token = message["params"].get("_meta", {}).get("progressToken")
        steps = int(arguments.get("steps", 3))
        for step in range(steps):
            self.notify("notifications/progress", {"progressToken": token, "progress": step + 1, "total": steps})
        return text("done")

    def tool_ask(self, message: Json, arguments: Json) -> Json | None:
        wanted = {
            "message": "Your name?",
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
        }
        params, times = message["params"], int(arguments.get("times", 1))
        if META + "protocolVersion" not in params.get("_meta", {}):
            self.asked["ask"] = lambda reply: self.answer(message, text(f"hello {json.dumps(reply.get('result'))}"))
            self.write({"jsonrpc": "2.0", "id": "ask", "method": "elicitation/create", "params": wanted})
            return None
        done = int(params.get("requestState", "0"))
        if done < times:
            question = {"method": "elicitation/create", "params": wanted}
            return {"resultType": "input_required", "inputRequests": {"who": question}, "requestState": str(done + 1)}
        return text(f"hello {json.dumps(params['inputResponses']['who'])}")

    def tool_change(self, message: Json, arguments: Json) -> Json:
        self.faults.tools += 1
        self.notify("notifications/tools/list_changed", {})
        return text("told")

    def tool_raw_answer(self, message: Json, arguments: Json) -> None:
        self.put(arguments["text"].encode("latin-1") + b"\n")

    def tool_raw_result(self, message: Json, arguments: Json) -> None:
        body = arguments["text"].encode("latin-1")
        self.put(b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (message["id"], body))

    def tool_raw_error(self, message: Json, arguments: Json) -> None:
        self.finish(message, {"error": json.loads(arguments["text"])})

    def tool_crash(self, message: Json, arguments: Json) -> None:
        print("about to crash", file=sys.stderr, flush=True)  # noqa: T201 - stderr is what is tested
        os._exit(3)

    def tool_fail(self, message: Json, arguments: Json) -> None:
        self.error(message, -32050, "it failed as asked", {"detail": 1})

    def answer(self, message: Json, result: Json) -> None:
        modern = META + "protocolVersion" in ((message.get("params") or {}).get("_meta") or {})
        if modern:
            result = {"resultType": "complete"} | result
        if message["method"] == self.faults.neither:
            self.finish(message, {})
        elif message["method"] == self.faults.bare_error:
            self.finish(message, {"error": {}})
        elif self.faults.both:
            self.finish(message, {"result": result, "error": None})
        else:
            self.finish(message, {"result": result})

    def error(self, message: Json, code: int, words: str, data: object = None) -> None:
        self.finish(message, {"error": {"code": code, "message": words, "data": data}})

    def finish(self, message: Json, body: Json) -> None:
        self.before_answer()
        number = message["id"]
        shown = {"string": str(number), "float": float(number), "wrong": number + 1000, "null": None}
        answer = {"jsonrpc": "2.0", "id": shown.get(self.faults.ids, number), **body}
        if message["method"] == self.faults.close_mid:
            self.put(json.dumps(answer).encode()[:-10])
            os._exit(0)
        self.write(
            [answer, {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}]
            if self.faults.batch
            else answer
        )
        if self.faults.duplicate:
            self.write(answer)
        self.answers += 1
        if self.answers == self.faults.die_after:
            os._exit(1)

    def before_answer(self) -> None:
        if self.faults.noise:
            self.put(NOISE)
        if self.faults.noise_stderr:
            os.write(2, b"e" * (1 << 20) + b"\n")
        if self.faults.stray:
            self.put(b'{"jsonrpc":"2.0","id":987654,"result":{}}\n{"jsonrpc":"2.0","id":{"a":1},"result":{}}\n')
        if self.faults.ask_unasked:
            for method in ("ping", "sampling/createMessage", "roots/list", "no/such"):
                self.write({"jsonrpc": "2.0", "id": "x-" + method, "method": method, "params": {}})

    def notify(self, method: str, params: Json) -> None:
        self.write({"jsonrpc": "2.0", "method": method, "params": params})

    def write(self, message: Any) -> None:
        if self.faults.no_jsonrpc and isinstance(message, dict):
            message = {key: value for key, value in message.items() if key != "jsonrpc"}
        line = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        if self.faults.latin1:
            line = line.replace(b'"content":[', b'"content":[{"type":"text","text":"caf\xe9"},')
        if self.faults.noise_inline:
            line = b"\x1b[1mloading {50%}...\x1b[0m " + line + b"\x1b[0m done"
        self.put((b"\xef\xbb\xbf" if self.faults.bom else b"") + line + (b"\r\n" if self.faults.crlf else b"\n"))

    def put(self, data: bytes) -> None:
        step = self.faults.split or len(data)
        for start in range(0, len(data), step):
            rest = data[start : start + step]
            while rest:
                rest = rest[os.write(1, rest) :]


def text(words: str) -> Json:
    return {"content": [{"type": "text", "text": words}]}


def grandchild() -> int:
    """A process that leaves our session and sleeps."""
    import subprocess

    no = subprocess.DEVNULL
    command = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
    return subprocess.Popen(command, stdin=no, stdout=no, stderr=no, start_new_session=True).pid


SIMPLE: dict[str, Callable[[Server, Json], Json]] = {
    "echo": lambda _, values: text(json.dumps(values)) | {"structuredContent": values},
    "big": lambda _, values: text("x" * int(values["bytes"])),
    "environment": lambda _, values: text(json.dumps({"pid": os.getpid(), "environment": dict(os.environ)})),
    "grandchild": lambda _, values: text(str(grandchild())),
    "cancelled": lambda server, values: text(json.dumps(server.cancelled)),
}


def misbehaving(*switches: str) -> "StdioTarget":
    """Where to connect to for a server with these faults."""
    from toolfold.wire import StdioTarget

    return StdioTarget(sys.executable, ("-I", "-S", __file__, *switches))


def misbehaving_spec(name: str, *switches: str) -> "ServerSpec":
    """The same as a configured server."""
    from toolfold.types import ServerSpec

    target = misbehaving(*switches)
    return ServerSpec(name=name, transport="stdio", command=target.command, args=target.args)


def main() -> None:
    faults = options()
    if faults.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if faults.grandchild:
        grandchild()
    time.sleep(faults.start_delay)
    while faults.start_when and not os.path.exists(faults.start_when):  # noqa: PTH110 - pathlib costs start-up time
        time.sleep(0.02)
    Server(faults).run()


if __name__ == "__main__":
    main()
