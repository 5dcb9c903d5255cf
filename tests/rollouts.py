"""Rollouts for the tests of the viewer: real ones of an environment with tools, and one that is as nasty as can be."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from struct import pack
from typing import Any

import msgspec

import verifiers as vf
from verifiers.clients import ScriptedClient
from verifiers.records import (
    EnvInfo,
    Failure,
    JudgeInfo,
    ModelInfo,
    RolloutRecord,
    Score,
    Timing,
    TokenUsage,
    Turn,
    encode_record,
)

EVIL = (
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    "<style>*{display:none}</style>"
    '</pre></section></details>&lt;b&gt; <a href="javascript:alert(1)">x</a> " onmouseover="alert(1) {{7*7}}'
)


def record(**changes: Any) -> RolloutRecord:
    base: dict[str, Any] = {
        "env": EnvInfo(name="demo"),
        "example_id": 0,
        "rollout_index": 0,
        "model": ModelInfo(name="m"),
        "prompt": [{"role": "user", "content": "What is 2 + 2?"}],
        "messages": [{"role": "assistant", "content": "It is 4."}],
        "turns": [Turn(start=0, end=1, finish_reason="stop")],
        "reward": 1.0,
        "status": "scored",
    }
    return RolloutRecord(**{**base, **changes})


def write_run(folder: Path, records: list[RolloutRecord], **metadata: Any) -> Path:
    """A run's folder; its results."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.jsonl"
    path.write_bytes(b"".join(encode_record(record) + b"\n" for record in records))
    if metadata:
        (folder / "metadata.json").write_bytes(msgspec.json.encode(metadata))
    return path


def calculate(expression: str) -> str:
    """Evaluates.

    Args:
        expression: such as 3 * 4
    """
    a, b = map(int, expression.split("*"))
    return str(a * b)


def correct(completion: Any, answer: str) -> float:
    last = completion[-1]["content"]
    if "two numbers" in last:
        raise vf.Undecided("the reply says two numbers")
    if "boom" in last:
        raise ValueError("a reply that cannot be read")
    return float(answer in last)


def brevity(completion: Any) -> float:
    return 1 - len(completion) / 10


def tool_run(folder: Path, model: str, *, wrong: tuple[int, ...], tries: int = 3) -> Path:
    """Products by a tool, scripted: 8 examples; those of `wrong` go wrong in every try but the last."""
    asked: dict[str, int] = {}

    def reply(request: Any) -> Any:
        question = next(m["content"] for m in request.messages if m["role"] == "user")
        number, a, b = map(int, re.findall(r"\d+", question))
        if request.messages[-1]["role"] == "user":
            call = {"name": "calculate", "arguments": json.dumps({"expression": f"{a} * {b}"})}
            calls = [{"id": "c1", "type": "function", "function": call}]
            return {"content": None, "reasoning_content": "I multiply.", "tool_calls": calls}
        attempt = asked[question] = asked.get(question, 0) + 1
        if number == 6 and attempt == 1:
            return "boom"
        if number == 7 and attempt == 1:
            return "These are two numbers."
        if number == 5 and attempt == 1:
            raise vf.ModelError("the server went away")
        return f"The answer is {a * b + (number in wrong and attempt < tries)}."

    rows = [
        {"question": f"Task {n}: what is {n + 11} * {n + 23}?", "answer": str((n + 11) * (n + 23))} for n in range(8)
    ]
    env = vf.ToolEnv(
        dataset=rows,
        tools=[calculate],
        system_prompt="Use the tool. " * 80,
        rubric=vf.Rubric([correct, brevity], weights=[1.0, 0.0]),
    )
    env.evaluate_sync(
        ScriptedClient(reply), model=model, rollouts_per_example=tries, max_concurrent=1, save_results=True,
        results_path=str(folder),
    )  # fmt: skip
    return folder / "results.jsonl"


def png() -> str:
    """A small picture as a URL."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return pack(">I", len(data)) + kind + data + pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(c for x in range(24) for c in (x * 10, y * 10, 120)) for y in range(24))
    parts = (
        chunk(b"IHDR", pack(">IIBBBBB", 24, 24, 8, 2, 0, 0, 0)),
        chunk(b"IDAT", zlib.compress(rows)),
        chunk(b"IEND", b""),
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()


def nasty(*, half: str = "\ud800", **changes: Any) -> RolloutRecord:
    """Every text in it is markup; control characters, overrides of direction, halves of characters, huge messages.

    JSON cannot hold the `half` of a character: one that is saved has none.
    """
    odd = f"\x1b[31mred\x1b[0m \u202egnp.exe\u202c zero\u200bwidth \x00\x07 {half} end"
    parts = [
        {"type": "text", "text": f"What is in the picture? {odd}"},
        {"type": "image_url", "image_url": {"url": png()}},
        {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/track.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,PHN2Zz4="}},
        {"type": "image_url", "image_url": {"url": 'data:image/png;base64,AAAA" onerror="alert(1)'}},
        {"type": "input_audio", "input_audio": {"data": "AAAA" * 100, "format": "wav"}},
        EVIL,
    ]
    call = {"id": "1", "type": "function", "function": {"name": EVIL, "arguments": "[1, 2"}}
    messages = [
        {
            "role": "assistant",
            "content": f"<think>{EVIL}</think>\nשלום, مرحبا. Z{chr(0x335) * 300}",
            "tool_calls": [call],
        },
        {"role": "tool", "tool_call_id": "1", "content": EVIL},
        {"role": "weird<role>", "content": None, "name": EVIL},
        {"role": "assistant", "content": "START " + "long " * 30_000 + "THE END", "reasoning_content": EVIL},
    ]
    sub = Turn(
        start=0, end=0, actor=EVIL, model_s=0.5, prompt=[{"role": "user", "content": EVIL}],
        completion=[{"role": "assistant", "content": EVIL}],
    )  # fmt: skip
    judge = JudgeInfo(model=EVIL, prompt_hash="abcd", response=EVIL, reply=EVIL)
    made: dict[str, Any] = {
        "env": EnvInfo(name=EVIL, owner=EVIL),
        "model": ModelInfo(name=EVIL, served_as=EVIL),
        "prompt": [{"role": "system", "content": EVIL}, {"role": "user", "content": parts}],
        "messages": messages,
        "turns": [Turn(start=0, end=1, model_s=1.2), Turn(start=3, end=4, finish_reason="length"), sub],
        "reward": None,
        "status": "fault",
        "scores": [
            Score(name=EVIL, weight=1, value=None, status="fault", reason=EVIL, side="judge", judge=judge),
            Score(name="length", weight=0, value=12345.678),
        ],
        "errors": [Failure(side="sandbox", type=EVIL, message=EVIL)],
        "stop_condition": EVIL,
        "timing": Timing(started=EVIL, total_s=20.5, queue_s=2, model_s=13.7, tool_s=1.5, sandbox_s=2.2, score_s=0.9),
        "usage": TokenUsage(prompt=1200, completion=30_000, reasoning=20_000, cost=0.0123),
        "answer": EVIL,
        "info": {EVIL: [EVIL]},
        "task": EVIL,
        "sampling": {EVIL: EVIL},
        "state_columns": {EVIL: EVIL},
        "is_truncated": True,
    }
    return record(**{**made, **changes})
