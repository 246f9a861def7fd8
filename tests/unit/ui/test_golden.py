"""Rendered text against the files in tests/golden/ui; `make golden` writes them anew."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpiac.model.action import Action
from mcpiac.model.change import Change, FieldChange
from mcpiac.model.diagnostic import Diagnostic, Excerpt, Origin
from mcpiac.model.event import (
    ActionDone,
    ActionFailed,
    ActionProgress,
    ActionRetrying,
    ActionSkipped,
    ActionStarted,
    Event,
    RunFinished,
    RunStarted,
)
from mcpiac.model.plan import Plan
from mcpiac.model.record import HostedRecord, ServerRecord, State
from mcpiac.ui import diagnostics, json_lines, markdown, progress, report, status, text, verify
from mcpiac.ui.screen import Screen

GOLDEN = Path(__file__).parents[2] / "golden" / "ui"
EVIL = "\x1b[31m\u202eevil\r\n::set-output name=a::b <b>|`x`@you"


def action(server: str, verb: str, summary: str = "", *after: str) -> Action:
    return Action(f"{server}.{verb}", server, verb, server, summary, after=after)  # type: ignore[arg-type]


HIDDEN = (FieldChange("hosted", True, False, drift=True),)
OLD_FILE = {"sha256": "ab" * 32, "bytes": 3}
NEW_FILE = {"sha256": "cd" * 32, "bytes": 5}
LONG = "a very long label value that does not fit on one line of eighty"
CREATE = "small · none of your environment · secret FILES_SERVER_TOKEN · no ttl · egress none"
BUSY = Plan(
    id="p1",
    stack="demo",
    provider="local",
    lineage="l" * 32,
    base_serial=12,
    stack_digest="d",
    created_at="2026-11-30T06:00:00+00:00",
    live_seconds=0.094,
    running=2,
    changes=(
        Change("clock", "update", "port 8000 is no longer hosted", HIDDEN, drift=True),
        Change(
            "everything",
            "update",
            "idle and secrets changed",
            (FieldChange("idle", 60, 1), FieldChange("secrets.EVERYTHING_SERVER_TOKEN", secret=True)),
        ),
        Change("files", "create", "not recorded yet"),
        Change("legacy", "delete", "no longer declared"),
        Change("moved", "move", "moved from old", moved_from="old"),
        Change("quiet", "noop"),
        Change("stuck", "blocked", "its sandbox could not be read: HTTP 503"),
        Change("swap", "replace", "--replace was given"),
        Change(
            "tuned",
            "update",
            "args, env and files changed",
            (
                FieldChange("args", ["a"], ["a", "b"]),
                FieldChange("env.LOG_LEVEL", "info", "debug"),
                FieldChange("files./home/user/a", OLD_FILE, NEW_FILE),
                FieldChange("labels", {}, {"team": LONG}),
            ),
        ),
    ),
    actions=(
        action("files", "create", CREATE),
        action("files", "exec", "npm:@modelcontextprotocol/server-filesystem 2026.8.31 · 1 file", "files.create"),
        action("files", "host", "port 8000, private", "files.exec"),
        action("files", "idle", "pause after 15 min", "files.host"),
        action("files", "check", "", "files.idle"),
        action("everything", "restart", "secret EVERYTHING_SERVER_TOKEN changed (about 2 s down)"),
        action("everything", "idle", "60 → 1 min", "everything.restart"),
        action("clock", "host", "port 8000, private: puts it back"),
        action("legacy", "delete", "sbx_1"),
        action("moved", "record", "was old"),
        action("swap", "create", "small"),
        action("tuned", "exec", "args, env, 1 file"),
    ),
    diagnostics=(Diagnostic("note", "secret-unset", "X has no value now", address="demo/files", hint="export X=…"),),
)  # fmt: skip
QUIET = Plan(
    id="p2",
    stack="demo",
    provider="local",
    lineage="l" * 32,
    base_serial=12,
    stack_digest="d",
    created_at="2026-11-30T06:00:00+00:00",
    running=2,
    paused=1,
    changes=(Change("a", "noop"), Change("b", "noop"), Change("c", "noop")),
)
HOSTILE = Plan(
    id="p3",
    stack="demo",
    provider="local",
    lineage="l" * 32,
    base_serial=1,
    stack_digest="d",
    created_at="2026-11-30T06:00:00+00:00",
    changes=(Change("files", "update", EVIL, (FieldChange("env.X", EVIL, "b"), FieldChange("title", "", EVIL))),),
    actions=(action("files", "exec", EVIL),),
    diagnostics=(Diagnostic("warning", "told", EVIL, EVIL, "demo/files", hint=EVIL),),
)
FINDINGS = (
    Diagnostic(
        "error",
        "unknown-key",
        "`idel` is not a key of a server",
        origin=Origin("stacks/demo.yaml", 9, 5),
        excerpt=Excerpt("    idel: 15", 4),
        hint="did you mean `idle`?",
    ),
    Diagnostic(
        "error",
        "literal-secret",
        "API_KEY holds a value, not a place to get it from",
        origin=Origin("stacks/demo.yaml", 17, 25),
        excerpt=Excerpt("    secrets: {API_KEY: ••••", 4, 24),
        hint="put the value into the environment and write: env:API_KEY",
    ),
    Diagnostic(
        "error",
        "provider-rejected",
        "the package npm:@modelcontextprotocol/server-filesystm 2026.8.31 does not exist",
        "the registry answered 404. Nearest name: @modelcontextprotocol/server-filesystem\n"
        "created so far and kept: sandbox sbx_3k9 (recorded).",
        "demo/files",
        hint="Fix the stack and run `mcpiac apply` again.",
    ),
    Diagnostic("warning", "secret-file-open", "A: the file a.txt can be read by other users", hint="chmod 600 a.txt"),
    Diagnostic("note", "one", "a first short note"),
    Diagnostic("note", "two", "a second one"),
)
EVENTS: tuple[Event, ...] = (
    RunStarted("demo", "p1", BUSY.actions[:4] + BUSY.actions[5:7], 1.0),
    ActionStarted("demo", BUSY.actions[0], 1.0),
    ActionDone("demo", BUSY.actions[0], 0.04, "sbx_1", 1.04),
    ActionStarted("demo", BUSY.actions[1], 1.04),
    ActionProgress("demo", BUSY.actions[1], "npm: added 93 packages", 1.5),
    ActionRetrying("demo", BUSY.actions[5], 1, 0.4, "HTTP 503 from the service\nand more", 1.6),
    ActionFailed("demo", BUSY.actions[1], 2.1, FINDINGS[2], False, 3.1),
    ActionSkipped("demo", BUSY.actions[2], "files.exec failed", 3.1),
    ActionSkipped("demo", BUSY.actions[3], "files.exec failed", 3.1),
    ActionDone("demo", BUSY.actions[5], 1.9, "", 3.2),
    ActionDone("demo", BUSY.actions[6], 0.004, "", 3.2),
    RunFinished("demo", 3, 1, 2, False, 2.2, 3.2),
)


def state() -> State:
    def server(name: str, port: int, access: str = "private") -> ServerRecord:
        hosted = HostedRecord(8000, f"http://127.0.0.1:{port}", access, True)
        return ServerRecord(name, {}, name.upper(), 8000, hosted)

    names = {"files": server("files", 18431), "everything": server("everything", 18432, "public")}
    return State("demo", "l" * 32, 13, servers=names)


def tally(events: tuple[Event, ...] = EVENTS, plan: Plan = BUSY) -> report.Tally:
    made = report.Tally(plan)
    for event in events:
        made.take(event)
    return made


def lines_of_a_run() -> str:
    import io

    err = io.StringIO()
    renderer = progress.Lines(Screen(io.StringIO(), err))
    for event in EVENTS:
        renderer(event)
    return err.getvalue().rstrip("\n")


def well() -> str:
    done = tuple(ActionDone("demo", a, 0.1, "", 1.0) for a in BUSY.actions)
    finished = RunFinished("demo", len(done), 0, 0, False, 6.3, 7.0)
    began = RunStarted("demo", "p1", BUSY.actions, 1.0)
    told = report.report([tally((began, *done, finished))], 6.31, "mcpiac apply")
    return f"{told}\n\n{report.urls([state()])}\n\n{report.CONNECT}"


def interrupted() -> str:
    skipped = tuple(ActionSkipped("demo", a, "interrupted", 1.0) for a in BUSY.actions[1:4])
    finished = RunFinished("demo", 1, 0, 3, True, 6.3, 7.0)
    return report.report([tally((EVENTS[0], EVENTS[2], *skipped, finished))], 6.31, "mcpiac apply demo")


HOST = "http://127.0.0.1"
ROWS = [
    status.Row("demo", "files", "running", "2026.8.31", f"{HOST}:18431/mcp", "private", 15, 720),
    status.Row("demo", "everything", "paused", "2026.8.31", f"{HOST}:18432/mcp", "private", 1, paused_for=10800),
    status.Row("demo", "clock", "error", "2026.10.19", error='exited with 1, restarted 5 times: "No module named x"',
               next="mcpiac logs clock"),
    status.Row("demo", "web", "running", None, f"{HOST}:18433/mcp", "public", None, ttl_left=28800,
               error="port 8000 is no longer hosted", next="mcpiac apply"),
    status.Row("other", "new", "not-applied", next="mcpiac apply"),
]  # fmt: skip


def cells(servers: int, broken: bool = False) -> list[verify.Cell]:
    from mcpiac.probe.verify import CHECKS

    made: list[verify.Cell] = [(c, f"server-{n}", "ok", "") for c in CHECKS for n in range(servers)]
    if broken:
        made[1] = (CHECKS[0], "server-1", "failed", "it is refused (HTTP 401)")
        made[-1] = (CHECKS[-1], f"server-{servers - 1}", "not-applicable", "")
    return made


CASES: dict[str, Callable[[], str]] = {
    "plan.txt": lambda: f"{text.plan(BUSY)}\n\n{text.totals([BUSY])}",
    "plan-colour.txt": lambda: text.plan(BUSY, colour=True),
    "plan-quiet.txt": lambda: text.joined([text.plan(QUIET), text.plan(QUIET)]),
    "plan-hostile.txt": lambda: text.plan(HOSTILE),
    "plan.md": lambda: markdown.plans([BUSY, QUIET]),
    "plan-hostile.md": lambda: markdown.plans([HOSTILE]),
    "plan.json": lambda: json_lines.plan(BUSY),
    "events.json": lambda: "\n".join(json_lines.event(e) for e in EVENTS),
    "diagnostics.txt": lambda: diagnostics.render(FINDINGS, closing="nothing was changed"),
    "diagnostics-hostile.txt": lambda: diagnostics.render(HOSTILE.diagnostics),
    "run-lines.txt": lines_of_a_run,
    "run-failed.txt": lambda: report.report([tally()], 2.2, "mcpiac apply demo"),
    "run-well.txt": well,
    "run-interrupted.txt": interrupted,
    "status.txt": lambda: status.table(ROWS, {"demo": "local", "other": "local"}),
    "verify.txt": lambda: verify.table(cells(2)),
    "verify-failed.txt": lambda: verify.table(cells(2, broken=True)),
    "verify-many.txt": lambda: verify.table(cells(9, broken=True)),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    shown = CASES[name]() + "\n"
    path = GOLDEN / name
    if os.environ.get("MCPIAC_GOLDEN") == "write":
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


def test_no_golden_file_is_left_over() -> None:
    assert {p.name for p in GOLDEN.iterdir()} == set(CASES)


@pytest.mark.parametrize(
    "name", ["plan.txt", "plan-quiet.txt", "run-lines.txt", "run-well.txt", "run-interrupted.txt", "verify-many.txt"]
)
def test_text_is_eighty_columns_wide(name: str) -> None:
    assert not [line for line in (GOLDEN / name).read_text(encoding="utf-8").splitlines() if len(line) > 80]


@pytest.mark.parametrize("name", [n for n in CASES if "colour" not in n])
def test_nothing_acts(name: str) -> None:
    shown = (GOLDEN / name).read_text(encoding="utf-8")
    assert not [
        c for c in shown if c != "\n" and (ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0x202A <= ord(c) <= 0x202E)
    ]
    assert not [line for line in shown.splitlines() if line.strip().startswith("::")]


def test_json_is_one_object_a_line() -> None:
    for name in ("plan.json", "events.json"):
        for line in (GOLDEN / name).read_text().splitlines():
            assert json.loads(line)["version"] == 1
