"""Parser: from a completion to the answer in it."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

logger = logging.getLogger(__name__)

FormatRewardFunc = Callable[[Any], float]

_TEXT_PART_TYPES = frozenset({None, "text", "input_text", "output_text"})


def identity(text: Any) -> Any:
    return text


class Parser:
    """Takes the answer out of the last assistant message, by `extract_fn`.

    Subclasses override `parse` (text to value), `parse_answer` (completion to answer) or
    `get_format_reward_func`. A completion is a text or a list of messages; a message is a mapping
    or an object with `role` and `content`.

    >>> parser = Parser(extract_fn=str.upper)
    >>> parser.parse_answer([{"role": "assistant", "content": "yes"}])
    'YES'
    """

    logger = logging.getLogger("verifiers")  # authors' subclasses write to it
    extract_fn: Callable[[str], Any] = staticmethod(identity)  # of a subclass that does not call this constructor

    def __init__(self, extract_fn: Callable[[str], Any] = identity, **kwargs: Any) -> None:
        self.extract_fn = extract_fn
        # Published environments pass keywords of their own; they become attributes, as they always did.
        for name, value in kwargs.items():
            if hasattr(type(self), name):
                raise TypeError(
                    f"{type(self).__name__}({name}=...) would replace the method or attribute {name!r}; "
                    "override it in a subclass, or use another name"
                )
            logger.debug("%s: unknown keyword %r kept as an attribute", type(self).__name__, name)
            setattr(self, name, value)

    def parse(self, text: str) -> Any:
        """The value in one text."""
        return self.extract_fn(text)

    def parse_answer(self, completion: Any) -> Any:
        """The answer of the last assistant message (of the text, if it is one); None without such a message."""
        texts = self.assistant_texts(completion)
        return self.parse(texts[-1]) if texts else None

    def get_format_reward_func(self) -> FormatRewardFunc:
        """A reward function of `completion`, from 0 to 1. A plain parser asks for no format: always 1."""

        def format_reward_func(completion: Any, **kwargs: Any) -> float:
            return 1.0

        return format_reward_func

    def get_assistant_messages(self, completion: Any) -> list[Any]:
        return messages_with_role(completion, "assistant")

    def get_user_messages(self, completion: Any) -> list[Any]:
        return messages_with_role(completion, "user")

    def get_system_messages(self, completion: Any) -> list[Any]:
        return messages_with_role(completion, "system")

    def get_tool_messages(self, completion: Any) -> list[Any]:
        return messages_with_role(completion, "tool")

    def assistant_texts(self, completion: Any) -> list[str]:
        """The texts the model wrote, in order; a completion that is a text counts as one of them."""
        if isinstance(completion, str):
            return [completion]
        return [content_text(message_field(message, "content")) for message in self.get_assistant_messages(completion)]


def messages_with_role(completion: Any, role: str) -> list[Any]:
    """The messages of one role. None and a text hold no messages; a single message is a list of one."""
    if completion is None or isinstance(completion, str):
        return []
    messages: Iterable[Any] = [completion] if isinstance(completion, Mapping) else completion
    return [message for message in messages if message_field(message, "role") == role]


def message_field(message: Any, name: str) -> Any:
    """`message[name]` of a mapping, `message.name` of an object; None where it is absent."""
    if isinstance(message, Mapping):
        return message.get(name)
    return getattr(message, name, None)


def content_text(content: Any) -> str:
    """The text of a message's content; of a list of parts, the text parts joined by a space."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return " ".join(text for part in content if (text := _part_text(part)) is not None)
    return str(content)


def _part_text(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    if message_field(part, "type") not in _TEXT_PART_TYPES:
        return None
    text = message_field(part, "text")
    return text if isinstance(text, str) else None


def mean_over_texts(score: Callable[[str], float], texts: Sequence[str]) -> float:
    """Mean of a score over the model's texts; 0 when it wrote none."""
    return sum(score(text) for text in texts) / len(texts) if texts else 0.0
