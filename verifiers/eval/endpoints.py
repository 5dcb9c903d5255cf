"""`ModelChoice`: which model a run asks, and where: from flags, `endpoints.toml`, providers and variables."""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from verifiers.clients.endpoint import OPENAI_KEY_VAR, OPENAI_URL_VAR, ClientConfig, Endpoint
from verifiers.errors import ConfigError, MissingKeyError
from verifiers.eval.config import EvalConfig, parse_headers
from verifiers.refs import near

DEFAULT_ENDPOINTS = Path("configs/endpoints.toml")
LOCAL = "local"
REFERENCE = "reference"  # the package's own right answers in a model's place


@dataclass(frozen=True)
class Provider:
    url: str
    key_var: str
    default_model: str | None = None  # None: whatever the server serves, if that is one model


PROVIDERS = {
    "openai": Provider("https://api.openai.com/v1", "OPENAI_API_KEY", "gpt-4.1-mini"),
    "openrouter": Provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "openai/gpt-4.1-mini"),
    "anthropic": Provider("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
    "deepseek": Provider("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", "deepseek-chat"),
    "vllm": Provider("http://127.0.0.1:8000/v1", "VLLM_API_KEY"),
}


@dataclass(frozen=True)
class ModelChoice:
    """The model of a run. The one on this machine has no `endpoint` until it is started."""

    model: str | None  # None: whatever the server serves, if that is one model
    endpoint: Endpoint | None = None
    is_local: bool = False  # the model on this machine
    is_reference: bool = False  # right answers instead of a model
    prices: tuple[float, float] | None = None  # for a million tokens in and out; None: unknown
    notes: tuple[str, ...] = ()  # for people, on stderr

    @property
    def replicas(self) -> tuple[Endpoint, ...]:
        return () if self.endpoint is None else self.endpoint.all_replicas

    @property
    def base_url(self) -> str:
        if self.endpoint is None:
            return REFERENCE if self.is_reference else LOCAL
        return self.replicas[0].base_url

    @property
    def secrets(self) -> list[str]:
        """Keys and header values that must not be written anywhere."""
        return [secret for replica in self.replicas for secret in replica.secrets()]


def choose_model(config: EvalConfig) -> ModelChoice:
    """What `config` and the environment's variables ask for. Nothing is contacted.

    An explicit address or provider wins; then a name from `endpoints.toml`; then `OPENAI_BASE_URL`; then OpenAI, if
    a model or a key was given; else the model on this machine. Raises ConfigError and MissingKeyError.
    """
    if config.provider is not None and config.provider not in (*PROVIDERS, LOCAL):
        close = near(config.provider, [*PROVIDERS, LOCAL])
        hint = f"Did you mean {close[0]}?" if close else f"Known: {', '.join([*PROVIDERS, LOCAL])}; any other by -b URL"
        raise ConfigError(f"unknown provider '{config.provider}'. {hint}")
    if not config.api_base_url and not config.provider:
        entry = _named_entry(config)
        if entry is not None:
            return _as_told(entry, config)
    if config.provider == LOCAL or (config.model == LOCAL and not config.api_base_url and not config.provider):
        return ModelChoice(LOCAL, is_local=True)
    if config.model == REFERENCE and not config.api_base_url and not config.provider:
        if config.executor != "local":
            raise ConfigError(f"-m reference answers in this process alone: drop --executor {config.executor}")
        return ModelChoice(REFERENCE, is_reference=True)
    return _as_told(_by_address(config), config)


def _by_address(config: EvalConfig) -> ModelChoice:
    provider = PROVIDERS.get(config.provider or "")
    url = config.api_base_url or (provider.url if provider else os.environ.get(OPENAI_URL_VAR))
    key_var = provider.key_var if provider else OPENAI_KEY_VAR
    if url:
        model = config.model or (provider.default_model if provider and not config.api_base_url else None)
        return ModelChoice(model, Endpoint(url, api_key_var=key_var))
    if config.model is None and not os.environ.get(config.api_key_var or key_var):
        note = "no -m, no -b and no OPENAI_API_KEY: using the small model on this machine (-m local)"
        return ModelChoice(LOCAL, is_local=True, notes=(note,))
    openai = PROVIDERS["openai"]
    return ModelChoice(config.model or openai.default_model, Endpoint(openai.url, api_key_var=key_var))


def _as_told(choice: ModelChoice, config: EvalConfig) -> ModelChoice:
    """`choice` with the flags' key, headers and client type. Raises MissingKeyError if a far server gets no key."""
    if choice.endpoint is None:
        return choice
    dialect = Endpoint.of(ClientConfig(client_type=config.api_client_type)).dialect if config.api_client_type else None
    replicas = tuple(
        replace(
            replica,
            api_key_var=config.api_key_var or replica.api_key_var,
            headers={**dict(replica.headers), **config.headers},
            dialect=dialect or replica.dialect,
        )
        for replica in choice.replicas
    )
    if config.api_key_var and not os.environ.get(config.api_key_var) and all(is_near(r.base_url) for r in replicas):
        note = f"{config.api_key_var} (-k) is not set: no key is sent"
        choice = replace(choice, notes=(*choice.notes, note))
    for replica in replicas:
        if replica.secrets() or is_near(replica.base_url):
            continue
        if replica.api_key_var is None:
            raise ConfigError(
                f'{replica.base_url} wants a key: name its variable by -k, or by key = "NAME" in the file'
            )
        raise NoKeyError(replica.api_key_var, replica.base_url)
    first = replicas[0]
    return replace(choice, endpoint=replace(first, replicas=replicas) if len(replicas) > 1 else first)


