r"""`\boxed{}` and `####` answers."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers.parsers import extract_boxed_answer, extract_hash_answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{3}", "3"),
        (r"First \boxed{5}, no: \boxed{7}", "7"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed {8}", "8"),
        ("\\boxed \n {8}", "8"),
        (r"\fbox{3}", "3"),
        (r"\boxed{1} then \fbox{2}", "2"),
        (r"\boxed{\boxed{3}}", "3"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{\left\{x=1 \right.}", r"\left\{x=1 \right."),
        (r"\boxed{\begin{pmatrix}1\\2\end{pmatrix}} done", r"\begin{pmatrix}1\\2\end{pmatrix}"),
        (r"\boxed{}", ""),
        (r"\boxed{ 3 }", " 3 "),
    ],
)
def test_last_balanced_box_is_the_answer(text, answer):
    assert extract_boxed_answer(text) == answer
    assert extract_boxed_answer(text, strict=True) == answer


@pytest.mark.parametrize(
    "text", ["", "3", r"\boxed 3", r"\boxed{1} \boxed{2", r"\boxed{a{b}c", r"boxed{3}", "\\boxed{3\\", r"\boxed{3\}"]
)
def test_without_a_closed_last_box_there_is_no_strict_answer(text):
    assert extract_boxed_answer(text, strict=True) == ""
    assert extract_boxed_answer(text) == text


def test_text_that_is_no_text_does_not_stop_scoring():
    assert extract_boxed_answer(None) == "" == extract_boxed_answer(None, strict=True)
    assert extract_boxed_answer(3) == "3"
    assert extract_boxed_answer(3.5, strict=True) == ""
    assert extract_hash_answer(None) == ""
    assert extract_hash_answer(7) == "7"


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{" + "{" * 300_000,
        r"\boxed{" * 43_000,
        r"\boxed" + " " * 300_000,
        r"\boxed " * 43_000,
        "\\boxed{" + "\\" * 300_001,
        r"\boxed{}" * 37_000 + r"\boxed{",
    ],
)
def test_adversarial_text_costs_linear_time(text):
    started = time.process_time()
    assert extract_boxed_answer(text, strict=True) == ""
    assert time.process_time() - started < 1.0  # quadratic would take minutes


_balanced = st.recursive(
    st.text(alphabet="ab1 \n", max_size=5),
    lambda inner: st.lists(inner, max_size=3).map(lambda parts: "".join(f"{{{part}}}" for part in parts)),
    max_leaves=8,
)


@given(before=st.text(alphabet="ab{}\\ "), content=_balanced, after=st.text(alphabet="ab{} "))
def test_any_balanced_content_comes_back_from_its_box(before, content, after):
    assert extract_boxed_answer(f"{before} \\boxed{{{content}}}{after}", strict=True) == content


@given(st.text(alphabet="\\boxed{} f12"))
def test_strict_answer_is_part_of_the_text_and_else_empty(text):
    strict = extract_boxed_answer(text, strict=True)
    assert strict in text
    assert extract_boxed_answer(text) in (strict, text)


@pytest.mark.parametrize(
    ("text", "answer"), [("2 + 3 = 5\n#### 5 ", "5"), ("no mark", "no mark"), ("a####b####c", "b")]
)
def test_hash_answer_follows_the_mark(text, answer):
    assert extract_hash_answer(text) == answer
