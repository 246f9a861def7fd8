"""What every provider keeps: one suite, run against each."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from tests.contract.conftest import Place

from mcpiac.model.live import Found, Gone
from mcpiac.model.outcome import ProviderError
from mcpiac.model.secret import Secret
from mcpiac.model.spec import Egress, Package
from mcpiac.providers.base import WireProvider

pytestmark = pytest.mark.anyio

OWNER = "lineage/server/key"


async def made(provider: WireProvider, key: str | None = None, **env: str) -> Found:
    """A usable sandbox."""
    given = {name: Secret(value) for name, value in {"MCPIAC_OWNER": OWNER, **env}.items()}
    egress = Egress("none")
    found = await provider.create(key=key or secrets.token_hex(8), size="small", ttl=3600, env=given, egress=egress)
    return await provider.wait(found.id, timeout=60)


@pytest.fixture
async def box(provider: WireProvider) -> AsyncIterator[Found]:
    found = await made(provider, TOKEN="s3cr't $x")
    yield found
    await provider.delete(found.id)


async def test_the_same_key_makes_one_sandbox(provider: WireProvider) -> None:
    key = secrets.token_hex(8)
    first = await made(provider, key)
    again = await made(provider, key)
    other = await made(provider)
    assert first.id == again.id != other.id
    await provider.delete(first.id)
    await provider.delete(other.id)


async def test_a_new_sandbox_is_as_asked(provider: WireProvider, box: Found) -> None:
    assert box.state in ("ready", "idle", "running")
    assert box.size == "small"
    left = datetime.fromisoformat(box.expires_at or "").timestamp() - datetime.now(UTC).timestamp()
    assert 3500 < left <= 3600
    if provider.traits.lists_owner:
        assert box.owner == OWNER


async def test_a_name_is_set_and_listed(provider: WireProvider, box: Found) -> None:
    await provider.rename(box.id, "mcp-a--b-123456")
    await provider.rename(box.id, "mcp-a--b-123456")
    view = await provider.refresh([box.id])
    found = view.sandboxes[box.id]
    assert isinstance(found, Found)
    assert found.name == "mcp-a--b-123456"


async def test_a_ttl_counts_from_now_and_can_be_off(provider: WireProvider, box: Found) -> None:
    await provider.set_ttl(box.id, 7200)
    at = (await provider.get(box.id)).expires_at
    left = datetime.fromisoformat(at or "").timestamp() - datetime.now(UTC).timestamp()
    assert 7100 < left <= 7200
    await provider.set_ttl(box.id, None)
    assert (await provider.get(box.id)).expires_at is None


async def test_an_idle_delay_is_set_where_the_list_carries_it(provider: WireProvider, box: Found) -> None:
    if not provider.traits.lists_idle:
        assert box.idle is None
        return
    await provider.set_idle(box.id, 7)
    assert (await provider.get(box.id)).idle == 7
    await provider.set_idle(box.id, None)
    assert (await provider.get(box.id)).idle == 0


async def test_a_port_keeps_its_url_and_token(provider: WireProvider, box: Found) -> None:
    first = await provider.host(box.id, 8000, access="private", localhost=True, title="a title")
    assert first.token is not None
    assert first.token.reveal() not in first.port.url
    assert "?" not in first.port.url
    assert not first.port.url.endswith("/")
    assert await provider.host(box.id, 8000, access="private", localhost=True, title="a title") == first
    assert (await provider.hosted(box.id))[8000] == first
    await provider.hide(box.id, 8000)
    await provider.hide(box.id, 8000)
    assert dict(await provider.hosted(box.id)) == {}
    assert await provider.host(box.id, 8000, access="private", localhost=True, title="a title") == first


async def test_tokens_differ_by_port_and_sandbox(provider: WireProvider, box: Found) -> None:
    other = await made(provider)
    try:
        ways = [(box.id, 8000), (box.id, 8001), (other.id, 8000)]
        hosted = [await provider.host(id, port, access="private", localhost=True, title="") for id, port in ways]
        assert len({h.token.reveal() for h in hosted if h.token}) == 3
        assert len({h.port.url for h in hosted}) == 3
    finally:
        await provider.delete(other.id)


async def test_a_public_port_has_no_token(provider: WireProvider, box: Found) -> None:
    hosted = await provider.host(box.id, 8002, access="public", localhost=True, title="")
    assert hosted.token is None
    assert hosted.port.access == "public"


async def test_hosted_ports_are_listed_without_tokens(provider: WireProvider, box: Found) -> None:
    hosted = await provider.host(box.id, 8000, access="private", localhost=True, title="t")
    found = await provider.get(box.id)
    if not provider.traits.lists_hosted:
        assert found.hosted is None
        return
    assert found.hosted is not None
    assert found.hosted[8000] == hosted.port


async def test_a_command_ends_with_its_code_and_outputs(provider: WireProvider, box: Found) -> None:
    result = await provider.run(box.id, "echo out; echo err >&2; exit 3", timeout=30)
    assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")
    assert not result.timed_out


async def test_a_command_is_streamed(provider: WireProvider, box: Found) -> None:
    told: list[str] = []
    result = await provider.run(box.id, "echo one; exit 2", timeout=30, progress=told.append)
    assert (result.exit_code, result.stdout) == (2, "one\n")
    assert told == ["one"]


async def test_a_detached_command_is_followed_to_its_end(provider: WireProvider, box: Found) -> None:
    told: list[str] = []
    command = "printf 'a\\303\\244b\\n'; echo err >&2; exit 4"
    result = await provider.run(box.id, command, timeout=30, progress=told.append, detached=True)
    assert (result.exit_code, result.stdout, result.stderr) == (4, "aäb\n", "err\n")
    assert told


@pytest.mark.parametrize("detached", [False, True])
async def test_a_command_that_takes_too_long_is_ended(provider: WireProvider, box: Found, detached: bool) -> None:
    result = await provider.run(box.id, "sleep 60", timeout=1, detached=detached)
    assert result.timed_out
    assert result.exit_code != 0


async def test_a_large_output_keeps_its_end(provider: WireProvider, box: Found) -> None:
    command = (
        "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done; echo END"
    )
    result = await provider.run(box.id, command, timeout=60, detached=True)
    assert result.exit_code == 0
    assert result.stdout.endswith("END\n")


@pytest.mark.parametrize("content", [b"", b"text \xc3\xa4\n", bytes(range(256)), b"x" * 300_000])
async def test_a_file_comes_back_byte_for_byte(provider: WireProvider, box: Found, content: bytes) -> None:
    await provider.put_file(box.id, "/home/user/deep/er/file", content)
    assert await provider.read_file(box.id, "/home/user/deep/er/file") == content


async def test_a_missing_file_and_a_path_outside(provider: WireProvider, box: Found) -> None:
    with pytest.raises(ProviderError) as missing:
        await provider.read_file(box.id, "/home/user/nothing")
    assert missing.value.kind == "not_found"
    with pytest.raises(ProviderError) as outside:
        await provider.put_file(box.id, "/etc/passwd", b"x")
    assert outside.value.kind == "rejected"


async def test_a_stop_keeps_the_disk_and_a_resume_brings_the_new_environment(
    provider: WireProvider, place: Place, box: Found
) -> None:
    await provider.put_file(box.id, "/home/user/kept", b"kept")
    await provider.stop(box.id, timeout=60)
    await provider.stop(box.id, timeout=60)
    assert (await provider.get(box.id)).state == "archived"
    with pytest.raises(ProviderError) as refused:
        await provider.run(box.id, "true", timeout=5)
    assert refused.value.kind == "conflict"
    env = {"MCPIAC_OWNER": Secret("l/s/new"), "TOKEN": Secret("changed")}
    found = await provider.resume(box.id, env=env, size="small", ttl=None, timeout=60)
    assert found.state in ("ready", "idle", "running")
    assert await provider.read_file(box.id, "/home/user/kept") == b"kept"
    assert found.expires_at is None
    if provider.traits.lists_owner:
        assert found.owner == "l/s/new"


async def test_a_resume_of_a_running_sandbox_is_nothing_new(provider: WireProvider, box: Found) -> None:
    found = await provider.resume(box.id, env=None, size=None, ttl=3600, timeout=60)
    assert found.id == box.id


async def test_deleted_is_gone_and_deleting_again_is_fine(provider: WireProvider) -> None:
    box = await made(provider)
    await provider.delete(box.id)
    await provider.delete(box.id)
    with pytest.raises(ProviderError) as told:
        await provider.get(box.id)
    assert told.value.kind == "not_found"
    view = await provider.refresh([box.id])
    assert view.sandboxes[box.id] == Gone(box.id)


async def test_what_was_never_there_is_gone_and_not_found(provider: WireProvider) -> None:
    view = await provider.refresh(["sbx_never"])
    assert view.sandboxes["sbx_never"] == Gone("sbx_never")
    for call in (
        provider.wait("sbx_never", timeout=5),
        provider.rename("sbx_never", "x"),
        provider.host("sbx_never", 8000, access="private", localhost=True, title=""),
        provider.run("sbx_never", "true", timeout=5),
        provider.stop("sbx_never", timeout=5),
    ):
        with pytest.raises(ProviderError) as told:
            await call
        assert told.value.kind == "not_found"


async def test_an_id_cannot_leave_its_place_in_the_path(provider: WireProvider) -> None:
    with pytest.raises(ProviderError) as told:
        await provider.get("../limits")
    assert told.value.kind == "not_found"


async def test_a_bad_environment_is_refused_without_its_value(provider: WireProvider) -> None:
    env = {"SANDBOXER_TOKEN": Secret("never-shown-value")}
    with pytest.raises(ProviderError) as told:
        await provider.create(key=secrets.token_hex(8), size="small", ttl=None, env=env, egress=Egress("none"))
    assert told.value.kind == "rejected"
    assert told.value.code == "invalid_env"
    assert "never-shown-value" not in str(told.value) + repr(told.value)


async def test_limits_say_what_may_start(provider: WireProvider) -> None:
    limits = await provider.limits()
    assert limits["can_start"] is True
    assert isinstance(limits["max_active_sandboxes"], int)


async def test_the_instance_stays_the_same(provider: WireProvider, place: Place) -> None:
    first = await provider.instance()
    assert first == await provider.instance()
    assert first.provider == place.name


async def test_packages_are_installed_only_where_the_provider_keeps_them(
    provider: WireProvider, place: Place, box: Found
) -> None:
    if place.real:
        pytest.skip("needs a registry: tests/e2e does it")
    package = Package("npm", "a", "1.0.0")
    if not provider.traits.package_store:
        with pytest.raises(ProviderError):
            await provider.install(box.id, [package], scripts=False, progress=lambda _: None)
        return
    told: list[str] = []
    (lying,) = await provider.install(box.id, [package], scripts=False, progress=told.append)
    assert lying.package == package
    assert lying.entry
    assert told == ["fetching"]
    with pytest.raises(ProviderError, match="does not exist"):
        await provider.install(
            box.id, [Package("npm", "does-not-exist", "1.0.0")], scripts=False, progress=told.append
        )
