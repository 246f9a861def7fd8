#!/usr/bin/env python3
"""MCP test server: has no fault; its tool `about` tells what it was started with. `--http` serves HTTP itself.

Standard library only. stdio, 2025-era handshake; or, with `--http` (loopback) or `--http-any` (every address),
plain JSON answers on PORT at any path. `about` answers a JSON object: argv, env, the process that started it
(which lives as long as the service), the files below its home (path -> [text, mode]), the limit on processes and its
version.
"""
import json
import os
import resource
import signal
import stat
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAME = "tells"
VERSION = "1"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
TOOL = {"name": "about", "description": "Tells what it was started with.", "inputSchema": {"type": "object"}}
HOME = "/home/user"


def about():
    files = {}
    for folder, folders, names in os.walk(HOME):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = os.path.join(folder, name)
            if name != "server.py":
                with open(path, encoding="utf-8", errors="replace") as file:
                    files[path] = [file.read(), "%04o" % stat.S_IMODE(os.stat(path).st_mode)]
    return {
        "argv": sys.argv[1:],
        "env": dict(os.environ),
        "parent": os.getppid(),
        "files": files,
        "processes": resource.getrlimit(resource.RLIMIT_NPROC)[0],
        "version": VERSION,
    }


def answer(message):
    """The response to one message, or None."""
    method = message.get("method")
    if method is None or "id" not in message:
        return None
    params = message.get("params") or {}
    if method == "initialize":
        asked = params.get("protocolVersion")
        value = {
            "protocolVersion": asked if asked in LEGACY else LEGACY[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": NAME, "version": VERSION},
        }
    elif method == "ping":
        value = {}
    elif method == "tools/list":
        value = {"tools": [TOOL]}
    elif method == "tools/call" and params.get("name") == "about":
        value = {"content": [{"type": "text", "text": json.dumps(about())}], "isError": False}
    else:
        fault = {"code": -32601, "message": "method not found: %s" % method}
        return {"jsonrpc": "2.0", "id": message["id"], "error": fault}
    return {"jsonrpc": "2.0", "id": message["id"], "result": value}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        told = answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        body = b"" if told is None else json.dumps(told).encode()
        self.send_response(202 if told is None else 200)
        if told is not None:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.send_response(405)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def main():
    signal.alarm(600)  # a forgotten fixture ends by itself
    for flag, host in (("--http", "127.0.0.1"), ("--http-any", "0.0.0.0")):
        if flag in sys.argv:
            ThreadingHTTPServer((host, int(os.environ["PORT"])), Handler).serve_forever()
    for raw in sys.stdin.buffer:
        if raw.strip():
            told = answer(json.loads(raw))
            if told is not None:
                sys.stdout.buffer.write(json.dumps(told).encode() + b"\n")
                sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
