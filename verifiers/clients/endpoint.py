"""`Endpoint`: where a model is served and how to ask there. A description; it opens nothing.

`ClientConfig` is the classic way to write one down; `Endpoint.of` reads either, an OpenAI client, or a URL.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from verifiers.errors import ConfigError, MissingKeyError
from verifiers.types import Attributed

DialectName = Literal["chat", "completions", "tokens"]

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_KEY_VAR = "OPENAI_API_KEY"
OPENAI_URL_VAR = "OPENAI_BASE_URL"

TIMEOUT_S = 3600.0  # a long chain of thought on a busy server takes many minutes, and arrives all at once
CONNECT_TIMEOUT_S = 5.0
MAX_RETRIES = 10
MAX_CONNECTIONS = 28_000  # about the ephemeral ports that one client address has towards one server

_SECRET_HEADERS = ("authorization", "api-key", "apikey", "token", "secret", "cookie")
_ROUTES = ("/chat/completions", "/completions", "/models")
_NO_LIMIT_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model server, or several that serve the same model (`replicas`).

    The key is `api_key`, or what the environment variable `api_key_var` holds when a request is first sent. It is
    shown by neither `repr` nor any error.

    >>> Endpoint("http://127.0.0.1:8000/v1", api_key="secret")
    Endpoint('http://127.0.0.1:8000/v1', api_key='***')
    """

    base_url: str
    api_key: str | None = None
    api_key_var: str | None = None
    headers: Mapping[str, str] | tuple[tuple[str, str], ...] = ()
    query: Mapping[str, str] | tuple[tuple[str, str], ...] = ()
    timeout_s: float = TIMEOUT_S  # of one attempt, from sending it to the last byte of the reply
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    max_retries: int = MAX_RETRIES
    max_connections: int = MAX_CONNECTIONS  # places at each replica
    dialect: DialectName = "chat"
    affinity_headers: tuple[str, ...] = ()  # headers that carry a request's affinity, for a router in between
    replicas: tuple[Endpoint, ...] = ()  # used in turn, with their own URLs, keys and headers

    def __post_init__(self) -> None:
        base_url, user_info = _checked_url(self.base_url)
        headers = {str(k): str(v).strip() for k, v in dict(self.headers).items()}
        if user_info and not self.api_key:
            headers.setdefault("Authorization", "Basic " + base64.b64encode(user_info.encode()).decode())
        object.__setattr__(self, "base_url", base_url)
        object.__setattr__(self, "headers", tuple(headers.items()))
        object.__setattr__(self, "query", tuple((str(k), str(v)) for k, v in dict(self.query).items()))
        object.__setattr__(self, "replicas", tuple(self.replicas))

    @classmethod
    def of(cls, source: Any = None) -> Endpoint:
        """From an `Endpoint`, `ClientConfig`, mapping of its keywords, OpenAI client or URL.

        `None` takes `OPENAI_BASE_URL` and `OPENAI_API_KEY`. Raises ConfigError for anything else.
        """
        if isinstance(source, Endpoint):
            return source
        if isinstance(source, ClientConfig):
            return _from_config(source)
        if isinstance(source, Mapping):
            return _from_config(ClientConfig(**source))
        if isinstance(source, str):
            return cls(source, api_key_var=OPENAI_KEY_VAR)
        if source is None:
            return _from_environment()
        if hasattr(source, "base_url") and hasattr(source, "api_key"):
            return _from_openai(source)
        raise ConfigError(
            f"a client is a vf.Client, ClientConfig, AsyncOpenAI, OpenAI, Endpoint or URL, got {type(source).__name__}"
        )

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""

    @property
    def all_replicas(self) -> tuple[Endpoint, ...]:
        return self.replicas or (self,)

    def key(self) -> str | None:
        """The key itself. Raises ConfigError, without showing it, for one that cannot be a header."""
        key = (self.api_key or (os.environ.get(self.api_key_var, "") if self.api_key_var else "")).strip()
        if any(ord(c) < 32 or ord(c) == 127 for c in key):
            raise ConfigError(f"the key in {self.key_name} holds a line break or another control character")
        return key or None

    @property
    def key_name(self) -> str:
        """How to call the key in a message."""
        return self.api_key_var or "api_key"

    def secrets(self) -> list[str]:
        """What must appear in no message: the key, and the values of headers that look like one."""
        found = [value for name, value in self.headers if any(mark in name.lower() for mark in _SECRET_HEADERS)]
        found += [value.split(" ", 1)[1] for value in found if " " in value]
        return [s for s in {*found, self.key() or ""} if len(s) >= 6]

    def __repr__(self) -> str:
        parts = [repr(self.base_url)]
        if self.api_key:
            parts.append("api_key='***'")
        if self.api_key_var:
            parts.append(f"api_key_var={self.api_key_var!r}")
        if self.dialect != "chat":
            parts.append(f"dialect={self.dialect!r}")
        if self.replicas:
            parts.append(f"replicas={len(self.replicas)}")
        return f"Endpoint({', '.join(parts)})"


