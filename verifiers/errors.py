"""The error tree: what can go wrong, and which side it went wrong on.

    Error                               whatever ends one rollout, and is recorded there
    ├── ModelError                      side "model"
    │   ├── InvalidModelResponseError   a reply that is no reply: HTML, torn JSON, no choices
    │   │   └── EmptyModelResponseError
    │   ├── ModelTimeoutError           also TimeoutError
    │   ├── ModelUnavailableError       refused, reset, 429 or 5xx after every retry; also ConnectionError
    │   └── ModelRequestError           the server understood us and said no (4xx)
    │       ├── AuthenticationError     401, 403: hopeless for every other rollout too
    │       └── ModelNotFoundError      404: the same; also LookupError
    ├── OverlongPromptError             the context is full: a stop condition, not a failure
    ├── ToolError                       side "tool"
    │   ├── ToolParseError
    │   └── ToolCallError
    ├── InfraError                      side "sandbox"
    │   ├── SandboxError
    │   │   ├── BrowserSandboxError
    │   │   └── NoSandboxError          none can be had here for what is asked; also SetupError, and ends the run
    │   └── TunnelError
    ├── EnvironmentFault                side "environment": author code raised
    ├── RewardFault                     side "reward": a reward function raised or returned no number
    └── JudgeError                      side "judge"
    Undecided                           a reward function's honest "cannot tell"; no failure
    SetupError                          nothing was run: the command's or caller's input is wrong (exit 3)
    ├── EnvironmentNotFound             also LookupError
    ├── EnvironmentLoadError            also RuntimeError
    ├── DatasetError                    also ValueError
    ├── MissingKeyError                 also ValueError
    ├── ConfigError                     also ValueError
    ├── ResultsError                    a folder that cannot be written or resumed; also RuntimeError
    └── NotHere                         a classic name that has no code behind it here; also NotImplementedError

To add one: it needs a caller who would treat it differently. All of them pickle.
"""

from __future__ import annotations

from typing import Literal

Side = Literal["model", "environment", "tool", "reward", "judge", "sandbox"]


class Error(Exception):
    """Ends one rollout. Its siblings go on, and the rollout's record keeps `side`, type and message."""

    side: Side = "environment"


class ModelError(Error):
    side: Side = "model"


class InvalidModelResponseError(ModelError):
    pass


class EmptyModelResponseError(InvalidModelResponseError):
    pass


class ModelTimeoutError(ModelError, TimeoutError):
    pass


class ModelUnavailableError(ModelError, ConnectionError):
    pass


class ModelRequestError(ModelError):
    pass


class AuthenticationError(ModelRequestError):
    pass


class ModelNotFoundError(ModelRequestError, LookupError):
    pass


class OverlongPromptError(Error):
    side: Side = "model"


class ToolError(Error):
    side: Side = "tool"


class ToolParseError(ToolError):
    pass


class ToolCallError(ToolError):
    pass


class InfraError(Error):
    side: Side = "sandbox"


class SandboxError(InfraError):
    pass


class BrowserSandboxError(SandboxError):
    pass


class TunnelError(InfraError):
    pass


class EnvironmentFault(Error):
    side: Side = "environment"


class RewardFault(Error):
    side: Side = "reward"


class JudgeError(Error):
    side: Side = "judge"


class Undecided(Exception):
    """Raised by a reward function that cannot tell: the score is `None` with status `undecided`, never 0.0."""

    side: Side = "reward"

    def __init__(self, reason: str = "", side: Side = "reward") -> None:
        super().__init__(reason)
        self.reason = reason
        self.side = side

    def __reduce__(self) -> tuple[type[Undecided], tuple[str, str]]:
        return type(self), (self.reason, self.side)


class SetupError(Exception):
    """Nothing ran; the message says what to change."""


class NoSandboxError(SandboxError, SetupError):
    pass


class EnvironmentNotFound(SetupError, LookupError):
    pass


class EnvironmentLoadError(SetupError, RuntimeError):
    pass


class DatasetError(SetupError, ValueError):
    pass


class MissingKeyError(SetupError, ValueError):
    """Named environment variables are not set."""

    def __init__(self, missing_keys: list[str] | str) -> None:
        self.missing_keys = [missing_keys] if isinstance(missing_keys, str) else list(missing_keys)
        super().__init__(self.missing_keys)

    def __str__(self) -> str:
        names = ", ".join(self.missing_keys)
        return (
            f"not set in the environment: {names}. Try: export {self.missing_keys[0]}=…"
            if names
            else "a key is missing"
        )


class ConfigError(SetupError, ValueError):
    pass


class ResultsError(SetupError, RuntimeError):
    pass


class NotHere(SetupError, NotImplementedError):
    pass


def side_of(error: BaseException) -> Side:
    """The side that failed; author code that raises something of its own counts as the environment."""
    return getattr(error, "side", "environment")


def one_line(error: BaseException, limit: int = 500) -> str:
    """`Type: message` on one line, cut to `limit` characters."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    text = f"{name}: {text}" if text else name
    return text if len(text) <= limit else text[: limit - 1] + "…"
