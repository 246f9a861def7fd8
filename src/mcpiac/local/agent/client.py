"""``mcpiac-service``: what systemctl is elsewhere, for whoever is inside the sandbox."""

from __future__ import annotations

import json
import socket
import sys

from .frames import SOCKET, decode, encode, length

USAGE = """usage: mcpiac-service set < service.json    define and start a service; the same one changes nothing
       mcpiac-service status [NAME] [--json]
       mcpiac-service restart|stop|remove NAME
"""


def ask(message: dict) -> dict:  # type: ignore[type-arg]
    """One request to the agent, and its answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(SOCKET)
        sock.sendall(encode(message))
        with sock.makefile("rb") as stream:
            return decode(stream.read(length(stream.read(4))))


def main(words: list[str]) -> int:
    """Exit code 0 done, 1 refused, 2 usage."""
    as_json = "--json" in words
    words = [word for word in words if word != "--json"]
    if words == ["set"]:
        try:
            answer = ask({"op": "service.put", "service": json.load(sys.stdin)})
        except ValueError as fault:
            answer = {"error": "bad_service", "message": f"stdin is not JSON: {fault}"}
    elif words and words[0] == "status" and len(words) <= 2:
        answer = ask({"op": "service.status"})
        if len(words) == 2 and "services" in answer:
            one = answer["services"].get(words[1])
            answer = {"services": {words[1]: one}} if one else {"error": "not_found", "message": "no such service"}
    elif len(words) == 2 and words[0] in ("restart", "stop", "remove"):
        answer = ask({"op": f"service.{words[0]}", "name": words[1]})
    else:
        sys.stderr.write(USAGE)
        return 2
    if "error" in answer:
        sys.stderr.write(f"mcpiac-service: {answer['message']}\n")
        return 1
    if as_json or "services" not in answer:
        print(json.dumps(answer))
        return 0
    for name, view in answer["services"].items():
        print(f"{name}  {view['state']}  pid {view['pid']}  restarts {view['restarts']}  {view['lastExit'] or ''}")
    return 0
