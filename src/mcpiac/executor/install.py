"""The ``exec`` action: what is wanted is rendered, put into the guest, and the set-up run to its end there."""

from __future__ import annotations

import asyncio
from typing import cast

from mcpiac.executor import effects
from mcpiac.executor.step import Step
from mcpiac.guest import bridges, setup
from mcpiac.guest.setup import GuestKind
from mcpiac.model.ports import Installed
from mcpiac.model.record import Effect, service_name
from mcpiac.model.spec import Bridge


async def install(step: Step) -> tuple[Effect, str]:
    """Raises ``ProviderError``: ``rejected`` with the guest's own words where the set-up says no."""
    payload, spec, provider, id = step.payload, step.wanted, step.provider, step.id
    traits = provider.traits
    bridge = _bridge(step)
    installed: tuple[Installed, ...] = ()
    if traits.package_store:
        packages = setup.packages(spec, bridge)
        installed = await step.call(
            lambda: provider.install(
                id, packages, scripts=spec.build.scripts, hosts=spec.build.hosts, progress=step.progress
            )
        )
    wanted = setup.render(
        spec,
        server=service_name(step.action.sandbox),
        kind=cast(GuestKind, traits.guest),
        port=payload["port"],
        installed=installed,
        bridge=bridge,
        bridge_program=None if _is_there(step, bridge) else step.tools.materials.bridge_program,
        setup_version=payload["setup"],
        write=payload["write"],
        remove=payload["remove"],
        overwrite=payload["overwrite"],
        wait=spec.timeouts.check,
    )
    await _put(step, id, wanted)
    result = await step.call(
        lambda: provider.run(id, wanted.command, timeout=payload["timeout"], progress=step.progress, detached=True)
    )
    facts = setup.read(result)
    used = None if bridge is None else {"name": bridge.name, "version": bridge.version}
    version = payload["setup"] or setup.SETUP_VERSION
    return effects.set_up(step.action, step.now, spec, used, version, facts), ""


def _bridge(step: Step) -> Bridge | None:
    pin = step.payload["bridge"]
    return None if pin is None else bridges.resolve(pin["name"], pin["version"])


def _is_there(step: Step, bridge: Bridge | None) -> bool:
    """Whether the guest has the bundled bridge from an earlier set-up and is to keep it."""
    pin, server = step.payload["bridge"], step.now.server
    if bridge is None or pin is None or pin["version"] is None or server is None:
        return False
    return server.setup.get("bridge") == {"name": bridge.name, "version": bridge.version}


async def _put(step: Step, id: str, wanted: setup.Setup) -> None:
    """All files at once; the first failure is the answer, after the others have ended."""
    provider = step.provider

    async def one(path: str, content: bytes) -> None:
        await step.call(lambda: provider.put_file(id, path, content))

    ends = await asyncio.gather(*(one(*item) for item in wanted.files.items()), return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
