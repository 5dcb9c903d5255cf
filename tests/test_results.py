"""The folder of a run: nothing reported as saved is lost, nothing is mixed up with another run, no secret is in it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from verifiers.errors import ResultsError
from verifiers.line_file import LineFile
from verifiers.records import EnvInfo, ModelInfo, RolloutRecord, TokenTrace, TokenUsage, Turn, encode_record
from verifiers.results import (
    Pending,
    ResultsStore,
    RunConfig,
    default_folder,
    find_resumable,
    load_results,
    row_hashes,
)
from verifiers.types import AssistantMessage

KEY = 'sk-"quoted"\\12345678'


def rows(count: int) -> list[dict]:
    return [{"prompt": [{"role": "user", "content": f"{i}?"}], "answer": str(i)} for i in range(count)]


def config(examples: int = 3, **changes) -> RunConfig:
    base = {
        "env_id": "demo",
        "env": EnvInfo(name="demo", version="0.1.0", dirty=False),
        "model": "org/model",
        "row_hashes": row_hashes(rows(examples)),
        "env_args": {"level": 1},
        "base_url": "https://host/v1",
        "sampling_args": {"temperature": 0.5},
        "rollouts_per_example": 1,
        "seed": 0,
    }
    return RunConfig(**{**base, **changes})


def record(example_id: int, rollout_index: int = 0, **changes) -> RolloutRecord:
    base = {
        "env": EnvInfo(name="demo"),
        "model": ModelInfo(name="org/model"),
        "prompt": [{"role": "user", "content": f"{example_id}?"}],
        "messages": [{"role": "assistant", "content": "x" * 50}],
        "reward": 1.0,
        "status": "scored",
        "usage": TokenUsage(prompt=10, completion=5),
    }
    return RolloutRecord(example_id=example_id, rollout_index=rollout_index, **{**base, **changes})


def failed(example_id: int) -> RolloutRecord:
    return record(example_id, status="failed", reward=None)


def metadata(folder: Path) -> dict:
    return json.loads((folder / "metadata.json").read_bytes())


def run(folder: Path, records, settings: RunConfig | None = None, **options) -> Path:
    """A whole run: appended, finished, closed."""
    with ResultsStore.create(folder, settings or config(), **options) as store:
        for value in records:
            store.append(value)
        store.finish({"avg_reward": 1.0})
    return folder


# --- what is written


def test_a_record_is_in_the_file_when_append_returns(tmp_path):
    with ResultsStore.create(tmp_path, config()) as store:
        store.append(record(0))
        assert (tmp_path / "results.jsonl").read_bytes() == encode_record(record(0)) + b"\n"
        assert load_results(tmp_path) == [record(0)]


def test_a_finished_run_says_what_it_was(tmp_path):
    settings = config(command=["vf-eval", "demo"], library_version="1.0.0", state_columns=["board"])
    run(tmp_path, [record(i) for i in range(3)], settings)
    saved = metadata(tmp_path)
    expected = {
        "schema_version": 1,
        "status": "done",
        "env_id": "demo",
        "env": {"name": "demo", "version": "0.1.0", "dirty": False},
        "env_args": {"level": 1},
        "model": "org/model",
        "base_url": "https://host/v1",
        "num_examples": 3,
        "rollouts_per_example": 1,
        "sampling_args": {"temperature": 0.5},
        "seed": 0,
        "state_columns": ["board"],
        "avg_reward": 1.0,
        "tokens": {"prompt": 30, "completion": 15, "reasoning": None, "cost": None},
        "counts": {"total": 3, "finished": 3, "failed": 0, "scored": 3, "pending": 0},
    }
    assert {key: saved[key] for key in expected} == expected
    (part,) = saved["parts"]
    assert (part["command"], part["library_version"], part["rollouts"]) == (["vf-eval", "demo"], "1.0.0", 3)
    assert part["started"] <= part["ended"] and part["python_version"] == sys.version.split()[0]
    assert saved["time"] == part["seconds"]


def test_the_commit_of_the_working_directory_is_kept(tmp_path, monkeypatch):
    repository = tmp_path / "repository"
    repository.mkdir()
    monkeypatch.chdir(repository)
    for command in ("init -q", "-c user.name=a -c user.email=a@b commit -q --allow-empty -m one"):
        subprocess.run(["git", *command.split()], check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    run(tmp_path / "run", [])
    assert metadata(tmp_path / "run")["parts"][0]["git"] == {"commit": head, "dirty": False}


def test_a_run_is_marked_running_until_it_ends(tmp_path):
    with ResultsStore.create(tmp_path, config()):
        assert metadata(tmp_path)["status"] == "running"
    assert metadata(tmp_path)["status"] == "interrupted"


def test_a_run_that_breaks_is_marked_failed(tmp_path):
    with pytest.raises(ZeroDivisionError), ResultsStore.create(tmp_path, config()):
        raise ZeroDivisionError
    assert metadata(tmp_path)["status"] == "failed"


def test_metadata_is_refreshed_while_the_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("verifiers.results.SYNC_EVERY_S", 0.02)
    monkeypatch.setattr("verifiers.results.METADATA_EVERY_S", 0.02)
    with ResultsStore.create(tmp_path, config()) as store:
        store.append(record(0))
        deadline = time.monotonic() + 60
        while metadata(tmp_path)["counts"]["finished"] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_token_traces_are_saved_only_on_demand(tmp_path):
    turn = Turn(start=0, end=1, tokens=TokenTrace.of([1, 2], [3], [-0.5]))
    traced = record(0, turns=[turn])
    run(tmp_path / "with", [traced], save_tokens=True)
    run(tmp_path / "without", [traced])
    assert load_results(tmp_path / "with", tokens=True) == [traced]
    assert load_results(tmp_path / "with")[0].turns[0].tokens is None
    assert not (tmp_path / "without" / "results.tokens.jsonl").exists()


def test_values_that_json_cannot_hold_do_not_lose_the_rollout(tmp_path):
    odd = record(0, info={"f": len, "half": "\ud800", "nested": [{1, 2}]}, turns=[Turn(start=0, end=1)])
    with ResultsStore.create(tmp_path, config()) as store:
        store.append(odd)
        assert ["saved as text" in note for note in store.notes] == [True]
    (found,) = load_results(tmp_path)
    assert found.info == {"f": "<built-in function len>", "half": "?", "nested": [[1, 2]]}
    assert (found.messages, found.turns) == (odd.messages, odd.turns)


def test_a_pending_record_is_no_result(tmp_path):
    with ResultsStore.create(tmp_path, config()) as store, pytest.raises(ValueError, match="journal"):
        store.append(record(0, status="pending", reward=None))


# --- resume


def test_resume_finds_what_was_finished_and_goes_on(tmp_path):
    with ResultsStore.create(tmp_path, config()) as store:
        store.append(record(1))
        store.append(record(0))
    with ResultsStore.resume(tmp_path, config()) as store:
        assert store.finished == [record(0), record(1)]
        assert store.notes == []
        store.append(record(2))
        store.finish({})
    saved = metadata(tmp_path)
    assert saved["status"] == "done"
    assert [part["rollouts"] for part in saved["parts"]] == [2, 1]
    assert saved["tokens"]["prompt"] == 30
    assert saved["time"] == pytest.approx(sum(part["seconds"] for part in saved["parts"]))


def test_a_finished_run_resumes_to_nothing_to_do(tmp_path):
    run(tmp_path, [record(i) for i in range(3)])
    before = (tmp_path / "results.jsonl").read_bytes()
    with ResultsStore.resume(tmp_path, config()) as store:
        assert len(store.finished) == 3 and store.pending == {}
        store.finish({"avg_reward": 1.0})
    assert (tmp_path / "results.jsonl").read_bytes() == before
    assert metadata(tmp_path)["status"] == "done"


def test_a_failed_rollout_is_run_again_and_its_new_record_counts(tmp_path):
    run(tmp_path, [record(0), failed(1), record(2)])
    assert metadata(tmp_path)["counts"]["failed"] == 1
    with ResultsStore.resume(tmp_path, config()) as store:
        assert [found.example_id for found in store.finished] == [0, 2]
        store.append(record(1))
        store.finish({})
    assert load_results(tmp_path) == [record(0), record(1), record(2)]
    saved = metadata(tmp_path)
    assert (saved["counts"]["finished"], saved["counts"]["failed"]) == (3, 0)
    assert saved["tokens"]["prompt"] == 40  # the failed one was paid for too
    with ResultsStore.resume(tmp_path, config()) as store:
        assert store.notes == []


def test_of_a_rollout_that_is_there_twice_the_last_record_counts(tmp_path):
    run(tmp_path, [record(0), record(0, reward=0.25)])
    assert [found.reward for found in load_results(tmp_path)] == [0.25]
    with ResultsStore.resume(tmp_path, config()) as store:
        assert [found.reward for found in store.finished] == [0.25]
        assert ["more than once" in note for note in store.notes] == [True]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"env": EnvInfo(name="other", version="0.1.0")}, "environment: saved 'demo', now 'other'"),
        ({"env": EnvInfo(name="demo", version="0.2.0")}, "environment version: saved '0.1.0', now '0.2.0'"),
        ({"model": "org/other"}, "model: saved 'org/model', now 'org/other'"),
        ({"env_args": {"level": 2}}, "env_args.level: saved 1, now 2"),
        ({"env_args": {"level": 1, "hard": True}}, "env_args.hard: saved not given, now True"),
        ({"sampling_args": {"temperature": 1.0}}, "sampling_args.temperature: saved 0.5, now 1.0"),
        ({"sampling_args": {}}, "sampling_args.temperature: saved 0.5, now not given"),
        ({"rollouts_per_example": 4}, "rollouts_per_example: saved 1, now 4"),
        ({"seed": 7}, "seed: saved 0, now 7"),
        ({"row_hashes": row_hashes(rows(2))}, "num_examples: saved 3, now 2"),
        ({"row_hashes": row_hashes(reversed(rows(3)))}, "hash of the first 3 rows: saved "),
    ],
)
def test_another_configuration_is_refused_and_named(tmp_path, change, named):
    run(tmp_path, [record(0)])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ResultsError) as refused:
        ResultsStore.resume(tmp_path, config(**change))
    assert named in str(refused.value) and str(refused.value).count(": saved ") == 1
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_every_differing_key_is_named_at_once(tmp_path):
    run(tmp_path, [])
    with pytest.raises(ResultsError, match=r"model: .*; seed: .*Use the saved values, or start a new run"):
        ResultsStore.resume(tmp_path, config(model="m", seed=1))


def test_a_run_may_grow_when_it_begins_with_the_same_rows(tmp_path):
    run(tmp_path, [record(i) for i in range(3)])
    with ResultsStore.resume(tmp_path, config(5)) as store:
        assert len(store.finished) == 3
    assert metadata(tmp_path)["num_examples"] == 5
    longer_but_other = row_hashes([*rows(4), {"prompt": "new"}, {"prompt": "rows"}])
    with pytest.raises(ResultsError, match="first 5 rows"):
        ResultsStore.resume(tmp_path, config(row_hashes=longer_but_other))


def test_harmless_differences_are_noted(tmp_path):
    run(tmp_path, [record(0)], config(library_version="1.0.0"))
    later = config(
        library_version="1.1.0",
        base_url="https://other/v1",
        env=EnvInfo(name="demo", version="0.1.0", dirty=True),
    )
    with ResultsStore.resume(tmp_path, later) as store:
        assert [note.split(" differs: ")[0] for note in store.notes] == [
            "library version",
            "uncommitted changes in the environment",
            "base_url",
        ]


def test_a_local_server_on_another_port_is_not_worth_a_note(tmp_path):
    run(tmp_path, [], config(base_url="http://127.0.0.1:5000/v1"))
    with ResultsStore.resume(tmp_path, config(base_url="http://127.0.0.1:6000/v1")) as store:
        assert store.notes == []


@pytest.mark.parametrize("torn", [b'{"env":{"na', b"\0\0\0", b"x" * 200_000])
def test_a_torn_last_line_is_dropped_with_a_note(tmp_path, torn):
    run(tmp_path, [record(0)])
    whole = (tmp_path / "results.jsonl").read_bytes()
    (tmp_path / "results.jsonl").write_bytes(whole + torn)
    assert load_results(tmp_path) == [record(0)]
    with ResultsStore.resume(tmp_path, config()) as store:
        assert store.notes == [f"results.jsonl: dropped a half-written last line of {len(torn)} bytes"]
        assert (tmp_path / "results.jsonl").read_bytes() == whole
        store.append(record(1))
    assert load_results(tmp_path) == [record(0), record(1)]


def test_damage_in_the_middle_is_refused_with_its_line(tmp_path):
    run(tmp_path, [record(0), record(1)])
    path = tmp_path / "results.jsonl"
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + b'{"env": 3}\n' + second)
    before = path.read_bytes()
    for read in (lambda: ResultsStore.resume(tmp_path, config()), lambda: load_results(tmp_path)):
        with pytest.raises(ResultsError, match=r"results\.jsonl, line 2 cannot be read .*delete that line"):
            read()
    assert path.read_bytes() == before


def test_a_folder_without_a_run_cannot_be_resumed(tmp_path):
    with pytest.raises(ResultsError, match=r"no run to resume in .*no metadata\.json"):
        ResultsStore.resume(tmp_path / "nothing", config())
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "metadata.json").write_text('{"env_id": "demo"}')
    with pytest.raises(ResultsError, match="not written by this library"):
        ResultsStore.resume(tmp_path, config())


# --- groups


def test_a_journalled_rollout_comes_back_with_its_state(tmp_path):
    turn = Turn(start=0, end=1, tokens=TokenTrace.of([1], [2], [-0.5]))
    waiting = record(0, status="pending", reward=None, turns=[turn])
    extra = {"board": [[1, None], [0.5, "é"]], "seen": {"a": True}}
    with ResultsStore.create(tmp_path, config(rollouts_per_example=2), save_tokens=True) as store:
        store.journal(waiting, extra)
    assert metadata(tmp_path)["counts"]["pending"] == 1
    with ResultsStore.resume(tmp_path, config(rollouts_per_example=2), save_tokens=True) as store:
        assert store.pending == {(0, 0): Pending(waiting, extra)}
        assert store.finished == []
        store.append(record(0))
    assert not (tmp_path / "journal.jsonl").exists()


def test_the_journal_goes_when_all_are_scored(tmp_path):
    with ResultsStore.create(tmp_path, config()) as store:
        store.journal(record(0, status="pending", reward=None), {})
        assert (tmp_path / "journal.jsonl").stat().st_size > 0
        store.append(record(0))
        store.finish({})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metadata.json", "results.jsonl"]


def test_a_long_journal_is_emptied_during_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("verifiers.results.JOURNAL_KEPT_BYTES", 100)
    with ResultsStore.create(tmp_path, config()) as store:
        for example_id in range(2):
            store.journal(record(example_id, status="pending", reward=None), {})
        store.append(record(0))
        assert (tmp_path / "journal.jsonl").stat().st_size > 0
        store.append(record(1))
        assert (tmp_path / "journal.jsonl").stat().st_size == 0
        store.journal(record(2, status="pending", reward=None), {"k": 1})
    with ResultsStore.resume(tmp_path, config()) as store:
        assert list(store.pending) == [(2, 0)]


@pytest.mark.parametrize(
    "value",
    [(1, 2), {1: 2}, {3}, float("nan"), 2**70, "\ud800", AssistantMessage(content="hi"), object(), [[{"a": b"x"}]]],
    ids=["tuple", "int keys", "set", "nan", "huge", "surrogate", "message", "object", "nested bytes"],
)
def test_state_that_json_would_change_is_not_resumed(tmp_path, value):
    with ResultsStore.create(tmp_path, config()) as store:
        store.journal(record(0, status="pending", reward=None), {"fine": 1, "odd": value})
    (entry,) = map(json.loads, (tmp_path / "journal.jsonl").read_bytes().splitlines())
    assert (entry["resumable"], entry["lost"], entry["extra"]) == (False, ["odd"], {"fine": 1})
    with ResultsStore.resume(tmp_path, config()) as store:
        assert store.pending == {}
        assert ["run again" in note for note in store.notes] == [True]


def test_state_with_a_secret_is_not_resumed_masked(tmp_path):
    with ResultsStore.create(tmp_path, config(), secrets=[KEY]) as store:
        store.journal(record(0, status="pending", reward=None), {"token": KEY})
    with ResultsStore.resume(tmp_path, config(), secrets=[KEY]) as store:
        assert store.pending == {}


def test_a_failed_rollout_that_later_waited_for_its_group_is_pending(tmp_path):
    with ResultsStore.create(tmp_path, config()) as store:
        store.append(failed(0))
        store.journal(record(0, status="pending", reward=None), {})
    with ResultsStore.resume(tmp_path, config()) as store:
        assert list(store.pending) == [(0, 0)]


def test_a_damaged_journal_line_costs_its_rollout_only(tmp_path):
    with ResultsStore.create(tmp_path, config()) as store:
        for example_id in range(2):
            store.journal(record(example_id, status="pending", reward=None), {})
    path = tmp_path / "journal.jsonl"
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first[:20] + b"\n" + second + b'{"torn')
    with ResultsStore.resume(tmp_path, config()) as store:
        assert list(store.pending) == [(1, 0)]
        assert ["line 1" in note for note in store.notes] == [True]


# --- folders


def test_a_folder_that_holds_a_run_is_not_written_into(tmp_path):
    run(tmp_path, [record(0)])
    with pytest.raises(ResultsError, match=r"already holds a run of demo with org/model .*--resume-path .* -o"):
        ResultsStore.create(tmp_path, config(model="another"))
    assert load_results(tmp_path) == [record(0)]


def test_a_second_writer_is_refused(tmp_path):
    with ResultsStore.create(tmp_path, config()) as store:
        store.append(record(0))
        for opened in (ResultsStore.create, ResultsStore.resume):
            with pytest.raises(ResultsError, match=rf"being written by another process \({os.getpid()} on "):
                opened(tmp_path, config())
        store.append(record(1))
    assert len(load_results(tmp_path)) == 2
    ResultsStore.resume(tmp_path, config()).close()


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match=r"cannot write results to .*file/run: Not a directory.* -o"):
        ResultsStore.create(tmp_path / "file" / "run", config())


@pytest.mark.parametrize(
    ("env", "model", "name"),
    [
        ("math-env", "org/model", "math-env--org--model"),
        ("owner/math", "m:7b", "owner--math--m_7b"),
        ("e", "../../etc", "e--_--..--etc"),
        ("e", "/models/x y", "e----models--x_y"),
    ],
)
def test_the_folder_is_named_after_environment_and_model(tmp_path, env, model, name):
    folder = default_folder(env, model, tmp_path)
    assert folder.parent == tmp_path / "evals" / name
    assert len(folder.name) == 8 and int(folder.name, 16) >= 0
    assert default_folder(env, model).parent == Path("outputs/evals") / name


def test_a_very_long_model_name_still_makes_a_folder(tmp_path):
    folders = {default_folder("e", "m" * 300 + tail, tmp_path).parent for tail in "ab"}
    assert len(folders) == 2
    for folder in folders:
        folder.mkdir(parents=True)


def test_the_newest_unfinished_run_of_the_same_configuration_is_found(tmp_path):
    def started(settings: RunConfig, count: int) -> Path:
        folder = run(default_folder("demo", "org/model", tmp_path), map(record, range(count)), settings)
        time.sleep(0.01)  # so that the times of the files differ
        return folder

    def found() -> Path | None:
        return find_resumable("demo", "org/model", config(), tmp_path)

    assert found() is None
    older, newer = started(config(), 1), started(config(), 2)
    started(config(), 3)  # complete
    started(config(seed=9), 1)  # another configuration
    started(config(5), 1)  # longer than asked for
    (newer.parent / "no-run").mkdir()
    assert found() == newer
    with ResultsStore.resume(newer, config()):
        assert found() == older  # the newer one is being written
    assert find_resumable("demo", "org/model", config(4), tmp_path) is not None


def test_a_run_with_failed_rollouts_is_found_for_resuming(tmp_path):
    folder = run(default_folder("demo", "org/model", tmp_path), [record(0), record(1), failed(2)])
    assert metadata(folder)["status"] == "done"
    assert find_resumable("demo", "org/model", config(), tmp_path) == folder


# --- secrets


@pytest.mark.parametrize("secret", [KEY, "sk-1234567890"])
def test_a_secret_never_reaches_the_disk(tmp_path, secret):
    settings = config(
        env_args={"key": secret, "nested": {"list": [f"Bearer {secret}"]}},
        sampling_args={"extra_headers": {"Authorization": secret}},
        base_url=f"https://user:hunter2-hunter2@host/v1?key={secret}",
        command=["vf-eval", "-a", json.dumps({"key": secret})],
    )
    arguments = json.dumps({"code": json.dumps({"key": secret})})
    leaking = record(
        0,
        messages=[{"role": "assistant", "content": secret, "tool_calls": [{"function": {"arguments": arguments}}]}],
        info={secret: 1},
    )
    store = ResultsStore.create(tmp_path, settings, secrets=[secret, None, ""], save_tokens=True)
    with store:
        store.append(leaking)
        store.journal(record(1, status="pending", reward=None), {"key": secret, secret: 1})
        store.finish({"note": f"failed with {secret}"})
    everything = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for form in (secret, json.dumps(secret)[1:-1], json.dumps(json.dumps(secret))[3:-3], "hunter2"):
        assert form.encode() not in everything
    assert load_results(tmp_path)[0].messages[0]["content"] == "***"
    with ResultsStore.resume(tmp_path, settings, secrets=[secret]) as store:
        assert len(store.finished) == 1


# --- when the machine or the process fails

APPENDER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_results import ResultsStore, config, record
folder = Path(sys.argv[1])
settings = config(100_000)
store = (ResultsStore.resume if (folder / "metadata.json").exists() else ResultsStore.create)(folder, settings)
done = {r.example_id for r in store.finished}
for i in range(100_000):
    if i not in done:
        store.append(record(i, messages=[{"role": "assistant", "content": "y" * (i % 20_000)}]))
        print(i, flush=True)
"""


