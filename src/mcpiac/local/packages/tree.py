"""What an installed tree may hold, and its modes: checked before it gets its name."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from mcpiac.local.packages.errors import PackageError

FILES_MAX = 500_000


def check_and_freeze(root: Path) -> tuple[int, int]:
    """Refuse what does not belong there; make the rest read-only and readable by everybody.

    Allowed are folders, regular files with no set-id bit and links that stay within ``root``. Returns how many files
    there are and their size in bytes. Raises PackageError ``bad_tree``.
    """
    count = size = 0
    top = os.path.realpath(root)
    folders: list[str] = []
    for folder, names, files in os.walk(top, onerror=_raise):
        for name in [*names, *files]:
            path = os.path.join(folder, name)
            about = os.lstat(path)
            count += 1
            if count > FILES_MAX:
                raise PackageError("bad_tree", f"the package has more than {FILES_MAX} files")
            if stat.S_ISLNK(about.st_mode):
                _check_link(top, folder, path)
            elif stat.S_ISREG(about.st_mode):
                if about.st_mode & (stat.S_ISUID | stat.S_ISGID):
                    raise PackageError("bad_tree", f"the package holds a set-id file: {_shown(top, path)}")
                size += about.st_size
                os.chmod(path, 0o555 if about.st_mode & 0o111 else 0o444)
            elif not stat.S_ISDIR(about.st_mode):
                raise PackageError("bad_tree", f"the package holds a device, pipe or socket: {_shown(top, path)}")
        folders.append(folder)
    for folder in folders:
        os.chmod(folder, 0o555)  # noqa: S103 - whichever uid a sandbox has must read it
    return count, size


def _raise(failure: OSError) -> None:
    raise failure


def _shown(top: str, path: str) -> str:
    return os.path.relpath(path, top)


def _check_link(top: str, folder: str, path: str) -> None:
    target = os.readlink(path)
    landed = os.path.normpath(os.path.join(os.path.realpath(folder), target))
    if os.path.isabs(target) or not landed.startswith(top + os.sep):
        raise PackageError("bad_tree", f"the package holds a link out of itself: {_shown(top, path)}")


def give(root: Path, uid: int) -> None:
    """Change the owner of a whole tree, links not followed."""
    for folder, names, files in os.walk(root):
        for name in [*names, *files]:
            os.lchown(os.path.join(folder, name), uid, uid)
    os.lchown(root, uid, uid)


def remove(root: Path) -> None:
    """Delete a tree that may be read-only; no-op when it is not there."""
    for folder, _, _ in os.walk(root):
        if not os.path.islink(folder):
            os.chmod(folder, 0o700)
    shutil.rmtree(root, ignore_errors=True)
