"""The health page: whether the server can start, what it speaks, and counters."""

from __future__ import annotations

import json
from typing import Any

from .core import Core


def page(core: Core, sessions: int, living: int, stopping: bool) -> tuple[int, bytes]:
    """HTTP status and JSON body. 503 when the last child ended before it said anything, or stopping."""
    facts = core.facts
    failure = facts.failure
    if stopping:
        state = "stopping"
    elif failure is not None:
        state = "failing"
    elif facts.started:
        state = "ok"
    else:
        state = "untried"
    server: dict[str, Any] = {"started": facts.started, "modern": facts.modern, "handshake": facts.legacy}
    if failure is not None:
        server["failure"] = {"status": failure.status, "stderr": list(failure.stderr)}
    body = {
        "status": state,
        "server": server,
        "sessions": sessions,
        "children": living,
        "pending": sum(len(c.calls) for c in core.channels.values()),
        "counters": core.counters.as_dict(),
    }
    return (503 if state in ("failing", "stopping") else 200), json.dumps(body).encode()
