"""Methods that had other parameters in older releases: `rollout` and `get_model_response`, called and overridden."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any

from verifiers.calls import AuthorCall, maybe_await, parameters_of
from verifiers.compat import shapes
from verifiers.types import Response, State

# The state of the rollout whose reply an override of the old kind fetches: the old parameters do not tell.
asked_for: ContextVar[State | None] = ContextVar("asked_for", default=None)

_ROLLOUT = ("client", "model", "prompt", "answer", "task", "info", "sampling_args")
_RESPONSE = ("client", "model", "prompt", "oai_tools", "sampling_args", "message_type")


def is_of_old(method: Any, today: str) -> bool:
    """Whether an override begins with another parameter than `today`: `client`, or the prompt."""
    names = [p.name for p in parameters_of(method) if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return bool(names) and names[0] != today and names[0] in ("client", "prompt")


def of_state(method: Any) -> Any:
    """A `post_rollout` of the author's as one that takes the state: `(messages, state)` before 0.1.8."""
    if not shapes.wants_messages(method):
        return method

    async def called(state: State) -> None:
        await maybe_await(method, list(state.attempt.conversation or state.attempt.prompt), state)

    return called


# ---- rollout ----


async def roll_out(env: Any, row: Any, client: Any, model: str, sampling_args: Any) -> State:
    """A rollout by whichever parameters the environment's method has."""
    if _has_old_rollout(type(env)):
        return await rollout_of(env, row, client, model, sampling_args)
    return await env.rollout(row, client, model, sampling_args)


@lru_cache(256)
def _has_old_rollout(kind: type) -> bool:
    """Of the old kind too: one that hands everything on and is annotated to return a tuple."""
    returns = getattr(kind.rollout, "__annotations__", {}).get("return")
    return is_of_old(partial(kind.rollout, None), "input") or "tuple" in str(returns).lower()


async def rollout_as_of_old(rollout: Any, positional: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, State]:
    """`rollout(client, model, prompt, answer, task, info, sampling_args)`: returns completion and state."""
    given = _arguments_of_rollout(positional, named)
    row = {name: given[name] for name in ("prompt", "answer", "task", "info") if given.get(name) is not None}
    row = {"answer": "", "task": "default", "info": {}, "example_id": given.get("example_id", 0), **row}
    state = await rollout(row, given["client"], given["model"], given.get("sampling_args"))
    return state["completion"], state


def _arguments_of_rollout(positional: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    first, client, model, sampling_args, *more = positional
    if first is None:  # all by name
        return {"client": client, "model": model, "sampling_args": sampling_args, **named}
    if isinstance(sampling_args, Mapping) or sampling_args is None:  # by name; the fourth was the answer
        return {**dict(zip(_ROLLOUT, (first, client, model), strict=False)), "sampling_args": sampling_args, **named}
    return {**dict(zip(_ROLLOUT, (first, client, model, sampling_args, *more), strict=False)), **named}


async def rollout_of(env: Any, row: Any, client: Any, model: str, sampling_args: Any) -> State:
    """A rollout by an author's method of the old kind, as a state of today."""
    state: State = await env.init_state(row, client, model, sampling_args)
    offered = {
        "client": client, "model": model, "prompt": state["prompt"], "answer": state.get("answer", ""),
        "task": state.get("task"), "info": state.get("info") or {}, "sampling_args": state["sampling_args"],
    }  # fmt: skip
    returned = await AuthorCall(env.rollout)(offered)
    if not (isinstance(returned, tuple) and len(returned) == 2):
        return shapes.state_returned(returned, state)
    completion, made = returned
    if isinstance(made, State) and made.attempt is not None:  # that of the framework's own rollout
        made["input"] = {**state["input"], **made["input"], "example_id": state["example_id"]}
        state = made
    else:
        state.update(made)
        state.attempt.clock.stop()
    if env.message_type == "completion" and not isinstance(completion, str):
        completion = "".join(str(m.get("content") or "") for m in shapes.as_messages(completion))
    state["completion"] = completion if isinstance(completion, str) else shapes.as_messages(completion)
    state["is_completed"] = True
    return state


# ---- get_model_response ----


async def response_as_of_old(
    env: Any, respond: Any, given: tuple[Any, ...], message_type: Any, oai_tools: Any
) -> Response:
    """`get_model_response(client, model, prompt, oai_tools, sampling_args, message_type)`.

    `given` are the values of today's parameters, in their order, where the old ones have landed.
    """
    first, second, third, fourth, fifth, sixth = given
    if first is None:  # by name
        client, model, prompt, tools, args = third, fourth, second, oai_tools or fifth, sixth
    elif isinstance(first, (list, str)):  # the prompt came first
        client, model, prompt, tools, args = second, third, first, oai_tools, sixth or fourth
    else:
        client, model, prompt, tools = first, second, third, oai_tools or fourth
        args = sixth if isinstance(sixth, Mapping) else fifth
        message_type = message_type or (sixth if isinstance(sixth, str) else None)
    state = asked_for.get()
    if state is None:
        state = await env.init_state({"prompt": prompt, "example_id": 0}, client, model, args)
    return await respond(state, prompt, client, model, sampling_args=args, message_type=message_type, oai_tools=tools)


async def response_of(env: Any, call: AuthorCall, state: State, prompt: list[Any]) -> Any:
    """A reply by an author's method of the old kind."""
    offered = {
        "client": state["client"],
        "model": state["model"],
        "prompt": shapes.prompt_text(prompt) if env.message_type == "completion" else prompt,
        "oai_tools": state.get("oai_tools"),
        "sampling_args": state["sampling_args"],
        "message_type": env.message_type,
    }
    token = asked_for.set(state)
    try:
        return await call(offered)
    finally:
        asked_for.reset(token)
