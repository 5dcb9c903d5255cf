"""`HTTPClient`: one model server, asked until it answers.

What a request goes through: a place at the server (`limiter`), one attempt (`pool`), what the reply means (`refusal`,
the dialect), and whether to try again (`retry`).
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from verifiers.clients.chat import ChatDialect
from verifiers.clients.client import ModelRequest
from verifiers.clients.completions import CompletionsDialect
from verifiers.clients.endpoint import DialectName, Endpoint
from verifiers.clients.openai_shape import OpenAIShape
from verifiers.clients.refusal import Quirk, Refusal, strike_out
from verifiers.clients.retry import Fault, RetryPolicy, last_word
from verifiers.clients.tokens import TokensDialect
from verifiers.errors import EnvironmentFault, ModelError, ModelTimeoutError
from verifiers.records import encode_json
from verifiers.types import Response

if TYPE_CHECKING:
    from verifiers.clients.pool import Pool, Replica

T = TypeVar("T")

DIALECTS: dict[str, type[ChatDialect | CompletionsDialect]] = {
    "chat": ChatDialect,
    "completions": CompletionsDialect,
    "tokens": TokensDialect,
}


class HTTPClient(OpenAIShape):
    """A `Client` for any OpenAI-compatible server.

    May be used from several event loops, one after the other or at the same time; each gets connections of its own,
    which close with the loop or by `close()`.

    >>> client = HTTPClient(Endpoint("http://127.0.0.1:8000/v1"))
    >>> response = await client.complete(ModelRequest("my-model", [UserMessage("Hello")]))
    """

    def __init__(
        self, endpoint: Endpoint | str, *, dialect: DialectName | None = None, retry: RetryPolicy | None = None
    ) -> None:
        self.endpoint = Endpoint.of(endpoint)
        self.dialect = DIALECTS[dialect or self.endpoint.dialect]()
        self.retry = retry or RetryPolicy(max_retries=self.endpoint.max_retries)
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        self._quirks: dict[str, tuple[Quirk, ...]] = {}  # by model
        self._sleeping: dict[object, tuple[float, str]] = {}  # when a retry is due, and why it waits

    def speaking(self, dialect: DialectName) -> HTTPClient:
        """The same server and connections in another dialect."""
        if dialect == self.dialect.name:
            return self
        other = copy.copy(self)
        other.dialect = DIALECTS[dialect]()
        return other

    async def complete(self, request: ModelRequest) -> Response:
        return await self.dialect.complete(self.send, request)

    async def close(self) -> None:
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()

    def status(self) -> str | None:
        """Why requests wait, for instance "server says slow down (429), 16 of 32 places, retrying in 3 s"."""
        now = time.monotonic()
        limiters = [r.limiter for pool in self._pools.values() for r in pool.replicas]
        waiting = sum(limiter.waiting for limiter in limiters)
        reduced = [limiter for limiter in limiters if limiter.is_reduced]
        asleep = list(self._sleeping.values())
        if not asleep and not waiting:
            return None
        parts = [Counter(label for _, label in asleep).most_common(1)[0][0]] if asleep else []
        if reduced and waiting + len(asleep):
            wanted = waiting + len(asleep) + sum(limiter.taken for limiter in limiters)
            places = min(wanted, sum(limiter.places for limiter in limiters))
            if not asleep:
                parts.append("server asked to slow down")
            parts.append(f"{places} of {wanted} places")
        elif not asleep and all(limiter.taken >= limiter.ceiling for limiter in limiters if limiter.waiting):
            parts.append(f"all {sum(limiter.ceiling for limiter in limiters)} places are taken")
        if asleep:
            parts.append(f"retrying in {max(0.0, min(due for due, _ in asleep) - now):.0f} s")
        return ", ".join(parts) or None

    def pool(self) -> Pool:
        """The connections of the running loop, opened when first asked for."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            from verifiers.clients.pool import Pool

            for old in [old for old in self._pools if old.is_closed()]:
                del self._pools[old]
            pool = self._pools[loop] = Pool(self.endpoint)
        return pool

    async def send(
        self, path: str, body: dict[str, Any], read: Callable[[bytes], T], request: ModelRequest
    ) -> tuple[T, float, float]:
        """Post `body` until `read` makes sense of the reply. Returns that, seconds queued, and seconds worked."""
        pool, budget_s = self.pool(), request.budget_s
        quirks = self._quirks.get(request.model, ())
        for quirk in quirks:
            body = quirk.apply(body)
        data, headers, timeout_s = _encode(body), self._headers(request), self._timeout_s(request)
        tries, queue_s = 0, 0.0
        while True:
            if budget_s is not None:
                if budget_s <= 0:
                    raise ModelTimeoutError(f"{self.endpoint.base_url}{path}: no time left, after {tries} tries")
                timeout_s = min(timeout_s, budget_s)
            replica = pool.pick(request.affinity)
            if not replica.limiter.try_take():
                began = time.monotonic()
                await replica.limiter.wait(again=tries > 0)
                queue_s += time.monotonic() - began
            sent_at = time.monotonic()
            tries += 1
            try:
                status, reply_headers, reply = await replica.send("POST", path, data, timeout_s, headers)
                if not pool.pace.try_pass():
                    await pool.pace.wait()
                if status != 200:
                    raise self._outcome(replica, path, (status, reply_headers, reply), request, body, quirks)
                value = read(reply)
            except Fault as fault:
                self._learn(replica, fault, sent_at)
                if budget_s is not None:
                    budget_s -= time.monotonic() - sent_at
                delay = self._delay(pool, replica, fault, tries, queue_s)
                if delay is None or (fault.kind == "timeout" and budget_s is not None and budget_s <= 0):
                    raise self._last_word(replica, path, fault, tries) from None
                reason = fault.label
            except _AskDifferently as other:
                quirks, body = (*quirks, other.quirk), other.quirk.apply(body)
                self._quirks[request.model] = quirks
                data, delay, reason = _encode(body), 0.0, ""
                tries -= 1
            else:
                replica.answered()
                replica.limiter.went_well()
                return value, queue_s, time.monotonic() - sent_at
            finally:
                replica.limiter.give()
            if delay > 0:
                queue_s += await self._sleep(delay, reason)

    def _outcome(
        self,
        replica: Replica,
        path: str,
        reply: tuple[int, Mapping[str, str], bytes],
        request: ModelRequest,
        body: dict[str, Any],
        quirks: tuple[Quirk, ...],
    ) -> Exception:
        endpoint = replica.endpoint
        url = str(replica.url(path).with_query(None))
        refusal = Refusal.read(url, *reply, endpoint.key_name, endpoint.secrets())
        quirk = refusal.quirk(body, request.seed is not None and request.sampling.get("seed") is None)
        if quirk is not None and not quirk.contradicts(quirks):
            return _AskDifferently(quirk)
        return refusal.outcome(request.model, body)

    def _learn(self, replica: Replica, fault: Fault, sent_at: float) -> None:
        if fault.kind in ("slow down", "timeout"):
            replica.limiter.slow_down(sent_at)
        elif fault.kind == "descriptors":
            replica.limiter.lower_ceiling(replica.limiter.taken - 1)
        elif fault.kind in ("refused", "unreachable"):
            replica.rest()

    def _delay(self, pool: Pool, replica: Replica, fault: Fault, tries: int, waited_s: float) -> float | None:
        if fault.kind in ("refused", "unreachable") and tries <= self.retry.max_retries and pool.has_another(replica):
            return 0.0
        return self.retry.delay_s(fault, tries, waited_s, any(r.proven for r in pool.replicas))

    def _last_word(self, replica: Replica, path: str, fault: Fault, tries: int) -> ModelError:
        fault.text = strike_out(fault.text, replica.endpoint.secrets())
        return last_word(fault, str(replica.url(path).with_query(None)), tries)

    async def _sleep(self, delay_s: float, reason: str) -> float:
        began, ticket = time.monotonic(), object()
        self._sleeping[ticket] = (began + delay_s, reason)
        try:
            await asyncio.sleep(delay_s)
        finally:
            del self._sleeping[ticket]
        return time.monotonic() - began

    def _timeout_s(self, request: ModelRequest) -> float:
        if request.timeout_s is not None:
            return request.timeout_s
        given = request.sampling.get("timeout")
        return float(given) if isinstance(given, (int, float)) else self.endpoint.timeout_s

    def _headers(self, request: ModelRequest) -> dict[str, str] | None:
        given = request.sampling.get("extra_headers")
        if not given and not self.endpoint.affinity_headers:
            return None
        headers = {str(k): str(v) for k, v in (given or {}).items()}
        if request.affinity is not None:
            headers.update(dict.fromkeys(self.endpoint.affinity_headers, request.affinity))
        return headers

    def __repr__(self) -> str:
        return f"HTTPClient({self.endpoint!r}, dialect={self.dialect.name!r})"


class _AskDifferently(Exception):
    def __init__(self, quirk: Quirk) -> None:
        self.quirk = quirk


def _encode(body: dict[str, Any]) -> bytes:
    try:
        return encode_json(body)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise EnvironmentFault(f"a message or sampling argument cannot be sent as JSON: {error}") from error
