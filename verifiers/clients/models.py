"""`list_models`: which models a server offers, for the check before a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verifiers.clients.endpoint import Endpoint
from verifiers.clients.http import HTTPClient
from verifiers.clients.odd_reply import plain_json
from verifiers.clients.refusal import Refusal
from verifiers.clients.retry import Fault, last_word
from verifiers.errors import AuthenticationError

PATH = "/models"


async def list_models(endpoint: Endpoint | HTTPClient | Any, timeout_s: float = 2.0) -> list[str] | None:
    """Names in the server's order, or `None` when it has no list, or one that cannot be read.

    One attempt. Raises ModelUnavailableError or ModelTimeoutError when nobody answers, AuthenticationError for a key
    that is not accepted.
    """
    client = endpoint if isinstance(endpoint, HTTPClient) else HTTPClient(Endpoint.of(endpoint))
    pool = client.pool()
    replica = pool.replicas[0]
    url = str(replica.url(PATH).with_query(None))
    try:
        status, headers, body = await replica.send("GET", PATH, None, timeout_s)
        if status == 200:
            return _names(plain_json(body))
    except Fault as fault:
        if fault.kind == "malformed":
            return None
        raise last_word(fault, url, 1) from None
    finally:
        if client is not endpoint:
            await client.close()
    secrets = replica.endpoint.secrets()
    outcome = Refusal.read(url, status, headers, body, replica.endpoint.key_name, secrets).outcome("", {})
    if isinstance(outcome, AuthenticationError):
        raise outcome
    return None


def _names(reply: Mapping[str, Any]) -> list[str] | None:
    listed = reply.get("data", reply.get("models"))
    if not isinstance(listed, list):
        return None
    named = (m.get("id") or m.get("name") if isinstance(m, Mapping) else m for m in listed)
    return [name for name in named if isinstance(name, str)]
