"""`SubModelEnv`: a tool environment that asks sub-models on a rollout's behalf, counts them, and bounds them.

What `RLMEnv` is built on; the methods are those that classic environments override.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, TypedDict

from verifiers.attempt import Attempt
from verifiers.calls import maybe_await
from verifiers.envs.interpreter import Interpreter
from verifiers.envs.multiturn_env import add_usage
from verifiers.envs.rlm_monitor import RunningCounts, tokens_of
from verifiers.envs.stateful_tool_env import StatefulToolEnv
from verifiers.errors import (
    AuthenticationError,
    EmptyModelResponseError,
    InvalidModelResponseError,
    ModelNotFoundError,
    ModelTimeoutError,
    ModelUnavailableError,
    SandboxError,
    ToolCallError,
    one_line,
)
from verifiers.parsers import extract_boxed_answer
from verifiers.rubrics.tool_rubric import calls_of
from verifiers.tools import parse_arguments
from verifiers.types import (
    Message,
    Response,
    State,
    SystemMessage,
    Tool,
    ToolCall,
    ToolMessage,
    TrajectoryStep,
    UserMessage,
)

_LAST_TURN = "No more tools can be called. Give your final answer now, inside \\boxed{}."


class RLMCodeExecutionTimeout(ToolCallError):
    """The code took longer than `code_execution_timeout`, and `abort_on_code_timeout` is set."""


class RLMWorkerError(SandboxError):
    """There is no interpreter to be had."""


class RLMSetupError(SandboxError):
    """The interpreter lacks what the environment asks for."""


# What these say of is not the model's doing, and nothing that its code could answer to: the rollout ends.
_ENDING = (
    RLMCodeExecutionTimeout,
    SandboxError,
    AuthenticationError,
    InvalidModelResponseError,
    ModelNotFoundError,
    ModelUnavailableError,
)


def is_ending(error: Exception) -> bool:
    return isinstance(error, _ENDING) and not isinstance(error, EmptyModelResponseError)


class SubLLMTurn(TypedDict):
    prompt_messages: list[Message]
    response: Response
    tool_call_count: int


class SubLLMResult(TypedDict):
    """What one request to a sub-model came to."""

    final_content: str
    turns: list[SubLLMTurn]
    total_prompt_tokens: int
    total_completion_tokens: int
    tool_call_count: int
    num_turns: int
    max_turns_reached: bool


@dataclass(slots=True)
class RunningRollout:
    """What belongs to one rollout and is nobody's business outside."""

    interpreter: Interpreter
    counts: RunningCounts
    places: asyncio.Semaphore  # bounds the requests to sub-models that are in flight
    answer: str = ""  # the last one that the interpreter said, final or not
    requests: int = 0


