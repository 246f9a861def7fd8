"""The project folder: where it begins, which stacks are in it, and what ``mcpiac.yaml`` says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcpiac.model.diagnostic import Diagnosed, Diagnostic, Origin, error
from mcpiac.stack import source

STACKS = "stacks"
SETTINGS = "mcpiac.yaml"
_ENDINGS = (".yaml", ".yml")
_LOCKS = (".lock.yaml", ".lock.yml")
_SECTIONS = ("policy", "display")
_ADDRESSES = re.compile(
    r"(?:address|api|api_url|backend|cmd|commands?|endpoint|host|org|organi[sz]ation|providers?|proxy|registry"
    r"|secret_store|secrets|server|state|store|url)\Z"
)


@dataclass(frozen=True, slots=True)
class Project:
    """``root``: what ``state/`` and ``from:`` are relative to. ``policy``: that section of mcpiac.yaml."""

    root: Path
    policy: Mapping[str, Any] = field(default_factory=dict)

    def stack_files(self) -> list[Path]:
        """Every stack file of the project, sorted; lock files are none."""
        folder = self.root / STACKS
        try:
            found = sorted(p for p in folder.iterdir() if _is_stack_file(p))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except PermissionError:
            shown = source.shown(folder, self.root)
            raise error("not-readable", "no permission to list this folder", origin=Origin(shown)) from None
        return found

    def select(self, names: Sequence[str]) -> list[Path]:
        """The files that STACK arguments (a file, or a stack's name) stand for; none means all.

        Raises ``Diagnosed`` for a name that no stack has, for a name that two files have, and where there is nothing.
        """
        files = self.stack_files()
        if not names:
            if not files:
                hint = "`mcpiac init` writes a first one"
                raise error("no-stacks", f"there is no stack in {self.root / STACKS}", hint=hint)
            self._refuse_twins({path: name for path in files if (name := stack_name(path)) is not None})
            return files
        declared = {path: name for path in files if (name := stack_name(path)) is not None}
        chosen: list[Path] = []
        faults: list[Diagnostic] = []
        for name in names:
            found = [path for path, held in declared.items() if held == name]
            if len(found) > 1:
                self._refuse_twins(dict.fromkeys(found, name))
            elif not found and _is_path(name):
                found = [self._typed(name)]
            elif not found:
                faults.append(self._unknown(name, list(declared.values())))
            chosen += [path for path in found if path not in chosen]
        if faults:
            raise Diagnosed(*faults)
        return chosen

    def _typed(self, name: str) -> Path:
        """A file as the user typed it: from where they stand, else from the project's folder."""
        path = Path(name)
        return path if path.exists() or not (self.root / path).exists() else self.root / path

    def _unknown(self, name: str, known: Sequence[str]) -> Diagnostic:
        from difflib import get_close_matches

        near = get_close_matches(name, known, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"there is: {', '.join(sorted(known)) or 'no stack at all'}"
        return Diagnostic("error", "unknown-stack", f"no stack of this project is called `{name}`", hint=hint)

    def _refuse_twins(self, declared: Mapping[Path, str]) -> None:
        first: dict[str, Path] = {}
        faults = []
        for path, name in declared.items():
            if name in first:
                other = source.shown(first[name], self.root)
                summary = f"the stack `{name}` is declared in {other} as well"
                origin = Origin(source.shown(path, self.root))
                hint = "give one of them another name under `stack:`"
                faults.append(Diagnostic("error", "stack-twice", summary, origin=origin, hint=hint))
            first.setdefault(name, path)
        if faults:
            raise Diagnosed(*faults)


def find(start: Path, chosen: Path | None) -> Project:
    """The project: ``chosen`` (``-C``), else the nearest folder upwards with ``stacks/`` or ``mcpiac.yaml``.

    Raises ``Diagnosed`` where there is none, or where ``mcpiac.yaml`` is wrong.
    """
    if chosen is not None:
        root = chosen if chosen.is_absolute() else start / chosen
        if not root.is_dir():
            raise error("no-project", f"{chosen} is no folder", hint="-C takes the folder that holds stacks/")
        return Project(root, _policy(root))
    for folder in (start, *start.parents):
        if (folder / STACKS).is_dir() or (folder / SETTINGS).exists():
            return Project(folder, _policy(folder))
    hint = "go to the project's folder, name it with -C, or make one: `mcpiac init`"
    raise error("no-project", f"neither {start} nor a folder above it has stacks/ or {SETTINGS}", hint=hint)


def stack_name(path: Path) -> str | None:
    """A file's ``stack:`` value, read no further than that; None where there is none."""
    from ruamel.yaml.error import YAMLError

    from mcpiac.stack.compose import first_scalar

    try:
        return first_scalar(source.read_text(path, str(path)), "stack")
    except (Diagnosed, YAMLError):
        return None


def _is_stack_file(path: Path) -> bool:
    return path.name.endswith(_ENDINGS) and not path.name.endswith(_LOCKS) and not path.name.startswith(".")


def _is_path(name: str) -> bool:
    return "/" in name or name.endswith(_ENDINGS)


def _policy(root: Path) -> Mapping[str, Any]:
    """The policy of ``mcpiac.yaml``. Nothing can be set in it yet: each key is refused, with the reason."""
    path = root / SETTINGS
    if not path.exists():
        return {}
    from mcpiac.stack.compose import Map, compose
    from mcpiac.stack.finding import Finding, Spot
    from mcpiac.stack.looks import shown
    from mcpiac.stack.place import Places

    file = source.shown(path, root)
    text = source.read_text(path, file)
    composed = compose(text)
    places = Places(file, text, composed.root, stack=False)
    findings = [composed.fault] if composed.fault else list(composed.findings)
    tree = composed.root
    if not findings and not composed.empty:
        if not isinstance(tree, Map):
            hint = f"the keys are: {', '.join(_SECTIONS)}"
            findings.append(Finding("not-a-mapping", f"{SETTINGS} is a mapping", Spot(0, 0), hint))
        else:
            findings += [
                _setting(key, value, shown(key)) for key, value in tree.items() if value not in (None, {}, [])
            ]
            findings += [_unknown_setting(key, shown(key)) for key in tree if key not in _SECTIONS and not tree[key]]
    if findings:
        raise Diagnosed(*(places.diagnostic(f) for f in findings))
    return {}


def _setting(key: str, value: Any, said: str) -> Any:
    from mcpiac.stack.finding import Finding
    from mcpiac.stack.looks import secret_name

    if key in _SECTIONS:
        summary = f"`{said}` in {SETTINGS} comes with a later version of mcpiac"
        return Finding("later-version", summary, (key,), "leave it empty", on="key")
    if _ADDRESSES.match(key.lower().replace("-", "_")) or secret_name(key):
        summary = f"`{said}` cannot stand in {SETTINGS}"
        detail = (
            f"{SETTINGS} is part of the repository: whoever can change it could have a credential sent elsewhere.\n"
            "Addresses and credentials come from the environment or from your own config."
        )
        hint = "set it in the environment, or in $XDG_CONFIG_HOME/mcpiac/config.yaml"
        return Finding("address-in-project", summary, (key,), hint, detail, on="key")
    return _unknown_setting(key, said)


def _unknown_setting(key: str, said: str) -> Any:
    from mcpiac.stack.finding import Finding

    hint = f"the keys are: {', '.join(_SECTIONS)}"
    return Finding("unknown-key", f"`{said}` is not a key of {SETTINGS}", (key,), hint, on="key")
