"""`Cluster`: a Kubernetes API, and the agents in its pods, over HTTP.

The only file of this backend that knows aiohttp. What is asked again is decided here: what surely did no harm.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import importlib
import io
import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from verifiers.errors import SandboxError, SetupError, one_line

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
CONNECT_TIMEOUT_S = 10.0
_ATTEMPTS = 4
_PASSING = (429, 500, 502, 503, 504)
_PAGE = 500
_MOST_BYTES = 1 << 30  # of one answer of an agent: what a pod sends is a program's to choose


class ClusterError(SandboxError):
    """The cluster refused, failed or did not answer; the last when `status` is None."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


class AgentLost(SandboxError):
    """A pod's agent is not reached, or hung up."""


class _TooMuch(Exception):
    """An answer that is larger than anybody wants it."""


@dataclass(frozen=True)
class Access:
    """Where a cluster is and how one may ask it."""

    server: str
    namespace: str
    token: str | None = None
    token_file: str | None = None  # read at each call: a service account's changes
    authority: str | None = None  # PEM; None: the system's
    certificate: tuple[str, str] | None = None  # files of a certificate and its key
    is_insecure: bool = False

    def __repr__(self) -> str:
        return f"Access({self.server!r}, {self.namespace!r}, token='***')"


class Cluster:
    """Holds no connection between calls, so any event loop may use it."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._tls: ssl.SSLContext | bool | None = None

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        timeout_s: float = 30.0,
        patch: bool = False,
        attempts: int = _ATTEMPTS,
    ) -> dict[str, Any]:
        """The JSON of the answer. Passing troubles are tried again: each thing that is made has a name of its own."""
        for attempt in range(1, attempts + 1):
            pause_s = 0.1 * 3**attempt
            try:
                return await self._ask(method, path, query, body, timeout_s, patch)
            except ClusterError as error:
                if attempt == attempts or (error.status is not None and error.status not in _PASSING):
                    raise
            await asyncio.sleep(pause_s)
        raise AssertionError

    async def list(self, path: str, selector: str) -> list[dict[str, Any]]:
        """All of them, page by page; begun anew when the cluster has forgotten where we were (410)."""
        found: list[dict[str, Any]] = []
        query = {"labelSelector": selector, "limit": str(_PAGE)}
        for _ in range(1000):
            try:
                page = await self.call("GET", path, query=query)
            except ClusterError as error:
                if error.status != 410 or "continue" not in query:
                    raise
                del query["continue"]
                found = []
                continue
            found += page.get("items") or []
            more = (page.get("metadata") or {}).get("continue")
            if not more:
                return found
            query["continue"] = more
        raise ClusterError(f"the list of {path} has no end")

    async def _ask(
        self, method: str, path: str, query: Mapping[str, str] | None, body: Any, timeout_s: float, patch: bool
    ) -> dict[str, Any]:
        token = self._token()
        headers = {"Accept": "application/json", "User-Agent": "verifiers"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/merge-patch+json" if patch else "application/json"
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        what = f"{method} {path}"
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.request(
                    method, self.access.server + path, params=query, data=data, headers=headers, ssl=self._verified()
                ) as reply,
            ):
                text, status = await reply.read(), reply.status
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            server = self.access.server
            raise ClusterError(f"the cluster at {server} does not answer to {what}: {_words(error)}") from None
        if status >= 400:
            raise ClusterError(f"the cluster refused {what}: {status} {_reason(text)}", status)
        try:
            return json.loads(text)
        except ValueError:
            raise ClusterError(f"the cluster at {self.access.server} answers {what} by what is no JSON", 400) from None

    def _token(self) -> str | None:
        if self.access.token_file is None:
            return self.access.token
        try:
            return Path(self.access.token_file).read_text().strip()
        except OSError as error:
            raise ClusterError(f"the token of the service account cannot be read: {error}", 401) from None

    def _verified(self) -> ssl.SSLContext | bool:
        if self._tls is None:
            access = self.access
            if access.is_insecure:
                self._tls = False
            else:
                context = ssl.create_default_context(cadata=access.authority)
                if access.certificate is not None:
                    context.load_cert_chain(*access.certificate)
                self._tls = context
        return self._tls


class AgentLink:
    """A pod's agent. Connections are kept for one event loop, the sandbox's, and closed with it."""

    def __init__(self, address: str, port: int, token: str) -> None:
        host = f"[{address}]" if ":" in address else address
        self._base = f"http://{host}:{port}/"
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": "verifiers"}
        self._session: aiohttp.ClientSession | None = None

    async def call(
        self, path: str, head: Mapping[str, Any], data: bytes = b"", *, may_repeat: bool = True, timeout_s: float = 45.0
    ) -> tuple[int, bytes]:
        """Status and body. Raises AgentLost, and OSError of the kind that the agent tells."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                status, body = await self._ask(path, json.dumps(head).encode() + b"\n" + data, timeout_s)
                break
            except _TooMuch:
                raise OSError(
                    f"{head.get('path') or path} is larger than {_MOST_BYTES >> 20} MB; take a part of it"
                ) from None
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                is_unsent = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
                if attempt == _ATTEMPTS or not (may_repeat or is_unsent):
                    raise AgentLost(f"the agent in the pod does not answer to {path}: {_words(error)}") from None
            await asyncio.sleep(0.05 * 3**attempt)
        else:
            raise AssertionError
        if status == 422:
            raise _error_of(body)
        if status == 401:
            raise AgentLost("the agent in the pod does not know our token: it is another's")
        return status, body

    async def hello(self) -> bool:
        """Once, without patience."""
        try:
            return (await self._ask("hello", b"{}\n", 5.0))[0] == 200
        except (aiohttp.ClientError, AgentLost, OSError, TimeoutError):
            return False

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _ask(self, path: str, body: bytes, timeout_s: float) -> tuple[int, bytes]:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
            self._session = aiohttp.ClientSession(connector=connector, headers=self._headers, auto_decompress=False)
        if self._session.closed:  # the sandbox has ended since the first try
            raise AgentLost("the connection to the agent in the pod is closed")
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=timeout_s)
        async with self._session.post(self._base + path, data=io.BytesIO(body), timeout=timeout) as reply:
            pieces, left = [], _MOST_BYTES
            async for piece in reply.content.iter_any():
                pieces.append(piece)
                left -= len(piece)
                if left < 0:
                    reply.close()  # with its connection
                    raise _TooMuch
            return reply.status, b"".join(pieces)


