"""Records to training samples: branches, masks, log-probabilities, versions, and what is left out by which policy."""

import asyncio
import math
import struct
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rl_rollouts import Said, group, rollout, trace

import verifiers as vf
from verifiers.errors import ConfigError
from verifiers.records import Turn, VersionSpan
from verifiers.rl.branches import BadTokens
from verifiers.rl.sample_policy import SamplePolicy
from verifiers.rl.samples import SampleCounts, samples_of, samples_of_group
from verifiers.rl.types import PolicyRollout
from verifiers.run import Run

ids = st.lists(st.integers(0, 9), min_size=1, max_size=5)
logprobs = st.floats(-20, 0, width=32)


@st.composite
def conversations(draw, actors=("assistant",)):
    """Turns that mostly continue one before, and sometimes drift: another token, a shorter past, a new start."""
    said: list[Said] = []
    for _ in range(draw(st.integers(1, 7))):
        past = draw(st.sampled_from(said)).whole if said and draw(st.booleans()) else said[-1].whole if said else []
        prompt = past + draw(ids)
        how = draw(st.sampled_from(["goes on", "goes on", "goes on", "drifts", "is cut", "repeats"]))
        if how == "drifts" and past:
            at = draw(st.integers(0, len(past) - 1))
            prompt[at] = 99
        elif how == "is cut" and past:
            prompt = past[: draw(st.integers(1, len(past)))]
        elif how == "repeats" and past:
            prompt = list(past)
        completion = draw(ids)
        scores = draw(st.lists(logprobs, min_size=len(completion), max_size=len(completion)))
        said.append(Said(prompt, completion, scores, actor=draw(st.sampled_from(actors))))
    return said


@given(conversations())
def test_every_sampled_token_is_trained_once_behind_what_it_was_sampled_after(said):
    found = samples_of(rollout(said))
    trained = Counter()
    for sample in found.samples:
        tokens, mask, scores = list(sample.token_ids), list(sample.mask), sample.logprobs
        assert mask[0] == 0 and len(tokens) == len(mask) == len(scores) == len(sample.advantages)
        assert all(score == 0.0 for score, is_sampled in zip(scores, mask) if not is_sampled)
        assert tokens in [turn.whole for turn in said], "a sample ends as one of the turns did"
        trained.update((tuple(tokens[:at]), tokens[at], scores[at]) for at, is_sampled in enumerate(mask) if is_sampled)
    sampled = Counter()
    for turn in said:
        for at, (token, score) in enumerate(zip(turn.completion, turn.logprobs or [])):
            sampled[
                tuple(turn.prompt + turn.completion[:at]), token, struct.unpack("f", struct.pack("f", score))[0]
            ] += 1
    assert trained == sampled
    assert found.counts.trained_tokens == sum(len(turn.completion) for turn in said)
    assert found.counts.forks == len(found.samples) - 1


@given(conversations())
def test_a_turn_forks_only_when_no_branch_is_its_beginning(said):
    ends: list[list[int]] = []
    for turn in said:
        continued = [end for end in ends if turn.prompt[: len(end)] == end]
        if continued:
            ends.remove(max(continued, key=len))
        ends.append(turn.whole)
    assert sorted(list(s.token_ids) for s in samples_of(rollout(said)).samples) == sorted(ends)


@given(conversations(actors=("prover", "verifier", "judge")))
def test_each_trained_actor_has_samples_of_its_own_and_others_have_none(said):
    found = samples_of(rollout(said), policy=SamplePolicy(actors=("prover", "verifier")))
    by_actor = found.by_actor()
    assert set(by_actor) == {turn.actor for turn in said} - {"judge"}
    for actor, samples in by_actor.items():
        alone = samples_of(
            rollout([turn for turn in said if turn.actor == actor]), policy=SamplePolicy(actors=(actor,))
        )
        assert [s.token_buffer for s in samples] == [s.token_buffer for s in alone.samples]
        assert [s.mask_buffer for s in samples] == [s.mask_buffer for s in alone.samples]
    assert found.counts.other_turns == sum(turn.actor == "judge" for turn in said)
    assert [s.branch for s in found.samples] == list(range(len(found.samples)))


