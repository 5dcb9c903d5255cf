"""`JudgeGuard`: whether a judge may be asked now. It keeps the budget, and a circuit breaker for a judge that is down.

The breaker opens when calls in a row fail: calls then fail at once, for a while. After that one call, the probe, goes
through. It closes the breaker, or opens it for twice as long.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from verifiers.errors import JudgeError, Side, Undecided, one_line

FAILURES_TO_OPEN = 5
PAUSE_S = 30.0
LONGEST_PAUSE_S = 300.0


class BudgetUsedUp(Undecided):
    def __init__(self, reason: str = "", side: Side = "judge") -> None:
        super().__init__(reason, side)


class JudgeGuard:
    """Every call passes `admit`, then one of `succeeded`, `failed` and `abandoned`.

    >>> guard = JudgeGuard(max_calls=1)
    >>> guard.admit(); guard.succeeded(tokens=12)
    >>> guard.admit()
    Traceback (most recent call last):
    verifiers.rubrics.judge_guard.BudgetUsedUp: the judge's budget of 1 calls is used up
    """

    def __init__(
        self,
        *,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        failures_to_open: int = FAILURES_TO_OPEN,
        pause_s: float = PAUSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`None`: no limit. Calls in flight when the tokens are used up are still paid."""
        self.max_calls, self.max_tokens = max_calls, max_tokens
        self.failures_to_open, self.pause_s = failures_to_open, pause_s
        self.calls = 0
        self.tokens = 0
        self._clock = clock
        self._failures = 0  # in a row
        self._last_failure = ""
        self._probes_failed = 0  # in a row
        self._open_until: float | None = None  # None: closed
        self._is_probing = False

    @property
    def is_open(self) -> bool:
        return self._open_until is not None

    def admit(self) -> None:
        """Counts a call that is about to be made. Raises BudgetUsedUp, and JudgeError while the judge is down."""
        if self.max_calls is not None and self.calls >= self.max_calls:
            raise BudgetUsedUp(f"the judge's budget of {self.max_calls} calls is used up")
        if self.max_tokens is not None and self.tokens >= self.max_tokens:
            raise BudgetUsedUp(f"the judge's budget of {self.max_tokens} tokens is used up")
        if self._open_until is not None:
            wait_s = self._open_until - self._clock()
            if wait_s > 0 or self._is_probing:
                when = f"in {wait_s:.0f} s" if wait_s > 0 else "when the call that tries it again has ended"
                raise JudgeError(
                    f"the judge is not asked, {self._failures} calls in a row failed; the next goes out {when}. "
                    f"The last failure: {self._last_failure}"
                )
            self._is_probing = True
        self.calls += 1

    def succeeded(self, tokens: int = 0) -> None:
        """The judge answered, if only to say that it will not have this one request."""
        self.tokens += tokens
        self._failures, self._open_until, self._is_probing = 0, None, False
        self._probes_failed = 0

    def failed(self, error: BaseException) -> None:
        self._failures += 1
        self._last_failure = one_line(error, 300)
        was_probe, self._is_probing = self._is_probing, False
        if was_probe or (self._open_until is None and self._failures >= self.failures_to_open):
            self._probes_failed += was_probe
            self._open_until = self._clock() + min(self.pause_s * 2**self._probes_failed, LONGEST_PAUSE_S)

    def abandoned(self) -> None:
        """The call was cancelled: it says nothing about the judge."""
        self._is_probing = False
