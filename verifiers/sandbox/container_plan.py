"""What a container engine is asked for: pure, from a `SandboxSpec` and what the engine says of itself."""

from __future__ import annotations

import hashlib
import math
import os
import socket
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifiers.sandbox.container_shell import STAY
from verifiers.sandbox.lease import started
from verifiers.sandbox.sandbox import WORK, Capabilities, Enforcement, Limit, SandboxSpec

LABEL = "verifiers.sandbox"  # every container of ours has it
OWNER, EXPIRES, RUN_ID, KEY = (f"{LABEL}.{name}" for name in ("owner", "expires", "run", "key"))
OWN_PROCESSES = (
    12  # on top of the program's: the first one, the shell of each program, and what the engine starts it by
)
PROFILE = Path(__file__).parent / "inside" / "seccomp.json"  # podman's own lets programs make user namespaces
_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Container:
    """Which containers a backend makes."""

    image: str
    runtime: str | None = None  # None: the engine's default
    cpus: float = 1.0
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class Facts:
    """What an engine says of itself, in `/version` and `/info`."""

    engine: str  # docker or podman
    version: str
    runtime: str  # by default
    runtimes: frozenset[str]
    cgroup: str
    has_memory: bool
    has_swap: bool
    has_pids: bool
    has_cpu: bool
    security: tuple[str, ...]
    profile: str | None = None  # a file with a seccomp profile, as the engine finds it; None: the engine's own

    @classmethod
    def read(cls, version: dict[str, Any], info: dict[str, Any], *, is_here: bool) -> Facts:
        """`is_here`: it has this machine's files."""
        names = [part.get("Name", "") for part in version.get("Components") or []]
        engine = "podman" if any("podman" in name.lower() for name in names) else "docker"
        return cls(
            engine=engine,
            version=version.get("Version", "of an unknown version"),
            runtime=info.get("DefaultRuntime") or "runc",
            runtimes=frozenset(info.get("Runtimes") or {}),
            cgroup=f"cgroup v{info.get('CgroupVersion') or '1'}",
            has_memory=bool(info.get("MemoryLimit")),
            has_swap=bool(info.get("SwapLimit")),
            has_pids=bool(info.get("PidsLimit")),
            has_cpu=bool(info.get("CpuCfsQuota") or info.get("CPUCfsQuota")),
            security=tuple(info.get("SecurityOptions") or ()),
            profile=str(PROFILE) if is_here and engine == "podman" else None,
        )


def body_of(spec: SandboxSpec, container: Container, facts: Facts) -> dict[str, Any]:
    """Every limit is said: none of them is an engine's default."""
    limits = spec.limits
    memory = limits.memory_mb * _MB
    disk = f"rw,exec,nosuid,nodev,mode=1777,size={limits.file_mb * _MB}"
    disks = {}
    if container.read_only and facts.engine == "docker":
        disks = dict.fromkeys((WORK, "/tmp"), f"{disk},nr_inodes={max(1024, limits.file_mb * 64)}")
    elif container.read_only:  # podman does not know nr_inodes, and makes folders of any size unless told otherwise
        disks = dict.fromkeys((WORK, "/tmp"), disk) | dict.fromkeys(("/run", "/var/tmp"), "ro,size=4096")
    host: dict[str, Any] = {
        "NetworkMode": "bridge" if limits.network else "none",
        "ReadonlyRootfs": container.read_only,
        "Tmpfs": disks,
        "ShmSize": limits.file_mb * _MB,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges", *([f"seccomp={facts.profile}"] if facts.profile else [])],
        "Privileged": False,
        "Memory": memory,
        "MemorySwap": memory,  # of both together: none is swapped
        "PidsLimit": limits.processes + OWN_PROCESSES,
        "NanoCpus": int(container.cpus * 1e9),
        "Ulimits": [
            {"Name": name, "Soft": value, "Hard": value}
            for name, value in {
                "core": 0,
                "fsize": limits.file_mb * _MB,
                "nofile": 1024,
                "nproc": 32768,  # the kernel counts a user over all containers, so this is no limit for one of them
            }.items()
        ],
        "IpcMode": "private",
        "AutoRemove": True,
        "RestartPolicy": {"Name": "no"},
        "LogConfig": {"Type": "none"} if facts.engine == "docker" else {},
    }
    if container.runtime is not None:
        host["Runtime"] = container.runtime
    body = {
        "Image": spec.image or container.image,
        "Entrypoint": ["/bin/sh", "-c", STAY, "sh", str(math.ceil(spec.lifetime_s))],
        "Cmd": [],
        "User": "0",
        "WorkingDir": WORK,  # made by the engine where the image has none
        "Env": [f"{name}={value}" for name, value in environment(spec).items()],
        "Labels": labels(spec),
        "HostConfig": host,
    }
    if facts.engine == "docker":
        body["Healthcheck"] = {
            "Test": ["NONE"]
        }  # the image's own would run programs in it; podman needs systemd for any
    return body


