"""`vf sandbox serve`: offers a sandbox backend of this machine to others."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from verifiers.cli.install import Debug
from verifiers.errors import ConfigError, SetupError


def serve(
    backend: Annotated[str, typer.Option(help="Where sandboxes are made.")] = "local",
    image: Annotated[
        str | None, typer.Option(help="Of containers and pods for which no other is asked; local has none.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8077,
    token: Annotated[
        list[str] | None,
        typer.Option(envvar="VF_SANDBOX_TOKEN", help="Whoever has it is served; others on this machine may see it."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="Tokens, one a line, each with a name before it or without.")
    ] = None,
    warm: Annotated[int, typer.Option(min=0, help="Sandboxes to keep ready, besides those in use.")] = 0,
    max_sandboxes: Annotated[int, typer.Option(min=1, help="Sandboxes and programs at a time.")] = 256,
    max_limits: Annotated[
        str, typer.Option(help='The most that anybody is granted, as JSON; {"network": true} allows one.')
    ] = "{}",
    lease: Annotated[float, typer.Option(min=1, help="Seconds after which a silent client is dead.")] = 60.0,
    drain: Annotated[float, typer.Option(min=0, help="Seconds that sandboxes in use get when it ends.")] = 30.0,
    min_level: Annotated[int, typer.Option(min=1, max=3, help="local: refuse to serve below this level.")] = 1,
    debug: Debug = False,
) -> None:
    """Offers sandboxes over HTTP, to those who have a token, until SIGTERM; then it takes no more and ends.

    \b
    Exit code: 0 it was told to end, 2 usage, 3 it cannot serve here.
    """
    from verifiers.clients.pool import raise_file_limit
    from verifiers.sandbox.backends import image_options, open_backend
    from verifiers.sandbox.gateway import Gateway
    from verifiers.sandbox.gateway import serve as serve_until_told
    from verifiers.sandbox.gateway_sessions import GatewaySettings
    from verifiers.sandbox.gateway_tokens import Tokens

    if backend == "remote":
        raise typer.BadParameter("--backend: a gateway to a gateway is none; give out the other's address")
    settings = GatewaySettings(
        max_sandboxes=max_sandboxes, warm=warm, lease_s=lease, drain_s=drain, max_limits=_most(max_limits)
    )
    lines = list(token or ())
    if token_file is not None:
        try:
            lines += token_file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SetupError(f"{token_file} cannot be read: {error}") from None
    options = image_options(backend, image) | ({"min_level": min_level} if backend == "local" else {})
    tokens = Tokens(lines)
    raise_file_limit()  # each call is a connection, and a program three pipes more

    async def run() -> None:
        gateway = Gateway(open_backend(backend, **options), tokens, settings)
        try:
            await serve_until_told(gateway, host, port, lambda url: typer.echo(f"{backend} sandboxes at {url}"))
        except OSError as error:
            raise SetupError(f"cannot listen at {host}:{port}: {error.strerror or error}") from None

    asyncio.run(run())


def _most(text: str) -> Any:
    import msgspec

    from verifiers.sandbox.gateway_sessions import GatewaySettings
    from verifiers.sandbox.limits import SandboxLimits

    most = GatewaySettings().max_limits
    try:
        return SandboxLimits.read({**msgspec.structs.asdict(most), **json.loads(text)})
    except (ConfigError, ValueError, TypeError) as error:
        raise typer.BadParameter(f"--max-limits: {error}") from None
