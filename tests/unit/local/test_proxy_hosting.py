"""Ports and tokens: chosen once, kept."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from mcpiac.local import hosting, proxy, proxy_client, proxy_rules
from mcpiac.local.hosting import Hosting, HostingError


def made(**changes: object) -> Hosting:
    wanted = {"public": False, "localhost": True, "title": "", "taken": (), "seed": "a"} | changes
    return hosting.host(None, 8000, **wanted)  # type: ignore[arg-type]


def test_a_port_is_free_and_its_token_random() -> None:
    first, second = made(), made()
    assert first.listen in hosting.PORTS
    assert first.token != second.token
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", first.token)
    with socket.create_server(("127.0.0.1", first.listen)):
        assert made().listen != first.listen


def test_a_port_of_any_record_is_never_taken() -> None:
    first = made()
    assert made(taken=[first.listen]).listen != first.listen
    with pytest.raises(HostingError) as raised:
        made(taken=hosting.PORTS)
    assert raised.value.code == "no_free_port"


def test_daemons_begin_at_different_places() -> None:
    assert len({made(seed=str(number)).listen // 100 for number in range(50)}) > 5


def test_hide_and_host_again_keep_url_and_token() -> None:
    first = made()
    hidden = hosting.hide(first)
    assert hidden.hidden
    again = hosting.host(hidden, 8000, public=True, localhost=False, title="t", taken=[first.listen], seed="a")
    assert (again.listen, again.token, again.hidden, again.public) == (first.listen, first.token, False, True)
    assert hosting.host(again, 8000, public=False, localhost=True, title="", taken=(), seed="a") == first


def test_rotate_keeps_the_url_alone() -> None:
    first = made()
    turned = hosting.rotate(first)
    assert turned.url == first.url
    assert turned.token != first.token


def test_the_token_is_in_the_private_url_only() -> None:
    first = made()
    assert first.url == f"http://127.0.0.1:{first.listen}"
    assert first.url_with_token == f"{first.url}?_token={first.token}"
    assert first.token not in repr(first)
    public = hosting.host(first, 8000, public=True, localhost=True, title="", taken=(), seed="a")
    assert public.url_with_token == public.url
    assert public.route("sbx").token is None
    assert first.route("sbx").token == first.token.encode()


def test_a_record_survives_its_json() -> None:
    first = hosting.hide(made(title="Files", public=True))
    assert Hosting.from_json(first.to_json()) == first


def test_every_code_of_the_proxy_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs/proxy.md").read_text()
    source = "".join(Path(str(module.__file__)).read_text() for module in (proxy, proxy_client, proxy_rules))
    codes = set(re.findall(r'Answer\(\s*\d{3},\s*"(\w+)"', source)) | {"bad_request", "port_taken"}
    assert len(codes) > 10
    states = ("expired", "stopped", "error", "gone", "starting")
    missing = [code for code in [*codes, *(f"sandbox_{state}" for state in states)] if f"`{code}`" not in page]
    assert missing == []
    assert f"{proxy.CLIENTS_MAX} connections" in page
    assert f"{hosting.PORTS.start}–{hosting.PORTS.stop - 1}" in page
