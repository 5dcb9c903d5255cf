"""`HuggingFaceChat`: the tokenizer and chat template of a model's folder, by transformers (extra `train`)."""

# pyright: reportMissingImports=false
# torch and what goes with it are an extra

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verifiers.errors import ConfigError
from verifiers.rl.render import Messages, RenderError, Tools
from verifiers.types import Tool

TEMPLATES = Path(__file__).with_name("templates")


def load_chat_tokenizer(
    folder: str | Path, *, template: str | Path | None = None, options: Mapping[str, Any] | None = None
) -> HuggingFaceChat:
    """The tokenizer in `folder`, from disk alone.

    `template`: a `.jinja` file, or the name of one of ours ("always_think"); None: the model's own. `options` are
    the template's variables, as `enable_thinking`. Raises ConfigError where there is no tokenizer or no template.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"no tokenizer in {folder}: {error}") from error
    return HuggingFaceChat(tokenizer, None if template is None else read_template(template), options)


def read_template(name: str | Path) -> str:
    """Raises ConfigError naming our templates where there is no such file."""
    path = Path(name)
    if not path.suffix:
        path = TEMPLATES / f"{name}.jinja"
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        ours = ", ".join(sorted(file.stem for file in TEMPLATES.glob("*.jinja")))
        raise ConfigError(f"no chat template {name} ({error.strerror}); a file, or one of: {ours}") from error


class HuggingFaceChat:
    """A `ChatTokenizer` over a fast tokenizer of transformers."""

    def __init__(self, tokenizer: Any, template: str | None = None, options: Mapping[str, Any] | None = None) -> None:
        self._tokenizer = tokenizer
        self._template: str | None = template or tokenizer.chat_template
        if not isinstance(self._template, str):
            raise ConfigError(
                f"{tokenizer.name_or_path or 'the tokenizer'} has no chat template; name a .jinja file, or one of ours"
            )
        self._options = dict(options or {})
        added: dict[int, Any] = tokenizer.added_tokens_decoder
        special = {id for id, token in added.items() if token.special} | set(tokenizer.all_special_ids)
        self.special_tokens: dict[str, int] = {tokenizer.convert_ids_to_tokens(id): id for id in sorted(special)}

    def text(self, messages: Messages, tools: Tools | None = None, *, add_generation_prompt: bool = False) -> str:
        from jinja2 import TemplateError

        try:
            return self._tokenizer.apply_chat_template(
                [_plain_message(message) for message in messages],
                tools=[_plain_tool(tool) for tool in tools] if tools else None,
                chat_template=self._template,
                add_generation_prompt=add_generation_prompt,
                tokenize=False,
                **self._options,
            )
        except (TemplateError, TypeError, KeyError, IndexError) as error:  # the last three: the template's code
            raise RenderError(f"{type(error).__name__}: {error}") from error

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)


def _plain_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """As servers hand a message to a template: text as one string, arguments as a mapping, both names of thinking."""
    plain = {key: value for key, value in message.items() if value is not None}
    content = message.get("content")
    plain["content"] = "".join(map(_text_part, content)) if isinstance(content, list) else content or ""
    thinking = message.get("reasoning_content") or message.get("reasoning")
    if thinking:
        plain["reasoning_content"] = plain["reasoning"] = thinking
    if calls := message.get("tool_calls"):
        plain["tool_calls"] = [_plain_call(call) for call in calls]
    return plain


def _text_part(part: Any) -> str:
    if isinstance(part, Mapping) and isinstance(text := part.get("text"), str):  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return text
    raise RenderError(f"only text can be rendered, not {part!r:.80}")


def _plain_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call.get("function") or {})
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            function["arguments"] = json.loads(arguments or "{}")
        except ValueError:
            pass  # what the model wrote was no JSON; the template prints it as it is
    return {**call, "function": function}


def _plain_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    return tool.wire() if isinstance(tool, Tool) else dict(tool)
