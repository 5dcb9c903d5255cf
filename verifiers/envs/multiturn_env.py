"""`MultiTurnEnv`: the rollout loop.

    init_state → setup_state → [ stop? → environment answers → stop? → model answers ] … → completion → clean-up

The environment answers lazily, at the start of the next turn: after the last allowed turn it is not asked any more.
Stop conditions are asked again after it answered, so that a game which its answer ended costs no further model call.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import cached_property
from typing import Any

from verifiers.attempt import Attempt
from verifiers.calls import AuthorCall
from verifiers.compat import shapes
from verifiers.decorators import marked, stop
from verifiers.envs.environment import Environment
from verifiers.errors import EnvironmentFault, Error, ModelTimeoutError, OverlongPromptError, one_line
from verifiers.records import TokenTrace
from verifiers.rubrics import Rubric
from verifiers.types import Message, Response, RolloutInput, SamplingArgs, State, TrajectoryStep, as_messages

logger = logging.getLogger("verifiers")

CLEANUP_LIMIT_S = 60.0  # a rollout that was cancelled waits this long for its author's clean-up


class MultiTurnEnv(Environment):
    """Subclass it and say what the environment answers.

        class Echo(vf.MultiTurnEnv):
            async def env_response(self, messages, state, **kwargs):
                return [{"role": "user", "content": messages[-1]["content"]}]

    `max_turns` -1 is unlimited; then a stop condition must end the rollout. `max_total_completion_tokens` -1 likewise.
    `timeout_s` limits a rollout's wall-clock time, without what it spends queueing.
    """

    def __init__(
        self,
        max_turns: int = -1,
        max_total_completion_tokens: int = -1,
        timeout_s: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_turns = max_turns
        self.max_total_completion_tokens = max_total_completion_tokens
        self.timeout_s = timeout_s
        self.add_rubric(MultiTurnMonitor())

    # ---- for authors ----

    async def setup_state(self, state: State) -> State | None:
        """Prepares a rollout; called once before its first turn."""
        return state

    async def env_response(self, messages: list[Message], state: State, **kwargs: Any) -> Any:
        """What the environment answers to the conversation so far: one message or several."""
        raise NotImplementedError(f"{type(self).__name__} must define env_response(self, messages, state)")

    async def get_prompt_messages(self, state: State) -> list[Message]:
        """The messages of the next request. By default the conversation so far and the environment's answer."""
        attempt: Attempt = state.attempt
        if attempt.conversation is None:
            attempt.conversation = list(as_messages(state["prompt"]))
            return attempt.conversation
        answered = await self._env_response_call.invoke((list(attempt.conversation), state), {})
        attempt.conversation += shapes.env_messages(answered, state)
        return attempt.conversation

    async def render_completion(self, state: State) -> None:
        """Writes `completion`: all after the prompt, with the environment's last word."""
        attempt: Attempt = state.attempt
        conversation = attempt.conversation or []
        final = as_messages(state["final_env_response"]) if state.get("final_env_response") else []
        completion = conversation[len(attempt.prompt) :] + final
        if self.message_type == "completion":
            state["completion"] = "".join(str(m.get("content") or "") for m in completion)
        else:
            state["completion"] = completion

    async def add_trajectory_step(self, state: State, trajectory_step: TrajectoryStep) -> None:
        state["trajectory"].append(trajectory_step)

    async def add_model_response(self, state: State, prompt_messages: Any, response: Response) -> None:
        """Turns a reply into a trajectory step."""
        attempt: Attempt = state.attempt
        history = _history(attempt, prompt_messages)
        step = TrajectoryStep.over(
            history,
            completion=[self.kept_message(response.message)],
            response=response,
            reward=None,
            advantage=None,
            is_truncated=response.is_truncated,
            trajectory_id=state["trajectory_id"],
            extras={},
        )
        step.previous = state["trajectory"][-1] if state["trajectory"] else None
        history += step["completion"]
        attempt.conversation = history
        self._count_tokens(state, step, response)
        await self.add_trajectory_step(state, step)

    def kept_message(self, message: Message) -> Message:
        """The reply as it stays in the conversation."""
        return message

    # ---- stop conditions ----

    @stop(priority=100)
    async def has_error(self, state: State, **kwargs: Any) -> bool:
        return state.get("error") is not None

    @stop
    async def prompt_too_long(self, state: State, **kwargs: Any) -> bool:
        return bool(dict.get(state, "prompt_too_long"))

    @stop
    async def max_turns_reached(self, state: State, **kwargs: Any) -> bool:
        return 0 < self.max_turns <= len(state["trajectory"])

    @stop
    async def has_final_env_response(self, state: State, **kwargs: Any) -> bool:
        return state.get("final_env_response") is not None

    @stop
    async def max_total_completion_tokens_reached(self, state: State, **kwargs: Any) -> bool:
        budget = state.attempt.token_budget
        return budget is not None and budget <= 0

    @stop
    async def timeout_reached(self, state: State, **kwargs: Any) -> bool:
        return state.attempt.clock.is_up

    def set_max_total_completion_tokens(self, max_total_completion_tokens: int) -> None:
        self.max_total_completion_tokens = max_total_completion_tokens

    async def is_completed(self, state: State, **kwargs: Any) -> bool:
        """Asks the stop conditions, highest priority first; the first true one becomes `stop_condition`."""
        for call in self._stop_calls:
            if await (call.func(state) if call.is_async else call.invoke((state,), {})):
                state["is_completed"] = True
                state["stop_condition"] = call.name
                if call.name in _TRUNCATING:
                    state["is_truncated"] = True
                return True
        return False

    # ---- the loop ----

    async def rollout(
        self, input: RolloutInput, client: Any, model: str, sampling_args: SamplingArgs | None = None
    ) -> State:
        """One rollout, unscored. An error ends it and is kept in `state["error"]`; only a cancel passes through."""
        state = await self.init_state(input, client, model, sampling_args)
        attempt: Attempt = state.attempt
        attempt.limit_time(self.timeout_s)
        attempt.token_budget = self.max_total_completion_tokens if self.max_total_completion_tokens > 0 else None
        try:
            state = await self._set_up(state)
            while not await self._is_over(state):
                await self._take_turn(state)
            await self._render(state)
        finally:
            attempt = state.attempt
            attempt.clock.stop()
            state["timing"]["generation_ms"] = state["timing"]["total_ms"] = 1000 * attempt.clock.total_s
            if self._cleanup_calls:
                await self._clean_up(state)
        return state

    async def _set_up(self, state: State) -> State:
        try:
            returned = await _within(state.attempt.clock.remaining_s, self._setup_call.invoke((state,), {}))
            state = shapes.state_returned(returned, state)
        except Exception as error:
            _record(state, error)
        attempt: Attempt = state.attempt
        attempt.prompt = as_messages(state["prompt"])  # setup_state may have replaced it
        return state

    async def _is_over(self, state: State) -> bool:
        try:
            if self._is_completed_of_old:
                messages = list(state.attempt.conversation or state.attempt.prompt)
                return bool(await self._is_completed_of_old.invoke((messages, state), {}))
            return await self.is_completed(state)
        except Exception as error:
            if state["error"] is not None:  # the stop conditions themselves are broken: don't ask them again
                state["stop_condition"] = "has_error"
                return True
            _record(state, error)
            return False

    async def _take_turn(self, state: State) -> None:
        attempt: Attempt = state.attempt
        try:
            if attempt.conversation is None:
                prompt = await self.get_prompt_messages(state)
            else:
                began = time.perf_counter()
                prompt = await _within(attempt.clock.remaining_s, self.get_prompt_messages(state))
                attempt.clock.tool_s += time.perf_counter() - began
                if await self._is_over(state):
                    return
            response = await self.get_model_response(state, prompt)
            await self.add_model_response(state, prompt, response)
        except OverlongPromptError as error:
            state["prompt_too_long"] = state["is_truncated"] = True
            if not state["trajectory"]:  # nothing of the model to be scored
                _record(state, error)
        except (ModelTimeoutError, TimeoutError) as error:
            if not attempt.clock.is_up or not state["trajectory"]:
                _record(state, error)
        except Exception as error:
            _record(state, error)

    async def _render(self, state: State) -> None:
        try:
            await self.render_completion(state)
        except Exception as error:
            _record(state, error)

    async def _clean_up(self, state: State) -> None:
        """Author's clean-up, each handler once; a cancel waits for it, but not for ever."""
        task = asyncio.ensure_future(self._run_cleanup(state))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task], timeout=CLEANUP_LIMIT_S)
            raise

    async def _run_cleanup(self, state: State) -> None:
        for call in self._cleanup_calls:
            try:
                await call.invoke((state,), {})
            except Exception as error:
                logger.warning("clean-up %s failed: %s", call.name, one_line(error))
                if state["error"] is None and isinstance(error, Error):
                    state["error"] = error

    def _count_tokens(self, state: State, step: TrajectoryStep, response: Response) -> None:
        attempt: Attempt = state.attempt
        if response.usage is not None:
            _add_usage(state, response.usage)
        trace = response.tokens
        if trace is not None and trace.completion_buffer:
            trace = _clipped(trace, self.max_seq_len, step)
            whole = trace.prompt_buffer + trace.completion_buffer
            response.tokens = trace.after(attempt.seen)
            attempt.seen = whole
            self._note_length(state, len(whole) // 4)
        elif response.usage is not None:
            get = response.usage.get
            self._note_length(state, (get("prompt_tokens") or 0) + (get("completion_tokens") or 0))
        if attempt.token_budget is not None:
            used = response.usage.get("completion_tokens") if response.usage is not None else None
            attempt.token_budget -= used if used is not None else len(trace.completion_buffer) // 4 if trace else 0

    def _note_length(self, state: State, tokens: int) -> None:
        if self.max_seq_len is not None and tokens >= self.max_seq_len:
            state["prompt_too_long"] = state["is_truncated"] = True

    # ---- what is found out once ----

    @cached_property
    def _stop_calls(self) -> list[AuthorCall]:
        return [AuthorCall(method) for method in marked(self, "stop")]

    @cached_property
    def _cleanup_calls(self) -> list[AuthorCall]:
        return [AuthorCall(method) for method in marked(self, "cleanup")]

    @cached_property
    def _setup_call(self) -> AuthorCall:
        return AuthorCall(self.setup_state)

    @cached_property
    def _env_response_call(self) -> AuthorCall:
        return AuthorCall(self.env_response)

    @cached_property
    def _is_completed_of_old(self) -> AuthorCall | None:
        """An override in the style before 0.1.8, if there is one."""
        is_old = type(self).is_completed is not MultiTurnEnv.is_completed and shapes.wants_messages(self.is_completed)
        return AuthorCall(self.is_completed) if is_old else None


class MultiTurnMonitor(Rubric):
    """Adds the metric `num_turns`."""

    def __init__(self) -> None:
        super().__init__(funcs=[num_turns], weights=[0.0])


def num_turns(state: State) -> float:
    return float(len(state["trajectory"]))


_TRUNCATING = frozenset({"prompt_too_long", "max_total_completion_tokens_reached", "timeout_reached"})


async def _within(limit_s: float | None, work: Any) -> Any:
    """Awaits author code, at most until the rollout's time is up. Raises TimeoutError."""
    if limit_s is None:
        return await work
    async with asyncio.timeout(limit_s):
        return await work


def _record(state: State, error: Exception) -> None:
    """Keeps the error that ends the rollout; what author code raised of its own is told as the environment's fault."""
    if state["error"] is not None:
        return
    if not isinstance(error, Error):
        fault = EnvironmentFault(one_line(error))
        fault.__cause__ = error
        logger.debug("the environment raised", exc_info=error)
        error = fault
    state["error"] = error


def _history(attempt: Attempt, prompt: Any) -> list[Message]:
    """The list that the next step's prompt is a prefix of.

    Usually the conversation itself. A `get_prompt_messages` of the author's that rewrote the context starts a new one.
    """
    conversation = attempt.conversation
    if prompt is conversation and conversation is not None:
        return conversation
    messages = as_messages(prompt)
    if conversation is not None and _begins_with(messages, conversation):
        conversation += messages[len(conversation) :]
        return conversation
    return list(messages)


def _begins_with(messages: list[Message], start: list[Message]) -> bool:
    return len(messages) >= len(start) and all(a is b for a, b in zip(start, messages, strict=False))


def _clipped(trace: TokenTrace, max_seq_len: int | None, step: TrajectoryStep) -> TokenTrace:
    """The trace cut to `max_seq_len` tokens in all, marking the step as truncated."""
    prompt, completion = len(trace.prompt_buffer) // 4, len(trace.completion_buffer) // 4
    if max_seq_len is None or prompt + completion <= max_seq_len:
        return trace
    step["is_truncated"] = True
    room = max(0, max_seq_len - prompt) * 4
    return TokenTrace(
        trace.prefix_length, trace.prompt_buffer[: max_seq_len * 4], trace.completion_buffer[:room],
        trace.logprob_buffer[:room],
    )  # fmt: skip


def _add_usage(state: State, usage: Any) -> None:
    total = state["usage"]
    if total is None:
        total = state["usage"] = {"input_tokens": 0, "output_tokens": 0, "reasoning_tokens": None}
    total["input_tokens"] += usage.get("prompt_tokens") or 0
    total["output_tokens"] += usage.get("completion_tokens") or 0
    reasoning = usage.get("reasoning_tokens")
    if reasoning is not None:
        total["reasoning_tokens"] = (total["reasoning_tokens"] or 0) + reasoning
