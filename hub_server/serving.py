"""Starting the server: the first account, the sockets, the workers."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import socket
import sys
from importlib import import_module

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from hub_server.errors import BadRequest, Unavailable
from hub_server.hub import Hub
from hub_server.services.accounts import first_account
from hub_server.settings import Settings
from verifiers.archives.own_wheel import NotInstalled, own_wheel

BACKLOG = 2048  # connections that wait to be accepted
STOP_AFTER_S = 20  # requests that still run when the server is told to stop


def run_server(settings: Settings, *, host: str, port: int, workers: int, owner: str | None) -> None:
    """Blocks until the server is told to stop. Prints the address, and on the first start the token."""
    if workers > 1 and settings.storage_url == "memory://":
        raise BadRequest("a hub in memory has one worker: the others would not see its files")
    try:
        own_wheel()  # which every index serves
    except NotInstalled as error:
        raise Unavailable(str(error)) from error
    if workers > 1:
        _import_app()
    listener = _listen(host, port)
    address = f"http://{_in_url(host)}:{listener.getsockname()[1]}"
    hub = Hub.open(settings)
    try:
        made = first_account(hub, owner or _login_name())
    finally:
        hub.close()
    print(f"{settings.title}: {settings.public_url or address}  (data in {settings.data})", flush=True)
    if made is not None:
        print(
            f"first account: {made.name}\ntoken, shown this once: {made.token}\n"
            f"next: VF_HUB_URL={settings.public_url or address} vf login --token {made.token}",
            flush=True,
        )
    os.environ |= _as_environment(settings)  # for the workers, which are processes of their own
    config = uvicorn.Config(
        "hub_server.app:create_app",
        factory=True,
        workers=workers,
        access_log=False,  # the hub logs requests itself, without secrets
        log_level="warning",
        server_header=False,
        proxy_headers=False,  # `http.py` believes trusted proxies only
        timeout_graceful_shutdown=STOP_AFTER_S,
        timeout_keep_alive=30,
    )
    # A server that was told to stop has done what it should; before it runs there is nothing to end in order.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    if workers == 1:
        uvicorn.Server(config).run(sockets=[listener])
        return
    group = Multiprocess(config, [listener])
    group.run()
    if any(process.exitcode == STARTUP_FAILURE for process in group.processes):
        raise Unavailable("a worker did not start; its reason stands above")


def _import_app() -> None:
    """Here once, before the workers do it: one that fails at that would be started again for ever.

    Raises Unavailable with what went wrong.
    """
    try:
        import_module("hub_server.app")
    except Exception as error:
        raise Unavailable(f"the hub cannot be loaded: {type(error).__name__}: {error}") from error


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)  # now: another server at this port is found here, and who comes early waits
    except OSError as error:
        listener.close()
        raise BadRequest(f"cannot listen on {host}:{port}: {error.strerror}. Another --port may be free") from error
    listener.set_inheritable(True)
    return listener


def _in_url(host: str) -> str:
    """An address at which this machine reaches what listens on `host`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]" if ":" in host else host


def _login_name() -> str:
    """The login name as an owner's name, or `owner`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's number that has no name
        return "owner"
    name = re.sub(r"[^a-z0-9]+", "-", user.lower()).strip("-")
    return name if 3 <= len(name) <= 30 else "owner"


def _as_environment(settings: Settings) -> dict[str, str]:
    """What a worker reads its settings from."""
    changed = settings.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    return {
        f"VF_HUB_{name.upper()}": value if isinstance(value, str) else json.dumps(value)
        for name, value in changed.items()
    }
