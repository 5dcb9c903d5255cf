"""`MultiTurnCalls`: several requests of one user over simulated services, whose state is compared after each."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import verifiers as vf
from bfcl.worlds import World, world_class

MORE_FUNCTIONS = "There are more functions now. Can you do it with these?"
MAX_STEPS = 20  # replies to one request, as the leaderboard has it


class MultiTurnCalls(vf.MultiTurnEnv):
    """A reply with calls is answered with their results, one without calls ends the request.

    Then the services have to be as they are after the reference calls, and these calls' results have to be among those
    that the model has seen. Where a request is done wrongly the rollout ends, as it can gain nothing any more.
    """

    async def setup_state(self, state: vf.State) -> None:
        info = state["info"]
        state["world"] = World(info["involved_classes"], info["initial_config"], info["category"])
        state["reference"] = World(info["involved_classes"], info["initial_config"], info["category"])
        state["request"], state["steps"], state["right"] = 0, 0, 0
        state["results"] = []
        state["tool_defs"] = _tools(info, 0)

    async def env_response(self, messages: vf.Messages, state: vf.State, **kwargs: Any) -> vf.Messages:
        calls = messages[-1].get("tool_calls") or []
        if calls and state["steps"] < MAX_STEPS:
            state["steps"] += 1
            return [vf.ToolMessage(self._called(call, state), call["id"]) for call in calls]
        return self._next_request(state, too_many=bool(calls))

    def _called(self, call: Mapping[str, Any], state: vf.State) -> str:
        function = call["function"]
        try:
            arguments = json.loads(function["arguments"] or "{}")
            if not isinstance(arguments, dict):
                raise TypeError(f"arguments are an object, not a {type(arguments).__name__}")
            if function["name"] not in {tool["function"]["name"] for tool in _tools(state["info"], state["request"])}:
                raise LookupError(f"there is no function {function['name']}")
        except (ValueError, TypeError, LookupError) as error:
            return f"Error during execution: {error}"
        result = state["world"].call(function["name"], (), arguments)
        state["results"].append(result)
        return result

    def _next_request(self, state: vf.State, *, too_many: bool) -> vf.Messages:
        info, number = state["info"], state["request"]
        wrong = "more than 20 steps" if too_many else why_wrong(state, info["ground_truth"][number])
        if wrong:
            return _last(state, f"request {number + 1}: {wrong}")
        state["right"] += 1
        state["request"], state["steps"] = number + 1, 0
        if number + 1 >= len(info["question"]):
            return _last(state, "")
        state["tool_defs"] = _tools(info, number + 1)
        return [*info["question"][number + 1]] or [vf.UserMessage(MORE_FUNCTIONS)]

    @vf.stop
    async def ends_with_the_last_request(self, state: vf.State) -> bool:
        return state.get("final_env_response") is not None

    @vf.cleanup
    async def forget_worlds(self, state: vf.State) -> None:
        state.pop("world", None)
        state.pop("reference", None)


def why_wrong(state: vf.State, calls: Sequence[str]) -> str | None:
    """What the services or the results lack after a request; `None` where they lack nothing."""
    expected = [state["reference"].call(*read_call(call)) for call in calls]
    if not calls:  # the request could not be met, and what was done instead shows at the next one
        return None
    if not state["steps"]:
        return "nothing was called"
    different = state["world"].differences(state["reference"])
    if different:
        return f"the state differs in {', '.join(different)}"
    missing = Counter(expected) - Counter(state["results"])
    return f"a result was not seen: {next(iter(missing))[:80]}" if missing else None


def read_call(text: str) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Name and arguments of a reference call, which may have arguments by place. Raises DatasetError.

    >>> read_call("sort('a.txt', reverse=True)")
    ('sort', ('a.txt',), {'reverse': True})
    """
    try:
        node = ast.parse(text, mode="eval").body
        if not isinstance(node, ast.Call):
            raise ValueError("no call")
        named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
        return ast.unparse(node.func), tuple(map(ast.literal_eval, node.args)), named
    except (SyntaxError, ValueError) as error:
        raise vf.DatasetError(f"the reference call {text!r:.80} cannot be read: {error}") from None


def requests_right(state: vf.State, info: Mapping[str, Any]) -> float:
    """1.0 when every request was done right."""
    reason = state.get("wrong_because") or "it was not finished"
    return 1.0 if state["right"] == len(info["question"]) else vf.Graded(0.0, reason)


def share_right(state: vf.State, info: Mapping[str, Any]) -> float:
    """Share of the requests before the first that was done wrongly."""
    return state["right"] / len(info["question"])


def multi_turn_row(raw: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Raises DatasetError where requests and reference calls are not equally many."""
    question, answers = raw["question"], raw.get("ground_truth") or []
    if not question or not question[0] or len(question) != len(answers):
        raise vf.DatasetError(f"{raw['source']}, {raw['id']}: {len(question)} requests and {len(answers)} answers")
    info = {key: raw[key] for key in ("id", "category", "question", "initial_config", "involved_classes", "source")}
    info |= {"ground_truth": answers, "tools": list(tools), "missed": raw.get("missed_function") or {}}
    info["excluded"] = raw.get("excluded_function") or []
    for name in raw["involved_classes"]:
        world_class(name)
    return {"prompt": question[0], "info": json.dumps(info, ensure_ascii=False)}


def multi_turn_reference(messages: vf.Messages, row: Mapping[str, Any]) -> Any:
    """The reference calls of a request in one reply, then words."""
    info = json.loads(row["info"]) if isinstance(row["info"], str) else row["info"]
    number = sum(m["role"] == "user" for m in messages) - sum(m["role"] == "user" for m in info["question"][0])
    if messages[-1]["role"] == "tool" or not info["ground_truth"][number]:
        return "Done, as far as it goes."
    calls = []
    for place, text in enumerate(info["ground_truth"][number]):
        name, by_place, named = read_call(text)
        parameters = next(t for t in info["tools"] if t["function"]["name"] == name)["function"]["parameters"]
        arguments = dict(zip(parameters["properties"], by_place, strict=False)) | named
        function = {"name": name, "arguments": json.dumps(arguments)}
        calls.append({"id": f"call_{number}_{place}", "type": "function", "function": function})
    return {"content": None, "tool_calls": calls}


def _tools(info: Mapping[str, Any], request: int) -> list[Any]:
    """What is offered at a request: some functions come only later, some never."""
    later = {name for at, names in info["missed"].items() if int(at) > request for name in names}
    hidden = later | set(info["excluded"])
    return [tool for tool in info["tools"] if tool["function"]["name"] not in hidden]


def _last(state: vf.State, wrong: str) -> vf.Messages:
    state["wrong_because"] = wrong
    state["final_env_response"] = [vf.UserMessage("That is all, thank you." if not wrong else "That is not right.")]
    return state["final_env_response"]
