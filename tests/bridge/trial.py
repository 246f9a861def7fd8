"""Every misbehaving server through every bridge and client: the table of `docs/bridge.md`.

    python tests/bridge/trial.py [--only NAME] [--bridge NAME] [--json FILE] [--markdown FILE]

The peers and further SDKs run where they are found: MCPIAC_TRIAL_NODE_MODULES (supergateway,
mcp-proxy, @modelcontextprotocol/sdk), MCPIAC_TRIAL_PYPI_PROXY (the PyPI mcp-proxy program),
MCPIAC_TRIAL_SDK1 (an interpreter with mcp 1.x). Exits with 1 when our own bridge does not do what is
expected of it.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from tests.bridge.bridge_kit import SERVERS, Client, end_marked, marked

from mcpiac.bridge.build import build_zipapp

HERE = Path(__file__).parent
TEXT = "h\u00e9llo \u2713"
SECONDS = 10.0
SLOW = {"slow_start": 40.0, "slow_answers": 20.0, "silent_initialize": 40.0, "notification_flood": 40.0}
SHARED = [
    "good_legacy",
    "good_modern",
    "good_dual",
    "banner_first",
    "big_one_line",
    "crlf",
    "dies_at_start",
    "echo_argv",
    "exit_on_third_call",
    "grandchild",
    "leaks_env",
    "lists_inbox",
    "needs_tty",
    "progress",
    "slow_answers",
    "slow_start",
    "stderr_flood",
]
# What our bridge must do with a server whose call cannot be answered: an error that says why.
ERRORS = {
    "dies_at_start": "missing API key",
    "needs_tty": "must be run from a terminal",
    "nan": "broken",
    "broken_json": "broken",
    "deep": "broken",
    "null_id_error": "boom",
    "no_id_error": "boom",
    "wrong_id": "no answer from the server within",
    "exits_with_0": "exit 0",
    "segfault": "SIGSEGV",
    "closes_stdout": "closed its stdout",
    "stops": "no answer from the server within",
    "spins": "no answer from the server within",
    "refuses_initialize": "no licence key",
    "silent_initialize": "no answer from the server within",
}
# Where a client of ours is known to refuse what the server itself says.
CLIENT_REFUSES = {
    "unknown_version": {"py2 auto", "py2 legacy", "py1", "ts1"},
    "big_after_progress": {"py2 auto", "py2 legacy"},  # no event over 1 MiB, where the answer comes late
    "lone_surrogate": {"py2 auto", "py2 legacy", "py1"},  # not JSON to them
    "many_digits": {"py2 auto", "py2 legacy", "py1"},
    "last_words": {"py2 auto", "py2 legacy", "py1"},  # they list the tools after the call
    "closes_stdin": {"py2 auto", "py2 legacy", "py1"},
}
# What must stand in the answer as the server wrote it; the raw client looks.
EXACT = {
    "big_number": ('"n":9007199254740993', '"f":1.10'),
    "lone_surrogate": ("\\ud800",),
    "many_digits": ("7" * 10000,),
}
NOT_ECHO = {"echo_argv", "lists_inbox", "big_one_line"}  # their fault is another text


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def server_command(name: str) -> list[str]:
    path = SERVERS / f"{name}.py"
    if path.exists():
        return [sys.executable, "-S", str(path)]
    return [sys.executable, "-S", str(SERVERS / "faults.py"), name]


def bridges() -> dict[str, Any]:
    """Name -> function from (server command, port) to argv."""
    pyz = Path(tempfile.mkdtemp(prefix="trial-")) / "mcpiac-bridge.pyz"
    pyz.write_bytes(build_zipapp())  # what ships, and no edit of the sources changes a run
    found: dict[str, Any] = {
        "mcpiac-bridge": lambda command, port: [
            *(sys.executable, str(pyz), "--port", str(port), "--call-timeout", "5"),
            *("--start-timeout", "20", "--probe-timeout", "4", "--", *command),
        ]
    }
    modules = os.environ.get("MCPIAC_TRIAL_NODE_MODULES")
    node = os.environ.get("MCPIAC_TRIAL_NODE", "node")
    if modules:
        gateway, proxy = f"{modules}/supergateway/dist/index.js", f"{modules}/.bin/mcp-proxy"
        found["supergateway"] = lambda command, port: [
            *(node, gateway, "--stdio", shlex.join(command), "--outputTransport", "streamableHttp"),
            *("--stateful", "--logLevel", "none", "--port", str(port)),
        ]
        found["npm mcp-proxy"] = lambda command, port: [
            *(node, proxy, "--port", str(port), "--host", "127.0.0.1", "--server", "stream"),
            *("--requestTimeout", "5000", "--connectionTimeout", "20000", "--", *command),
        ]
    pypi = os.environ.get("MCPIAC_TRIAL_PYPI_PROXY")
    if pypi:
        found["PyPI mcp-proxy"] = lambda command, port: [pypi, "--port", str(port), "--", *command]
    return found


def clients() -> dict[str, Any]:
    """Name -> function from (URL, seconds) to argv; raw runs in this process."""
    python = str(HERE / "trial_client.py")
    found: dict[str, Any] = {
        "raw": None,
        "py2 auto": lambda url, s: [sys.executable, python, url, str(s), "auto"],
        "py2 legacy": lambda url, s: [sys.executable, python, url, str(s), "legacy"],
    }
    if os.environ.get("MCPIAC_TRIAL_SDK1"):
        found["py1"] = lambda url, s: [os.environ["MCPIAC_TRIAL_SDK1"], python, url, str(s), "v1"]
    modules = os.environ.get("MCPIAC_TRIAL_NODE_MODULES")
    if modules:
        node = os.environ.get("MCPIAC_TRIAL_NODE", "node")
        script = str(HERE / "trial_client.mjs")
        found["ts1"] = lambda url, s: [node, script, url, str(s), f"{modules}/@modelcontextprotocol/sdk"]
    return found


def raw_round(port: int, seconds: float, name: str) -> str:
    client = Client(port, timeout=seconds)
    try:
        answer = client.initialize()
        if "error" in answer:
            return "error " + answer["error"]["message"]
        params = {"name": "echo", "arguments": {"text": TEXT}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        text = client.send(call)[2][-1]
        answer = json.loads(text)
        if "error" in answer:
            return "error " + answer["error"]["message"]
        client.delete()
        if not all(part in text for part in EXACT.get(name, ())):
            return "changed"
        return "ok" if answer["result"]["content"][0]["text"].startswith(TEXT) else "wrong"
    except TimeoutError:
        return "hang"
    except Exception as exc:
        return f"error {type(exc).__name__}: {exc}"
    finally:
        client.close()


def one(bridge: str, make: Any, name: str, client: str, run: Any) -> tuple[str, str, str, list[str]]:
    """A fresh bridge, one client, two rounds."""
    seconds = SLOW.get(name, SECONDS)
    port = free_port()
    mark = os.urandom(6).hex()
    environment = {**os.environ, "BRIDGE_TEST_MARK": mark}
    process = subprocess.Popen(
        make(server_command(name), port),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 25
        while time.monotonic() < deadline and process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 0.2).close()
                break
            except OSError:
                time.sleep(0.05)
        else:
            return bridge, name, client, ["does not start", "does not start"]
        if run is None:
            rounds = [raw_round(port, seconds, name), raw_round(port, seconds, name)]
        else:
            done = subprocess.run(
                run(f"http://127.0.0.1:{port}/mcp", seconds),
                capture_output=True,
                text=True,
                timeout=2 * seconds + 20,
            )
            rounds = json.loads(done.stdout.splitlines()[-1]) if done.stdout else ["error " + done.stderr[-200:]] * 2
    except subprocess.TimeoutExpired:
        rounds = ["hang", "hang"]
    finally:
        process.terminate()
        try:
            process.wait(8)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        if marked(mark):
            time.sleep(1)  # a moment for what is on its way out
        if marked(mark):
            rounds = [*rounds, "leaves processes"]
        end_marked(mark)
    return bridge, name, client, rounds


def verdict(name: str, client: str, rounds: list[str]) -> str:
    """short word for the table: ok, error (says why), no reason, wrong, hang."""
    first, second = (_word(name, r) for r in rounds[:2])
    word = first if first == second else f"{first}, then {second}"
    return ", ".join([word, *rounds[2:]])


def _word(name: str, outcome: str) -> str:
    if name in NOT_ECHO and outcome == "wrong":
        return "ok"
    if not outcome.startswith("error"):
        return outcome
    wanted = ERRORS.get(name)
    if wanted is None:
        return "fails"
    return "says why" if wanted in outcome else "fails"


def expected(name: str, client: str, word: str) -> bool:
    if client in CLIENT_REFUSES.get(name, ()):
        return client == "py1" or "hang" not in word  # 1.x waits for ever on an answer it cannot parse
    return word == ("says why" if name in ERRORS else "ok")


def faults() -> list[tuple[str, str]]:
    """(name, what is wrong) of every server."""
    rows = []
    for name in SHARED:
        text = (SERVERS / f"{name}.py").read_text().split('"""')[1].splitlines()[0]
        rows.append((name, text.removeprefix("MCP stdio test server: ")))
    listed = subprocess.run(
        [sys.executable, str(SERVERS / "faults.py"), "--list"], capture_output=True, text=True, check=True
    )
    return rows + [tuple(line.split(" - ", 1)) for line in listed.stdout.splitlines()]  # type: ignore[misc]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append")
    parser.add_argument("--bridge", action="append")
    parser.add_argument("--client", action="append")
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    options = parser.parse_args()
    sys.set_int_max_str_digits(0)
    rows = [row for row in faults() if not options.only or row[0] in options.only]
    todo = []
    makers = bridges()
    for bridge, make in makers.items():
        if options.bridge and bridge not in options.bridge:
            continue
        for client, run in clients().items():
            if options.client and client not in options.client:
                continue
            if bridge == "mcpiac-bridge" or client in ("raw", "py2 auto"):
                todo += [(bridge, make, name, client, run) for name, _ in rows]
    results: dict[str, dict[str, dict[str, list[str]]]] = {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for bridge, name, client, rounds in pool.map(lambda job: one(*job), todo):
            results.setdefault(name, {}).setdefault(bridge, {})[client] = rounds
    bad = 0
    for name, _ in rows:
        for client, rounds in results.get(name, {}).get("mcpiac-bridge", {}).items():
            if not expected(name, client, verdict(name, client, rounds)):
                bad += 1
                print(f"NOT AS EXPECTED {name} / {client}: {rounds}")
    print(f"{len(todo)} runs; {bad} of ours not as expected")
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1))
    if options.markdown:
        Path(options.markdown).write_text(markdown(rows, results, list(makers)))
    return 1 if bad else 0


def markdown(rows: list[tuple[str, str]], results: Any, names: list[str]) -> str:
    lines = ["| server | what is wrong | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for name, text in rows:
        cells = []
        for bridge in names:
            by_client = {c: verdict(name, c, r) for c, r in results.get(name, {}).get(bridge, {}).items()}
            words = sorted(set(by_client.values()))
            if len(words) == 1:
                cells.append(words[0])
            else:
                cells.append("; ".join(f"{c}: {w}" for c, w in by_client.items()))
        lines.append(f"| {name} | {text} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
