"""Pages that are kept: never stale, never more than the limit."""

import pytest

from hub_server.services.page_store import PageStore


class Counter:
    """A freshness that a test moves on."""

    value = 1

    def current(self):
        return self.value


@pytest.fixture
def freshness():
    return Counter()


def test_a_page_is_dropped_when_anything_was_committed(freshness):
    pages = PageStore(freshness)
    pages.keep("a", "page", pages.generation())
    assert pages.get("a") == "page"
    freshness.value += 1
    assert pages.get("a") is None


def test_a_page_made_before_a_commit_is_not_kept_after_it(freshness):
    pages = PageStore(freshness)
    generation = pages.generation()
    freshness.value += 1
    assert pages.get("a") is None
    pages.keep("a", "old page", generation)
    assert pages.get("a") is None


def test_the_least_recently_used_pages_go_first(freshness):
    pages = PageStore(freshness, max_bytes=300)
    now = pages.generation()
    for key in "abc":
        pages.keep(key, key, now, size_bytes=100)
    assert pages.get("a") == "a"
    pages.keep("d", "d", now, size_bytes=100)
    assert [pages.get(key) for key in "abcd"] == ["a", None, "c", "d"]
    pages.keep("e", "e", now, size_bytes=301)
    assert pages.get("e") is None, "larger than all of the store"
    pages.keep("a", "again", now, size_bytes=200)
    assert [pages.get(key) for key in "acd"] == ["again", None, "d"], "its old size is given back"


def test_the_number_of_pages_is_bounded_too(freshness):
    pages = PageStore(freshness, max_entries=2)
    for key in range(5):
        pages.keep(key, str(key), pages.generation())
    assert [pages.get(key) for key in range(5)] == [None, None, None, "3", "4"]
