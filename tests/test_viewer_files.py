"""How the viewer reads results: at random, while they grow, damaged, replaced; and which runs it finds."""

import json
import os
import time
import tracemalloc

import pytest
from rollouts import nasty, record, tool_run, write_run

from verifiers.errors import ConfigError, ResultsError
from verifiers.records import Score, encode_record
from verifiers.viewer import run_file
from verifiers.viewer.run_file import RunFile
from verifiers.viewer.runs import Runs, matching_rows


def opened(path):
    file = RunFile(path)
    assert file.refresh()
    return file


def keys(file):
    return [row.key for row in file.rows]


def test_each_record_can_be_had_by_its_key(tmp_path):
    records = [record(example_id=e, rollout_index=t, answer=f"{e}.{t} é") for e in (3, -1, 2**53) for t in (1, 0)]
    file = opened(write_run(tmp_path, records))
    assert keys(file) == sorted(r.key for r in records)
    for made in records:
        assert file.record(made.key) == made
        assert file.line(made.key) == encode_record(made) + b"\n"
    with pytest.raises(LookupError, match="no try 5 of example 3"):
        file.record((3, 5))


def test_of_a_rollout_that_was_run_again_the_last_record_counts(tmp_path):
    file = opened(write_run(tmp_path, [record(reward=None, status="failed"), record(reward=1.0)]))
    assert [row.reward for row in file.rows] == [1.0] and file.record((0, 0)).reward == 1.0


def test_a_growing_file_is_read_on_from_where_it_was(tmp_path):
    path = write_run(tmp_path, [record()])
    file = opened(path)
    before, line = file.version, encode_record(record(example_id=1))
    with path.open("ab") as writer:
        writer.write(line[:50])
        writer.flush()
        assert file.refresh() and keys(file) == [(0, 0)] and file.version == before
        writer.write(line[50:] + b"\n")
        writer.flush()
        assert file.refresh() and keys(file) == [(0, 0), (1, 0)] and file.version > before
    assert file.record((1, 0)).example_id == 1 and file.n_damaged == 0


def test_a_file_that_was_replaced_or_cut_is_read_anew(tmp_path):
    path = write_run(tmp_path, [record(example_id=n) for n in range(5)])
    file = opened(path)
    write_run(tmp_path, [record(example_id=9, answer="another run of the same length or longer" * 100)])
    assert file.refresh() and keys(file) == [(9, 0)]
    path.write_bytes(b"")
    assert file.refresh() and keys(file) == [] and file.share_read == 1.0


def test_damaged_lines_are_left_out_and_told(tmp_path):
    path = write_run(tmp_path, [record()])
    with path.open("ab") as writer:
        writer.write(b"{broken}\n\n" + b"\xff\xfe\n" + b'{"schema_version": 99}\n' + b"[" * 100_000 + b"\n")
        writer.write(encode_record(record(example_id=1)) + b"\n" + b'{"env":')
    file = opened(path)
    assert keys(file) == [(0, 0), (1, 0)] and file.n_damaged == 4
    assert file.notes[0].startswith("line 2 cannot be read (") and file.notes[1].startswith("line 4 ")


def test_a_line_longer_than_the_limit_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(run_file, "MAX_LINE_BYTES", 4096)
    path = write_run(tmp_path, [record(), record(example_id=1, answer="x" * 20_000), record(example_id=2)])
    file = opened(path)
    assert keys(file) == [(0, 0), (2, 0)] and file.notes == ["line 2 has more than 0 MiB"]
    with path.open("ab") as writer:
        writer.write(b'{"answer": "' + b"y" * 20_000)
    assert file.refresh() and keys(file) == [(0, 0), (2, 0)]


def test_a_large_file_is_read_in_steps(tmp_path):
    file = RunFile(write_run(tmp_path, [record(example_id=n) for n in range(200)]))
    steps = [file.refresh(0.0)]
    assert steps == [False] and 0 < file.share_read < 1 and 0 < len(file.rows) < 200
    while not file.refresh(0.0):
        steps.append(False)
    assert len(file.rows) == 200 and len(steps) > 3


