#!/usr/bin/env python3
"""MCP stdio test server with one fault of many: `faults.py NAME`; `faults.py --list` names them.

Standard library only. Apart from its fault it answers initialize, ping, tools/list and tools/call of
one tool, `echo`, correctly. Each fault is one function, whose docstring says what is wrong.
"""
import json
import os
import signal
import subprocess
import sys
import threading
import time

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
TOOL = {
    "name": "echo",
    "description": "Returns its text argument.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}
FAULTS = {}


def fault(function):
    FAULTS[function.__name__] = function
    return function


def raw(data):
    view = memoryview(data)
    while view:
        view = view[os.write(1, view):]


def dump(message):
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


class Server:
    """Answers correctly; a fault replaces what it wants to be wrong."""

    def send(self, message):
        raw(dump(message) + b"\n")

    def start(self):
        pass

    def seen(self, message):
        """Any message; True: handled."""

    def initialize(self, rid, params):
        asked = params.get("protocolVersion")
        self.send({"jsonrpc": "2.0", "id": rid, "result": {
            "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "faults", "version": "1"},
        }})

    def result(self, rid, text):
        return {"jsonrpc": "2.0", "id": rid, "result": {"content": [{"type": "text", "text": text}]}}

    def call(self, rid, text, params):
        self.send(self.result(rid, text))

    def unknown(self, rid, method):
        error = {"code": -32601, "message": "method not found: %s" % method}
        self.send({"jsonrpc": "2.0", "id": rid, "error": error})

    def handle(self, message):
        method = message.get("method")
        if self.seen(message) or method is None or "id" not in message:
            return
        rid, params = message["id"], message.get("params") or {}
        if method == "initialize":
            self.initialize(rid, params)
        elif method == "ping":
            self.send({"jsonrpc": "2.0", "id": rid, "result": {}})
        elif method == "tools/list":
            self.send({"jsonrpc": "2.0", "id": rid, "result": {"tools": [TOOL]}})
        elif method == "tools/call":
            self.call(rid, str((params.get("arguments") or {}).get("text", "")), params)
        else:
            self.unknown(rid, method)

    def run(self):
        self.start()
        for line in sys.stdin.buffer:
            if line.strip():
                self.handle(json.loads(line))


def on_call(function):
    """A fault of tools/call alone: `function(server, rid, text)`."""
    class Faulty(Server):
        def call(self, rid, text, params):
            function(self, rid, text)
    Faulty.__doc__ = function.__doc__
    FAULTS[function.__name__] = Faulty
    return Faulty


# how it writes

@fault
class bom(Server):
    """A byte order mark before the first message."""
    def start(self):
        raw(b"\xef\xbb\xbf")


@fault
class split_utf8(Server):
    """Every non-ASCII character is split over two writes."""
    def send(self, message):
        for byte in dump(message) + b"\n":
            raw(bytes([byte]))
            if byte >= 0x80:
                time.sleep(0.002)


@fault
class pretty(Server):
    """Messages are spread over lines."""
    def send(self, message):
        raw(json.dumps(message, ensure_ascii=False, indent=2).encode("utf-8") + b"\n")


@fault
class two_on_a_line(Server):
    """A log notification and the answer stand on one line."""
    def send(self, message):
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
        raw(dump(note) + dump(message) + b"\n")


@fault
class glued_banner(Server):
    """Text without a newline before each message."""
    def send(self, message):
        raw(b"Loading plugins... done. " + dump(message) + b"\n")


@fault
class log_lines(Server):
    """JSON log lines on stdout before and after each message."""
    def send(self, message):
        raw(b'{"level":"info","msg":"before"}\n' + dump(message) + b'\n{"level":"info","id":1,"msg":"after"}\n')


@fault
class ansi(Server):
    """Coloured log lines and NUL bytes on stdout."""
    def send(self, message):
        raw(b"\x1b[32mINFO\x1b[0m ready\n\x00\x00\n" + dump(message) + b"\x00\n")


@fault
class crash_lines(Server):
    """A traceback on stdout before each answer."""
    def send(self, message):
        raw(b'Traceback (most recent call last):\n  File "x.py", line 1\n{\nValueError: {"id": 1}\n')
        raw(dump(message) + b"\n")


@fault
class batches(Server):
    """Each answer is wrapped in an array."""
    def send(self, message):
        raw(b"[" + dump(message) + b"]\n")


@on_call
def invalid_utf8(server, rid, text):
    """Bytes that are no UTF-8 inside the text."""
    raw(dump(server.result(rid, text + "@")).replace(b"@", b"\xff\xfe") + b"\n")


@on_call
def lone_surrogate(server, rid, text):
    """An escaped lone surrogate inside the text."""
    raw(dump(server.result(rid, text + "@")).replace(b"@", b"\\ud800") + b"\n")


@on_call
def big_number(server, rid, text):
    """An integer beyond 2^53 and a number with trailing zeros, in _meta."""
    raw(dump(server.result(rid, text))[:-2] + b',"_meta":{"n":9007199254740993,"f":1.10}}}\n')


@on_call
def line_separators(server, rid, text):
    """U+2028 and U+0085 unescaped, after a notification, so on an event stream."""
    server.send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}})
    server.send(server.result(rid, text + "\u2028\u0085|"))


