"""Wishes that a provider cannot fulfil: refused when planned, with what to write instead."""

from __future__ import annotations

from collections.abc import Iterator

from mcpiac.guest.bridges import DEFAULT, KINDS
from mcpiac.model.diagnostic import Diagnostic
from mcpiac.model.spec import ServerSpec
from mcpiac.planner.context import Context


def refuse(ctx: Context, name: str, spec: ServerSpec) -> Iterator[Diagnostic]:
    """The errors of one server's spec against the provider's traits."""
    traits = ctx.traits
    if spec.egress.kind not in traits.egress:
        kinds = " or ".join(f"`egress: {kind}`" for kind in sorted(traits.egress, key=_narrowest) if kind != "list")
        listed = "a list of hosts" if "list" in traits.egress else ""
        wish = "a list of hosts" if spec.egress.kind == "list" else f"`egress: {spec.egress.kind}`"
        yield ctx.diagnostic(
            "error",
            "egress-not-enforced",
            name,
            f"{wish} of {name} cannot be enforced by the provider {traits.provider}",
            key="egress",
            detail="a limit that nothing enforces would only look like one",
            hint=f"write {' or '.join(part for part in (kinds, listed) if part)}, or choose another provider",
        )
    if spec.mounts and not traits.mounts:
        yield ctx.diagnostic(
            "error",
            "mounts-not-here",
            name,
            f"the provider {traits.provider} cannot mount folders of this machine ({name})",
            key="mounts",
            hint="write the files under `files:` (`{from: ./path}`), or choose a provider that can",
        )
    if spec.build.hosts and not traits.package_store:
        yield ctx.diagnostic(
            "error",
            "build-hosts-not-enforced",
            name,
            f"with the provider {traits.provider} the install scripts of {name} reach whatever its sandbox reaches",
            key="build.hosts",
            detail="a limit that nothing enforces would only look like one",
            hint="remove `hosts`, or choose another provider",
        )
    if spec.sandbox is not None:
        yield ctx.diagnostic(
            "error",
            "shared-sandbox",
            name,
            f"{name} asks for the common sandbox {spec.sandbox}, which this version does not make",
            key="sandbox",
            hint="remove `sandbox`: each server then has one of its own",
        )
    bridge = None if spec.transport == "http" else (spec.bridge.name if spec.bridge is not None else DEFAULT)
    fixed = KINDS[bridge].fixed_path if bridge is not None else None
    if fixed is not None and spec.path != fixed:
        yield ctx.diagnostic(
            "error",
            "bridge-fixed-path",
            name,
            f"the bridge {bridge} serves {fixed} only, and {name} asks for {spec.path}",
            key="path",
            hint=f"remove `path`, or choose another bridge than {bridge}",
        )
    if bridge == "mcpiac" and spec.bind == "any" and traits.guest == "systemd":
        yield ctx.diagnostic(
            "error",
            "bridge-loopback-only",
            name,
            f"the bridge mcpiac of {name} listens on loopback only",
            key="bind",
            hint="remove `bind: any`: it is for servers that speak HTTP themselves",
        )


def _narrowest(kind: str) -> int:
    return ("none", "list", "all").index(kind)