def is_loopback(host: str) -> bool:
    return host == "localhost" or host == "::1" or host.startswith("127.") or host.endswith(".localhost")


def _checked_url(url: str) -> tuple[str, str]:
    """The URL without trailing slash, route or user information; and that information, decoded."""
    text = str(url).strip()
    if "://" not in text and text:
        host = text.split("/", 1)[0].rsplit(":", 1)[0]
        text = ("http://" if is_loopback(host) else "https://") + text
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{url!r} is no base URL: {error}. One looks like http://127.0.0.1:8000/v1") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or any(c.isspace() for c in text):
        raise ConfigError(f"{url!r} is no base URL. One looks like http://127.0.0.1:8000/v1")
    path = parts.path.rstrip("/")
    for route in _ROUTES:
        path = path.removesuffix(route)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    netloc = host if port is None else f"{host}:{port}"
    user_info = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}" if parts.username else ""
    return urlunsplit((parts.scheme, netloc, path, "", "")), user_info


class ClientConfig(Attributed):
    """The classic description of a client, with its classic keywords; ones it does not know are kept and ignored.

    Several `endpoint_configs` are replicas, used in turn; what one of them leaves out is taken from here. A header
    of `extra_headers_from_state` carries a value that is the same for all requests of a rollout.

    >>> ClientConfig(api_base_url="http://127.0.0.1:8000/v1", api_key_var="MY_KEY", timeout=600)
    """

    __slots__ = ()
    defaults: dict[str, Any] = {
        "client_idx": 0,
        "client_type": "openai_chat_completions",
        "api_key_var": OPENAI_KEY_VAR,
        "api_base_url": None,  # OPENAI_BASE_URL, else OpenAI's own
        "endpoint_configs": (),
        "timeout": TIMEOUT_S,
        "connect_timeout": CONNECT_TIMEOUT_S,
        "max_connections": MAX_CONNECTIONS,
        "max_keepalive_connections": MAX_CONNECTIONS,
        "max_retries": MAX_RETRIES,
        "extra_headers": {},
        "extra_headers_from_state": {},
    }
    fields = frozenset(defaults)
    model_fields = defaults  # pydantic's name: callers look there for what a client can be told

    def __init__(self, **given: Any) -> None:
        # Who describes a client will open one. Imported later, inside the running event loop, aiohttp would hold up
        # every rollout in flight for a fifth of a second.
        import aiohttp  # noqa: F401

        self.check_headers(given.get("extra_headers"))
        super().__init__(given)

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        if name in self.defaults:
            default = self.defaults[name]
            return default.copy() if isinstance(default, dict) else default
        raise AttributeError(f"ClientConfig has no field '{name}'")

    @staticmethod
    def check_headers(headers: Any) -> None:
        if headers is not None and not isinstance(headers, Mapping):
            raise ConfigError(f"extra_headers is a dict of header names and values, got {type(headers).__name__}")

    @classmethod
    def model_validate(cls, given: Any) -> ClientConfig:
        return given if isinstance(given, cls) else cls(**dict(given))

    @property
    def model_fields_set(self) -> set[str]:
        return set(self)

    def model_dump(self, *, exclude_none: bool = False, **_: Any) -> dict[str, Any]:
        full = {name: getattr(self, name) for name in {**self.defaults, **self}}
        full["endpoint_configs"] = [dict(e) for e in full["endpoint_configs"]]
        return {k: v for k, v in full.items() if not (exclude_none and v is None)}

    def __repr__(self) -> str:
        shown = {k: "***" if k in ("api_key", "extra_headers") and v else v for k, v in self.items()}
        return f"ClientConfig({', '.join(f'{k}={v!r}' for k, v in shown.items())})"


