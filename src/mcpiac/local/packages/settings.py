"""The user's registry, proxy and CA settings, as npm and uv take them.

npm reads its own files (``~/.npmrc`` and the global one). uv does not read pip's, though that is where most people
have them, so they are translated here. All go by environment: an argument would show a login in ``ps``.

Sources: pip.pypa.io "Configuration"; docs.astral.sh/uv "Environment variables" and "Compatibility with pip".
"""

from __future__ import annotations

import configparser
import os
import pwd
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from mcpiac.wire import install_settings

UV_RETRIES = "2"
_PIP_OPTIONS = (
    "index-url",
    "extra-index-url",
    "find-links",
    "no-index",
    "cert",
    "client-cert",
    "proxy",
    "trusted-host",
)


def base_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """What both installers get."""
    kept = install_settings(settings)
    kept.setdefault("HOME", pwd.getpwuid(os.getuid()).pw_dir)
    kept |= {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    return kept


def npm_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """npm reads its files itself; the system's CAs are trusted beside node's own (node 22.19 and later)."""
    env = {name: value for name, value in base_environment(settings).items() if not name.startswith(("PIP_", "UV_"))}
    env.setdefault("NODE_USE_SYSTEM_CA", "1")
    if "NODE_EXTRA_CA_CERTS" not in env and os.path.isfile(env.get("SSL_CERT_FILE", "")):
        env["NODE_EXTRA_CA_CERTS"] = env["SSL_CERT_FILE"]
    return env


def uv_environment(settings: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Environment and flags. uv reads ``UV_*`` and uv.toml itself; without an index there, pip's counts."""
    given = base_environment(settings)
    env = {name: value for name, value in given.items() if not name.lower().startswith(("pip_", "npm_", "node_"))}
    pip = pip_options(given)
    flags: tuple[str, ...] = ()
    if not _uv_has_index(env):
        _translate_indexes(pip, env)
        if pip.get("no-index", "").strip().lower() in ("1", "true", "yes", "on"):
            flags = ("--no-index",)
    if "cert" in pip and "SSL_CERT_FILE" not in env:
        env["SSL_CERT_FILE"] = pip["cert"]
    if "client-cert" in pip:
        env.setdefault("SSL_CLIENT_CERT", pip["client-cert"])
    if "trusted-host" in pip:
        env.setdefault("UV_INSECURE_HOST", " ".join(pip["trusted-host"].split()))
    if "proxy" in pip and not any(name.lower() in ("https_proxy", "all_proxy") for name in env):
        env |= {"HTTP_PROXY": pip["proxy"], "HTTPS_PROXY": pip["proxy"]}
    env.setdefault("UV_SYSTEM_CERTS", "1")
    env.setdefault("UV_HTTP_RETRIES", UV_RETRIES)
    return env, flags


def pip_options(env: Mapping[str, str]) -> dict[str, str]:
    """pip's effective options: its files from the least to the most specific, then ``PIP_*``."""
    found: dict[str, str] = {}
    for path in _pip_files(env):
        parser = configparser.RawConfigParser()
        try:
            with open(path, encoding="utf-8") as file:
                parser.read_file(file)
        except (OSError, UnicodeDecodeError, configparser.Error):
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                found |= {key.replace("_", "-"): value for key, value in parser.items(section)}
    for option in _PIP_OPTIONS:
        value = env.get("PIP_" + option.upper().replace("-", "_"))
        if value:
            found[option] = value
    return {option: found[option] for option in _PIP_OPTIONS if found.get(option)}


def _pip_files(env: Mapping[str, str]) -> list[str]:
    named = env.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    home = env["HOME"]
    config_home = env.get("XDG_CONFIG_HOME") or f"{home}/.config"
    folders = (env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    files = [f"{folder}/pip/pip.conf" for folder in reversed(folders)]
    files += ["/etc/pip.conf", f"{home}/.pip/pip.conf", f"{config_home}/pip/pip.conf"]
    return files + ([named] if named else [])


def _uv_has_index(env: Mapping[str, str]) -> bool:
    if any(name in env for name in ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_CONFIG_FILE")):
        return True
    config_home = env.get("XDG_CONFIG_HOME") or f"{env['HOME']}/.config"
    return any(os.path.exists(path) for path in (f"{config_home}/uv/uv.toml", "/etc/uv/uv.toml"))


def _translate_indexes(pip: Mapping[str, str], env: dict[str, str]) -> None:
    """pip looks into every index and takes the best, and passes over folders that are not there: so does this."""
    main = pip.get("index-url", "").strip()
    if main:
        env["UV_INDEX_URL"] = main
    extra = [url for url in pip.get("extra-index-url", "").split() if _exists(url)]
    if extra:
        env["UV_EXTRA_INDEX_URL"] = " ".join(extra)
        env.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    links = [url for url in pip.get("find-links", "").split() if _exists(url)]
    if links:
        env["UV_FIND_LINKS"] = ",".join(links)


def _exists(url: str) -> bool:
    """Whether a place on this machine is there; other places are taken to be."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return os.path.isdir(unquote(parts.path))
    return parts.scheme != "" or os.path.exists(url)
