"""What can be said of an environment's rows before anything is played on them."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from verifiers.eval import replies, wording
from verifiers.eval.check import Check
from verifiers.eval.declared import Declared
from verifiers.eval.offline import watched
from verifiers.loading import load_environment
from verifiers.records import content_hash, encode_json

if TYPE_CHECKING:
    from verifiers.envs.environment import Environment

Splits = dict[str, list[dict[str, Any]]]

MOST_ROWS = 1000  # of a split whose form is looked at
LOAD_AGAIN_S = 600.0
NOTHING_AS_TEXT = ("None", "nan")  # what `str` makes of a cell without a value


def rows_of(env: Environment) -> Splits:
    """The first rows of each split that there is."""
    kinds = [kind for kind in ("train", "eval") if env.row_splits.has(kind)]
    return {kind: (env.eval_rows if kind == "eval" else env.train_rows)(MOST_ROWS) for kind in kinds}


def well_formed(splits: Splits) -> Check:
    for kind, rows in splits.items():
        seen: set[int] = set()
        for number, row in enumerate(rows):
            problem = row_problem(row)
            if problem is None and row["example_id"] in seen:
                problem = f"example_id {row['example_id']} comes twice"
            if problem:
                return Check("rows", "failed", f"{kind} row {number}: {problem}")
            seen.add(row["example_id"])
    counts = " and ".join(f"{len(rows)} {kind}" for kind, rows in splits.items())
    return Check("rows", "ok", f"{counts} rows have a prompt and can be written as JSON")


def row_problem(row: dict[str, Any]) -> str | None:
    """What is wrong with a row; `None` when nothing is."""
    prompt = row.get("prompt")
    if not prompt:
        return "it has no prompt"
    if not isinstance(prompt, str):
        roles = [message.get("role") for message in prompt]
        if roles[-1] == "assistant":
            return "its prompt ends with an assistant's message: there is nothing to answer"
        if not any(text.strip() for text in replies.prompt_texts(row)) and not _has_parts(prompt):
            return "its prompt has no text"
    if not isinstance(row.get("example_id"), int):
        return f"its example_id is {row.get('example_id')!r}, not a whole number"
    try:
        encode_json(row)
    except (TypeError, ValueError, NotImplementedError) as error:
        return f"it cannot be written as JSON: {error}"
    return None


def _has_parts(prompt: Iterable[Any]) -> bool:
    return any(isinstance(message.get("content"), list) and message["content"] for message in prompt)


def same_again(splits: Splits, env_id: str, env_args: dict[str, Any], network: bool) -> Check:
    """Loads once more in another process: what hangs on its hash seed or on what ran before shows there."""
    call = json.dumps([env_id, env_args, network, [str(path) for path in sys.path]])
    code = "import json, sys; a = json.loads(sys.argv[1]); sys.path[:] = a[3]\n"
    code += "from verifiers.eval.row_checks import print_digest; print_digest(*a[:3])"
    try:
        done = subprocess.run([sys.executable, "-c", code, call], capture_output=True, text=True, timeout=LOAD_AGAIN_S)
    except subprocess.TimeoutExpired:
        return Check("same rows", "failed", f"a second load took more than {LOAD_AGAIN_S:.0f} s")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return Check("same rows", "failed", f"a second load failed: {wording.cut(last, 300)}")
    again = json.loads(done.stdout.splitlines()[-1])
    for kind, digest in digests(splits).items():
        if again.get(kind) != digest:
            return Check("same rows", "failed", f"two loads with the same arguments gave different {kind} rows")
    return Check("same rows", "ok", "two loads with the same arguments agree")


def digests(splits: Splits) -> dict[str, str]:
    return {kind: content_hash(rows) for kind, rows in splits.items()}


def print_digest(env_id: str, env_args: dict[str, Any], network: bool) -> None:
    """For the second process: a line with a hash of each split's rows."""
    with watched(refuse=not network), contextlib.redirect_stdout(sys.stderr):
        found = digests(rows_of(load_environment(env_id, **env_args)))
    print(json.dumps(found))


def answers_there(splits: Splits) -> Check:
    """Where rows of a task have answers, one without would be matched by an empty reply, or never."""
    count = 0
    for kind, rows in splits.items():
        numbered: dict[Any, list[tuple[int, str]]] = defaultdict(list)
        for number, row in enumerate(rows):
            numbered[row.get("task")].append((number, replies.answer_text(row).strip()))
        for pairs in numbered.values():
            if not any(text for _, text in pairs):
                continue
            count += len(pairs)
            others = [text for _, text in pairs if text not in NOTHING_AS_TEXT]
            are_numbers = bool(others) and all(any(map(str.isdigit, text)) for text in others)
            for number, text in pairs:
                if not text or (text in NOTHING_AS_TEXT and are_numbers):
                    found = f"is the text '{text}', among numbers" if text else "is empty, and others are not"
                    return Check("answers", "failed", f"{kind} row {number}: its answer {found}")
    if not count:
        return Check("answers", "not applicable", "no row has an answer")
    return Check("answers", "ok", "no row lacks what others have")


def answers_hidden(rows: list[dict[str, Any]], tools: list[Any], declared: Declared) -> Check:
    answers = [row for row in rows if len(replies.answer_text(row)) >= replies.SHORTEST_LEAK]
    if not answers:
        return Check("answer hidden", "not applicable", "no row has an answer of three characters or more")
    described = json.dumps(tools)
    found = [
        row
        for row in answers
        if any(replies.stands_in(replies.answer_text(row), text) for text in [*replies.prompt_texts(row), described])
    ]
    if not found:
        return Check("answer hidden", "ok", "no answer stands in its own prompt or in a tool's description")
    where = f"{len(found)} of {len(answers)} answers stand in their own prompts"
    if declared.answer_in_context:
        return Check("answer hidden", "ok", f"{where}, declared: {declared.answer_in_context}")
    first = found[0]
    shown = f"example {first['example_id']}: '{wording.cut(replies.answer_text(first), 60)}'"
    return Check("answer hidden", "failed", f"{where} ({shown}); declare answer_in_context with the reason")
