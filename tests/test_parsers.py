"""The four parsers: answers out of completions, and what a format is worth."""

import logging
import pickle
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers.parsers import (
    MaybeThinkParser,
    Parser,
    ThinkParser,
    XMLParser,
    extract_boxed_answer,
    is_reasoning_unfinished,
    strip_reasoning,
)
from verifiers.types import AssistantMessage, SystemMessage, ToolMessage, UserMessage


def said(*texts):
    """A completion of assistant messages with a user between them."""
    messages = [UserMessage("go on")]
    for text in texts:
        messages += [AssistantMessage(text), UserMessage("go on")]
    return messages


def format_reward(parser, *texts):
    return parser.get_format_reward_func()(said(*texts))


def strict_boxed(text):
    return extract_boxed_answer(text, strict=True)


# --- Parser ---


@pytest.mark.parametrize(
    "make",
    [
        lambda role, content: {"role": role, "content": content},
        lambda role, content: SimpleNamespace(role=role, content=content),
        lambda role, content: AssistantMessage(content) if role == "assistant" else UserMessage(content),
    ],
    ids=["dict", "object", "Message"],
)
def test_answer_is_parsed_from_the_last_assistant_message(make):
    completion = [make("assistant", "first"), make("user", "and?"), make("assistant", "second"), make("user", "bye")]
    assert Parser(str.upper).parse_answer(completion) == "SECOND"


def test_no_assistant_message_means_no_answer():
    for parser in (Parser(), ThinkParser(), MaybeThinkParser(), XMLParser(["answer"])):
        assert parser.parse_answer([]) is None
        assert parser.parse_answer([UserMessage("<answer>3</answer>")]) is None
        assert parser.parse_answer(None) is None


def test_text_completion_is_parsed_directly():
    assert Parser(str.upper).parse_answer("yes") == "YES"
    assert ThinkParser().parse_answer("<think>a</think>b") == "b"
    assert XMLParser(["answer"]).parse_answer("<answer>3</answer>") == "3"


def test_text_parts_are_joined_and_other_parts_left_out():
    content = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "data:,"}},
        {"type": "thinking", "text": "secret"},
        SimpleNamespace(type="text", text="b"),
        "c",
    ]
    assert Parser().parse_answer([{"role": "assistant", "content": content}]) == "a b c"


def test_message_without_content_is_an_empty_text():
    assert Parser().parse_answer([AssistantMessage(None)]) == ""
    assert MaybeThinkParser(strict_boxed).parse_answer([AssistantMessage(None)]) == ""
    assert XMLParser(["answer"]).parse_answer([AssistantMessage(None)]) is None


def test_messages_are_found_by_role():
    completion = [SystemMessage("s"), UserMessage("u"), AssistantMessage("a"), ToolMessage("t", "id1")]
    parser = Parser()
    assert parser.get_system_messages(completion) == completion[0:1]
    assert parser.get_user_messages(completion) == completion[1:2]
    assert parser.get_assistant_messages(completion) == completion[2:3]
    assert parser.get_tool_messages(completion) == completion[3:4]


def test_subclass_that_overrides_parse_changes_the_answer():
    class LastWord(Parser):
        def parse(self, text):
            return text.split()[-1]

    class LastTag(XMLParser):
        def parse(self, text):
            return super().parse(text, last=True)

    assert LastWord().parse_answer(said("it is four")) == "four"
    assert LastTag(["answer"]).parse_answer(said("<answer>1</answer><answer>2</answer>")) == "2"


def test_unknown_keywords_become_attributes_with_a_debug_line(caplog):
    with caplog.at_level(logging.DEBUG, logger="verifiers.parsers.parser"):
        for parser in (
            Parser(strictness=2),
            ThinkParser(strictness=2),
            MaybeThinkParser(strictness=2),
            XMLParser(["answer"], strictness=2),
        ):
            assert parser.strictness == 2
    assert len(caplog.records) == 4
    assert "strictness" in caplog.text


def test_keyword_that_would_replace_a_method_is_refused():
    with pytest.raises(TypeError, match="'parse_answer'"):
        Parser(parse_answer=lambda completion: "gold")


def test_default_parsers_can_be_pickled():
    for parser in (Parser(), ThinkParser(), MaybeThinkParser(), XMLParser(["answer"])):
        assert pickle.loads(pickle.dumps(parser)).parse_answer(said("<think>a</think><answer>b</answer>")) is not None


def test_format_functions_are_named_for_the_metric_and_take_text():
    for parser in (Parser(), ThinkParser(), MaybeThinkParser(), XMLParser(["think", "answer"])):
        func = parser.get_format_reward_func()
        assert func.__name__ == "format_reward_func"
        assert func("<think>a</think><answer>b</answer>") == 1.0


