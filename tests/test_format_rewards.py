"""Format rewards beside an answer's reward: worth their weight to a reply in the format, and no more to any other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import verifiers as vf
from verifiers.types import State

XML = vf.XMLParser(["think", "answer"])
PARSERS = {"xml": XML, "think": vf.ThinkParser(), "maybe": vf.MaybeThinkParser()}


def format_reward(parser, text):
    return parser.get_format_reward_func()([vf.AssistantMessage(text)])


async def reward(rubric, completion, answer="4"):
    state = State(
        input={"prompt": "2 + 2?", "answer": answer},
        completion=[{"role": "assistant", "content": completion}],
        trajectory=[],
    )
    await rubric.score_rollout(state)
    return state["reward"]


def weighted(parser):
    """As docs/parsers.md says: the format for a tenth of the answer."""
    rubric = vf.Rubric(funcs=[vf.exact_match], parser=parser)
    rubric.add_reward_func(parser.get_format_reward_func(), weight=0.1)
    return rubric


# What classic releases gave to well-formed replies and to the usual partial ones.
CLASSIC = [
    ("<think>\na\n</think>\n<answer>\nb\n</answer>", 1.0, 1.0),
    ("<think>a</think><answer>b</answer>", 1.0, 1.0),
    ("<answer>\nb\n</answer>", 0.6, 0.0),
    ("<think>\na\n</think>", 0.6, 0.0),
    ("<think>\na\n</think>\nb", 0.6, 1.0),
    ("so: <think>\na\n</think>\n<answer>\nb\n</answer>", 0.8, 0.0),
    ("<think>\na\n</think>\n<answer>\nb\n</answer> done", 0.8, 1.0),
]


@pytest.mark.parametrize(("text", "xml", "think"), CLASSIC)
def test_replies_in_the_format_and_usual_partial_ones_keep_their_classic_value(text, xml, think):
    assert format_reward(XML, text) == xml
    assert format_reward(vf.ThinkParser(), text) == think


@pytest.mark.parametrize(
    "text",
    [
        "<think>a</think><answer>b",
        "<think>a<answer>b</answer>",
        "<think>a<answer>b</think></answer>",
        "<think><answer>b</answer></think>",
        "<answer>b</answer><think>a</think>",
        "</think>a<think></answer>b<answer>",
        "<think>a</think><answer>b</answer></answer>",
        "<think>" * 50 + "a</think><answer>b</answer>",
        "<think>a</think>" + "<answer>" * 50 + "b</answer>",
    ],
)
def test_unclosed_misnested_and_stray_tags_are_not_full_marks(text):
    assert format_reward(XML, text) < 1.0


def test_no_tags_at_all_are_worth_nothing():
    for text in ("", "4", "think answer", "<b>4</b>", "&lt;answer&gt;4&lt;/answer&gt;"):
        assert format_reward(XML, text) == format_reward(vf.ThinkParser(), text) == 0.0


@pytest.mark.parametrize("parser", [XML, vf.ThinkParser()], ids=["xml", "think"])
async def test_pattern_03_format_with_a_wrong_answer_is_below_a_right_answer_without_it(parser):
    rubric = weighted(parser)
    if parser is XML:
        in_format, right = "<think>5?</think><answer>5</answer>", "Hm. <answer>4</answer> I hope."
    else:
        in_format, right = "<think>5?</think>5", "5? no</think>4"
    assert format_reward(parser, in_format) == 1.0 > format_reward(parser, right)
    assert await reward(rubric, in_format) < await reward(rubric, right)


@pytest.mark.parametrize("name", PARSERS)
@pytest.mark.parametrize(
    "text",
    [
        "<think>a</think><answer>b</answer>",
        "<answer>b</answer>",
        "<think>a</think>",
        "<think>a</think>b",
        "<answer>b",
        "</answer>",
        "<think>",
    ],
)
def test_pattern_04_fifty_copies_are_worth_no_more_than_one(name, text):
    once = format_reward(PARSERS[name], text)
    assert format_reward(PARSERS[name], text * 50) <= once
    assert format_reward(PARSERS[name], "\n".join([text] * 50)) <= once


def test_pattern_04_fifty_messages_are_worth_what_one_is():
    for parser in PARSERS.values():
        reward_of = parser.get_format_reward_func()
        message = vf.AssistantMessage("<think>a</think><answer>b</answer>")
        assert reward_of([message] * 50) == pytest.approx(reward_of([message]))


async def test_pattern_04_fifty_boxes_are_worth_what_one_is():
    for func in (vf.exact_match, vf.numeric_match, vf.token_f1):
        rubric = vf.Rubric(funcs=[func], parser=vf.MaybeThinkParser(vf.extract_boxed_answer))
        for box in (r"\boxed{4} ", r"\boxed{5} "):
            assert await reward(rubric, box) == await reward(rubric, box * 50)


@pytest.mark.parametrize("padding", ["Step 1: think. ", "so ", "therefore 4 ", "\n\n## Step 2\n", "<b>4</b>"])
async def test_pattern_05_padding_a_wrong_answer_does_not_raise_its_reward(padding):
    for text in ("<think>a</think><answer>5</answer>", "<answer>5</answer>", "5"):
        rubric = weighted(XML)
        plain = await reward(rubric, text)
        assert await reward(rubric, padding * 200 + text) <= plain
        assert await reward(rubric, text + padding * 200) <= plain
        assert await reward(rubric, text.replace("a", padding * 200)) <= plain


async def test_pattern_07_a_draft_in_the_thought_is_not_the_answer():
    for text in ("<think><answer>4</answer></think><answer>5</answer>", "<answer>4</answer></think><answer>5</answer>"):
        assert await reward(vf.Rubric(funcs=[vf.exact_match], parser=XML), text) == 0.0
    boxed = vf.Rubric(funcs=[vf.exact_match], parser=vf.MaybeThinkParser(vf.extract_boxed_answer))
    assert await reward(boxed, r"<think>\boxed{4}</think>\boxed{5}") == 0.0


async def test_pattern_29_the_format_shown_in_a_prompt_is_no_right_answer():
    rubric = vf.Rubric(funcs=[vf.exact_match], parser=XML)
    assert await reward(rubric, XML.get_format_str()) == 0.0
    assert await reward(rubric, f"2 + 2? Reply as\n{XML.get_format_str()}") == 0.0


async def test_pattern_40_a_text_like_false_is_no_number():
    for value in ("False", "True", "0", "1.0", b"1"):
        rubric = vf.Rubric(funcs=[lambda completion, value=value: value])
        state = State(input={"prompt": "?", "answer": "4"}, completion="4", trajectory=[])
        await rubric.score_rollout(state)
        assert (state["reward"], state["scores"][0].status) == (None, "fault")


@given(st.lists(st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", "a", " "]), max_size=12))
def test_full_marks_mean_each_tag_once_in_order(parts):
    text = "".join(parts)
    if format_reward(XML, text) == 1.0:
        tags = [part for part in parts if part.startswith("<")]
        assert tags == ["<think>", "</think>", "<answer>", "</answer>"]
