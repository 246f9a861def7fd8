"""Builds the bridge as one file: a zipapp with h11 inside, the same bytes for the same inputs.

`python -m mcpiac.bridge.build FILE`, or `build_zipapp()`. Needs no network: h11 comes from where this
interpreter imports it. Beside each source stands its bytecode for this interpreter's version; any
other version compiles the sources.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import marshal
import sys
import zipfile
from pathlib import Path
from types import CodeType

PACKAGE = "mcpiac_bridge"
_MAIN = f"import sys\n\nfrom {PACKAGE}.main import main\n\nsys.exit(main())\n"
_SHEBANG = b"#!/usr/bin/env python3\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_LEFT_OUT = frozenset(("build.py", "__main__.py"))
_UNCHECKED = (1).to_bytes(4, "little")  # bytecode that is not compared with its source: PEP 552


def build_zipapp(bytecode: bool = True) -> bytes:
    """The pyz; about 280 KB. The same interpreter, zlib and h11 give the same bytes.

    Raises RuntimeError when h11 is not installed.
    """
    files = {"__main__.py": _MAIN.encode()}
    here = Path(__file__).parent
    for source in sorted(here.glob("*.py")):
        if source.name not in _LEFT_OUT:
            files[f"{PACKAGE}/{source.name}"] = source.read_bytes()
    files.update(_h11())
    if bytecode:
        for name in [n for n in files if n.endswith(".py") and n != "__main__.py"]:
            files[name + "c"] = _compiled(name, files[name])
    packed = io.BytesIO()
    packed.write(_SHEBANG)
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name])
    return packed.getvalue()


def _h11() -> dict[str, bytes]:
    spec = importlib.util.find_spec("h11")
    if spec is None or spec.origin is None:
        raise RuntimeError("h11 is not installed: it comes with httpx")
    folder = Path(spec.origin).parent
    files = {f"h11/{p.name}": p.read_bytes() for p in folder.glob("*.py")}
    for entry in importlib.metadata.files("h11") or ():
        if entry.name.startswith("LICENSE"):
            files[f"h11/{entry.name}"] = Path(str(entry.locate())).read_bytes()
    return files


def _compiled(name: str, source: bytes) -> bytes:
    code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    return importlib.util.MAGIC_NUMBER + _UNCHECKED + importlib.util.source_hash(source) + _marshalled(code)


def _marshalled(code: CodeType) -> bytes:
    try:
        return marshal.dumps(code, 2)  # version 2 has no references, whose place depends on chance
    except ValueError:  # a constant that version 2 cannot hold
        return marshal.dumps(code)


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python -m mcpiac.bridge.build FILE", file=sys.stderr)
        return 1
    target = Path(sys.argv[1])
    target.write_bytes(build_zipapp())
    target.chmod(0o755)
    return 0


if __name__ == "__main__":
    sys.exit(main())
