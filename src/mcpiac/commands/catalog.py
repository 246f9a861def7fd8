"""The verbs: what each is for, and which module carries it out. Nothing here imports a command."""

from __future__ import annotations

GROUPS: dict[str, dict[str, str]] = {
    "The main job": {
        "init": "Start a project: a first stack, its schema, and a state folder that git ignores.",
        "validate": "Check stack files, reading no secret and asking nobody.",
        "plan": "Show what apply would change, and change nothing.",
        "apply": "Make the fleet as declared.",
        "destroy": "Take servers down: their sandboxes, disks and URLs.",
    },
    "The running fleet": {
        "status": "Show each server: state, version, idle, TTL and URL.",
        "output": "Show URLs and variables, for people and programs.",
        "env": "Print export lines with each server's token, for a shell.",
        "connect": "Print the entry for an MCP client, with variables in place of tokens.",
        "verify": "Prove on the running fleet that each server is kept apart.",
        "logs": "Show a server's log.",
        "exec": "Run a command inside a server's sandbox.",
    },
    "What is recorded": {
        "state": "Look at what is recorded, and change it by hand.",
        "adopt": "Record a live sandbox as a declared server's.",
        "unlock": "Take away a lock whose run is gone.",
    },
    "Tools": {
        "doctor": "Look for what this machine or project lacks, and say the cure.",
        "daemon": "Start, stop and look at the daemon of local sandboxes.",
        "fmt": "Lay stack files out in the house style, comments kept.",
        "schema": "Print the JSON Schema of stack files.",
        "completion": "Print the completion script for a shell.",
        "version": "Print the version.",
    },
}

VERBS: dict[str, str] = {verb: sentence for group in GROUPS.values() for verb, sentence in group.items()}

LATER = frozenset(
    (
        "show",
        "import",
        "run",
        "mcp",
        "secret",
        "rotate",
        "restart",
        "pause",
        "resume",
        "stop",
        "start",
        "lock",
        "outdated",
        "upgrade",
        "tools",
        "reconcile",
        "cost",
    )
)
"""Verbs that are designed and not built: typed, they say so; they are not listed."""
