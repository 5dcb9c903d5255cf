"""`ServerLoad`: what a vLLM server says about itself on its metrics page."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE = re.compile(r"^vllm:(\w+?)(?:_total)?(?:\{[^}]*\})? (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """Over all engines of the server."""

    running: float = 0.0  # requests
    waiting: float = 0.0
    kv_cache_usage: float = 0.0  # of the fullest engine, 0 to 1
    preemptions: float = 0.0  # since its start

    @property
    def requests(self) -> float:
        return self.running + self.waiting


def read_load(page: str) -> ServerLoad:
    """From the text that Prometheus reads. What the page does not have is 0."""
    found: dict[str, list[float]] = {}
    for name, value in _LINE.findall(page):
        try:
            found.setdefault(name, []).append(float(value))
        except ValueError:
            continue
    return ServerLoad(
        running=sum(found.get("num_requests_running", ())),
        waiting=sum(found.get("num_requests_waiting", ())),
        kv_cache_usage=max(found.get("kv_cache_usage_perc", ()), default=0.0),
        preemptions=sum(found.get("num_preemptions", ())),
    )
