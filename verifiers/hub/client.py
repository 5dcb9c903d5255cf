"""`HubClient`: requests to one hub. The token goes to that hub's origin only; every refusal becomes one sentence."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import httpx2

from verifiers.errors import EnvironmentNotFound, SetupError
from verifiers.hub.credentials import Login, current_login

TIMEOUT = httpx2.Timeout(60.0, connect=10.0)
TRIES = 4
AGAIN = (429, 502, 503, 504)
LONGEST_WAIT_S = 30.0

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
        self.login = login or current_login()
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
                if attempt == TRIES - 1:
                    raise HubError(f"the hub at {self.url} cannot be reached: {error}") from error
                wait = _wait_s(attempt, None)
            except httpx2.HTTPError as error:
                if attempt == TRIES - 1 or not again:
                    raise HubError(f"the hub at {self.url} did not answer: {error}") from error
                wait = _wait_s(attempt, None)
            else:
                again_now = answer.status_code == 429 or (answer.status_code in AGAIN and again)
                if not again_now or attempt == TRIES - 1:
                    return self._decoded(answer)
                wait = _wait_s(attempt, answer.headers.get("Retry-After"))
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
        part = target.with_name(f".{target.name}.part")
        digest, done = hashlib.sha256(), 0
        try:
            with (
                part.open("wb") as out,
                self._http.stream("GET", address, headers=self._authorization(address)) as answer,
            ):
                if answer.has_redirect_location:  # to an object store: without our token
                    with self._http.stream("GET", urljoin(address, answer.headers["Location"])) as elsewhere:
                        pieces = self._file_pieces(elsewhere)
                        done = _copy(pieces, out, digest, size, progress)
                else:
                    done = _copy(self._file_pieces(answer), out, digest, size, progress)
            if digest.hexdigest() != sha256:
                raise HubError(
                    f"{address} holds other bytes than the hub's index promises (sha256 {digest.hexdigest()} instead "
                    f"of {sha256}, {done} bytes): nothing was unpacked. Tell whoever runs the hub; vf-hub fsck finds it"
                )
            part.replace(target)
        except httpx2.HTTPError as error:
            raise HubError(f"{address} cannot be downloaded: {error}") from error
        finally:
            part.unlink(missing_ok=True)

    def _file_pieces(self, answer: httpx2.Response) -> Iterator[bytes]:
        if answer.status_code != 200:
            answer.read()
            self._decoded(answer)
        return answer.iter_raw()

    def _authorization(self, address: str) -> dict[str, str]:
        ours, theirs = urlsplit(self.url), urlsplit(address)
        if self.login.token is None or (ours.scheme, ours.netloc) != (theirs.scheme, theirs.netloc.lower()):
            return {}
        return {"Authorization": f"Bearer {self.login.token}"}

    def _decoded(self, answer: httpx2.Response) -> Any:
        if answer.status_code == 204:
            return None
        try:
            body = answer.json()
        except ValueError:
            body = None
        if answer.is_success and body is not None:
            return body
        raise self._refusal(answer, body if isinstance(body, dict) else {})

    def _refusal(self, answer: httpx2.Response, body: dict[str, Any]) -> Exception:
        detail, code = body.get("detail"), str(body.get("code") or "")
        if not isinstance(detail, str) or not detail:
            return HubError(
                f"{self.url} does not answer as a hub does (status {answer.status_code}). Is the address right?",
                answer.status_code,
            )
        if answer.status_code == 401:
            hint = "sign in again" if self.login.token else "sign in"
            return HubError(f"{detail} ({hint}: vf login {self.url})", 401, code)
        if answer.status_code == 404 and code == "not_found":
            hint = "" if self.login.token else f". A private one needs a token: vf login {self.url}"
            return HubNotFound(f"{detail}{hint}")
        return HubError(detail, answer.status_code, code)


class HubNotFound(EnvironmentNotFound, HubError):
    """The hub has no such thing, or does not show it to us."""

    def __init__(self, message: str) -> None:
        HubError.__init__(self, message, 404, "not_found")

    def __reduce__(self) -> Any:
        return HubNotFound, (str(self),)


def _copy(pieces: Iterator[bytes], out: Any, digest: Any, size: int | None, progress: Progress) -> int:
    done = 0
    for piece in pieces:
        out.write(piece)
        digest.update(piece)
        done += len(piece)
        if size is not None and done > size:
            break  # more than was promised: the hash cannot fit any more, and the disk is ours
        progress(done, size)
    return done


def _wait_s(attempt: int, retry_after: str | None) -> float:
    told = float(retry_after) if retry_after and retry_after.isdigit() else 0.5 * 2**attempt
    return min(told, LONGEST_WAIT_S)


def _user_agent() -> str:
    from importlib import metadata

    try:
        return f"verifiers/{metadata.version('verifiers')}"
    except metadata.PackageNotFoundError:
        return "verifiers"
