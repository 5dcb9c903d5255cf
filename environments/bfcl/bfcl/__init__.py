"""`bfcl`: function calls, checked against the values that each parameter may have, or by the state they lead to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import verifiers as vf
from bfcl.checker import Call, why_wrong
from bfcl.multi_turn import MultiTurnCalls, multi_turn_reference, multi_turn_row, requests_right, share_right
from bfcl.rows import CATEGORIES, as_row, chosen_categories, find_source, raw_rows, tool_name, tools_of
from bfcl.written import NoCalls, in_python, read_calls

TEXT_PROMPT = """\
You are given functions. If they can answer the request, reply with the calls alone, as a list in Python's form with
arguments by name: [first(a=1, b="two"), second(c=[3])]. If none of them can, or the request lacks a value that a call
needs, say so in words and call nothing.

Functions:
{functions}"""


def load_environment(
    categories: str | Sequence[str] = "calls",
    data: str | None = None,
    mode: str = "tools",
    num_train_examples: int = -1,
    num_eval_examples: int = -1,
    seed: int | None = None,
) -> vf.Environment:
    """One request and some functions; the calls are checked, never made. See the README for the arguments."""
    names = chosen_categories(categories)
    source = find_source(data)
    if mode not in ("tools", "text"):
        raise ValueError(
            f"mode={mode!r}: give 'tools' (the server's tool calls) or 'text' (calls written in the reply)"
        )
    for name, value in (("num_train_examples", num_train_examples), ("num_eval_examples", num_eval_examples)):
        if not isinstance(value, int) or isinstance(value, bool) or value == 0 or value < -1:
            raise ValueError(f"{name}={value!r}: give a whole number, 1 or more, or -1 for all there are")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise ValueError(f"seed={seed!r}: give a whole number, or leave it out for the data's own order")

    if CATEGORIES[names[0]].is_multi_turn:
        if mode == "text":
            raise ValueError("mode='text' is for single requests: give 'tools' for multi-turn categories")

        def conversations(count: int) -> list[dict[str, Any]]:
            return [multi_turn_row(raw, tools_of(raw, source)) for raw in raw_rows(source, names, count, seed)]

        return MultiTurnCalls(
            dataset=lambda: conversations(num_train_examples),
            eval_dataset=lambda: conversations(num_eval_examples),
            rubric=vf.Rubric([requests_right, share_right], [1.0, 0.0]),
        )

    def rows(count: int) -> list[dict[str, Any]]:
        return [_with_functions(as_row(raw), mode) for raw in raw_rows(source, names, count, seed)]

    return vf.SingleTurnEnv(
        dataset=lambda: rows(num_train_examples),
        eval_dataset=lambda: rows(num_eval_examples),
        rubric=vf.Rubric([calls_right], [1.0]),
        parser=vf.MaybeThinkParser(),
    )


def calls_right(completion: vf.Messages, info: Mapping[str, Any]) -> float:
    """1.0 when the calls are the asked ones: each function once for each answer, every value an allowed one."""
    try:
        calls = calls_in(completion, info)
    except NoCalls as error:
        return vf.Graded(0.0, str(error))
    said_something = bool(str(vf.MaybeThinkParser().parse_answer(completion) or "").strip())
    reason = why_wrong(calls, info["category"], info["function"], info["ground_truth"], said_something)
    return vf.Graded(0.0, reason) if reason else 1.0


def calls_in(completion: vf.Messages, info: Mapping[str, Any]) -> list[Call]:
    """The calls of the reply. Raises NoCalls when what looks like calls cannot be read."""
    message = next((m for m in reversed(completion) if m["role"] == "assistant"), None)
    if info["mode"] == "text":
        return read_calls(str(vf.MaybeThinkParser().parse_answer(completion) or ""))
    found: list[Call] = []
    for call in (message or {}).get("tool_calls") or ():
        function = call["function"]
        try:
            arguments = json.loads(function["arguments"] or "{}")
        except ValueError as error:
            raise NoCalls(f"the arguments of {function['name']} are no JSON: {error}") from None
        if not isinstance(arguments, dict):
            raise NoCalls(f"the arguments of {function['name']} are a {type(arguments).__name__}, not an object")
        found.append(Call(str(function["name"]), arguments))
    return found


def reference_reply(messages: vf.Messages, row: Mapping[str, Any]) -> Any:
    """The asked calls, each value the first that is allowed; `vf-validate` asks for it."""
    info = json.loads(row["info"]) if isinstance(row["info"], str) else row["info"]
    if CATEGORIES[info["category"]].is_multi_turn:
        return multi_turn_reference(messages, row)
    if CATEGORIES[info["category"]].wants == "none":
        return "None of these functions can do that."
    wanted = info["ground_truth"] or [{info["function"][0]["name"]: {}}]
    needed = {one["name"]: one["parameters"].get("required") or () for one in info["function"]}
    calls = [
        Call(tool_name(name), _first_allowed(allowed, needed.get(name, ())))
        for one in wanted
        for name, allowed in one.items()
    ]
    if info["mode"] == "text":
        return in_python(calls)
    tool_calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
        for n, c in enumerate(calls)
    ]
    return {"content": None, "tool_calls": tool_calls}


def _first_allowed(allowed: Mapping[str, Sequence[Any]], needed: Sequence[str]) -> dict[str, Any]:
    """A parameter that may be left out, which "" marks, is."""
    given = {name: [v for v in values if v != ""] for name, values in allowed.items()}
    return {n: _plain(given[n][0]) for n, values in allowed.items() if given[n] and ("" not in values or n in needed)}


def _plain(value: Any) -> Any:
    """Dicts in answers hold lists of allowed values, whatever is around them."""
    if isinstance(value, Mapping):
        return {k: _plain(v[0] if isinstance(v, list) else v) for k, v in value.items() if v != [""] and v != ""}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _with_functions(row: dict[str, Any], mode: str) -> dict[str, Any]:
    """The functions as tools of the request, or in words in front of it."""
    info, prompt = {**row["info"], "mode": mode}, list(row["prompt"])
    if mode == "tools":
        info["tool_defs"] = row["tools"]
    else:
        functions = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in row["tools"])
        prompt = [{"role": "system", "content": TEXT_PROMPT.replace("{functions}", functions)}, *prompt]
        if len(prompt) > 1 and prompt[1]["role"] == "system":  # the row's own instruction
            own = prompt.pop(1)
            prompt[0] = {"role": "system", "content": f"{prompt[0]['content']}\n\n{own['content']}"}
    return {"prompt": prompt, "info": json.dumps(info, ensure_ascii=False)}  # text: rows have different keys
