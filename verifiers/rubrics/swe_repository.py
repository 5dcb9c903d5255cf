"""`Checkout`: a repository in a sandbox at its base commit, and nothing of what came before or after it.

The history is never there: a repository of this machine travels as the files of one commit, and one that lies in an
image loses its `.git`. Either way the files then become the only commit of a new repository.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tarfile
import tempfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from verifiers.errors import DatasetError, SandboxError
from verifiers.rubrics.swe_task import SWETask
from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.sandbox import ExecResult, Sandbox

HOST_GIT_S = 600.0
_CACHED_BYTES = 256 << 20
_STEP = SandboxLimits(wall_s=300.0, output_kb=4096)
# Highest in rank, so that no file is converted on its way in or out, whatever `.gitattributes` says.
_ATTRIBUTES = "* -text -eol -ident -filter -working-tree-encoding -export-ignore -export-subst"
_GIT_ENV = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_AUTHOR_DATE": "2000-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2000-01-01T00:00:00Z",
    "LC_ALL": "C",
}

# $1 the folder, $2 the commit or nothing, $3 where the names of the files go that git knows of. Links to other
# repositories (submodules) are no files.
_CHECK_OUT = r"""
cd "$1" || exit 3
if [ -n "$2" ]; then
  wanted=$(git rev-parse --verify --quiet "$2^{commit}") || { echo "no commit $2 in $1" >&2; exit 3; }
  if [ "$(git rev-parse HEAD)" != "$wanted" ]; then git checkout -q -f --detach "$wanted" || exit 3; fi
fi
mkdir -p "${3%/*}"
git ls-files -s -z | grep -zv '^160000' | sed -z 's/^[^\t]*\t//' >"$3"
"""

# $1 the folder, $2 the names of the files that git knew of, if it knew any, $3 where hidden paths go, or nothing to
# remove them; the rest are these paths.
_SCRUB = r"""
set -e
cd "$1"
known=$2 aside=$3
shift 3
for path in "$@"; do
  if [ ! -e "$path" ] && [ ! -L "$path" ]; then continue; fi
  if [ -n "$aside" ]; then
    mkdir -p "$aside/$(dirname "$path")"
    mv "$path" "$aside/$path"
  else
    rm -rf "$path"
  fi
done
find . -name .git -prune -exec rm -rf {} +
git init -q --template= .
mkdir -p .git/info
printf '%s\n' "$VF_ATTRIBUTES" >.git/info/attributes
git config core.logAllRefUpdates false
git config core.autocrlf false
git config core.fileMode true
git config gc.auto 0
git config user.name base
git config user.email base@localhost
if [ -s "$known" ]; then
  git update-index -z --add --remove --stdin <"$known"
  git add -A .
else
  git add -A -f .
fi
git commit -q --no-verify --allow-empty -m base
git rev-parse HEAD
"""

# $1 the folder, $2 the base commit, $3 an index of our own. $4 is an attributes file when no file is to count as text.
_DIFF = r"""
cd "$1" && git cat-file -e "$2^{tree}" || exit 3
export GIT_INDEX_FILE="$3"
mkdir -p "${3%/*}" && rm -f "$GIT_INDEX_FILE"
mkdir -p .git/info && printf '%s\n' "$VF_ATTRIBUTES" >.git/info/attributes
git read-tree "$2" && git add -A . || exit 3
git ${4:+-c core.attributesFile="$4"} diff --cached --binary --full-index --no-renames --no-ext-diff --no-textconv \
  --no-color --src-prefix=a/ --dst-prefix=b/ "$2"
