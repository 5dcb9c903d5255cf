"""Metrics for Prometheus. Of all worker processes together when `PROMETHEUS_MULTIPROC_DIR` names a folder they share.

The variable must be set before this module is imported: the library decides then where values live.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from sqlalchemy import func, select

from hub_server.hub import Hub
from hub_server.models import Account, Evaluation, File, Project, Release, Validation

_REGISTRY = CollectorRegistry()
_REQUESTS = Counter("vf_hub_requests", "Requests answered.", ["method", "route", "status"], registry=_REGISTRY)
_SECONDS = Histogram(
    "vf_hub_request_seconds",
    "Time from a request's head to the last byte of its answer.",
    ["route"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
    registry=_REGISTRY,
)
_ERRORS = Counter("vf_hub_errors", "Mistakes of the hub, each with a traceback in the log.", registry=_REGISTRY)

# Children by their labels: `labels()` costs more than counting. Bounded by the number of routes.
_counters: dict[tuple[str, str, int], Counter] = {}
_timers: dict[str, Histogram] = {}


def count_request(method: str, route: str, status: int, seconds: float) -> None:
    key = (method, route, status)
    counter = _counters.get(key)
    if counter is None:
        counter = _counters[key] = _REQUESTS.labels(method, route, str(status))
    timer = _timers.get(route)
    if timer is None:
        timer = _timers[route] = _SECONDS.labels(route)
    counter.inc()
    timer.observe(seconds)


def count_error() -> None:
    _ERRORS.inc()


def exposition(hub: Hub) -> bytes:
    """The text that Prometheus reads. Asks the database for the sizes of things."""
    registry = CollectorRegistry()
    registry.register(_Sizes(hub))
    own = _REGISTRY
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        own = CollectorRegistry()
        MultiProcessCollector(own)
    return generate_latest(own) + generate_latest(registry)


class _Sizes(Collector):
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def collect(self) -> Iterator[GaugeMetricFamily]:
        with self._hub.database.read() as session:
            for name, what, query in (
                ("accounts", "Users and organisations.", select(func.count(Account.id))),
                ("projects", "Environments.", select(func.count(Project.id)).where(Project.deleted_at.is_(None))),
                ("releases", "Releases.", select(func.count(Release.id)).where(Release.deleted_at.is_(None))),
                ("file_bytes", "Bytes of all released files.", select(func.coalesce(func.sum(File.size_bytes), 0))),
                ("evaluations", "Evaluations.", select(func.count(Evaluation.id))),
                (
                    "validations_queued",
                    "Releases that wait for validation.",
                    select(func.count(Validation.id)).where(Validation.state == "queued"),
                ),
            ):
                yield GaugeMetricFamily(f"vf_hub_{name}", what, value=float(session.scalar(query) or 0))
