"""`vf audit`: what a person is shown of a judge's verdicts, and what becomes of the labels."""

import io
import json
import os
import pty
import subprocess
import sys
import time

import msgspec
import pytest
from loopback import ROOT, outside_variables

import verifiers as vf
from verifiers.clients import ScriptedClient
from verifiers.errors import ResultsError
from verifiers.eval.audit import AUDIT, Audit, in_words
from verifiers.rubrics import HybridMathRubric
from verifiers.statistics import share_interval

WORDS = ["two", "zwei", "deux", "dos", "due", "to", "kaksi", "iki"]


def judge(request):
    """Accepts words, refuses \\text{no…}, and is at a loss about \\text{hm…}."""
    shown = request.messages[0].content.partition("<response>\n")[2].partition("\n</response>")[0]
    return "Hm." if "hm" in shown else r"Verdict: \boxed{B}" if "no" in shown else "The same.\nVerdict: \\boxed{A}"


@pytest.fixture
def run(tmp_path):
    """Eight rescues, two refusals, one undecided, and one that the rules accepted."""
    replies = [*(rf"\boxed{{\text{{{word}}}}}" for word in [*WORDS, "no", "none", "hm"]), r"\boxed{2}"]
    rows = [{"question": f"1 + 1? ({number})", "answer": "2"} for number in range(len(replies))]
    rubric = HybridMathRubric(use_judge_fallback=True, judge_client=ScriptedClient(judge), canaries=())
    env = vf.SingleTurnEnv(dataset=rows, rubric=rubric)
    folder = tmp_path / "run"
    env.evaluate_sync(ScriptedClient(replies), model="m", max_concurrent=1, save_results=True, results_path=str(folder))
    return folder


def label(run, keys, **arguments):
    out = io.StringIO()
    audit = Audit(run, **arguments)
    audit.ask(io.StringIO("".join(f"{key}\n" for key in keys)), out)
    return audit, out.getvalue()


def vf_audit(*arguments, keys=""):
    command = [sys.executable, "-m", "verifiers.cli.main", "audit", *map(str, arguments)]
    variables = outside_variables() | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, input=keys, capture_output=True, text=True, env=variables, timeout=200)


def test_rescues_are_shown_one_by_one_with_what_the_judge_saw_and_said(run):
    _, shown = label(run, "rwu")
    assert shown.count("══") == 4  # the fourth is shown and left
    assert "1 of 8 · example" in shown and "accepted by a judge and not by the rules" in shown
    for text in ("1 + 1? (", "── reference\n2\n", r"\text{", "The same.\nVerdict: \\boxed{A}"):
        assert text in shown


def test_labels_are_kept_beside_the_run_and_an_audit_is_gone_on_with(run):
    before = (run / "results.jsonl").read_bytes()
    label(run, "rw")
    audit, shown = label(run, "rrrrrr")
    assert "1 of 6" in shown and len(audit.labels) == 8
    assert len((run / AUDIT).read_text().splitlines()) == 8
    assert label(run, "")[1] == ""  # nothing is left to show
    assert (run / "results.jsonl").read_bytes() == before


def test_the_rate_of_false_positives_has_an_interval(run):
    audit, _ = label(run, "rrrwuu")
    found = audit.summary()
    assert (found["found"], found["labelled"], found["labels"]) == (8, 6, {"right": 3, "wrong": 1, "unsure": 2})
    rate = found["false_positive_rate"]
    assert (rate["value"], rate["n"]) == (0.25, 4) and 0 < rate["low"] < 0.25 < rate["high"] < 1
    assert "false positive rate of the judge here: 25.0 % (95 %: 4.6 to 69.9), from 4 labels" in in_words(found)


def test_a_person_goes_back_to_correct_a_label_and_looks_at_the_whole_rollout(run):
    audit, shown = label(run, ["x", "f", "w", "b", "r", "q"])
    assert "the whole rollout" in shown and "math_verify_score" in shown
    assert list(audit.labels.values()) == ["right"] and len((run / AUDIT).read_text().splitlines()) == 2
    assert list(Audit(run).labels.values()) == ["right"]


def test_a_sample_is_drawn_by_its_seed_and_grows_without_changing(run):
    def keys(**arguments):
        return [item.key for item in Audit(run, **arguments).sample]

    assert keys(limit=3) == keys(limit=3) == keys(limit=6)[:3]
    assert keys(limit=8, seed=1) != keys(limit=8)
    assert sorted(keys(seed=1)) == sorted(keys())


@pytest.mark.parametrize(("kind", "count"), [("rescued", 8), ("right", 8), ("wrong", 2), ("undecided", 1)])
def test_other_kinds_can_be_looked_at(run, kind, count):
    audit, shown = label(run, "r", kind=kind)
    assert audit.found == count and "── judge" in shown
    assert (audit.summary()["false_negative_rate"] is not None) == (kind == "wrong")