class NoKeyError(MissingKeyError):
    """`MissingKeyError` that also says which server wants the key."""

    def __init__(self, key_var: str, url: str) -> None:
        super().__init__(key_var)
        self.url = url

    def __str__(self) -> str:
        name = self.missing_keys[0]
        return f"no key for {self.url}: {name} is not set. Try: export {name}=…, another server by -b URL, or -m local"


def is_near(url: str) -> bool:
    """Whether the server is on this machine or in a private network, where keys are not usual."""
    host = urlsplit(url).hostname or ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".local", ".internal", ".localhost"))
    return address.is_private or address.is_loopback or address.is_unspecified or address.is_link_local


# endpoints.toml

_ENTRY_KEYS = {
    "endpoint_id", "model", "url", "api_base_url", "key", "api_key_var", "type", "api_client_type", "header", "headers",
    "input_price", "output_price",
}  # fmt: skip


def _named_entry(config: EvalConfig) -> ModelChoice | None:
    """The entry that `--endpoint-id` or `-m` names; `None` if `-m` is no name of the file."""
    path = Path(config.endpoints_path) if config.endpoints_path else DEFAULT_ENDPOINTS
    if path.is_dir():
        path = path / "endpoints.toml"
    if not path.exists():
        if config.endpoints_path:
            raise ConfigError(f"no file {path} (-e)")
        if config.endpoint_id:
            raise ConfigError(f"endpoint '{config.endpoint_id}' is wanted, but there is no {path}. Name the file by -e")
        return None
    name = config.endpoint_id or config.model
    if name is None:
        return None
    registry = read_endpoints(path)
    if name in registry:
        return registry[name]
    if config.endpoint_id:
        close = near(name, list(registry))
        hint = f"Did you mean '{close[0]}'?" if close else f"It has: {', '.join(registry) or 'none'}"
        raise ConfigError(f"{path} has no endpoint '{name}'. {hint}")
    return None


def read_endpoints(path: Path) -> dict[str, ModelChoice]:
    """The `[[endpoint]]` tables by their id; those that share an id are replicas of one model."""
    if path.suffix == ".py":
        raise ConfigError(f"{path}: endpoints are kept in TOML: [[endpoint]] tables with endpoint_id, model, url, key")
    try:
        tables = tomllib.loads(path.read_text("utf-8")).get("endpoint", [])
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(f"{path}: endpoints are written as tables, [[endpoint]]")
    choices: dict[str, ModelChoice] = {}
    for number, table in enumerate(tables, 1):
        where = f"{path}, [[endpoint]] {number}"
        name, choice = _entry(table, where)
        known = choices.get(name)
        if known is None:
            choices[name] = choice
        elif known.model != choice.model:
            raise ConfigError(f"{where}: replicas of '{name}' serve one model, got {known.model} and {choice.model}")
        else:
            joined = replace(known.replicas[0], replicas=known.replicas + choice.replicas)
            choices[name] = replace(known, endpoint=joined, prices=known.prices or choice.prices)
    return choices


def _entry(table: dict[str, Any], where: str) -> tuple[str, ModelChoice]:
    for key in table:
        if key not in _ENTRY_KEYS:
            close = near(key, sorted(_ENTRY_KEYS))
            raise ConfigError(f"{where}: unknown key '{key}'." + (f" Did you mean '{close[0]}'?" if close else ""))
    name, model = table.get("endpoint_id"), table.get("model")
    url, key_var = table.get("url", table.get("api_base_url")), table.get("key", table.get("api_key_var"))
    for key, value in (("endpoint_id", name), ("model", model), ("url", url)):
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{where}: '{key}' is missing")
    if key_var is not None and not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", str(key_var)):
        raise ConfigError(f"{where}: 'key' is the *name* of a variable that holds the key, such as OPENAI_API_KEY")
    headers = parse_headers(table.get("headers", table.get("header", {})), where)
    client_type = table.get("type", table.get("api_client_type"))
    kind = {} if client_type is None else {"client_type": client_type}
    endpoint = Endpoint.of(ClientConfig(api_base_url=url, api_key_var=key_var, extra_headers=headers, **kind))
    return str(name), ModelChoice(str(model), endpoint, prices=_prices(table, where))


def _prices(table: dict[str, Any], where: str) -> tuple[float, float] | None:
    prices = table.get("input_price"), table.get("output_price")
    if prices == (None, None):
        return None
    amounts = [float(price) for price in prices if isinstance(price, (int, float)) and price >= 0]
    if len(amounts) != 2:
        raise ConfigError(f"{where}: input_price and output_price are numbers for a million tokens, and come together")
    return amounts[0], amounts[1]