@given(conversations(), st.integers(2, 12), st.sampled_from(["drop", "cut"]))
def test_no_sample_is_longer_than_allowed_and_what_is_lost_is_counted(said, seq_len, overlong):
    everything = samples_of(rollout(said))
    found = samples_of(rollout(said), policy=SamplePolicy(seq_len=seq_len, overlong=overlong))
    assert all(2 <= sample.num_tokens <= seq_len and sample.num_trained for sample in found.samples)
    assert found.counts.trained_tokens + found.counts.tokens_lost == everything.counts.trained_tokens
    longer = sum(sample.num_tokens > seq_len for sample in everything.samples)
    assert found.counts.overlong_cut + found.counts.overlong_dropped == longer
    if overlong == "cut":
        assert {s.token_buffer for s in found.samples} <= {s.token_buffer[: 4 * seq_len] for s in everything.samples}


def test_a_token_shared_by_two_branches_is_masked_in_the_second():
    first = Said([1, 2], [3, 4])
    one, other = Said([*first.whole, 5], [6]), Said([*first.whole, 7], [8])
    samples = samples_of(rollout([first, one, other])).samples
    assert [list(s.token_ids) for s in samples] == [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 7, 8]]
    assert [list(s.mask) for s in samples] == [[0, 0, 1, 1, 0, 1], [0, 0, 0, 0, 0, 1]]


def test_of_two_branches_that_a_prompt_begins_with_the_longer_goes_on():
    said = [Said([1], [2]), Said([1], [2, 3]), Said([7], [8]), Said([1, 2, 3, 4], [5])]
    samples = samples_of(rollout(said)).samples
    assert [list(s.token_ids) for s in samples] == [[1, 2], [1, 2, 3, 4, 5], [7, 8]]


def test_advantages_lie_on_trained_tokens_alone():
    said = [Said([1, 2], [3]), Said([1, 2, 3, 4], [5, 6])]
    (sample,) = samples_of(rollout(said), 0.25, turn_advantages={1: 0.5}).samples
    assert list(sample.advantages) == [0, 0, 0.25, 0, 0.75, 0.75]


def test_a_reply_cut_by_tokens_and_continued_is_one_sample():
    said = [Said([1], [2, 3], finish_reason="length"), Said([1, 2, 3], [4])]
    (sample,) = samples_of(rollout(said)).samples
    assert list(sample.mask) == [0, 1, 1, 1]


def test_versions_are_those_of_the_tokens_that_are_trained():
    spans = [VersionSpan(0, 2, "4"), VersionSpan(2, 4, "6")]
    (sample,) = samples_of(rollout([Said([1], [1, 2, 3, 4], versions=spans)])).samples
    assert (sample.version_min, sample.version_max) == (4, 6)
    (sample,) = samples_of(
        rollout([Said([1], [1, 2, 3, 4], versions=spans)]), policy=SamplePolicy(seq_len=3, overlong="cut")
    ).samples
    assert (sample.version_min, sample.version_max) == (4, 4)


@pytest.mark.parametrize(
    "spans",
    [[], [VersionSpan(0, 2, "default")], [VersionSpan(0, 1, "4")], [VersionSpan(0, 0, "9")]],
    ids=["unsaid", "named otherwise", "with a hole", "empty"],
)
def test_where_versions_are_not_known_they_are_those_of_the_request(spans):
    (sample,) = samples_of(rollout([Said([1], [2, 3], versions=spans)])).samples
    assert (sample.version_min, sample.version_max) == (3, 5)


def broken(**changes):
    turn = Turn(start=0, end=0, tokens=msgspec.structs.replace(trace([1, 2], [3, 4]), **changes))
    return rollout(turns=[Turn(start=0, end=0, tokens=trace([1], [2])), turn], name="r9")


BROKEN = {
    "NaN": broken(logprob_buffer=struct.pack("2f", -1, math.nan)),
    "infinity": broken(logprob_buffer=struct.pack("2f", -math.inf, -1)),
    "two infinities": broken(logprob_buffer=struct.pack("2f", -math.inf, math.inf)),
    "filler": broken(logprob_buffer=struct.pack("2f", -1, -9999)),
    "above zero": broken(logprob_buffer=struct.pack("2f", -1, 1)),
    "missing": broken(logprob_buffer=b""),
    "too few": broken(logprob_buffer=struct.pack("f", -1)),
    "no ids": broken(completion_buffer=b""),
    "torn": broken(completion_buffer=b"\0" * 7, logprob_buffer=b"\0" * 7),
    "no prompt": broken(prompt_buffer=b""),
    "too long a past": broken(prefix_length=3),
    "no trace": rollout(turns=[Turn(start=0, end=0, tokens=trace([1], [2])), Turn(start=0, end=0)], name="r9"),
}