def test_a_label_is_not_for_another_answer_of_the_same_rollout(run):
    label(run, "r" * 8)
    lines = (run / "results.jsonl").read_text().replace(r"\\text{", r"\\mbox{")
    (run / "results.jsonl").write_text(lines)
    assert Audit(run).summary()["labelled"] == 0


def test_a_torn_or_damaged_line_of_labels_is_passed_over(run):
    label(run, "rr")
    path = run / AUDIT
    path.write_bytes(b"damaged\n" + path.read_bytes() + b'{"torn')
    audit, _ = label(run, "w")
    assert (audit.damaged, len(audit.labels)) == (1, 3)
    assert len(Audit(run).labels) == 3


def test_a_run_without_a_judge_says_so_and_one_with_another_kind_names_it(run, tmp_path):
    env = vf.SingleTurnEnv(dataset=[{"question": "1 + 1?", "answer": "2"}], rubric=vf.MathRubric())
    env.evaluate_sync(ScriptedClient(r"\boxed{2}"), model="m", save_results=True, results_path=str(tmp_path / "plain"))
    with pytest.raises(ResultsError, match="No judge was asked in it"):
        Audit(tmp_path / "plain")
    lines = (run / "results.jsonl").read_text().splitlines()
    refused = [line for line in lines if "accepted by the judge" not in line]
    (run / "results.jsonl").write_text("\n".join(refused) + "\n")
    with pytest.raises(ResultsError, match=r"2 refused by a judge \(--kind wrong\), 1 without"):
        Audit(run)


def test_what_a_model_wrote_does_not_move_the_cursor(run):
    lines = (run / "results.jsonl").read_text().replace("The same.", r"\u001b[2J")
    (run / "results.jsonl").write_text(lines)
    assert "\x1b" not in label(run, "r")[1]


def test_the_command_lists_summarises_and_labels(run):
    listed = vf_audit(run, "--list", "--limit", "3")
    assert listed.returncode == 0, listed.stderr
    rows = listed.stdout.splitlines()
    assert len(rows) == 4 and all("judge_score: " in row and "reference '2'" in row for row in rows[:3])
    assert rows[3].startswith("8 accepted by a judge and not by the rules; 0 labelled")
    asked = vf_audit(run, keys="r\nw\nq\n")
    assert asked.returncode == 0 and "50.0 %" in asked.stdout
    found = json.loads(vf_audit(run, "--json").stdout)
    assert (found["labelled"], found["false_positive_rate"]["value"]) == (2, 0.5)
    items = json.loads(vf_audit(run, "--json", "--list", "--kind", "undecided").stdout)["items"]
    assert [item["reply"] for item in items] == ["Hm."]


def test_the_command_says_what_is_wrong(run, tmp_path):
    unknown = vf_audit(run, "--kind", "rescue")
    assert unknown.returncode == 2 and "rescued, right, wrong, undecided" in unknown.stderr
    nowhere = vf_audit(tmp_path / "none")
    assert nowhere.returncode == 3 and "no results to read" in nowhere.stderr


def test_a_person_at_a_terminal_presses_keys(run):
    keyboard, terminal = pty.openpty()
    variables = outside_variables() | {"PYTHONPATH": str(ROOT), "TERM": "xterm"}
    command = [sys.executable, "-m", "verifiers.cli.main", "audit", str(run), "--limit", "2"]
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=variables) as process:
        os.close(terminal)
        shown = b""
        for key in (b"w\n", b"r\n"):
            before = shown.count(b"q leave > ")
            deadline = time.monotonic() + 60
            while shown.count(b"q leave > ") == before and time.monotonic() < deadline:
                shown += os.read(keyboard, 4096)
            os.write(keyboard, key)
        try:
            while chunk := os.read(keyboard, 4096):
                shown += chunk
        except OSError:  # the other end is closed
            pass
        assert process.wait(120) == 0
    os.close(keyboard)
    assert b"50.0 %" in shown
    labels = [msgspec.json.decode(line)["label"] for line in (run / AUDIT).read_bytes().splitlines()]
    assert labels == ["wrong", "right"]


@pytest.mark.parametrize(("count", "n"), [(0, 1), (0, 20), (1, 4), (10, 20), (20, 20)])
def test_the_interval_of_a_share_holds_it_and_stays_within_bounds(count, n):
    interval = share_interval(count, n)
    assert 0 <= interval.low <= count / n <= interval.high <= 1 and interval.low < interval.high
    mirrored = share_interval(n - count, n)
    assert (mirrored.low, mirrored.high) == pytest.approx((1 - interval.high, 1 - interval.low))


def test_no_labels_no_interval():
    assert share_interval(0, 0) is None
