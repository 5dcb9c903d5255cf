"""`AtroposServer`: questions to Atropos's API server, by HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from verifiers.errors import SetupError

POLL_S = 1.0
TIMEOUT_S = 60.0
ATTEMPTS = 3


class AtroposServer:
    """The server of `run-api` at a URL. Raises SetupError when there is none, or when it refuses."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    async def ask(self, method: Literal["GET", "POST"], path: str, body: Any = None) -> dict[str, Any]:
        """What it answers. Asked again where nothing listened: nothing can have been delivered twice then."""
        for attempt in range(ATTEMPTS):
            try:
                return await asyncio.to_thread(self._ask, method, path, body)
            except OSError as error:
                is_refused = isinstance(getattr(error, "reason", error), ConnectionRefusedError)
                if not is_refused or attempt == ATTEMPTS - 1:
                    raise SetupError(f"no Atropos server at {self.url}: {error}. Try: run-api") from error
            await asyncio.sleep(POLL_S * 2**attempt)
        raise AssertionError

    def _ask(self, method: str, path: str, body: Any) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urlopen(request, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                told = error.read(2000).decode(errors="replace")
            raise SetupError(f"Atropos at {self.url} answered {error.code} to {path}: {told}") from error