EndpointClientConfig = ClientConfig

_DIALECTS: dict[str, DialectName] = {
    "openai_chat_completions": "chat",
    "nemorl_chat_completions": "chat",
    "openai_completions": "completions",
    "openai_chat_completions_token": "tokens",
}


def _from_config(config: ClientConfig) -> Endpoint:
    kind = config.client_type
    if kind not in _DIALECTS:
        known = ", ".join(_DIALECTS)
        advice = " Anthropic's models answer at its OpenAI-compatible address." if kind == "anthropic_messages" else ""
        raise ConfigError(f"client_type {kind!r} is not supported (there are: {known}).{advice}")
    endpoint = Endpoint(
        config.api_base_url or config.get("base_url") or config.get("url") or _environment_url(),
        api_key=config.get("api_key"),
        api_key_var=config.api_key_var,
        headers=config.extra_headers,
        timeout_s=_NO_LIMIT_S if config.timeout is None else float(config.timeout),
        connect_timeout_s=float(config.connect_timeout),
        max_retries=int(config.max_retries),
        max_connections=int(config.max_connections),
        dialect=_DIALECTS[kind],
        affinity_headers=tuple(config.extra_headers_from_state),
    )
    parts = [dict(part) for part in _models(config.endpoint_configs)]
    if not parts:
        return endpoint
    base = {k: v for k, v in config.items() if k != "endpoint_configs"}
    return replace(endpoint, replicas=tuple(_from_config(ClientConfig(**{**base, **part})) for part in parts))


def _models(parts: Iterable[Any]) -> Iterable[Mapping[str, Any]]:
    for part in parts or ():
        yield part if isinstance(part, Mapping) else part.model_dump(exclude_unset=True)


def _environment_url() -> str:
    return os.environ.get(OPENAI_URL_VAR) or OPENAI_URL


def _from_environment() -> Endpoint:
    if not os.environ.get(OPENAI_URL_VAR) and not os.environ.get(OPENAI_KEY_VAR):
        raise MissingKeyError(OPENAI_KEY_VAR)
    return Endpoint(_environment_url(), api_key_var=OPENAI_KEY_VAR)


def _from_openai(client: Any) -> Endpoint:
    """What an OpenAI client was told. Its own default of 2 retries counts as not told: a rollout is worth more."""
    timeout_s, connect_s = _timeouts(getattr(client, "timeout", None))
    retries = getattr(client, "max_retries", None)
    headers = dict(getattr(client, "_custom_headers", None) or {})
    for name, attribute in (("OpenAI-Organization", "organization"), ("OpenAI-Project", "project")):
        if isinstance(value := getattr(client, attribute, None), str):
            headers.setdefault(name, value)
    return Endpoint(
        str(client.base_url),
        api_key=client.api_key if isinstance(client.api_key, str) else None,
        headers={k: v for k, v in headers.items() if isinstance(v, str)},
        query={k: str(v) for k, v in dict(getattr(client, "_custom_query", None) or {}).items()},
        timeout_s=timeout_s,
        connect_timeout_s=connect_s,
        max_retries=retries if isinstance(retries, int) and retries != 2 else MAX_RETRIES,
    )


def _timeouts(timeout: Any) -> tuple[float, float]:
    """(whole, connect) of a number, an httpx `Timeout`, or nothing."""
    if isinstance(timeout, (int, float)):
        return float(timeout), min(float(timeout), CONNECT_TIMEOUT_S)
    read, connect = getattr(timeout, "read", None), getattr(timeout, "connect", None)
    return (
        float(read) if isinstance(read, (int, float)) else _NO_LIMIT_S,
        float(connect) if isinstance(connect, (int, float)) else CONNECT_TIMEOUT_S,
    )
