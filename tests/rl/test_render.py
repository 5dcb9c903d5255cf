"""Rendering with chat templates of eight kinds and tokenizers of seven, three of them real.

The promise: token ids that are built turn by turn equal those of the whole conversation, or there is a fork; and what
is masked as the assistant's is what the model would sample behind the prompt that it is given.
"""

import json
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("transformers", reason="the extra `train` is not installed")

import rl_tokenizers
from rl_tokenizers import MADE, REAL, tokenizer

from verifiers.errors import ConfigError
from verifiers.rl.chat_tokenizer import HuggingFaceChat, load_chat_tokenizer, read_template
from verifiers.rl.render import RenderError, TemplateRenderer
from verifiers.types import AssistantMessage, Tool, UserMessage

FOLDER = Path(__file__).parents[1] / "data" / "chat_templates"
TEMPLATES = ("always_think", *sorted(path.stem for path in FOLDER.glob("*.jinja")))
TOOLS = [Tool("look", "Looks things up.", {"type": "object", "properties": {"name": {"type": "string"}}})]

# Where a conversation goes on in the same tokens: behind a question, and behind a tool's answer. The others must fork.
GOES_ON = {
    "always_think": {"user", "tool"},
    "chatml": {"user", "tool"},
    "headers": {"user", "tool"},
    "instructions": {"user", "tool"},
    "model_turns": {"user"},
    "named_answers": {"tool"},
    "opened_thought": set(),
    "plain_text": set(),
    "thinking_forgotten": {"tool"},
}
KEEPS_FIELD = {"always_think"}  # what a message thought, behind later questions
KEEPS_TEXT = {"always_think", "chatml", "headers", "instructions", "model_turns"}

pytestmark = pytest.mark.parametrize("kind", (*MADE, *REAL))


@cache
def chat_of(template, kind, **options):
    path = template if template == "always_think" else FOLDER / f"{template}.jinja"
    found = tokenizer(kind)
    if found is None:
        pytest.skip(f"{rl_tokenizers.PACKAGES[kind]} is not installed")
    return HuggingFaceChat(found, read_template(path), options)


def renderer_of(template, kind, **options):
    return TemplateRenderer(chat_of(template, kind, **options))


