"""Parsers read an answer out of a completion and say how well its format was kept."""

from verifiers.parsers.boxed import extract_boxed_answer, extract_hash_answer
from verifiers.parsers.maybe_think_parser import MaybeThinkParser
from verifiers.parsers.parser import Parser, content_text, message_field
from verifiers.parsers.think_parser import ThinkParser, is_reasoning_unfinished, strip_reasoning
from verifiers.parsers.xml_parser import XMLParser

__all__ = [
    "MaybeThinkParser",
    "Parser",
    "ThinkParser",
    "XMLParser",
    "content_text",
    "extract_boxed_answer",
    "extract_hash_answer",
    "is_reasoning_unfinished",
    "message_field",
    "strip_reasoning",
]