# --- thinking ---


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>a</think>\n b \n", "b"),
        ("a</think>b", "b"),
        ("<think>a</think>b</think>c", "c"),
        ("<think>a</think>b<think>c", "b"),
        ("<think>a</think>", ""),
        ("<think>a", ""),
        ("b", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_think_parser_takes_what_follows_the_thought(text, answer):
    assert ThinkParser().parse(text) == answer


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("<think>a</think>b", 1.0),
        (" <think>a</think> b", 1.0),
        ("<think></think>b", 1.0),
        ("b", 0.0),
        ("a</think>b", 0.0),
        ("<think>a", 0.0),
        ("<think>a</think>", 0.0),
        ("<think>a</think>  \n", 0.0),
        ("x <think>a</think>b", 0.0),
        ("<think>a</think>b</think>c", 0.0),
        ("<think>a<think>b</think>c", 0.0),
        ("<think>a</answer>b", 0.0),
    ],
)
def test_think_format_is_one_closed_thought_and_then_text(text, reward):
    assert format_reward(ThinkParser(), text) == reward


def test_think_format_is_the_mean_over_messages():
    assert format_reward(ThinkParser(), "<think>a</think>b", "b") == 0.5
    assert format_reward(ThinkParser()) == 0.0


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"<think>maybe \boxed{3}", ""),
        (r"so it is three</think>\boxed{3}", "3"),
        (r"\boxed{3}", "3"),
        (r"<think>maybe \boxed{4}</think>\boxed{3}", "3"),
        (r"<think>maybe \boxed{3}</think>I could not settle.", ""),
        (r"<think>a</think>Let me check.<think>maybe \boxed{3}", ""),
        (r"\boxed{3} <think>or \boxed{4}", "3"),
    ],
)
def test_draft_in_a_thought_is_no_answer(text, answer):
    assert MaybeThinkParser(strict_boxed).parse(text) == answer


def test_unfinished_reasoning_is_told_from_finished():
    assert is_reasoning_unfinished("<think>maybe")
    assert is_reasoning_unfinished("<think>a</think>b<think>c")
    assert not is_reasoning_unfinished("<think>a</think>b")
    assert not is_reasoning_unfinished("a</think>b")
    assert not is_reasoning_unfinished("b")
    assert not is_reasoning_unfinished(None)


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("b", 1.0),
        ("<think>a</think>b", 1.0),
        ("a</think>b", 1.0),
        ("<think>a</think>b<think>c</think>d", 1.0),
        ("<think>a", 0.0),
        ("<think>a<think>b</think>c", 0.0),
        ("<think>a</think>b</think>c", 0.0),
    ],
)
def test_maybe_think_format_asks_only_that_tags_pair_up(text, reward):
    assert format_reward(MaybeThinkParser(), text) == reward


@given(st.lists(st.sampled_from(["<think>", "</think>", "a", " ", "<", "think>"]), max_size=12).map("".join))
def test_stripped_text_holds_no_reasoning(text):
    stripped = strip_reasoning(text)
    assert "<think>" not in stripped and "</think>" not in stripped
    assert stripped in text
    assert strip_reasoning(stripped) == stripped


# --- XML ---


def test_every_tag_is_an_attribute_or_none():
    parsed = XMLParser(["think", ("answer", "code")]).parse("<think> a </think>\n<code>\nb\n</code>")
    assert (parsed.think, parsed.code, parsed.answer) == ("a", "b", None)


def test_strip_and_last_are_honoured():
    parser = XMLParser(["answer"])
    text = "<answer> 1 </answer><answer> 2 </answer>"
    assert parser.parse(text).answer == "1"
    assert parser.parse(text, last=True).answer == "2"
    assert parser.parse(text, strip=False).answer == " 1 "


@pytest.mark.parametrize("text", ["", None, "none", "<answer>open", "answer</answer>", "</answer>1<answer>"])
def test_unclosed_tag_gives_none(text):
    assert XMLParser(["answer"]).parse(text).answer is None


@pytest.mark.parametrize(
    "text",
    [
        "<think>maybe <answer>1</answer>? no</think><answer>2</answer>",
        "maybe <answer>1</answer>? no</think><answer>2</answer>",
        "<think>it goes in <answer> tags</think><answer>2</answer>",
        "<think>it goes in <answer> tags<answer>2</answer>",
    ],
)
def test_draft_in_a_thought_is_not_the_field(text):
    expected = "tags<answer>2" if text.endswith("tags<answer>2</answer>") else "2"
    assert XMLParser(["think", "answer"]).parse(text).answer == expected
    assert XMLParser(["answer"]).parse(text).answer == expected


def test_draft_alone_is_no_answer():
    for fields in (["think", "answer"], ["answer"]):
        assert XMLParser(fields).parse_answer(said("<think>maybe <answer>1</answer></think>")) is None


def test_nested_field_is_found_when_there_is_none_outside():
    parsed = XMLParser(["proof", "step"]).parse("<proof><step>1</step><step>2</step></proof>")
    assert parsed.step == "1"
    assert parsed.proof == "<step>1</step><step>2</step>"


