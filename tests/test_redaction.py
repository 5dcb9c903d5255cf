"""A declared secret is masked wherever it stands; what is written stays readable."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers.records import EnvInfo, ModelInfo, RolloutRecord, decode_record, encode_record
from verifiers.redaction import MASK, Redactor

KEY = "sk-proj-12345678"
AWKWARD = 'p"ss\\wörd/+ 1'


def record_with(text: str) -> RolloutRecord:
    return RolloutRecord(
        env=EnvInfo(name="demo"),
        example_id=123456,
        rollout_index=0,
        model=ModelInfo(name="m"),
        prompt=[{"role": "user", "content": text}],
        messages=[],
        reward=1.0,
        status="scored",
    )


def test_a_secret_is_masked_in_plain_text():
    assert Redactor([KEY]).text(f"Bearer {KEY} refused, {KEY}") == f"Bearer {MASK} refused, {MASK}"


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("secret", [KEY, AWKWARD])
def test_a_secret_is_masked_inside_json_inside_json(secret, ascii_only, depth):
    text = f"before {secret} after"
    for _ in range(depth):
        text = json.dumps({"arguments": text}, ensure_ascii=ascii_only)
    redactor = Redactor([secret])
    assert redactor.text(text) != text
    decoded = json.loads(redactor.data(json.dumps(text, ensure_ascii=ascii_only).encode()))
    for _ in range(depth):
        decoded = json.loads(decoded)["arguments"]
    assert decoded == f"before {MASK} after"


@pytest.mark.parametrize(
    "text",
    ["https://host/?key=p%22ss%5Cw%C3%B6rd%2F%2B%201", f"ValueError: {AWKWARD!r}", "key=p%22ss%5Cw%C3%B6rd%2F%2B+1"],
)
def test_a_secret_is_masked_in_urls_and_reprs(text):
    assert MASK in Redactor([AWKWARD]).text(text)


def test_a_secret_of_several_lines_is_masked_when_it_was_joined_to_one():
    assert Redactor(["-----BEGIN\nabcdef\n-----END\n"]).text("bad key -----BEGIN abcdef -----END") == f"bad key {MASK}"


def test_a_trailing_newline_in_the_variable_does_not_hide_the_key():
    assert Redactor([KEY + "\n"]).text(f"Bearer {KEY}") == f"Bearer {MASK}"


def test_dict_keys_are_masked_and_numbers_are_not():
    redactor = Redactor(["123456", KEY])
    assert redactor.value({KEY: ["123456", 123456]}) == {MASK: [MASK, 123456]}


@pytest.mark.parametrize("secret", ["", None, "EMPTY", "12345"])
def test_short_values_are_left_alone(secret):
    assert Redactor([secret]).text(f"EMPTY 12345 {secret}") == f"EMPTY 12345 {secret}"


@pytest.mark.parametrize("secret", ["prompt", "reward", "scored", "messages", "123456", '"reward":1.0', "[{},{}]"])
def test_no_secret_can_break_a_record(secret):
    """A key may be a word of the format, digits of a number, or JSON's own punctuation."""
    redacted = decode_record(Redactor([secret]).data(encode_record(record_with("hello"))))
    assert redacted == record_with("hello")


def test_nothing_to_hide_costs_no_copy():
    line = encode_record(record_with("hello"))
    assert Redactor([KEY]).data(line) is line
    assert Redactor().data(line) is line


def test_bytes_that_are_no_json_are_masked_as_text():
    assert Redactor([KEY]).data(b"\xff log: " + KEY.encode()) == b"\xff log: ***"


def test_the_redactor_does_not_show_its_secrets():
    assert KEY not in repr(Redactor([KEY]))


@given(
    secret=st.text(st.characters(exclude_categories=["Cs"]), min_size=8, max_size=20).filter(
        lambda s: len(s.strip()) > 7
    ),
    before=st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    after=st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
)
def test_no_secret_survives_in_a_record(secret, before, after):
    redactor = Redactor([secret])
    record = decode_record(redactor.data(encode_record(record_with(before + secret + after))))
    assert secret not in record.prompt[0]["content"] or set(secret) == {"*"}
    assert record.example_id == 123456