def call(name="look", arguments='{"name": "x"}', id="call12345"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversation(*said, thinks=False):
    """Messages of 'U what', 'S what', 'A what', 'C' (a tool call) and 'T what' (its answer)."""
    messages, number = [], 0
    for one in said:
        role, _, text = one.partition(" ")
        if role in "AC":
            number += 1
            message = AssistantMessage(text, [call()] if role == "C" else None)
            if thinks:
                message["reasoning_content"] = f"Thought number {number}."
            messages.append(message)
        elif role == "T":
            messages.append({"role": "tool", "content": text, "tool_call_id": "call12345"})
        else:
            messages.append({"role": "user" if role == "U" else "system", "content": text})
    return messages


def turn_by_turn(renderer, messages, tools=None):
    """Builds the prompts of all replies, each reply as the model would sample it. Returns the roles behind which
    it went on in the same tokens, and those behind which it forked."""
    went_on, forked = [], []
    ids, last = None, -1
    for at, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        whole = renderer.prompt(messages[:at], tools)
        if ids is not None:
            bridged = renderer.next_turn(ids, messages[: last + 1], messages[last + 1 : at], tools)
            assert bridged is None or bridged == whole, "it went on, but not as the whole conversation is rendered"
            assert bridged is None or bridged[: len(ids)] == ids
            (forked if bridged is None else went_on).append(messages[at - 1]["role"])
        ids, last = whole + sampled(renderer, messages, at, tools), at
    return went_on, forked


def sampled(renderer, messages, at, tools):
    """The reply's own tokens, and where the template tells it in no such way, what a model would say instead."""
    rendered = renderer.render(messages[: at + 1], tools)
    if at not in rendered.untrained:
        prompt = renderer.prompt(messages[:at], tools)
        assert rendered.ids[: len(prompt)] == prompt
        return [id for id, mask in zip(rendered.ids[len(prompt) :], rendered.mask[len(prompt) :]) if mask]
    said = f"{messages[at].get('reasoning_content', 'Well.')}</think>{messages[at]['content']}</s>"
    return renderer.chat.encode(said)


PLAIN = ("U Hi there", "A Hello.", "U Why?", "A Because it is so.\n\nAnd so on.", "U Oh", "A Yes.")
WITH_TOOLS = ("U Find x", "C ", "T it is 3", "C ", "T it is {4}", "A It is 3.", "U Sure?", "A Yes.")


@pytest.mark.parametrize("template", TEMPLATES)
def test_turns_go_on_where_the_template_lets_them_and_fork_where_it_does_not(template, kind):
    renderer = renderer_of(template, kind)
    went_on, forked = turn_by_turn(renderer, conversation(*PLAIN))
    assert (went_on, forked) == ((["user"] * 2, []) if "user" in GOES_ON[template] else ([], ["user"] * 2))


@pytest.mark.parametrize("template", [name for name in TEMPLATES if "tool" in GOES_ON[name]])
def test_answers_of_tools_go_on_in_the_same_tokens(template, kind):
    tools = None if template == "named_answers" else TOOLS
    messages = conversation(*WITH_TOOLS, thinks=template == "thinking_forgotten")
    went_on, _ = turn_by_turn(renderer_of(template, kind), messages, tools)
    # That one has tokens like "assistant▁to": with them a reply begins in the middle of a token, and nothing is proved.
    is_split = (template, kind) == ("named_answers", "prefixed BPE")
    assert went_on.count("tool") == (0 if is_split else 2)


def test_tools_that_move_to_the_newest_question_make_a_fork(kind):
    went_on, forked = turn_by_turn(renderer_of("instructions", kind), conversation(*WITH_TOOLS), TOOLS)
    assert (went_on, forked) == (["tool", "tool"], ["user"])


def test_a_last_reply_that_ends_in_another_way_makes_a_fork(kind):
    _, forked = turn_by_turn(renderer_of("named_answers", kind), conversation(*PLAIN))
    assert forked == ["user"] * 2


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("where", ["field", "text", "nowhere"])
def test_a_thought_goes_on_only_where_the_messages_and_the_template_keep_it(template, kind, where):
    renderer = renderer_of(template, kind)
    messages = conversation("U Hi there", "A Hello.", "U Why?")
    thought = {"field": {"reasoning_content": "So it is."}, "text": {"content": "<think>So it is.</think>Hello."}}
    past = [messages[0], {**messages[1], **thought.get(where, {})}]
    said = [*renderer.prompt(messages[:1]), *renderer.chat.encode("<think>So it is.</think>Hello.")]
    ends = [renderer.chat.special_tokens[end] for end in rl_tokenizers.SPECIALS]
    went_on = [renderer.next_turn([*said, end], past, messages[2:]) for end in ends]
    assert any(went_on) == (template in {"field": KEEPS_FIELD, "text": KEEPS_TEXT, "nowhere": ()}[where])


def test_always_think_keeps_every_thought_in_one_sequence(kind):
    messages = conversation(*WITH_TOOLS, thinks=True)
    renderer = renderer_of("always_think", kind)
    assert turn_by_turn(renderer, messages, TOOLS)[1] == []
    (one,) = renderer.sequences(messages, TOOLS)
    assert one.untrained == {}
    text = renderer.chat.decode(one.ids).lower()
    assert all(f"thought number {number}." in text for number in (1, 2, 3, 4)) or kind in ("unigram", "word pieces")


def test_always_think_tells_a_thought_alike_wherever_the_message_has_it(kind):
    chat = chat_of("always_think", kind)
    ways = [
        {"content": "Hello.", "reasoning_content": "So it is."},
        {"content": "Hello.", "reasoning": "So it is."},
        {"content": "<think>So it is.</think>Hello."},
        {"content": "So it is.</think>Hello."},  # the opening mark was in the prompt
    ]
    texts = {chat.text([UserMessage("Hi"), {"role": "assistant", **way}]) for way in ways}
    assert texts == {chat.text([UserMessage("Hi")], add_generation_prompt=True) + "So it is.</think>Hello.<|im_end|>\n"}


def test_a_prompt_of_always_think_ends_with_an_open_thought(kind):
    renderer = renderer_of("always_think", kind)
    think = renderer.chat.encode("a<think>")[-1]
    assert renderer.prompt(conversation("U Hi"))[-1] == think


texts = st.text("abc XYZ.\n\t0123{}<|>/é漢'\"", max_size=12)


@st.composite
def conversations(draw):
    """Questions, replies with and without thinking, and calls of a tool with their answers; some text is odd."""
    said = [*(["S " + draw(texts)] if draw(st.booleans()) else [])]
    for _ in range(draw(st.integers(1, 3))):
        said.append("U " + draw(texts | st.just("<|im_end|> </s>")))
        for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
            said += ["C " + draw(texts), "T " + draw(texts)]
        said.append("A " + draw(texts))
    return conversation(*said, thinks=draw(st.booleans())), draw(st.booleans())


@pytest.mark.parametrize("template", TEMPLATES)
@given(case=conversations())
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_ids_built_turn_by_turn_equal_the_whole_conversation_or_fork(template, kind, case):
    messages, has_tools = case
    renderer = renderer_of(template, kind)
    try:
        turn_by_turn(renderer, messages, TOOLS if has_tools else None)
    except RenderError:
        pass  # no tools, no system message: the template refuses, and says so


@pytest.mark.parametrize("template", TEMPLATES)
@given(case=conversations())
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_sequences_train_each_reply_once_behind_its_own_prompt(template, kind, case):
    messages, has_tools = case
    tools = TOOLS if has_tools else None
    renderer = renderer_of(template, kind)
    try:
        sequences = renderer.sequences(messages, tools)
    except RenderError:
        return
    prompts = {}
    for at, message in enumerate(messages):
        if message["role"] == "assistant":
            try:
                prompts[at] = renderer.prompt(messages[:at], tools)
            except RenderError:
                prompts[at] = None
    untrained = sequences[0].untrained
    found = []
    for one in sequences:
        assert len(one.ids) == len(one.mask)
        starts = [at for at in range(1, len(one.mask)) if one.mask[at] and not one.mask[at - 1]]
        for start in starts:
            found += [at for at, prompt in prompts.items() if prompt == one.ids[:start] and at not in untrained]
    assert set(found) == set(prompts) - set(untrained) and len(found) == len(set(found))


@pytest.mark.parametrize("template", TEMPLATES)
@given(case=conversations())
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_conversation_is_the_same_in_pieces_and_as_a_whole(template, kind, case):
    messages, has_tools = case
    tools = TOOLS if has_tools else None
    renderer = renderer_of(template, kind)
    try:
        whole = renderer.chat.encode(renderer.chat.text(messages, tools))
    except RenderError:
        return
    rendered = renderer.render(messages, tools)
    assert rendered.ids == whole and len(rendered.mask) == len(whole)
    ends = set(renderer.chat.special_tokens.values())
    for at, (id, mask) in enumerate(zip(rendered.ids, rendered.mask)):
        if mask and not [*rendered.mask, 0][at + 1]:
            assert id in ends, "what is trained ends with the token that ends a reply"


def test_the_mask_is_on_the_reply_and_on_the_token_that_ends_it(kind):
    renderer = renderer_of("chatml", kind)
    messages = conversation("S Be brief", "U Hi there", "A First reply.", "U Why?", "A Second reply.")
    rendered = renderer.render(messages)
    end = renderer.chat.special_tokens["<|im_end|>"]
    trained = [id for id, mask in zip(rendered.ids, rendered.mask) if mask]
    assert trained.count(end) == 2 and trained[-1] == end and rendered.ids.count(end) == 5
    said = renderer.chat.encode("<s>\nFirst reply.<|im_end|>\nSecond reply.<|im_end|>")[1:]
    newlines = set(renderer.chat.encode("<s>\n")[1:])
    assert trained == [id for id in said if id not in newlines]


def test_a_thought_told_differently_later_is_trained_in_a_sequence_of_its_own(kind):
    messages = conversation("U Hi", "A One.", "U Why?", "A Two.", thinks=True)
    renderer = renderer_of("thinking_forgotten", kind)
    assert list(renderer.render(messages).untrained) == [1]
    last, first = renderer.sequences(messages)
    assert last.untrained == first.untrained == {}
    assert sum(first.mask) and sum(last.mask) and len(first.ids) < len(last.ids)


def test_a_reply_that_the_template_opens_differently_is_not_trained_and_the_reason_is_given(kind):
    rendered = renderer_of("opened_thought", kind).render(conversation("U Hi", "A One."))
    assert sum(rendered.mask) == 0 and "without the beginning" in rendered.untrained[1]


def test_a_reply_that_was_cut_off_makes_a_fork(kind):
    renderer = renderer_of("chatml", kind)
    cut = [*renderer.prompt(conversation("U Hi")), *renderer.chat.encode("I was abo")]
    past, new = conversation("U Hi", "A I was abo"), conversation("U Go on")
    assert renderer.next_turn(cut, past, new) is None
    assert renderer.next_turn([*cut, renderer.chat.special_tokens["<|eot_id|>"]], past, new) is None
    assert renderer.next_turn([*cut, renderer.chat.special_tokens["<|im_end|>"]], past, new)


def test_sampled_ids_are_kept_where_the_template_spells_a_tool_call_in_another_way(kind):
    renderer = renderer_of("chatml", kind)
    messages = conversation("U Find x", "C ", "T it is 3")
    prompt = renderer.prompt(messages[:1], TOOLS)
    said = renderer.chat.encode('<tool_call>{"arguments":{"name":"x"},"name":"look"}</tool_call><|im_end|>')
    went_on = renderer.next_turn([*prompt, *said], messages[:2], messages[2:], TOOLS)
    assert went_on is not None and went_on[: len(prompt) + len(said)] == [*prompt, *said]
    assert went_on != renderer.prompt(messages, TOOLS)


def test_what_is_no_next_turn_makes_a_fork(kind):
    renderer = renderer_of("chatml", kind)
    past = conversation("U Hi", "A Hello.")
    ids = [*renderer.prompt(past[:1]), *renderer.chat.encode("Hello.<|im_end|>")]
    assert renderer.next_turn(ids, past, []) is None
    assert renderer.next_turn([], past, past[:1]) is None
    assert renderer.next_turn(ids, past[:1], past[:1]) is None
    assert renderer.next_turn(ids, past, past) is None


def test_a_thought_that_was_opened_and_never_closed_makes_a_fork(kind):
    """The tokens hold an opening that the template does not tell afterwards."""
    renderer = renderer_of("opened_thought", kind)
    past, new = conversation("U Hi", "A Hello."), conversation("U Go on")
    ids = [*renderer.prompt(past[:1]), *renderer.chat.encode("Hello.</s>")]
    assert renderer.next_turn(ids, past, new) is None


def test_a_reply_that_begins_in_the_middle_of_a_token_is_not_trained(kind):
    """A prompt ends in a newline; where two are one token, no model that is asked so can begin with another one."""
    renderer = renderer_of("chatml", kind)
    newline, two = (renderer.chat.encode(f"<s>{text}Hi")[1] for text in ("\n", "\n\n"))
    rendered = renderer.render(conversation("U Hi", "A \nHello."))
    assert rendered.untrained == ({} if newline == two else {1: "it begins in the middle of a token"})
    assert any(rendered.mask) == (newline == two)


def test_options_reach_the_template(kind):
    ids = {
        no: renderer_of("thinking_forgotten", kind, enable_thinking=not no).prompt(conversation("U Hi"))
        for no in (0, 1)
    }
    assert ids[1][: len(ids[0]) - 1] == ids[0][:-1] and len(ids[1]) > len(ids[0])


def test_arguments_reach_the_template_as_a_mapping_and_what_is_none_as_it_is(kind):
    chat = chat_of("chatml", kind)

    def text(arguments):
        return chat.text([UserMessage("Hi"), AssistantMessage(None, [call(arguments=arguments)])])

    assert json.dumps({"name": "look", "arguments": {"name": "x"}}) in text('{"name": "x"}')
    assert '"arguments": "{\\"name\\": "' in text('{"name": ')
    assert '"arguments": {}' in text("")


def test_pictures_are_refused(kind):
    chat = chat_of("chatml", kind)
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    with pytest.raises(RenderError, match="only text"):
        chat.text([picture])
    assert chat.text([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]) == chat.text([UserMessage("Hi")])


def test_a_model_is_read_from_its_folder_and_a_missing_one_is_named(kind, tmp_path):
    tokenizer_of_model = tokenizer(kind)
    if kind not in ("byte BPE", "unigram"):
        pytest.skip("two ways of making it are enough")
    tokenizer_of_model.save_pretrained(tmp_path)
    messages = conversation(*PLAIN)
    loaded = load_chat_tokenizer(tmp_path, template="always_think")
    assert TemplateRenderer(loaded).prompt(messages) == renderer_of("always_think", kind).prompt(messages)
    with pytest.raises(ConfigError, match="has no chat template"):
        load_chat_tokenizer(tmp_path)
    with pytest.raises(ConfigError, match="no tokenizer in"):
        load_chat_tokenizer(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="one of: always_think"):
        load_chat_tokenizer(tmp_path, template="never_think")