class SubModelEnv(StatefulToolEnv):
    """Asks models other than the one that the rollout is of."""

    sub_tools: list[Any]
    sub_tool_map: dict[str, Any]
    sub_tool_defs: list[Tool]
    sub_llm_max_turns: int
    sub_llm_timeout: float
    sub_max_completion_tokens: int | None
    include_sub_llm_in_trajectory: bool
    _rollouts: dict[str, RunningRollout]  # by state["rollout_id"]

    def sub_prompt(self) -> str:
        """The system message of a request to a sub-model."""
        raise NotImplementedError

    def _rollout(self, state: Mapping[str, Any]) -> RunningRollout:
        rollout = self._rollouts.get(state.get("rollout_id") or "")
        if rollout is None:
            raise RLMWorkerError(
                "this rollout has no interpreter: its setup_state must call super().setup_state(state)"
            )
        return rollout

    def _is_ending(self, error: Exception) -> bool:
        return is_ending(error) or isinstance(error, tuple(self.stop_errors))

    async def _root_llm_batch(self, context: dict[str, Any], prompts: list[Any]) -> list[str]:
        """The replies to `prompts`, in order; an error's text in place of one that there is not."""
        if not isinstance(prompts, list) or not all(isinstance(prompt, str) for prompt in prompts):
            raise TypeError("llm_batch takes a list of texts")
        batch = token_hex(4)

        async def ask(prompt: str) -> str:
            try:
                reply = await self._run_sub_llm_request(
                    state_ref=context["state"],
                    client=context["client"],
                    sub_model=context["sub_model"],
                    messages=[UserMessage(prompt)],
                    batch_id=batch,
                    request_id=token_hex(4),
                    parent_turn=context["parent_turn"],
                )
                return reply["choices"][0]["message"]["content"]
            except Exception as error:
                if self._is_ending(error):
                    raise
                return f"Error: no reply of the sub-model: {one_line(error)}"

        tasks = [asyncio.ensure_future(ask(prompt)) for prompt in prompts]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _run_sub_llm_request(
        self,
        *,
        state_ref: State,
        client: Any,
        sub_model: str,
        messages: list[Message],
        batch_id: str,
        request_id: str,
        parent_turn: int,
    ) -> dict[str, Any]:
        """One request to a sub-model with all its turns, counted and, if asked for, kept in the trajectory."""
        budget, used = self.sub_max_completion_tokens, state_ref.get("sub_llm_completion_tokens", 0)
        if budget is not None and used >= budget:
            text = f"Error: the sub-models' {budget:,} tokens are used up. Finish with what you know."
            return {"choices": [{"message": {"content": text}}]}
        counts = self._rollout(state_ref).counts
        asked = [SystemMessage(self.sub_prompt()), *messages]
        result = await self._run_sub_llm(state_ref, client, sub_model, asked)
        for index, turn in enumerate(result["turns"]):
            response = turn["response"]
            step = TrajectoryStep.over(
                list(turn["prompt_messages"]),
                completion=[response.message],
                response=response,
                reward=None,
                advantage=None,
                is_truncated=response.is_truncated,
                trajectory_id=f"{batch_id}_{request_id}",
                extras={
                    "actor": "sub_llm",
                    "is_sub_llm_call": True,
                    "parent_turn": parent_turn,
                    "batch_id": batch_id,
                    "request_id": request_id,
                    "sub_turn_index": index,
                    "total_sub_turns": len(result["turns"]),
                    "timestamp": time.time(),
                    "tool_call_count": turn["tool_call_count"],
                },
            )
            if response.usage is not None:
                add_usage(state_ref, response.usage)
            if self.include_sub_llm_in_trajectory:
                await self.add_trajectory_step(state_ref, step)
            else:
                counts.step(step)
        counts.request(result["max_turns_reached"])
        return {"choices": [{"message": {"content": extract_boxed_answer(result["final_content"])}}]}

    async def _run_sub_llm(self, state: State, client: Any, model: str, messages: list[Message]) -> SubLLMResult:
        """Asks until the sub-model answers without a call of a tool; after its turns, once more without tools."""
        history, turns = list(messages), list[SubLLMTurn]()
        for turn in range(self.sub_llm_max_turns if self.sub_tools else 1):
            if turn and self._is_over_budget(state, turns):
                break
            response = await self._call_sub_llm_api(state, client, model, history[:], self.sub_tool_defs or None)
            if response is None:
                return self._make_timeout_result(turns, *_spent(turns), len(turns))
            reply = self.kept_message(response.message)
            calls = calls_of([reply]) if self.sub_tools else []
            turns.append(SubLLMTurn(prompt_messages=history[:], response=response, tool_call_count=len(calls)))
            if not calls:
                return _result(turns, response.text, is_used_up=False)
            history.append(reply)
            history += [await self._answered(call, raw) for call, raw in _as_written(calls, response)]
        history.append(UserMessage(_LAST_TURN))
        response = await self._call_sub_llm_api(state, client, model, history[:])
        if response is None:
            return self._make_timeout_result(turns, *_spent(turns), len(turns))
        turns.append(SubLLMTurn(prompt_messages=history[:], response=response, tool_call_count=0))
        return _result(turns, response.text, is_used_up=True)

    def _is_over_budget(self, state: State, turns: list[SubLLMTurn]) -> bool:
        if self.sub_max_completion_tokens is None:
            return False
        return state.get("sub_llm_completion_tokens", 0) + _spent(turns)[1] >= self.sub_max_completion_tokens

    async def _answered(self, call: ToolCall, written: Any) -> Message:
        try:
            arguments = parse_arguments(written)
        except Exception as error:
            return ToolMessage(f"Error: {error}", call["id"])
        return await self._call_sub_tool(call.name, arguments, call["id"])

    async def _call_sub_tool(self, tool_name: str, tool_args: dict[str, Any], tool_call_id: str) -> Message:
        """Runs a tool of a sub-model; what it raises is told to it."""
        tool = self.sub_tool_map.get(tool_name)
        if tool is None:
            known = ", ".join(self.sub_tool_map)
            return ToolMessage(f"Error: there is no tool '{tool_name}'; the tools are: {known}", tool_call_id)
        try:
            return ToolMessage(str(await maybe_await(tool, **tool_args)), tool_call_id)
        except Exception as error:
            if self._is_ending(error):
                raise
            return ToolMessage(f"Error: {one_line(error)}", tool_call_id)

    async def _call_sub_llm_api(
        self, state: State, client: Any, model: str, messages: list[Message], tools: Sequence[Any] | None = None
    ) -> Response | None:
        """One model call; `None` when it takes longer than `sub_llm_timeout` seconds of the server's work."""
        rollout = self._rollout(state)
        rollout.requests += 1
        asked = _asked_apart(state, client, model, messages, rollout.requests)
        asked.attempt.limit_time(self.sub_llm_timeout)
        async with rollout.places:
            try:
                return await self.get_model_response(asked, messages, client=client, model=model, tool_defs=tools)
            except ModelTimeoutError:
                return None
            except EmptyModelResponseError as error:
                raise EmptyModelResponseError(f"the sub-model {model} said nothing: {error}") from error

    def _make_timeout_result(
        self,
        turns: list[SubLLMTurn],
        total_prompt_tokens: int,
        total_completion_tokens: int,
        tool_call_count: int,
        num_turns: int,
    ) -> SubLLMResult:
        return SubLLMResult(
            final_content=f"Error: the sub-model took longer than {self.sub_llm_timeout:g} s",
            turns=turns,
            total_prompt_tokens=total_prompt_tokens,
            total_completion_tokens=total_completion_tokens,
            tool_call_count=tool_call_count,
            num_turns=num_turns,
            max_turns_reached=True,
        )


