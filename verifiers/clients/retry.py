"""Which failed attempts are worth another one, and after how long. Decides; does nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Literal

from verifiers import errors

Kind = Literal[
    "slow down",  # 429
    "server",  # 5xx, 408, 409, 425
    "timeout",  # sent and not answered in time
    "reset",  # the connection broke
    "refused",  # no connection: refused, unknown host, no route
    "unreachable",  # no connection within `connect_timeout_s`
    "malformed",  # a reply that is none: HTML, torn JSON, another shape
    "empty",  # a reply without choices
    "descriptors",  # this process has no file descriptor left
    "final",  # certificate, closed client: the same again next time
]


class Fault(Exception):
    """One attempt failed in a way that another attempt might mend. Never leaves this package."""

    def __init__(
        self,
        kind: Kind,
        text: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        soft: bool = False,
    ) -> None:
        super().__init__(text)
        self.kind: Kind = kind
        self.text = text
        self.status = status
        self.retry_after_s = retry_after_s
        self.soft = soft  # the first time, try again at once: an idle connection that the server had closed

    @property
    def label(self) -> str:
        """For the display."""
        if self.kind == "slow down":
            return "server says slow down (429)"
        if self.kind == "server":
            return f"server error {self.status}"
        return _LABELS[self.kind]


_LABELS: dict[str, str] = {
    "timeout": "server did not answer in time",
    "reset": "connection lost",
    "refused": "server refuses connections",
    "unreachable": "server cannot be reached",
    "malformed": "server sent a malformed reply",
    "empty": "server sent an empty reply",
    "descriptors": "out of file descriptors",
    "final": "request failed",
}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off with full jitter, bounded in number and in sum.

    A server that has never answered this client gets `unproven_retries` within about 3 s, so that a dead address or
    a web page in place of an API is said soon; one that has answered before is being restarted, and gets them all.
    """

    max_retries: int = 10
    base_s: float = 0.5
    cap_s: float = 30.0
    total_s: float = 300.0  # of waiting, for one request
    timeout_retries: int = 3  # each may cost `timeout_s`
    odd_retries: int = 5  # malformed and empty replies: what is not mended by then is the server's way
    unproven_retries: int = 3

    def delay_s(
        self, fault: Fault, tries: int, waited_s: float, proven: bool, share: float | None = None
    ) -> float | None:
        """Seconds to wait before the next attempt, or `None`: give up. `share` in [0, 1] is the jitter."""
        share = random.random() if share is None else share
        if fault.kind == "final" or tries > self.max_retries:
            return None
        if tries > {"timeout": self.timeout_retries, "malformed": self.odd_retries, "empty": self.odd_retries}.get(
            fault.kind, self.max_retries
        ):
            return None
        if not proven and fault.kind in ("refused", "unreachable", "malformed", "empty"):
            allowed = min(1, self.unproven_retries) if fault.kind == "unreachable" else self.unproven_retries
            return self.base_s * (0.5 + tries / 2) if tries <= allowed else None
        if fault.soft and tries == 1:
            return 0.0
        if fault.retry_after_s:
            delay = fault.retry_after_s + share * min(self.base_s, fault.retry_after_s)
        else:
            delay = share * min(self.cap_s, self.base_s * 2.0 ** min(tries - 1, 30))
        return delay if waited_s + delay <= self.total_s else None


def retry_after_s(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """What `retry-after-ms` or `Retry-After` ask for, in seconds; `None` when they are absent or unreadable."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    given = headers.get("Retry-After")
    if given is None:
        return None
    if (seconds := _number(given)) is not None:
        return seconds
    try:
        date = parsedate_to_datetime(given)
    except (TypeError, ValueError):
        return None
    return max(0.0, date.timestamp() - (time.time() if now is None else now))


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and 0 <= value < float("inf") else None


def last_word(fault: Fault, url: str, tries: int) -> errors.ModelError:
    """The error that the caller gets when there are no attempts left."""
    kind: type[errors.ModelError] = errors.ModelUnavailableError
    if fault.kind == "timeout":
        kind = errors.ModelTimeoutError
    elif fault.kind == "malformed":
        kind = errors.InvalidModelResponseError
    elif fault.kind == "empty":
        kind = errors.EmptyModelResponseError
    times = "1 try" if tries == 1 else f"{tries} tries"
    asked = f" (it asked to wait {fault.retry_after_s:.0f} s)" if fault.retry_after_s else ""
    return kind(f"{url} gave no usable reply in {times}: {fault.text}{asked}{_ADVICE.get(fault.kind, '')}")


_ADVICE = {
    "refused": ". Is the server running, and is the base URL right?",
    "unreachable": ". Is the base URL right, and does a firewall or proxy stand between?",
    "timeout": ". A longer limit is `timeout_s`",
    "descriptors": ". Raise the limit with `ulimit -n`, or lower the concurrency",
}
