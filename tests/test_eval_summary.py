"""The numbers and the table that end a run, and the running ones."""

import random

import pytest

from verifiers.eval.display import View
from verifiers.eval.progress import Progress, RewardSoFar
from verifiers.eval.summary import failed_share, one_reason, render, summarise_run
from verifiers.records import EnvInfo, Failure, ModelInfo, RolloutRecord, Score, Timing, TokenUsage, Turn
from verifiers.statistics import summarise


def record(example_id, index, reward, *, status="scored", errors=(), scores=None, usage=None, **more):
    if scores is None:
        scores = [Score(name="right", weight=1.0, value=reward)] if reward is not None else []
    return RolloutRecord(
        env=EnvInfo(name="demo"),
        model=ModelInfo(name="m"),
        prompt=[],
        messages=[{"role": "assistant", "content": "the total is 42"}],
        turns=[Turn(start=0, end=1)],
        example_id=example_id,
        rollout_index=index,
        reward=reward,
        status=status,
        errors=list(errors),
        scores=list(scores),
        stop_condition="max_turns_reached",
        usage=usage or TokenUsage(prompt=10, completion=5),
        **more,
    )


def failed(example_id, index, message="no route"):
    failure = Failure(side="model", type="ModelUnavailableError", message=message)
    return record(example_id, index, None, status="failed", errors=[failure])


def test_errors_are_left_out_of_the_mean_and_shown_in_the_bounds():
    summary = summarise_run([record(0, 0, 1.0), record(1, 0, 1.0), record(2, 0, 0.0), failed(3, 0)], total=4, time_s=1)
    assert summary["reward"]["mean"] == pytest.approx(2 / 3)
    assert summary["reward"]["bounds"] == [0.5, 0.75]
    table = render(summary)
    assert "reward         0.667" in table
    assert "3 of 4 scored; between 0.500 and 0.750" in table
    assert "  1 × model · ModelUnavailableError\n      no route" in table
    assert failed_share(summary) == 0.25


def test_a_run_of_errors_has_no_mean_and_one_reason():
    summary = summarise_run([failed(0, 0), failed(1, 0)], total=2, time_s=1)
    assert summary["avg_reward"] is None
    assert "reward         –" in render(summary)
    assert one_reason(summary) == "every rollout failed (model): ModelUnavailableError: no route"


def test_two_reasons_are_not_one():
    other = record(1, 0, None, status="failed", errors=[Failure(side="tool", type="ToolCallError", message="x")])
    assert one_reason(summarise_run([failed(0, 0), other], total=2, time_s=1)) is None


def test_each_reward_function_has_mean_weight_and_contribution():
    scores = [
        Score(name="right", weight=1.0, value=1.0),
        Score(name="format", weight=0.2, value=0.5),
        Score(name="length", weight=0.0, value=40.0),
    ]
    summary = summarise_run([record(0, 0, 1.1, scores=scores)], total=1, time_s=1)
    assert [score["contribution"] for score in summary["scores"]] == [1.0, 0.1, 0.0]
    assert summary["avg_metrics"] == {"right": 1.0, "format": 0.5, "length": 40.0}
    line = next(line for line in render(summary).splitlines() if line.startswith("format"))
    assert line.split() == ["format", "0.500", "×0.2", "0.100"]


def graded(number, status, reason=None):
    value = 0.0 if status == "scored" else None
    scores = [Score(name="right", weight=1.0, value=value, status=status, reason=reason, side=None)]
    started = f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}.000+00:00"
    return record(number, 0, value, status=status, scores=scores, timing=Timing(started=started, total_s=1.0))


def test_reasons_of_wrong_and_undecided_scores_are_counted_and_shown():
    records = [graded(n, "scored", "no answer in the expected form") for n in range(5)]
    records += [graded(5, "undecided", "the judge gave no verdict"), graded(6, "fault", "raised ValueError: x")]
    summary = summarise_run(records, total=7, time_s=1)
    (entry,) = summary["scores"]
    assert (entry["n_scored"], entry["n_undecided"], entry["n_fault"]) == (5, 1, 1)
    assert entry["reasons"][0] == {"status": "scored", "reason": "no answer in the expected form", "count": 5}
    table = render(summary)
    assert "5 of 7 (1 undecided, 1 fault)" in table
    assert "  5 × no answer in the expected form\n  1 × undecided: the judge gave no verdict" in table
    assert table.count("raised ValueError: x") == 1  # with the errors


def test_share_that_could_not_be_graded_is_shown_with_what_it_was_before():
    records = [graded(n, "fault" if n in (7, 30) or n > 370 else "scored") for n in range(400)]
    summary = summarise_run(records[::-1], total=400, time_s=1, ungraded_alarm=0.2)  # the order of the file is not used
    assert summary["ungraded"] == {
        "n": 400,
        "n_ungraded": 31,
        "n_recent": 200,
        "recent_share": 0.145,
        "earlier_share": 0.01,
        "is_alarming": False,
        "alarm_above": 0.2,
    }
    assert "ungraded 14% of the last 200 (1% before): 31 fault" in render(summary)
    alarming = summarise_run(records, total=400, time_s=1, ungraded_alarm=0.1)
    assert "ALARM: ungraded 14% of the last 200 (1% before): 31 fault" in render(alarming)


def test_share_that_could_not_be_graded_is_in_the_live_lines_and_the_plain_one():
    progress = Progress(ungraded_alarm=0.05)
    for number in range(20):
        progress.add(graded(number, "undecided" if number == 3 else "scored"))
    view = View("demo", Running(), progress, lambda: None)
    assert "ungraded 5% of the last 20" in view.lines(80, 12)
    assert " · ungraded 5% of the last 20 · " in view.plain()
    for number in range(20, 24):
        progress.add(graded(number, "fault"))
    assert "ALARM: ungraded 21% of the last 24" in view.lines(80, 12)
    assert " · ALARM: ungraded 21% of the last 24 · " in view.plain()


