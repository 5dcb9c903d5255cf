"""`MultiTurnEnv`: the rollout loop.

    init_state → setup_state → [ stop? → environment answers → stop? → model answers ] … → completion → clean-up

The environment answers lazily, at the start of the next turn: after the last allowed turn it is not asked any more.
Stop conditions are asked again after it answered, so that a game which its answer ended costs no further model call.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

from verifiers.attempt import Attempt
from verifiers.calls import AuthorCall, time_limit
from verifiers.clock import Clock
from verifiers.compat import shapes, signatures
from verifiers.compat.late import LateAnswer
from verifiers.decorators import marked, stop
from verifiers.envs.environment import Environment
from verifiers.errors import EnvironmentFault, Error, ModelTimeoutError, OverlongPromptError, one_line
from verifiers.records import TokenTrace
from verifiers.rubrics import Rubric
from verifiers.types import (
    Message,
    MessageType,
    Response,
    RolloutInput,
    SamplingArgs,
    State,
    TrajectoryStep,
    as_messages,
)

logger = logging.getLogger("verifiers")


class MultiTurnEnv(Environment):
    """Subclass it and say what the environment answers.

        class Echo(vf.MultiTurnEnv):
            async def env_response(self, messages, state, **kwargs):
                return [{"role": "user", "content": messages[-1]["content"]}]

    `max_turns` -1 is unlimited; then a stop condition must end the rollout. `max_total_completion_tokens` -1 likewise.
    `timeout_s` limits a rollout's wall-clock time, without what it spends queueing.
    """

    _has_answers = True
    cancelled_cleanup_s = 60.0  # a rollout that was cancelled waits this long for its author's clean-up

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
        _catch_up(attempt, state)
        if attempt.conversation is None:
            attempt.conversation = shapes.prompt_messages(state["prompt"], self.message_type)
            return attempt.conversation
        answered = await self._env_response_call.invoke((self._heard(attempt.conversation), state), {})
        messages = shapes.env_messages(answered, state, self.message_type)
        if state.get("final_env_response") is None:  # else that is the environment's last word, often the same again
            attempt.conversation += messages
        return attempt.conversation

    async def render_completion(self, state: State) -> None:
        """Writes `completion`: all after the prompt, with the environment's last word."""
        attempt: Attempt = state.attempt
        _catch_up(attempt, state)
        conversation = attempt.conversation or []
        final = as_messages(state["final_env_response"]) if state.get("final_env_response") else []
        completion = conversation[attempt.prompt_kept :] + final
        if self.message_type == "completion":
            state["completion"] = "".join(str(m.get("content") or "") for m in completion)
        else:
            state["completion"] = completion

    async def post_rollout(self, state: State) -> None:
        """Called once the completion is there, before the clean-up: the place to read what the clean-up takes away."""

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
        step.previous = attempt.last_step
        attempt.last_step = step
        history += step["completion"]
        attempt.conversation = history
        self._count_tokens(state, step, response)
        attempt.remember(history, response)
        await self.add_trajectory_step(state, step)

    def kept_message(self, message: Message) -> Message:
        """The reply as it stays in the conversation."""
        return message

    # ---- stop conditions ----

    @stop(priority=100)
    async def has_error(self, state: State, **kwargs: Any) -> bool:
        return state.get("error") is not None and not dict.get(state, "prompt_too_long")  # that says it better

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

    def is_completed(self, state: State | Any = None, *of_old: State, **kwargs: Any) -> Any:
        """Asks the stop conditions, highest priority first; the first true one becomes `stop_condition`. To be awaited.

        Overrides of the style before 0.1.8 call it with `(messages, state)`, the oldest without `await`.
        """
        return LateAnswer(self._asks(self._stop_calls, of_old[0] if of_old else state))

    async def _asks(self, conditions: list[AuthorCall], state: State) -> bool:
        for call in conditions:
            if await (call.func(state) if call.is_async else call.invoke((state,), {})):
                state["is_completed"] = True
                state["stop_condition"] = call.name
                if call.name in _TRUNCATING:
                    state["is_truncated"] = True
                return True
        return False

    # ---- the loop ----

    async def rollout(
        self,
        input: RolloutInput | Any = None,
        client: Any = None,
        model: Any = None,
        sampling_args: SamplingArgs | Any = None,
        *of_old: Any,
        **named: Any,
    ) -> Any:
        """One rollout, unscored. An error ends it and is kept in `state["error"]`; only a cancel passes through.

        Called as before 0.1.8, `(client, model, prompt, answer, task, info, sampling_args)`, it returns the completion
        and the state.
        """
        if type(input) is not dict and not isinstance(input, Mapping):
            given = (input, client, model, sampling_args, *of_old)
            return await signatures.rollout_as_of_old(partial(MultiTurnEnv.rollout, self), given, named)
        row: Any = input
        state = await self.init_state(row, client, model, sampling_args)
        attempt: Attempt = state.attempt
        attempt.limit_time(self.timeout_s)
        attempt.token_budget = self.max_total_completion_tokens if self.max_total_completion_tokens > 0 else None
        limit_s: float | None = self.cancelled_cleanup_s  # of the clean-up, unless the rollout ends by itself
        try:
            state = await self._set_up(state)
            is_over = await self._is_over(state)
            while not is_over:
                is_over = await self._take_turn(state) or await self._is_over(state, self._answers_at_once)
            await self._render(state)
            limit_s = None
        finally:
            attempt = state.attempt
            attempt.clock.stop()
            state["timing"]["generation_ms"] = state["timing"]["total_ms"] = 1000 * attempt.clock.total_s
            if self._cleanup_calls:
                await self._clean_up(state, limit_s)
        return state

    async def _set_up(self, state: State) -> State:
        row = state["input"]
        info = row.get("info")
        row_tools = shapes.tools_in(info) if info else None
        try:
            returned = await _within(state.attempt.clock, self._setup_call.invoke((state,), {}), "setup_state")
            state = shapes.state_returned(returned, state)
            attempt: Attempt = state.attempt
            attempt.prompt = shapes.prompt_messages(state["prompt"], self.message_type)  # it may have been replaced
            attempt.prompt_kept = len(attempt.prompt)
            if row.get("info") or dict.__contains__(state, "info"):
                shapes.adopt_info_tools(state, row_tools)
        except Exception as error:
            record_error(state, error)
        return state

    async def _is_over(self, state: State, is_unanswered: bool = False) -> bool:
        """`is_unanswered`: the environment is still to answer the last turn, whether or not there may be another."""
        try:
            if self._own_is_completed is None:
                return await self._asks(self._stop_calls, state)
            if await self._own_is_completed.invoke(self._asked_about(state), {}):
                state["is_completed"] = True
                state["stop_condition"] = state["stop_condition"] or "is_completed"
                return True
            return await self._asks(self._urgent_stop_calls if is_unanswered else self._loop_stop_calls, state)
        except Exception as error:  # the stop conditions themselves are broken: don't ask them again
            record_error(state, error)
            state["is_completed"], state["stop_condition"] = True, "has_error"
            return True

    def _asked_about(self, state: State) -> tuple[Any, ...]:
        """What an overridden `is_completed` takes: before 0.1.8 the messages came first."""
        if not self._is_completed_of_old:
            return (state,)
        return self._heard(state.attempt.conversation or state.attempt.prompt), state

    def _heard(self, conversation: list[Message]) -> Any:
        """The conversation as author code reads it: messages, or a base model's text."""
        return conversation[:] if self.message_type == "chat" else shapes.prompt_text(conversation)

    async def _take_turn(self, state: State) -> bool:
        """One answer of the environment and one of the model; True if the rollout was over in between."""
        attempt: Attempt = state.attempt
        try:
            if attempt.conversation is None:
                prompt = await self.get_prompt_messages(state)
            else:
                began = time.perf_counter()
                prompt = await _within(attempt.clock, self.get_prompt_messages(state), "env_response")
                attempt.clock.tool_s += time.perf_counter() - began
                if await self._is_over(state):
                    return True
            call = self._old_model_call
            asked = (
                self.get_model_response(state, prompt)
                if call is None
                else signatures.response_of(self, call, state, prompt)
            )
            response = await asked
            if type(response) is not Response:
                response = _as_response(response, self.message_type)
            await self.add_model_response(state, prompt, response)
        except OverlongPromptError as error:
            state["prompt_too_long"] = state["is_truncated"] = True
            if not state["trajectory"]:  # nothing of the model to be scored
                record_error(state, error)
        except (ModelTimeoutError, TimeoutError) as error:
            if not attempt.clock.is_up or not state["trajectory"]:
                record_error(state, error)
        except Exception as error:
            record_error(state, error)
        return False

    async def _render(self, state: State) -> None:
        try:
            await self.render_completion(state)
        except Exception as error:
            record_error(state, error)

    async def _clean_up(self, state: State, limit_s: float | None) -> None:
        """Author's clean-up, each handler once; a cancel waits for it, but not for ever."""
        task = asyncio.ensure_future(self._run_cleanup(state))
        try:
            await asyncio.wait([task], timeout=limit_s)
        except asyncio.CancelledError:
            await asyncio.wait([task], timeout=self.cancelled_cleanup_s)
            raise
        finally:
            if not task.done():
                logger.warning("the clean-up of a cancelled rollout took longer than %g s", self.cancelled_cleanup_s)
                task.cancel()

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
            add_usage(state, response.usage)
        trace = response.tokens
        if trace is None or not trace.completion_buffer:
            attempt.seen = b""  # the next turn's tokens continue nothing that is known
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
        calls = [AuthorCall(method) for method in marked(self, "cleanup")]
        if type(self).post_rollout is MultiTurnEnv.post_rollout:
            return calls
        return [AuthorCall(signatures.of_state(self.post_rollout), "post_rollout"), *calls]

    @cached_property
    def _setup_call(self) -> AuthorCall:
        return AuthorCall(self.setup_state)

    @cached_property
    def _old_model_call(self) -> AuthorCall | None:
        """An override of `get_model_response` with the parameters before 0.1.8."""
        method = self.get_model_response
        return AuthorCall(method) if signatures.is_of_old(method, "state") else None

    @cached_property
    def _env_response_call(self) -> AuthorCall:
        return AuthorCall(self.env_response)

    @cached_property
    def _loop_stop_calls(self) -> list[AuthorCall]:
        """Those that hold beside an overridden `is_completed`: else a dead server would be asked for ever."""
        return [call for call in self._stop_calls if hasattr(MultiTurnEnv, call.name)]

    @cached_property
    def _own_is_completed(self) -> AuthorCall | None:
        """An override of the author's, if there is one."""
        return None if type(self).is_completed is MultiTurnEnv.is_completed else AuthorCall(self.is_completed)

    @cached_property
    def _is_completed_of_old(self) -> bool:
        return shapes.wants_messages(self.is_completed)

    @cached_property
    def _answers_at_once(self) -> bool:
        """Before 0.1.8 the environment answered right after the model, the last allowed turn included.

        An `is_completed` of that time may wait for something that the last answer writes.
        """
        return self._has_answers and self._own_is_completed is not None and self._is_completed_of_old

    @cached_property
    def _urgent_stop_calls(self) -> list[AuthorCall]:
        return [call for call in self._loop_stop_calls if call.name != "max_turns_reached"]


