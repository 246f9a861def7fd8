"""Rules over several keys of one server, and over all servers of a stack. Pure: nothing is opened here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mcpiac.model import destination
from mcpiac.model.spec import Registry
from mcpiac.stack import grammar, looks
from mcpiac.stack.compose import Map
from mcpiac.stack.faults import nearest
from mcpiac.stack.finding import Finding, Path
from mcpiac.stack.grammar import Bad
from mcpiac.stack.looks import shown
from mcpiac.stack.package import newest, parse_name, parse_version
from mcpiac.stack.schema import SERVER, Server

MOST_VARIABLES = 100
"""Names that a sandbox's environment holds, by the service's API; one of them is our owner marker."""

CONTENT_LARGEST = 1_048_576
"""Bytes of one file."""

_ITEM = re.compile(r"(args|command)\[([0-9]{1,6})\]\Z")
_IGNORABLE = frozenset(SERVER.keys) - {"lifecycle"}


@dataclass(frozen=True, slots=True)
class Case:
    """One server to look at.

    ``own``: what its own mapping says, before the defaults. ``broken``: keys whose value was refused already; there
    ``part`` holds the key's default.
    """

    name: str
    own: Any
    part: Server
    broken: frozenset[str] = frozenset()

    @property
    def path(self) -> Path:
        return ("servers", self.name)

    @property
    def secrets(self) -> Iterable[str]:
        """The names of its secrets, also of those whose source is wrong."""
        written = self.own.get("secrets") if isinstance(self.own, Map) else None
        return written if isinstance(written, Map) else self.part["secrets"]

    def says(self, key: str) -> bool:
        """Whether the server itself, not the defaults, gives this key a value."""
        return isinstance(self.own, Map) and self.own.get(key) not in (None, {}, [])


def check(case: Case) -> Iterator[Finding]:
    """All that is wrong with one server beyond the shape of its keys."""
    for rule in _RULES:
        yield from rule(case)


def _program(case: Case) -> Iterator[Finding]:
    part, path = case.part, case.path
    if case.broken & {"package", "command"}:
        return
    if part["package"] is not None and part["command"] is not None:
        summary = "a server has a `package` or a `command`, not both"
        yield Finding("package-and-command", summary, (*path, "command"), "remove one of the two", on="key")
    elif part["package"] is None and part["command"] is None:
        hint = "write: package: npm:NAME and version: 1.2.3, or command: [program, argument]"
        yield Finding(
            "no-program", f"the server `{case.name}` has neither a package nor a command", path, hint, on="key"
        )


def _version(case: Case) -> Iterator[Finding]:
    part, path = case.part, case.path
    if "version" in case.broken or "package" in case.broken:
        return
    if part["package"] is None:
        if part["version"] is not None:
            summary = "a `version` without a `package`"
            yield Finding(
                "version-without-package", summary, (*path, "version"), "remove it, or name a package", on="key"
            )
        return
    if part["version"] is None:
        hint = f"look the newest one up and write it out: {newest(*parse_name(part['package'])[:2])}"
        yield Finding("missing-version", "a package needs its exact `version`", (*path, "package"), hint, on="key")
        return
    registry, name, _ = parse_name(part["package"])
    yield from _bad((*path, "version"), lambda: parse_version(registry, name, part["version"] or ""))


def _bridge(case: Case) -> Iterator[Finding]:
    part, path = case.part, (*case.path, "bridge")
    if part["bridge"] is None or "bridge" in case.broken:
        return
    if part["transport"] == "http" and "transport" not in case.broken and case.says("bridge"):
        summary = "a server with `transport: http` has no bridge"
        yield Finding("bridge-unused", summary, path, "remove `bridge`, or write: transport: stdio", on="key")
    version, name = part["bridge"]["version"], part["bridge"]["name"] or "mcpiac"
    if version is None:
        return
    if name == "mcpiac":
        summary = "the bridge `mcpiac` has the version of this program"
        yield Finding("bridge-version", summary, (*path, "version"), "leave `version` out", on="key")
        return
    bare = name.rpartition(":")[2]
    registry: Registry = "pypi" if name.startswith("pypi:") else "npm"
    yield from _bad((*path, "version"), lambda: parse_version(registry, bare, version))


def _build(case: Case) -> Iterator[Finding]:
    build, path = case.part["build"], (*case.path, "build", "hosts")
    if "build" in case.broken:
        return
    own = case.own.get("build") if isinstance(case.own, Map) else None
    inherited = isinstance(own, Map) and own.get("scripts") is False and not own.get("hosts")
    if build["hosts"] and not build["scripts"] and not inherited:
        summary = "`hosts` are for install scripts, and this server's do not run: nothing would use them"
        listed = ", ".join(build["hosts"])
        hint = f"write: build: {{scripts: true, hosts: [{listed}]}}, or leave `hosts` out"
        yield Finding("hosts-without-scripts", summary, path, hint, on="key")
    if len(build["hosts"]) > destination.MOST:
        summary = f"{len(build['hosts'])} hosts; a build has at most {destination.MOST}"
        yield Finding("too-many", summary, path, on="key")


def _variables(case: Case) -> Iterator[Finding]:
    part, path = case.part, case.path
    for name in part["env"]:
        if name in part["secrets"]:
            summary = f"{name} stands under `env` and under `secrets`"
            yield Finding("env-and-secret", summary, (*path, "env", name), "remove one of the two", on="key")
    if len(part["secrets"]) >= MOST_VARIABLES:
        summary = f"{len(part['secrets'])} secrets; a server has at most {MOST_VARIABLES - 1}"
        yield Finding("too-many", summary, (*path, "secrets"), on="key")


def _texts(case: Case) -> Iterator[tuple[Path, str]]:
    part, path = case.part, case.path
    for key, items in (("args", part["args"]), ("command", part["command"] or ())):
        for index, item in enumerate(items):
            if "${" in item:
                yield (*path, key, index), item
    for name, value in part["env"].items():
        if "${" in value:
            yield (*path, "env", name), value


def _references(case: Case) -> Iterator[Finding]:
    part = case.part
    for path, text in _texts(case):
        for inner in grammar.references(text):
            if inner is None:
                hint = "close it with }, or write $${ for the characters themselves"
                yield Finding("bad-reference", "`${` is never closed", path, hint)
            elif inner == "port":
                if part["transport"] != "http" and "transport" not in case.broken:
                    summary = "`${port}` needs `transport: http`: behind a bridge the port is the bridge's"
                    yield Finding("port-without-http", summary, path, "write: transport: http, or leave it out")
            elif inner.startswith("secret."):
                yield from _known_secret(inner.removeprefix("secret."), case.secrets, path)
            else:
                summary = f"`${{{shown(inner)}}}` is no reference"
                hint = "there are ${secret.NAME} and ${port}; $${ is the characters themselves"
                yield Finding("bad-reference", summary, path, hint)


def _on_command_line(case: Case) -> Iterator[Finding]:
    """What a program is started with is readable for all users of its machine (proc(5), ``/proc/pid/cmdline``), from
    outside of its sandbox too."""
    allowed = frozenset(case.part["allow_plain"])
    for path, text in _texts(case):
        item = f"{path[2]}[{path[3]}]"
        if path[2] == "env" or item in allowed:
            continue
        named = [inner.removeprefix("secret.") for inner in grammar.references(text) if inner]
        for name in dict.fromkeys(name for name in named if name in case.secrets):
            summary = f"once it runs, every user of its machine can read {name} on the server's command line (`ps`)"
            file = f'files: {{PATH: {{secret: {name}, mode: "0600"}}}}'
            hint = (
                f"the server has the variable {name} without it; a file of its own: {file}\n"
                f'if nobody else can log in there, write: allow_plain: ["{item}"]'
            )
            yield Finding("secret-on-command-line", summary, path, hint, severity="warning")


def _known_secret(name: str, secrets: Iterable[str], path: Path) -> Iterator[Finding]:
    if name in secrets:
        return
    near = _near_name(name, secrets)
    # What stands in a file's `secret:` may be the secret itself; a reference is shown with its line anyway.
    named = name if path[2] != "files" and looks.name_shown(name) else "NAME"
    hint = f"did you mean `{near}`?" if near else f"write under `secrets`: {named}: env:{named}"
    yield Finding("unknown-secret", "this server has no secret of that name", path, hint)


def _near_name(name: str, names: Iterable[str]) -> str | None:
    lowered = {n.lower(): n for n in names}
    near = nearest(name, lowered)
    return lowered[near] if near else None


def _files(case: Case) -> Iterator[Finding]:
    part = case.part
    for guest, file in part["files"].items():
        path = (*case.path, "files", guest)
        given = [
            key
            for key, value in (("content", file["content"]), ("from", file["from"]), ("secret", file["secret"]))
            if value is not None
        ]
        if len(given) != 1:
            said = " and ".join(f"`{g}`" for g in given) if given else "none of them"
            summary = f"a file has exactly one of `content`, `from` and `secret`; this has {said}"
            yield Finding(
                "file-source", summary, path, "write: {content: text}, {from: ./file} or {secret: NAME}", on="key"
            )
        if file["secret"] is not None:
            yield from _known_secret(file["secret"], case.secrets, (*path, "secret"))
        if file["content"] is not None:
            if len(file["content"].encode("utf-8", "surrogatepass")) > CONTENT_LARGEST:
                yield Finding("file-content-too-large", "a file has at most 1 MiB", (*path, "content"))
            elif looks.shaped(file["content"]):
                summary = "this content looks like it holds a secret, and plans and saved plans carry it"
                hint = "put the secret under `secrets` and write: {secret: NAME}"
                yield Finding("secret-in-file", summary, (*path, "content"), hint, severity="warning")
        parents = guest.split("/")
        for depth in range(3, len(parents)):
            above = "/".join(parents[:depth])
            if above in part["files"]:
                summary = f"{shown(above)} is declared as a file, so nothing can lie under it"
                yield Finding("file-in-file", summary, path, "change one of the two paths", on="key")


def _plain_secrets(case: Case) -> Iterator[Finding]:
    part, path = case.part, case.path
    allowed = frozenset(part["allow_plain"])
    for name, value in part["env"].items():
        if name not in allowed and looks.held_under(name, value):
            summary = f"{name} looks like a secret, and `env` is shown in plans"
            hint = f"write under `secrets`: {name}: env:{name}; if it is none: allow_plain: [{name}]"
            yield Finding("secret-in-env", summary, (*path, "env", name), hint)
    for key, items in (("args", part["args"]), ("command", part["command"] or ())):
        for index in looks.suspicious_arguments(items):
            if f"{key}[{index}]" not in allowed:
                summary = f"{key}[{index}] looks like a secret, and `{key}` is shown in plans"
                hint = f'under `secrets`, and here "${{secret.NAME}}"; if it is none: allow_plain: ["{key}[{index}]"]'
                yield Finding("secret-in-args", summary, (*path, key, index), hint)
    texts: list[tuple[Path, str]] = [(("title",), part["title"])]
    texts += [(("labels", name), value) for name, value in part["labels"].items()]
    for where, text in texts:
        if looks.secret_value(text):
            summary = "this looks like a secret, and is shown in plans"
            yield Finding("secret-in-text", summary, (*path, *where), "remove it")


def _allowances(case: Case) -> Iterator[Finding]:
    """Each entry of the server's own ``allow_plain`` names something; one of the defaults may not fit each server."""
    if not case.says("allow_plain") or case.broken & {"env", "args", "command", "allow_plain"}:
        return
    part = case.part
    for index, entry in enumerate(part["allow_plain"]):
        item = _ITEM.match(entry)
        known = entry in part["env"]
        if item:
            known = int(item[2]) < len((part["args"] if item[1] == "args" else part["command"]) or ())
        if not known:
            summary = f"`{shown(entry)}` names nothing that this server has"
            hint = "write a name of `env`, or args[N] or command[N], counted from 0"
            yield Finding("unknown-allowance", summary, (*case.path, "allow_plain", index), hint)


