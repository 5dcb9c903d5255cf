"""Are bad arguments refused, does a seed give the same questions, is every answer certain, does honest research score
full and everything else not; and is a service that fails told apart from a model that does?"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import deep_research
import pytest
from deep_research import PageError, load_environment, reference_reply
from deep_research.answers import is_same
from deep_research.local_index import LocalIndex
from deep_research.pages import pages_of
from deep_research.provider import Document, Hit, ProviderFault, Refused, Unavailable
from deep_research.questions import chains, made_rows, world_named
from deep_research.relations import RELATIONS, YEAR
from deep_research.session import passages, query_of, shown_page
from deep_research.world import World

import verifiers as vf


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return calls((name, arguments))


def calls(*made: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    functions = [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in made]
    return {"content": "", "tool_calls": [{"id": str(i), "function": f} for i, f in enumerate(functions)]}


PAGES = [
    Document("https://a.example/oak", "The Oak", "An oak stands in Lorby.\n\nIt was planted by Ada Brand in 1801."),
    Document("https://a.example/brand", "Ada Brand", "Ada Brand\nwas born in  Stow. " + "Nothing more. " * 100),
]


class Provider:
    """The index over the two pages; the calls whose numbers are in `failing` meet a service that fails."""

    def __init__(self, failing: dict[int, ProviderFault] | None = None) -> None:
        self.failing = failing or {}
        self.index = LocalIndex(PAGES)
        self.asked = 0
        self.closed = 0

    def _fail(self) -> None:
        self.asked += 1
        if fault := self.failing.get(self.asked):
            raise fault

    async def search(self, query: str) -> list[Hit]:
        self._fail()
        return await self.index.search(query)

    async def open(self, url: str) -> Document:
        self._fail()
        return await self.index.open(url)

    async def close(self) -> None:
        self.closed += 1


async def run(*replies: Any, provider: Provider | None = None, answer: str = "Stow", **arguments: Any) -> Any:
    """The record of one rollout in which the model gives these replies."""
    provider = provider or Provider()
    env = load_environment(provider=lambda info: provider, page_chars=500, **arguments)
    row = {**env.eval_rows(1)[0], "answer": answer}
    results = await env.generate([row], vf.ScriptedClient(list(replies)), "scripted")
    return results.records[0]


def told(record: Any) -> list[str]:
    return [message["content"] for message in record.messages if message["role"] == "tool"]


def value(record: Any, name: str) -> float:
    return next(score.value for score in record.scores if score.name == name)


# 1. bad arguments are refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"dataset": "web"}, "dataset='web': there are 'worlds' and 'deepdive'"),
        ({"dataset": "deepdive", "split": "trajectories_sft"}, "split='trajectories_sft'"),
        ({"dataset": "deepdive", "split": "qa_sft"}, "split='qa_sft' and eval_split are the same"),
        ({"num_train_examples": -1}, "num_train_examples=-1"),
        ({"num_eval_examples": 0, "dataset": "deepdive"}, "num_eval_examples=0"),
        ({"seed": None}, "seed=None"),
        ({"seed": "1", "dataset": "deepdive"}, "seed='1'"),
        ({"min_hops": 0}, "min_hops=0"),
        ({"min_hops": 3, "max_hops": 2}, "max_hops=2: give a whole number, 3 or more"),
        ({"max_hops": 7}, "max_hops=7"),
        ({"page_chars": 100}, "page_chars=100"),
        ({"max_turns": True}, "max_turns=True"),
        ({"blocked_hosts": "example.org"}, "blocked_hosts='example.org': give a list"),
        ({"data": "nowhere.jsonl"}, "data='nowhere.jsonl': there is no such file"),
        ({"train_data": __file__}, "train_data is given without data"),
        ({"pages": __file__}, "pages is given, but"),
        ({"judge_base_url": "http://127.0.0.1:1/v1"}, "judge_model is not given"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=named):
        load_environment(**arguments)


def test_the_web_without_a_key_is_refused_by_the_key_s_name(monkeypatch):
    monkeypatch.delenv("SERPER_API_KEY", raising=False)
    with pytest.raises(vf.MissingKeyError, match="SERPER_API_KEY"):
        load_environment(dataset="deepdive")


# 2. same seed, same examples


def test_a_seed_gives_the_same_questions_and_another_seed_others():
    one, same, other = (made_rows("train", 120, seed, (2, 4)) for seed in (1, 1, 2))
    assert one == same
    assert not {row["question"] for row in one} & {row["question"] for row in other}
    assert made_rows("train", 70, 1, (2, 4)) == one[:70], "a longer list begins like a shorter one"


def test_worlds_to_train_on_are_not_those_to_evaluate_on():
    env = load_environment(num_train_examples=120, num_eval_examples=60)
    train, evaluation = ({row["info"]["world"] for row in rows} for rows in (env.train_rows(), env.eval_rows()))
    assert train == {"train/0/0", "train/0/1", "train/0/2"}
    assert evaluation == {"eval/0/0", "eval/0/1"}


# 3. an example has the right shape


def test_an_example_is_a_question_whose_answer_is_not_in_it():
    for row in made_rows("eval", 100, 3, (2, 4)):
        assert row["question"].endswith("?")
        assert row["answer"].casefold() not in row["question"].casefold()
        assert 2 <= len(row["info"]["path"]) <= 4


def test_hops_are_as_many_as_asked_for():
    for hops in (1, 2, 6):
        assert {len(row["info"]["path"]) for row in made_rows("eval", 20, 0, (hops, hops))} == {hops}


@pytest.fixture(scope="module")
def world() -> World:
    return world_named("test/0/0")


def test_an_answer_is_where_its_facts_lead_and_nothing_else(world):
    for chain in chains(world, 100, (2, 4)):
        here = chain.start
        for name in chain.path:
            assert world.kind_of[here] == RELATIONS[name].subject
            ends = {o for (relation, subject), o in world.facts.items() if (relation, subject) == (name, here)}
            assert len(ends) == 1
            here = ends.pop()
        assert here == chain.answer
        assert len(set(chain.things)) == len(chain.things)


def test_every_fact_is_written_down_once(world):
    text = "\n".join(page.text for page in pages_of(world))
    for (name, subject), thing in world.facts.items():
        forms = [statement.format(s=subject, o=thing) for statement in RELATIONS[name].statements]
        assert sum(text.count(form) for form in forms) == 1


def test_no_two_things_of_a_world_share_a_name(world):
    names = [name.casefold() for kind in world.things.values() for name in kind]
    assert len(set(names)) == len(names)
    assert not [name for name in names if name.isdigit()], "a name that reads like a year"


def test_a_statement_of_another_fact_never_reads_like_this_one(world):
    for page in pages_of(world):
        for relation in RELATIONS.values():
            said = [s for s in relation.statements if s.format(s=page.title, o="") in page.text]
            assert not said, "a sentence without its object"


@pytest.mark.parametrize("relation", RELATIONS.values(), ids=lambda relation: relation.name)
def test_a_relation_leads_to_things_that_there_are(world, relation):
    ends = {world.object_of(relation.name, subject) for subject in world.things[relation.subject]}
    assert ends <= ({str(year) for year in range(1790, 1931)} if relation.object == YEAR else set(world.kind_of))


# The public data set's schema


PUBLIC = [
    {"id": 7, "question": "Which river?", "answer": "Lora", "conversations": []},
    {"id": 8, "question": "Which town?", "answer": "Stow", "conversations": [{"role": "user", "content": "?"}]},
]


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_rows_of_the_public_schema_become_questions(tmp_path):
    data = write(tmp_path / "rows.jsonl", [*PUBLIC, {"question": "Who?", "answer": "A", "aliases": ["B"]}])
    pages = write(tmp_path / "pages.jsonl", [{"title": "Lora", "text": "A river."}])
    rows = load_environment(data=data, pages=pages, seed=None).eval_rows()
    assert [row["answer"] for row in rows] == ["Lora", "Stow", "A"]
    assert rows[0]["prompt"][-1]["content"] == "Which river?"
    assert [row["info"] for row in rows[1:]] == [
        {"source": "rows.jsonl", "aliases": []}, {"source": "rows.jsonl", "aliases": ["B"]},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"id": 1, "question": "Who?"}, "no column 'answer'"),
        ({"question": "Who?", "answer": " "}, "question and answer are texts"),
        ({"question": "Who?", "answer": 4}, "question and answer are texts"),
        ({"question": "Who?", "answer": "A", "aliases": "B"}, "aliases is a list of texts"),
    ],
)
def test_a_row_outside_the_schema_is_named(tmp_path, row, named):
    env = load_environment(
        data=write(tmp_path / "rows.jsonl", [PUBLIC[0], row]), provider=lambda info: Provider(), seed=None
    )
    with pytest.raises(vf.DatasetError, match=f"row 2: .*{named}"):
        env.eval_rows()


def test_our_own_rows_have_the_public_columns():
    assert {tuple(row) for row in deep_research.own_rows()} == {tuple(PUBLIC[0])}


async def test_pages_of_one_s_own_are_searched(tmp_path):
    pages = write(tmp_path / "pages.jsonl", [{"title": "Lora", "text": "A river.", "url": "u"}])
    env = load_environment(data=write(tmp_path / "rows.jsonl", PUBLIC), pages=pages, seed=None)
    client = vf.ScriptedClient([call("search", query="river"), call("finish", answer="Lora")])
    record = (await env.generate(env.eval_rows(1), client, "scripted")).records[0]
    assert told(record) == ["1. Lora\n   u\n   A river."]
    assert record.reward == 1.0


async def test_pages_of_one_address_are_refused(tmp_path):
    pages = write(
        tmp_path / "pages.jsonl", [{"title": "Lora", "text": "A river."}, {"title": "Lora", "text": "A town."}]
    )
    env = load_environment(data=write(tmp_path / "rows.jsonl", PUBLIC), pages=pages, seed=None)
    record = (await env.generate(env.eval_rows(1), vf.ScriptedClient("Lora"), "scripted")).records[0]
    assert "holds 2 pages" in record.errors[0].message


# 4. honest research scores full


async def test_research_that_follows_the_pages_scores_full():
    env = load_environment(num_eval_examples=40, seed=5)
    rows = env.eval_rows()
    by_question = {row["question"]: {**row, "answer": "not told"} for row in rows}
    client = vf.ScriptedClient(
        lambda request: reference_reply(request.messages, by_question[request.messages[1]["content"]])
    )
    results = await env.generate(rows, client, "scripted")
    assert [record.reward for record in results.records] == [1.0] * 40
    assert all(value(record, "search_calls") == len(row["info"]["path"]) for record, row in zip(results.records, rows))
    assert sum(value(record, "find_calls") for record in results.records) > 0


async def test_an_answer_in_the_last_turn_counts():
    record = await run(call("search", query="oak"), call("finish", answer="Stow"), max_turns=2)
    assert (record.reward, record.stop_condition) == (1.0, "was_finished")
    assert "This is your last turn" in told(record)[0]


async def test_an_answer_without_finish_counts_and_is_reported():
    record = await run("<think>Lorby?</think> Stow")
    assert (record.reward, value(record, "finished")) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("answer", "references"),
    [
        ("the river LORA.", ["River Lora"]), ("Saint-Étienne", ["Saint Etienne"]), ("12,000", ["12000"]),
        ("Harl & Sons", ["Harl and Sons"]), ("“Grey Petrel”", ["Grey Petrel"]), ("1850–1860", ["1850-1860"]),
        ("Lora", ["River Lora", "Lora"]),
    ],
)  # fmt: skip
def test_another_way_to_write_it_is_the_same(answer, references):
    assert is_same(answer, references)


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("", "Lora"), ("the", "Lora"), ("Lora or Feiva", "Lora"), ("Lora, Feiva", "Lora"), ("-5", "5"), ("1.5", "15"),
        ("187", "1872"), ("Lor", "Lora"), ("Not Lora", "Lora"), ("Lora " * 1000, "Lora"), ("Lora Lora", "Lora"),
    ],
)  # fmt: skip
def test_what_is_another_answer_is_not_the_same(answer, reference):
    assert not is_same(answer, [reference])


# 5. a wrong, empty, hedged or echoed one does not


@pytest.mark.parametrize(
    "reply",
    [
        "", "I don't know.", "Stow or Lorby", "<think>Stow</think>", "<think>Stow", call("finish", answer="Lorby"),
        call("finish", answer="Stow, Lorby"),
        calls(("finish", {"answer": "Lorby"}), ("finish", {"answer": "Stow"})),
        {**call("finish", answer="Lorby"), "content": "Stow"},
    ],
    ids=str,
)  # fmt: skip
async def test_a_wrong_empty_or_hedged_answer_scores_nothing(reply):
    assert (await run(reply)).reward == 0.0


async def test_reading_the_answer_without_giving_it_scores_nothing():
    record = await run(call("open", target=PAGES[1].url), max_turns=3)
    assert "Stow" in told(record)[0]
    assert record.reward == 0.0


# The tools


async def test_results_have_numbers_that_open_takes():
    record = await run(call("search", query="planted oak"), call("open", target="1"), call("finish", answer="Stow"))
    results, page = told(record)
    assert results.startswith("1. The Oak\n   https://a.example/oak\n   ")
    assert page.startswith("The Oak\nhttps://a.example/oak\nPage 1 of 1, ")
    assert "planted by Ada Brand" in page


async def test_a_long_page_comes_in_parts_which_together_are_the_page():
    page = PAGES[1]
    parts = [shown_page(page, n, 500).partition("\n\n")[2] for n in (1, 2, 3)]
    assert "".join(parts) == page.text
    with pytest.raises(PageError, match="has pages 1 to 3, not 4"):
        shown_page(page, 4, 500)


def test_find_tells_where_the_words_stand_whatever_lies_between_them():
    found = passages(PAGES[1], "born in stow", 500)
    assert f"page 1, character {PAGES[1].text.index('born')}" in found
    assert "was born in Stow." in found
    assert "not there, but its words are" in passages(PAGES[0], "Brand planted", 500)
    assert "is not in The Oak" in passages(PAGES[0], "beech", 500)
    assert "(100 places in all)" in passages(PAGES[1], "nothing more.", 500)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (call("open", target="1"), "no result 1: the last search gave no results; search first"),
        (call("open", target="https://a.example/elm"), "there is no page 'https://a.example/elm'"),
        (call("open", target="https://a.example/oak", page=2), "has pages 1 to 1, not 2"),
        (call("open", target="https://a.example/oak", page="two"), "page takes a whole number, not 'two'"),
        (call("find", text="oak"), "no page is open"),
        (call("find", text=" ", target="https://a.example/oak"), "the text to look for is empty"),
        (call("open", target="L1"), "no page is open"),
        (call("search", query=" \n"), "the query is empty"),
        (call("search", query="zebra"), "No results"),
        (call("finish", answer=" "), "the answer is empty"),
        (call("finish"), "missing .* 'answer'"),
        (call("search"), "missing .* 'query'"),
        (call("click", id=1), "no tool 'click'"),
        (call("search", query="oak", research="mine"), "1. The Oak"),
    ],
    ids=str,
)
async def test_a_call_that_cannot_be_answered_is_told_and_the_rollout_goes_on(made, said):
    record = await run(made, call("finish", answer="Stow"))
    assert re.search(said, told(record)[0])
    assert record.reward == 1.0


def test_a_query_is_one_line_of_bounded_length():
    assert query_of(" a\n\tb\x00c ") == "a b c"
    assert len(query_of("x" * 10_000)) == 400


def test_equal_pages_are_ranked_in_the_order_they_came():
    pages = [Document(f"u{n}", f"Page {n}", "the same words") for n in range(30)]
    hits = asyncio.run(LocalIndex(pages, results=30).search("same words"))
    assert [hit.url for hit in hits] == [page.url for page in pages]


# A service that fails


async def test_a_fault_is_told_as_the_service_s_and_what_follows_it_counts():
    provider = Provider({1: Unavailable("HTTP 503, 4 of 4 tries")})
    record = await run(*[call("search", query="oak")] * 2, call("finish", answer="Lorby"), provider=provider)
    assert "The search service failed (HTTP 503, 4 of 4 tries). That is a fault of the service" in told(record)[0]
    assert record.reward == 0.0, "the service came back: the wrong answer is the model's"
    assert value(record, "provider_faults") == 1.0


@pytest.mark.parametrize("answer", ["Lorby", "Stow", ""])
async def test_a_rollout_that_ends_on_a_fault_is_unscored_whatever_it_answers(answer):
    provider = Provider({1: Unavailable("HTTP 503")})
    record = await run(call("search", query="oak"), answer, provider=provider)
    assert record.reward is None
    assert [(failure.side, failure.type) for failure in record.errors] == [("tool", "SearchDown")]
    assert "failed once and did not come back before the end; last: Unavailable: HTTP 503" in record.errors[0].message


async def test_a_service_that_is_down_ends_the_rollout_after_three_faults_in_a_row():
    provider = Provider({n: Unavailable("HTTP 500") for n in range(1, 9)})
    record = await run(call("search", query="oak"), provider=provider)
    assert (record.reward, provider.asked, provider.closed) == (None, 3, 1)
    assert record.errors[0].side == "tool"


async def test_a_refused_key_ends_the_rollout_at_once():
    provider = Provider({1: Refused("HTTP 403")})
    record = await run(call("search", query="oak"), provider=provider)
    assert (record.reward, provider.asked) == (None, 1)


async def test_a_page_that_is_gone_is_no_fault():
    record = await run(call("open", target="https://a.example/elm"), call("finish", answer="Lorby"))
    assert (record.reward, value(record, "page_errors"), value(record, "provider_faults")) == (0.0, 1.0, 0.0)


async def test_a_document_is_fetched_once():
    provider = Provider()
    await run(
        call("open", target=PAGES[1].url), call("open", target=PAGES[1].url, page=2), call("find", text="Stow"),
        call("finish", answer="Stow"), provider=provider,
    )  # fmt: skip
    assert provider.asked == 1


# A judge


async def judged(reply: Any, judge: Any, answer: str = "Stow") -> Any:
    return await run(call("finish", answer=reply), judge_model="judge", judge_client=judge, answer=answer)


def judge_that_reads(request: vf.ModelRequest) -> str:
    text = request.messages[0].content
    reference, response = (
        text.partition(f"<{tag}>\n")[2].partition(f"\n</{tag}>")[0] for tag in ("reference", "response")
    )
    return "yes" if reference in response and "8" not in response else "no"


async def test_a_judge_is_asked_what_the_rule_does_not_accept():
    client = vf.ScriptedClient(judge_that_reads)
    assert (await judged("Stow, near Lorby", client)).reward == 1.0
    assert (await judged("Lorby", client)).reward == 0.0
    asked = len(client.requests)
    assert (await judged("stow", client)).reward == 1.0
    assert len(client.requests) == asked, "what the rule accepts costs no judge"


async def test_the_judge_sees_the_question_and_the_answer_that_finish_was_called_with():
    client = vf.ScriptedClient(judge_that_reads)
    record = await judged("Stow, near Lorby", client)
    question = record.prompt[-1]["content"]
    assert f"<question>\n{question}\n</question>" in client.requests[-1].messages[0].content
    assert "<response>\nStow, near Lorby\n</response>" in client.requests[-1].messages[0].content


async def test_a_judge_that_fails_is_no_wrong_answer():
    record = await judged("Lorby", vf.ScriptedClient(vf.ModelUnavailableError("HTTP 503")))
    assert record.reward is None
    assert record.scores[0].side == "judge"


# The package


def test_loading_touches_neither_network_nor_the_heavy_libraries():
    code = "import deep_research, sys; deep_research.load_environment();"
    code += "print([name for name in ('datasets', 'bm25s', 'numpy') if name in sys.modules])"
    paths = f"import sys; sys.path[:] = {sys.path!r};"
    done = subprocess.run([sys.executable, "-c", paths + code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
