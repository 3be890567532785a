"""The Git repository of a script: root, commit, branch, and whether tracked files were changed.

A repository may be hostile: its configuration can name programs that Git runs. So root, commit and branch are read from
its files. Git is asked only for changes, without the programs that the repository itself names, and not for long.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

from traceadvisor.bundle.layout import Repository
from traceadvisor.text.cleaning import clean, clipped

LIMIT_S = 2.0
"""For all calls of Git; in a larger repository it stays unknown whether files were changed."""

_LONGEST = 500
_LARGEST_REFS_BYTES = 1 << 24
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NO_PROGRAMS = ("core.fsmonitor=false", f"core.hooksPath={os.devnull}", "core.pager=cat")
_OWN_SCOPES = ("local", "worktree")
_FILTER = re.compile(r"filter\.(.+)\.(clean|smudge|process|required)", re.DOTALL)


def repository_of(folder: Path) -> Repository | None:
    """The repository of a folder; None without one. It never raises an error."""
    with suppress(Exception):  # the script runs all the same
        root = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)
        if root is not None:
            branch, commit = _head(_git_folder(root))
            dirty = _is_dirty(root)
            return Repository(
                root=clipped(clean(str(root)), _LONGEST),
                commit=commit,
                branch=clipped(clean(branch), _LONGEST) if branch else None,
                dirty=dirty,
                folder=clipped(clean(folder.relative_to(root).as_posix()), _LONGEST),
            )
    return None


def _git_folder(root: Path) -> Path:
    """Folder of a working tree's HEAD; in a linked working tree or a submodule, ``.git`` is a file that names it."""
    place = root / ".git"
    if place.is_dir():
        return place
    return root / _text(place).removeprefix("gitdir:").strip()


def _head(folder: Path) -> tuple[str | None, str | None]:
    """Branch and commit."""
    head = _text(folder / "HEAD").strip()
    if not head.startswith("ref:"):
        return None, _commit(head)
    name = head.removeprefix("ref:").strip()
    if ".." in name.split("/") or name.startswith("/"):
        return None, None
    common = folder / _text(folder / "commondir").strip() if (folder / "commondir").exists() else folder
    loose = (_commit(_text(place / name).strip()) for place in (folder, common) if (place / name).is_file())
    commit = next(loose, None) or _packed(common / "packed-refs", name)
    return name.removeprefix("refs/heads/"), commit


def _packed(path: Path, name: str) -> str | None:
    if not path.is_file():
        return None
    rows = (line.split(" ", 1) for line in _text(path).splitlines() if line[:1] not in {"#", "^"})
    return next((_commit(row[0]) for row in rows if row[1:] == [name]), None)


def _commit(text: str) -> str | None:
    return text if _COMMIT.fullmatch(text) else None


def _text(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe may never end
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        return file.read(_LARGEST_REFS_BYTES).decode(errors="replace")


def _is_dirty(root: Path) -> bool | None:
    """Whether tracked files differ from the commit; None if Git is missing, refuses or takes too long."""
    git = shutil.which("git")
    if git is None:
        return None
    try:
        listed = _run(git, root, (), "config", "--show-scope", "--includes", "--name-only", "--null", "--list")
        scopes, names = listed.split("\0")[0:-1:2], listed.split("\0")[1::2]
        own = {name for scope, name in zip(scopes, names, strict=True) if scope in _OWN_SCOPES}
        filters = [name for name in own if _FILTER.fullmatch(name)]
        if any("=" in name for name in filters):
            return None  # `-c` takes the part before it for the name
        off = tuple(f"{name}={'false' if name.endswith('required') else ''}" for name in filters)
        changes = ("--porcelain", "--untracked-files=no", "--ignore-submodules=all", "--no-renames")
        return bool(_run(git, root, off, "status", *changes))
    except (OSError, subprocess.SubprocessError):
        return None


def _run(git: str, root: Path, settings: tuple[str, ...], *arguments: str) -> str:
    """The output of a Git command that runs no program which the repository names.

    Raises:
        OSError: Git cannot be run.
        subprocess.SubprocessError: it failed or took too long.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    environment |= {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": ""}
    options = [word for setting in (*_NO_PROGRAMS, *settings) for word in ("-c", setting)]
    done = subprocess.run(  # noqa: S603  # the arguments are fixed
        [git, "--no-pager", "-C", str(root), *options, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT_S / 2,
        check=True,
    )
    return done.stdout.decode(errors="replace")
