"""`AdminLink`: what a trainer asks of one model server besides generating: to pause, to take new weights, to go on.

By connections of its own, so that nothing queues behind generations. The weights themselves go by a dialect
(`verifiers.rl.dialects`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from verifiers.clients.endpoint import Endpoint
from verifiers.clients.retry import Fault

if TYPE_CHECKING:
    from verifiers.clients.pool import Pool

ASK_TIMEOUT_S = 30.0
PAUSE_TIMEOUT_S = 120.0  # the step that is being computed is finished first
UPDATE_TIMEOUT_S = 900.0
TRIES, WAIT_S = 4, 0.5  # of what may be asked twice; the wait doubles

# Between two requests an update may take longer than a server keeps a connection; a request that meets its end is not
# answered, and most of these must not be sent twice
_FRESH = {"Connection": "close"}

_log = logging.getLogger(__name__)


class AdminError(RuntimeError):
    """A server did not do what it was asked. `status` is the HTTP status; `None`: there was no answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Round(Protocol):
    """One version of the weights on its way to several servers (`verifiers.rl.weights`)."""

    folder: str | None  # where the weights lie, for servers that read them there

    async def connect(self, link: AdminLink) -> None:
        """Makes the server ready to receive, while it still generates."""
        ...

    async def deliver(self, link: AdminLink, post: Callable[[dict[str, Any]], Awaitable[Any]]) -> None:
        """Calls `post(update_info)`, which returns when the server has the weights, and sends them meanwhile."""
        ...