def test_a_killed_run_loses_nothing_that_was_reported_as_saved(tmp_path):
    reported: set[int] = set()
    for delay in (0.0, 0.013, 0.05, 0.11, 0.2):
        process = start(APPENDER, tmp_path / "run")
        assert process.stdout is not None
        reported.add(int(process.stdout.readline()))
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        rest = process.communicate()[0]
        printed = [int(line) for line in rest.splitlines(keepends=True) if line.endswith("\n")]
        assert not reported & set(printed)  # nothing is run again
        reported |= set(printed)
        assert reported <= {found.example_id for found in load_results(tmp_path / "run")}
    with ResultsStore.resume(tmp_path / "run", config(100_000)) as store:
        assert {found.example_id for found in store.finished} >= reported
    assert len(metadata(tmp_path / "run")["parts"]) == 6


def start(script: str, folder: Path) -> subprocess.Popen:
    root = Path(__file__).parent
    return subprocess.Popen(
        [sys.executable, "-c", script, str(folder), str(root)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root.parent)},
    )


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_results import ResultsError, ResultsStore, config, record
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = ResultsStore.create(Path(sys.argv[1]), config(1000))
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))  # no file may grow beyond: like a full disk
saved = 0
try:
    for i in range(1000):
        store.append(record(i))
        saved += 1
