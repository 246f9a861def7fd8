#!/usr/bin/env python3
"""MCP stdio test server: starts one child in a session of its own and one that is orphaned; all ignore TERM.

Standard library only. Answers initialize, ping, tools/list and tools/call of
one tool, `echo`, correctly apart from what is said above.
"""
import json
import os
import signal
import subprocess
import sys

NAME = "daemonizes"
VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
TOOL = {
    "name": "echo",
    "description": "Returns its text argument.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    },
}


def write(text):
    sys.stdout.buffer.write(text.encode("utf-8"))
    sys.stdout.buffer.flush()


def send(message):
    write(json.dumps(message, ensure_ascii=False, separators=(",", ":")) + "\n")


def result(rid, value):
    send({"jsonrpc": "2.0", "id": rid, "result": value})


def error(rid, code, message):
    send({"jsonrpc": "2.0", "id": rid, "error": {"code": code, "message": message}})


def echo(rid, params):
    text = str((params.get("arguments") or {}).get("text", ""))
    result(rid, {"content": [{"type": "text", "text": text}]})


def handle(message):
    method = message.get("method")
    if method is None or "id" not in message:
        return
    rid = message["id"]
    params = message.get("params") or {}
    if method == "initialize":
        asked = params.get("protocolVersion")
        result(rid, {
            "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": NAME, "version": "1"},
        })
    elif method == "ping":
        result(rid, {})
    elif method == "tools/list":
        result(rid, {"tools": [TOOL]})
    elif method == "tools/call":
        if params.get("name") == "echo":
            echo(rid, params)
        else:
            error(rid, -32602, "unknown tool")
    else:
        error(rid, -32601, "method not found: %s" % method)


def main():
    signal.alarm(600)  # a forgotten fixture ends by itself
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"
    subprocess.Popen([sys.executable, "-c", stubborn], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-c", stubborn])
        os._exit(0)
    os.wait()
    for raw in sys.stdin.buffer:
        if not raw.strip():
            continue
        try:
            message = json.loads(raw)
        except ValueError:
            error(None, -32700, "parse error")
            continue
        handle(message)


if __name__ == "__main__":
    main()
