"""What an action changes in the state, where it is more than copying its payload."""

from __future__ import annotations

import pytest

from mcpiac.executor import effects
from mcpiac.executor.effects import Records
from mcpiac.model.action import Action
from mcpiac.model.record import Fingerprint, SandboxRecord, ServerRecord
from mcpiac.model.spec import FileSpec, Lifecycle, SecretRef, ServerSpec

OLD, NEW = Fingerprint("k", "old"), Fingerprint("k", "new")
RESTART = Action(
    "a.restart",
    "a",
    "restart",
    "a",
    payload={"size": "small", "ttl": None, "egress": "none", "owner": "l/a/k", "settles": ["secrets"]},
)


@pytest.mark.parametrize(
    ("sent", "ignore", "tainted"),
    [
        ({"KEY": NEW, "OTHER": OLD}, (), True),
        ({"KEY": OLD, "OTHER": NEW}, (), False),
        ({"KEY": NEW, "OTHER": OLD}, ("files",), False),
        (None, (), False),
    ],
)
def test_a_changed_secret_taints_until_the_files_that_hold_it_are_written(
    sent: dict[str, Fingerprint] | None, ignore: tuple[str, ...], tainted: bool
) -> None:
    spec = ServerSpec(
        command=("true",),
        files={"/home/user/key": FileSpec(secret="KEY")},
        secrets={"KEY": SecretRef("env:KEY"), "OTHER": SecretRef("env:OTHER")},
        lifecycle=Lifecycle(ignore=ignore),
    )
    box = SandboxRecord("sbx_1", "k", "l/a/k", "2026-01-01T00:00:00Z", secrets={"KEY": OLD, "OTHER": OLD})
    now = Records(box, ServerRecord("a", {}, "A", 8000))
    effect = effects.powered(RESTART, now, spec, sent)
    server = effect.servers["a"]
    assert server is not None
    assert (server.tainted is not None) is tainted