def test_failed_rollouts_are_no_part_of_the_share_that_could_not_be_graded():
    summary = summarise_run([failed(0, 0), graded(1, "scored")], total=2, time_s=1)
    assert (summary["ungraded"]["n"], summary["ungraded"]["n_ungraded"]) == (1, 0)
    assert "ungraded" not in render(summary)


def test_a_faulty_score_is_counted_and_told():
    scores = [Score(name="right", weight=1.0, value=None, status="fault", reason="ZeroDivisionError: x", side="reward")]
    summary = summarise_run([record(0, 0, None, status="fault", scores=scores)], total=1, time_s=1)
    assert summary["errors"] == [{"side": "reward", "type": "right", "count": 1, "message": "ZeroDivisionError: x"}]
    assert failed_share(summary) == 1.0


def test_a_faulty_score_of_no_weight_does_not_fail_the_rollout():
    scores = [
        Score(name="right", weight=1.0, value=1.0),
        Score(name="seen", weight=0.0, value=None, status="fault", reason="x", side="reward"),
    ]
    summary = summarise_run([record(0, 0, 1.0, scores=scores)], total=1, time_s=1)
    assert failed_share(summary) == 0.0
    assert "0 of 1" in next(line for line in render(summary).splitlines() if line.startswith("seen"))


def test_only_the_three_most_frequent_errors_are_shown():
    records = [failed(0, 0)] * 3 + [
        record(n, 0, None, status="failed", errors=[Failure(side="tool", type=f"T{n}", message="a\nb")])
        for n in range(4)
    ]
    lines = render(summarise_run(records, total=7, time_s=1)).splitlines()
    start = lines.index("errors")
    assert lines[start + 1].startswith("  3 × model")
    assert lines[start + 3 : start + 5] == ["  1 × tool · T0", "      a b"]
    assert lines[start + 7] == "  and 2 more kinds"


def test_unknown_tokens_and_cost_are_null_not_zero():
    summary = summarise_run([record(0, 0, 1.0), record(0, 1, 1.0, usage=TokenUsage(prompt=3))], total=2, time_s=1)
    assert summary["usage"]["input_tokens"] == 13
    assert summary["usage"]["output_tokens"] is None
    assert summary["usage"]["cost"] is None
    assert "not counted" in render(summary)


def test_pass_at_k_names_its_examples():
    records = [record(0, i, float(i == 0)) for i in range(4)] + [record(1, 0, 1.0), record(1, 1, 1.0)]
    summary = summarise_run(records, total=6, time_s=1)
    assert summary["pass_at_k"] == {"1": 0.625, "2": 0.75, "4": 1.0}
    assert summary["pass_all_k"]["4"] == 0.0
    assert next(line for line in render(summary).splitlines() if line.startswith("k = 4")).endswith("1 example")


def test_the_bounds_know_weights_above_one():
    scores = [Score(name="right", weight=2.0, value=1.0)]
    summary = summarise_run([record(0, 0, 2.0, scores=scores), failed(1, 0)], total=2, time_s=1)
    assert summary["reward"]["bounds"] == [1.0, 2.0]


def test_the_running_interval_is_the_final_one():
    dice = random.Random(3)
    rows = [(example, dice.choice([0.0, 0.3, 1.0])) for example in range(20) for _ in range(dice.randint(1, 5))]
    dice.shuffle(rows)
    so_far = RewardSoFar()
    for example, reward in rows:
        so_far.add(example, reward)
    final = summarise(rows)
    assert so_far.mean == pytest.approx(final.mean)
    assert so_far.interval.low == pytest.approx(final.interval.low)
    assert so_far.interval.high == pytest.approx(final.interval.high)


class Running:
    """A run as the display sees it."""

    total, done, in_flight, waiting = 8, 3, 5, {"rollout": 4, "scoring": 1}


def view(records) -> View:
    progress = Progress(clock=iter(range(0, 10_000, 4)).__next__)
    for each in records:
        progress.add(each)
    return View("demo · m @ 127.0.0.1:8000", Running(), progress, lambda: "server says slow down (429)")


@pytest.mark.parametrize("width, height", [(80, 8), (40, 5), (120, 3), (20, 1)])
def test_the_live_lines_fit_their_room(width, height):
    lines = view([record(0, 0, 1.0), record(1, 0, 0.0), failed(2, 0, "a very long message " * 20)]).lines(width, height)
    assert 1 <= len(lines) <= height
    assert all(len(line) <= width for line in lines)


def test_the_live_lines_say_what_is_waited_for_and_what_failed():
    text = "\n".join(view([record(0, 0, 1.0), record(1, 0, 0.0), failed(2, 0)]).lines(100, 12))
    assert "3/8  38%" in text
    assert "reward 0.500" in text and "2 of 3 scored" in text
    assert "right 0.50 ×1" in text
    assert "running 5 (scoring 1) · waiting: server says slow down (429)" in text
    assert "errors 1: model ModelUnavailableError 1" in text
    assert "#1/0  0.00  1 turn" in text and "the total is 42" in text


def test_the_plain_line_is_one_line():
    text = view([record(0, 0, 1.0), failed(2, 0, "two\nlines")]).plain()
    assert "\n" not in text
    assert text.startswith("3/8 done · reward 1.000")


def test_a_view_before_the_first_rollout_knows_nothing_yet():
    assert "reward –  0 of 0 scored" in view([]).plain()
