"""Extension: which packages a sandbox has mounted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from aiohttp import web

from mcpiac import wire
from mcpiac.local.api.app import FLEET, STORE, Lines, body, told
from mcpiac.local.errors import Refused
from mcpiac.local.packages.errors import PackageError
from mcpiac.local.packages.store import StoredPackage
from mcpiac.local.records import StoredMount
from mcpiac.model import destination

PACKAGES_MAX = 32
_RETRYABLE = frozenset({"registry_unreachable", "install_timeout"})
_NAMES = {
    "npm": re.compile(r"(@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*", re.IGNORECASE),
    "pypi": re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?", re.IGNORECASE),
}
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.!+_-]{0,127}")
_EXTRA = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?", re.IGNORECASE)


async def mount(request: web.Request) -> web.StreamResponse:
    """``PUT …/packages``: NDJSON, ``progress`` lines, then ``installed`` or ``error``."""
    asked = await body(request, wire.InstallRequest)
    fleet, store = request.app[FLEET], request.app[STORE]
    box = fleet.use(request.match_info["id"])
    if len(asked.packages) > PACKAGES_MAX:
        raise Refused(400, "invalid_request", f"at most {PACKAGES_MAX} packages")
    for package in asked.packages:
        _check(package)
    hosts = _destinations(asked.hosts)
    lines = Lines(request)
    await lines.begin()
    settings = wire.install_settings(asked.settings or {})
    said: asyncio.Queue[str] = asyncio.Queue(1000)

    def progress(text: str) -> None:
        if not said.full():
            said.put_nowait(text)

    async def install() -> list[StoredPackage]:
        return list(
            await asyncio.gather(
                *(
                    store.ensure(package, scripts=asked.scripts, hosts=hosts, settings=settings, progress=progress)
                    for package in asked.packages
                )
            )
        )

    with fleet.working():
        task = asyncio.create_task(install())
        try:
            while not task.done() or not said.empty():
                waiting = asyncio.create_task(said.get())
                done, _ = await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
                if waiting in done:
                    await lines.send({"type": "progress", "text": waiting.result()[:500]})
                else:
                    waiting.cancel()
            stored = task.result()
            items = tuple(_item(each) for each in stored)
            mounts = [
                StoredMount(item.model_dump(mode="json", by_alias=True), each.mount[0])
                for item, each in zip(items, stored, strict=True)
            ]
            await fleet.mount(box, mounts)
        except PackageError as fault:
            details = {**fault.details(), "retryable": fault.code in _RETRYABLE}
            await _failed(
                lines, wire.ErrorDetail(code=fault.code, message=fault.message, status=422, details=details)
            )
        except Refused as fault:
            await _failed(lines, wire.ErrorDetail(code=fault.code, message=fault.message, status=fault.status))
        else:
            frame = wire.InstallFrame(type="installed", installed=items)
            await lines.send(frame.model_dump(mode="json", by_alias=True))
        finally:
            task.cancel()
    await lines.response.write_eof()
    return lines.response


async def _failed(lines: Lines, detail: wire.ErrorDetail) -> None:
    await lines.send(wire.InstallFrame(type="error", error=detail).model_dump(mode="json", by_alias=True))


def _item(stored: StoredPackage) -> wire.InstalledItem:
    return wire.InstalledItem(
        package=stored.package,
        path=stored.path,
        entry=stored.entry,
        integrity=stored.integrity,
        env=dict(stored.env),
    )


def _check(package: wire.PackageItem) -> None:
    """Nothing but an exact name and version gets near a package manager."""
    name = _NAMES.get(package.registry)
    good = name is not None and name.fullmatch(package.name) and _VERSION.fullmatch(package.version)
    if not good or ".." in package.name or not all(_EXTRA.fullmatch(extra) for extra in package.extras):
        raise Refused(400, "invalid_package", "a package is {registry: npm|pypi, name, version (exact)}")


def _destinations(hosts: Sequence[str]) -> list[destination.Destination]:
    if len(hosts) > destination.MOST:
        raise Refused(400, "invalid_request", f"at most {destination.MOST} hosts")
    try:
        return [destination.parse(each) for each in hosts]
    except destination.BadDestination as bad:
        raise Refused(400, "invalid_request", f"hosts: {bad.summary}") from None


async def collect(request: web.Request) -> web.Response:
    """Extension: ``POST /packages/collect``: remove from the store what no sandbox mounts."""
    fleet, store = request.app[FLEET], request.app[STORE]
    if fleet.at_work:
        raise Refused(409, "packages_busy", "packages are being installed; collect when that is done")
    with fleet.working():
        removed = await asyncio.to_thread(store.collect, fleet.mounted())
    return told(wire.DoneAnswer(type="packages.collected"), removed=removed)


ROUTES = (("PUT", "/sandboxes/{id}/packages", mount), ("POST", "/packages/collect", collect))
