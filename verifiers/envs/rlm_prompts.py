"""What `RLMEnv` tells its models: a scaffold before the first user message, a system message to sub-models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from verifiers.types import Message, Tool, UserMessage, as_messages

VERBOSITIES = ("light", "medium", "heavy")
OPENING, CLOSING = "<SCAFFOLDING>", "</SCAFFOLDING>"  # as in classic releases, so that what strips them goes on working

_BASE = {
    "python": (
        "You work with the tool `call_python_repl`. It runs Python code in an interpreter that keeps its variables "
        "from call to call. You see what the code prints and the value of its last line, cut to {length} characters.\n"
        'Write your answer to `answer["content"]`, and set `answer["ready"] = True` as soon as it is final: that ends '
        "the task."
    ),
    "bash": (
        "You work with the tool `call_bash_repl`. It runs commands in a bash that keeps its variables and its folder "
        "from call to call. You see what they print, cut to {length} characters.\n"
        "Put your answer into the variable `ANSWER_CONTENT`, and set `ANSWER_READY=1` as soon as it is final: that "
        "ends the task."
    ),
}
_ASKING = {
    "python": (
        "In the code, `llm_batch([prompt, …])` asks a fresh language model each of the prompts at the same time and "
        "returns the list of its replies; `llm_query(prompt)` asks one."
    ),
    "bash": (
        "`llm_batch 'prompt' 'another'` asks a fresh language model each of the prompts at the same time and prints "
        "the list of its replies as JSON; `llm_batch --lines` takes a prompt a line from its input."
    ),
}
_ADVICE = {
    "light": "",
    "medium": " It sees nothing but its prompt. Ask everything that can be asked at the same time in one batch.",
    "heavy": (
        " It sees nothing but its prompt, so put into it all that it needs: the question, the piece of text, the form "
        "of the reply. Ask everything that can be asked at the same time in one batch. Leave to it what needs reading "
        "and judgement, such as summaries, classifications and searches by meaning; count, sort, filter and join in "
        "code. Cut long data into pieces with some overlap, ask about each, and join the replies."
    ),
}
_SUB = {
    "light": "A program reads your reply: say what is asked for, and no more.",
    "medium": "Do the task with care. A program reads your reply: say what is asked for, and no more.",
    "heavy": (
        "Do the task with care: plan first, check what you find, and say so where it cannot be known from what you "
        "were given. A program reads your reply: say what is asked for, and no more."
    ),
}


class Told(Protocol):
    """What of an `RLMEnv` its models are told."""

    repl_language: Any
    custom_system_prompt: str | None
    root_prompt_verbosity: str
    sub_prompt_verbosity: str
    enable_sub_llms: bool
    root_tool_defs: list[Tool]
    sub_tool_defs: list[Tool]
    sub_llm_max_turns: int
    max_output_length: int
    max_turns_in_context: int | None
    root_max_completion_tokens: int | None
    sub_max_completion_tokens: int | None
    pip_install_packages: str


def scaffold(env: Told, data: str = "") -> str:
    """All that the root model is told besides the task itself. `data`: what it finds in the working folder."""
    language = env.repl_language
    parts = [env.custom_system_prompt or _BASE[language].format(length=f"{env.max_output_length:,}"), data]
    if env.enable_sub_llms:
        parts.append(_ASKING[language] + _ADVICE[env.root_prompt_verbosity])
    parts.append(_tool_texts(env, language))
    if env.enable_sub_llms and env.sub_tool_defs:
        parts.append("The models that `llm_batch` asks have these tools, and use them by themselves:\n")
        parts[-1] += "\n".join(_signature(tool) for tool in env.sub_tool_defs)
    if env.pip_install_packages.strip():
        parts.append(f"Installed packages: {', '.join(env.pip_install_packages.split())}.")
    if env.root_max_completion_tokens is not None:
        parts.append(f"All your replies together may have {env.root_max_completion_tokens:,} tokens.")
    if env.enable_sub_llms and env.sub_max_completion_tokens is not None:
        parts.append(f"All replies to `llm_batch` together may have {env.sub_max_completion_tokens:,} tokens.")
    if env.max_turns_in_context is not None:
        parts.append(f"The task ends after {env.max_turns_in_context} of your turns.")
    parts.append("The file `.messages` holds this conversation, one message as JSON a line.")
    return f"{OPENING}\n" + "\n\n".join(part for part in parts if part) + f"\n{CLOSING}\n\n"


def sub_prompt(env: Told) -> str:
    turns = f" You have {env.sub_llm_max_turns} turns to use your tools." if env.sub_tool_defs else ""
    return _SUB[env.sub_prompt_verbosity] + turns


def with_scaffold(prompt: Any, text: str) -> list[Message]:
    """`prompt` with `text` in front of its first user message, once; a new one if it has none."""
    messages = as_messages(prompt)
    for index, message in enumerate(messages):
        if message.get("role") != "user":
            continue
        content: Any = message.get("content")
        if isinstance(content, list):
            first = content[0].get("text") if content else None
            joined: Any = [{"type": "text", "text": text}, *content]
        else:
            first, joined = content, text + (content or "")
        if not str(first or "").startswith(OPENING):
            messages[index] = message.model_copy(update={"content": joined})
        return messages
    return [*messages, UserMessage(text)]


def _tool_texts(env: Told, language: str) -> str:
    own: Sequence[Tool] = [tool for tool in env.root_tool_defs if tool["name"] != "llm_batch"]
    if not own:
        return ""
    lines = [f"Functions for your code:\n{_signatures(own)}"]
    if language == "bash":
        lines = [
            f"Commands besides the usual ones:\n{_signatures(own)}",
            """Arguments are read as JSON where they are JSON; `name --json '{"key": value}'` gives them by name.""",
        ]
    return "\n".join(lines)


def _signatures(tools: Sequence[Tool]) -> str:
    return "\n".join(map(_signature, tools))


def _signature(tool: Tool) -> str:
    """`- name(a: string, b: integer): what it does`, and a line for each parameter that has a text."""
    properties: dict[str, Any] = (tool.get("parameters") or {}).get("properties") or {}
    named = ", ".join(f"{name}: {schema.get('type', 'any')}" for name, schema in properties.items())
    lines = [f"- `{tool['name']}({named})`: {tool.get('description') or ''}".rstrip(": ")]
    lines += [
        f"  - `{name}`: {schema['description']}" for name, schema in properties.items() if "description" in schema
    ]
    return "\n".join(lines)