def environment(spec: SandboxSpec) -> dict[str, str]:
    """What every program finds; `PATH` is the image's."""
    return {"HOME": WORK, "TMPDIR": "/tmp", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", **spec.env}


def labels(spec: SandboxSpec) -> dict[str, str]:
    """By these any process finds what has expired, or lost its owner."""
    found = {LABEL: "1", OWNER: this_owner(), EXPIRES: str(math.ceil(time.time() + spec.lifetime_s))}
    if spec.run_id is not None:
        found[RUN_ID] = spec.run_id
    if spec.key is not None:
        found[KEY] = spec.key
    return found


def name_of(spec: SandboxSpec) -> str:
    """The engine gives a name once, so a creation that is tried again makes no second container."""
    if spec.key is None:
        return f"vf-{uuid.uuid4().hex}"
    return f"vf-key-{hashlib.sha256(spec.key.encode()).hexdigest()[:32]}"


def this_owner() -> str:
    return f"{_machine()}:{os.getpid()}:{started(os.getpid()) or ''}"


def is_left_over(found: dict[str, str], now: float) -> bool:
    """Whether a container with these labels outlived its time, or the process that made it."""
    try:
        if float(found[EXPIRES]) < now:
            return True
        machine, pid, since = found[OWNER].split(":")
        return machine == _machine() and bool(since) and started(int(pid)) != since
    except (KeyError, ValueError):
        return False  # labelled by somebody else


def capabilities_of(name: str, container: Container, facts: Facts, is_image_here: bool) -> Capabilities:
    runtime = container.runtime or facts.runtime
    counted: Enforcement = "best effort" if runtime.startswith("runsc") else "enforced"
    held: dict[Limit, Enforcement] = {
        "wall": "enforced",
        "cpu": "best effort",  # of each process
        "memory": counted if facts.has_memory else "no",
        "output": "enforced",
        "processes": counted if facts.has_pids else "no",
        "files": "enforced" if container.read_only else "best effort",
    }
    notes = []
    if runtime.startswith("runsc"):
        notes.append("memory and processes are limited unless runsc was told to ignore control groups")
    if not facts.has_swap:
        notes.append("swap is not limited: the engine cannot")
    if not facts.has_cpu:
        notes.append("a share of the processors is not limited: the engine cannot")
    if facts.engine == "podman" and container.read_only:
        notes.append("how many files is not limited, only their size: podman cannot")
    if not container.read_only:
        notes.append("files: each one's size is limited, not the size of all")
    if not any("seccomp" in option for option in facts.security):
        notes.append("no seccomp filter: the engine has none")
    elif facts.engine == "podman" and facts.profile is None:
        notes.append("podman's own seccomp filter, which lets programs make user namespaces: ours is out of its reach")
    if not is_image_here:
        notes.append(f"the image {container.image} is not here yet; the first sandbox pulls it")
    return Capabilities(
        backend=name,
        level=f"container ({facts.engine} {facts.version}, {runtime}, {facts.cgroup})",
        enforced=held,
        networks=("none", "full"),
        images=True,
        languages=("what the image has",),
        notes=tuple(notes),
    )


def _machine() -> str:
    """What a process number belongs to: this start of this machine, and this process's view of it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}-{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return socket.gethostname().replace(":", "-")
