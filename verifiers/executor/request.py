"""`GroupRequest`: one group of rollouts to be run, as it travels to whoever runs it.

It holds all that a worker needs beyond the environment package itself: its row too, so that no worker keeps a second
copy of the dataset. Requests and records travel as msgpack, to a process and to Ray alike; nothing is pickled.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, Protocol

import msgspec

from verifiers.clients.endpoint import Endpoint
from verifiers.records import RolloutRecord, content_hash


class EnvSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to make an environment: `load_environment(env_id, **env_args)`. Equal specs share workers."""

    env_id: str
    env_args: dict[str, Any] = {}
    settings: dict[str, Any] = {}  # for its `set_kwargs`, such as max_seq_len
    version: str | None = None  # that must be installed where it runs; None: any
    python: str | None = None  # the interpreter that has it; None: the one that is running
    keys: list[str] = []  # environment variables that its code may read; a worker is given no others of ours

    @property
    def hash(self) -> str:
        """16 hex digits, equal for equal specs."""
        return content_hash(msgspec.to_builtins(self))


class RowsRequest(msgspec.Struct, frozen=True, kw_only=True, tag="rows"):
    """The environment's rows, for whoever cannot load it himself: it may live in another interpreter."""

    split: Literal["train", "eval"] = "train"
    n: int = -1  # the first n; -1: all
    seed: int | None = None  # shuffles first


class EnvRows(msgspec.Struct, frozen=True, kw_only=True):
    """What an environment has to be rolled out."""

    rows: list[dict[str, Any]]  # formatted, each with its `example_id`
    scored_together: bool  # a reward function compares the tries of an example (`rubric.needs_group`)


class GroupRequest(msgspec.Struct, frozen=True, kw_only=True, tag="group"):
    """`tries` rollouts of one row, numbered from `first_try`, scored together where the rubric wants that."""

    spec: EnvSpec
    row: dict[str, Any]  # a `RolloutInput`, `example_id` in it
    group_id: str
    tries: int
    endpoint: Endpoint
    model: str
    sampling: dict[str, Any] = {}
    first_try: int = 0
    seed: int = 0  # of the run; a try's own seed follows from it, the example and the try's number
    max_retries: int = 0  # of a whole rollout, after failures that another try may not meet
    rollout_timeout_s: float | None = None
    score: bool = True
    state_columns: list[str] = []
    rows_hash: str | None = None  # over the rows of the whole run, for the records
    prices: tuple[float, float] | None = None  # money for a million tokens in and out, for the records


def sealed(request: GroupRequest) -> GroupRequest:
    """The request with its endpoint's key in it, since a worker does not see the variable that holds the key."""
    return msgspec.structs.replace(request, endpoint=_with_key(request.endpoint))


def _with_key(endpoint: Endpoint) -> Endpoint:
    replicas = tuple(_with_key(replica) for replica in endpoint.replicas)
    return replace(endpoint, api_key=endpoint.key(), api_key_var=None, replicas=replicas)


class RolloutExecutor(Protocol):
    """Runs groups. Any number may be in flight; how many is up to the caller."""

    async def run_group(self, request: GroupRequest) -> list[RolloutRecord]:
        """The records in the order of the tries, token traces in them.

        A rollout that failed is a record that says so. Raises what concerns every group of the spec (the environment
        cannot be loaded, a wrong key, an unknown model). Cancelling it ends the rollouts, clean-up included.
        """
        ...

    async def rows(self, spec: EnvSpec, request: RowsRequest) -> EnvRows:
        """The environment's rows. Raises SetupError when it cannot be loaded or has none."""
        ...

    async def close(self) -> None:
        """Ends what is in flight and all workers."""
        ...
