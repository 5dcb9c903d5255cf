"""`checkout`: folders of a git repository as they were at one commit, kept for the next time."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from verifiers.errors import ConfigError, SetupError

LIMIT_S = 1800.0  # of one git command
_URL = re.compile(r"(https?|ssh|git|file)://\S+|[\w.-]+@[\w.-]+:\S+")  # no transports that run programs, no options
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def is_git_url(text: str) -> bool:
    return _URL.fullmatch(text) is not None


def is_commit(text: str | None) -> bool:
    """A whole commit id: a short one, a branch and a tag may mean something else tomorrow."""
    return text is not None and _COMMIT.fullmatch(text) is not None


def without_user(url: str) -> str:
    """The address as it may be shown and saved: a password in it stays out.

    >>> without_user("https://me:secret@host.example/a.git")
    'https://host.example/a.git'
    """
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def head_of(url: str) -> str | None:
    """The commit that the repository is at now; None when it does not say."""
    try:
        said = _git(None, "ls-remote", "--", url, "HEAD").split()
    except SetupError:
        return None
    return said[0] if said and is_commit(said[0]) else None


def checkout(url: str, commit: str, paths: Sequence[str]) -> Path:
    """A folder with `paths` of the repository in it ("" is all). Raises ConfigError and SetupError.

    Made once, aside, and then moved to its place: what is there is whole.
    """
    if not is_git_url(url) or not is_commit(commit):
        raise ConfigError(f"{without_user(url)!r} at {commit!r} is no git address with a whole commit id")
    for path in paths:
        if path.startswith(("/", "-", ":")) or ".." in Path(path).parts:
            raise ConfigError(f"{path!r} is no path inside a repository")
    wanted = sorted(set(paths))
    key = hashlib.sha256("\0".join([url, *wanted]).encode()).hexdigest()[:24]
    target = cache_folder() / commit / key
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".making-") as making:
        tree = Path(making) / "tree"
        try:
            _fetch(tree, url, commit, wanted, "--filter=blob:none")
        except SetupError:  # some hosts do not serve files one by one
            shutil.rmtree(tree, ignore_errors=True)
            _fetch(tree, url, commit, wanted)
        shutil.rmtree(tree / ".git")
        try:
            tree.rename(target)
        except OSError:  # another process was faster
            if not target.is_dir():
                raise
    return target


def cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(root) if os.path.isabs(root) else Path("~/.cache").expanduser()
    return base / "verifiers" / "git"


def _fetch(tree: Path, url: str, commit: str, paths: Sequence[str], *options: str) -> None:
    tree.mkdir()
    _git(tree, "init", "-q")
    _git(tree, "remote", "add", "origin", url)
    _git(tree, "fetch", "-q", "--depth=1", *options, "origin", commit)
    _git(tree, "checkout", "-q", commit, "--", *(path or "." for path in paths))


def _git(folder: Path | None, *arguments: str) -> str:
    program = shutil.which("git")
    if program is None:
        raise SetupError("a git address needs the program 'git', which is not installed")
    settings = [
        "--literal-pathspecs",
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "core.autocrlf=false",
        "-c",
        "init.defaultBranch=main",
    ]
    outside = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            [program, *settings, *arguments],
            cwd=folder,
            env=outside | {"GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1"},
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise SetupError(f"git {arguments[0]} took longer than {LIMIT_S:g} s") from None
    if done.returncode != 0:
        raise SetupError(f"git {arguments[0]} failed: {' '.join(done.stderr.split())[-300:]}")
    return done.stdout
