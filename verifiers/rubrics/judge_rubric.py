"""`JudgeRubric`: a rubric whose reward functions may ask another model."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from verifiers.errors import (
    AuthenticationError,
    JudgeError,
    ModelNotFoundError,
    ModelRequestError,
    RewardFault,
    Undecided,
)
from verifiers.parsers import Parser
from verifiers.records import JudgeInfo, content_hash
from verifiers.rubrics.graded import Graded, judge_was_asked
from verifiers.rubrics.judge_cache import VerdictCache
from verifiers.rubrics.judge_canaries import CANARIES, CANARY_EVERY, Canary, CanaryWatch
from verifiers.rubrics.judge_client import JudgeClient, JudgeReply, LateOpenAI
from verifiers.rubrics.judge_guard import BudgetUsedUp, JudgeGuard
from verifiers.rubrics.judge_prompt import (
    DEFAULT_JUDGE_PROMPT,
    MAX_QUESTION_CHARS,
    MAX_RESPONSE_CHARS,
    READY_PROMPTS,
    as_material,
    as_text,
    question_of,
    render,
)
from verifiers.rubrics.judge_verdict import VERDICT_FORMAT, VERDICT_IN_JSON, is_no_answer, no_verdict, read_verdict
from verifiers.rubrics.rubric import Rubric
from verifiers.types import State

logger = logging.getLogger("verifiers")

MAX_CONCURRENT = 64
KEPT_CHARS = 1_000  # of a response and of the reply to it, in the record

# What `judge` hears while a verdict is looked for, with how it ended: none is read from a reply that was cut off, so
# `judge` asks anew then, instead of repeating what it was told earlier in the rollout.
_heard: ContextVar[list[JudgeReply] | None] = ContextVar("heard_judges", default=None)


class JudgeRubric(Rubric):
    """Offers `judge` to its reward functions: `await judge(prompt, completion, answer, state)` is the judge's reply.

    `judge_prompt` may hold `{question}`, `{answer}` and `{response}`. `judge_client` is an `AsyncOpenAI` or `OpenAI`,
    called as it is; a client of ours; a `ClientConfig`, an `Endpoint` or a URL; without one, what `OPENAI_BASE_URL` and
    `OPENAI_API_KEY` say when it is first used. A judge that fails is a fault of the judge, never a 0.0.

    >>> import asyncio
    >>> from verifiers.clients import ScriptedClient
    >>> rubric = JudgeRubric(judge_client=ScriptedClient("yes"), judge_prompt="Is {response} the same as {answer}?")
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
        judge_max_calls: int | None = None,
        judge_max_tokens: int | None = None,
        verdict_cache: str | Path | bool | None = None,
        structured_output: bool = False,
        canaries: Sequence[Canary] | None = None,
        canary_every: int = CANARY_EVERY,
        neutralise: bool | None = None,
        audit_rate: float = 1.0,
        **attributes: Any,
    ) -> None:
        """`parallelize_scoring` is accepted and has no effect; docs/judging.md says what the others do.

        `canaries` and `neutralise`: `None` is ours for a prompt of ours, none for another. `verdict_cache`: a file, or
        `True` for one in the user's cache folder.
        """
        super().__init__(parser=parser, **attributes)
        self.parallelize_scoring = parallelize_scoring
        self.judge_client = judge_client if judge_client is not None else LateOpenAI()
        self.judge_model = judge_model
        self.judge_prompt = judge_prompt
        self.judge_sampling_args = dict(judge_sampling_args or {})
        self.max_concurrent = max_concurrent
        self.structured_output = structured_output
        self.audit_rate = audit_rate
        self.judge_guard = JudgeGuard(max_calls=judge_max_calls, max_tokens=judge_max_tokens)
        self.verdict_cache = VerdictCache(verdict_cache)
        self.neutralise = judge_prompt in READY_PROMPTS if neutralise is None else neutralise
        # a judge that an author replaced may ask anything: neither canaries nor remembered verdicts are about it
        self._is_own_judge = type(self).judge is JudgeRubric.judge
        if canaries is None:
            canaries = CANARIES if judge_prompt in READY_PROMPTS and self._is_own_judge else ()
        self.judge_watch = CanaryWatch(canaries, canary_every)
        self._judge_calls = JudgeClient(self.judge_guard, max_concurrent)
        self._refuses_format = False
        self.class_objects.update(
            judge=self.judge,
            judge_client=self.judge_client,
            judge_model=self.judge_model,
            judge_prompt=self.judge_prompt,
            judge_sampling_args=self.judge_sampling_args,
        )

    async def judge(self, prompt: Any, completion: Any, answer: Any, state: State | None = None, **kwargs: Any) -> str:
        """The judge's reply about one response; the same question within a rollout is asked once.

        The question is the text of the last user message, the response what the parser finds. Raises JudgeError, and
        Undecided when the budget is used up.
        """
        values = self._judge_values(question_of(prompt), as_text(answer), as_text(self.parser.parse_answer(completion)))
        rendered = render(self.judge_prompt, values)
        heard = _heard.get()
        replies = state.get("judge_response") if state is not None else None
        if heard is None and isinstance(replies, dict) and rendered in replies:
            text = replies[rendered]
        else:
            reply = await self._ask_judge(rendered)
            text = reply.text
            if heard is not None:
                heard.append(reply)
            if state is not None:
                if not isinstance(state.get("judge_response"), dict):
                    state["judge_response"] = {}
                state["judge_response"][rendered] = text
        self._note_judge(values, text)
        return text

    async def verdict(self, prompt: Any, completion: Any, answer: Any, state: State | None = None) -> float:
        """A ready reward function: 1.0 for yes, 0.0 for no (`read_verdict`), and 0.0 unasked where there is no answer.

        Raises Undecided when the judge gives no verdict, asked twice; JudgeError when it fails or is stopped.
        """
        gold, response = as_text(answer), as_text(self.parser.parse_answer(completion))
        if is_no_answer(response, gold):
            return Graded(0.0, "no answer for a judge to look at")
        if self.judge_prompt in READY_PROMPTS and not gold.strip():
            raise RewardFault("the row has no reference answer for the judge to compare with")
        self.judge_watch.refuse_if_stopped()
        values = self._judge_values(question_of(prompt), gold, response)
        key = self._verdict_key(values) if self._is_own_judge else None
        known = self.verdict_cache.get(key) if key is not None else None
        if known is not None:
            self._note_judge(values, None)
            return float(known)
        try:
            await self.judge_watch.pass_one(self._ask_canary)
        except JudgeError:
            if self.judge_watch.stopped is not None:
                self.verdict_cache.forget(self.judge_watch.take_unconfirmed())
            raise
        is_right = await self._decide(lambda: self._hear_judge(prompt, completion, answer, state))
        if key is not None:
            self.verdict_cache.remember(key, is_right)
            self.judge_watch.confirm_later(key)
        return float(is_right)

    async def _decide(self, ask: Callable[[], Awaitable[JudgeReply]]) -> bool:
        """The verdict of the first reply that holds one; a second one is asked for once."""
        for is_last in (False, True):
            reply = await ask()
            try:
                if reply.refusal:
                    raise no_verdict(reply.refusal, "is a refusal")
                return read_verdict(reply.text, reply.finish_reason)
            except Undecided:
                if is_last:
                    raise
        raise AssertionError("the loop returns or raises")

    async def _hear_judge(self, prompt: Any, completion: Any, answer: Any, state: State | None) -> JudgeReply:
        """What `judge` says, which a subclass may have replaced."""
        heard: list[JudgeReply] = []
        token = _heard.set(heard)
        try:
            text = await self.judge(prompt, completion, answer, state)
        finally:
            _heard.reset(token)
        return heard[-1] if heard and heard[-1].text == text else JudgeReply(text)

    async def _ask_canary(self, canary: Canary) -> bool | None:
        rendered = render(self.judge_prompt, self._judge_values(canary.question, canary.answer, canary.response))
        try:
            return await self._decide(lambda: self._ask_judge(rendered))
        except BudgetUsedUp:
            raise
        except Undecided:
            return None

    async def _ask_judge(self, rendered: str) -> JudgeReply:
        sampling = self.judge_sampling_args
        if self.structured_output and not self._refuses_format:
            sampling = {**sampling, "response_format": VERDICT_FORMAT}
            rendered_for_json = f"{rendered}\n\n{VERDICT_IN_JSON}"
            try:
                return await self._judge_calls.ask(self.judge_client, self.judge_model, sampling, rendered_for_json)
            except JudgeError as error:
                if not _is_about_the_format(error.__cause__):
                    raise
                self._refuses_format = True
                logger.warning("the judge's server refuses a JSON schema; verdicts are read from text: %s", error)
        return await self._judge_calls.ask(self.judge_client, self.judge_model, self.judge_sampling_args, rendered)

    def _judge_values(self, question: str, gold: str, response: str) -> dict[str, str]:
        if self.neutralise:
            question, gold = as_material(question, MAX_QUESTION_CHARS), as_material(gold, MAX_RESPONSE_CHARS)
            response = as_material(response, MAX_RESPONSE_CHARS)
        return {"question": question, "answer": gold, "response": response}

    def _verdict_key(self, values: Mapping[str, str]) -> str:
        sampling = [self.judge_sampling_args, self.structured_output]
        parts = values["question"], values["answer"], values["response"]
        return self.verdict_cache.key(self.judge_model, content_hash(self.judge_prompt), sampling, *parts)

    def _note_judge(self, values: Mapping[str, str], reply: str | None) -> None:
        """For the record: who was asked, and, of the share that an audit may see, what."""
        response: str | None = values["response"][-KEPT_CHARS:]
        if self.audit_rate < 1.0 and int(content_hash(dict(values))[:8], 16) >= self.audit_rate * 2**32:
            response = reply = None
        reply = reply if reply is None else reply[-KEPT_CHARS:]
        prompt_hash = content_hash(self.judge_prompt)
        judge_was_asked(JudgeInfo(model=self.judge_model, prompt_hash=prompt_hash, response=response, reply=reply))


def _is_about_the_format(error: BaseException | None) -> bool:
    if not isinstance(error, ModelRequestError) or isinstance(error, (AuthenticationError, ModelNotFoundError)):
        return False
    text = str(error).lower()
    return any(word in text for word in ("response_format", "json_schema", "schema", "structured", "guided", "grammar"))
