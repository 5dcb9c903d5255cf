"""The saved form of a rollout: round trips, older and newer lines, torn files, token traces, JSON Schema."""

import json
import string
from array import array

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers.records import (
    SCHEMA_VERSION,
    DataInfo,
    EnvInfo,
    Failure,
    JudgeInfo,
    ModelInfo,
    RolloutRecord,
    Score,
    TokenTrace,
    TokenUsage,
    Turn,
    VersionSpan,
    content_hash,
    decode_record,
    encode_record,
    encode_traces,
    json_schema,
    read_records,
)

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text(string.ascii_lowercase, min_size=1, max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
messages = st.lists(st.fixed_dictionaries({"role": names, "content": words | st.none()}), max_size=4)
token_ids = st.lists(st.integers(0, 2**31 - 1), max_size=6)


@st.composite
def traces(draw):
    completion = draw(token_ids)
    logprobs = draw(st.lists(numbers, min_size=len(completion), max_size=len(completion)))
    return TokenTrace.of(draw(token_ids), completion, logprobs, draw(st.integers(0, 9)))


turns = st.builds(
    Turn,
    start=st.integers(0, 3),
    end=st.integers(3, 6),
    finish_reason=st.none() | names,
    prompt=st.none() | messages,
    tokens=st.none() | traces(),
    reward=st.none() | numbers,
    versions=st.lists(st.builds(VersionSpan, st.integers(0, 3), st.integers(3, 6), names), max_size=2),
)
scores = st.builds(
    Score,
    name=names,
    weight=numbers,
    value=st.none() | numbers,
    status=st.sampled_from(["scored", "undecided", "fault"]),
    side=st.none() | st.sampled_from(["model", "judge", "reward"]),
    judge=st.none() | st.builds(JudgeInfo, model=names, prompt_hash=names),
)
records = st.builds(
    RolloutRecord,
    env=st.builds(EnvInfo, name=names, owner=st.none() | names, dirty=st.none() | st.booleans()),
    example_id=st.integers(0, 2**53),
    rollout_index=st.integers(0, 99),
    model=st.builds(ModelInfo, name=names, served_as=st.none() | words),
    prompt=messages,
    messages=messages,
    reward=st.none() | numbers,
    status=st.sampled_from(["scored", "undecided", "fault", "failed", "pending", "unscored"]),
    data=st.builds(DataInfo, rows_hash=st.none() | names),
    seed=st.none() | st.integers(0, 2**63),
    turns=st.lists(turns, max_size=3),
    answer=plain,
    info=plain,
    scores=st.lists(scores, max_size=3),
    errors=st.lists(st.builds(Failure, side=st.just("model"), type=names, message=words), max_size=2),
    usage=st.builds(TokenUsage, prompt=st.none() | st.integers(0, 10**9), cost=st.none() | numbers),
    state_columns=st.dictionaries(names, plain, max_size=2),
)


def record(**changes) -> RolloutRecord:
    base = {
        "env": EnvInfo(name="demo"),
        "example_id": 0,
        "rollout_index": 0,
        "model": ModelInfo(name="m"),
        "prompt": [],
        "messages": [],
        "reward": 1.0,
        "status": "scored",
    }
    return RolloutRecord(**{**base, **changes})


def without_tokens(value: RolloutRecord) -> RolloutRecord:
    return msgspec.structs.replace(value, turns=[msgspec.structs.replace(turn, tokens=None) for turn in value.turns])


@given(records)
def test_a_record_round_trips_but_for_its_tokens(value):
    assert decode_record(encode_record(value)) == without_tokens(value)


@given(records)
def test_an_encoded_record_is_one_line_and_obeys_the_schema(value):
    line = encode_record(value)
    assert b"\n" not in line
    VALIDATOR.validate(json.loads(line))


VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def test_the_schema_is_valid_and_refuses_what_is_no_record():
    jsonschema.Draft202012Validator.check_schema(json_schema())
    line = json.loads(encode_record(record()))
    for broken in ({**line, "status": "fine"}, {**line, "reward": "1"}, {k: v for k, v in line.items() if k != "env"}):
        assert not VALIDATOR.is_valid(broken)


@given(st.lists(records, max_size=4, unique_by=lambda r: r.key))
def test_sidecar_traces_are_joined_again(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("run")
    sidecar = [line for value in values if (line := encode_traces(value)) is not None]
    (folder / "results.jsonl").write_bytes(b"".join(encode_record(value) + b"\n" for value in values))
    (folder / "tokens.jsonl").write_bytes(b"".join(line + b"\n" for line in reversed(sidecar)))
    assert list(read_records(folder / "results.jsonl", folder / "tokens.jsonl")) == values


def test_a_record_without_tokens_has_no_line_in_the_sidecar():
    assert encode_traces(record(turns=[Turn(start=0, end=1)])) is None


def test_fields_of_a_later_library_are_passed_over():
    line = json.loads(encode_record(record()))
    assert decode_record(json.dumps({**line, "novel": {"a": 1}, "env": {**line["env"], "novel": 2}})) == record()


def test_an_older_schema_version_is_read_and_a_newer_one_refused():
    line = json.loads(encode_record(record()))
    assert decode_record(json.dumps({**line, "schema_version": SCHEMA_VERSION - 1})).reward == 1.0
    with pytest.raises(msgspec.ValidationError, match="upgrade"):
        decode_record(json.dumps({**line, "schema_version": SCHEMA_VERSION + 1}))


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_last_line_is_left_out(tmp_path, cut):
    whole, torn = encode_record(record()), encode_record(record(example_id=1))
    path = tmp_path / "results.jsonl"
    path.write_bytes(whole + b"\n" + torn[:-cut])
    assert [found.example_id for found in read_records(path)] == [0]


def test_damage_in_the_middle_is_not_passed_over(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_bytes(b'{"env":\n' + encode_record(record()) + b"\n")
    with pytest.raises(msgspec.DecodeError):
        list(read_records(path))


@given(previous=token_ids, prompt=token_ids, completion=token_ids)
def test_a_trace_told_as_a_continuation_loses_nothing(previous, prompt, completion):
    whole = TokenTrace.of(prompt, completion)
    told = whole.after(array("i", previous).tobytes())
    assert previous[: told.prefix_length] + list(told.prompt_ids) == prompt
    assert told.completion_ids == whole.completion_ids


@given(previous=token_ids, prompt=token_ids)
def test_the_shared_prefix_of_a_trace_is_as_long_as_can_be(previous, prompt):
    length = TokenTrace.of(prompt, []).after(array("i", previous).tobytes()).prefix_length
    rest_before, rest_now = previous[length:], prompt[length:]
    assert not rest_before or not rest_now or rest_before[0] != rest_now[0]


@given(ids=token_ids, more=token_ids)
def test_a_continued_conversation_keeps_only_its_new_tokens(ids, more):
    told = TokenTrace.of(ids + more, [1]).after(array("i", ids).tobytes())
    assert (told.prefix_length, list(told.prompt_ids)) == (len(ids), more)


def test_ids_and_logprobs_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="2 completion ids but 1 log-prob"):
        TokenTrace.of([1], [2, 3], [-0.5])


@given(st.dictionaries(names, plain, max_size=4))
def test_equal_content_has_an_equal_hash_in_any_order(value):
    assert content_hash(value) == content_hash(dict(reversed(value.items())))
    assert content_hash(value) != content_hash({**value, "": 1})
