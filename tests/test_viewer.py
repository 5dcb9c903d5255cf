"""The viewer's fragments: what is shown of a rollout, a list and a comparison, and that texts stay texts."""

import re
from html import unescape
from html.parser import HTMLParser
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollouts import EVIL, nasty, record

from verifiers.records import Score, Timing, TokenUsage, Turn, decode_record, encode_record
from verifiers.viewer import (
    ComparisonState,
    Html,
    Links,
    ListState,
    SampleRow,
    Selection,
    asset_path,
    compare_rows,
    parse_filter,
    place_of,
    render_comparison,
    render_examples,
    render_filter,
    render_overview,
    render_pair,
    render_rollout,
    sample_row,
    searchable_text,
    verdict,
    whole_text,
)
from verifiers.viewer.html import tag, visible
from verifiers.viewer.wording import short

LINKS = Links(
    rollout=lambda example_id, rollout_index: f"/r/{example_id}/{rollout_index}",
    listing="/list",
    whole_text=lambda example_id, rollout_index, part: f"/r/{example_id}/{rollout_index}/text/{part}",
    record=lambda example_id, rollout_index: f"/r/{example_id}/{rollout_index}.json",
    candidate=lambda example_id, rollout_index: f"/b/{example_id}/{rollout_index}",
    pair=lambda example_id: f"/pair/{example_id}",
)
VOID = {"br", "hr", "img", "input", "meta", "link"}


