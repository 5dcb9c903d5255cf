"""A counterpart of a Kubernetes API whose pods really run their agent, each in a jail of bubblewrap with an address of
its own on the loopback network. Of a pod's body it heeds the command, the user, the environment and the disks."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from pathlib import Path

from aiohttp import web

from verifiers.errors import SetupError
from verifiers.sandbox import KubernetesBackend
from verifiers.sandbox.jail import bubblewrap

TOKEN = "a-token-for-tests"
NAMESPACE = "sandboxes"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
POLICIES = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies"
# A jail has no network, so it is given the socket at which its agent listens.
LISTEN = """
import json, socket, sys
text, settings, number = sys.argv[1:]
agent = {"__name__": "agent"}
exec(compile(text, "agent", "exec"), agent)
agent["Agent"](json.loads(settings)).serve(socket.socket(fileno=int(number)))
"""
PATH = "/usr/local/bin:/usr/bin:/bin"
_numbers = itertools.count(1)


class Pod:
    def __init__(self, body: dict) -> None:
        self.body = body
        self.uid = str(uuid.uuid4())
        self.deleted_at: float | None = None
        self.status: dict | None = None  # what is said instead of what is
        self.process: subprocess.Popen | None = None
        number = os.getpid() * 4096 + next(_numbers)
        self.address = f"127.{1 + number // 64516 % 250}.{number // 254 % 254}.{1 + number % 254}"

    def start(self) -> None:
        spec = self.body["spec"]
        container = spec["containers"][0]
        assert container["command"][:4] == ["python3", "-I", "-S", "-c"]
        settings = json.loads(container["args"][0])
        listener = socket.create_server((self.address, settings["port"]), backlog=512)
        user = str(spec["securityContext"]["runAsUser"])
        jail = [
            bubblewrap() or "bwrap",
            "--unshare-user",
            "--unshare-pid",
            "--unshare-ipc",
            "--unshare-uts",
            "--unshare-net",
        ]
        jail += ["--as-pid-1", "--die-with-parent", "--uid", user, "--gid", user, "--hostname", "pod", "--clearenv"]
        for folder in ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives"):
            if os.path.islink(folder):
                jail += ["--symlink", os.readlink(folder), folder]
            elif os.path.exists(folder):
                jail += ["--ro-bind", folder, folder]
        jail += ["--proc", "/proc", "--dev", "/dev"]
        disks = {volume["name"]: volume["emptyDir"] for volume in spec["volumes"]}
        for mount in container["volumeMounts"]:
            disk = disks[mount["name"]]
            assert disk["medium"] == "Memory"
            size = str(int(disk["sizeLimit"].removesuffix("Mi")) << 20)
            jail += ["--perms", "1777", "--size", size, "--tmpfs", mount["mountPath"]]
        for variable in [{"name": "PATH", "value": PATH}, *container["env"]]:
            jail += ["--setenv", variable["name"], variable["value"]]
        jail += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", container["workingDir"], "--"]
        run = ["python3", "-I", "-S", "-c", LISTEN, container["command"][4], container["args"][0]]
        self.process = subprocess.Popen(
            [*_as_owner(), *jail, *run, str(listener.fileno())],
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
        )
        listener.close()

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    @property
    def shown(self) -> dict:
        shown = json.loads(json.dumps(self.body))
        shown["metadata"]["uid"] = self.uid
        if self.deleted_at is not None:
            shown["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        shown["status"] = self.status or self._seen()
        return shown

    def _seen(self) -> dict:
        if self.process is None:
            return {"phase": "Pending"}
        code = self.process.poll()
        if code is None:
            state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
            return {"phase": "Running", "podIP": self.address, "containerStatuses": [{"state": state}]}
        state = {"terminated": {"reason": "Completed" if code == 0 else "Error", "exitCode": code}}
        return {"phase": "Succeeded" if code == 0 else "Failed", "containerStatuses": [{"state": state}]}


class FakeCluster:
    """`with` it; it runs in a thread of its own, so that any event loop may ask it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pods: dict[str, Pod] = {}
        self.policies: dict[str, dict] = {}
        self.asked: list[str] = []  # METHOD path, in order
        self.faults: list[tuple[str, int | None]] = []  # METHOD path's end, and a status; None: the answer is lost
        self.statuses: dict[str, dict] = {}  # image → the status that its pods have instead of running
        self.goes_after_s = 0.1  # how long a deleted pod is seen still
        self.page = 500

    def __enter__(self) -> FakeCluster:
        if (program := bubblewrap()) is None:
            raise SetupError("bubblewrap is not installed, which the pods of the tests run in")
        if shutil.which("python3", path=PATH) is None:
            raise SetupError(f"the pods of the tests need a python3 in {PATH}")
        words = ["--unshare-user", "--unshare-net", "--ro-bind", "/", "/", "--size", "4096", "--tmpfs", "/tmp", "true"]
        tried = subprocess.run([*_as_owner(), program, *words], capture_output=True, timeout=60)
        if tried.returncode:
            raise SetupError(f"the jails of the tests are not permitted here: {tried.stderr.decode()}")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=1.0)
        port = asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(60)
        self.server = f"http://127.0.0.1:{port}"
        self.kubeconfig = self.folder / "kubeconfig"
        self.kubeconfig.write_text(json.dumps(self.config(TOKEN)))
        return self

    def config(self, token: str) -> dict:
        context = {"cluster": "c", "user": "u", "namespace": NAMESPACE}
        return {
            "current-context": "here",
            "contexts": [{"name": "here", "context": context}],
            "clusters": [{"name": "c", "cluster": {"server": self.server}}],
            "users": [{"name": "u", "user": {"token": token}}],
        }

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        for pod in self.pods.values():
            pod.end()

    def backend(self, **options) -> KubernetesBackend:
        return KubernetesBackend(kubeconfig=str(self.kubeconfig), **{"user": 1000, "start_timeout_s": 60.0, **options})

    @property
    def there(self) -> list[Pod]:
        """Pods that are there and not on their way out."""
        return [pod for pod in list(self.pods.values()) if pod.deleted_at is None]

    async def _serve(self) -> int:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return site._server.sockets[0].getsockname()[1]

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/version", self._version)
        app.router.add_get(PODS, self._list)
        app.router.add_post(PODS, self._create)
        app.router.add_get(PODS + "/{name}", self._get)
        app.router.add_patch(PODS + "/{name}", self._patch)
        app.router.add_delete(PODS + "/{name}", self._delete)
        app.router.add_post(POLICIES, self._create_policy)
        app.router.add_patch(POLICIES + "/{name}", self._patch_policy)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler) -> web.StreamResponse:
        what = f"{request.method} {request.path}"
        self.asked.append(what)
        for name, pod in list(self.pods.items()):
            if pod.deleted_at is not None and time.monotonic() > pod.deleted_at + self.goes_after_s:
                del self.pods[name]
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _refusal(401, "Unauthorized")
        fault = next((one for one in self.faults if _is(what, *one[0].split())), None)
        if fault is not None:
            self.faults.remove(fault)
            if fault[1] is not None:
                return _refusal(fault[1], f"the fault {fault[1]}")
        answer = await handler(request)
        if fault is not None and request.transport is not None:
            request.transport.abort()
        return answer

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"gitVersion": "v1.test"})

    async def _list(self, request: web.Request) -> web.Response:
        name, _, value = request.query["labelSelector"].partition("=")
        pods = [pod.shown for pod in self.pods.values() if _has(pod.body["metadata"]["labels"], name, value)]
        start = int(request.query.get("continue", "0"))
        end = start + min(self.page, int(request.query["limit"]))
        more = {"continue": str(end)} if end < len(pods) else {}
        return web.json_response({"items": pods[start:end], "metadata": more})

    async def _create(self, request: web.Request) -> web.Response:
        body = await request.json()
        name = body["metadata"]["name"]
        if name in self.pods:
            return _refusal(409, f'pods "{name}" already exists')
        pod = self.pods[name] = Pod(body)
        status = self.statuses.get(body["spec"]["containers"][0]["image"])
        if status is not None:
            pod.status = status
        else:
            await asyncio.to_thread(pod.start)
        return web.json_response(pod.shown, status=201)

    async def _get(self, request: web.Request) -> web.Response:
        pod = self.pods.get(request.match_info["name"])
        return _refusal(404, "not found") if pod is None else web.json_response(pod.shown)

    async def _patch(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/merge-patch+json"
        pod = self.pods.get(request.match_info["name"])
        if pod is None:
            return _refusal(404, "not found")
        for what, values in (await request.json())["metadata"].items():
            pod.body["metadata"].setdefault(what, {}).update(values)
        return web.json_response(pod.shown)

    async def _delete(self, request: web.Request) -> web.Response:
        pod = self.pods.get(request.match_info["name"])
        if pod is None:
            return _refusal(404, "not found")
        wanted = ((await request.json()) if request.can_read_body else {}).get("preconditions", {}).get("uid", pod.uid)
        if wanted != pod.uid:
            return _refusal(409, "the uid is another")
        if pod.deleted_at is None:
            pod.deleted_at = time.monotonic()
            await asyncio.to_thread(pod.end)
        return web.json_response(pod.shown)

    async def _create_policy(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["metadata"]["name"] in self.policies:
            return _refusal(409, "already exists")
        self.policies[body["metadata"]["name"]] = body
        return web.json_response(body, status=201)

    async def _patch_policy(self, request: web.Request) -> web.Response:
        policy = self.policies[request.match_info["name"]]
        policy.update(await request.json())
        return web.json_response(policy)


class KubernetesOverJails(KubernetesBackend):
    """With a cluster of its own."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        self.cluster = FakeCluster(folder)
        super().__init__(kubeconfig=str(folder / "kubeconfig"), user=1000, start_timeout_s=60)
        self._is_there = False

    async def capabilities(self):
        if not self._is_there:
            self.cluster.__enter__()
            self._is_there = True
        return await super().capabilities()

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            if self._is_there:
                self._is_there = False
                self.cluster.__exit__()
            self._folder.cleanup()


def _as_owner() -> list[str]:
    """root's processes are not counted, so it gives each pod a user of its own.

    By a program, since with `user=` the processes of the tests would be forked, with all of their threads and locks.
    """
    if os.getuid() != 0:
        return []
    owner = 1_950_000_000 + next(_numbers)
    return ["setpriv", f"--reuid={owner}", f"--regid={owner}", "--clear-groups", "--"]


def _is(what: str, method: str, end: str) -> bool:
    return what.startswith(method) and what.endswith(end)


def _has(labels: dict, name: str, value: str) -> bool:
    return name in labels and value in ("", labels[name])


def _refusal(status: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "status": "Failure", "message": message, "code": status}, status=status)
