"""What a cluster is asked for: pure, from a `SandboxSpec`; and what a pod's state says of its end."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import secrets
import time
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from verifiers.errors import ConfigError
from verifiers.sandbox.sandbox import WORK, Capabilities, SandboxSpec

LABEL = "verifiers.sandbox/sandbox"  # every pod of ours has it
RUN_LABEL, KEY_LABEL, NETWORK_LABEL = (f"verifiers.sandbox/{name}" for name in ("run", "key", "network"))
EXPIRES, TOKEN_HASH = "verifiers.sandbox/expires", "verifiers.sandbox/token-sha256"  # annotations
RUN_ID, KEY = "verifiers.sandbox/run-id", "verifiers.sandbox/key"
POLICY = "verifiers-sandbox"
SPARE_S = 60  # by which a pod outlives what its maker gives it
_INSIDE = Path(__file__).parent / "inside"
_AGENT_MB = 96  # for the agent, on top of what programs may have
_FIRST_USER = 1_000_000_000  # a user of its own for each pod: a node counts processes by user, not by pod
_FATAL_WAITS = {
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
}


@dataclass(frozen=True, slots=True)
class PodKind:
    """Which pods a backend makes."""

    image: str
    namespace: str
    port: int = 8079
    cpus: float = 1.0
    user: int | None = None  # None: one of its own for each pod
    read_only: bool = True
    runtime_class: str | None = None
    pull_secret: str | None = None
    lease_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Shape:
    """What cannot be changed once a pod is made."""

    image: str
    user: str | None
    memory_mb: int
    processes: int
    file_mb: int
    output_kb: int
    network: bool

    @classmethod
    def of(cls, spec: SandboxSpec, kind: PodKind) -> Shape:
        limits = spec.limits
        return cls(
            image=spec.image or kind.image,
            user=spec.user,
            memory_mb=limits.memory_mb,
            processes=limits.processes,
            file_mb=limits.file_mb,
            output_kb=limits.output_kb,
            network=limits.network,
        )


def new_token() -> tuple[str, str]:
    """A token, and its hash, which is all that the pod gets."""
    token = secrets.token_urlsafe(32)
    return token, hashlib.sha256(token.encode()).hexdigest()


def name_of(key: str | None) -> str:
    """A cluster gives a name once, so a creation that is tried again makes no second pod."""
    return f"vf-{uuid.uuid4().hex}" if key is None else f"vf-key-{hashed(key)}"


def hashed(text: str) -> str:
    """What may be a label, of what may be any text."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def pod_of(name: str, shape: Shape, kind: PodKind, lifetime_s: float, token_hash: str) -> dict[str, Any]:
    """Every limit is said: none of them is a cluster's default."""
    user = user_of(shape, kind)
    memory_mb = shape.memory_mb + _AGENT_MB + (2 * shape.output_kb >> 10)
    resources = {
        "cpu": f"{math.ceil(kind.cpus * 1000)}m",
        "memory": f"{memory_mb}Mi",
        "ephemeral-storage": f"{shape.file_mb + 64}Mi",
    }
    folders = {"work": WORK, "tmp": "/tmp", "shm": "/dev/shm"}
    container: dict[str, Any] = {
        "name": "sandbox",
        "image": shape.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-I", "-S", "-c", agent_text()],
        "args": [json.dumps(agent_settings(shape, kind, lifetime_s, token_hash))],
        "env": [
            {"name": "HOME", "value": WORK},
            {"name": "TMPDIR", "value": "/tmp"},
            {"name": "LANG", "value": "C.UTF-8"},
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
        ],
        "workingDir": WORK,
        "ports": [{"name": "agent", "containerPort": kind.port, "protocol": "TCP"}],
        "resources": {"limits": resources, "requests": {**resources, "cpu": f"{math.ceil(kind.cpus * 250)}m"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": kind.read_only,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": volume, "mountPath": path} for volume, path in folders.items()],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    in_memory = {"medium": "Memory", "sizeLimit": f"{shape.file_mb}Mi"}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": math.ceil(lifetime_s) + SPARE_S,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostNetwork": False,
        "hostPID": False,
        "hostIPC": False,
        "shareProcessNamespace": False,
        "securityContext": {
            "runAsNonRoot": user != 0,
            "runAsUser": user,
            "runAsGroup": user,
            "fsGroup": user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": volume, "emptyDir": in_memory} for volume in folders],
    }
    if kind.runtime_class is not None:
        spec["runtimeClassName"] = kind.runtime_class
    if kind.pull_secret is not None:
        spec["imagePullSecrets"] = [{"name": kind.pull_secret}]
    labels = {LABEL: "1", NETWORK_LABEL: "full" if shape.network else "none"}
    annotations = {EXPIRES: expiry(lifetime_s), TOKEN_HASH: token_hash}
    metadata = {"name": name, "namespace": kind.namespace, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def belonging(spec: SandboxSpec) -> dict[str, dict[str, str]]:
    """Labels and annotations that say whose a pod is, by which any process finds it."""
    labels, annotations = {}, {EXPIRES: expiry(spec.lifetime_s)}
    if spec.run_id is not None:
        labels[RUN_LABEL], annotations[RUN_ID] = hashed(spec.run_id), spec.run_id
    if spec.key is not None:
        labels[KEY_LABEL], annotations[KEY] = hashed(spec.key), spec.key
    return {"labels": labels, "annotations": annotations}


def expiry(lifetime_s: float) -> str:
    return str(math.ceil(time.time() + lifetime_s + SPARE_S))


def user_of(shape: Shape, kind: PodKind) -> int:
    if shape.user is None:
        return kind.user if kind.user is not None else _FIRST_USER + secrets.randbelow(1_000_000_000)
    name = shape.user.partition(":")[0]
    if name != "root" and not name.isdigit():
        raise ConfigError(f"a pod's user is a number or root, and {shape.user!r} is asked for")
    return 0 if name == "root" else int(name)


def agent_settings(shape: Shape, kind: PodKind, lifetime_s: float, token_hash: str) -> dict[str, Any]:
    filter_kind = "jail" if shape.network else "bare"  # the latter knows no sockets but those inside the pod
    return {
        "host": "",
        "port": kind.port,
        "work": WORK,
        "token_sha256": token_hash,
        "lifetime_s": lifetime_s + SPARE_S / 2,
        "lease_s": kind.lease_s,
        "filters": {machine: _filter(machine, filter_kind) for machine in ("x86_64", "aarch64")},
    }


@cache
def agent_text() -> str:
    return (_INSIDE / "agent.py").read_text()


@cache
def _filter(machine: str, kind: str) -> str:
    return base64.b64encode((_INSIDE / f"{machine}-{kind}.bpf").read_bytes()).decode()


def policy_of(kind: PodKind) -> dict[str, Any]:
    """Pods without a network send nothing, and hear only who asks their agent."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": POLICY, "namespace": kind.namespace, "labels": {LABEL: "1"}},
        "spec": {
            "podSelector": {"matchLabels": {LABEL: "1", NETWORK_LABEL: "none"}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [{"protocol": "TCP", "port": kind.port}]}],
            "egress": [],
        },
    }


def is_left_over(pod: dict[str, Any], now: float) -> bool:
    """Whether it has ended, or outlived its time."""
    metadata = pod["metadata"]
    if metadata.get("deletionTimestamp"):
        return False  # it is being removed
    if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return True
    try:
        return float(metadata["annotations"][EXPIRES]) < now
    except (KeyError, ValueError, TypeError):
        return False  # labelled by somebody else


def is_out_of_memory(pod: dict[str, Any]) -> bool:
    """The kernel ended it for its own memory; an eviction, for the node's, is another thing."""
    return any(state.get("terminated", {}).get("reason") == "OOMKilled" for state in _states(pod))


def trouble_of(pod: dict[str, Any]) -> str | None:
    """Why the pod does not run and will not; None while it does, or may yet."""
    if pod["metadata"].get("deletionTimestamp"):
        return "its pod is being deleted"
    status = pod.get("status", {})
    for state in _states(pod):
        waiting, terminated = state.get("waiting", {}), state.get("terminated")
        if waiting.get("reason") in _FATAL_WAITS:
            return f"{waiting['reason']}: {waiting.get('message') or 'the cluster says no more'}"
        if terminated is not None and terminated.get("reason") == "OOMKilled":
            return "its pod ran out of memory (OOMKilled)"
        if terminated is not None and status.get("phase") not in ("Failed", "Succeeded"):
            return _ended(terminated)
    if status.get("phase") == "Failed" and status.get("reason"):
        # Evicted, DeadlineExceeded, NodeLost, Shutdown and the like
        return f"{status['reason']}: {status.get('message') or 'the cluster says no more'}"
    if status.get("phase") in ("Failed", "Succeeded"):
        return next((_ended(state["terminated"]) for state in _states(pod) if "terminated" in state), "its pod ended")
    for condition in status.get("conditions") or []:
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return f"{condition.get('reason')}: {condition.get('message') or 'its node is lost or drained'}"
    return f"{status.get('reason')}: its node is lost" if status.get("reason") == "NodeLost" else None


def waits_for(pod: dict[str, Any]) -> str:
    """What a pod that does not run yet is waiting for, as far as the cluster tells."""
    for state in _states(pod):
        if "waiting" in state:
            return " ".join(str(state["waiting"].get(word) or "") for word in ("reason", "message")).strip()
    for condition in pod.get("status", {}).get("conditions") or []:
        if condition.get("status") == "False" and condition.get("message"):
            return f"{condition.get('reason')}: {condition['message']}"
    return f"it is {pod.get('status', {}).get('phase') or 'not begun'}"


def _ended(terminated: dict[str, Any]) -> str:
    said = " ".join(str(terminated.get("message") or "").split())[:300]
    return (
        f"its agent ended ({terminated.get('reason')}, exit {terminated.get('exitCode')}){': ' + said if said else ''}"
    )


def _states(pod: dict[str, Any]) -> list[dict[str, Any]]:
    found = pod.get("status", {}).get("containerStatuses") or []
    return [state for one in found for state in (one.get("state") or {}, one.get("lastState") or {}) if state]


def capabilities_of(name: str, kind: PodKind, server: str, version: str) -> Capabilities:
    notes = [
        "how many files is not limited, only their size",
        "without a network: a NetworkPolicy, where the cluster's network plugin heeds it, and a seccomp filter",
        f"the image needs python3; {kind.image} is taken when none is named",
    ]
    if kind.user is not None:
        notes.append(f"processes of all pods of user {kind.user} on a node are counted together")
    if not kind.read_only:
        notes.append("files: each one's size is limited, not the size of all")
    return Capabilities(
        backend=name,
        level=f"pod (kubernetes {version} at {server}, namespace {kind.namespace})",
        enforced={
            "wall": "enforced",
            "cpu": "best effort",  # of each process
            "memory": "enforced",
            "output": "enforced",
            "processes": "enforced",
            "files": "enforced" if kind.read_only else "best effort",
        },
        networks=("none", "full"),
        images=True,
        languages=("what the image has",),
        notes=tuple(notes),
    )
