"""`Login`: which hub to talk to and the token for it, from the environment or the user's `hub.toml`.

The file holds one table a hub, is readable by its owner only, and a token in it is for that address and no other.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import tomlkit

from verifiers.errors import ConfigError, SetupError

URL_VARIABLE = "VF_HUB_URL"
TOKEN_VARIABLE = "VF_HUB_TOKEN"


@dataclass(frozen=True, slots=True)
class Login:
    """A hub's address, without a slash at the end, and whom we are there."""

    url: str
    token: str | None = None
    user: str | None = None  # as the hub called us at `vf login`

    def __repr__(self) -> str:
        return f"Login(url={self.url!r}, user={self.user!r}, token={'***' if self.token else None})"


def current_login(url: str | None = None) -> Login:
    """The login for `url`, else for VF_HUB_URL, else for the hub signed in to last. VF_HUB_TOKEN wins over the file,
    but is not sent to a hub that `url` names while VF_HUB_URL, or the last login, names another one.

    Raises SetupError when no hub is known.
    """
    saved = _saved()
    from_variable = os.environ.get(URL_VARIABLE) or None
    chosen = url or from_variable or saved.get("default")
    if not chosen:
        raise SetupError(f"no hub is known: set {URL_VARIABLE}, or sign in with  vf login URL")
    chosen = checked_url(chosen)
    known = saved.get("hubs", {}).get(chosen, {})
    token = os.environ.get(TOKEN_VARIABLE) or None
    home = from_variable or saved.get("default")
    if token is not None and home is not None and checked_url(home) != chosen:
        token = None
    return Login(chosen, token or known.get("token"), known.get("user"))


def remember(login: Login) -> Path:
    """Saves a login and makes it the default; the file."""
    document = _document()
    hubs = document.setdefault("hubs", tomlkit.table(is_super_table=True))
    hubs[login.url] = {"token": login.token, **({"user": login.user} if login.user else {})}
    document["default"] = login.url
    return _write(document)


def forget(url: str) -> bool:
    """Removes a login; whether there was one."""
    document = _document()
    there = document.get("hubs", {}).pop(url, None) is not None
    if document.get("default") == url:
        del document["default"]
    if there:
        _write(document)
    return there


def checked_url(url: str) -> str:
    """The address without a slash at its end. Raises ConfigError for one that is none, or would send tokens in clear
    over a network."""
    parts = _parts(url)
    if parts is None:
        raise ConfigError(f"'{url}' is not the address of a hub. Write it as https://host or http://127.0.0.1:8700")
    is_open = parts.scheme == "http" and not _is_this_machine(parts.hostname or "")
    if is_open and not os.environ.get("VF_HUB_ALLOW_HTTP"):
        raise ConfigError(
            f"'{url}' would send your token unencrypted over the network. Use https://, or set VF_HUB_ALLOW_HTTP=1 "
            "if that network is yours alone"
        )
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


def _parts(url: str) -> SplitResult | None:
    """Scheme, host and path; `None` for what is no address of a server, or has more in it."""
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
        is_good = bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, a torn IPv6 address
        return None
    is_good = is_good and parts.scheme in ("http", "https") and "@" not in parts.netloc
    return parts if is_good and not (parts.query or parts.fragment or re.search(r"\s", url)) else None


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name; 127.0.0.1.example.com is one too
        return host == "localhost"


def credentials_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "verifiers" / "hub.toml"


def _saved() -> dict[str, Any]:
    file = credentials_file()
    try:
        saved = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}. Mend it, or remove it and sign in again") from error
    hubs = saved.get("hubs", {})
    if not isinstance(hubs, dict) or not all(isinstance(known, dict) for known in hubs.values()):
        raise ConfigError(f"{file}: 'hubs' must have one table a hub. Mend it, or remove it and sign in again")
    return saved


def _document() -> Any:
    file = credentials_file()
    _saved()  # says what is wrong with it
    return tomlkit.parse(file.read_text("utf-8")) if file.exists() else tomlkit.document()


def _write(document: Any) -> Path:
    file = credentials_file()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(tomlkit.dumps(document))
    part.replace(file)
    return file