"""


@dataclass(frozen=True, slots=True)
class Checkout:
    folder: str  # absolute
    commit: str  # the only one
    aside: str | None = None  # where the hidden paths lie, in a sandbox that no model has touched


@dataclass(frozen=True, slots=True)
class Diff:
    """What a model changed; or `None`, and why no diff could be taken, which is its own doing."""

    text: str | None
    why: str | None = None
    is_doubtful: bool = False  # the sandbox did not answer in time, which may be no doing of the model's


class Repositories:
    """The files of commits of this machine's repositories, as tar archives; the last ones are kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str | None, int], bytes] = OrderedDict()
        self._reading: dict[tuple[str, str | None, int], asyncio.Future[bytes]] = {}

    async def files(self, task: SWETask) -> bytes | None:
        """`None` for a repository that lies in an image. Raises DatasetError when there is no such commit."""
        if task.repository is None:
            return None
        try:
            changed = os.stat(task.repository).st_mtime_ns
        except OSError as error:
            raise DatasetError(f"task {task.instance_id}: the repository {task.repository}: {error.strerror}") from None
        key = (task.repository, task.base_commit, changed)
        if key not in self._kept:
            self._kept[key] = await self._read(key)
            while len(self._kept) > 1 and sum(map(len, self._kept.values())) > _CACHED_BYTES:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    async def _read(self, key: tuple[str, str | None, int]) -> bytes:
        """Once for all the tries of an example, which ask at the same time."""
        path, commit, _ = key
        reading = self._reading.get(key)
        if reading is None or reading.get_loop() is not asyncio.get_running_loop():
            reading = asyncio.ensure_future(asyncio.to_thread(read_commit, Path(path), commit))
            reading.add_done_callback(
                lambda done: done.cancelled() or done.exception()
            )  # heard, though all may be gone
            self._reading[key] = reading
        try:
            return await asyncio.shield(reading)
        finally:
            if reading.done():
                self._reading.pop(key, None)


def read_commit(source: Path, commit: str | None) -> bytes:
    """The files of a commit as a tar archive: of a bundle, of a repository, or of an archive that holds one commit."""
    if source.is_file() and tarfile.is_tarfile(source):
        return source.read_bytes()
    with tempfile.TemporaryDirectory(prefix="vf-swe-") as folder:
        store = Path(folder, "store.git")
        _host_git("init", "-q", "--bare", "--template=", str(store))
        (store / "info").mkdir(exist_ok=True)
        (store / "info" / "attributes").write_text(f"{_ATTRIBUTES}\n")
        if source.is_dir():
            if not ((source / ".git").exists() or (source / "objects").is_dir()):  # git would take one around it
                raise DatasetError(f"{source} is no git repository: it has no .git. Make one of it, or give a bundle")
            objects = _host_git("-C", str(source), "rev-parse", "--path-format=absolute", "--git-path", "objects")
            (store / "objects" / "info").mkdir(exist_ok=True)
            (store / "objects" / "info" / "alternates").write_bytes(objects)
            found = _host_git("-C", str(source), "rev-parse", "--verify", f"{commit or 'HEAD'}^{{commit}}")
        else:
            named = _host_git("bundle", "list-heads", str(source)).split()[1::2]
            wanted = ["+refs/*:refs/*"] + (["+HEAD:refs/vf/head"] if b"HEAD" in named else [])
            _host_git("-C", str(store), "fetch", "-q", str(source.resolve()), *wanted)
            found = _host_git("-C", str(store), "rev-parse", "--verify", f"{commit or 'refs/vf/head'}^{{commit}}")
        return _host_git("-C", str(store), "archive", "--format=tar", f"{found.decode().strip()}^{{tree}}")


def _host_git(*arguments: str) -> bytes:
    env = {"PATH": os.environ.get("PATH", os.defpath), **_GIT_ENV}
    command = ["git", "-c", "safe.directory=*", "-c", "core.hooksPath=/dev/null", *arguments]
    try:
        done = subprocess.run(command, env=env, capture_output=True, stdin=subprocess.DEVNULL, timeout=HOST_GIT_S)
    except FileNotFoundError:
        raise DatasetError("git is not installed, and repositories are read by it; install the package git") from None
    except subprocess.TimeoutExpired:
        raise DatasetError(f"git {arguments[0]} took longer than {HOST_GIT_S:g} s") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise DatasetError(f"the repository cannot be read: {said or f'git ended with {done.returncode}'}")
    return done.stdout