def _lifecycle(case: Case) -> Iterator[Finding]:
    path = (*case.path, "lifecycle")
    for index, key in enumerate(case.part["lifecycle"]["ignore"]):
        if key not in _IGNORABLE:
            near = nearest(key, _IGNORABLE)
            hint = f"did you mean `{near}`?" if near else "write keys of a server, such as: args"
            yield Finding(
                "unknown-key", f"`{shown(key)}` is not a key that can be ignored", (*path, "ignore", index), hint
            )


def _not_yet(case: Case) -> Iterator[Finding]:
    if case.says("tools") and case.part["tools"] == "warn":
        summary = "tools are not compared yet: this warns of nothing until a later version of mcpiac"
        yield Finding("later-version", summary, (*case.path, "tools"), "leave it out", severity="note")


def across(cases: Mapping[str, Case]) -> Iterator[Finding]:
    """Rules over all servers of a stack: where a server was moved from."""
    taken: dict[str, str] = {}
    for name, case in cases.items():
        old = case.part["lifecycle"]["moved_from"]
        if old is None:
            continue
        path: Path = (*case.path, "lifecycle", "moved_from")
        if old == name:
            yield Finding("move-to-itself", "a server is not moved from its own name", path, "remove `moved_from`")
        elif old in cases:
            summary = f"the server `{old}` is still declared, so nothing was moved from it"
            yield Finding("move-source-declared", summary, path, f"remove `{old}`, or `moved_from`")
        elif old in taken:
            summary = f"`{taken[old]}` was moved from `{old}` already"
            yield Finding("move-twice", summary, path, "one server has one new name")
        else:
            taken[old] = name


def _bad(path: Path, attempt: Callable[[], object]) -> Iterator[Finding]:
    try:
        attempt()
    except Bad as bad:
        yield Finding(bad.code, bad.summary, path, bad.hint, bad.detail)


_RULES: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    _program,
    _version,
    _bridge,
    _build,
    _variables,
    _references,
    _on_command_line,
    _files,
    _plain_secrets,
    _allowances,
    _lifecycle,
    _not_yet,
)
