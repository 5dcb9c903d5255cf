"""Which language a text is in, by py3langid: nothing is drawn by chance, so the same text has the same language."""

from __future__ import annotations

from functools import cache
from typing import Any

from verifiers.errors import RewardFault

MAX_CHARS = 20_000

# What is told apart. Among all the model's languages, a short English text too often looks like a small one.
_CODES = """
ar bg bn ca cs da de el en es et fa fi fr gu he hi hr hu id it ja kn ko lt lv ml mr ms ne nl no pa pl pt ro ru sk sl sv
sw ta te th tl tr uk ur vi zh
"""
LANGUAGES = frozenset(_CODES.split())
_NO_LANGUAGE = "zxx"  # the model's name for figures, code and the like


def language_of(text: str) -> str | None:
    """The ISO 639-1 code of the language of a text; None where it has too little language in it.

    Raises RewardFault where py3langid is not installed.
    """
    identifier = _identifier()
    code, score = identifier.classify(text[:MAX_CHARS].lower())
    return None if code == _NO_LANGUAGE or score < -1e30 else code


@cache
def _identifier() -> Any:
    try:
        from py3langid import langid  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise RewardFault(
            "py3langid, which tells the language of a reply, is not installed. Try: pip install 'verifiers[language]'"
        ) from None
    identifier = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE)
    identifier.set_languages([*sorted(LANGUAGES), _NO_LANGUAGE])
    return identifier