class MultiTurnMonitor(Rubric):
    """Adds the metric `num_turns`."""

    def __init__(self) -> None:
        super().__init__(funcs=[num_turns], weights=[0.0])


def num_turns(state: State) -> float:
    return float(len(state["trajectory"]))


_TRUNCATING = frozenset({"prompt_too_long", "max_total_completion_tokens_reached", "timeout_reached"})


async def _within(clock: Clock, work: Any, what: str) -> Any:
    """Awaits author code, at most until the rollout's time is up. Raises TimeoutError."""
    remaining_s = clock.remaining_s
    if remaining_s is None:
        return await work
    async with time_limit(remaining_s, f"{what} (in a rollout of at most {clock.limit_s:g} s)"):
        return await work


def _as_response(reply: Any, message_type: MessageType) -> Response:
    """The reply of a `get_model_response` of the author's that asked somebody else's client."""
    from verifiers.clients.foreign import response_of

    return response_of(reply, message_type)


def record_error(state: State, error: Exception) -> None:
    """Keeps the error that ends the rollout; what author code raised of its own is told as the environment's fault."""
    if state["error"] is not None:
        return
    if not isinstance(error, Error):
        fault = EnvironmentFault(one_line(error))
        fault.__cause__ = error
        logger.debug("the environment raised", exc_info=error)
        error = fault
    state["error"] = error