class AdminLink:
    """The admin routes of one server. Belongs to one event loop."""

    def __init__(
        self,
        server: Endpoint | str,
        *,
        recompute: bool = False,  # what unfinished replies have in the KV cache, under the new weights
        update_timeout_s: float = UPDATE_TIMEOUT_S,
        wait_s: float = WAIT_S,
    ) -> None:
        server = Endpoint.of(server)
        self.url = server.base_url.removesuffix("/v1")
        self.update_timeout_s = update_timeout_s
        self.can_pause = True
        self.may_be_paused = False  # a pause or a resume of ours was not answered
        self.has_extension = False  # `WeightExtension` is in its workers
        # `keep`, always: vLLM's default would abort what is in flight. And in 0.32 `keep` alone empties the cache, so
        # that every unfinished reply is computed anew from its first token, which for long ones is most of a step
        self._pause = f"/pause?mode=keep&clear_cache={str(recompute).lower()}"
        self._wait_s = wait_s
        self._server = replace(server, base_url=self.url, replicas=(), max_connections=8)
        self._pool: Pool | None = None

    async def get(self, path: str, *, timeout_s: float = ASK_TIMEOUT_S) -> Any:
        return _read(await self._answer("GET", path, None, timeout_s), f"{self.url}{path}")

    async def status_of(self, path: str, body: Any = None, *, timeout_s: float = ASK_TIMEOUT_S) -> int:
        """The HTTP status alone. Raises AdminError when there is no answer."""
        return (await self._answer("GET" if body is None else "POST", path, body, timeout_s))[0]

    async def post(self, path: str, body: Any = None, *, timeout_s: float = ASK_TIMEOUT_S) -> Any:
        """One attempt; the decoded reply. Raises AdminError with what the server said."""
        return _read(await self._answer("POST", path, body or {}, timeout_s), f"{self.url}{path}")

    async def insist(self, path: str, body: Any = None, *, timeout_s: float = ASK_TIMEOUT_S) -> Any:
        """`post` for what may be asked twice: tried again when there was no answer, or a 5xx."""
        for number in range(1, TRIES + 1):
            try:
                return await self.post(path, body, timeout_s=timeout_s)
            except AdminError as error:
                if number == TRIES or (error.status is not None and error.status < 500):
                    raise
                await asyncio.sleep(self._wait_s * 2 ** (number - 1))
        raise AssertionError

    @asynccontextmanager
    async def paused(self) -> AsyncGenerator[None, None]:
        """Generation stands still inside, and goes on where it was afterwards, whatever happens inside.

        A server without the route (the report's) loads between two steps of its own accord.
        Raises AdminError when the server cannot be paused, or not be resumed.
        """
        if not self.can_pause:
            yield
            return
        self.may_be_paused, is_answered = True, False
        try:
            # to its end: a pause that is still on its way might else arrive behind the resume
            await _to_its_end(self.insist(self._pause, timeout_s=PAUSE_TIMEOUT_S))
            is_answered = True
            yield
        finally:
            # also when the pause was not answered: it may have been heard
            await _to_its_end(self.insist("/resume", timeout_s=PAUSE_TIMEOUT_S))
            self.may_be_paused = not is_answered

    async def end_lost_pause(self) -> None:
        """Resumes a server that a pause of ours reached after all. To be asked for when no update is under way."""
        if self.may_be_paused:
            if (await self.get("/is_paused")).get("is_paused"):
                _log.warning("%s was left paused, and goes on now", self.url)
                await self.insist("/resume", timeout_s=PAUSE_TIMEOUT_S)
            self.may_be_paused = False

    async def version(self) -> str | None:
        """The label of the weights; `None`: the server has none. vLLM's is "default" until somebody changes it."""
        try:
            found = (await self.get("/weight_info")).get("weight_version")
        except AdminError as error:
            if error.status in (404, 405):
                return None
            raise
        return None if found is None else str(found)

    async def set_version(self, version: str) -> None:
        await self.insist("/update_weight_version", {"new_version": version})

    async def weight_states(self) -> list[Any] | None:
        """Of every worker: whether its weights are whole, and how many updates it has begun. `None`: nobody tells.

        After a failed update the same as before it, and whole: nothing has been touched.
        """
        if not self.has_extension:
            return None
        states = await self.call("weight_state")
        return states if states and all(state.get("state") != "unknown" for state in states) else None

    async def workers_since(self) -> list[Any] | None:
        """Other values are those of other workers: the server has been started anew. `None`: nobody tells."""
        states = await self.weight_states()
        return None if states is None else [state.get("since") for state in states]

    async def call(self, method: str, *, timeout_s: float = ASK_TIMEOUT_S, **arguments: Any) -> list[Any]:
        """A method of every worker. Raises AdminError when they have none of that name."""
        body = {"method": method, "kwargs": arguments}
        return (await self.post("/collective_rpc", body, timeout_s=timeout_s) or {}).get("results", [])

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def _answer(self, method: str, path: str, body: Any, timeout_s: float) -> tuple[int, bytes]:
        if self._pool is None:
            from verifiers.clients.pool import Pool  # and aiohttp with it

            self._pool = Pool(self._server)
        (replica,) = self._pool.replicas
        data = None if body is None else msgspec.json.encode(body)
        try:
            status, _, answer = await replica.send(method, path, data, timeout_s, _FRESH)
        except Fault as fault:
            raise AdminError(f"{self.url}{path} gave no answer: {fault.text}") from None
        return status, answer

    def __repr__(self) -> str:
        return f"AdminLink({self.url!r})"


async def _to_its_end(work: Awaitable[Any]) -> None:
    """Awaits `work` to its end even while being cancelled, and only then passes the cancel on."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
        except Exception:
            break
    if cancelled:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a server may still be paused: %s", error)
        raise asyncio.CancelledError
    task.result()


def _read(answer: tuple[int, bytes], url: str) -> Any:
    status, data = answer
    if not 200 <= status < 300:
        raise AdminError(f"{url} answered {status}: {_said(data)}", status)
    if not data:
        return None
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data.decode(errors="replace")


def _said(data: bytes) -> str:
    """The message in an error reply, without the frame that vLLM puts around a worker's own words."""
    text = data.decode(errors="replace").strip()
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        value = None
    if isinstance(value, dict):
        error = value.get("error") or value.get("detail") or value.get("message") or text
        text = str(error.get("message", error) if isinstance(error, dict) else error)
    text = text.removeprefix("Call to collective_rpc method failed: ")
    return " ".join(text.removesuffix(", please check the stack trace above for the root cause").split())[:600]
