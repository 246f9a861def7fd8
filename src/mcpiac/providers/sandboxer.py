"""The provider ``sandboxer``: the cloud service. Beta: its assumptions are listed in ``docs/providers.md``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import TypeAdapter

from mcpiac import wire
from mcpiac.model.diagnostic import Diagnostic, error
from mcpiac.model.outcome import ProviderError
from mcpiac.model.ports import LogLine
from mcpiac.model.record import Instance
from mcpiac.model.secret import Secret
from mcpiac.model.spec import Egress
from mcpiac.model.traits import Traits
from mcpiac.providers.api import Api, base
from mcpiac.providers.base import WireProvider
from mcpiac.providers.sbx import Sbx

DEFAULT_URL = f"https://sandboxer.com{wire.API_PREFIX}"

BETA = Diagnostic(
    "warning",
    "provider-beta",
    "the provider `sandboxer` is beta: it was built against the service's published client, not the service",
    hint="what it assumes is listed in docs/providers.md",
)
"""Shown once per run that uses it."""

_me = TypeAdapter(wire.MeAnswer)


class SandboxerProvider(WireProvider):
    """``restricted``: the credential is a sandbox's own token, which can create nothing."""

    def __init__(
        self, api: Api, traits: Traits, sbx: Sbx, *, org: str | None = None, restricted: bool = False
    ) -> None:
        super().__init__(api, traits, shortest=0.5, longest=3.0)
        self._sbx = sbx
        self._org = org
        self._restricted = restricted

    async def _ask_instance(self) -> Instance:
        """The service's address and who pays: the organisation, else the account."""
        if self._org:
            return Instance("sandboxer", f"{self._api.address} org {self._org}")
        answer = await self._api.call(_me, "GET", "/me", operation="get", what="ask the service whose key this is")
        if not answer.user.id:
            raise ProviderError("unauthorised", "the service does not say whose key this is")
        return Instance("sandboxer", f"{self._api.address} account {answer.user.id}")

    async def create(self, *, key: str, size: str, ttl: int | None, env: Mapping[str, Secret], egress: Egress) -> Any:
        if self._restricted:
            raise ProviderError(
                "unauthorised",
                "SANDBOXER_TOKEN is a sandbox's own token: it can read that sandbox and host its ports, not create",
                hint="set SANDBOXER_API_KEY",
            )
        return await super().create(key=key, size=size, ttl=ttl, env=env, egress=egress)

    async def set_idle(self, id: str, idle: int | None) -> None:
        await self._sbx.idle(id, idle)

    async def logs(self, id: str, service: str, *, follow: bool, tail: int) -> AsyncIterator[LogLine]:
        """The service's journal, by a command in a *running* sandbox: a paused one would be woken."""
        found = await self.get(id)
        if found.state != "running" and found.state != "ready":
            raise ProviderError(
                "conflict",
                f"sandbox {id} is {found.state}: reading its log would wake it",
                hint="call its server first, or read the log while it runs",
            )
        if follow:
            raise ProviderError("rejected", "the provider sandboxer cannot follow a log; leave out --follow")
        unit = f"mcpiac-{service}.service"
        command = (
            f"sudo -n journalctl --unit={unit} --lines={tail} --output=short-iso --no-pager --no-hostname --quiet"
        )
        result = await self.run(id, command, timeout=30)
        if result.exit_code != 0:
            raise ProviderError("rejected", f"the journal of {unit} cannot be read", output=result.stderr[-2000:])
        for line in result.stdout.splitlines():
            at, _, text = line.partition(" ")
            yield LogLine(at, "stdout", text.partition(": ")[2] or text)


def connect(traits: Traits, environ: Mapping[str, str], config: Mapping[str, Any]) -> SandboxerProvider:
    """The service by the environment, then by the user's config (``sandboxer: {url, org, key}``).

    Raises ``Diagnosed`` where there is no credential. A stack never names an address or a key.
    """
    key = environ.get("SANDBOXER_API_KEY") or _text(config, "key")
    token = environ.get("SANDBOXER_TOKEN")
    chosen = key or token
    if not chosen:
        raise error(
            "no-credential",
            "the provider `sandboxer` needs an API key, and there is none",
            hint="export SANDBOXER_API_KEY=… (it is read from the environment, never from a stack)",
        )
    org = environ.get("SANDBOXER_ORG") or _text(config, "org")
    address = base(environ.get("SANDBOXER_API_URL") or _text(config, "url") or DEFAULT_URL)
    if urlsplit(address).scheme != "https" and urlsplit(address).hostname not in ("127.0.0.1", "::1"):
        raise error(
            "insecure-url",
            f"{address} is not https: the key would travel readable",
            hint="set SANDBOXER_API_URL to an https address",
        )
    api = Api(address, key=Secret(chosen), org=org)
    return SandboxerProvider(api, traits, Sbx(environ), org=org, restricted=not key)


def _text(config: Mapping[str, Any], name: str) -> str | None:
    value = config.get(name)
    return value if isinstance(value, str) and value else None