def _catch_up(attempt: Attempt, state: State) -> None:
    """Takes the conversation from the last step of a loop of the author's that adds the steps itself."""
    if attempt.last_step is None and state["trajectory"]:
        step = state["trajectory"][-1]
        attempt.conversation = [*as_messages(step["prompt"]), *as_messages(step["completion"])]


def _history(attempt: Attempt, prompt: Any) -> list[Message]:
    """The list that the next step's prompt is a prefix of.

    Usually the conversation itself. A `get_prompt_messages` of the author's that rewrote the context starts a new one.
    """
    conversation = attempt.conversation
    if prompt is conversation and conversation is not None:
        if attempt.last_step is None and len(conversation) != len(attempt.prompt):  # the author added to the first one
            attempt.prompt, attempt.prompt_kept = conversation[:], len(conversation)
        return conversation
    messages = list(as_messages(prompt))
    if conversation is None or attempt.last_step is None:  # the first turn: that is the prompt then
        attempt.prompt, attempt.prompt_kept = messages[:], len(messages)
        return messages
    if messages[: len(conversation)] == conversation:
        conversation += messages[len(conversation) :]
        return conversation
    kept = (a == b for a, b in zip(attempt.prompt, messages, strict=False))
    attempt.prompt_kept = sum(itertools.takewhile(bool, kept))
    return messages


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


def add_usage(state: State, usage: Any) -> None:
    """Adds what the server counted for one reply."""
    total = state["usage"]
    if total is None:
        total = state["usage"] = {"input_tokens": 0, "output_tokens": 0, "reasoning_tokens": None}
    total["input_tokens"] += usage.get("prompt_tokens") or 0
    total["output_tokens"] += usage.get("completion_tokens") or 0
    reasoning = usage.get("reasoning_tokens")
    if reasoning is not None:
        total["reasoning_tokens"] = (total["reasoning_tokens"] or 0) + reasoning
