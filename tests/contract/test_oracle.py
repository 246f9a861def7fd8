"""The service's published SDK as an independent judge of the wire: of what we send, and of what is answered."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from sandboxer import Sandboxer, errors, models
from sandboxer._generated_api import OPERATIONS
from tests.contract.conftest import KEY, Place
from tests.contract.server_process import ContractServer

from mcpiac import wire
from mcpiac.model.secret import Secret
from mcpiac.model.spec import Egress
from mcpiac.providers import registry
from mcpiac.providers.classify import may_repeat, refusal

REQUESTS: dict[tuple[str, str], type[Any]] = {
    ("POST", "/sandboxes"): models.CreateSandboxRequest,
    ("POST", "/sandboxes/{}/commands"): models.CommandRequest,
    ("PUT", "/sandboxes/{}/files"): models.FileWriteRequest,
    ("POST", "/sandboxes/{}/host"): models.HostPortRequest,
    ("POST", "/sandboxes/{}/resume"): models.ResumeRequest,
}


@pytest.fixture
def server(cloud: Place) -> ContractServer:
    assert cloud.server is not None
    return cloud.server


def known(model: type[Any]) -> set[str]:
    """The names that a model of the SDK has on the wire."""
    return {field.serialization_alias or name for name, field in model.model_fields.items()}


@pytest.mark.anyio
async def test_what_the_cloud_is_sent_is_what_its_client_would_send(cloud: Place, server: ContractServer) -> None:
    """Every request of every action: an operation that exists, and a body without an unknown field."""
    server.forget()
    async with registry.connect("sandboxer", environ=cloud.environ) as provider:
        env = {"TOKEN": Secret("x"), wire.OWNER_VARIABLE: Secret("l/s/k")}
        box = await provider.create(key=secrets.token_hex(8), size="small", ttl=None, env=env, egress=Egress("all"))
        await provider.wait(box.id, timeout=5)
        await provider.rename(box.id, "n")
        await provider.set_ttl(box.id, 600)
        await provider.put_file(box.id, "/home/user/a", b"\xff")
        await provider.read_file(box.id, "/home/user/a")
        await provider.run(box.id, "true", timeout=5)
        await provider.run(box.id, "true", timeout=5, progress=lambda _: None)
        await provider.run(box.id, "sleep 9", timeout=0.2, detached=True)
        await provider.host(box.id, 8000, access="private", localhost=True, title="t")
        await provider.hosted(box.id)
        await provider.hide(box.id, 8000)
        await provider.stop(box.id, timeout=5)
        await provider.resume(box.id, env=env, size="small", ttl=600, timeout=5)
        await provider.limits()
        await provider.refresh([box.id, "sbx_none"])
        await provider.delete(box.id)
    templates = {(method, _shape(path)) for _, method, path, _ in OPERATIONS}
    checked = set()
    for request in server.requests():
        shape = request["method"], _shape(request["path"].removeprefix(wire.API_PREFIX))
        assert shape in templates
        model = REQUESTS.get(shape)
        if model is not None:
            body = json.loads(request["body"])
            model.model_validate(body)
            assert set(body) <= known(model), shape
            checked.add(shape)
        elif shape == ("PATCH", "/sandboxes/{}"):
            assert set(json.loads(request["body"])) <= {"name", "ttlSeconds", "subdomain"}
        elif shape != ("POST", "/sandboxes/{}/stop"):
            assert not request["body"]
    assert checked == set(REQUESTS)


def _shape(path: str) -> str:
    """A path with its variable pieces emptied."""
    fixed = {"sandboxes", "commands", "files", "host", "stop", "resume", "limits", "me", "deletion-operations"}
    pieces = path.strip("/").split("/")
    return "/" + "/".join(p if p in fixed or (not p.startswith("{") and len(p) < 4) else "{}" for p in pieces)


def test_every_create_says_no_env(server: ContractServer) -> None:
    creates = [r for r in server.requests() if r["method"] == "POST" and r["path"].endswith("/sandboxes")]
    assert creates
    for request in creates:
        assert json.loads(request["body"])["noEnv"] is True
        assert request["headers"][wire.HEADER_IDEMPOTENCY]


@pytest.fixture
def sdk(server: ContractServer, caplog: pytest.LogCaptureFixture) -> Iterator[Sandboxer]:
    """It logs an answer that its models do not fit: none may."""
    yield Sandboxer(api_key=KEY, base_url=f"{server.url}{wire.API_PREFIX}", max_retries=0)
    assert "did not match" not in caplog.text


def test_the_contract_server_is_one_that_the_published_client_can_drive(sdk: Sandboxer) -> None:
    """So what is proved against it is not proved against a server of our own imagination only."""
    made = sdk.api.create({"type": "small", "noEnv": True, "env": {"A": "b"}}, idempotency_key=secrets.token_hex(8))
    id = made.sandbox.id
    assert sdk.api.get(id).sandbox.state == "ready"
    assert sdk.api.update(id, {"name": "n", "ttlSeconds": None}).sandbox.archive_after is None
    assert sdk.api.command(id, {"command": "echo $A"}).stdout == "b\n"
    started = sdk.api.command(id, {"command": "true", "detached": True})
    assert sdk.api.command_status(id, started.process_id, stdout_offset=0, stderr_offset=0).process_id
    assert sdk.api.write_file(id, {"path": "a", "content": "x"}).size == 1
    assert sdk.api.read_file(id, "/home/user/a").content == "x"
    hosted = sdk.api.host_port(id, {"port": 8000, "localhost": True})
    assert hosted.url
    assert "_token=" in hosted.url
    assert sdk.api.list_hosted_ports(id)["ports"][0]["port"] == 8000
    assert sdk.api.unhost_port(id, 8000).ok
    assert sdk.api.limits().can_start
    assert sdk.api.me().user.id
    assert any(box.id == id for box in sdk.api.sandboxes(limit=100).sandboxes)
    assert sdk.api.stop(id).id == id
    assert sdk.api.resume(id, {"env": {"A": "c"}, "ttlSeconds": 600}).id == id
    operation = sdk.api.delete_sandbox(id).operation
    assert sdk.api.get_deletion_operation(operation.id).operation.target_id == id
    with pytest.raises(errors.NotFoundError):
        sdk.api.get(id)


ANSWERS: list[tuple[wire.Answer, type[Any]]] = [
    (wire.SandboxAnswer(sandbox=wire.Sandbox(id="a", state="ready")), models.SandboxInfoResponse),
    (
        wire.SandboxPage(sandboxes=(), page_info=wire.PageInfo(next_cursor=None, has_more=False, limit=100)),
        models.SandboxListResponse,
    ),
    (
        wire.CreateAnswer(status="provisioning", sandbox=wire.Sandbox(id="a", state="provisioning")),
        models.CreateSandboxResponse,
    ),
    (wire.ActionAnswer(id="a", status="archiving"), models.SandboxActionResponse),
    (wire.CommandAnswer(exit_code=0), models.CommandResponse),
    (wire.DetachedAnswer(process_id=1, pid=1, command="true", started_at="x"), models.CommandStartedResponse),
    (wire.ProcessStatus(process_id=1, status="exited", running=False), models.CommandStatusResponse),
    (wire.StoppedAnswer(process_id=1, signaled=True), models.CommandStopResponse),
    (wire.FileWriteAnswer(path="a", encoding="utf8", size=1), models.FileWriteResponse),
    (wire.FileReadAnswer(path="a", encoding="utf8", size=1, content="x"), models.FileReadResponse),
    (wire.HostAnswer(port=1, url="u"), models.HostPortResponse),
    (
        wire.DeletionAnswer(operation=wire.DeletionItem(id="d", target_id="a", status="completed", requested_at="x")),
        models.DeletionOperationResponse,
    ),
    (wire.LimitsAnswer(active_sandboxes=0, max_active_sandboxes=1), models.LimitsResponse),
    (wire.MeAnswer(user=wire.User(id="u")), models.MeResponse),
]


@pytest.mark.parametrize(("answer", "model"), ANSWERS, ids=lambda v: getattr(v, "__name__", type(v).__name__))
def test_every_answer_of_the_wire_parses(answer: wire.Answer, model: type[Any]) -> None:
    model.model_validate(json.loads(json.dumps(answer.body())))


ERRORS = [
    (409, "sandbox_starting", None),
    (409, "idempotency_in_progress", None),
    (409, "sandbox_not_ready", None),
    (503, "sandbox_direct_failed", {"retryable": True}),
    (503, "sandbox_direct_failed", {"retryable": False}),
    (500, "internal_error", None),
    (429, "rate_limited", None),
    (404, "sandbox_not_found", None),
    (400, "invalid_env", None),
    (401, "unauthorized", None),
    (402, "billing_required", None),
    (403, "machine_class_plan_required", None),
]


@pytest.mark.parametrize(("status", "code", "details"), ERRORS)
def test_an_error_envelope_means_the_same_to_both(status: int, code: str, details: dict[str, Any] | None) -> None:
    """The SDK raises the class of the status, and both call the same ones repeatable."""
    envelope = wire.ErrorEnvelope(
        status=status,
        code=code,
        message="m",
        request_id="req_1",
        error=wire.ErrorDetail(code=code, message="m", status=status, details=details),
    )
    content = json.dumps(envelope.model_dump(mode="json", by_alias=True)).encode()
    judged = errors.make_api_error(status, content, {})
    ours = refusal(status, content, {})
    assert (judged.code, judged.status, judged.request_id) == (ours.code, ours.status, ours.request_id)
    assert judged.retryable == any(may_repeat(operation, ours) for operation in ("get", "create", "command", "write"))