@pytest.mark.parametrize("one", BROKEN.values(), ids=BROKEN)
def test_bad_tokens_are_never_trained_on_and_the_rollout_and_turn_are_named(one, caplog):
    with pytest.raises(BadTokens, match=r"rollout r9 .*turn 1"):
        samples_of(one, policy=SamplePolicy(bad_tokens="raise"))
    found = samples_of(one)
    assert found.samples == [] and found.counts.bad_tokens == 1
    assert "rollout r9" in found.problems[0] and "turn 1" in caplog.text


def test_bad_tokens_of_an_actor_that_is_not_trained_do_no_harm():
    turns = [Turn(start=0, end=0, actor="user"), Turn(start=0, end=0, tokens=trace([1], [2]))]
    assert len(samples_of(rollout(turns=turns)).samples) == 1


def test_an_empty_reply_gives_nothing_and_breaks_nothing():
    found = samples_of(rollout([Said([1], []), Said([1, 2], [3])]))
    assert [list(s.token_ids) for s in found.samples] == [[1, 2, 3]]
    assert samples_of(rollout([])).counts.masked == 1


def short(reward, **fields):
    return rollout([Said([1], [2, 3])], reward, **fields)


@given(st.lists(st.none() | st.floats(-5, 5), min_size=1, max_size=8), st.integers(1, 4))
def test_every_rollout_of_a_trained_group_is_accounted_for(rewards, min_group):
    counts = samples_of_group(group([short(r) for r in rewards]), SamplePolicy(min_group=min_group)).counts
    scored = [r for r in rewards if r is not None]
    assert counts.rollouts == len(rewards) and counts.fault == len(rewards) - len(scored)
    assert counts.short_groups == (len(scored) < min_group)
    if not counts.short_groups and not counts.trivial_groups:
        assert counts.trained + counts.masked + counts.fault == counts.rollouts


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=8))
def test_the_advantages_of_a_group_add_up_to_nothing(rewards):
    samples = samples_of_group(group([short(r) for r in rewards]), SamplePolicy(skip_trivial=False)).samples
    assert sum(sample.advantages[1] for sample in samples) == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize(
    ("policy", "advantages", "counts"),
    [
        ("keep", [0.5, -0.5, 0.0, 0.0], {"truncated": 1, "trained": 4}),
        ("zero", [0.625, -0.375, 0.125, -0.375], {"truncated": 1, "trained": 4}),
        ("mask", [0.5, -0.5, 0.0], {"truncated": 1, "masked": 1, "trained": 3}),
        ("drop", [0.5, -0.5, 0.0], {"truncated": 1, "truncated_dropped": 1, "trained": 3}),
    ],
)
def test_a_truncated_rollout_is_kept_zeroed_masked_or_dropped(policy, advantages, counts):
    rollouts = [short(1.0), short(0.0), short(0.5), short(0.5, is_truncated=True)]
    found = samples_of_group(group(rollouts), SamplePolicy(truncated=policy))
    assert [sample.advantages[1] for sample in found.samples] == advantages
    assert counts.items() <= msgspec.structs.asdict(found.counts).items()


def test_a_masked_rollout_counts_in_the_mean_of_its_group():
    rollouts = [short(1.0), short(0.0), rollout([Said([1], [2], finish_reason="length")], 0.2)]
    masked = samples_of_group(group(rollouts), SamplePolicy(truncated="mask")).samples
    assert [s.advantages[1] for s in masked] == pytest.approx([0.6, -0.4])


@pytest.mark.parametrize("status", ["undecided", "fault", "failed", "unscored", "pending"])
def test_a_rollout_without_a_reward_is_left_out_and_its_siblings_go_on(status):
    found = samples_of_group(group([short(1.0), short(0.0), short(None, status=status)]))
    assert [s.advantages[1] for s in found.samples] == [0.5, -0.5]
    assert getattr(found.counts, "unscored" if status == "pending" else status) == 1


def test_a_reward_that_is_no_number_is_a_fault():
    found = samples_of_group(group([short(1.0), short(0.0), short(math.nan)]))
    assert [s.advantages[1] for s in found.samples] == [0.5, -0.5] and found.counts.fault == 1


