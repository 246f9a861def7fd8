"""Which requests are sent again after which fault, and how the rest is told: the table of the wire, from outside."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from tests.contract.conftest import KEY, Place
from tests.contract.server_process import ContractServer

from mcpiac.model.live import Found, Gone, Unreadable
from mcpiac.model.outcome import ProviderError
from mcpiac.model.secret import Secret
from mcpiac.model.spec import Egress
from mcpiac.providers import registry
from mcpiac.providers.api import Api, Pace
from mcpiac.providers.base import WireProvider
from mcpiac.providers.sandboxer import SandboxerProvider
from mcpiac.providers.sbx import Sbx

pytestmark = pytest.mark.anyio

QUICK = Pace(attempts=4, base=0.001, longest=0.002, starting=0.001, restoring=0.001, connect=2, read=0.5)
ATTEMPTS = QUICK.attempts


@pytest.fixture
def server(cloud: Place) -> ContractServer:
    assert cloud.server is not None
    return cloud.server


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
async def provider(server: ContractServer, waits: list[float], anyio_backend: str) -> AsyncIterator[WireProvider]:
    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    api = Api(f"{server.url}/api/v1", key=Secret(KEY), pace=QUICK, sleep=sleep)
    made = SandboxerProvider(api, registry.traits("sandboxer"), Sbx({}))
    async with made:
        yield made


@pytest.fixture
async def box(provider: WireProvider, server: ContractServer) -> str:
    id = (await create(provider)).id
    server.forget()
    return id


async def create(provider: WireProvider, key: str | None = None) -> Found:
    env = {"TOKEN": Secret("never-shown-secret")}
    return await provider.create(
        key=key or secrets.token_hex(8), size="small", ttl=None, env=env, egress=Egress("all")
    )


def sent(server: ContractServer, method: str, path: str) -> int:
    return sum(1 for r in server.requests() if r["method"] == method and r["path"].endswith(path))


STARTING = {"do": "status", "status": 409, "code": "sandbox_starting"}
RESTORING: dict[str, Any] = {
    "do": "status",
    "status": 503,
    "code": "sandbox_direct_failed",
    "message": "sandbox_restoring",
    "details": {"retryable": True},
}
DIRECT: dict[str, Any] = {**RESTORING, "message": "other"}
DIRECT_FOR_GOOD: dict[str, Any] = {**DIRECT, "details": {"retryable": False}}
THROTTLED: dict[str, Any] = {"do": "status", "status": 429, "code": "rate_limited", "headers": {"Retry-After": "7"}}
BROKEN = {"do": "status", "status": 500}
RESET = {"do": "reset"}
HANG = {"do": "hang", "seconds": 3}
CUT = {"do": "cut"}
GARBAGE = {"do": "garbage"}
IN_PROGRESS = {"do": "status", "status": 409, "code": "idempotency_in_progress"}
REFUSED = {"do": "status", "status": 400, "code": "invalid_timeout"}
DENIED = {"do": "status", "status": 403, "code": "forbidden"}
TOO_SMALL_PLAN = {"do": "status", "status": 403, "code": "machine_class_plan_required"}
UNPAID = {"do": "status", "status": 402, "code": "billing_required"}
NOT_READY = {"do": "status", "status": 409, "code": "sandbox_not_ready"}
NO_MACHINE = {"do": "status", "status": 503, "code": "no_ready_machine"}

Call = Callable[[WireProvider, str], Awaitable[Any]]
CALLS: dict[str, tuple[Call, str, str]] = {
    "get": (lambda p, id: p.get(id), "GET", ""),
    "create": (lambda p, id: create(p), "POST", "/sandboxes"),
    "command": (lambda p, id: p.run(id, "true", timeout=5), "POST", "/commands"),
    "stream": (lambda p, id: p.run(id, "true", timeout=5, progress=lambda _: None), "POST", "/commands"),
    "write": (lambda p, id: p.resume(id, env=None, size=None, ttl=None, timeout=5), "POST", "/resume"),
}

AGAIN: list[tuple[str, dict[str, Any]]] = [
    *(("get", fault) for fault in (RESET, HANG, CUT, GARBAGE, BROKEN, THROTTLED, STARTING, RESTORING, DIRECT)),
    *(("create", fault) for fault in (RESET, HANG, CUT, GARBAGE, BROKEN, THROTTLED, IN_PROGRESS, NO_MACHINE)),
    *(("command", fault) for fault in (STARTING, RESTORING, THROTTLED)),
    *(("stream", fault) for fault in (STARTING, RESTORING, THROTTLED)),
    *(("write", fault) for fault in (STARTING, RESTORING, DIRECT, THROTTLED)),
]

ONCE: list[tuple[str, dict[str, Any], str]] = [
    *(("command", fault, "in_doubt") for fault in (RESET, HANG, CUT, GARBAGE, BROKEN, DIRECT, DIRECT_FOR_GOOD)),
    *(("stream", fault, "in_doubt") for fault in (RESET, HANG, BROKEN, DIRECT)),
    ("create", STARTING, "transient"),
    ("get", DIRECT_FOR_GOOD, "conflict"),
    ("get", REFUSED, "rejected"),
    ("get", DENIED, "unauthorised"),
    ("create", TOO_SMALL_PLAN, "rejected"),
    ("create", UNPAID, "rejected"),
    ("command", NOT_READY, "conflict"),
    ("write", NOT_READY, "conflict"),
    ("write", NO_MACHINE, "transient"),
]


def ident(value: object) -> str | None:
    if isinstance(value, dict):
        return "-".join(str(v) for k, v in value.items() if k in ("do", "status", "code", "message"))
    return None


@pytest.mark.parametrize(("operation", "fault"), AGAIN, ids=ident)
async def test_it_is_sent_again(
    provider: WireProvider, server: ContractServer, box: str, operation: str, fault: dict[str, Any]
) -> None:
    call, method, path = CALLS[operation]
    server.fault(method=method, path=f"{path}$" if path else f"/{box}$", **fault)
    await call(provider, box)
    assert sent(server, method, path or box) == 2


@pytest.mark.parametrize(("operation", "fault", "kind"), ONCE, ids=ident)
async def test_it_is_not_sent_again(
    provider: WireProvider, server: ContractServer, box: str, operation: str, fault: dict[str, Any], kind: str
) -> None:
    call, method, path = CALLS[operation]
    server.fault(method=method, path=f"{path}$" if path else f"/{box}$", **fault)
    with pytest.raises(ProviderError) as told:
        await call(provider, box)
    assert told.value.kind == kind
    assert sent(server, method, path or box) == 1


@pytest.mark.parametrize(
    ("operation", "fault", "kind"),
    [
        ("get", BROKEN, "transient"),
        ("get", THROTTLED, "throttled"),
        ("create", BROKEN, "in_doubt"),
        ("create", RESET, "in_doubt"),
        ("create", THROTTLED, "throttled"),
        ("command", STARTING, "transient"),
        ("write", STARTING, "transient"),
    ],
    ids=ident,
)
async def test_it_gives_up_after_its_attempts(
    provider: WireProvider, server: ContractServer, box: str, operation: str, fault: dict[str, Any], kind: str
) -> None:
    call, method, path = CALLS[operation]
    server.fault(method=method, path=f"{path}$" if path else f"/{box}$", times=ATTEMPTS, **fault)
    with pytest.raises(ProviderError) as told:
        await call(provider, box)
    assert told.value.kind == kind
    assert sent(server, method, path or box) == ATTEMPTS


@pytest.mark.parametrize("fault", [RESET, BROKEN, HANG], ids=ident)
async def test_a_create_whose_answer_was_lost_makes_one_sandbox(
    provider: WireProvider, server: ContractServer, fault: dict[str, Any]
) -> None:
    key = secrets.token_hex(8)
    server.fault(method="POST", path="/sandboxes$", when="after", **fault)
    found = await create(provider, key)
    assert (await create(provider, key)).id == found.id
    bodies = {r["body"] for r in server.requests() if r["method"] == "POST" and r["path"].endswith("/sandboxes")}
    assert len([b for b in bodies if "never-shown-secret" in b]) == 1


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("verb", ["rename", "ttl", "host", "hide", "stop", "resume", "delete", "put_file"])
async def test_a_write_whose_answer_was_lost_is_looked_up_before_it_is_sent_again(
    provider: WireProvider, server: ContractServer, box: str, verb: str, when: str
) -> None:
    calls: dict[str, tuple[str, str, Callable[[], Awaitable[Any]]]] = {
        "rename": ("PATCH", box, lambda: provider.rename(box, "new")),
        "ttl": ("PATCH", box, lambda: provider.set_ttl(box, 3600)),
        "host": ("POST", "/host", lambda: provider.host(box, 8000, access="private", localhost=True, title="")),
        "hide": ("DELETE", "/host", lambda: provider.hide(box, 8000)),
        "stop": ("POST", "/stop", lambda: provider.stop(box, timeout=5)),
        "resume": ("POST", "/resume", lambda: provider.resume(box, env=None, size=None, ttl=None, timeout=5)),
        "delete": ("DELETE", box, lambda: provider.delete(box)),
        "put_file": ("PUT", "/files", lambda: provider.put_file(box, "/home/user/a", b"x")),
    }
    method, path, call = calls[verb]
    if verb == "hide":
        await provider.host(box, 8000, access="private", localhost=True, title="")
    if verb == "resume":
        await provider.stop(box, timeout=5)
    server.forget()
    server.fault("reset", method, f"{path}$", when=when)
    await call()
    log = [(r["method"], r["path"]) for r in server.requests()]
    writes = [index for index, (m, p) in enumerate(log) if m == method and p.endswith(path)]
    happened = when == "after" and verb != "delete"
    assert len(writes) == (1 if happened else 2)
    if verb != "delete":
        assert log[writes[0] + 1][0] == "GET"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("0", 0.0), ("3600", 60.0), ("-5", 0.0), ("in-30-seconds", 30.0), ("rubbish", None), ("nan", None)],
)
async def test_a_wish_to_wait_is_honoured_up_to_a_minute(
    provider: WireProvider, server: ContractServer, box: str, waits: list[float], header: str, seconds: float | None
) -> None:
    if header == "in-30-seconds":
        header = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    server.fault("status", "GET", f"/{box}$", status=429, code="rate_limited", headers={"Retry-After": header})
    await provider.get(box)
    (waited,) = waits
    if seconds is None:
        assert waited <= QUICK.longest
    else:
        assert abs(waited - seconds) <= 2.0


async def test_nobody_listens(anyio_backend: str) -> None:
    api = Api("http://127.0.0.1:9/api/v1", pace=QUICK)
    async with SandboxerProvider(api, registry.traits("sandboxer"), Sbx({})) as made:
        for call in (made.get("sbx_1"), create(made), made.run("sbx_1", "true", timeout=5)):
            with pytest.raises(ProviderError) as told:
                await call
            assert told.value.kind == "transient"
            assert "cannot reach http://127.0.0.1:9" in str(told.value)


async def test_both_shapes_of_an_error_are_read_with_their_request(
    provider: WireProvider, server: ContractServer, box: str
) -> None:
    server.fault("status", "GET", f"/{box}$", status=400, code="invalid_path", message="No.", details={"a": 1})
    with pytest.raises(ProviderError) as told:
        await provider.get(box)
    assert told.value.code == "invalid_path"
    assert told.value.request_id == "req_contract"
    assert "No. [request req_contract]" in str(told.value)
    server.fault("status", "GET", f"/{box}$", status=400, code="unknown_environment", message="Flat.", flat=True)
    with pytest.raises(ProviderError) as told:
        await provider.get(box)
    assert (told.value.code, told.value.status) == ("unknown_environment", 400)
    assert "Flat." in str(told.value)


async def test_no_credential_is_shown_anywhere(
    provider: WireProvider, server: ContractServer, box: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    hosted = await provider.host(box, 8000, access="private", localhost=True, title="")
    assert hosted.token is not None
    token = hosted.token.reveal()
    await provider.hosted(box)
    quoting = f"bad: https://x?_token={token}&a=1 and __sbx_auth={token} and Bearer {KEY} and never-shown-secret"
    server.fault("status", "POST", "/sandboxes$", status=400, code="invalid_env", message=quoting)
    with pytest.raises(ProviderError) as told:
        await create(provider)
    seen = caplog.text + str(told.value) + repr(told.value) + repr(vars(told.value)) + repr(provider) + repr(hosted)
    for secret in (KEY, token, "never-shown-secret"):
        assert secret not in seen


def page(ids: list[str], cursor: str | None, more: bool) -> dict[str, Any]:
    info = {"nextCursor": cursor, "hasMore": more, "limit": 100}
    return {
        "ok": True,
        "type": "sandbox.list",
        "sandboxes": [{"id": i, "state": "ready"} for i in ids],
        "pageInfo": info,
    }


@pytest.mark.parametrize(
    "pages",
    [
        [page(["a"], None, True)],
        [page(["a"], "c1", True), page(["b"], "c1", True)],
        [page(["a"], "c1", True), page([], "c2", True)],
        [page(["a", "b"], "c1", True), page(["b", "c"], None, False)],
    ],
    ids=["no cursor", "the same cursor", "an empty page", "a sandbox twice"],
)
async def test_a_list_that_contradicts_itself_says_gone_of_nothing(
    provider: WireProvider, server: ContractServer, pages: list[dict[str, Any]]
) -> None:
    for body in pages:
        server.fault("answer", "GET", "/sandboxes$", body=body)
    view = await provider.refresh(["sbx_recorded"])
    assert isinstance(view.sandboxes["sbx_recorded"], Unreadable)
    assert isinstance(view.sandboxes["a"], Found)


async def test_gone_needs_a_404(provider: WireProvider, server: ContractServer) -> None:
    found = await create(provider)
    server.vanish(found.id)
    assert (await provider.refresh([found.id])).sandboxes[found.id] == Gone(found.id)
    server.fault("status", "GET", f"/{found.id}$", status=500, times=ATTEMPTS)
    assert isinstance((await provider.refresh([found.id])).sandboxes[found.id], Unreadable)


async def test_a_list_that_cannot_be_read_is_an_error(provider: WireProvider, server: ContractServer) -> None:
    server.fault("status", "GET", "/sandboxes$", status=401, code="unauthorized")
    with pytest.raises(ProviderError) as told:
        await provider.refresh([])
    assert told.value.kind == "unauthorised"


async def test_a_cancelled_sandbox_is_gone(provider: WireProvider, server: ContractServer) -> None:
    found = await create(provider)
    server.meddle(found.id, state="cancelled", error="no machine")
    assert (await provider.refresh([found.id])).sandboxes[found.id] == Gone(found.id)
    with pytest.raises(ProviderError, match="cancelled"):
        await provider.wait(found.id, timeout=5)


async def test_a_sandbox_in_error_is_told_with_its_error(provider: WireProvider, server: ContractServer) -> None:
    found = await create(provider)
    server.meddle(found.id, state="error", error="disk on fire")
    with pytest.raises(ProviderError, match="disk on fire") as told:
        await provider.wait(found.id, timeout=5)
    assert told.value.kind == "rejected"


async def test_a_sandbox_that_never_comes_up_is_told_after_its_time(
    provider: WireProvider, server: ContractServer
) -> None:
    found = await create(provider)
    server.meddle(found.id, state="provisioning")
    with pytest.raises(ProviderError, match="not usable after 1 s: it is provisioning") as told:
        await provider.wait(found.id, timeout=1)
    assert told.value.kind == "transient"
