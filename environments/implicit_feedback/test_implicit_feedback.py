"""Are bad arguments refused, does a seed give the same examples, does an example have the right shape, does the right
reply score full and another one not? And do the signals agree with explicit labels better than the baseline?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from implicit_feedback import (
    agreement,
    infer,
    last_turn_negative,
    load_environment,
    macro_f1,
    reference_reply,
    shipped_logs,
    split_of,
)
from implicit_feedback.log import LABELS, Log, in_words, read_log
from implicit_feedback.own_logs import OWN_LOGS
from implicit_feedback.preferences import preference_in
from implicit_feedback.signals import overlap, signals_in

import verifiers as vf

GOOD, BAD = LABELS


def log_of(*texts: str, events: Any = (), label: str | None = None) -> Log:
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    return read_log({"id": "x", "messages": messages, "events": events, "label": label}, "here")


def left(after: int, seconds: float) -> dict[str, Any]:
    return {"kind": "left", "after": after, "seconds": seconds}


async def reward(env: vf.Environment, row: Any, reply: str) -> float | None:
    return (await env.generate([row], vf.ScriptedClient(reply), "scripted"))["outputs"][0]["reward"]


# The signals against explicit labels


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("split", ["train", "eval"])
def test_the_inferred_labels_agree_with_the_explicit_ones_far_better_than_the_baseline(seed, split):
    logs = [log for log in shipped_logs(seed) if split_of(log) == split]
    ours, baseline = agreement(logs), agreement(logs, last_turn_negative)
    assert ours > baseline + 0.2
    assert ours > 0.75


def test_on_the_logs_written_by_hand_they_do_so_too():
    logs = [read_log(row, "own") for row in OWN_LOGS]
    assert agreement(logs) > agreement(logs, last_turn_negative) + 0.2
    assert agreement(logs) < 1.0, "hard ones are missing"


def test_no_signal_reads_the_label():
    for log in shipped_logs(0):
        for label in (*LABELS, None):
            assert infer(Log(log.id, log.messages, log.events, label, log.source)) == infer(log)


def test_where_it_is_surer_it_is_right_more_often():
    logs = [log for seed in range(4) for log in shipped_logs(seed)]
    sure = [log for log in logs if infer(log).confidence >= 0.4]
    unsure = [log for log in logs if infer(log).confidence < 0.4]
    assert len(sure) > 100 and len(unsure) > 100
    right = [sum(infer(log).label == log.label for log in some) / len(some) for some in (sure, unsure)]
    assert right[0] > right[1]


@pytest.mark.parametrize(
    ("log", "names"),
    [
        (log_of("Q?", "A.", "Thanks, that works."), ["confirm"]),
        (log_of("Q?", "A.", "Thanks, but it still fails."), ["correct"]),
        (log_of("Q?", "A.", "No, I meant the other one."), ["correct"]),
        (log_of("Q?", "A.", "No problem at all, thanks!"), ["confirm"]),
        (log_of("Fix my bike chain", "Chains are long.", "How do I fix a bike chain?"), ["rephrase"]),
        (log_of("Q?", "A.", "What about oranges?", "Yes.", events=[left(3, 60)]), ["go_on", "stay_to_read"]),
        (log_of("Q?", "A.", events=[left(1, 2)]), ["abandon"]),
        (log_of("Q?", "Which one do you mean?", events=[left(1, 90)]), ["abandon"]),
        (log_of("Q?", "A.", events=[{"kind": "copied", "after": 1}, left(1, 2)]), ["copy", "stay_to_read"]),
        (log_of("Q?", "A.", events=[{"kind": "regenerated", "after": 1}]), ["regenerate"]),
        (log_of("Q?", "A."), []),
    ],
)
def test_what_a_user_does_is_a_signal_about_the_reply_before(log, names):
    assert [signal.name for signal in signals_in(log)] == names


def test_the_last_reply_counts_most():
    saved = log_of("Fix my bike chain", "Chains are long.", "How do I fix a bike chain?", "Oil it.", "Perfect, thanks")
    assert infer(saved).label == GOOD
    assert [signal.about for signal in infer(saved).signals] == [1, 3]


def test_overlap_counts_stems_and_not_little_words():
    assert overlap("How do I clean my windows?", "What cleans a window?") == 1.0
    assert overlap("How do I do it?", "How do I do this?") == 0.0


def test_macro_f1_weighs_both_labels_alike():
    assert macro_f1([GOOD] * 9 + [BAD], [GOOD] * 10) == pytest.approx(18 / 19 / 2)
    assert macro_f1([GOOD, BAD], [GOOD, BAD]) == 1.0
    assert macro_f1([], []) == 0.0


# 1. bad arguments and rows are refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"task": "rank"}, "task='rank': give one of infer, reply"),
        ({"num_train_examples": 0}, "num_train_examples=0"),
        ({"num_eval_examples": True}, "num_eval_examples=True"),
        ({"seed": 1.0}, r"seed=1\.0"),
        ({"min_confidence": 1}, "min_confidence=1"),
        ({"data": "nowhere.jsonl"}, "there is no such file"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=named):
        load_environment(**arguments)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"messages": []}, "'messages' is a list of two messages or more"),
        ({"messages": [{"role": "user", "content": "a"}] * 2}, "message 1 is to be a text of the assistant"),
        ({"label": "good"}, "'label' is 'good'"),
        ({"events": [{"kind": "liked", "after": 1}]}, "an event has a 'kind'"),
        ({"events": [{"kind": "left", "after": 9}]}, "after message 9, there are 3"),
    ],
)
def test_a_log_outside_the_schema_is_named(change, told):
    with pytest.raises(vf.DatasetError, match=f"log 'own-thanks': .*{told}"):
        read_log({**OWN_LOGS[0], **change}, "here")


# 2. same seed, same examples


@pytest.mark.parametrize("task", ["infer", "reply"])
def test_a_seed_gives_the_same_rows_and_another_seed_others(task):
    def rows(seed: int) -> list[Any]:
        env = load_environment(task, seed=seed)
        return [[r["prompt"], r["info"]] for r in (*env.train_rows(), *env.eval_rows())]

    assert rows(1) == rows(1) != rows(2)


def test_no_log_is_in_both_splits():
    env = load_environment()
    train, evaluation = ({row["info"]["id"] for row in rows} for rows in (env.train_rows(), env.eval_rows()))
    assert not train & evaluation
    assert len(train) > 60 and len(evaluation) > 60


# 3. an example has the right shape


def test_training_rows_have_inferred_labels_and_evaluation_rows_explicit_ones():
    env = load_environment(min_confidence=0.4)
    logs = {log.id: log for log in shipped_logs(0)}
    for row in env.train_rows():
        assert row["info"]["label"] == "inferred" and row["info"]["confidence"] >= 0.4
        assert row["answer"] == infer(logs[row["info"]["id"]]).label
    for row in env.eval_rows():
        assert row["info"]["label"] == "explicit"
        assert row["answer"] == logs[row["info"]["id"]].label
    for rows in (env.train_rows(), env.eval_rows()):
        assert 0.3 < sum(row["answer"] == GOOD for row in rows) / len(rows) < 0.7


def test_a_log_is_shown_with_what_the_user_did_and_without_its_label():
    log = log_of("Q?", "A.", events=[{"kind": "copied", "after": 1, "seconds": 5}, left(1, 2)], label=BAD)
    assert in_words(log) == (
        "USER: Q?\nASSISTANT: A.\n(the user copied this reply after 5 seconds)\n(the user left after 2 seconds)"
    )


def test_logs_of_one_s_own_are_read_with_and_without_labels(tmp_path: Path):
    path = tmp_path / "logs.jsonl"
    rows = [{**row, "label": row["label"] if n % 2 else None} for n, row in enumerate(OWN_LOGS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    env = load_environment(data=str(path), min_confidence=0.0)
    assert {row["info"]["source"] for row in (*env.train_rows(), *env.eval_rows())} == {"logs.jsonl"}
    labelled = {row["id"] for row in rows if row["label"]}
    assert {row["info"]["id"] for row in env.eval_rows()} <= labelled
    assert not {row["info"]["id"] for row in env.train_rows()} <= labelled


def test_a_complaint_becomes_what_a_rule_can_check():
    long = "word " * 40
    for complaint, asked in (
        ("Too long, shorter please", ("length_constraints:number_words", {"num_words": 24, "relation": "less than"})),
        ("In one sentence?", ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "less than"})),
        ("As three bullet points", ("detectable_format:number_bullet_lists", {"num_bullets": 3})),
        ("Please mention the price", ("keywords:existence", {"keywords": ["price"]})),
        ("I wanted it as JSON", ("detectable_format:json_format", {})),
    ):
        preference = preference_in(log_of("Tell me of ferries", long, complaint, "Ferries sail.", "ok"))
        assert preference is not None and preference.asked == (asked,) and preference.refused == long
    assert preference_in(log_of("Tell me of ferries", long, "thanks")) is None


def test_a_row_to_answer_again_ends_with_the_complaint():
    for row in (env := load_environment("reply")).eval_rows():
        info = json.loads(row["info"])
        assert row["prompt"][-1]["role"] == "user" and len(row["prompt"]) == info["asked_at"] + 1
        assert info["accepted"] not in [message["content"] for message in row["prompt"]]
    assert len(env.eval_rows()) >= 4 and len(env.train_rows()) >= 10


# 4. the right reply scores full


@pytest.mark.parametrize("task", ["infer", "reply"])
async def test_the_reference_scores_full(task):
    env = load_environment(task)
    for row in (*env.train_rows(5), *env.eval_rows()):
        assert await reward(env, row, reference_reply([], row)) == 1.0


# 5. another one does not


async def test_the_other_label_two_labels_and_none_are_paid_nothing():
    env = load_environment(num_eval_examples=4)
    for row in env.eval_rows():
        right, wrong = row["answer"], LABELS[1 - LABELS.index(row["answer"])]
        assert await reward(env, row, f"<answer>{right}</answer>") == 1.0
        for answer in (wrong, f"{right} or {wrong}", f"{right}, {wrong}", f"very {right}", ""):
            assert await reward(env, row, f"<answer>{answer}</answer>") == 0.0
        assert await reward(env, row, right) == 0.0
        assert await reward(env, row, f"<think><answer>{right}</answer></think><answer>{wrong}</answer>") == 0.0


async def test_the_refused_reply_idle_talk_and_echoes_are_paid_nothing():
    env = load_environment("reply")
    for row in env.eval_rows():
        info = json.loads(row["info"])
        whole = "\n".join(message["content"] for message in row["prompt"])
        for reply in ("", "I don't know.", "the " * 300, info["refused"], row["prompt"][-1]["content"], whole):
            assert await reward(env, row, reply) == 0.0