def find_access(
    kubeconfig: str | None = None, context: str | None = None, namespace: str | None = None,
    environ: Mapping[str, str] = os.environ, account: str = SERVICE_ACCOUNT,
) -> Access:  # fmt: skip
    """A kubeconfig that is named, else the pod's own service account, else the usual kubeconfig. Raises SetupError."""
    said = kubeconfig or environ.get("KUBECONFIG")
    host = environ.get("KUBERNETES_SERVICE_HOST")
    if not said and host:
        return _of_account(host, environ.get("KUBERNETES_SERVICE_PORT", "443"), namespace, Path(account))
    path = Path((said or "").split(os.pathsep)[0] or Path(environ.get("HOME", "~"), ".kube/config").expanduser())
    if not path.is_file():
        raise SetupError(
            f"no cluster is named: there is no {path}, and this is no pod of one (KUBERNETES_SERVICE_HOST is not set). "
            "Set KUBECONFIG, or give kubeconfig="
        )
    return _of_config(_load(path), path, context, namespace)


def _of_account(host: str, port: str, namespace: str | None, folder: Path) -> Access:
    try:
        own = (folder / "namespace").read_text().strip()
        authority = (folder / "ca.crt").read_text()
    except OSError as error:
        raise SetupError(
            f"this is a pod without a service account ({error}); give it one, and automountServiceAccountToken: true"
        ) from None
    shown = f"[{host}]" if ":" in host else host
    return Access(
        server=f"https://{shown}:{port}",
        namespace=namespace or own,
        token_file=str(folder / "token"),
        authority=authority,
    )


def _of_config(config: Any, path: Path, context: str | None, namespace: str | None) -> Access:
    try:
        chosen = context or config["current-context"]
        names = _named(config, "contexts", chosen)["context"]
        cluster = _named(config, "clusters", names["cluster"])["cluster"]
        user = _named(config, "users", names["user"])["user"] or {}
        authority = _text_of(cluster, "certificate-authority", path)
        token, token_file = user.get("token"), user.get("tokenFile")
        pair = user.get("client-certificate"), user.get("client-key")
        certificate = (str(path.parent / pair[0]), str(path.parent / pair[1])) if pair[0] and pair[1] else None
        server = str(cluster["server"]).rstrip("/")
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise SetupError(f"{path} is no kubeconfig that can be used: {type(error).__name__} {error}") from None
    if not (token or token_file or certificate):
        raise SetupError(
            f"{path} has neither token nor client-certificate for the context {chosen}; plugins and inline "
            "certificates are not known here. Put in a token: kubectl create token ACCOUNT"
        )
    return Access(
        server=server,
        namespace=namespace or names.get("namespace") or "default",
        token=token,
        token_file=None if token or not token_file else str(path.parent / token_file),
        authority=authority,
        certificate=certificate,
        is_insecure=bool(cluster.get("insecure-skip-tls-verify")),
    )


def _load(path: Path) -> Any:
    text = path.read_text()
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        yaml = importlib.import_module("yaml")
    except ImportError:
        raise SetupError(f"{path} is YAML, which needs: pip install pyyaml (or write it as JSON)") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SetupError(f"{path} is no YAML: {one_line(error)}") from None


def _named(config: Any, kind: str, name: str) -> Any:
    found = next((one for one in config[kind] if one["name"] == name), None)
    if found is None:
        raise KeyError(f"no {kind[:-1]} {name!r}")
    return found


def _text_of(cluster: Any, name: str, path: Path) -> str | None:
    if cluster.get(f"{name}-data"):
        return base64.b64decode(cluster[f"{name}-data"]).decode()
    if not cluster.get(name):
        return None
    try:
        return (path.parent / cluster[name]).read_text()
    except OSError as error:
        raise ValueError(str(error)) from None


def _words(error: BaseException) -> str:
    return "timed out" if isinstance(error, TimeoutError) else one_line(error)


def _reason(data: bytes) -> str:
    """Of a `Status`, or whatever stands before the cluster."""
    text = data.decode("utf-8", "replace").strip()
    try:
        text = str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        pass
    return " ".join(text.split())[:500]


def _error_of(body: bytes) -> Exception:
    kinds: dict[str, type[OSError]] = {
        "FileNotFoundError": FileNotFoundError,
        "IsADirectoryError": IsADirectoryError,
        "NotADirectoryError": NotADirectoryError,
        "PermissionError": PermissionError,
    }
    try:
        told = json.loads(body)
        return kinds.get(told["error"], OSError)(f"{told['message']} (in the sandbox)")
    except (ValueError, KeyError, TypeError):
        return AgentLost("the agent in the pod makes no sense")
