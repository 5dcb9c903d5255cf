"""`JudgeClient`: the calls of one judge: a bounded number at a time, equal ones shared, each passed by the guard."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from verifiers.calls import uncounted
from verifiers.errors import (
    AuthenticationError,
    Error,
    JudgeError,
    ModelNotFoundError,
    ModelRequestError,
    OverlongPromptError,
    SetupError,
    one_line,
)
from verifiers.records import content_hash
from verifiers.rubrics.judge_guard import JudgeGuard
from verifiers.types import Response, UserMessage


@dataclass(frozen=True)
class JudgeReply:
    text: str
    finish_reason: str | None = None  # None: the server gave none
    refusal: str | None = None


class JudgeClient:
    """Waiting for one of the `max_concurrent` places counts against no time limit of a reward function."""

    def __init__(self, guard: JudgeGuard, max_concurrent: int) -> None:
        if max_concurrent < 1:
            raise ValueError(f"max_concurrent={max_concurrent}: at least one judge call must be possible at a time")
        self.guard = guard
        self.max_concurrent = max_concurrent
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _InLoop] = WeakKeyDictionary()

    async def ask(self, source: Any, model: str, sampling: Mapping[str, Any], text: str) -> JudgeReply:
        """One call for all who ask the same at the same time: tries of one example often answer alike.

        Raises JudgeError when there is no reply, Undecided when the budget is used up.
        """
        here = self._in_this_loop()
        key = content_hash([id(source), model, sampling, text])
        shared = here.in_flight.get(key)
        if shared is None:
            shared = here.in_flight[key] = _Shared(asyncio.Event())
            shared.call = asyncio.ensure_future(self._reply(source, model, sampling, text, shared.has_place))
            shared.call.add_done_callback(lambda done: here.settled(key, shared))
        assert shared.call is not None
        shared.waiting += 1
        try:
            if not shared.has_place.is_set():
                with uncounted():
                    await shared.has_place.wait()
            return await asyncio.shield(shared.call)
        finally:
            shared.waiting -= 1
            if not shared.waiting:
                shared.call.cancel()  # the last one who waited was cancelled; a finished call does not mind
                here.settled(key, shared)

    async def _reply(
        self, source: Any, model: str, sampling: Mapping[str, Any], text: str, has_place: asyncio.Event
    ) -> JudgeReply:
        try:
            async with self._in_this_loop().places:
                has_place.set()
                self.guard.admit()  # only now: the judge may have gone down while this one waited
                return await self._call(source, model, sampling, text)
        finally:
            has_place.set()

    async def _call(self, source: Any, model: str, sampling: Mapping[str, Any], text: str) -> JudgeReply:
        from verifiers.clients.client import ModelRequest

        args = {name: value for name, value in sampling.items() if value is not None}
        try:
            client = _client(source, model, args)
            response = await client.complete(ModelRequest(model, [UserMessage(text)], args))
        except (Error, SetupError) as error:
            if _is_about_this_request(error):
                self.guard.succeeded()
            else:
                self.guard.failed(error)
            if isinstance(error, JudgeError):
                raise
            raise JudgeError(f"the judge '{model}' gave no reply: {one_line(error)}") from error
        except Exception as error:
            self.guard.failed(error)
            raise
        except BaseException:
            self.guard.abandoned()
            raise
        self.guard.succeeded(_tokens(response, text))
        return JudgeReply(response.text, response.finish_reason, response.message.get("refusal"))

    def _in_this_loop(self) -> _InLoop:
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            found = self._loops[loop] = _InLoop(asyncio.Semaphore(self.max_concurrent))
        return found


@dataclass(eq=False)
class _Shared:
    """One call and those who wait for it."""

    has_place: asyncio.Event
    call: asyncio.Future[JudgeReply] | None = None
    waiting: int = 0


@dataclass
class _InLoop:
    """The judge calls of one event loop."""

    places: asyncio.Semaphore
    in_flight: dict[str, _Shared] = field(default_factory=dict)

    def settled(self, key: str, shared: _Shared) -> None:
        if self.in_flight.get(key) is shared:
            del self.in_flight[key]
        if shared.call is not None and shared.call.done() and not shared.call.cancelled():
            shared.call.exception()  # those who wait see it


def _client(source: Any, model: str, args: dict[str, Any]) -> Any:
    """What is asked; renames in `args` what a client that is called as it is will not translate."""
    if isinstance(source, LateOpenAI):
        source = None
    if not hasattr(source, "chat") or hasattr(type(source), "complete"):
        from verifiers.clients import as_client

        return as_client(source, model=model)
    from verifiers.clients.foreign import ForeignClient

    if "max_tokens" in args:
        args.setdefault("max_completion_tokens", args.pop("max_tokens"))
    return ForeignClient(source)


def _is_about_this_request(error: BaseException) -> bool:
    """The judge is up and will not have this one request: too long, or an argument that it does not know."""
    if isinstance(error, (AuthenticationError, ModelNotFoundError)):
        return False
    return isinstance(error, (ModelRequestError, OverlongPromptError))


def _tokens(response: Response, text: str) -> int:
    """As the server counted them; else a guess, so that a budget holds where a server does not count."""
    usage = response.usage
    if usage is not None and (usage.prompt_tokens or usage.completion_tokens):
        return (usage.prompt_tokens or 0) + (usage.completion_tokens or 0)
    return (len(text) + len(response.text)) // 4 + 1


class LateOpenAI:
    """An `AsyncOpenAI()` that is made when something of it is first touched: a rubric can be built without a key."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        from openai import AsyncOpenAI, OpenAIError

        try:
            client = AsyncOpenAI()
        except OpenAIError as error:
            raise JudgeError(
                "the judge has no client and no key: set OPENAI_API_KEY, or give JudgeRubric a judge_client"
            ) from error
        self.__dict__["_client"] = client
        self.__dict__[name] = getattr(client, name)
        return self.__dict__[name]