def test_ten_thousand_records_open_in_two_seconds_and_are_not_kept_in_memory(tmp_path):
    line = encode_record(record(messages=[{"role": "assistant", "content": "a word " * 700}] * 1, answer="x"))
    head, tail = line.split(b'"example_id":0', 1)
    path = tmp_path / "results.jsonl"
    path.write_bytes(b"".join(head + b'"example_id":%d' % n + tail + b"\n" for n in range(10_000)))
    assert path.stat().st_size > 50_000_000
    file = RunFile(path)
    started = time.process_time()
    assert file.refresh() and len(file.rows) == 10_000
    assert time.process_time() - started < 2
    tracemalloc.start()
    again = RunFile(path)
    again.refresh()
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 12_000_000 and peak < 20_000_000


def test_a_phrase_finds_the_same_with_and_without_the_short_cut(tmp_path):
    records = [
        record(example_id=0, messages=[{"role": "assistant", "content": 'He said "no"\nTwice.'}]),
        record(example_id=1, messages=[{"role": "assistant", "content": "Größe <b>"}]),
        record(example_id=2, scores=[Score(name="s", weight=1, value=None, status="undecided", reason="No Idea")]),
        nasty(half="", example_id=3),
    ]
    path = write_run(tmp_path, records)
    escaped = json.dumps({"role": "assistant", "content": "naïve no"}).replace("no", "\\u006eo").encode()
    with path.open("ab") as writer:  # as a writer that escapes everything would
        line = encode_record(record(example_id=4, messages=[])).replace(b'"messages":[]', b'"messages":[%s]' % escaped)
        writer.write(line + b"\n")
    file = opened(path)
    found_by = {
        "no": [0, 2, 3, 4], "NO idea": [2], "twice": [0], "größe": [1], "<B>": [1], '"no\\"': [], "messages": [],
        "javascript:": [3], 'said "NO"': [0], "no\ntwice": [],
    }  # fmt: skip
    for phrase, found in found_by.items():
        quoted = phrase.replace("\\", "\\\\").replace('"', '\\"')
        assert [row.example_id for row in matching_rows(file, f'"{quoted}"')] == found, phrase


def test_a_missing_file_is_a_results_error(tmp_path):
    with pytest.raises(ResultsError, match="no results to read"):
        RunFile(tmp_path / "results.jsonl").refresh()


def test_weights_of_the_reward_functions_are_known(tmp_path):
    assert opened(tool_run(tmp_path / "run", "m", wrong=())).weights["correct"] == 1.0


# Runs


def test_runs_below_a_folder_are_found_newest_first(tmp_path):
    for n, name in enumerate(("a/old", "b/new", ".hidden/x", "node_modules/y")):
        path = write_run(tmp_path / name, [record()])
        os.utime(path, (1000 + n, 1000 + n))
    runs = Runs(tmp_path)
    assert [run.id for run in runs.scan()] == ["new", "old"]
    assert runs["old"].path == tmp_path / "a/old/results.jsonl"
    write_run(tmp_path / "c/later", [record()])
    assert runs["later"].id == "later" and len(runs.scan()) == 3


def test_runs_of_equal_name_have_different_ids_that_stay(tmp_path):
    for name in ("a/x", "b/x"):
        write_run(tmp_path / name, [record()])
    runs = Runs(tmp_path)
    ids = {run.path: run.id for run in runs.scan()}
    assert sorted(ids.values()) == ["x", "x-2"]
    write_run(tmp_path / "0/x", [record()])
    assert {run.path: run.id for run in runs.scan()}.items() >= ids.items()


def test_a_file_of_any_name_is_a_run(tmp_path):
    path = write_run(tmp_path, [record()]).rename(tmp_path / "some results.jsonl")
    runs = Runs(path)
    assert [run.id for run in runs.scan()] == ["some_results"] and runs.at(path) == runs["some_results"]


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        Runs(tmp_path / "nowhere")
    with pytest.raises(LookupError, match="no run"):
        Runs(tmp_path)["../etc"]
