"""What a server means by a status other than 200: an error for the caller, or a `Fault` worth another attempt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from verifiers import errors
from verifiers.clients.retry import Fault, retry_after_s

BODY_LIMIT = 300  # characters of a server's own words in our message

# One pattern for each way that a server has of saying that prompt and answer do not fit.
_OVERLONG_WORDS = (
    r"exceed_context_size|context_length_exceeded|context_window_exceeded|string_above_max_length",  # codes
    r"max(imum)? (context|model|sequence) (length|len)|max_model_len",  # vLLM, OpenAI, SGLang, Mistral
    r"(exceed\w*|(longer|larger|greater) than) (the )?(model's )?(available |maximum )?(context|sequence)",  # llama.cpp
    r"context (size|window|length) (is |was |has been )?(exceeded|full)",
    r"prompt (is |was )?too long|input (is )?too (long|large)|too many (input |prompt )?tokens",  # Anthropic, Cohere
    r"input token count.{0,40}exceed",  # Gemini
    r"`?inputs`? tokens.{0,40}must be <=",  # TGI
    r"reduce the length of the (messages|prompt|input)",  # Groq, DeepSeek
    r"max_tokens must be at least 1, got -\d",  # older vLLM: what was left for the answer
)
_OVERLONG = re.compile("|".join(_OVERLONG_WORDS), re.IGNORECASE)
_CONTEXT_SIZE = re.compile(r"(?:maximum context length(?: is|:)? ?\(?|max_model_len=)(\d+)", re.IGNORECASE)
_ABOUT_MODEL = re.compile(r"model", re.IGNORECASE)
_RETRIED = (408, 409, 425, 429)
_MAY_BE_OVERLONG = (400, 413, 422, 500)
_TOKEN_LIMITS = ("max_tokens", "max_completion_tokens")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reply that is no answer, with the server's words on one line and secrets struck out."""

    url: str
    status: int
    words: str
    code: str  # the server's own error code and type, in lower case
    key_name: str
    headers: Mapping[str, str]

    @classmethod
    def read(
        cls, url: str, status: int, headers: Mapping[str, str], body: bytes, key_name: str, secrets: Iterable[str]
    ) -> Refusal:
        words, code = _words(body)
        return cls(url, status, strike_out(words, secrets)[:BODY_LIMIT], code, key_name, headers)

    def outcome(self, model: str, body: Mapping[str, Any]) -> Exception:
        """What to raise: `Fault` when it may pass, else the error for the caller, with `status` set on it."""
        error = self._outcome(model, body)
        error.status = self.status  # type: ignore[attr-defined]
        return error

    def _outcome(self, model: str, body: Mapping[str, Any]) -> Exception:
        status, where = self.status, f"{self.url} answered {self.status}"
        if status in _MAY_BE_OVERLONG and (_OVERLONG.search(self.words) or _OVERLONG.search(self.code)):
            return self._overlong(body, where)
        if status == 429 and "insufficient_quota" in self.code:
            return errors.ModelRequestError(f"{where}, the account has no credit left: {self.words}")
        if status in _RETRIED or status >= 500:
            kind = "slow down" if status == 429 else "server"
            return Fault(kind, f"{status} {self.words}", status=status, retry_after_s=retry_after_s(self.headers))
        if status in (401, 403):
            return errors.AuthenticationError(f"{where}, it does not accept the key in {self.key_name}: {self.words}")
        if status == 404:
            if _ABOUT_MODEL.search(self.words) or "model" in self.code:
                return errors.ModelNotFoundError(f"{where}, it has no model '{model}': {self.words}")
            return errors.ModelRequestError(f"{where}: {self.words}. Base URLs usually end in /v1")
        if 300 <= status < 400:
            target = self.headers.get("Location", "nowhere")
            return errors.ModelRequestError(f"{where}, a redirect to {target}. Is that the base URL to use?")
        return errors.ModelRequestError(f"{where}: {self.words}")

    def _overlong(self, body: Mapping[str, Any], where: str) -> Exception:
        """An answer limit that leaves no room for any prompt is a mistake in the settings, not a full context."""
        wanted = next((body[k] for k in _TOKEN_LIMITS if isinstance(body.get(k), int)), 0)
        size = _CONTEXT_SIZE.search(self.words)
        if size and wanted >= int(size[1]):
            return errors.ModelRequestError(
                f"max_tokens={wanted} leaves no room for a prompt in a context of {size[1]} tokens: {self.words}"
            )
        return errors.OverlongPromptError(f"{where}, the context is full: {self.words}")

    def quirk(self, body: Mapping[str, Any], seed_is_ours: bool) -> Quirk | None:
        """A change to the request that the server asks for, when it is one that we make without being told."""
        if self.status not in (400, 422):
            return None
        for known, other in (("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")):
            names_it = re.search(rf"\b{known}\b", self.words) or known in self.code
            if known in body and other not in body and names_it and _UNKNOWN.search(f"{self.words} {self.code}"):
                return Quirk(rename=(known, other))
        if seed_is_ours and "seed" in body and re.search(r"\bseed\b", self.words):
            return Quirk(drop="seed")
        sent = any(_REASONING & m.keys() for m in body.get("messages", ()))
        return Quirk(drop="reasoning_content") if sent and re.search(r"\breasoning(_content)?\b", self.words) else None


