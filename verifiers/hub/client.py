"""`HubClient`: requests to one hub. The token goes to that hub's origin only; every refusal becomes one sentence."""

from __future__ import annotations

import contextlib
import hashlib
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urljoin, urlsplit

import httpx2

from verifiers.errors import EnvironmentNotFound, SetupError
from verifiers.hub.credentials import Login, current_login

TIMEOUT = httpx2.Timeout(60.0, connect=10.0)
TRIES = 4
AGAIN = (429, 502, 503, 504)
LONGEST_WAIT_S = 30.0  # a hub that asks for more is told to the user instead

Progress = Callable[[int, int | None], None]


class HubError(SetupError):
    """A hub said no, or nothing. `status` is HTTP's (0: no answer), `code` the hub's word for programs."""

    def __init__(self, message: str, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status, self.code = status, code

    def __reduce__(self) -> Any:
        return HubError, (str(self), self.status, self.code)


class HubClient:
    """Talks JSON to `/api/v1` of one hub. Use it in a `with` block."""

    def __init__(self, login: Login | None = None) -> None:
        """Raises SetupError when no hub is known, or the token can be none: it would not pass through a header."""
        self.login = login or current_login()
        if self.login.token is not None and not _SENDABLE.fullmatch(self.login.token):
            raise SetupError(
                f"the token for {self.login.url} is empty or holds spaces or other characters that no "
                f"token has. Sign in again: vf login {self.login.url}"
            )
        self._http = httpx2.Client(timeout=TIMEOUT, follow_redirects=False, headers={"User-Agent": _user_agent()})

    def __enter__(self) -> HubClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.close()

    @property
    def url(self) -> str:
        return self.login.url

    def get(self, *path: str, **query: Any) -> Any:
        """`get("projects", owner, name)`: each part is quoted; `None` in the query is left out."""
        return self.call("GET", *path, query=query)

    def call(
        self,
        method: str,
        *path: str,
        json: Any = None,
        query: Mapping[str, Any] | None = None,
        content: Callable[[], Iterable[bytes]] | None = None,
        headers: Mapping[str, str] | None = None,
        again: bool | None = None,
    ) -> Any:
        """The decoded answer. `content` makes the body anew for each try; `again` says whether a try may be repeated
        after the request may have arrived (default: for GET, PUT and DELETE)."""
        return self._call(
            method,
            f"{self.url}/api/v1/{'/'.join(quote(part, safe='@') for part in path)}",
            json=json,
            params={name: value for name, value in (query or {}).items() if value is not None},
            content=content,
            headers=headers,
            again=method in ("GET", "PUT", "DELETE") if again is None else again,
        )

    def _call(
        self,
        method: str,
        address: str,
        *,
        again: bool,
        json: Any = None,
        params: Mapping[str, Any] | None = None,
        content: Callable[[], Iterable[bytes]] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        for attempt in range(TRIES):
            is_last = attempt == TRIES - 1
            try:
                answer = self._http.request(
                    method,
                    address,
                    params=params,
                    json=json,
                    content=None if content is None else content(),
                    headers={**self._authorization(address), **(headers or {})},
                )
            except httpx2.ConnectError as error:
                if is_last:
                    raise HubError(
                        f"the hub at {self.url} cannot be reached: {error}. Does it run, and is the address right?"
                    ) from error
                wait = _wait_s(attempt, None)
            except httpx2.HTTPError as error:
                if is_last or not again:
                    raise HubError(f"the hub at {self.url} did not answer: {error or type(error).__name__}") from error
                wait = _wait_s(attempt, None)
            else:
                may_repeat = answer.status_code == 429 or (answer.status_code in AGAIN and again)
                wait = _wait_s(attempt, answer.headers.get("Retry-After"))
                if not may_repeat or is_last or wait > LONGEST_WAIT_S:
                    return self._decoded(answer)
            time.sleep(wait)
        raise AssertionError("the last try returns or raises")

    def simple(self, base: str, project: str) -> dict[str, Any]:
        """A project's page of a package index on this hub, as JSON (PEP 691)."""
        return self._call(
            "GET", f"{base}{quote(project)}/", headers={"Accept": "application/vnd.pypi.simple.v1+json"}, again=True
        )

    def download(
        self,
        address: str,
        target: Path,
        *,
        sha256: str,
        size: int | None,
        progress: Progress = lambda done, total: None,
    ) -> None:
        """Fetches a file that the hub named into `target`, which appears only when the bytes are the promised ones.

        The token goes along to the hub's own origin only. Raises HubError, also when the hash differs.
        """
        address = urljoin(f"{self.url}/", address)
        # a name of its own: another process may be fetching the same file
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as out:
            part = Path(out.name)
            try:
                digest, done = self._fetched(address, out, size, progress)
                out.close()
                if digest != sha256:
                    raise HubError(
                        f"{address} holds other bytes than the hub's index promises (sha256 {digest} instead of "
                        f"{sha256}, {done} bytes): nothing was unpacked. Tell whoever runs the hub: vf-hub fsck "
                        "finds it"
                    )
                part.replace(target)
            finally:
                part.unlink(missing_ok=True)

    def _fetched(self, address: str, out: IO[bytes], size: int | None, progress: Progress) -> tuple[str, int]:
        """Hash and length of what came. A transfer that broke off, or a busy hub, is asked again from the beginning."""
        for attempt in range(TRIES):
            is_last = attempt == TRIES - 1
            out.seek(0)
            out.truncate()
            try:
                with self._file(address) as answer:
                    wait = _wait_s(attempt, answer.headers.get("Retry-After"))
                    if answer.status_code == 200:
                        return _copied(answer.iter_raw(), out, size, progress)
                    if answer.status_code not in AGAIN or is_last or wait > LONGEST_WAIT_S:
                        answer.read()
                        raise self._refusal(answer)
            except httpx2.HTTPError as error:
                if is_last:
                    raise HubError(f"{address} cannot be downloaded: {error or type(error).__name__}") from error
                wait = _wait_s(attempt, None)
            time.sleep(wait)
        raise AssertionError("the last try returns or raises")

    @contextlib.contextmanager
    def _file(self, address: str) -> Iterator[httpx2.Response]:
        """The answer with a file; of a redirect (to an object store) what that leads to, asked without our token."""
        as_is = {"Accept-Encoding": "identity"}  # the hash is that of the bytes as they are stored
        with self._http.stream("GET", address, headers={**as_is, **self._authorization(address)}) as answer:
            if not answer.has_redirect_location:
                yield answer
                return
            elsewhere = urljoin(address, answer.headers["Location"])
        with self._http.stream("GET", elsewhere, headers=as_is) as answer:
            yield answer

    def _authorization(self, address: str) -> dict[str, str]:
        ours, theirs = urlsplit(self.url), urlsplit(address)
        if self.login.token is None or (ours.scheme, ours.netloc) != (theirs.scheme, theirs.netloc.lower()):
            return {}
        return {"Authorization": f"Bearer {self.login.token}"}

    def _decoded(self, answer: httpx2.Response) -> Any:
        if answer.status_code == 204:
            return None
        body = _json(answer)
        if answer.is_success and body is not None:
            return body
        raise self._refusal(answer)

    def _refusal(self, answer: httpx2.Response) -> HubError:
        body = _json(answer)
        told: dict[str, Any] = body if isinstance(body, dict) else {}
        detail, code = told.get("detail"), str(told.get("code") or "")
        if not isinstance(detail, str) or not detail or not code:
            return self._foreign(answer)
        if answer.status_code == 401:
            hint = "sign in again" if self.login.token else "sign in"
            return HubError(f"{detail} ({hint}: vf login {self.url})", 401, code)
        if answer.status_code == 404 and code == "not_found":
            hint = "" if self.login.token else f". A private one needs a token: vf login {self.url}"
            return HubNotFound(f"{detail}{hint}")
        return HubError(detail, answer.status_code, code)

    def _foreign(self, answer: httpx2.Response) -> HubError:
        """Of an answer that no hub gives: from a proxy before it, or from some other server."""
        status = answer.status_code
        if answer.has_redirect_location:
            to = urljoin(str(answer.url), answer.headers["Location"]).partition("/api/v1")[0]
            return HubError(
                f"{self.url} sends us on to {to}, and the token goes to one address only. Use that one: vf login {to}",
                status,
            )
        if status >= 500:
            return HubError(f"{self.url} is out of order (status {status}). Try again later", status)
        return HubError(f"{self.url} does not answer as a hub does (status {status}). Is the address right?", status)


class HubNotFound(EnvironmentNotFound, HubError):
    """The hub has no such thing, or does not show it to us."""

    def __init__(self, message: str) -> None:
        HubError.__init__(self, message, 404, "not_found")

    def __reduce__(self) -> Any:
        return HubNotFound, (str(self),)


_SENDABLE = re.compile(r"[\x21-\x7e]+")


def _json(answer: httpx2.Response) -> Any:
    """`None` for what is no JSON."""
    try:
        return answer.json()
    except ValueError:
        return None


def _copied(pieces: Iterator[bytes], out: IO[bytes], size: int | None, progress: Progress) -> tuple[str, int]:
    digest, done = hashlib.sha256(), 0
    for piece in pieces:
        out.write(piece)
        digest.update(piece)
        done += len(piece)
        if size is not None and done > size:
            break  # more than was promised: the hash cannot fit any more, and the disk is ours
        progress(done, size)
    return digest.hexdigest(), done


def _wait_s(attempt: int, retry_after: str | None) -> float:
    return float(retry_after) if retry_after and re.fullmatch(r"[0-9]{1,9}", retry_after) else 0.5 * 2**attempt


def _user_agent() -> str:
    from importlib import metadata

    try:
        return f"verifiers/{metadata.version('verifiers')}"
    except metadata.PackageNotFoundError:
        return "verifiers"
