"""Pre-flight: one question to each server, within two seconds, so that hopeless runs end before they start."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from verifiers.clients.endpoint import Endpoint
from verifiers.errors import SetupError
from verifiers.eval.endpoints import ModelChoice
from verifiers.refs import near

CONNECT_TIMEOUT_S = 1.8  # a server that takes no connection in this time counts as down
ANSWER_TIMEOUT_S = 2.0  # its model list may take this long in all; a slower one is only warned about
_LIST_LIMIT_BYTES = 8_000_000


async def check_model(choice: ModelChoice) -> tuple[ModelChoice, list[str]]:
    """`choice` with its model named, and warnings. Nothing is asked for one without a server.

    Raises SetupError when a server is down or refuses the key, or when its model list works and lacks the model.
    """
    if choice.endpoint is None:
        return choice, []
    answers = await asyncio.gather(*(_ask(replica) for replica in choice.replicas))
    warnings = []
    for replica, (names, warning) in zip(choice.replicas, answers, strict=True):
        if warning:
            warnings.append(warning)
        if names and choice.model is None:
            choice = replace(choice, model=_only_model(names, replica))
            warnings.append(f"no -m given: using {choice.model}, the one model of {replica.base_url}")
        elif names and choice.model not in names:
            raise SetupError(unknown_model(choice.model, replica.base_url, names))
    if choice.model is None:
        raise SetupError(f"which model? {choice.base_url} gives no list of its models. Name one by -m")
    return choice, warnings


def _only_model(names: Sequence[str], replica: Endpoint) -> str:
    if len(names) == 1:
        return names[0]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    raise SetupError(f"which model? {replica.base_url} has {', '.join(names[:5])}{more}. Name one by -m")


def unknown_model(model: str | None, url: str, names: Sequence[str]) -> str:
    """The message for a model that a server does not have, with up to five of those that it has."""
    close = near(model or "", names, limit=5)
    if close:
        return f"no model '{model}' at {url}. Near it: {', '.join(close)}"
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"no model '{model}' at {url}. It has: {', '.join(names[:5])}{more}"


def refused_key(replica: Endpoint, status: int) -> str:
    """The message for a 401 or 403: names the variable, never its value."""
    if replica.key() is None:
        wanted = replica.api_key_var or "the variable of its key"
        return f"{replica.base_url} wants a key (HTTP {status}) and none was sent. Set {wanted}, or name another by -k"
    return f"{replica.base_url} refused the key in {replica.key_name} (HTTP {status}). Check it, or name another by -k"


async def _ask(replica: Endpoint) -> tuple[list[str], str | None]:
    """The names of the server's models, empty when unknown, and a warning."""
    import aiohttp

    headers = dict(replica.headers)
    if key := replica.key():
        headers.setdefault("Authorization", f"Bearer {key}")
        if replica.host == "api.anthropic.com":  # its model list is not part of its OpenAI-compatible side
            headers |= {"x-api-key": key, "anthropic-version": "2023-06-01"}
    timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=headers, trust_env=True) as session,
            session.get(f"{replica.base_url}/models", params=dict(replica.query), allow_redirects=False) as response,
        ):
            body = await response.content.read(_LIST_LIMIT_BYTES)
            while chunk := await response.content.read(_LIST_LIMIT_BYTES):
                body += chunk
            status = response.status
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise SetupError(_down(replica.base_url, error)) from None
    except (TimeoutError, aiohttp.ClientError) as error:
        reason = "did not answer in time" if isinstance(error, TimeoutError) else f"broke off ({type(error).__name__})"
        return [], f"the model list of {replica.base_url} {reason}: the model's name is not checked"
    if status == 401 and b"permission" not in body and b"scope" not in body:
        raise SetupError(refused_key(replica, status))
    names = _names(body) if status == 200 else []
    if not names:
        return [], f"{replica.base_url} gives no model list (HTTP {status}): the model's name is not checked"
    return names, None


def _down(url: str, error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        reason = f"no connection within {CONNECT_TIMEOUT_S:g} s"
    else:
        cause = getattr(error, "os_error", None)
        number = getattr(cause, "errno", None)  # a failed look-up of the name has one below 0, and its own text
        said = os.strerror(number) if number and number > 0 else getattr(cause, "strerror", None)
        reason = (said or str(cause or error)).rstrip(".")
    return f"the server at {url} cannot be reached ({reason}). Is it running, and is the address right (-b)?"


def _names(body: bytes) -> list[str]:
    """Model names in the shapes that servers use; empty for anything else."""
    try:
        value: Any = json.loads(body)
    except ValueError:
        return []
    if isinstance(value, dict):
        value = value.get("data") or value.get("models")
    if not isinstance(value, list):
        return []
    found = [entry if isinstance(entry, str) else _name(entry) for entry in value]
    return sorted({name for name in found if name})


def _name(entry: Any) -> str | None:
    if not isinstance(entry, dict):
        return None
    name = entry.get("id") or entry.get("model") or entry.get("name")
    return name if isinstance(name, str) else None
