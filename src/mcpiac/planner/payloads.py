"""What each verb's payload holds: the contract between the planner, which fills it, and the executor, which obeys it.

A payload is JSON-ready, complete (the executor asks the plan for nothing but the spec, ``plan.desired[server]``) and
holds no secret value. ``Action.sandbox`` is the key in ``State.sandboxes``, ``Action.target`` the provider's id where
it is known when the plan is made (else: the id in the sandbox record by the time that the action runs).

Keys that several verbs share
-----------------------------
``settles``
    Fields of ``ServerSpec`` that are as declared once this action has *succeeded*: the executor copies exactly these
    from ``recorded_view(plan.desired[server])`` into ``ServerRecord.spec`` and leaves the others as they were. A
    field that the record lacks counts as never applied, so the next plan goes on where a run failed half-way.
``digest``
    SHA-256 of the action's inputs: on success ``ServerRecord.inputs[verb] = digest``.
``secrets``, ``fingerprints``, ``owner``
    The sandbox's whole environment: the names whose values are sent, the traces of the values as the plan saw them
    (``{NAME: {key_id, mac, version}}``; a name without one was not compared), and the value of ``MCPIAC_OWNER``.
    On success ``SandboxRecord.secrets`` are the traces of what was really sent, ``SandboxRecord.owner`` is owner.
``timeout``
    Seconds for the long part of the action.
``instance``
    Only on actions about a sandbox of *another* provider than the plan's (the provider was changed in the file):
    ``{provider, id}``. Such an action goes to that instance or fails; never to the plan's own provider.

Per verb
--------
``create``   size, ttl (s | null), egress, secrets_at_rest, secrets, fingerprints, owner, name, variable, port,
             timeout, settles, digest. ``Action.key`` is the idempotency key. On the id: ``sandboxes[action.sandbox]``
             is made (id, key, owner, created_at, size, ttl, egress, secrets; idle None, name ""), and
             ``servers[server]`` is made *anew*: sandbox, variable, port, spec = only the settled fields, nothing
             else. ``name`` is not sent.
``rename``   name. Effect: ``SandboxRecord.name``.
``exec``     port, bridge ({name, version} | null for ``transport: http``; a null name or version means this mcpiac's
             own default), setup (the set-up version to keep | null for this mcpiac's own), write ({path: the recorded
             SHA-256 of what we last wrote there | null}: only these files are written; one whose content is neither
             the declared nor the recorded one was edited inside and is an error unless ``overwrite``), remove ({path:
             recorded SHA-256 | null}: no longer declared, deleted unless edited inside), overwrite, timeout, settles,
             digest. A path under ``write`` that is declared with ``secret`` is written whatever is there. Effect:
             ``ServerRecord.port``, ``.files`` (path → SHA-256 of each declared file that is not a secret),
             ``.setup`` = {"bridge": {name, version} as resolved | null, "version": set-up version, …facts},
             ``.tainted`` None. A failure sets ``.tainted`` to why and settles nothing.
``host``     port, access, localhost, title, settles, digest. Effect: ``ServerRecord.hosted``, made from the
             provider's answer (not from the payload), url without token.
``hide``     port, settles. Effect: ``ServerRecord.hosted`` None, but only if the server's record still points to this
             sandbox and this port.
``idle``     idle (minutes | null = off), settles, digest. Effect: ``SandboxRecord.idle``.
``ttl``      ttl (s | null = no auto-stop), settles, digest. Set, not add. Effect: ``SandboxRecord.ttl``.
``resume``   size, ttl, egress, secrets, fingerprints, owner, changed, timeout, settles, digest. No-op when running.
             Effect: as create for size, ttl, egress, secrets, owner; ``SandboxRecord.stopped`` False. ``egress`` is
             set before it only if ``changed`` (of size, secrets, egress, secrets_at_rest) names it.
``restart``  the same, with ``in_place``: true: nothing is stopped, the provider changes ``changed`` on the running
             sandbox, ttl is left alone. Else stop, then resume as above. One composite in the journal.
``stop``     timeout, settles. By state. Effect: ``SandboxRecord.stopped`` True.
``delete``   forget (true: the server leaves the state as well; false: only ``sandboxes[action.sandbox]``). Gone is
             success.
``check``    port, path, access, hosted (false: asked from inside), timeout. A failure sets ``ServerRecord.tainted``;
             success clears it.
``record``   Calls nobody. ``what`` is one of
             ``settle``    settles: only what is declared changed.
             ``move``      from, fingerprints: ``servers[server] = servers[from]``, ``servers[from]`` leaves; the
                           sandbox's key stays; ``SandboxRecord.secrets`` become exactly these traces (they are made
                           over the server's address, so the old ones say nothing under the new name).
             ``forget``    the server and its sandbox leave the state (gone already).
             ``accept``    live becomes the record: any of idle (minutes | null), size, stopped, hosted (null |
                           {port, url, access, localhost, title}).
             ``instance``  instance {provider, id}, sandboxes [keys]: these get ``SandboxRecord.instance``, before
                           the first create at another provider changes ``State.instance``. ``Action.server`` is "".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mcpiac.model.record import Fingerprint, Instance

Payload = dict[str, Any]


def instance(value: Instance) -> Payload:
    """An instance as payloads carry it."""
    return {"provider": value.provider, "id": value.id}


def traces(fingerprints: Mapping[str, Fingerprint | None]) -> Payload:
    """Fingerprints as payloads carry them; an absent one is left out."""
    return {
        name: {"key_id": trace.key_id, "mac": trace.mac, "version": trace.version}
        for name, trace in fingerprints.items()
        if trace is not None
    }


def move(source: str, fingerprints: Mapping[str, Fingerprint | None]) -> Payload:
    """A record that goes on under another name."""
    return {"what": "move", "from": source, "fingerprints": traces(fingerprints)}


def settle(fields: Sequence[str]) -> Payload:
    """Declared changes that need no call."""
    return {"what": "settle", "settles": list(fields)}


def forget() -> Payload:
    """A record of what is gone."""
    return {"what": "forget"}


def accept(**live: Any) -> Payload:
    """Drift that is taken over into the record (``--refresh-only``)."""
    return {"what": "accept", **live}


def stamp(old: Instance, sandboxes: Sequence[str]) -> Payload:
    """Which instance the old sandboxes belong to, said before the state turns to another one."""
    return {"what": "instance", "instance": instance(old), "sandboxes": list(sandboxes)}