class Page(HTMLParser):
    """Elements with attributes, the text, and whether every element is closed where it should be."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.elements, self.texts, self._open = [], [], []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in VOID:
            self._open.append(name)

    def handle_endtag(self, name):
        assert self._open.pop() == name

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    def all(self, name, /, **attributes):
        return [found for kind, found in self.elements if kind == name and attributes.items() <= found.items()]

    def classes(self, name):
        return [found for _, found in self.elements if name in (found.get("class") or "").split()]


def row(example_id, rollout_index=0, reward=1.0, **changes):
    status = changes.pop("status", "scored" if reward is not None else "failed")
    return SampleRow(example_id=example_id, rollout_index=rollout_index, reward=reward, status=status, **changes)


ALLOWED = {
    *("a", "article", "aside", "b", "button", "code", "dd", "details", "div", "dl", "dt", "figcaption", "figure"),
    *("form", "h2", "h3", "h4", "header", "img", "input", "label", "li", "line", "nav", "ol", "option", "p", "pre"),
    *("rect", "section", "select", "span", "summary", "svg", "table", "tbody", "td", "tfoot", "th", "thead", "title"),
    *("tr", "ul"),
}


def assert_inert(page):
    """No element, attribute or address in it that would run, load or style something."""
    for name, attributes in page.elements:
        assert name in ALLOWED, name
        for key, value in attributes.items():
            assert not key.startswith("on") and key != "style", key
            if key in ("href", "action"):
                assert value.startswith(("/", "#")), value
            if key == "src":
                assert value.startswith("data:image/png;base64,"), value


# Texts


def test_no_text_of_a_rollout_becomes_markup():
    page = Page(render_rollout(nasty(), links=LINKS))
    assert_inert(page)
    assert len(page.all("img")) == 1  # the picture that is in the record itself
    assert "document.title='owned'" in page.text
    assert "[image, not fetched: http://127.0.0.1:9/track.png ]" in page.text


def test_no_text_of_a_row_becomes_markup_in_a_list_or_a_comparison():
    rows = [sample_row(nasty(rollout_index=n, example_id=n % 2)) for n in range(4)]
    state = ListState(query=EVIL, order="worst", error=EVIL)
    pages = [
        render_examples(rows, links=LINKS, state=state),
        render_examples(rows, links=LINKS, state=state, is_narrow=True, selected=(0, 0)),
        render_filter(LINKS, state, n_shown=1, n_all=2),
        render_overview(rows, links=LINKS, weights={EVIL: 1.0}),
        render_comparison(compare_rows(rows, rows), links=LINKS, state=ComparisonState(names=(EVIL, EVIL), show=EVIL)),
        render_pair(nasty(), nasty(), links=(LINKS, LINKS), names=(EVIL, EVIL), tries=(rows, rows)),
    ]
    for html in pages:
        assert_inert(Page(html))
        html.encode("utf-8")


texts = st.text(st.characters() | st.sampled_from("<>&\"'\x00\x1b\u202e\ud800\r\n\t"), max_size=60)
MARKED = re.compile(r'<span class="rv-odd">[^<]*</span>')
INVISIBLE = "\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
ODD = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{INVISIBLE}]")


@given(texts)
def test_what_a_browser_would_obey_or_hide_is_marked(text):
    html = visible(text)
    html.encode("utf-8")
    assert not ODD.search(html) and "<" not in MARKED.sub("", html)


@given(texts.filter(lambda text: "\x1b" not in text))
def test_all_other_text_is_shown_as_it_is(text):
    assert unescape(MARKED.sub("", visible(text))) == ODD.sub("", text.replace("\r\n", "\n"))


@given(texts, texts)
def test_any_text_can_be_an_attribute(key, value):
    page = Page(tag("a", key, title=value, href="/x"))
    assert (
        page.elements[0][0] == "a" and page.elements[0][1].keys() == {"title", "href"} and len(page.elements[1:]) <= 60
    )


def test_what_has_no_shape_is_shown():
    assert "⟨ESC⟩[31m" in visible("\x1b[31mred")
    assert "⟨U+202E⟩" in visible("\u202egnp.exe")
    assert "⟨U+D800⟩" in visible("\ud800")
    assert "⟨U+200B⟩" in visible("a\u200bb")
    assert "⟨NUL⟩×5000" in visible("\0" * 5000)
    assert visible("a\r\nb\tc\n") == "a\nb\tc\n"
    assert visible("family 👨‍👩‍👧 می‌خواهم") == "family 👨‍👩‍👧 می‌خواهم"  # these joiners belong to what is written


def test_markup_passes_through_a_template_as_it_is():
    html = render_rollout(record(), links=LINKS)
    assert isinstance(html, Html) and html.__html__() == html


# Bounds


def test_a_huge_text_is_cut_in_the_middle_and_linked_to():
    huge = nasty()
    page = Page(render_rollout(huge, links=LINKS))
    assert "START long" in page.text and "THE END" in page.text and "characters are not shown" in page.text
    (link,) = page.classes("rv-whole")
    part = link["href"].removeprefix("/r/0/0/text/")
    assert whole_text(huge, part) == huge.messages[3]["content"]


def test_every_part_that_is_cut_can_be_had_whole():
    long = "word " * 5_000
    call = {"id": "1", "function": {"name": "f", "arguments": long}}
    big = record(
        prompt=[{"role": "system", "content": long}, {"role": "user", "content": [{"type": "text", "text": long}]}],
        messages=[{"role": "assistant", "content": f"<think>{long}</think>{long}", "tool_calls": [call]},
                  {"role": "assistant", "reasoning_content": long, "content": None}],
        turns=[Turn(start=0, end=0, prompt=[{"role": "user", "content": long}], completion=[])],
        scores=[Score(name="s", weight=1, value=None, status="undecided", reason=long)],
        answer=long, info={"k": long}, sampling={"k": long},
    )  # fmt: skip
    page = Page(render_rollout(big, links=LINKS))
    parts = [found["href"].removeprefix("/r/0/0/text/") for found in page.classes("rv-whole")]
    assert len(parts) == len(set(parts)) == 11
    for part in parts:
        assert long.strip() in whole_text(big, part)


def test_a_part_that_is_not_there_is_a_lookup_error():
    with pytest.raises(LookupError, match=r"no text 'messages\.9\.content'"):
        whole_text(record(), "messages.9.content")


def test_a_page_stays_small_however_long_the_rollout():
    many = [{"role": "assistant", "content": f"<{n}>" * 4_000} for n in range(3_000)]
    html = render_rollout(record(messages=many, turns=[]), links=LINKS)
    assert len(html) < 5_000_000
    assert "2,500 messages are not shown" in html
    page = Page(html)
    assert "<0>" in page.text and "<2999>" in page.text and "<1500>" not in page.text


def test_a_list_of_many_examples_has_pages():
    rows = [row(n, t) for n in range(250) for t in range(2)]
    page = Page(render_examples(rows, links=LINKS, state=ListState(query="turns=0", order="best", page=2)))
    assert len(page.classes("rv-try")) == 200 and "page 2 of 3" in page.text
    assert page.all("a", href="/list?q=turns%3D0&sort=best&page=3")
    found = Page(render_examples(rows, links=LINKS, selected=(249, 1)))
    assert len(found.all("a", **{"aria-current": "page"})) == 1 and "page 3 of 3" in found.text


def test_rows_of_one_page_that_the_host_cut_out_are_all_shown():
    rows = [row(n) for n in range(150)]
    page = Page(render_examples(rows, links=LINKS, state=ListState(page=4, n_pages=9)))
    assert len(page.classes("rv-try")) == 150 and "page 4 of 9" in page.text


def test_an_example_of_very_many_tries_shows_the_first_and_links_to_the_rest():
    page = Page(render_examples([row(0, t) for t in range(1000)], links=LINKS))
    assert len(page.classes("rv-try")) == 64 and page.all("a", href="/list?q=example%3D0")


# A rollout


def tool_record():
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    return record(
        messages=[
            {"role": "assistant", "content": None, "reasoning_content": "Let me add.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "3"},
            {"role": "assistant", "content": "<think>so three</think>\n\\boxed{3}"},
        ],
        turns=[Turn(start=0, end=1, model_s=1.25), Turn(start=2, end=3, finish_reason="length", reward=0.5)],
        scores=[Score(name="correct", weight=1.0, value=0.75), Score(name="form", weight=0.5, value=0.5),
                Score(name="calls", weight=0.0, value=1.0)],
        reward=1.0, stop_condition="no_tools_called", answer="3",
        timing=Timing(total_s=2.0, model_s=1.5, tool_s=0.25, score_s=0.1), usage=TokenUsage(prompt=10, completion=5),
    )  # fmt: skip


def test_a_rollout_shows_roles_reasoning_calls_and_results():
    page = Page(render_rollout(tool_record(), links=LINKS))
    for text in ("user", "assistant turn 1 of 2 1.2 s", "Let me add.", 'add { "a": 1 }', "tool add", "so three",
                 r"\boxed{3}", "turn 2 of 2", "reward 0.5", "cut off: length", "ended by no_tools_called",
                 "15 tokens"):  # fmt: skip
        assert text in page.text, text
    folds = [f["class"] for f in page.all("details")]
    assert folds.count("rv-fold rv-reasoning") == 2 and folds.count("rv-fold rv-call") == 1
    assert not any("open" in found for found in page.all("details"))


def test_each_reward_function_shows_value_weight_and_what_it_adds():
    text = Page(render_rollout(tool_record(), links=LINKS)).text
    assert "correct 0.75 ×1 0.75 form 0.5 ×0.5 0.25 reward 1 Only reported calls 1" in text
    assert "add up" not in text


def test_a_reward_that_is_not_the_sum_says_so():
    other = msgspec.structs.replace(tool_record(), reward=0.4)
    assert "The parts add up to 1 (−0.6 to the reward)" in Page(render_rollout(other, links=LINKS)).text


def test_an_unscored_rollout_shows_why_and_no_zero():
    score = Score(name="judge", weight=1.0, value=None, status="fault", reason="no verdict in the reply", side="judge")
    text = Page(render_rollout(record(reward=None, status="fault", scores=[score]), links=LINKS)).text
    assert "Reward ! fault" in text and "judge – ×1 – fault (judge) no verdict in the reply reward –" in text


def test_arguments_that_are_no_object_are_marked():
    def badges(arguments):
        call = {"id": "1", "function": {"name": "f", "arguments": arguments}}
        page = Page(render_rollout(record(messages=[{"role": "assistant", "tool_calls": [call]}]), links=LINKS))
        return [text for text in ("not JSON", "not an object") if text in page.text]

    assert badges('{"a": 1') == badges('{"invalid_arguments": "{\\"a"}') == ["not JSON"]
    assert badges("[1]") == badges("null") == ["not an object"]
    assert badges("") == badges({"a": 1}) == badges(None) == badges("{}") == []


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"role": None, "content": 5},
        {"role": "assistant", "tool_calls": "x"},
        {"role": "assistant", "tool_calls": [None, 1, {"function": None}, {"function": {"arguments": 3}}]},
        {"role": "user", "content": [None, 1, {}, {"type": "image_url"}, {"image_url": {"url": 3}}, {"text": 4}]},
        {"role": "assistant", "content": None, "refusal": "no", "thinking_blocks": [None, {"thinking": None}]},
        {"role": "tool", "content": {"a": 1}, "tool_call_id": 7},
        {"role": "assistant", "content": "<think>never ends", "reasoning": {"x": 1}},
    ],
)
def test_messages_of_any_shape_are_shown(message):
    odd = record(prompt=[message], messages=[message], turns=[Turn(start=5, end=900), Turn(start=-3, end=1)])
    assert_inert(Page(render_rollout(odd, links=LINKS)))
    sample_row(odd), searchable_text(odd)


def test_deeply_nested_values_are_shown():
    deep = None
    for _ in range(20_000):
        deep = [deep]
    messages = [{"role": "user", "content": {"a": deep}}, {"role": "user", "content": [{"type": "x", "a": deep}]}]
    odd = record(prompt=messages, messages=messages, answer=deep, info=deep, sampling={"a": deep})
    assert "nested too deeply" in Page(render_rollout(odd, links=LINKS)).text
    sample_row(odd), searchable_text(odd)


def test_neighbours_follow_the_filter_and_the_order_of_the_list():
    rows = [row(e, t, reward=float(e == 1)) for e in range(3) for t in range(2)]
    selection = Selection([r for r in rows if r.rollout_index == 1], others=rows, order="worst")
    place = place_of((2, 1), selection, query="try=1")
    assert (place.previous, place.next, place.position, place.total) == ((0, 1), (1, 1), 2, 3)
    page = Page(render_rollout(record(example_id=2, rollout_index=1), links=LINKS, place=place))
    assert page.all("a", rel="next", href="/r/1/1?q=try%3D1&sort=worst")
    assert page.all("a", rel="prev", href="/r/0/1?q=try%3D1&sort=worst")
    assert (
        "not among the 3 shown" in Page(render_rollout(record(), links=LINKS, place=place_of((0, 0), selection))).text
    )


# Rows


def test_a_row_holds_what_a_list_needs():
    made = sample_row(tool_record())
    assert (made.turns, made.tokens, made.duration_s, made.stop_condition) == (2, 15, 2.0, "no_tools_called")
    assert made.scores == {"correct": 0.75, "form": 0.5, "calls": 1.0} and made.title == "What is 2 + 2?"
    faulty = sample_row(nasty())
    assert (faulty.n_errors, faulty.error_sides, faulty.error_types) == (2, ("sandbox", "judge"), (EVIL,))


def test_a_row_goes_through_json():
    made = sample_row(tool_record())
    assert msgspec.json.decode(msgspec.json.encode(made), type=SampleRow) == made


def test_a_reward_that_is_no_number_is_none():
    assert sample_row(record(reward=float("nan"))).reward is None
    assert sample_row(record(scores=[Score(name="s", weight=1, value=float("inf"))])).scores == {"s": None}


def test_tries_that_a_filter_left_out_are_shown_as_outlines():
    rows = [row(0, 0, 0.0), row(0, 1, 1.0), row(1, 0, 1.0)]
    page = Page(render_examples(Selection(rows[:1], others=rows), links=LINKS))
    squares = page.classes("rv-try")
    assert [("rv-faint" in s["class"]) for s in squares] == [False, True]


def test_squares_tell_rewards_and_statuses_apart_without_colours():
    assert [short(x) for x in (0.0, 1.0, 0.5, 0.25, -0.5, 1.25, 12.0, 123456.0)] == [
        "0", "1", ".5", ".25", "−.5", "1.2", "12", "1e5",
    ]  # fmt: skip
    rows = [row(0, n, None, status=s) for n, s in enumerate(("failed", "fault", "undecided", "unscored"))]
    page = Page(render_examples(rows, links=LINKS))
    assert [s["class"].split()[-1] for s in page.classes("rv-try")] == [
        "rv-failed",
        "rv-fault",
        "rv-undecided",
        "rv-unscored",
    ]
    assert [text for text in page.texts if text in "✕!?–"][:4] == ["✕", "!", "?", "–"]


@pytest.mark.parametrize(
    "order, first",
    [
        ("disagreement", 2),
        ("worst", 0),
        ("best", 1),
        ("errors", 3),
        ("turns", 1),
        ("tokens", 2),
        ("slowest", 3),
        ("no", 0),
    ],
)
def test_orders(order, first):
    rows = [
        row(0, 0, 0.1), row(0, 1, 0.1), row(1, 0, 1.0, turns=9), row(2, 0, 0.0, tokens=50), row(2, 1, 1.0),
        row(3, 0, None, n_errors=2, duration_s=7.0),
    ]  # fmt: skip
    assert Selection(rows, order=order).examples[0].example_id == first


def test_the_overview_counts_what_was_scored():
    rows = [row(0, 0, 1.0, scores={"a": 1.0}), row(0, 1, 1.0, scores={"a": None}), row(1, 0, 0.0), row(1, 1, None)]
    text = Page(render_overview(rows, links=LINKS, weights={"a": 0.5})).text
    assert "3 of 4 scored" in text and "0.5 to 0.75 bounds, unscored included" in text and "a 1 ×0.5" in text


# Comparisons


def test_examples_are_sorted_into_those_that_changed_and_those_that_did_not():
    a = [row(0, 0, 0.0), row(1, 0, 1.0), row(2, 0, 1.0), row(3, 0, 0.0), row(4, 0, None), row(5)]
    b = [row(0, 0, 1.0), row(1, 0, 0.0), row(2, 0, 1.0), row(3, 0, 0.2), row(4, 0, 1.0), row(6)]
    found = compare_rows(a, b)
    assert found.counts == {"gained": 1, "lost": 1, "both_pass": 1, "both_fail": 1, "not_comparable": 3}
    assert [pair.example_id for pair in found.in_order("changed")] == [0, 1]
    assert [pair.example_id for pair in found.in_order()] == [0, 1, 3, 2, 4, 5, 6]
    assert found.difference.n_examples == 4 and found.difference.mean == pytest.approx(0.05)
    page = Page(render_comparison(found, links=LINKS, state=ComparisonState(names=("old", "new"), show="changed")))
    assert page.all("a", href="/r/0/0") and page.all("a", href="/b/0/0") and page.all("a", href="/pair/1")
    assert not page.all("a", href="/r/2/0") and "both pass 1" in page.text


def test_the_verdict_is_no_stronger_than_the_interval():
    def said(a, b):
        return verdict(
            compare_rows([row(n, 0, x) for n, x in enumerate(a)], [row(n, 0, x) for n, x in enumerate(b)]).difference
        )

    assert said([0] * 10, [1] * 9 + [0]).startswith("The candidate is better by 0.9 over 10 examples (95 % interval +")
    assert said([1] * 10, [0] * 9 + [1]).startswith("The candidate is worse by 0.9 over 10 examples (95 % interval −")
    assert said([0, 1, 0, 1], [1, 0, 0, 1]).startswith("No difference can be told: 0 over 4 examples")
    assert said([0], [1]) == "The candidate differs by +1 over 1 example: too few for an interval."
    assert said([None], [1]) == "The two runs have no scored example in common."


def test_runs_over_other_rows_are_warned_of():
    found = compare_rows([row(0, title="What is 1 + 1?")], [row(0, title="Name a fish.")])
    assert "1 example of equal id asks different questions" in Page(render_comparison(found, links=LINKS)).text


def test_ids_of_a_pair_of_rollouts_differ():
    page = Page(render_pair(tool_record(), tool_record(), links=(LINKS, LINKS)))
    ids = [found["id"] for _, found in page.elements if "id" in found]
    assert len(ids) == len(set(ids)) > 6


def test_assets_are_files_and_nothing_else_can_be_asked_for():
    assert asset_path("viewer.css").read_text().count(".rv") > 50
    assert "eval" not in asset_path("viewer.js").read_text()
    with pytest.raises(LookupError):
        asset_path("../__init__.py")


def test_every_class_begins_with_the_prefix():
    html = render_rollout(nasty(), links=LINKS) + render_overview([row(0)], links=LINKS)
    for _, found in Page(html).elements:
        assert all(name.startswith("rv") for name in (found.get("class") or "").split())
    css = asset_path("viewer.css").read_text()
    assert set(re.findall(r"\.([a-z][\w-]*)", re.sub(r"/\*.*?\*/", "", css, flags=re.S))) <= set(
        re.findall(r"\brv[\w-]*", css)
    )


def test_a_saved_record_looks_like_the_one_in_memory():
    made = tool_record()
    assert render_rollout(decode_record(encode_record(made)), links=LINKS) == render_rollout(made, links=LINKS)


def test_the_help_of_the_filter_names_the_reward_functions_of_the_run():
    names = ["correct", "format ok", "turns", 'a "quoted" one']
    page = Page(render_filter(LINKS, ListState(), n_shown=1, n_all=1, score_names=names))
    assert 'correct<1 a reward function by its name: correct, "format ok", "turns"' in page.text
    for found in page.all("a"):
        parse_filter(parse_qs(urlsplit(found["href"]).query)["q"][0])


def test_of_a_part_of_the_list_nothing_is_counted():
    selection = Selection([row(e) for e in range(3)])
    place = place_of((1, 0), selection, is_whole=False)
    page = Page(render_rollout(record(example_id=1), links=LINKS, place=place))
    assert page.all("a", rel="next", href="/r/2/0") and "of 3" not in page.text


def test_a_run_without_the_example_is_told_beside_the_other():
    page = Page(render_pair(tool_record(), None, links=(LINKS, LINKS), names=("old", "new")))
    assert "new candidate This run does not have the example." in page.text and "old baseline" in page.text


def test_distributions_count_every_rollout_once():
    rows = [row(n, reward=n / 9, tokens=100 * n) for n in range(10)] + [row(10, reward=None)]
    charts = Page(render_overview(rows, links=LINKS)).all("svg", role="img")
    assert [c["aria-label"] for c in charts] == [
        "Distribution of reward over 10 rollouts, from 0 to 1",
        "Distribution of tokens over 10 rollouts, from 0 to 900",
    ]
    found = re.findall(r"<title>(reward|tokens) [^<]*: (\d+) rollouts?</title>", render_overview(rows, links=LINKS))
    assert sum(int(n) for what, n in found if what == "reward") == 10
    assert sum(int(n) for what, n in found if what == "tokens") == 10
    assert "Distribution of turns" in render_overview([row(0, turns=3)], links=LINKS)
