"""The fingerprint: keyed, framed, bound to its place; the key: made once, whole, closed to others."""

from __future__ import annotations

import base64
import hashlib
import hmac
import multiprocessing
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpiac.model.address import Address
from mcpiac.model.diagnostic import Diagnosed
from mcpiac.model.secret import Secret
from mcpiac.secrets import fingerprint
from mcpiac.secrets.fingerprint import Key

KEY = Key("00000000", bytes(range(32)))


def test_the_digest_is_the_documented_one() -> None:
    parts = [b"lineage", b"demo/files", b"TOKEN", "välue".encode()]
    framed = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    found = fingerprint.of(KEY, "lineage", Address("demo", "files"), "TOKEN", Secret("välue"), 3)
    assert found.mac == hmac.new(KEY.value, framed, hashlib.sha256).hexdigest()
    assert (found.key_id, found.version) == ("00000000", 3)
    assert "välue" not in repr(found)


@given(st.lists(st.text(max_size=6), min_size=4, max_size=4), st.lists(st.text(max_size=6), min_size=4, max_size=4))
def test_two_places_or_values_have_two_digests(one: list[str], other: list[str]) -> None:
    def mac(parts: list[str]) -> str:
        return fingerprint.of(KEY, parts[0], parts[1], parts[2], Secret(parts[3])).mac

    assert (mac(one) == mac(other)) == (one == other)


def test_characters_cannot_move_from_one_part_to_the_next() -> None:
    macs = {
        fingerprint.of(KEY, *parts[:3], Secret(parts[3])).mac
        for parts in (
            ("a", "b", "c", "d"),
            ("ab", "", "c", "d"),
            ("a", "bc", "", "d"),
            ("a", "b", "cd", ""),
            ("", "", "", "abcd"),
        )
    }
    assert len(macs) == 5


@pytest.mark.parametrize(
    "text",
    [
        KEY.value.hex(),
        KEY.value.hex().upper(),
        f" {KEY.value.hex()}\n",
        base64.b64encode(KEY.value).decode(),
        base64.b64encode(KEY.value).decode().rstrip("="),
        base64.urlsafe_b64encode(KEY.value).decode(),
    ],
)
def test_key_from_the_environment(text: str, tmp_path: Path) -> None:
    key = fingerprint.key(create=True, environ={"MCPIAC_FINGERPRINT_KEY": text, "XDG_CONFIG_HOME": str(tmp_path)})
    assert key is not None
    assert key.value == KEY.value
    assert list(tmp_path.iterdir()) == []


def test_every_byte_pattern_survives_base64(tmp_path: Path) -> None:
    for value in (b"\xff" * 32, b"\xfb\xef\xbe" * 10 + b"\xfb\xef"):
        for text in (base64.b64encode(value), base64.urlsafe_b64encode(value)):
            key = fingerprint.key(create=False, environ={"MCPIAC_FINGERPRINT_KEY": text.decode()})
            assert key is not None
            assert key.value == value


@pytest.mark.parametrize(
    "text", ["canary", "ab" * 31, "ab" * 33, "!" * 44, "zz" * 32, base64.b64encode(b"x" * 31).decode()]
)
def test_a_key_that_is_none(text: str) -> None:
    with pytest.raises(Diagnosed) as caught:
        fingerprint.key(create=True, environ={"MCPIAC_FINGERPRINT_KEY": text})
    (found,) = caught.value.diagnostics
    assert found.code == "fingerprint-key"
    assert "openssl rand -hex 32" in found.hint
    assert text not in repr(found)


def test_the_id_names_the_key_and_does_not_show_it() -> None:
    key = fingerprint.key(create=False, environ={"MCPIAC_FINGERPRINT_KEY": KEY.value.hex()})
    assert key is not None
    assert key.id == hashlib.sha256(b"mcpiac fingerprint key id\x00" + KEY.value).hexdigest()[:8]
    assert KEY.value.hex() not in repr(key)
    assert repr(KEY.value) not in repr(key)


def test_only_an_apply_makes_a_key(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert fingerprint.key(create=False, environ=environ) is None
    assert not (tmp_path / "config").exists()
    made = fingerprint.key(create=True, environ=environ)
    path = tmp_path / "config" / "mcpiac" / "fingerprint.key"
    assert made is not None
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["fingerprint.key"]
    assert fingerprint.key(create=False, environ=environ) == made
    assert fingerprint.key(create=True, environ=environ) == made


def test_where_the_file_is(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert fingerprint.location(home) == tmp_path / ".config/mcpiac/fingerprint.key"
    assert fingerprint.location({**home, "XDG_CONFIG_HOME": "relative"}) == fingerprint.location(home)
    assert fingerprint.location({**home, "XDG_CONFIG_HOME": "/etc"}) == Path("/etc/mcpiac/fingerprint.key")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o777])
def test_a_key_file_open_to_others_is_refused(mode: int, tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    fingerprint.key(create=True, environ=environ)
    path = fingerprint.location(environ)
    path.chmod(mode)
    with pytest.raises(Diagnosed) as caught:
        fingerprint.key(create=True, environ=environ)
    assert caught.value.diagnostics[0].hint == f"chmod 600 {path}"


@pytest.mark.parametrize("kind", ["folder", "fifo", "empty", "junk"])
def test_a_key_file_that_is_none_is_never_replaced(kind: str, tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    path = fingerprint.location(environ)
    path.parent.mkdir()
    if kind == "folder":
        path.mkdir(mode=0o700)
    elif kind == "fifo":
        os.mkfifo(path, 0o600)
    else:
        path.write_text("" if kind == "empty" else "junk")
        path.chmod(0o600)
    before = path.lstat()
    with pytest.raises(Diagnosed):
        fingerprint.key(create=True, environ=environ)
    assert path.lstat().st_ino == before.st_ino
    assert len(list(path.parent.iterdir())) == 1


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "mcpiac").write_text("a file where the folder should be")
    with pytest.raises(Diagnosed) as caught:
        fingerprint.key(create=True, environ={"XDG_CONFIG_HOME": str(tmp_path)})
    assert "MCPIAC_FINGERPRINT_KEY" in caught.value.diagnostics[0].hint


def _make(folder: str, gate: multiprocessing.synchronize.Barrier, out: multiprocessing.Queue[bytes]) -> None:
    gate.wait(20)
    key = fingerprint.key(create=True, environ={"XDG_CONFIG_HOME": folder})
    assert key is not None
    out.put(key.value)


def test_runs_at_once_end_with_one_key(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    gate, out = context.Barrier(6), context.Queue()
    makers = [context.Process(target=_make, args=(str(tmp_path), gate, out)) for _ in range(6)]
    for maker in makers:
        maker.start()
    values = {out.get(timeout=20) for _ in makers}
    for maker in makers:
        maker.join(20)
    assert len(values) == 1
    assert [p.name for p in (tmp_path / "mcpiac").iterdir()] == ["fingerprint.key"]
