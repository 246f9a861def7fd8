"""Providers by name, and whose credentials they take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mcpiac.model.diagnostic import Diagnosed
from mcpiac.model.outcome import ProviderError
from mcpiac.model.secret import Secret
from mcpiac.model.spec import Egress
from mcpiac.providers import registry
from mcpiac.providers.sbx import Sbx

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_every_provider_has_traits_of_its_own_name() -> None:
    for name in registry.NAMES:
        assert registry.traits(name, {}).provider == name
    with pytest.raises(Diagnosed) as told:
        registry.traits("aws")
    assert told.value.diagnostics[0].code == "unknown-provider"


def test_asking_for_traits_imports_no_http_client() -> None:
    code = (
        "import sys; from mcpiac.providers import registry; registry.traits('local'); print('httpx' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


async def test_the_cloud_needs_a_key_and_takes_none_from_anywhere_else() -> None:
    with pytest.raises(Diagnosed) as told:
        registry.connect("sandboxer", environ={})
    assert told.value.diagnostics[0].code == "no-credential"
    async with registry.connect("sandboxer", environ={"SANDBOXER_API_KEY": "k"}) as provider:
        assert "https://sandboxer.com/api/v1" in repr(provider)
    config = {"key": "k", "url": "https://other.example", "org": "team"}
    async with registry.connect("sandboxer", environ={}, config=config) as provider:
        assert "https://other.example/api/v1" in repr(provider)
        assert (await provider.instance()).id == "https://other.example/api/v1 org team"


@pytest.mark.parametrize("url", ["http://sandboxer.com", "http://127.0.0.1.example.com", "ftp://x"])
def test_a_key_travels_over_https_only(url: str) -> None:
    with pytest.raises(Diagnosed) as told:
        registry.connect("sandboxer", environ={"SANDBOXER_API_KEY": "k", "SANDBOXER_API_URL": url})
    assert told.value.diagnostics[0].code == "insecure-url"


async def test_a_sandbox_token_creates_nothing_and_says_why() -> None:
    async with registry.connect("sandboxer", environ={"SANDBOXER_TOKEN": "t"}) as provider:
        with pytest.raises(ProviderError, match="not create") as told:
            await provider.create(key="k", size="small", ttl=None, env={"A": Secret("x")}, egress=Egress("all"))
        assert told.value.kind == "unauthorised"


def test_beta_is_said_for_the_cloud_only() -> None:
    assert registry.notices("local") == ()
    assert [notice.code for notice in registry.notices("sandboxer")] == ["provider-beta"]


def program(folder: Path, text: str) -> dict[str, str]:
    """An ``sbx`` of this text; the environment that finds it."""
    file = folder / "sbx"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin", "SANDBOXER_API_KEY": "k", "OTHER_SECRET": "never"}


async def test_the_idle_delay_goes_through_the_services_own_program(tmp_path: Path) -> None:
    says_who = '[ "$1" = --help ] && echo "sbx: the Sandboxer command line" && exit'
    environ = program(tmp_path, f'{says_who}; echo "$@" >> {tmp_path}/calls; env > {tmp_path}/env')
    assert registry.traits("sandboxer", environ).idle_settable
    sbx = Sbx(environ)
    await sbx.idle("sbx_1", 5)
    await sbx.idle("sbx_1", None)
    assert (tmp_path / "calls").read_text() == "idle sbx_1 5\nidle sbx_1 0\n"
    assert "never" not in (tmp_path / "env").read_text()


async def test_another_program_of_that_name_is_never_used(tmp_path: Path) -> None:
    environ = program(tmp_path, f'[ "$1" = --help ] && echo "Docker Sandboxes" && exit; touch {tmp_path}/used')
    with pytest.raises(ProviderError, match="another program of that name") as told:
        await Sbx(environ).idle("sbx_1", 5)
    assert told.value.kind == "rejected"
    assert told.value.hint
    assert not (tmp_path / "used").exists()


async def test_without_the_program_it_says_so(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path)}
    assert not registry.traits("sandboxer", environ).idle_settable
    with pytest.raises(ProviderError, match="not on the PATH"):
        await Sbx(environ).idle("sbx_1", 5)


async def test_a_refusal_of_the_program_is_told_without_a_key(tmp_path: Path) -> None:
    environ = program(tmp_path, '[ "$1" = --help ] && echo sandboxer && exit; echo "no: Bearer abcdef" >&2; exit 3')
    with pytest.raises(ProviderError, match="exited with 3") as told:
        await Sbx(environ).idle("sbx_1", 5)
    assert "abcdef" not in told.value.output
