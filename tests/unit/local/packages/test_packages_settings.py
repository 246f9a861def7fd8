"""Which of the user's settings npm and uv get."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcpiac.local.packages.settings import npm_environment, pip_options, uv_environment
from mcpiac.wire import install_settings


def test_of_an_environment_only_what_says_how_registries_are_reached() -> None:
    kept = {
        "HOME": "/home/a",
        "NPM_TOKEN": "x",
        "HTTPS_PROXY": "http://proxy:1",
        "no_proxy": "localhost",
        "SSL_CERT_FILE": "/ca",
        "NODE_EXTRA_CA_CERTS": "/ca",
        "npm_config_registry": "https://npm.example",
        "NPM_CONFIG_CAFILE": "/ca",
        "npm_config_//npm.example/:_authToken": "x",
        "npm_config_@scope:registry": "https://scope.example",
        "PIP_INDEX_URL": "https://pypi.example/simple",
        "UV_DEFAULT_INDEX": "https://pypi.example/simple",
        "UV_INDEX_PRIVATE_PASSWORD": "x",
    }
    dropped = {
        "PATH": "/evil",
        "LD_PRELOAD": "/evil.so",
        "NODE_OPTIONS": "--require /evil.js",
        "PYTHONPATH": "/evil",
        "npm_config_ignore_scripts": "false",
        "npm_config_script_shell": "/evil",
        "npm_config_node_options": "--require /evil.js",
        "npm_config_git": "/evil",
        "NPM_CONFIG_PREFIX": "/evil",
        "PIP_CONSTRAINT": "/evil",
        "UV_PYTHON": "/evil",
        "UV_NO_BUILD": "0",
        "UV_PROJECT": "/evil",
        "AWS_SECRET_ACCESS_KEY": "x",
        "FILES_SERVER_TOKEN": "x",
    }
    assert install_settings({**kept, **dropped}) == kept


def test_settings_are_bounded() -> None:
    kept = install_settings({"NPM_TOKEN": "x" * 100_000, "HOME": "/home/a"})
    assert kept == {"HOME": "/home/a"}


def home(folder: Path, pip: str = "") -> dict[str, str]:
    (folder / ".config/pip").mkdir(parents=True)
    (folder / ".config/pip/pip.conf").write_text(pip)
    return {"HOME": str(folder), "XDG_CONFIG_DIRS": str(folder / "none")}


def test_pips_files_and_variables_in_its_own_order(tmp_path: Path) -> None:
    settings = home(
        tmp_path, "[global]\nindex-url = https://a.example\ncert = /a\n[install]\nindex_url = https://b.example\n"
    )
    (tmp_path / ".pip").mkdir()
    (tmp_path / ".pip/pip.conf").write_text("[global]\nindex-url = https://old.example\nproxy = http://old:1\n")
    found = pip_options(settings)
    assert (found["index-url"], found["proxy"]) == ("https://b.example", "http://old:1")
    assert pip_options({**settings, "PIP_INDEX_URL": "https://c.example"})["index-url"] == "https://c.example"
    own = tmp_path / "own.conf"
    own.write_text("[global]\nindex-url = https://d.example\n")
    assert pip_options({**settings, "PIP_CONFIG_FILE": str(own)})["index-url"] == "https://d.example"
    assert "index-url" not in pip_options({**settings, "PIP_CONFIG_FILE": "/dev/null"})


def test_pip_becomes_uv(tmp_path: Path) -> None:
    there = tmp_path / "wheels"
    there.mkdir()
    settings = home(
        tmp_path,
        "[global]\n"
        "index-url = https://a.example/simple\n"
        f"extra-index-url = https://b.example/simple\n    file://{there} file://{tmp_path}/missing\n"
        f"find-links = {there} /missing\n"
        "cert = /ca.pem\nclient-cert = /client.pem\nproxy = http://proxy:1\ntrusted-host = a.example b.example\n"
        "no-index = false\n",
    )
    env, flags = uv_environment(settings)
    assert env["UV_INDEX_URL"] == "https://a.example/simple"
    assert env["UV_EXTRA_INDEX_URL"] == f"https://b.example/simple file://{there}"
    assert env["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert env["UV_FIND_LINKS"] == str(there)
    assert env["SSL_CERT_FILE"] == "/ca.pem"
    assert env["SSL_CLIENT_CERT"] == "/client.pem"
    assert env["HTTPS_PROXY"] == "http://proxy:1"
    assert env["UV_INSECURE_HOST"] == "a.example b.example"
    assert flags == ()
    assert not [name for name in env if name.startswith(("PIP_", "npm_"))]


def test_what_uv_is_told_itself_counts_before_pip(tmp_path: Path) -> None:
    settings = home(tmp_path, "[global]\nindex-url = https://pip.example\n")
    env, _ = uv_environment({**settings, "UV_DEFAULT_INDEX": "https://uv.example"})
    assert env["UV_DEFAULT_INDEX"] == "https://uv.example"
    assert "UV_INDEX_URL" not in env
    (tmp_path / ".config/uv").mkdir()
    (tmp_path / ".config/uv/uv.toml").write_text("")
    assert "UV_INDEX_URL" not in uv_environment(settings)[0]


def test_no_index(tmp_path: Path) -> None:
    assert uv_environment(home(tmp_path, "[global]\nno-index = yes\n"))[1] == ("--no-index",)


@pytest.mark.parametrize("broken", ["no section", "[global\n", "[global]\nindex-url\n", "\xff"])
def test_a_broken_pip_conf_is_passed_over(broken: str, tmp_path: Path) -> None:
    settings = home(tmp_path)
    (tmp_path / ".config/pip/pip.conf").write_bytes(broken.encode("latin-1"))
    assert "index-url" not in pip_options(settings)


def test_npm_trusts_the_systems_certificates_too(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("")
    env = npm_environment({"HOME": "/home/a", "SSL_CERT_FILE": str(ca), "PIP_INDEX_URL": "x", "UV_INDEX": "y"})
    assert env["NODE_USE_SYSTEM_CA"] == "1"
    assert env["NODE_EXTRA_CA_CERTS"] == str(ca)
    assert not [name for name in env if name.startswith(("PIP_", "UV_"))]


def test_without_a_home_the_users_own_is_taken() -> None:
    assert npm_environment({})["HOME"].startswith("/")
