"""`Member`: one file inside an archive; its path is safe on every system and no two members mean the same file."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from verifiers.archives.limits import MIB, Limits
from verifiers.archives.refusal import ArchiveRefused, shown

MAX_PATH_BYTES = 255
HASH_FORMAT = "vfh1"
MAX_MODULE_BYTES = MIB  # of a Python file that is looked through for load_environment

# control characters, line and paragraph separators, and the marks that turn the writing direction, with which a name
# can be made to look like another
_NOT_SHOWN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_EXPOSES = re.compile(rb"^[ \t]*(?:async[ \t]+)?def[ \t]+load_environment\b|^load_environment[ \t]*[=:]", re.M)
_MAX_LOOKED_AT = 20  # places in one module: the time for 10,000 modules is bounded too


@dataclass(frozen=True, slots=True)
class Member:
    """A file. `path` has `/` between its parts; in an sdist it begins below the top folder."""

    path: str
    size_bytes: int
    sha256: str  # hex
    executable: bool


@dataclass(slots=True)
class Entry:
    """What an archive format hands over for one member; `chunks` is read before the next entry is asked for."""

    path: str  # without a slash at the end
    is_folder: bool
    executable: bool
    chunks: Iterable[bytes]


@dataclass(slots=True)
class Contents:
    """All of an archive's members, and the bytes of the few that its rules look into."""

    members: list[Member] = field(default_factory=list[Member])
    folders: set[str] = field(default_factory=set[str])
    kept: dict[str, bytes] = field(default_factory=dict[str, bytes])
    exposing: set[str] = field(default_factory=set[str])  # paths of Python files that have load_environment


def read_members(entries: Iterator[Entry], limits: Limits, keep: Callable[[str], int | None]) -> Contents:
    """Hashes every member in one pass. `keep(path)` gives the most bytes a member may have whose content is wanted,
    `None` for the others. Raises ArchiveRefused."""
    found, paths = Contents(), Paths(limits)
    for entry in entries:
        paths.add(entry.path, is_folder=entry.is_folder)
        if entry.is_folder:
            found.folders.add(entry.path)
            continue
        most = keep(entry.path)
        is_module = entry.path.endswith(".py")
        wanted: list[bytes] | None = [] if most is not None or is_module else None
        digest, size = hashlib.sha256(), 0
        for chunk in entry.chunks:
            digest.update(chunk)
            size += len(chunk)
            if most is not None and size > most:
                raise ArchiveRefused("file_too_large", f"{shown(entry.path)} is larger than {most:,} bytes")
            if wanted is not None:
                if most is None and size > MAX_MODULE_BYTES:
                    wanted = None
                else:
                    wanted.append(chunk)
        content = b"".join(wanted) if wanted is not None else b""
        if most is not None:
            found.kept[entry.path] = content
        if is_module and exposes_load_environment(content):
            found.exposing.add(entry.path)
        found.members.append(Member(entry.path, size, digest.hexdigest(), entry.executable))
    return found


class Paths:
    """The paths seen so far. Two that a file system could take for one are refused, and so is a file that is a folder
    elsewhere."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.files: dict[str, str] = {}
        self.folders: dict[str, str] = {}
        self.parents: set[str] = set()

    def add(self, path: str, *, is_folder: bool) -> None:
        """Raises ArchiveRefused with `member_path` or `duplicate_member`."""
        refuse_unsafe(path, self.limits.max_depth)
        key = as_compared(path)
        other = self.files.get(key) or self.folders.get(key)
        if other is not None:
            raise ArchiveRefused(
                "duplicate_member", f"{shown(path)} and {shown(other)} are one file on some systems. Rename one"
            )
        if not is_folder and key in self.parents:
            raise ArchiveRefused("duplicate_member", f"{shown(path)} is a file and also a folder with files in it")
        (self.folders if is_folder else self.files)[key] = path
        parent = key
        while "/" in parent:
            parent = parent.rpartition("/")[0]
            if parent in self.files:
                raise ArchiveRefused(
                    "duplicate_member", f"{shown(self.files[parent])} is a file, and {shown(path)} lies in it"
                )
            if parent in self.parents:
                break
            self.parents.add(parent)


def as_compared(path: str) -> str:
    """What is left of a path on a file system that ignores case and Unicode forms."""
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())


def refuse_unsafe(path: str, max_depth: int) -> None:
    """Raises ArchiveRefused for a path that means another place, or another file, on some system."""
    why = _unsafe(path, max_depth)
    if why:
        raise ArchiveRefused("member_path", f"the member {shown(path)} {why}")


def _unsafe(path: str, max_depth: int) -> str | None:
    if not path:
        return "has no name"
    if _NOT_SHOWN.search(path):
        return "has a control character in its path"
    if len(path.encode()) > MAX_PATH_BYTES:
        return f"has a path of more than {MAX_PATH_BYTES} bytes"
    if "\\" in path:
        return "has a backslash in its path"
    if ":" in path:
        return "has a colon in its path, which is a drive or a stream on Windows"
    if path.startswith("/"):
        return "has an absolute path"
    parts = path.split("/")
    if ".." in parts or "." in parts or "" in parts:
        return "has a path that is not written out: '.', '..' or '//' is in it"
    if not path.isascii() and (plain := unicodedata.normalize("NFKC", path)) != path and _unsafe(plain, max_depth):
        return "has characters in its path that stand for others, such as a wide slash"
    if any(part[-1] in ". " for part in parts):
        return "has a part that ends in a dot or a space, which Windows drops"
    if len(parts) > max_depth + 1:
        return f"lies more than {max_depth} folders deep"
    return None


def content_hash(members: Iterable[Member]) -> str:
    """One hash of what an sdist's files are: paths below the top folder, contents, and which can be executed.

    `vfh1:` and the SHA-256, in hex, of one line a file, in the order of the paths' UTF-8 bytes. A line is `1` when the
    file is executable and else `0`, the size in bytes, the SHA-256 in hex and the path, with one space between them
    and a line feed at the end, in UTF-8. Packing, times, owners and folders do not count.

    >>> empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    >>> content_hash([Member("empty.txt", 0, empty, False)])
    'vfh1:b45a9a48467f0dad162d35ee13ac4def1cc0c98be5722ce19319ac0b67092497'
    """
    lines = sorted(
        (member.path.encode(), f"{int(member.executable)} {member.size_bytes} {member.sha256} {member.path}\n".encode())
        for member in members
    )
    return f"{HASH_FORMAT}:{hashlib.sha256(b''.join(line for _, line in lines)).hexdigest()}"


def exposes_load_environment(text: bytes) -> bool:
    """Whether a module's text seems to define or import `load_environment`, in time linear in its length."""
    if b"load_environment" not in text:
        return False
    if _EXPOSES.search(text):
        return True
    found = islice(re.finditer(rb"\bload_environment\b", text), _MAX_LOOKED_AT)
    return any(_is_imported(text[max(0, match.start() - 500) : match.start()]) for match in found)


def _is_imported(before: bytes) -> bool:
    """Whether the last `import` before a name is not in a comment, and none begins after it."""
    _, word, between = before.rpartition(b"import")
    return bool(word) and b"#" not in between and b"=" not in between
