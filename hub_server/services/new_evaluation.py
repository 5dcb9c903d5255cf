"""`NewEvaluation`: what a client says of a run before its samples follow, checked at the door."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from hub_server.errors import BadRequest
from hub_server.services.secrets_in import refuse_hub_secrets
from verifiers.records import content_hash

Visibility = Literal["private", "project", "public"]
VISIBILITIES: tuple[Visibility, ...] = ("private", "project", "public")

# Of a run's metadata.json. Command lines, host names, addresses of model servers and git states are nobody's business.
KEPT_OF_RUN = (
    "env_args", "sampling_args", "num_examples", "rollouts_per_example", "seed", "rows_hash", "date", "time",
    "version_info", "tokens", "ungraded",
)  # fmt: skip
MAX_RUN_BYTES = 64 << 10
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_KEY = re.compile(r"[\x21-\x7e]{8,128}")
_WHEEL = re.compile(r"(?:files:|source:)?[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvaluation:
    """What a client says of a run before its samples follow."""

    idempotency_key: str  # 8 to 128 characters, chosen by the client: a repeated create finds the first one's
    model: str
    version: str | None = None  # of the environment; None only for a dirty run
    wheel_sha256: str | None = None  # `EnvInfo.wheel_sha256`: of the wheel, or `files:…`
    dirty: bool = False
    name: str = ""
    library_version: str = ""
    visibility: Visibility = "private"
    pass_threshold: float | None = None  # None: what `run` says, else 0.5
    run: dict[str, Any] = field(default_factory=dict[str, Any])  # the run's metadata.json


def check_new(new: NewEvaluation) -> None:
    """Raises BadRequest for what is wrong in itself."""
    if not _KEY.fullmatch(new.idempotency_key):
        raise BadRequest("idempotency_key: 8 to 128 visible ASCII characters, the same whenever this run is pushed")
    if new.visibility not in VISIBILITIES:
        raise BadRequest(f"visibility is one of {', '.join(VISIBILITIES)}, not '{new.visibility}'")
    for key, limit in {"model": 200, "name": 200, "library_version": 40, "version": 64}.items():
        text: str = getattr(new, key) or ""
        if len(text) > limit or _CONTROL.search(text) or not _is_text(text):
            raise BadRequest(f"{key}: at most {limit} characters on one line, all of them valid")
    if not new.model.strip():
        raise BadRequest("model: the name of the model is missing")
    if new.wheel_sha256 is not None and not _WHEEL.fullmatch(new.wheel_sha256):
        raise BadRequest("wheel_sha256: 64 hexadecimal digits, after 'files:' or 'source:' where no wheel is known")
    if not -1e300 < threshold_of(new) < 1e300:
        raise BadRequest("pass_threshold: a finite number")


def threshold_of(new: NewEvaluation) -> float:
    """The reward with which a try passes."""
    told: Any = new.run.get("pass_threshold") if new.pass_threshold is None else new.pass_threshold
    return told if isinstance(told, int | float) and not isinstance(told, bool) else 0.5


def kept_of_run(new: NewEvaluation) -> dict[str, Any]:
    """The part of a run's metadata.json that is kept, as JSON gives it back."""
    try:
        kept = msgspec.json.encode({key: new.run[key] for key in KEPT_OF_RUN if key in new.run})
    except (ValueError, TypeError, RecursionError) as error:
        raise BadRequest(f"run: cannot be kept as JSON: {error}") from None
    if len(kept) > MAX_RUN_BYTES:
        raise BadRequest(f"run: {len(kept)} bytes of metadata; up to {MAX_RUN_BYTES} are kept")
    refuse_hub_secrets(kept + f"{new.name} {new.model}".encode(), "the run's metadata")
    return msgspec.json.decode(kept)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return True


def setup_of(env_args: Any) -> str:
    """Runs with other arguments of `load_environment` answer other questions: they are not ranked together."""
    return content_hash(env_args) if env_args else ""
