"""The bridge's figures beside its peers': start, memory, latency, calls a second, growth.

    python tests/bridge/figures.py [--quick] [--markdown FILE]

Environment as for `trial.py`. Every figure is of this machine at this moment: medians, peers in the
same run. `--quick` leaves out the 10,000 sessions.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from tests.bridge.bridge_kit import SERVERS, Client, end_marked
from tests.bridge.trial import bridges, free_port

GOOD = [sys.executable, "-S", str(SERVERS / "good_legacy.py")]
ANSWERS = (
    r's/^.*"id": ?([0-9]+), ?"method": ?"initialize".*$/{"jsonrpc":"2.0","id":\1,"result":'
    r'{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"sed","version":"1"}}}/p;'
    r's/^.*"id": ?([0-9]+), ?"method": ?"tools.call".*$/{"jsonrpc":"2.0","id":\1,"result":{"content":[]}}/p'
)
TINY = ["sed", "-u", "-n", "-E", ANSWERS]  # a server that starts in a millisecond


@contextmanager
def running(make: Any, command: list[str]) -> Iterator[tuple[int, subprocess.Popen[bytes], float]]:
    """A bridge: its port, its process, seconds until it accepted a connection."""
    port, mark = free_port(), os.urandom(6).hex()
    started = time.perf_counter()
    process = subprocess.Popen(
        make(command, port),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "BRIDGE_TEST_MARK": mark},
        start_new_session=True,
    )
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 0.2).close()
                break
            except OSError:
                if process.poll() is not None or time.perf_counter() - started > 20:
                    raise RuntimeError("does not start") from None
                time.sleep(0.001)
        yield port, process, time.perf_counter() - started
    finally:
        process.terminate()
        try:
            process.wait(8)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        end_marked(mark)


def tree(pid: int) -> list[int]:
    found = [pid]
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found += tree(int(child))
    return found


def is_server(pid: int, command: list[str]) -> bool:
    """The server itself, or a shell around it; or it has just ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    except OSError:
        return True
    return words == command or words[:2] == ["/bin/sh", "-c"]


def memory(pid: int, command: list[str]) -> tuple[float, float]:
    """(largest resident, sum of proportional) MiB of the bridge's own processes."""
    resident, proportional = 0.0, 0.0
    for process in tree(pid):
        if is_server(process, command):
            continue
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            if line.startswith("Rss:"):
                resident = max(resident, int(line.split()[1]) / 1024)
            elif line.startswith("Pss:"):
                proportional += int(line.split()[1]) / 1024
    return resident, proportional


def bare(calls: int) -> float:
    """Median seconds of a call over the server's own stdio."""
    server = subprocess.Popen(GOOD, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None
    assert server.stdout is not None
    times = []
    for number in range(calls + 1):
        method = "tools/call" if number else "initialize"
        params = {"name": "echo", "arguments": {"text": "x"}}
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        started = time.perf_counter()
        server.stdin.write(json.dumps(message).encode() + b"\n")
        server.stdin.flush()
        json.loads(server.stdout.readline())
        times.append(time.perf_counter() - started)
    server.stdin.close()
    server.wait()
    return statistics.median(times[1:])


def raw_latency(port: int, calls: int) -> float:
    client = Client(port)
    client.initialize()
    times = []
    for number in range(calls):
        started = time.perf_counter()
        client.echo("x", number + 1)
        times.append(time.perf_counter() - started)
    client.close()
    return statistics.median(times)


async def sdk_latency(target: Any, calls: int) -> float:
    """The official SDK: over a URL, or over stdio where `target` is its parameters."""
    from mcp.client.client import Client as SDK

    times = []
    async with SDK(target, mode="legacy") as client:
        for _ in range(calls):
            started = time.perf_counter()
            await client.call_tool("echo", {"text": "x"})
            times.append(time.perf_counter() - started)
    return statistics.median(times)


async def throughput(port: int, sessions: int, seconds: float) -> float:
    """Calls a second over `sessions` sessions, each with one call at a time on its own connection."""
    opened = []
    for _ in range(sessions):
        client = Client(port)
        await asyncio.to_thread(client.initialize)
        client.close()
        opened.append(client.session)
    done = 0
    end = time.perf_counter() + seconds

    async def one(sid: str) -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}'
        head = (
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\n"
            f"Content-Type: application/json\r\nMcp-Session-Id: {sid}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        data = head.encode() + body
        while time.perf_counter() < end:
            writer.write(data)
            got = await reader.readuntil(b"\r\n\r\n")
            length = int(got.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            done += 1
        writer.close()

    started = time.perf_counter()
    await asyncio.gather(*(one(sid) for sid in opened))
    return done / (time.perf_counter() - started)


def many_sessions(make: Any, count: int) -> list[tuple[int, float, float]]:
    """(sessions so far, resident, proportional MiB) as sessions come, call once and go."""
    rows = []
    with running(make, TINY) as (port, process, _):
        for number in range(1, count + 1):
            client = Client(port)
            client.initialize()
            assert client.echo("x", 1)["result"] == {"content": []}
            assert client.delete() == 200
            client.close()
            if number in (100, 1000) or number % 2500 == 0:
                rows.append((number, *memory(process.pid, TINY)))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--markdown")
    parser.add_argument("--calls", type=int, default=1000)
    options = parser.parse_args()
    from mcp.client.stdio import StdioServerParameters, stdio_client

    plain = bare(options.calls)
    parameters = StdioServerParameters(command=GOOD[0], args=GOOD[1:])
    sdk_plain = asyncio.run(sdk_latency(stdio_client(parameters), options.calls))
    lines = [
        "| | start | resident (largest process) | proportional (all its processes) | call, raw client "
        "| added | call, SDK 2.3 | added |",
        "|---|---|---|---|---|---|---|---|",
        f"| bare stdio | – | – | – | {plain * 1e3:.2f} ms | – | {sdk_plain * 1e3:.2f} ms | – |",
    ]
    makers = bridges()
    for name, make in makers.items():
        starts = []
        for _ in range(9):
            with running(make, GOOD) as (_, _, seconds):
                starts.append(seconds)
        with running(make, GOOD) as (port, process, _):
            raw = raw_latency(port, options.calls)
            sdk = asyncio.run(sdk_latency(f"http://127.0.0.1:{port}/mcp", options.calls))
            resident, proportional = memory(process.pid, GOOD)
        lines.append(
            f"| {name} | {statistics.median(starts) * 1e3:.0f} ms | {resident:.1f} MiB | {proportional:.1f} MiB "
            f"| {raw * 1e3:.2f} ms | {(raw - plain) * 1e3:.2f} ms "
            f"| {sdk * 1e3:.2f} ms | {(sdk - sdk_plain) * 1e3:.2f} ms |"
        )
        print(lines[-1], flush=True)
    ours = makers["mcpiac-bridge"]
    with running(ours, GOOD) as (port, _, _):
        rate = asyncio.run(throughput(port, 50, 10))
    lines += ["", f"50 sessions, one call at a time each: {rate:.0f} calls/s."]
    if not options.quick:
        lines += ["", "| sessions so far | resident | proportional |", "|---|---|---|"]
        lines += [f"| {n} | {r:.1f} MiB | {p:.1f} MiB |" for n, r, p in many_sessions(ours, 10_000)]
    text = "\n".join(lines)
    print(text)
    if options.markdown:
        Path(options.markdown).write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
