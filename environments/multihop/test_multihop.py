"""Are bad arguments refused, does a seed give the same rows, do the documents state exactly the graph, does an honest
reader score full with the graph and without, and is nothing paid for guesses, hedges and lists of everything?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from multihop import load_environment, reference_reply
from multihop.archive import make_archive, make_hops
from multihop.dialogue import MOST_TRIPLETS, read_reply
from multihop.graph import Graph, Triplet, folded, written_triplets
from multihop.reference import _read
from multihop.relations import RELATIONS

import verifiers as vf

ROW = {
    "documents": [{"title": "Mill", "text": "Mill was painted by Ada."}, {"title": "Ada", "text": "Ada is from Stow."}],
    "graph": [["Mill", "painted_by", "Ada"], ["Ada", "born_in", "Stow"], ["Stow", "lies_on", "Lora"]],
    "questions": [
        {"question": "Who painted Mill?", "triplet": ["Mill", "painted_by", "Ada"]},
        {
            "question": "Where was that person born?",
            "grounded": "Where was Ada born?",
            "triplet": ["Ada", "born_in", "Stow"],
            "answers": ["Stow", "Stow Abbey"],
        },
    ],
    "aliases": [["A. Brand", "Ada"]],
}
FIRST = "<triplets>\n(Mill | painted_by | Ada)\n</triplets>\n<answer>Ada</answer>"
SECOND = "<triplets>(Ada | born_in | Stow)</triplets><answer>Stow</answer>"


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def data(tmp_path: Path) -> str:
    return write(tmp_path / "rows.jsonl", ROW)


async def run(data: str, *replies: str, **arguments: Any) -> Any:
    env = load_environment(data=data, **arguments)
    client = vf.ScriptedClient(list(replies))
    return (await env.generate(env.eval_rows(), client, "scripted")).records[0]


def value(record: Any, name: str) -> float:
    return next(score.value for score in record.scores if score.name == name)


def told(record: Any) -> list[str]:
    """What the environment said after the prompt."""
    return [message["content"] for message in record.messages if message["role"] == "user"]


# 1. bad arguments are refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"graph": "no"}, "graph='no'"),
        ({"num_train_examples": -1}, "num_train_examples=-1"),
        ({"num_eval_examples": 0}, "num_eval_examples=0"),
        ({"seed": None}, "seed=None"),
        ({"seed": True}, "seed=True"),
        ({"min_hops": 0}, "min_hops=0"),
        ({"min_hops": 3, "max_hops": 2}, "max_hops=2: give a whole number, 3 or more"),
        ({"max_hops": 7}, "max_hops=7"),
        ({"max_turns": 3}, "max_turns=3: give a whole number, 4 or more"),
        ({"data": "nowhere.jsonl"}, "data='nowhere.jsonl': there is no such file"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=named):
        load_environment(**arguments)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"documents": []}, "documents is a list that is not empty"),
        ({"graph": [["Mill", "Ada"]]}, "a triplet of graph is a list of 3 texts"),
        ({"questions": [{"triplet": ["Mill", "painted_by", "Ada"]}]}, "no 'question'"),
        ({"questions": [{"question": "?", "triplet": ["Mill", "painted_by", "Bea"]}]}, "the graph does not have"),
        ({"aliases": [["A"]]}, "a pair of aliases is a list of 2 texts"),
        ({"questions": ROW["questions"] * 5}, "10 questions, and max_turns=8"),
    ],
)
def test_a_row_outside_the_schema_is_named(tmp_path, change, named):
    env = load_environment(data=write(tmp_path / "rows.jsonl", ROW, {**ROW, **change}), seed=None)
    with pytest.raises(vf.DatasetError, match=f"row 2: .*{named}"):
        env.eval_rows()


# 2. same seed, same examples


def test_a_seed_gives_the_same_rows_and_another_seed_others():
    one, same, other = (load_environment(seed=seed, num_eval_examples=20).eval_rows() for seed in (1, 1, 2))
    assert one == same
    assert not {row["question"] for row in one} & {row["question"] for row in other}
    assert load_environment(seed=1, num_eval_examples=5).eval_rows() == one[:5]


def test_without_the_graph_the_documents_and_questions_are_the_same():
    with_graph, without = (load_environment(graph=graph, num_eval_examples=20).eval_rows() for graph in (True, False))
    assert [row["info"] for row in with_graph] == [row["info"] for row in without]
    assert [row["answer"] for row in with_graph] == [row["answer"] for row in without]
    for one, other in zip(with_graph, without, strict=True):
        parts = one["prompt"][1]["content"].split("\n\n")
        assert "\n\n".join(p for p in parts if not p.startswith("Relations: ")) == other["prompt"][1]["content"]
    assert "triplet" not in json.dumps(without[0]["prompt"])


# 3. an example has the right shape


@pytest.mark.parametrize("number", range(20))
def test_documents_state_every_fact_of_the_graph_and_no_error_reads_like_one(number):
    archive = make_archive(f"test/0/{number}")
    assert (len(archive.documents), len(archive.graph)) == (27, 62)
    text = "\n\n".join(f"{title}\n{text}" for title, text in archive.documents)
    for fact in archive.graph:
        assert _read(fact.relation, fact.subject, text) == fact.object
    assert len({(fact.subject, fact.relation) for fact in archive.graph}) == 62
    names = [folded(name) for kind in archive.things.values() for name in kind]
    assert len(set(names)) == len(names)


def test_a_chain_goes_on_from_answer_to_question_and_comes_by_nothing_twice():
    for number in range(50):
        archive = make_archive(f"test/1/{number}")
        hops = make_hops(archive, f"test/1/{number}", 4)
        assert [hop.triplet.object for hop in hops[:-1]] == [hop.triplet.subject for hop in hops[1:]]
        assert len({hops[0].triplet.subject, *(hop.triplet.object for hop in hops)}) == 5
        assert {hop.triplet for hop in hops} <= set(archive.graph)
        for hop in hops[1:]:
            assert hop.triplet.subject in hop.grounded
            assert hop.triplet.subject not in hop.plain


def test_questions_are_as_many_as_asked_for():
    rows = load_environment(min_hops=6, max_hops=6, num_eval_examples=5).eval_rows()
    assert {len(row["info"]["questions"]) for row in rows} == {6}
    assert {row["answer"] for row in rows} == {row["info"]["questions"][-1]["triplet"][2] for row in rows}


# Triplets


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("(Mill | painted_by | Ada)", "holds"),
        ("- (the MILL | Painted by | ada).", "holds"),
        ("Mill|painted_by|A. Brand", "holds"),
        ("1. (Mill | painted_by | Bea)", "contradicted"),
        ("(Mill | born_in | Ada)", "not stated"),
        ("(Ada | painted_by | Mill)", "not stated"),
        ("(Bea | born_in | Stow)", "not stated"),
        ("Ada painted Mill", "unreadable"),
        ("(Mill | painted_by)", "unreadable"),
        ("(Mill | painted_by | )", "unreadable"),
        ("(Mill | painted_by | Ada | Bea)", "unreadable"),
        (f"(Mill | painted_by | {'x' * 1000})", "unreadable"),
    ],
)
def test_a_triplet_gets_the_verdict_of_the_graph(line, verdict):
    graph = Graph([Triplet(*fact) for fact in ROW["graph"]], [("A. Brand", "Ada")])
    reply = read_reply(f"<triplets>\n{line}\n</triplets>", graph)
    assert [one.verdict for one in reply.checked] == [verdict]


def test_triplets_count_in_closed_blocks_outside_of_thoughts_alone():
    assert not written_triplets("<triplets>(a | b | c)")
    assert not written_triplets("(a | b | c)")
    graph = Graph([Triplet("a", "b", "c")])
    assert not read_reply("<think><triplets>(a | b | c)</triplets></think>", graph).checked
    assert len(read_reply("<triplets>(a | b | c)</triplets> <triplets>(a | b | d)</triplets>", graph).checked) == 2


def test_a_reply_that_was_made_to_hurt_is_read_like_any_other():
    graph = Graph([Triplet("a", "b", "c")])
    for text in (
        "<triplets>" * 20_000,
        "<answer>" * 20_000,
        "(" * 100_000,
        "<triplets>" + "|" * 100_000 + "</triplets>",
    ):
        assert not read_reply(text, graph).answer


async def test_the_verdicts_are_told_and_what_is_stated_instead_is_not(data):
    lines = "(Mill | painted_by | Bea)\n(Mill | painted_by | Ada)\n(Mill | weight | 3)\nnothing"
    record = await run(data, f"<triplets>\n{lines}\n</triplets>", SECOND, SECOND)
    assert told(record)[0].split("\n") == [
        "Your triplets:",
        "(Mill | painted_by | Bea): contradicted: the documents state something else",
        "(Mill | painted_by | Ada): holds",
        "(Mill | weight | 3): not stated in the documents",
        "a line is no (subject | relation | object)",
        "",
        "I found no single answer. Answer question 1 in <answer>…</answer>.",
    ]


# Follow-up questions


async def test_a_question_names_what_a_triplet_has_shown(data):
    record = await run(data, FIRST, SECOND)
    assert "Question 2 of 2: Where was Ada born?" in told(record)[0]


@pytest.mark.parametrize("first", ["<answer>Ada</answer>", FIRST.replace("| Ada)", "| Bea)"), "<answer>Bea</answer>"])
async def test_a_question_only_refers_to_what_no_triplet_has_shown(data, first):
    record = await run(data, first, SECOND)
    assert "Question 2 of 2: Where was that person born? (This goes on from the right answer" in told(record)[0]
    assert "Ada born" not in told(record)[0]


async def test_without_the_graph_nothing_is_said_of_triplets_and_no_question_builds_on_them(data):
    record = await run(data, FIRST, SECOND, graph=False)
    assert told(record) == [
        "Question 2 of 2: Where was that person born? (This goes on from the right answer to question 1.)"
    ]
    assert record.reward == 1.0
    assert not [score.name for score in record.scores if "triplet" in score.name]


async def test_a_reply_without_an_answer_costs_a_turn_and_the_question_stays(data):
    record = await run(data, "Ada", FIRST, SECOND)
    assert "Answer question 1" in told(record)[0]
    assert (record.reward, value(record, "num_turns")) == (1.2, 3.0)


# 4. the reference scores full


@pytest.mark.parametrize(("graph", "full"), [(True, 1.2), (False, 1.0)])
async def test_an_honest_reader_scores_full(graph, full):
    env = load_environment(graph=graph, num_eval_examples=30)
    rows = env.eval_rows()
    by_prompt = {row["prompt"][1]["content"]: row for row in rows}
    client = vf.ScriptedClient(
        lambda request: reference_reply(request.messages, by_prompt[request.messages[1]["content"]])
    )
    results = await env.generate(rows, client, "scripted")
    assert {record.reward for record in results.records} == {full}
    assert {value(record, "questions_right") for record in results.records} == {1.0}


async def test_another_right_answer_in_the_last_turn_scores_full(data):
    record = await run(data, FIRST, SECOND.replace("<answer>Stow", "<answer>the STOW abbey."), max_turns=2)
    assert (record.reward, record.stop_condition) == (1.2, "was_answered")


# 5. a wrong, empty, hedged or exhaustive one does not


@pytest.mark.parametrize(
    "last",
    [
        "", "Stow", "<answer>Stow", "<answer></answer>", "<answer>Lora</answer>", "<answer>Stow or Lora</answer>",
        "<answer>Stow</answer><answer>Lora</answer>", "<answer>Lora</answer><answer>Stow</answer>",
        "<think><answer>Stow</answer></think>", "<think><answer>Stow</answer></think><answer>Lora</answer>",
    ],
)  # fmt: skip
@pytest.mark.parametrize("graph", [True, False])
async def test_a_wrong_empty_or_hedged_last_answer_is_not_right(data, last, graph):
    record = await run(data, "<answer>Ada</answer>", *[last] * 3, graph=graph, max_turns=4)
    assert value(record, "correct_answer") == 0.0
    assert record.reward == 0.0
    assert value(record, "questions_right") == 0.5


async def test_a_right_first_answer_alone_is_not_right(data):
    assert value(await run(data, FIRST, "", max_turns=2), "correct_answer") == 0.0


def block(triplets: list[Any], answer: str) -> str:
    lines = "\n".join(f"({' | '.join(triplet)})" for triplet in triplets)
    return f"<triplets>\n{lines}\n</triplets><answer>{answer}</answer>"


async def test_all_facts_there_are_earn_little_at_once_and_bit_by_bit():
    env = load_environment(num_eval_examples=5, min_hops=4, max_turns=8)
    for row in env.eval_rows():
        facts = row["info"]["graph"]
        client = vf.ScriptedClient([block(facts, "x")])
        (at_once,) = (await env.generate([row], client, "scripted")).records
        assert value(at_once, "triplet_score") < 0.1
        parts = [facts[n : n + MOST_TRIPLETS] for n in range(0, len(facts), MOST_TRIPLETS)]
        client = vf.ScriptedClient([block(part, "") for part in parts])
        (bit_by_bit,) = (await env.generate([row], client, "scripted")).records
        assert value(bit_by_bit, "triplet_score") < 0.2
        assert bit_by_bit.reward < 0.04


async def test_guesses_until_one_holds_cost_their_precision(data):
    guesses = block([["Mill", "painted_by", name] for name in ("Bea", "Cid", "Dan", "Ada")], "Ada")
    guessed, known = await run(data, guesses, SECOND), await run(data, FIRST, SECOND)
    assert value(guessed, "triplet_precision") == 2 / 5
    assert value(guessed, "triplets_contradicted") == 3.0
    assert guessed.reward < 1.1 < known.reward


async def test_a_triplet_given_again_or_written_otherwise_counts_once(data):
    again = FIRST.replace("\n</triplets>", "\n(the mill | painted by | A. Brand)\n</triplets>")
    assert (await run(data, again, SECOND)).reward == 1.2


async def test_triplets_beyond_the_most_are_not_looked_at_and_count_as_wrong(data):
    wrong = [["Mill", "painted_by", f"N{n}"] for n in range(MOST_TRIPLETS)]
    record = await run(data, block([*wrong, ROW["graph"][0]], "Ada"), SECOND)
    assert f"1 more were not looked at: at most {MOST_TRIPLETS} in a reply" in told(record)[0]
    assert value(record, "triplet_precision") == 1 / (MOST_TRIPLETS + 2)
    assert value(record, "triplet_recall") == 0.5


@pytest.mark.parametrize("relation", RELATIONS.values(), ids=lambda relation: relation.name)
def test_an_error_is_told_of_both_and_states_neither(relation):
    error = relation.error.format(s="Sub Ject", o="Ob Ject")
    assert "Sub Ject" in error
    assert "Ob Ject" in error
    with pytest.raises(LookupError):
        _read(relation.name, "Sub Ject", error)