except ResultsError as error:
    print(saved)
    print(error)
for attempt in (lambda: store.append(record(0)), lambda: store.journal(record(0), {})):
    try:
        attempt()
    except ResultsError as error:
        print(error)
store.finish({})
store.close()
"""


def test_a_full_disk_keeps_what_was_saved_and_says_how_to_go_on(tmp_path):
    folder = tmp_path / "run"
    process = start(FULL_DISK, folder)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    count, *messages = output.splitlines()
    assert int(count) > 10 and len(messages) == 3
    for message in messages:
        assert f"cannot write to {folder}: File too large. The {count} rollouts saved" in message
        assert f"--resume-path {folder}" in message
    content = (folder / "results.jsonl").read_bytes()
    assert content.endswith(b"\n") and len(content.splitlines()) == int(count)
    with ResultsStore.resume(folder, config(1000)) as store:
        assert store.notes == [] and len(store.finished) == int(count)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_write_that_fails_at_once_is_reported(tmp_path):
    with ResultsStore.create(tmp_path, config()) as store:
        (tmp_path / "journal.jsonl").symlink_to("/dev/full")
        store.append(record(0))
        for _ in range(2):
            with pytest.raises(ResultsError, match=r"No space left on device\. The 1 rollouts saved"):
                store.journal(record(1, status="pending", reward=None), {})
        with pytest.raises(ResultsError, match="No space left"):
            store.append(record(2))
        (tmp_path / "journal.jsonl").unlink()
    assert load_results(tmp_path) == [record(0)]
    assert metadata(tmp_path)["status"] == "failed"


def test_a_line_file_forgets_a_line_that_was_not_written_whole(tmp_path):
    file = LineFile(tmp_path / "lines")
    file.append(b"one")
    with pytest.raises(TypeError):
        file.append("two")  # type: ignore[arg-type]
    file.append(b"three")
    file.close()
    assert (tmp_path / "lines").read_bytes() == b"one\nthree\n"
