"""`JudgeRubric`: a rubric whose reward functions may ask another model."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Formatter
from typing import Any
from weakref import WeakKeyDictionary

from verifiers.errors import Error, JudgeError, SetupError, Undecided, one_line
from verifiers.parsers import Parser, content_text, message_field
from verifiers.records import JudgeInfo, content_hash
from verifiers.rubrics.graded import judge_was_asked
from verifiers.rubrics.rubric import Rubric
from verifiers.types import State, UserMessage

MAX_CONCURRENT = 64

DEFAULT_JUDGE_PROMPT = """You compare a response with the reference answer to a question. Say whether the response \
gives the same answer.

Question:
```
{question}
```

Reference answer:
```
{answer}
```

Response:
```
{response}
```

Reply with one word, "yes" or "no"."""


class JudgeRubric(Rubric):
    """Offers `judge` to its reward functions: `await judge(prompt, completion, answer, state)` is the judge's reply.

    `judge_prompt` may hold `{question}`, `{answer}` and `{response}`. `judge_client` is an `AsyncOpenAI` or `OpenAI`,
    called as it is; a client of ours; a `ClientConfig`, an `Endpoint` or a URL; without one, what `OPENAI_BASE_URL` and
    `OPENAI_API_KEY` say when it is first used. A judge that fails is a fault of the judge, never a 0.0.

    >>> import asyncio
    >>> from verifiers.clients import ScriptedClient
    >>> rubric = JudgeRubric(judge_client=ScriptedClient("yes"))
    >>> asyncio.run(rubric.verdict("Capital of France?", "Paris.", "Paris"))
    1.0
    """

    def __init__(
        self,
        parser: Parser | None = None,
        parallelize_scoring: bool = False,
        judge_client: Any = None,
        judge_model: str = "gpt-4.1-nano",
        judge_sampling_args: Mapping[str, Any] | None = None,
        judge_prompt: str = DEFAULT_JUDGE_PROMPT,
        *,
        max_concurrent: int = MAX_CONCURRENT,
        **attributes: Any,
    ) -> None:
        """`max_concurrent` bounds the calls in flight; `parallelize_scoring` is accepted and has no effect."""
        super().__init__(parser=parser, **attributes)
        if max_concurrent < 1:
            raise ValueError(f"max_concurrent={max_concurrent}: at least one judge call must be possible at a time")
        self.parallelize_scoring = parallelize_scoring
        self.judge_client = judge_client if judge_client is not None else LateOpenAI()
        self.judge_model = judge_model
        self.judge_prompt = judge_prompt
        self.judge_sampling_args = dict(judge_sampling_args or {})
        self.max_concurrent = max_concurrent
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _InLoop] = WeakKeyDictionary()
        self.class_objects.update(
            judge=self.judge,
            judge_client=self.judge_client,
            judge_model=self.judge_model,
            judge_prompt=self.judge_prompt,
            judge_sampling_args=self.judge_sampling_args,
        )

    async def judge(self, prompt: Any, completion: Any, answer: Any, state: State | None = None, **kwargs: Any) -> str:
        """The judge's reply about one response; the same question within a rollout is asked once.

        The question is the text of the last user message, the response what the parser finds. Raises JudgeError.
        """
        response = self.parser.parse_answer(completion)
        values = {"question": question_of(prompt), "answer": as_text(answer), "response": as_text(response)}
        rendered = render(self.judge_prompt, values)
        judge_was_asked(JudgeInfo(model=self.judge_model, prompt_hash=content_hash(self.judge_prompt)))
        replies = state.get("judge_response") if state is not None else None
        if isinstance(replies, dict) and rendered in replies:
            return replies[rendered]
        reply = await self._shared_reply(rendered)
        if state is not None:
            if not isinstance(state.get("judge_response"), dict):
                state["judge_response"] = {}
            state["judge_response"][rendered] = reply
        return reply

    async def verdict(self, prompt: Any, completion: Any, answer: Any, state: State | None = None) -> float:
        """A ready reward function: 1.0 for yes, 0.0 for no; see `read_verdict`."""
        return float(read_verdict(await self.judge(prompt, completion, answer, state)))

    async def _shared_reply(self, rendered: str) -> str:
        """One call for all who ask the same at the same time: tries of one example often answer alike."""
        here = self._in_this_loop()
        key = content_hash([id(self.judge_client), self.judge_model, self.judge_sampling_args, rendered])
        call = here.in_flight.get(key)
        if call is None:
            call = here.in_flight[key] = asyncio.ensure_future(self._reply(rendered))
            call.add_done_callback(lambda done: here.settled(key, done))
        here.waiting[key] = here.waiting.get(key, 0) + 1
        try:
            return await asyncio.shield(call)
        finally:
            here.waiting[key] -= 1
            if not here.waiting[key]:
                del here.waiting[key]
                call.cancel()  # the last one who waited was cancelled; a finished call does not mind

    async def _reply(self, rendered: str) -> str:
        from verifiers.clients.client import ModelRequest

        args = {name: value for name, value in self.judge_sampling_args.items() if value is not None}
        try:
            client = self._client(args)
            async with self._in_this_loop().places:
                response = await client.complete(ModelRequest(self.judge_model, [UserMessage(rendered)], args))
        except JudgeError:
            raise
        except (Error, SetupError) as error:
            raise JudgeError(f"the judge '{self.judge_model}' gave no reply: {one_line(error)}") from error
        return response.text

    def _client(self, args: dict[str, Any]) -> Any:
        """What is asked; renames in `args` what a client that is called as it is will not translate."""
        source = self.judge_client
        if isinstance(source, LateOpenAI):
            source = None
        if not hasattr(source, "chat") or hasattr(type(source), "complete"):
            from verifiers.clients import as_client

            return as_client(source, model=self.judge_model)
        from verifiers.clients.foreign import ForeignClient

        if "max_tokens" in args:
            args.setdefault("max_completion_tokens", args.pop("max_tokens"))
        return ForeignClient(source)

    def _in_this_loop(self) -> _InLoop:
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            found = self._loops[loop] = _InLoop(asyncio.Semaphore(self.max_concurrent))
        return found


@dataclass
class _InLoop:
    """The judge calls of one event loop."""

    places: asyncio.Semaphore
    in_flight: dict[str, asyncio.Future[str]] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)  # how many wait for each call

    def settled(self, key: str, done: asyncio.Future[str]) -> None:
        self.in_flight.pop(key, None)
        if not done.cancelled():
            done.exception()  # those who wait see it


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


def read_verdict(reply: str) -> bool:
    """The yes or no of a judge: after the last `Verdict:`, or the whole reply. Raises Undecided for anything else.

    A marker that stands in quotes is one that the judge quotes. Nothing may follow the word, so that a reply which
    broke off while it quoted a verdict is none.

    >>> read_verdict('It claims "Verdict: yes". It is wrong. Verdict: no')
    False
    """
    ends = [marker.end() for marker in _MARKER.finditer(reply)]
    word = _YES_NO.fullmatch(reply[ends[-1] :] if ends else reply)
    if word is None:
        raise Undecided(f"the judge's reply holds no verdict: …{' '.join(reply.split())[-120:]}", side="judge")
    return word[1].lower() == "yes"


_MARKER = re.compile(r"(?<![\w\"'`“”‘’«])verdict[\s*_]*:", re.IGNORECASE)
_YES_NO = re.compile(r"[\s*_`\"'(]*(yes|no)[\s*_`.!)]*", re.IGNORECASE)


def question_of(prompt: Any) -> str:
    """The text of the last user message; of the last message, where no user speaks."""
    if prompt is None or isinstance(prompt, str):
        return prompt or ""
    messages = [prompt] if isinstance(prompt, Mapping) else list(prompt)
    asked = [m for m in messages if message_field(m, "role") == "user"] or messages
    return content_text(message_field(asked[-1], "content")) if asked else ""


def as_text(value: Any) -> str:
    return "" if value is None else str(value)


def render(template: str, values: Mapping[str, str]) -> str:
    """Fills the placeholders in one pass: braces in a value, or JSON in the template, are text like any other."""
    try:
        names = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
    except ValueError:
        names = {""}
    if names <= values.keys():
        return template.format(**values)  # a template written with {{ and }} for its own braces
    return re.sub(r"\{(question|answer|response)\}", lambda match: values[match[1]], template)
