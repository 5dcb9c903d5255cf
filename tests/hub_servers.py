"""Hubs that run as processes of their own, on 127.0.0.1 and any free port, for tests of what only those can show."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

START_S = 60.0
PAUSED = Path(__file__).with_name("hub_paused_server.py")


@dataclass(frozen=True)
class Server:
    address: str
    token: str  # of the first account; empty when there was one already
    process: subprocess.Popen[bytes]

    @property
    def host_and_port(self) -> tuple[str, int]:
        parts = urlsplit(self.address)
        assert parts.hostname and parts.port
        return parts.hostname, parts.port

    def kill(self) -> None:
        """As `kill -9` does, with all its workers: nothing is tidied up."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def served(
    data: Path, *, workers: int = 1, owner: str = "first", prefix: Sequence[str] = (), **settings: str
) -> Iterator[Server]:
    """`vf-hub serve` over a data folder. `settings` are VF_HUB_… variables: `body_timeout_s="1"`. `prefix` is a
    command that starts another one."""
    command = [*prefix, sys.executable, "-c", "from hub_server.cli import main; main()", "serve", "--port", "0"]
    command += ["--workers", str(workers), "--owner", owner, "--data", str(data)]
    with _running(command, settings) as server:
        yield server


@contextlib.contextmanager
def empty_database() -> Iterator[str | None]:
    """`None`, for SQLite in the data folder; with VF_TEST_DATABASE_URL a database of its own there."""
    server = os.environ.get("VF_TEST_DATABASE_URL")
    if server is None:
        yield None
        return
    import psycopg

    name = f"vf_test_{secrets.token_hex(6)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # pyright: ignore[reportArgumentType]
        yield server.rpartition("/")[0] + f"/{name}"
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # pyright: ignore[reportArgumentType]


@contextlib.contextmanager
def s3_variables() -> Iterator[str | None]:
    """The address of the S3 server that VF_TEST_S3_URL names (scripts/setup_s3.sh), which has the bucket `hub`, with
    the variables that its clients read set; `None` without one."""
    address = os.environ.get("VF_TEST_S3_URL")
    if address is None:
        yield None
        return
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**keys, "AWS_ENDPOINT_URL": address}.items():
            patch.setenv(name, value)
        yield address


@contextlib.contextmanager
def places() -> Iterator[dict[str, str]]:
    """Settings that give a hub an empty database and an empty storage of their own on the servers that the variables
    VF_TEST_DATABASE_URL and VF_TEST_S3_URL name; what is not named lies in the data folder."""
    with empty_database() as database, s3_variables() as s3:
        found = {} if database is None else {"database_url": database}
        yield found if s3 is None else {**found, "storage_url": f"s3://hub/{secrets.token_hex(6)}"}


@contextlib.contextmanager
def paused_at(data: Path, point: str, **settings: str) -> Iterator[Server]:
    """A hub whose next upload stops for ever at this point; see `hub_paused_server`."""
    with _running([sys.executable, str(PAUSED), str(data), point], settings) as server:
        yield server


@contextlib.contextmanager
def _running(command: list[str], settings: dict[str, str]) -> Iterator[Server]:
    environment = {**os.environ, **{f"VF_HUB_{name.upper()}": value for name, value in settings.items()}}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,  # a group of its own, to be killed as a whole
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline().decode()
        found = re.search(r"http://[\d.]+:\d+", line)
        assert found, f"the server said {line!r}"
        server = Server(found[0], "", process)
        _wait_until_it_answers(server)
        os.set_blocking(process.stdout.fileno(), False)
        token = re.search(rb"vfh_\w+", process.stdout.read() or b"")
        yield replace(server, token=token[0].decode() if token else "")
    finally:
        process.stdout.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_until_it_answers(server: Server) -> None:
    until = time.monotonic() + START_S
    while True:
        connection = http.client.HTTPConnection(*server.host_and_port, timeout=60)
        try:
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            return
        except OSError:
            if time.monotonic() > until or server.process.poll() is not None:
                raise
            time.sleep(0.1)
        finally:
            connection.close()
