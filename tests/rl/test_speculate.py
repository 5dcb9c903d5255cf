"""Drafts come from what was seen, a replay loses no token, and long rollouts get the larger drafts."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers.errors import ConfigError
from verifiers.records import EnvInfo, ModelInfo, RolloutRecord, TokenTrace, Turn
from verifiers.rl.speculate.budgets import ByLength, Fixed
from verifiers.rl.speculate.drafter import SuffixDrafter, SuffixTree
from verifiers.rl.speculate.engine import SpeculationCounts, launch_arguments, speculative_config
from verifiers.rl.speculate.lengths import LengthPredictor
from verifiers.rl.speculate.replay import Engine, Replay, Trace, replay, traces_of

tokens = st.lists(st.integers(0, 3), max_size=40)
epochs = st.lists(st.lists(st.builds(Trace, st.sampled_from("pq"), tokens), max_size=5), max_size=3)


def counts(node, so_far=()) -> dict[tuple[int, ...], int]:
    found = {} if not so_far else {so_far: node.count}
    for token, child in node.spelt_out().items():
        found |= counts(child, (*so_far, token))
    return found


def runs_in(sequences, depth: int) -> dict[tuple[int, ...], int]:
    """The same by definition: each run of at most `depth` tokens, counted."""
    found: dict[tuple[int, ...], int] = {}
    for sequence in sequences:
        for start in range(len(sequence)):
            for end in range(start + 1, min(start + depth, len(sequence)) + 1):
                run = tuple(sequence[start:end])
                found[run] = found.get(run, 0) + 1
    return found


@given(st.lists(tokens, max_size=4), st.integers(2, 6))
def test_a_tree_counts_every_run_of_tokens(sequences, depth):
    tree = SuffixTree(depth)
    for sequence in sequences:
        tree.insert(sequence)
    assert counts(tree.root) == runs_in(sequences, depth)


@given(st.lists(tokens, min_size=1, max_size=4), st.integers(2, 6))
def test_what_is_taken_out_of_a_tree_leaves_nothing_behind(sequences, depth):
    tree = SuffixTree(depth)
    for sequence in sequences:
        tree.insert(sequence)
    tree.remove(sequences[0])
    assert counts(tree.root) == runs_in(sequences[1:], depth)


@given(tokens, st.integers(2, 6))
def test_a_tree_that_grows_token_by_token_is_the_same(sequence, depth):
    grown, followed = SuffixTree(depth), SuffixTree(depth)
    followed.insert(sequence)
    so_far, ends, found = [], [], []
    for token in sequence:
        so_far.append(token)
        ends = grown.grow(so_far, ends)
        found = followed.follow(token, found)
        assert len(found) == min(len(so_far), depth)  # all of it is in there
    assert counts(grown.root) == runs_in([sequence], depth)


def test_a_draft_is_what_followed_the_longest_end_that_was_seen():
    drafter = SuffixDrafter(factor=4.0)
    drafter.observe("p", [1, 2, 3, 4, 5])
    drafter.observe("p", [9, 3, 7, 7, 7])
    drafter.observe("p", [8, 3, 7, 7, 7])
    assert drafter.begin("p", [2, 3]).draft(8) == [4, 5]  # after "3" alone 7 is likelier
    assert drafter.begin("p", [6, 3]).draft(2) == [7, 7]
    assert drafter.begin("q", [2, 3]).draft(8) == []  # another problem's
    assert drafter.begin("p", [2, 3]).draft(0) == []


def test_a_rollout_that_repeats_itself_is_its_own_source():
    drafting = SuffixDrafter(factor=4.0).begin("p")
    drafting.extend([1, 2, 3, 1, 2])
    assert drafting.draft(3) == [3, 1, 2]


def test_unlikely_tokens_are_not_drafted():
    drafter = SuffixDrafter(min_probability=0.5, factor=8.0)
    for last in range(4):
        drafter.observe("p", [1, 2, 3, 10 + last])
    assert drafter.begin("p", [1]).draft(8) == [2, 3]


def test_only_the_last_rollouts_of_a_problem_are_remembered():
    drafter = SuffixDrafter(window=1)
    drafter.observe("p", [1, 2])
    drafter.observe("p", [1, 3])
    assert drafter.begin("p", [1]).draft(1) == [3]


@given(epochs, st.integers(0, 5), st.integers(1, 4))
def test_a_replay_makes_every_token_once(given_epochs, limit, slots):
    found = replay(given_epochs, Fixed(limit), engine=Engine(slots=slots))
    traces = [trace for epoch in given_epochs for trace in epoch if trace.tokens]
    assert found.generations == len(traces)
    assert found.tokens == sum(len(trace.tokens) for trace in traces) == found.forwards + found.accepted
    assert 0 <= found.accepted <= found.drafted


def test_without_speculation_time_is_steps_and_tokens():
    engine = Engine(slots=2, step_s=1.0, token_s=0.1)
    found = replay([[Trace("p", [1, 2, 3]), Trace("q", [1])]], Fixed(0), engine=engine)
    assert found.makespan_s == pytest.approx(3 * 1.0 + 4 * 0.1)
    assert found == Replay(2, 4, 4, 0, 0, found.makespan_s, found.longest_tail_s)
    assert found.tokens_per_step == 1.0


def long_tail(problems: int = 24, epochs: int = 4, seed: int = 0) -> list[list[Trace]]:
    """Rollouts that come back a little changed; one problem in eight is ten times as long as the others."""
    random = Random(seed)
    first = [[random.randrange(500) for _ in range(300 if p % 8 == 0 else 30)] for p in range(problems)]
    return [
        [
            Trace(str(p), [t if random.random() < 0.95 else random.randrange(500) for t in first[p]])
            for p in range(problems)
        ]
        for _ in range(epochs)
    ]


def test_rollouts_that_come_back_take_fewer_steps():
    found = replay(long_tail(), Fixed(16))
    assert found.tokens_per_step > 1.8  # the first epoch has nothing to draft from
    assert found.makespan_s < 0.7 * replay(long_tail(), Fixed(0)).makespan_s


def test_drafting_by_length_spends_less_and_ends_no_later_where_passes_are_dear():
    engine = Engine(slots=64, step_s=0.01, token_s=0.001)  # as in a batch that is bound by computing
    fixed = replay(long_tail(), Fixed(16), engine=engine)
    lengths = LengthPredictor()
    by_length = replay(long_tail(), ByLength(lengths), engine=engine, lengths=lengths, long_first=True)
    assert by_length.drafted < fixed.drafted
    assert by_length.makespan_s <= fixed.makespan_s


def test_long_first_ends_earlier_when_there_are_few_slots():
    lengths = LengthPredictor()
    engine = Engine(slots=4)
    given_order = replay(long_tail(), Fixed(0), engine=engine)
    assert (
        replay(long_tail(), Fixed(0), engine=engine, lengths=lengths, long_first=True).makespan_s
        < given_order.makespan_s
    )


def test_lengths_are_predicted_from_the_last_rollouts_and_go_first():
    lengths = LengthPredictor(window=3)
    assert lengths.predict("p") == 0.0
    for found in (10, 1000, 1000, 2000):
        lengths.observe("p", found)
    lengths.observe("q", 5)
    assert lengths.predict("p") == 1000.0
    assert lengths.predict("p", 1.0) == 2000.0
    assert lengths.predict("new") == lengths.overall(0.5) == 1000.0
    assert sorted("qp", key=lengths.priority) == ["p", "q"]


@given(st.lists(st.tuples(st.sampled_from("pqr"), st.integers(0, 5000)), max_size=60))
def test_a_predictor_goes_on_where_it_was(observed):
    lengths = LengthPredictor(window=4)
    for problem, found in observed:
        lengths.observe(problem, found)
    again = LengthPredictor.restore(json.loads(json.dumps(lengths.state())))
    assert [again.predict(p, q) for p in "pqrx" for q in (0.1, 0.9)] == [
        lengths.predict(p, q) for p in "pqrx" for q in (0.1, 0.9)
    ]


def test_a_rollout_that_outgrows_its_prediction_moves_up():
    lengths = LengthPredictor()
    for number in range(100):
        lengths.observe(str(number), number)
    budget = ByLength(lengths, limits=(0, 4, 16), quantiles=(0.5, 0.8))
    assert [budget.tokens("10", 0), budget.tokens("60", 0), budget.tokens("95", 0)] == [0, 4, 16]
    assert [budget.tokens("10", generated) for generated in (40, 60, 90)] == [0, 4, 16]
    with pytest.raises(ValueError, match="2 quantiles part 3 classes"):
        ByLength(lengths, limits=(0, 1))


def test_traces_are_the_turns_of_records_that_have_tokens():
    turns = [Turn(start=0, end=1, tokens=TokenTrace.of([1], [5, 6])), Turn(start=1, end=2)]
    record = RolloutRecord(
        env=EnvInfo(name="e"), example_id=3, rollout_index=0, model=ModelInfo(name="m"),
        prompt=[], messages=[], reward=1.0, status="scored", turns=turns,
    )  # fmt: skip
    (trace,) = traces_of([record])
    assert trace.problem == "e/3" and list(trace.tokens) == [5, 6]


METRICS = """\
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 10.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 5.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 60.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 30.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 9.0
"""


def test_what_a_server_drafted_is_read_from_its_metrics():
    found = SpeculationCounts.of_metrics(METRICS)
    assert found == SpeculationCounts(drafts=15, draft_tokens=60, accepted_tokens=30)
    assert (found.acceptance, found.tokens_per_step) == (0.5, 3.0)
    assert found.since(SpeculationCounts(5, 20, 10)) == SpeculationCounts(10, 40, 20)
    assert found.since(SpeculationCounts(100, 200, 100)) == found  # it was started anew
    assert SpeculationCounts.of_metrics("vllm:num_requests_running 3.0\n") is None


def test_settings_name_the_version_that_is_too_old():
    assert speculative_config("0.32.0")["method"] == "suffix"
    flag, config, *others = launch_arguments("0.14.1", num_speculative_tokens=8)
    assert flag == "--speculative-config" and json.loads(config)["num_speculative_tokens"] == 8
    assert others == ["--scheduling-policy", "priority"]
    with pytest.raises(ConfigError, match=r"vLLM 0\.10\.2 has no suffix decoding; it needs 0\.12"):
        speculative_config("0.10.2")
