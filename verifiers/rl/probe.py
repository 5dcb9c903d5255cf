"""`probe`: what one model server can do, found out by asking it, before anything is trained on what it says.

A server that lacks something is told with the option to start it with, at start-up and not at step 50.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import Any

from verifiers.rl.admin import AdminError, AdminLink
from verifiers.rl.dialects import DialectName, dialect_for, routes_of

FIRST_TOKEN_S = 300.0  # a server's first request compiles, allocates and warms up
COLD, HOT = 0.25, 1.0  # temperatures whose log-probabilities are compared
_NEUTRAL = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "seed": 0}
_QUESTION = "a b c d"


@dataclass(frozen=True, kw_only=True)
class ServerReport:
    """What `probe` found. `None`: it could not be told."""

    url: str
    models: tuple[str, ...] = ()
    max_model_len: int | None = None
    gives_token_ids: bool | None = None  # `return_token_ids`
    has_token_routes: bool | None = None  # token-in/token-out, which tells the version of each token
    processed_logprobs: bool | None = None  # after temperature, as a trainer computes them
    own_defaults: tuple[str, ...] = ()  # sampling that it takes from the model's files when a request leaves it open
    dialect: DialectName | None = None
    can_pause: bool = False
    was_paused: bool = False  # left so by somebody who is gone
    has_extension: bool = False
    engine: str | None = None  # of the weight transfer, where the extension tells
    version: str | None = None
    problems: tuple[str, ...] = field(default=())  # each with what to do about it

    @property
    def can_train(self) -> bool:
        return not self.problems


async def probe(link: AdminLink, model: str, *, dialect: DialectName | None = None) -> ServerReport:
    """Asks a server about itself with a handful of tokens. Raises AdminError when it does not answer.

    `dialect` is what to speak with it, whatever its routes look like.
    """
    await _health(link)
    card, names = await _model_card(link, model)
    problems: list[str] = []
    if card is None:
        problems.append(f"it does not serve '{model}' but {', '.join(names) or 'nothing'}: --served-model-name {model}")
    routes = await routes_of(link)
    admin = await _admin(link, routes, dialect, problems)
    found: dict[str, Any] = {}
    if card is not None:
        if admin["was_paused"]:  # nothing would be answered
            await link.insist("/resume")
        found = await _sampling(link, model, problems)
        found["max_model_len"] = card.get("max_model_len")
    return ServerReport(url=link.url, models=tuple(names), **admin, **found, problems=tuple(problems))


async def _health(link: AdminLink) -> None:
    status = await link.status_of("/health")
    if status not in (200, 404, 405):  # not every server has the route; none of ours would be without
        raise AdminError(f"{link.url}/health answered {status}", status)


async def _model_card(link: AdminLink, model: str) -> tuple[dict[str, Any] | None, list[str]]:
    cards = (await link.get("/v1/models")).get("data") or []
    names = [str(card.get("id")) for card in cards]
    return next((card for card in cards if card.get("id") == model), None), names


async def _admin(link: AdminLink, routes: set[str], dialect: DialectName | None, problems: list[str]) -> dict[str, Any]:
    spoken = dialect or dialect_for(routes)
    if spoken is None:
        problems.append("its weights cannot be changed: start it with VLLM_SERVER_DEV_MODE=1 in its environment")
    link.can_pause = "pause" in routes
    engine = None
    if "collective_rpc" in routes:
        engine = await _engine(link)
    link.has_extension = engine is not None
    if spoken == "vllm" and await _lacks_transfer(link):
        problems.append(
            "it has no weight transfer: start it with --weight-transfer-config "
            '\'{"backend":"verifiers"}\' --worker-extension-cls weights_vllm.WeightExtension, '
            'or with \'{"backend":"nccl"}\' for a sender of that backend'
        )
    return {
        "dialect": spoken,
        "can_pause": link.can_pause,
        "was_paused": link.can_pause and bool((await link.get("/is_paused")).get("is_paused")),
        "has_extension": link.has_extension,
        "engine": engine,
        "version": await link.version(),
    }


async def _engine(link: AdminLink) -> str | None:
    """The name of the weight transfer's class, told by our extension; `None`: it is not loaded."""
    try:
        states = await link.call("weight_state")
    except AdminError as error:
        if error.status is None:
            raise
        return None
    return str(states[0].get("engine")) if states else None