def test_an_aborted_reply_is_never_scored():
    found = samples_of_group(group([short(1.0), short(0.0), rollout([Said([1], [2], finish_reason="abort")], 0.0)]))
    assert found.counts.aborted == 1 and found.counts.trained == 2


def test_a_trivial_group_is_one_of_equal_rewards_whatever_they_are():
    for reward in (0.0, 0.3, 1.0):
        counts = samples_of_group(group([short(reward)] * 3)).counts
        assert counts.trivial_groups == 1 and counts.samples == 0
    assert samples_of_group(group([short(0.3)] * 3), SamplePolicy(skip_trivial=False)).counts.samples == 3


def test_rewards_of_turns_are_compared_at_the_same_turn():
    def two_turns(reward, first):
        return rollout([Said([1], [2], reward=first), Said([1, 2, 3], [4])], reward)

    found = samples_of_group(group([two_turns(0.0, 1.0), two_turns(0.0, 0.0)]), SamplePolicy(turn_reward_weight=0.5))
    assert [list(s.advantages) for s in found.samples] == [[0, 0.25, 0, 0], [0, -0.25, 0, 0]]


def test_long_rollouts_weigh_more_in_a_length_weighted_mean():
    rollouts = [rollout([Said([1], [2] * 3)], 1.0), rollout([Said([1], [2])], 0.0)]
    found = samples_of_group(group(rollouts), SamplePolicy(baseline="length_weighted"))
    assert [s.advantages[1] for s in found.samples] == [0.25, -0.75]


def test_greedy_rollouts_are_refused_and_the_temperature_is_kept():
    (sample,) = samples_of(short(1.0, sampling={"temperature": 0.5})).samples
    assert sample.temperature == 0.5
    with pytest.raises(ConfigError, match="temperature 0"):
        samples_of(short(1.0, sampling={"temperature": 0}))


@pytest.mark.parametrize(
    ("field", "value"),
    [("truncated", "ignore"), ("overlong", "split"), ("baseline", "median"), ("bad_tokens", "guess")],
)
def test_a_policy_that_does_not_exist_is_named_with_those_that_do(field, value):
    with pytest.raises(ConfigError, match=f"{field} = '{value}' is none of: "):
        SamplePolicy(**{field: value})


@pytest.mark.parametrize("fields", [{"min_group": 0}, {"seq_len": 1}, {"actors": ()}])
def test_a_policy_that_cannot_be_is_refused(fields):
    with pytest.raises(ConfigError, match=next(iter(fields))):
        SamplePolicy(**fields)


def test_counts_add_up_by_name():
    total = SampleCounts(rollouts=2, forks=1) + SampleCounts(rollouts=3)
    assert total == SampleCounts(rollouts=5, forks=1)
    assert total.metrics()["samples/rollouts"] == 5.0


class Guessing(vf.MultiTurnEnv):
    """Says no to every guess."""

    async def env_response(self, messages, state, **_):
        return [vf.UserMessage(f"not {messages[-1].content}")]


def records_of(env, replies, tries=2):
    client = vf.ScriptedClient(replies, with_tokens=True)
    run = Run(env, env.train_rows(), client=client, model="m", rollouts_per_example=tries)
    return asyncio.run(run.execute())


def test_the_turns_of_a_real_rollout_are_one_sample_with_the_environment_masked():
    env = Guessing(dataset=[{"question": "a number", "answer": "3"}], rubric=vf.Rubric([guessed]), max_turns=3)
    records = records_of(env, [{"role": "assistant", "content": word} for word in ("one", "two", "three")], tries=2)
    rollouts = [
        PolicyRollout(record=record, rollout_id=str(at), dispatched_version=0, finished_version=0)
        for at, record in enumerate(records)
    ]
    found = samples_of_group(group(rollouts), SamplePolicy(skip_trivial=False))
    assert found.counts.samples == 2 and found.counts.forks == 0
    for sample, record in zip(found.samples, records):
        sampled = [token for turn in record.turns for token in turn.tokens.completion_ids]
        assert [token for token, mask in zip(sample.token_ids, sample.mask) if mask] == sampled
        assert len(record.turns) == 3 and sample.num_trained < sample.num_tokens


def guessed(completion, answer) -> float:
    return float(completion[-1]["content"] == answer)
