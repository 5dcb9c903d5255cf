"""`KubernetesBackend`: sandboxes that are pods of a cluster, made through its REST API.

    backend = KubernetesBackend(image="python:3.12-slim", namespace="sandboxes", warm=4)

Commands go to an agent in the pod, over HTTP to the pod's own address, and never through the cluster's API: so this
process must be where pods are reached, most simply in a pod itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from dataclasses import dataclass, field
from typing import Any

import msgspec

from verifiers.errors import SandboxError, SetupError
from verifiers.sandbox.kubernetes_cluster import AgentLink, Cluster, ClusterError, find_access
from verifiers.sandbox.kubernetes_plan import (
    LABEL,
    POLICY,
    RUN_LABEL,
    TOKEN_HASH,
    PodKind,
    Shape,
    belonging,
    capabilities_of,
    hashed,
    is_left_over,
    name_of,
    new_token,
    pod_of,
    policy_of,
    trouble_of,
    waits_for,
)
from verifiers.sandbox.kubernetes_sandbox import KubernetesSandbox, delete_pod
from verifiers.sandbox.sandbox import Capabilities, SandboxBackend, SandboxSpec

logger = logging.getLogger("verifiers")

IMAGE = "python:3.11-slim"
_WARM_S = 3600.0  # a warm pod that has waited as long is thrown away
_REST_S = 30.0  # after a warm one that could not be made
_POLL_S = (0.05, 1.0)


@dataclass(slots=True)
class _Loop:
    """What belongs to one event loop."""

    places: asyncio.Semaphore
    locks: dict[str, asyncio.Lock] = field(default_factory=dict)  # of each key: of two at once, one makes it
    warm: dict[Shape, list[KubernetesSandbox]] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)  # in the background, and of these:
    warming: weakref.WeakSet[asyncio.Task[None]] = field(default_factory=weakref.WeakSet)
    making: dict[Shape, int] = field(default_factory=dict)
    rests_until: float = 0.0


class KubernetesBackend(SandboxBackend):
    """The cluster is that of `kubeconfig` or KUBECONFIG, else the one that this process is a pod of.

    `warm` pods of each shape that was asked for are kept ready; `places` are made at a time. `user` is for pods whose
    spec names none; without it each has its own. `make_policy=False` leaves the NetworkPolicy to the cluster's owner.
    """

    name = "kubernetes"

    def __init__(
        self,
        *,
        kubeconfig: str | None = None,
        context: str | None = None,
        namespace: str | None = None,
        image: str = IMAGE,
        cpus: float = 1.0,
        user: int | None = None,
        read_only: bool = True,
        runtime_class: str | None = None,
        pull_secret: str | None = None,
        port: int = 8079,
        warm: int = 0,
        places: int = 32,
        start_timeout_s: float = 600.0,
        lease_s: float = 300.0,
        make_policy: bool = True,
    ) -> None:
        self._where = kubeconfig, context, namespace
        self._kind = PodKind(image, "", port, cpus, user, read_only, runtime_class, pull_secret, lease_s)
        self._warm, self._places = warm, places
        self._start_timeout_s, self._make_policy = start_timeout_s, make_policy
        self._found: tuple[Cluster, PodKind, str] | None = None
        self._sandboxes: dict[str, KubernetesSandbox] = {}
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = weakref.WeakKeyDictionary()
        self._is_closed = False

    async def capabilities(self) -> Capabilities:
        cluster, kind, version = await self._start()
        return capabilities_of(self.name, kind, cluster.access.server, version)

    async def create(self, spec: SandboxSpec | None = None) -> KubernetesSandbox:
        spec = spec or SandboxSpec()
        cluster, kind, _ = await self._start()
        if spec.key is None:
            return await self._create(cluster, kind, spec)
        async with self._loop.locks.setdefault(spec.key, asyncio.Lock()):
            for made in list(self._sandboxes.values()):
                if made.spec.key == spec.key and not made.is_closed:
                    return made
            return await self._create(cluster, kind, spec)

    async def close_run(self, run_id: str) -> int:
        """Also those that another process made."""
        cluster, kind, _ = await self._start()
        pods = await cluster.list(_pods(kind), f"{RUN_LABEL}={hashed(run_id)}")
        there = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        await asyncio.gather(*(self._close_pod(cluster, kind, pod) for pod in there))
        return len(there)

    async def close(self) -> None:
        self._is_closed = True
        here = self._loop
        for task in list(here.warming):
            task.cancel()
        while here.tasks:  # what was cancelled removes what it made
            await asyncio.gather(*here.tasks, return_exceptions=True)
        await asyncio.gather(*(sandbox.close() for sandbox in list(self._sandboxes.values())))

    # Pods

    async def _create(self, cluster: Cluster, kind: PodKind, spec: SandboxSpec) -> KubernetesSandbox:
        sandbox = await self._take(cluster, kind, spec) or await self._make(cluster, kind, spec, spec.lifetime_s)
        try:
            await sandbox.write_files(spec.files)
        except BaseException:
            await asyncio.shield(sandbox.close())
            raise
        return sandbox

    async def _make(self, cluster: Cluster, kind: PodKind, spec: SandboxSpec, lifetime_s: float) -> KubernetesSandbox:
        token, token_hash = new_token()
        body = pod_of(name_of(spec.key), Shape.of(spec, kind), kind, lifetime_s, token_hash)
        for what, values in belonging(spec).items():
            body["metadata"][what].update(values)
        path = f"{_pods(kind)}/{body['metadata']['name']}"
        async with self._loop.places:
            making = asyncio.ensure_future(self._started(cluster, kind, path, body, token))
            try:
                pod, link = await asyncio.shield(making)
            except asyncio.CancelledError:
                making.cancel()
                self._in_background(_abandon(making, cluster, path, token_hash))
                raise
        sandbox = KubernetesSandbox(cluster, pod, link, spec, kind.lease_s, self._forget)
        self._sandboxes[sandbox.id] = sandbox
        if self._is_closed:  # meanwhile
            await asyncio.shield(sandbox.close())
            raise SandboxError("the sandbox backend is closed")
        return sandbox

    async def _started(
        self, cluster: Cluster, kind: PodKind, path: str, body: dict[str, Any], token: str
    ) -> tuple[dict[str, Any], AgentLink]:
        """A pod whose agent answers. Of one that does not come to that, nothing is left."""
        until = time.monotonic() + self._start_timeout_s
        pod = await self._posted(cluster, kind, path, body, until)
        link: AgentLink | None = None
        pause_s = _POLL_S[0]
        try:
            while True:
                address = pod.get("status", {}).get("podIP")
                if (trouble := trouble_of(pod)) is not None:
                    raise SandboxError(_hint(f"the pod of a sandbox did not start: {trouble}", body))
                if address and pod["status"].get("phase") == "Running":
                    link = link or AgentLink(address, kind.port, token)
                    if await link.hello():
                        return pod, link
                if time.monotonic() > until:
                    reached = "its agent is not reached from here" if link is not None else waits_for(pod)
                    raise SandboxError(
                        f"the pod of a sandbox did not start within {self._start_timeout_s:g} s: {reached}"
                    )
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 1.5, _POLL_S[1])
                pod = await cluster.call("GET", path)
        except BaseException:
            if link is not None:
                await link.close()
            await asyncio.shield(self._removed(cluster, path, pod["metadata"]["uid"]))
            raise

    async def _posted(
        self, cluster: Cluster, kind: PodKind, path: str, body: dict[str, Any], until: float
    ) -> dict[str, Any]:
        while True:
            try:
                return await cluster.call("POST", _pods(kind), body=body)
            except ClusterError as error:
                if error.status != 409:
                    raise
            try:
                pod = await cluster.call("GET", path)
            except ClusterError as error:  # it has just gone, or the conflict was another (over a quota, say)
                if error.status != 404 or time.monotonic() > until:
                    raise
                await asyncio.sleep(0.3)
                continue
            metadata = pod["metadata"]
            if _is_of(pod, body["metadata"]["annotations"][TOKEN_HASH]):
                return pod  # ours: the answer was lost
            if is_left_over(pod, time.time()):
                await delete_pod(cluster, path, metadata["uid"])
            elif not metadata.get("deletionTimestamp"):
                raise SandboxError(f"another process holds the sandbox of this key, the pod {metadata['name']}")
            if time.monotonic() > until:
                raise SandboxError(f"the pod {metadata['name']} is being deleted, and does not go")
            await asyncio.sleep(0.3)

    async def _removed(self, cluster: Cluster, path: str, uid: str) -> None:
        try:
            await delete_pod(cluster, path, uid)
        except SandboxError as error:
            logger.warning("a pod that did not start is left to its deadline: %s", error)

    async def _close_pod(self, cluster: Cluster, kind: PodKind, pod: dict[str, Any]) -> None:
        sandbox = self._sandboxes.get(pod["metadata"]["uid"])
        if sandbox is not None:
            await sandbox.close()
        else:
            await delete_pod(cluster, f"{_pods(kind)}/{pod['metadata']['name']}", pod["metadata"]["uid"])

    def _forget(self, sandbox: KubernetesSandbox) -> None:
        self._sandboxes.pop(sandbox.id, None)

    # Warm pods

    async def _take(self, cluster: Cluster, kind: PodKind, spec: SandboxSpec) -> KubernetesSandbox | None:
        """One that waits, which becomes the spec's; another is made in its place."""
        if not self._warm or spec.key is not None:
            return None
        shape = Shape.of(spec, kind)
        ready = self._loop.warm.setdefault(shape, [])
        try:
            while ready:
                sandbox = ready.pop()
                is_fresh = time.monotonic() < sandbox.made_at + min(_WARM_S, sandbox.spec.lifetime_s - spec.lifetime_s)
                if is_fresh and await sandbox.is_there():
                    try:
                        await cluster.call("PATCH", sandbox.path, body={"metadata": belonging(spec)}, patch=True)
                    except BaseException:
                        await asyncio.shield(sandbox.close())
                        raise
                    sandbox.adopt(spec)
                    return sandbox
                self._in_background(sandbox.close())
            return None
        finally:
            self._fill(cluster, kind, shape, spec.lifetime_s)

    def _fill(self, cluster: Cluster, kind: PodKind, shape: Shape, lifetime_s: float) -> None:
        here = self._loop
        there = len(here.warm.get(shape, ())) + here.making.get(shape, 0)
        if self._is_closed or time.monotonic() < here.rests_until:
            return
        for _ in range(self._warm - there):
            here.making[shape] = here.making.get(shape, 0) + 1
            here.warming.add(self._in_background(self._warmed(cluster, kind, shape, lifetime_s + _WARM_S)))

    async def _warmed(self, cluster: Cluster, kind: PodKind, shape: Shape, lifetime_s: float) -> None:
        here = self._loop
        limits = msgspec.structs.replace(
            SandboxSpec().limits,
            memory_mb=shape.memory_mb,
            processes=shape.processes,
            file_mb=shape.file_mb,
            output_kb=shape.output_kb,
            network=shape.network,
        )
        spec = SandboxSpec(image=shape.image, user=shape.user, limits=limits, lifetime_s=lifetime_s)
        try:
            here.warm.setdefault(shape, []).append(await self._make(cluster, kind, spec, lifetime_s))
        except SandboxError:
            here.rests_until = time.monotonic() + _REST_S
            raise
        finally:
            here.making[shape] -= 1

    def _in_background(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        here = self._loop
        here.tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            here.tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                logger.warning("a pod was not made or removed in the background: %s", error)

        task.add_done_callback(done)
        return task

    @property
    def _loop(self) -> _Loop:
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            self._loops[loop] = _Loop(asyncio.Semaphore(self._places))
        return self._loops[loop]

    # The cluster

    async def _start(self) -> tuple[Cluster, PodKind, str]:
        if self._is_closed:
            raise SandboxError("the sandbox backend is closed")
        if self._found is None:
            async with self._loop.locks.setdefault("the cluster", asyncio.Lock()):
                if self._found is None:
                    self._found = await self._find()
        return self._found

    async def _find(self) -> tuple[Cluster, PodKind, str]:
        access = find_access(*self._where)
        cluster = Cluster(access)
        base = self._kind
        kind = PodKind(
            base.image, access.namespace, base.port, base.cpus, base.user, base.read_only, base.runtime_class,
            base.pull_secret, base.lease_s,
        )  # fmt: skip
        try:
            version = str((await cluster.call("GET", "/version", attempts=1)).get("gitVersion") or "unknown")
            pods = await cluster.list(_pods(kind), LABEL)
            if self._make_policy:
                await self._allow_no_network(cluster, kind)
        except ClusterError as error:
            raise _not_offered(error, access.server, access.namespace) from None
        left = [pod for pod in pods if is_left_over(pod, time.time())]
        for pod in left:
            await self._removed(cluster, f"{_pods(kind)}/{pod['metadata']['name']}", pod["metadata"]["uid"])
        if left:
            logger.info("%d sandbox(es) that others left behind were removed", len(left))
        return cluster, kind, version

    async def _allow_no_network(self, cluster: Cluster, kind: PodKind) -> None:
        path = f"/apis/networking.k8s.io/v1/namespaces/{kind.namespace}/networkpolicies"
        policy = policy_of(kind)
        try:
            await cluster.call("POST", path, body=policy)
        except ClusterError as error:
            if error.status != 409:
                raise
            await cluster.call("PATCH", f"{path}/{POLICY}", body={"spec": policy["spec"]}, patch=True)


def _pods(kind: PodKind) -> str:
    return f"/api/v1/namespaces/{kind.namespace}/pods"


async def _abandon(making: asyncio.Future[Any], cluster: Cluster, path: str, token_hash: str) -> None:
    """A pod that was still being made when nobody wanted it any more. One of that name may be another process's."""
    await asyncio.gather(making, return_exceptions=True)
    if not making.cancelled() and making.exception() is None:
        await making.result()[1].close()
    for pause_s in (0.0, 0.5, 2.0):  # what was asked for last may come late
        await asyncio.sleep(pause_s)
        try:
            pod = await cluster.call("GET", path)
        except ClusterError as error:
            if error.status != 404:
                raise
            continue
        if _is_of(pod, token_hash):
            await delete_pod(cluster, path, pod["metadata"]["uid"])
        return


def _is_of(pod: dict[str, Any], token_hash: str) -> bool:
    return (pod["metadata"].get("annotations") or {}).get(TOKEN_HASH) == token_hash


def _not_offered(error: ClusterError, server: str, namespace: str) -> SetupError:
    if error.status == 401:
        return SetupError(
            f"the cluster at {server} does not know this token; make another: kubectl create token ACCOUNT"
        )
    if error.status == 403:
        return SetupError(
            f"{error}. In the namespace {namespace} sandboxes need: pods get, list, create, patch, delete; "
            "networkpolicies create, patch (or make_policy=False)"
        )
    return SetupError(str(error))


def _hint(text: str, body: dict[str, Any]) -> str:
    image = body["spec"]["containers"][0]["image"]
    if "Image" in text:
        return f"{text}. The image is {image}: is it spelt so, and may the cluster pull it (pull_secret=)?"
    return f"{text}. The image {image} must have python3" if "agent ended" in text or "StartError" in text else text