async def _lacks_transfer(link: AdminLink) -> bool:
    """vLLM has the routes in any case. To finish what has not begun is refused for one of two reasons."""
    try:
        await link.post("/finish_weight_update")
    except AdminError as error:
        return "not configured" in str(error)
    return False


async def _sampling(link: AdminLink, model: str, problems: list[str]) -> dict[str, Any]:
    hot, cold, plain, given = await asyncio.gather(
        _complete(link, model, temperature=HOT, **_NEUTRAL),
        _complete(link, model, temperature=COLD, **_NEUTRAL),
        _complete(link, model),
        _has_token_routes(link, model),
    )
    processed = are_processed(hot, cold)
    if processed is False:
        problems.append(
            "its log-probabilities are those before temperature, not those it sampled by: "
            "start it with --logprobs-mode processed_logprobs"
        )
    gives_ids = bool(hot.get("token_ids")) and bool(hot.get("prompt_token_ids"))
    if not gives_ids:
        problems.append("it gives no token ids (return_token_ids): vLLM does from 0.10.2 on")
    if not given:
        problems.append(
            "its token routes (/inference/v1/generate) are closed, so that nobody tells which weights made a token: "
            "start it with --enable-scale-out"
        )
    return {
        "gives_token_ids": gives_ids,
        "has_token_routes": given,
        "processed_logprobs": processed,
        "own_defaults": own_defaults(hot, plain) if processed else (),
    }


async def _complete(link: AdminLink, model: str, **sampling: Any) -> dict[str, Any]:
    """The only choice of a completion of one token."""
    body = {"model": model, "prompt": _QUESTION, "max_tokens": 1, "logprobs": 5, "return_token_ids": True, **sampling}
    try:
        return (await link.post("/v1/completions", body, timeout_s=FIRST_TOKEN_S))["choices"][0]
    except (AdminError, KeyError, IndexError, TypeError) as error:
        if isinstance(error, AdminError) and error.status is not None and error.status < 500:
            return {}
        raise AdminError(f"{link.url}/v1/completions gave no completion ({error})") from error


async def _has_token_routes(link: AdminLink, model: str) -> bool:
    """Asked for no token at all, it refuses the request; where it is closed, it refuses the route."""
    body = {"model": model, "token_ids": [], "sampling_params": {"max_tokens": 1}}
    return await link.status_of("/inference/v1/generate", body) not in (401, 403, 404, 405, 501)


def are_processed(hot: dict[str, Any], cold: dict[str, Any]) -> bool | None:
    """Are log-probabilities after temperature? From the same prompt's next token at two temperatures.

    The gap between the first and second token is divided by the temperature, or it is not. `None`: too small to tell.
    """
    one, other = _gap(hot), _gap(cold)
    if one is None or other is None or one < 1e-6:
        return None
    return abs(other / one - HOT / COLD) < abs(other / one - 1.0)


def own_defaults(neutral: dict[str, Any], plain: dict[str, Any]) -> tuple[str, ...]:
    """What a request that says nothing is sampled with, seen from its log-probabilities."""
    one, other = _gap(neutral), _gap(plain)
    found: list[str] = []
    if one is not None and other is not None and one > 1e-6 and abs(other / one - 1) > 1e-3:
        found.append(f"temperature {one / other:.3g}")
    if len(_tops(plain)) < len(_tops(neutral)):
        found.append("top_k, top_p or min_p")
    return tuple(found)


def _gap(choice: dict[str, Any]) -> float | None:
    tops = _tops(choice)
    return tops[0] - tops[1] if len(tops) > 1 else None


def _tops(choice: dict[str, Any]) -> list[float]:
    """Log-probabilities of the likeliest tokens, downwards. vLLM writes -9999 for a token that was ruled out."""
    offered = ((choice.get("logprobs") or {}).get("top_logprobs") or [{}])[0] or {}
    return sorted((v for v in offered.values() if math.isfinite(v) and v > -1000), reverse=True)
