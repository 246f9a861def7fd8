"""What each verb does at the provider: one small function a verb, each idempotent, each answering its effect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcpiac.executor import effects
from mcpiac.executor.inside import answers_inside
from mcpiac.executor.install import install
from mcpiac.executor.step import Step
from mcpiac.model.action import Verb
from mcpiac.model.live import STOPPED, USABLE, Found
from mcpiac.model.outcome import ProviderError
from mcpiac.model.record import Effect
from mcpiac.model.secret import Secret
from mcpiac.model.spec import Egress, EgressRule


@dataclass(frozen=True, slots=True)
class Happened:
    """A verb that is done: what it changes, and a few words for people."""

    effect: Effect
    note: str = ""


class HalfDone(Exception):
    """It failed, and what it left is known: ``effect`` records that. ``cause`` is why."""

    def __init__(self, effect: Effect, cause: ProviderError) -> None:
        super().__init__(str(cause))
        self.effect = effect
        self.cause = cause


async def create(step: Step) -> Happened:
    """Ask for a sandbox, write down its id at once, then wait until it is usable."""
    payload, provider = step.payload, step.provider
    key, env, egress = step.action.key or "", step.env, egress_of(payload["egress"])
    found = await step.call(
        lambda: provider.create(key=key, size=payload["size"], ttl=payload["ttl"], env=env, egress=egress)
    )
    step.entry = await step.tools.journal.progress(step.entry, found=found.id)
    instance = step.tools.plan.instance
    effect = effects.created(step.action, found, instance, step.spec, step.sent, step.entry.began_at)
    try:
        if found.state not in USABLE:
            await _usable(step, found.id, payload["timeout"])
    except ProviderError as fault:
        # A 404 alone does not prove that it is gone (reads can be stale): the next refresh, with its list, does.
        why = step.tools.redactor.text(f"create: {fault.message}")
        raise HalfDone(effects.not_usable(step.action, effect, why), fault) from fault
    return Happened(effect, found.id)


async def execute(step: Step) -> Happened:
    """Set the server up in its guest."""
    return Happened(*await install(step))


async def host(step: Step) -> Happened:
    """A port gets a URL."""
    payload, provider, id = step.payload, step.provider, step.id
    answer = await step.call(
        lambda: provider.host(
            id,
            payload["port"],
            access=payload["access"],
            localhost=payload["localhost"],
            title=payload["title"],
        )
    )
    step.tools.redactor.learn(answer.token)
    step.tools.tokens[id, answer.port.port] = answer.token
    effect = effects.hosted(step.action, step.now, step.spec, answer.port)
    return Happened(effect, answer.port.url.split("?", 1)[0])


async def hide(step: Step) -> Happened:
    """A port loses its URL; one that has none is as wanted."""
    provider, id = step.provider, step.id
    try:
        await step.call(lambda: provider.hide(id, step.payload["port"]))
    except ProviderError as fault:
        if fault.kind != "not_found":
            raise
    return Happened(effects.hidden(step.action, step.now, step.spec))


async def idle(step: Step) -> Happened:
    """The idle delay."""
    provider, id, minutes = step.provider, step.id, step.payload["idle"]
    await step.call(lambda: provider.set_idle(id, minutes))
    return Happened(effects.boxed(step.action, step.now, step.spec, idle=minutes))


async def ttl(step: Step) -> Happened:
    """The deadline, from now."""
    provider, id, seconds = step.provider, step.id, step.payload["ttl"]
    await step.call(lambda: provider.set_ttl(id, seconds))
    return Happened(effects.boxed(step.action, step.now, step.spec, ttl=seconds))


async def rename(step: Step) -> Happened:
    """The display name."""
    provider, id, name = step.provider, step.id, step.payload["name"]
    await step.call(lambda: provider.rename(id, name))
    return Happened(effects.boxed(step.action, step.now, step.spec, name=name))


async def resume(step: Step) -> Happened:
    """Start what is stopped. One that runs already keeps its environment, unless that is what changed."""
    payload, provider, id = step.payload, step.provider, step.id
    found = await step.call(lambda: provider.get(id))
    if not _down(found):
        if payload["changed"]:
            return await _stop_and_resume(step)
        await step.call(lambda: provider.set_ttl(id, payload["ttl"]))
        return Happened(effects.powered(step.action, step.now, step.spec, None), "it was running already")
    return await _resume(step)


async def restart(step: Step) -> Happened:
    """Stop and resume as one: or, where the provider can, a change on the running sandbox."""
    if not step.payload["in_place"]:
        return await _stop_and_resume(step)
    payload, provider, id = step.payload, step.provider, step.id
    if "egress" in payload["changed"]:
        await step.call(lambda: provider.set_egress(id, egress_of(payload["egress"])))
    given = [name for name in payload["changed"] if name != "egress"]
    if given:
        box, env = step.now.sandbox, step.env
        ttl = box.ttl if box is not None else None
        timeout = payload["timeout"]
        await step.call(lambda: provider.resume(id, env=env, size=payload["size"], ttl=ttl, timeout=timeout))
    sent = step.sent if given else None
    return Happened(effects.powered(step.action, step.now, step.spec, sent, ttl=False))


async def stop(step: Step) -> Happened:
    """Stop; the disk is kept."""
    await _stop(step)
    return Happened(effects.boxed(step.action, step.now, step.spec, stopped=True))


async def delete(step: Step) -> Happened:
    """Delete; gone already is success."""
    provider, id = step.provider, step.id
    try:
        await step.call(lambda: provider.delete(id))
    except ProviderError as fault:
        if fault.kind != "not_found":
            raise
    return Happened(effects.deleted(step.action))


async def check(step: Step) -> Happened:
    """A real request, through the URL or from inside. A port that turns out not to be hosted leaves the record, so
    that the next plan hosts it: not every list carries hosted ports."""
    payload = step.payload
    if not payload["hosted"]:
        note = await answers_inside(step)
        return Happened(effects.checked(step.action, step.now, step.spec), note)
    server = step.now.server
    if server is None or server.hosted is None:
        raise ProviderError("rejected", "it has no URL to ask through", hint="apply again")
    public, timeout, probe = payload["access"] == "public", payload["timeout"], step.tools.probe
    token = None if public else await _token(step)
    url = server.hosted.url + payload["path"]
    until = step.tools.clock.monotonic() + timeout
    try:
        note = await step.call(
            lambda: probe.check(url, token, public=public, timeout=timeout, progress=step.progress), until=until
        )
    except ProviderError as fault:
        if await _hosted(step):
            raise
        raise HalfDone(effects.not_hosted(step.action, step.now), fault) from fault
    return Happened(effects.checked(step.action, step.now, step.spec), note)


async def _token(step: Step) -> Secret | None:
    at = step.id, step.payload["port"]
    if at not in step.tools.tokens and not await _hosted(step):
        fault = ProviderError(
            "rejected", f"port {at[1]} is not hosted any more", hint="apply again: it is hosted anew"
        )
        raise HalfDone(effects.not_hosted(step.action, step.now), fault)
    return step.tools.tokens[at]


async def _hosted(step: Step) -> bool:
    """Whether the port is hosted now; its token is kept for the run."""
    provider, id, port = step.provider, step.id, step.payload["port"]
    answers = await step.call(lambda: provider.hosted(id))
    if port not in answers:
        return False
    step.tools.redactor.learn(answers[port].token)
    step.tools.tokens[id, port] = answers[port].token
    return True


async def record(step: Step) -> Happened:
    """Nobody is called."""
    journal = step.tools.journal
    return Happened(effects.recorded(step.action, step.now, step.spec, journal.sandbox, journal.server))


VERBS: Mapping[Verb, Callable[[Step], Awaitable[Happened]]] = {
    "create": create,
    "exec": execute,
    "host": host,
    "hide": hide,
    "idle": idle,
    "ttl": ttl,
    "resume": resume,
    "restart": restart,
    "stop": stop,
    "rename": rename,
    "delete": delete,
    "check": check,
    "record": record,
}


def egress_of(view: Mapping[str, Any]) -> Egress:
    """An egress wish from its recorded view."""
    rules = tuple(EgressRule(r["host"], tuple(r["ports"]), r["private"]) for r in view["rules"])
    return Egress(view["kind"], rules)


async def _stop_and_resume(step: Step) -> Happened:
    await _stop(step)
    step.entry = await step.tools.journal.progress(step.entry, step="stopped")
    return await _resume(step)


async def _stop(step: Step) -> None:
    """Stopped; what is down by itself already (in error) is as wanted."""
    provider, id, timeout = step.provider, step.id, step.payload["timeout"]
    try:
        await step.call(lambda: provider.stop(id, timeout=timeout))
    except ProviderError as fault:
        if fault.kind != "conflict" or not _down(await step.call(lambda: provider.get(id))):
            raise


async def _resume(step: Step) -> Happened:
    payload, provider, id = step.payload, step.provider, step.id
    if "egress" in payload["changed"]:
        await step.call(lambda: provider.set_egress(id, egress_of(payload["egress"])))
    env, timeout = step.env, payload["timeout"]
    await step.call(
        lambda: provider.resume(id, env=env, size=payload["size"], ttl=payload["ttl"], timeout=timeout),
        until=step.tools.clock.monotonic() + timeout,
    )
    return Happened(effects.powered(step.action, step.now, step.spec, step.sent))


async def _usable(step: Step, id: str, timeout: float) -> None:
    until, provider, clock = step.tools.clock.monotonic() + timeout, step.provider, step.tools.clock
    await step.call(lambda: provider.wait(id, timeout=max(until - clock.monotonic(), 0.0)), until=until)


def _down(found: Found) -> bool:
    return found.state in STOPPED or found.state == "error" or found.expired