def _asked_apart(state: Mapping[str, Any], client: Any, model: str, messages: list[Message], number: int) -> State:
    """A state for one request that continues no conversation: nothing of the root model's tokens counts for it."""
    args = dict(state.get("sampling_args") or {})
    asked = State(
        client=client,
        model=model,
        sampling_args=args,
        tool_defs=None,
        trajectory=[],
        trajectory_id=str(state.get("trajectory_id") or ""),
        usage=None,
        error=None,
    )
    asked.attempt = Attempt.begin(messages)
    seed = asked.attempt.plan.seed
    # the same prompt asked twice in a batch is meant to get two replies
    asked.seed = None if seed is None else zlib.crc32(f"{seed}:{number}".encode()) & 0x7FFFFFFF
    return asked


def _as_written(calls: list[ToolCall], response: Response) -> list[tuple[ToolCall, Any]]:
    """Each call with its arguments as the model wrote them: the conversation holds them mended."""
    written = calls_of([response.message])
    return [(call, raw.arguments) for call, raw in zip(calls, written, strict=True)]


def _spent(turns: Sequence[SubLLMTurn]) -> tuple[int, int, int]:
    """Tokens of prompts and replies, and tool calls."""
    counted = [tokens_of(turn["response"]) for turn in turns]
    return sum(p for p, _ in counted), sum(c for _, c in counted), sum(turn["tool_call_count"] for turn in turns)


def _result(turns: list[SubLLMTurn], text: str, *, is_used_up: bool) -> SubLLMResult:
    prompt, completion, calls = _spent(turns)
    return SubLLMResult(
        final_content=text,
        turns=turns,
        total_prompt_tokens=prompt,
        total_completion_tokens=completion,
        tool_call_count=calls,
        num_turns=len(turns),
        max_turns_reached=is_used_up,
    )
