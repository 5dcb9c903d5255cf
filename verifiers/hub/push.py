"""`push`: a saved run becomes an evaluation on a hub, which computes its figures anew from the samples.

Pushing twice is pushing once: the run has a key of its own, and samples that arrived are passed over. What is sent is
what was saved, in which secrets are redacted already.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from verifiers.errors import ResultsError, SetupError
from verifiers.hub.client import HubClient
from verifiers.records import content_hash, encode_record, read_records, without_answers
from verifiers.refs import EnvRef
from verifiers.results import RESULTS
from verifiers.run_metadata import METADATA, SavedRun, read_metadata

Visibility = Literal["private", "project", "public"]
Progress = Callable[[int, int | None], None]

REQUEST_BYTES = 8 << 20  # of lines, before gzip; a lost connection costs that much again
# Of metadata.json, what the hub keeps. The rest stays here: where and by whom it was run, and sentences of graders,
# which may quote questions and answers.
DESCRIBED = (
    "env_args", "sampling_args", "num_examples", "rollouts_per_example", "seed", "rows_hash", "date", "time",
    "version_info", "tokens", "ungraded", "pass_threshold",
)  # fmt: skip
# Of metadata.json: what the hub computes too, and refuses where the samples say otherwise.
CLAIMED = ("avg_reward", "avg_metrics", "pass_at_k", "pass_all_k")


@dataclass(frozen=True, slots=True)
class Pushed:
    id: str
    environment: str  # owner/name
    version: str | None  # None: an edited copy was run, or an unpublished one
    dirty: bool
    url: str
    n_samples: int
    n_withheld: int
    mean_reward: float | None
    lower_bound: float | None


def push(
    client: HubClient,
    folder: Path,
    *,
    environment: str | None = None,
    visibility: Visibility = "private",
    name: str = "",
    dirty: bool = False,
    progress: Progress = lambda done, total: None,
) -> Pushed:
    """Sends the run in `folder`. `environment`: `owner/name`, when the run does not tell whose it was.

    `dirty`: the run is pushed as one of an edited or unpublished copy even if its wheel is known. Raises ResultsError
    for a folder without a run, SetupError when the owner is unknown, HubError when the hub refuses.
    """
    run = read_metadata(folder)
    owner, project = _whose(run, environment)
    withholds = bool(client.get("projects", owner, project).get("publish_answers") is False)
    dirty = dirty or bool(run.env.dirty) or (run.env.wheel_sha256 or "source:").startswith("source:")
    begun = client.call(
        "POST",
        "projects",
        owner,
        project,
        "evaluations",
        json={
            "idempotency_key": idempotency_key(run),
            "model": run.model,
            "version": run.env.version,
            "wheel_sha256": run.env.wheel_sha256,
            "dirty": dirty,
            "name": name,
            "library_version": (run.version_info.get("vf_version") or "")[:40],
            "visibility": visibility,
            "run": _sent_of_run(folder),
        },
        again=True,
    )
    n_withheld = 0
    if begun["state"] == "open":
        n_withheld = _send_samples(client, folder, begun["id"], run, withholds, progress)
        begun = client.call(
            "POST", "evaluations", begun["id"], "complete", json={"metrics": _claims(folder)}, again=True
        )
    return Pushed(
        id=begun["id"],
        environment=f"{owner}/{project}",
        version=begun["version"],
        dirty=begun["dirty"],
        url=f"{client.url}/evaluations/{begun['id']}",
        n_samples=begun["n_samples"],
        n_withheld=n_withheld,
        mean_reward=begun["mean_reward"],
        lower_bound=begun["lower_bound"],
    )


def idempotency_key(run: SavedRun) -> str:
    """The same for one run whenever it is pushed, another one for any other run, or when the run has gone on since."""
    started = run.parts[0].started if run.parts else run.date
    pid = run.parts[0].pid if run.parts else 0
    told = [run.env_id, run.model, run.env_args, run.sampling_args, run.seed, run.rows_hash, started, pid, run.counts]
    return f"run-{content_hash(told)}"


def _whose(run: SavedRun, environment: str | None) -> tuple[str, str]:
    ref = EnvRef.parse(environment) if environment else EnvRef(run.env.name, run.env.owner)
    if ref.owner is None:
        raise SetupError(
            f"this run of '{run.env.name}' does not say whose environment it was (it was not installed from a hub). "
            f"Name it: --env OWNER/{run.env.name}"
        )
    return ref.owner, ref.name


def _send_samples(
    client: HubClient, folder: Path, evaluation: str, run: SavedRun, withholds: bool, progress: Progress
) -> int:
    total, done, withheld = run.counts.get("finished"), 0, 0
    for lines, count in _batches(folder, withholds):
        body = gzip.compress(lines, compresslevel=6, mtime=0)
        answer = client.call(
            "POST",
            "evaluations",
            evaluation,
            "samples",
            content=lambda body=body: iter([body]),
            headers={
                "Content-Type": "application/x-ndjson",
                "Content-Encoding": "gzip",
                "Content-Length": str(len(body)),
            },
            again=True,
        )
        done += count
        withheld += count if withholds else answer["n_withheld"]
        progress(done, total)
    if not done:
        raise ResultsError(f"{folder} holds no finished rollout: there is nothing to push")
    return withheld


def _batches(folder: Path, withholds: bool) -> Iterator[tuple[bytes, int]]:
    """Lines of about REQUEST_BYTES together, and how many; the file is never held as a whole.

    A rollout that was run again after a failure has two lines; the last one counts.
    """
    last = {record.key: number for number, record in enumerate(read_records(folder / RESULTS))}
    held: list[bytes] = []
    size = 0
    for number, record in enumerate(read_records(folder / RESULTS)):
        if last[record.key] != number:
            continue
        line = encode_record(without_answers(record) if withholds else record).rstrip(b"\n")
        held.append(line)
        size += len(line) + 1
        if size >= REQUEST_BYTES:
            yield b"\n".join(held) + b"\n", len(held)
            held, size = [], 0
    if held:
        yield b"\n".join(held) + b"\n", len(held)


def _metadata(folder: Path) -> dict[str, Any]:
    return json.loads((folder / METADATA).read_text("utf-8"))


def _sent_of_run(folder: Path) -> dict[str, Any]:
    found = _metadata(folder)
    return {name: found[name] for name in DESCRIBED if name in found}


def _claims(folder: Path) -> dict[str, Any]:
    found = _metadata(folder)
    return {name: found[name] for name in CLAIMED if found.get(name) is not None}
