"""Where an environment's rows come from: the reader's file, the public split, or its own few rows."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import verifiers as vf
from verifiers.data_source import check_data

ROWS = [{"question": f"Q{i}\u2028?", "answer": str(i)} for i in range(5)]
SOURCE = vf.DataSource("nobody/nothing", split="test", columns=("question", "answer"))


def written(folder: Path, suffix: str, rows: list[Any] = ROWS) -> Path:
    path = folder / f"rows{suffix}"
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if suffix == ".parquet":
        from pyarrow import Table, parquet

        parquet.write_table(Table.from_pylist(rows), path)
    elif suffix == ".jsonl.gz":
        path.write_bytes(gzip.compress(lines.encode()))
    else:
        path.write_text(lines if suffix == ".jsonl" else json.dumps(rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".json", ".parquet"])
def test_a_file_of_any_kind_gives_the_same_rows_each_saying_which_file(tmp_path, suffix):
    path = written(tmp_path, suffix)
    assert SOURCE.rows(path) == [{**row, "source": path.name} for row in ROWS]


def test_a_seed_draws_the_same_rows_and_the_first_are_taken_after_it(tmp_path):
    path = written(tmp_path, ".jsonl")
    whole = SOURCE.rows(path, seed=3)
    assert SOURCE.rows(path, seed=3, num=2) == whole[:2]
    assert [row["answer"] for row in whole] != [row["answer"] for row in SOURCE.rows(path)]
    assert SOURCE.rows(path, num=99) == SOURCE.rows(path)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([*ROWS, {"question": "?"}], r"row 6: no column 'answer'; it has \['question'\].* of nobody/nothing test"),
        ([[1]], "row 1: a row is an object"),
    ],
)
def test_a_row_of_another_schema_is_named(tmp_path, rows, told):
    with pytest.raises(vf.DatasetError, match=told):
        SOURCE.rows(written(tmp_path, ".json", rows))


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.jsonl", b"{}\n{torn", "line 2 is no JSON"),
        ("a.jsonl", b"\xff", "a.jsonl cannot be read"),
        ("a.jsonl.gz", b"no gzip", "a.jsonl.gz cannot be read"),
        ("a.json", b"{", "a.json is no JSON"),
        ("a.json", b"{}", "a list of rows, it holds a dict"),
        ("a.parquet", b"no parquet", "a.parquet is no parquet file"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_named(tmp_path, name, content, told):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(vf.DatasetError, match=told):
        SOURCE.rows(tmp_path / name)


@pytest.mark.parametrize(
    ("path", "told"), [("rows.csv", "ends in .jsonl"), ("none.json", "no such file"), (3, "'3': give the path")]
)
def test_a_path_that_cannot_serve_is_refused_with_the_argument_s_name(path, told):
    with pytest.raises(ValueError, match=rf"train_data=.*{told}"):
        check_data(path, "train_data")


def in_fresh_process(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """With an empty cache of the data hub, and no network to it."""
    own = {"HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, timeout=120, check=True)


def test_without_a_network_own_rows_serve_and_it_is_said_once_for_all_splits(tmp_path):
    code = (
        "import verifiers as vf, json\n"
        "one, two = (vf.DataSource('nobody/nothing', split=split) for split in ('train', 'test'))\n"
        "print(json.dumps([source.rows(own=[{'a': 1}, {'a': 2}], num=1) for source in (one, two)]))"
    )
    done = in_fresh_process(code, tmp_path)
    assert json.loads(done.stdout) == [[{"a": 1, "source": "own rows, not nobody/nothing"}]] * 2
    assert done.stderr.count("THEIR SCORES ARE NOT nobody/nothing SCORES") == 1


def test_where_nothing_can_stand_in_for_the_public_split_it_is_an_error(tmp_path):
    code = (
        "import verifiers as vf\n"
        "try:\n"
        "    vf.DataSource('nobody/nothing').rows()\n"
        "except vf.DatasetError as error:\n"
        "    print(error)"
    )
    done = in_fresh_process(code, tmp_path)
    assert "nobody/nothing train cannot be reached" in done.stdout and "pass data=PATH" in done.stdout
    assert "OWN" not in done.stderr


def test_a_public_split_is_read_through_datasets_with_its_configuration(tmp_path):
    public = tmp_path / "public"
    (public / "main").mkdir(parents=True)
    written(public / "main", ".jsonl")
    (public / "README.md").write_text(
        "---\nconfigs:\n- config_name: main\n  data_files:\n  - {split: test, path: main/rows.jsonl}\n---\n"
    )
    code = (
        "import verifiers as vf, json\n"
        f"source = vf.DataSource({str(public)!r}, split='test', config='main', columns=('question',))\n"
        "print(json.dumps(source.rows(num=3, seed=1)))"
    )
    rows = json.loads(in_fresh_process(code, tmp_path).stdout)
    assert [row["answer"] for row in rows] == [
        row["answer"] for row in SOURCE.rows(public / "main/rows.jsonl", num=3, seed=1)
    ]
    assert {row["source"] for row in rows} == {f"{public} main test"}


def test_nothing_is_read_before_rows_are_asked_for(tmp_path):
    code = "import verifiers as vf, sys; vf.DataSource('nobody/nothing'); print('datasets' in sys.modules)"
    assert in_fresh_process(code, tmp_path).stdout.strip() == "False"