def test_answer_comes_from_the_last_message_that_has_it():
    parser = XMLParser(["answer"])
    assert parser.parse_answer(said("<answer>1</answer>", "<answer>2</answer>", "bye")) == "2"
    assert parser.parse_answer(said("<answer>1</answer>", "<answer></answer>")) == ""
    assert parser.parse_answer(said("nothing")) is None


def test_answer_field_and_extract_fn_are_used():
    parser = XMLParser(["think", "guess"], answer_field="guess", extract_fn=str.upper)
    assert parser.parse_answer(said("<think>t</think><guess>crane</guess>")) == "CRANE"


def test_format_writes_what_parse_reads():
    parser = XMLParser(["think", ("answer", "code")])
    text = parser.format(think="a", code=4, unused_column=1)
    assert text == "<think>\na\n</think>\n<answer>\n4\n</answer>"
    assert parser.parse(text) == SimpleNamespace(think="a", answer="4", code=None)
    with pytest.raises(ValueError, match=r"no value for field 'answer'.*answer=\.\.\. or code=\.\.\."):
        parser.format(think="a")


def test_format_text_and_field_names():
    parser = XMLParser(["think", ("answer", "code")])
    assert parser.get_fields() == ["think", "answer"]
    assert parser.get_format_str() == "<think>\n...\n</think>\n<[ answer | code ]>\n...\n</[ answer | code ]>"


@pytest.mark.parametrize("fields", [[], "answer", ["a", "a"], [("a", "b"), "b"], [()], [3]])
def test_unusable_fields_are_refused(fields):
    with pytest.raises((ValueError, TypeError), match="XMLParser"):
        XMLParser(fields)


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("<think>a</think><answer>b</answer>", 1.0),
        ("\n<think>\na\n</think> so\n<answer>\nb\n</answer> ", 1.0),
        ("<think>a</think><code>b</code>", 1.0),
        ("<think>a</answer><answer>b</answer>", 0.4),  # mismatched: half the fields, ends right
        ("<think>a <answer>b</answer>", 0.4),  # unclosed
        ("<think>a<answer>b</think></answer>", 0.4),  # crossed: half the fields, starts right
        ("<think>a<answer>b</answer></think>", 0.4),  # nested
        ("<think>a</think><answer>b</answer><answer>c</answer>", 0.8),  # a second answer
        ("<think>a</think><answer>b</answer><code>c</code>", 0.8),  # two alternatives at once
        ("hello <think>a</think><answer>b</answer>", 0.8),
        ("<answer>b</answer><think>a</think>", 0.4),  # wrong order
        ("<think>a</think>", 0.6),
        ("hello", 0.0),
        ("", 0.0),
        ("<think><answer>", 0.0),
        ("</think></answer>", 0.0),
    ],
)
def test_xml_format_formula(text, reward):
    assert format_reward(XMLParser(["think", ("answer", "code")]), text) == reward


def test_xml_format_is_the_mean_over_messages():
    parser = XMLParser(["answer"])
    assert format_reward(parser, "<answer>1</answer>", "nothing") == 0.5
    assert format_reward(parser) == 0.0


def test_copies_never_score_above_one_copy():
    parser = XMLParser(["think", "answer"])
    once = "<think>a</think><answer>b</answer>"
    assert format_reward(parser, once * 5) < format_reward(parser, once)


_pieces = st.lists(
    st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", "<code>", "</code>", "a", " "]), max_size=14
).map("".join)


@given(_pieces)
def test_full_format_reward_means_exactly_the_format(text):
    reward = format_reward(XMLParser(["think", ("answer", "code")]), text)
    assert 0.0 <= reward <= 1.0
    counts = [text.count(tag) for tag in ("<think>", "</think>")]
    answers = [text.count("<answer>") + text.count("<code>"), text.count("</answer>") + text.count("</code>")]
    if reward == 1.0:
        assert counts == answers == [1, 1]
        assert text.strip().startswith("<think>")
        assert text.strip().endswith(("</answer>", "</code>"))
        assert text.index("</think>") < max(text.find("<answer>"), text.find("<code>"))
    if not any(f"</{name}>" in text for name in ("think", "answer", "code")):
        assert reward == 0.0


@given(think=st.text(alphabet="ab<> \n"), answer=st.text(alphabet="ab<> \n"))
def test_formatted_values_parse_back_and_score_full(think, answer):
    parser = XMLParser(["think", "answer"])
    text = parser.format(think=think, answer=answer)
    assert parser.parse(text) == SimpleNamespace(think=think.strip(), answer=answer.strip())
    assert format_reward(parser, text) == 1.0


@pytest.mark.parametrize("piece", ["<answer>", "</answer>", "<think>", "<think></answer>", "<answer></answer>"])
def test_adversarial_tags_cost_linear_time(piece):
    parser = XMLParser(["think", "answer"])
    text = piece * (300_000 // len(piece))
    started = time.process_time()
    parser.parse(text)
    format_reward(parser, text)
    assert time.process_time() - started < 5.0  # about 0.2 s; quadratic would take minutes
