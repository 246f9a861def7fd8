"""Tokens of hosted ports, asked of the provider at the moment they are needed and kept nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mcpiac.commands import view
from mcpiac.model.diagnostic import Diagnostic
from mcpiac.model.outcome import ProviderError

if TYPE_CHECKING:
    from mcpiac.commands.fleet import Member
    from mcpiac.model.address import Address
    from mcpiac.model.ports import Hosted, Provider

AT_ONCE = 16


async def hosted(
    members: Sequence[Member], providers: Mapping[str, Provider]
) -> tuple[dict[Address, Hosted], list[Diagnostic]]:
    """Each hosted server's port with its token, and what could not be asked."""
    found: dict[Address, Hosted] = {}
    faults: list[Diagnostic] = []
    gate = asyncio.Semaphore(AT_ONCE)

    async def ask(member: Member) -> None:
        async with gate:
            try:
                ports = await providers[member.provider].hosted(member.box.id)
            except ProviderError as fault:
                faults.append(view.provider_fault(fault, "its token", str(member.address)))
                return
        if member.server.port in ports:
            found[member.address] = ports[member.server.port]
        else:
            said = f"port {member.server.port} is recorded as hosted and is not"
            hint = "`mcpiac apply` puts it back."
            faults.append(Diagnostic("warning", "not-hosted", said, address=str(member.address), hint=hint))

    await asyncio.gather(*(ask(m) for m in members if m.server.hosted is not None))
    return found, sorted(faults, key=lambda d: d.address or "")