@on_call
def carriage_returns(server, rid, text):
    """Carriage returns between tokens, after a notification."""
    server.send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}})
    raw(dump(server.result(rid, text)).replace(b',"result"', b',\r"result"') + b"\r\n")


@on_call
def nan(server, rid, text):
    """NaN inside the answer: no JSON."""
    raw(dump(server.result(rid, text))[:-2] + b',"n":NaN}}\n')


@on_call
def broken_json(server, rid, text):
    """The answer lacks its last brace."""
    raw(dump(server.result(rid, text))[:-1] + b"\n")


@on_call
def deep(server, rid, text):
    """100,000 nested arrays inside the answer."""
    raw(dump(server.result(rid, text))[:-2] + b',"_meta":{"d":' + b"[" * 100000 + b"]" * 100000 + b"}}}\n")


@on_call
def many_digits(server, rid, text):
    """A number of 10,000 digits inside the answer."""
    raw(dump(server.result(rid, text))[:-2] + b',"_meta":{"n":' + b"7" * 10000 + b"}}}\n")


@on_call
def big_after_progress(server, rid, text):
    """A notification, then an answer of 2 MB."""
    server.send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}})
    server.send(server.result(rid, text + "x" * 2000000))


# what it says

@on_call
def id_as_text(server, rid, text):
    """The id of an answer comes back as text."""
    server.send(server.result(str(rid), text))


@on_call
def id_as_float(server, rid, text):
    """The id of an answer comes back as 1.0."""
    server.send(server.result(float(rid) if isinstance(rid, int) else rid, text))


@on_call
def null_id_error(server, rid, text):
    """A call is answered by an error with id null."""
    server.send({"jsonrpc": "2.0", "id": None, "error": {"code": -32603, "message": "boom"}})


@on_call
def no_id_error(server, rid, text):
    """A call is answered by an error without an id."""
    server.send({"jsonrpc": "2.0", "error": {"code": -32603, "message": "boom"}})


@on_call
def no_version(server, rid, text):
    """Answers without the jsonrpc member."""
    message = server.result(rid, text)
    del message["jsonrpc"]
    server.send(message)


@on_call
def null_error(server, rid, text):
    """Answers with a result and `"error": null`."""
    message = server.result(rid, text)
    message["error"] = None
    server.send(message)


@on_call
def wrong_id(server, rid, text):
    """Answers with an id that nobody asked under."""
    server.send(server.result("nobody", text))


@on_call
def twice(server, rid, text):
    """Every call is answered twice."""
    server.send(server.result(rid, text))
    server.send(server.result(rid, "again"))


@on_call
def odd_notification(server, rid, text):
    """A notification that no protocol version knows, before the answer."""
    server.send({"jsonrpc": "2.0", "method": "x/odd", "params": {"odd": [1, 2]}})
    server.send(server.result(rid, text))


@on_call
def late_progress(server, rid, text):
    """Progress for a call that has been answered."""
    server.send(server.result(rid, text))
    params = {"progressToken": rid, "progress": 1}
    server.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


@fault
class answers_notifications(Server):
    """Answers a notification with an error whose id is null."""
    def seen(self, message):
        if "id" not in message and "method" in message:
            self.send({"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": "what?"}})


