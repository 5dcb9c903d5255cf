"""The viewer's filter: what it finds, what it refuses and how, and that no text makes it fail otherwise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers.errors import ConfigError
from verifiers.viewer import SampleRow, parse_filter


def row(**changes):
    base = {"example_id": 7, "rollout_index": 1, "reward": 0.25, "status": "scored"}
    return SampleRow(**{**base, **changes})


RIGHT = row(
    turns=4, stop_condition="max_turns_reached", tokens=1500, duration_s=12.5, model="org/Model-2:7b",
    scores={"correct": 0.0, "format ok": 1.0, "turns": 9.0, "judge": None}, n_errors=1, error_sides=("tool",),
    error_types=("ToolCallError",), is_truncated=True, title="Add 2 and 3",
)  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "reward<0.5 and turns>3",
        "reward<0.5 turns>3",
        "REWARD < .5 AND Turns >= 4",
        "reward=0.25",
        "reward!=1",
        "reward>1 or turns=4",
        "reward>1 or reward<1 and turns=4",
        "not reward>1",
        "not (reward>1 or turns<4)",
        "not not truncated",
        "status=scored",
        "status:failed,scored",
        "stop=max_turns_reached",
        "stop~max",
        "stop!~min",
        "error:tool",
        "error=toolcallerror",
        "errors>0 and errors=1,2",
        "tokens>1k and tokens<0.01m",
        "duration>=12.5",
        "example=7 try=1",
        "correct<1",
        "correct=0,1",
        '"format ok">0.5',
        "score.turns=9",
        "judge=none",
        "unheard_of=none",
        'model="org/Model-2:7b"',
        "truncated",
        "truncated=yes and truncated!=no",
        '"ADD 2"',
        "'toolcall'",
        r'not "a \" quote"',
    ],
)
def test_a_filter_finds_the_row_it_describes(text):
    assert parse_filter(text).matches(RIGHT)


@pytest.mark.parametrize(
    "text",
    [
        "reward>0.25",
        "reward!=0.25",
        "turns<4",
        "status=failed",
        "status!=scored",
        "error:model",
        "not truncated",
        "truncated=no",
        "judge<1",
        "judge>=0",
        "judge!=none",
        "unheard_of<1",
        '"subtract"',
        "reward>1 and turns=4 or reward>2",
        "(reward>1 or turns=4) and reward>2",
    ],
)
def test_a_filter_leaves_out_the_row_it_does_not_describe(text):
    assert not parse_filter(text).matches(RIGHT)


def test_an_unscored_rollout_is_neither_below_nor_above_any_reward():
    unscored = row(reward=None, status="failed")
    assert not parse_filter("reward<1000").matches(unscored)
    assert not parse_filter("reward>-1000").matches(unscored)
    assert parse_filter("reward=none").matches(unscored)
    assert parse_filter("reward!=0").matches(unscored)


def test_equal_numbers_are_those_that_a_person_calls_equal():
    assert parse_filter("reward=0.3").matches(row(reward=0.1 + 0.2))


def test_a_phrase_is_looked_for_in_what_was_said_only_when_it_must_be():
    asked = []
    said = lambda: asked.append(1) or "The Answer is 12"  # noqa: E731
    assert parse_filter('"answer IS"').matches(row(), said)
    assert parse_filter("'2 and 3'").matches(RIGHT, said) and len(asked) == 1  # in the title already
    assert not parse_filter('reward>1 and "answer"').matches(row(), said) and len(asked) == 1
    assert parse_filter('"Answer"').phrases == ("answer",)
    assert parse_filter("reward<1").phrases == ()


@pytest.mark.parametrize(
    "text, said",
    [
        ("reward<", "expected a number after 'reward<' at character 8, found the end"),
        ("reward<high", "expected a number after 'reward<' at character 8, found 'high'"),
        ("reward=nan", "expected a number or none after 'reward=' at character 8, found 'nan'"),
        ("reward<none", "expected a number after 'reward<' at character 8, found 'none'"),
        ("reward~3", "expected = != < <= > or >=, since reward is a number at character 7, found '~'"),
        ("status<3", "expected = != ~ or !~, since status is a text at character 7, found '<'"),
        ("status=faild", "expected a status (scored, undecided, fault, failed, pending, unscored) at character 8"),
        ("reward<1 and", "expected a field (reward, turns,"),
        ("(reward<1", "expected ')' for the '(' at character 1 at character 10, found the end"),
        ("reward<1)", "expected 'and', 'or' or the end at character 9, found ')'"),
        ("reward", "expected an operator (= != < <= > >= ~) after 'reward' at character 7, found the end"),
        ("turn", "expected a condition (did you mean 'turns'?) at character 1, found 'turn'"),
        ("hello", 'put it in quotes: "hello"'),
        ('"half', 'expected a closing " for the one at character 1'),
        ("reward<1 & turns>3", "expected an operator after '&'"),
        ("!reward<1", "expected a field, operator or value at character 1, found '!'"),
        ("truncated=maybe", "expected yes or no at character 11, found 'maybe'"),
        ("or", "expected a field"),
        ("(" * 51 + "truncated" + ")" * 51, "at most 50 levels"),
        ("not " * 400 + "truncated", "at most 50 levels"),
        ("x" * 2001, "2001 characters; up to 2000 are read"),
    ],
)
def test_an_error_says_what_was_expected_where(text, said):
    with pytest.raises(ConfigError) as caught:
        parse_filter(text)
    assert said in str(caught.value)


def test_an_unknown_name_is_refused_where_the_names_are_known():
    with pytest.raises(ConfigError, match="did you mean 'correct'"):
        parse_filter("corect<1", score_names=["correct"])
    with pytest.raises(ConfigError, match="did you mean 'reward'"):
        parse_filter("rewrd<1", score_names=["correct"])
    with pytest.raises(ConfigError, match=r"one of reward, .*, correct at character 1, found 'zzz'"):
        parse_filter("zzz<1", score_names=["correct"])
    assert parse_filter("score.correct<1", score_names=["correct"]).matches(RIGHT)


words = st.sampled_from(
    ["reward", "turns", "status", "error", "correct", "and", "or", "not", "(", ")", "<", ">=", "=", "!=", "~", ":", ",",
     "0.5", "none", "failed", '"text"', "'", '"', "\\", "truncated", "score.x", "\u202e", "\x00", "é"]
)  # fmt: skip


@given(st.lists(words, max_size=14).map(" ".join) | st.text(max_size=60))
def test_any_text_is_a_filter_or_a_config_error(text):
    try:
        found = parse_filter(text)
    except ConfigError:
        return
    assert found.matches(RIGHT, "text") in (True, False)
    assert found.matches(row(reward=None, status="failed")) in (True, False)


@given(st.lists(words, max_size=8).map(" ".join))
def test_not_turns_a_filter_round(text):
    try:
        plain, negated = parse_filter(text), parse_filter(f"not ({text})")
    except ConfigError:
        return
    assert plain.matches(RIGHT, "text") != negated.matches(RIGHT, "text")