async def check_out(sandbox: Sandbox, task: SWETask, files: bytes | None, *, aside: str | None = None) -> Checkout:
    """Makes the checkout. Hidden paths are removed, or kept in `aside`.

    Raises DatasetError when the task does not fit its image, SandboxError for what the sandbox lacks.
    """
    folder = task.folder or f"{sandbox.work}/repo"
    known = ""
    if files is not None:
        await sandbox.put_archive(files, folder)
    else:
        known = f"{own_folder(sandbox)}/known-files"
        _demand(await script(sandbox, _CHECK_OUT, folder, task.base_commit or "", known), task)
    if task.setup_patch:
        applied = await sandbox.exec(
            [*GIT, "apply", "--whitespace=nowarn", "-"], stdin=task.setup_patch, cwd=folder, env=_GIT_ENV, limits=_STEP
        )
        _demand(applied, task)
    made = await script(sandbox, _SCRUB, folder, known, aside or "", *task.hidden_paths)
    _demand(made, task)
    if known:
        await sandbox.exec(["rm", "-f", known])
    return Checkout(folder, made.text.split()[-1], aside)


GIT = ("git", "-c", "safe.directory=*")


def own_folder(sandbox: Sandbox) -> str:
    """Beside the repository: not every sandbox has a `/tmp` to write to."""
    return f"{sandbox.work}/.swe"


async def script(sandbox: Sandbox, text: str, *arguments: str, limits: SandboxLimits | None = None) -> ExecResult:
    """Runs a shell script in which `git` reads nobody's configuration."""
    text = f'git() {{ command git -c safe.directory="*" "$@"; }}\n{text}'
    env = {**_GIT_ENV, "VF_ATTRIBUTES": _ATTRIBUTES}
    return await sandbox.exec(["sh", "-c", text, "sh", *arguments], env=env, limits=limits or _STEP)


def _demand(result: ExecResult, task: SWETask) -> None:
    """A base that cannot be made is nobody's wrong answer."""
    if result.ok:
        return
    said = result.error_text.strip()[-500:] or result.limit or f"exit {result.exit_code}"
    if result.exit_code == 127 or result.limit is not None:
        raise SandboxError(f"task {task.instance_id}: the repository could not be set up in the sandbox: {said}")
    raise DatasetError(f"task {task.instance_id}: the repository could not be set up: {said}")


async def take_diff(sandbox: Sandbox, checkout: Checkout, *, max_kb: int) -> Diff:
    """All that differs from the base, new files included, whatever was committed meanwhile. Always valid UTF-8."""
    limits = SandboxLimits(wall_s=120.0, output_kb=max_kb)
    index, attributes = f"{own_folder(sandbox)}/index", ""
    result = await script(sandbox, _DIFF, checkout.folder, checkout.commit, index, attributes, limits=limits)
    if result.ok and not _is_text(result.stdout):
        attributes = f"{own_folder(sandbox)}/attributes"
        await sandbox.write_file(attributes, "* -diff\n")
        result = await script(sandbox, _DIFF, checkout.folder, checkout.commit, index, attributes, limits=limits)
    if result.ok and _is_text(result.stdout):
        return Diff(result.stdout.decode())
    if result.limit == "output":
        return Diff(None, f"the diff is larger than {max_kb} KB")
    if result.limit is not None:
        return Diff(None, f"no diff could be taken within the sandbox's limits ({result.limit})", is_doubtful=True)
    said = " ".join(result.error_text.split())[-200:]
    return Diff(None, f"no diff could be taken from what the repository has become: {said or result.outcome}")


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


async def must_answer(sandbox: Sandbox, trouble: str) -> None:
    """Raises SandboxError when the trouble is the sandbox's: a program that does nothing has it too."""
    canary = await sandbox.exec(["true"], limits=SandboxLimits(wall_s=10.0))
    if not canary.ok:
        raise SandboxError(f"{trouble}, and so does a program that does nothing ({canary.limit or canary.outcome})")
