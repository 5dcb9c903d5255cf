"""Edits of files: the place that is meant, or none, with what to do instead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers.envs.file_edits import MAX_SHOWN, EditError, around, edited, inserted, replaced, viewed


def test_lines_are_numbered_and_a_range_is_shown():
    assert viewed("a\nb\n") == "     1\ta\n     2\tb"
    assert viewed("a\nb\nc", [2, -1]) == "     2\tb\n     3\tc"
    assert viewed("") == "     1\t"


def test_a_long_file_is_cut_and_says_so():
    shown = viewed("x\n" * 1000)
    assert len(shown.splitlines()) == MAX_SHOWN + 1
    assert "lines 401 to 1000 not shown" in shown


@pytest.mark.parametrize("view_range", [[0, 1], [3, 2], [9, 9], [1]])
def test_a_range_that_shows_nothing_is_refused(view_range):
    with pytest.raises(EditError):
        viewed("a\nb\n", view_range)


def test_only_a_text_that_stands_there_once_is_replaced():
    assert replaced("a\nb\nc", "b", "x\ny") == ("a\nx\ny\nc", 2)
    for old, says in [("", "empty"), ("z", "not found"), ("a", "2 times")]:
        with pytest.raises(EditError, match=says):
            replaced("a\na", old, "x")


@given(st.text("ab\n", max_size=30), st.text("xy\n", min_size=1, max_size=8))
def test_what_is_inserted_stands_in_lines_of_its_own(text, new):
    count = len(text.splitlines())
    for line in range(count + 1):
        lines = inserted(text, line, new).splitlines()
        assert lines[:line] == text.splitlines()[:line]
        assert lines[len(lines) - (count - line) :] == text.splitlines()[line:]


def test_a_line_that_is_not_there_is_refused():
    with pytest.raises(EditError, match="has 1 lines"):
        inserted("a", 2, "x")


def test_an_edit_is_shown_with_its_surroundings():
    text = "".join(f"{n}\n" for n in range(1, 21))
    assert around(text, 10, 1).splitlines()[0].endswith("\t7")
    assert around(text, 10, 1).splitlines()[-1].endswith("\t13")


def test_an_edit_is_one_of_two_and_complete():
    assert edited("a\nb\n", "str_replace", "b", None, None) == ("a\n\n", "     1\ta\n     2\t")
    assert edited("a\n", "insert", None, "x", 1) == ("a\nx\n", "     1\ta\n     2\tx")
    for command, line, says in [("insert", None, "needs insert_line"), ("undo", 1, "no command 'undo'")]:
        with pytest.raises(EditError, match=says):
            edited("a", command, None, "x", line)