_REASONING = {"reasoning_content", "reasoning"}
_UNKNOWN = re.compile(
    r"unsupported|not supported|unknown|unrecognized|unexpected|extra|not permitted|not allowed|instead|invalid param",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Quirk:
    """One thing that a model's server wants to be asked otherwise. Found by its complaint, remembered per model."""

    rename: tuple[str, str] | None = None
    drop: str | None = None

    def contradicts(self, others: Iterable[Quirk]) -> bool:
        """It has been done already, or its opposite has: the server cannot be pleased this way."""
        back = Quirk(rename=(self.rename[1], self.rename[0])) if self.rename else self
        return any(other in (self, back) for other in others)

    def apply(self, body: dict[str, Any]) -> dict[str, Any]:
        """A changed copy."""
        body = dict(body)
        if self.rename and self.rename[0] in body:
            body[self.rename[1]] = body.pop(self.rename[0])
        if self.drop == "reasoning_content":
            messages = body.get("messages", ())
            body["messages"] = [{k: v for k, v in m.items() if k not in _REASONING} for m in messages]
        elif self.drop:
            body.pop(self.drop, None)
        return body


def strike_out(text: str, secrets: Iterable[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def one_line(body: bytes, limit: int = 4 * BODY_LIMIT) -> str:
    """Bytes of unknown kind as one readable line; the tags of a web page are left out."""
    text = body[: 16 * limit].decode("utf-8", "replace")
    if "<" in text and re.search(r"<(html|body|head|!doctype)", text, re.IGNORECASE):
        text = re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", text, flags=re.IGNORECASE | re.DOTALL)
        text = "HTML page: " + text
    return " ".join(text.split())[:limit] or "(empty body)"


def error_of(reply: Mapping[str, Any]) -> tuple[str, str] | None:
    """(message, code and type) of the error object in a JSON reply, in the shapes that servers use."""
    error = reply.get("error")
    if isinstance(error, Mapping):
        message = error.get("message") or error.get("msg") or json.dumps(error)
        marks = [error.get("code"), error.get("type"), error.get("param")]
        metadata = error.get("metadata")
        if isinstance(metadata, Mapping) and isinstance(metadata.get("raw"), str):
            message = f"{message}: {metadata['raw']}"
        return str(message), " ".join(str(m) for m in marks if m is not None).lower()
    if error:
        return str(error), str(reply.get("code") or reply.get("error_type") or "").lower()
    if reply.get("object") == "error" or "detail" in reply:
        detail = reply.get("message") or reply.get("detail")
        text = detail if isinstance(detail, str) else json.dumps(detail)
        return text, f"{reply.get('type') or ''} {reply.get('code') or ''}".lower().strip()
    return None


def _words(body: bytes) -> tuple[str, str]:
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        return one_line(body), ""
    if isinstance(reply, list) and reply:  # Gemini's OpenAI-compatible address
        reply = reply[0]
    found = error_of(reply) if isinstance(reply, Mapping) else None
    if found is None and isinstance(reply, Mapping) and isinstance(reply.get("message"), str):
        found = reply["message"], str(reply.get("code") or "").lower()
    if found is None:
        return one_line(body), ""
    return " ".join(found[0].split()), found[1]