@fault
class unknown_version(Server):
    """Answers initialize with a protocol version that does not exist."""
    def initialize(self, rid, params):
        self.send({"jsonrpc": "2.0", "id": rid, "result": {
            "protocolVersion": "2099-01-01", "capabilities": {"tools": {}},
            "serverInfo": {"name": "faults", "version": "1"},
        }})


@fault
class asks_odd(Server):
    """Asks the client something unknown and answers only after its error."""
    def call(self, rid, text, params):
        self.waiting = (rid, text)
        self.send({"jsonrpc": "2.0", "id": "q", "method": "x/odd"})

    def seen(self, message):
        if message.get("id") == "q" and "error" in message:
            self.send(self.result(*self.waiting))
            return True


@fault
class asks_same_id(Server):
    """Pings the client under the id of the client's own call, and answers after the pong."""
    waiting = None

    def call(self, rid, text, params):
        self.waiting = (rid, text)
        self.send({"jsonrpc": "2.0", "id": rid, "method": "ping"})

    def seen(self, message):
        if self.waiting and message.get("id") == self.waiting[0] and "method" not in message:
            self.send(self.result(*self.waiting))
            self.waiting = None
            return True


@fault
class refuses_initialize(Server):
    """Answers initialize with an error."""
    def initialize(self, rid, params):
        error = {"code": -32000, "message": "no licence key"}
        self.send({"jsonrpc": "2.0", "id": rid, "error": error})


@fault
class silent_initialize(Server):
    """Never answers initialize."""
    def initialize(self, rid, params):
        pass


@fault
class silent_probe(Server):
    """Never answers a method that it does not know."""
    def unknown(self, rid, method):
        pass


@fault
class exits_on_unknown(Server):
    """Exits with code 3 on a method that it does not know."""
    def unknown(self, rid, method):
        sys.exit(3)


# how it lives and dies

@on_call
def exits_with_0(server, rid, text):
    """Exits with code 0 instead of an answer."""
    sys.exit(0)


@on_call
def segfault(server, rid, text):
    """Dies of a signal, after a line on stderr."""
    sys.stderr.write("about to crash\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGSEGV)


@on_call
def last_words(server, rid, text):
    """The last answer has no newline, then it exits."""
    raw(dump(server.result(rid, text)))
    os._exit(0)


@on_call
def closes_stdout(server, rid, text):
    """Closes its stdout and lives on."""
    os.close(1)


@on_call
def closes_stdin(server, rid, text):
    """Closes its stdin after it has answered, and lives on."""
    server.send(server.result(rid, text))
    os.close(0)
    time.sleep(300)


@on_call
def stops(server, rid, text):
    """Stops itself (SIGSTOP) instead of an answer."""
    os.kill(os.getpid(), signal.SIGSTOP)


@on_call
def spins(server, rid, text):
    """Computes for ever instead of an answer."""
    while True:
        pass


@fault
class stubborn(Server):
    """Ignores TERM and the end of its stdin."""
    def start(self):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def run(self):
        super().run()
        time.sleep(300)


@fault
class no_stderr(Server):
    """Closes its stderr at the start."""
    def start(self):
        os.close(2)


@fault
class helper_on_stdout(Server):
    """Starts a helper that prints to the same stdout."""
    def start(self):
        code = "import time\nfor i in range(100): print('helper', i, flush=True); time.sleep(0.01)"
        subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.DEVNULL)


@on_call
def notification_flood(server, rid, text):
    """20,000 notifications before the answer."""
    note = dump({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "n"}})
    raw((note + b"\n") * 20000)
    server.send(server.result(rid, text))


@on_call
def endless_line(server, rid, text):
    """80 MB without a newline, then the answer."""
    for _ in range(80):
        raw(b"z" * 1000000)
    raw(b"\n")
    server.send(server.result(rid, text))


@on_call
def writes_from_two_threads(server, rid, text):
    """A second thread logs lines to stdout while the answer is written."""
    thread = threading.Thread(target=lambda: raw(b"tick\n" * 1000))
    thread.start()
    thread.join()
    server.send(server.result(rid, text))


@on_call
def slow_reader(server, rid, text):
    """Reads nothing for 2 s after it has got a call, then answers."""
    time.sleep(2)
    server.send(server.result(rid, text))


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        for name in FAULTS:
            print(name, "-", (FAULTS[name].__doc__ or "").strip())
    else:
        signal.alarm(600)  # a forgotten fixture ends by itself
        FAULTS[sys.argv[1]]().run()
