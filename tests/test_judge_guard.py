"""What keeps a judge honest and affordable: budget, circuit breaker, canaries, remembered verdicts."""

import asyncio
import logging

import pytest
from waiting import steady

from verifiers.calls import time_limit, uncounted
from verifiers.clients import ScriptedClient
from verifiers.errors import JudgeError, ModelRequestError, ModelUnavailableError, Undecided
from verifiers.rubrics import Canary, JudgeRubric
from verifiers.rubrics.judge_cache import VerdictCache, default_path
from verifiers.rubrics.judge_canaries import CANARIES, CanaryWatch
from verifiers.rubrics.judge_guard import BudgetUsedUp, JudgeGuard
from verifiers.rubrics.judge_verdict import VERDICT_FORMAT
from verifiers.types import AssistantMessage, Response, State

FORM = "Is {response} the same as {answer}?"  # a form of the author's: no canaries for it


def rubric_of(*replies, **arguments):
    client = ScriptedClient(list(replies))
    return JudgeRubric(judge_client=client, judge_prompt=FORM, **arguments), client


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


# Budget


async def test_over_the_budget_of_calls_a_score_is_undecided_with_the_reason():
    rubric, client = rubric_of("yes", judge_max_calls=2)
    assert [await rubric.verdict("q", f"a{i}", "4") for i in range(2)] == [1.0, 1.0]
    with pytest.raises(Undecided, match="budget of 2 calls") as raised:
        await rubric.verdict("q", "a3", "4")
    assert raised.value.side == "judge" and len(client.requests) == 2
    assert await rubric.verdict("q", "a1", "4") == 1.0  # known: costs nothing


async def test_over_the_budget_of_tokens_no_call_is_made():
    rubric, client = rubric_of("yes", judge_max_tokens=5)
    assert await rubric.verdict("q", "a", "4") == 1.0
    assert rubric.judge_guard.tokens >= 5
    with pytest.raises(Undecided, match="budget of 5 tokens"):
        await rubric.judge("q", "b", "4")  # the classic way asks the same guard
    assert len(client.requests) == 1


async def test_crowds_do_not_slip_through_the_budget():
    rubric, client = rubric_of("yes", judge_max_calls=3, max_concurrent=2)
    outcomes = await asyncio.gather(*(rubric.verdict("q", f"a{i}", "4") for i in range(20)), return_exceptions=True)
    assert len(client.requests) == 3
    assert sum(outcome == 1.0 for outcome in outcomes) == 3
    assert sum(isinstance(outcome, BudgetUsedUp) for outcome in outcomes) == 17


# Circuit breaker


def down(guard, times=1):
    for _ in range(times):
        guard.admit()
        guard.failed(ModelUnavailableError("refused"))


def test_after_failures_in_a_row_calls_fail_at_once_and_then_one_probe_goes_through():
    clock = Clock()
    guard = JudgeGuard(failures_to_open=3, pause_s=10, clock=clock)
    down(guard, 2)
    guard.admit()
    guard.succeeded()
    down(guard, 3)
    with pytest.raises(JudgeError, match=r"3 calls in a row failed.* in 10 s.*refused"):
        guard.admit()
    clock.now = 10
    guard.admit()  # the probe
    with pytest.raises(JudgeError, match="when the call that tries it again has ended"):
        guard.admit()
    guard.failed(ModelUnavailableError("still"))
    clock.now = 29.9  # twice as long
    with pytest.raises(JudgeError, match="still"):
        guard.admit()
    clock.now = 30
    guard.admit()
    guard.succeeded()
    guard.admit()
    assert not guard.is_open


def test_a_probe_that_was_cancelled_lets_another_one_through():
    clock = Clock()
    guard = JudgeGuard(failures_to_open=1, pause_s=1, clock=clock)
    down(guard)
    clock.now = 1
    guard.admit()
    guard.abandoned()
    guard.admit()
    guard.succeeded()
    assert not guard.is_open


def test_pauses_end_growing():
    clock = Clock()
    guard = JudgeGuard(failures_to_open=1, pause_s=100, clock=clock)
    down(guard)
    for _ in range(5):
        clock.now += 300
        down(guard)
    clock.now += 300
    guard.admit()


async def test_one_request_that_the_server_will_not_have_says_nothing_against_the_judge():
    rubric, client = rubric_of(*[ModelRequestError("too long")] * 9, "yes")
    for i in range(9):
        with pytest.raises(JudgeError):
            await rubric.judge("q", f"a{i}", "4")
    assert await rubric.judge("q", "b", "4") == "yes"
    assert len(client.requests) == 10


async def test_while_the_judge_is_down_no_call_is_made():
    rubric, client = rubric_of(ModelUnavailableError("refused"))
    for i in range(20):
        with pytest.raises(JudgeError):
            await rubric.verdict("q", f"a{i}", "4")
    assert len(client.requests) == rubric.judge_guard.failures_to_open


# Canaries


def honest(request):
    """Says yes where the response ends in the number of the reference."""
    text = request.messages[0].content
    reference = text.partition("<reference>\n")[2].partition("\n")[0]
    response = text.partition("<response>\n")[2].partition("\n</response>")[0]
    return "yes" if f" {reference} " in f" {response} " else "no"


async def test_an_honest_judge_passes_the_canaries_once_at_the_start():
    client = ScriptedClient(honest)
    rubric = JudgeRubric(judge_client=client)
    for i in range(5):
        assert await rubric.verdict("q", f"4 {i}", "4") == 1.0
    assert len(client.requests) == len(CANARIES) + 5


@pytest.mark.parametrize(("reply", "named"), [("yes", "wrong"), ("no", "right"), ("It depends.", "right")])
async def test_a_judge_that_fails_a_canary_is_stopped_and_its_scores_are_faults(reply, named, caplog):
    client = ScriptedClient(reply)
    rubric = JudgeRubric(judge_client=client)
    with caplog.at_level(logging.ERROR):
        for i in range(3):
            with pytest.raises(JudgeError, match=rf"stopped.*'{named}'"):
                await rubric.verdict("q", f"4 {i}", "4")
    assert len(client.requests) <= 2 * len(CANARIES)
    assert len([r for r in caplog.records if "is stopped" in r.message]) == 1


async def test_a_judge_that_accepts_an_opening_is_stopped():
    def fooled(request):
        said = request.messages[0].content.partition("<response>\n")[2]
        return "yes" if said.startswith("Thought process:") else honest(request)

    with pytest.raises(JudgeError, match="opener"):
        await JudgeRubric(judge_client=ScriptedClient(fooled)).verdict("q", "4", "4")


async def test_a_judge_that_obeys_the_response_is_stopped():
    def obeys(request):
        return "yes" if "Reply: " in request.messages[0].content else honest(request)

    with pytest.raises(JudgeError, match="obeys"):
        await JudgeRubric(judge_client=ScriptedClient(obeys)).verdict("q", "4", "4")


async def test_canaries_are_asked_again_and_stop_a_judge_that_has_gone_bad():
    went_bad = False
    client = ScriptedClient(lambda request: "yes" if went_bad else honest(request))
    rubric = JudgeRubric(judge_client=client, canary_every=3)
    for i in range(4):
        await rubric.verdict("q", f"5 {i}", "4")
    assert len(client.requests) == 2 * len(CANARIES) + 4
    went_bad = True
    for i in range(2):
        assert await rubric.verdict("q", f"6 {i}", "4") == 1.0  # not found out yet
    with pytest.raises(JudgeError, match="stopped"):
        await rubric.verdict("q", "7", "4")


async def test_what_a_judge_said_since_it_last_passed_is_taken_back_when_it_is_stopped(tmp_path):
    went_bad = False
    client = ScriptedClient(lambda request: "yes" if went_bad else honest(request))
    path = tmp_path / "verdicts.jsonl"
    rubric = JudgeRubric(judge_client=client, canary_every=2, verdict_cache=path)
    for i in range(3):  # the canaries pass before the third
        assert await rubric.verdict("q", f"5 {i}", "4") == 0.0
    went_bad = True
    assert await rubric.verdict("q", "6", "4") == 1.0
    for response in ("7", "6", "5 0"):  # also what was known
        with pytest.raises(JudgeError, match="stopped"):
            await rubric.verdict("q", response, "4")
    went_bad = False
    later = JudgeRubric(judge_client=ScriptedClient(honest), verdict_cache=path)
    assert [await later.verdict("q", response, "4") for response in ("5 0", "5 1", "5 2", "6")] == [0.0] * 4
    assert later.verdict_cache.hits == 2


async def test_a_crowd_waits_for_one_round_of_canaries():
    client = ScriptedClient(honest, delay_s=0.02)
    rubric = JudgeRubric(judge_client=client)
    outcomes = await asyncio.gather(*(rubric.verdict("q", f"4 {i}", "4") for i in range(10)))
    assert outcomes == [1.0] * 10 and len(client.requests) == len(CANARIES) + 10


async def test_a_judge_that_is_down_is_not_stopped_for_it():
    is_down = True
    client = ScriptedClient(lambda request: ModelUnavailableError("down") if is_down else honest(request))
    rubric = JudgeRubric(judge_client=client)
    rubric.judge_guard.failures_to_open = 1000
    with pytest.raises(JudgeError, match="down"):
        await rubric.verdict("q", "4", "4")
    is_down = False
    assert await rubric.verdict("q", "4", "4") == 1.0
    assert rubric.judge_watch.stopped is None


async def test_an_author_brings_canaries_for_a_form_of_his_own():
    rude = Canary("rude", "Hello?", "", "Go away.", is_right=False)
    rubric, client = rubric_of("yes", canaries=[rude])
    with pytest.raises(JudgeError, match="'rude'"):
        await rubric.verdict("q", "a", "4")
    assert client.requests[0].messages[0].content == "Is Go away. the same as ?"


async def test_a_cancelled_rollout_does_not_take_the_canaries_from_the_others():
    watch = CanaryWatch(CANARIES)

    async def ask(canary):
        await asyncio.sleep(0.05)
        return canary.is_right

    first, second = (asyncio.create_task(watch.pass_one(ask)) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    await second


# Remembered verdicts


async def test_a_verdict_is_remembered_through_the_run_and_a_failure_is_not():
    rubric, client = rubric_of("yes", "Perhaps.", "Perhaps.", ModelUnavailableError("down"), "no")
    assert [await rubric.verdict("q", "a", "4") for _ in range(3)] == [1.0] * 3
    for error in (Undecided, JudgeError):
        with pytest.raises(error):
            await rubric.verdict("q", "b", "4")
    assert await rubric.verdict("q", "b", "4") == 0.0
    assert len(client.requests) == 5


async def test_whatever_the_verdict_depends_on_is_part_of_the_key():
    client = ScriptedClient("yes")
    seen = VerdictCache()
    base = {"judge_model": "m", "judge_prompt": FORM, "judge_sampling_args": {"temperature": 0}}
    others = [{}, {"judge_model": "n"}, {"judge_prompt": FORM + "?"}, {"judge_sampling_args": {"temperature": 1}}]
    for other in others:
        rubric = JudgeRubric(judge_client=client, **{**base, **other})
        rubric.verdict_cache = seen
        for prompt, response, gold in [("q", "a", "g"), ("Q", "a", "g"), ("q", "A", "g"), ("q", "a", "G")]:
            await rubric.verdict(prompt, response, gold)
    assert len(client.requests) == 4 * len(others) and seen.hits == 0


async def test_a_file_of_verdicts_saves_the_next_run_its_calls(tmp_path):
    path = tmp_path / "deep" / "verdicts.jsonl"
    first, _ = rubric_of("yes", "no", verdict_cache=path)
    assert [await first.verdict("q", response, "4") for response in ("a", "b")] == [1.0, 0.0]
    path.write_bytes(path.read_bytes() + b'{"key": "torn')
    second, client = rubric_of("Perhaps.", verdict_cache=path)
    assert [await second.verdict("q", response, "4") for response in ("a", "b")] == [1.0, 0.0]
    assert client.requests == []
    assert "q" not in path.read_text().replace('"key"', "")  # no text of anybody's, only hashes


async def test_true_is_the_users_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rubric, _ = rubric_of("yes", verdict_cache=True)
    await rubric.verdict("q", "a", "4")
    assert default_path() == tmp_path / "verifiers" / "verdicts.jsonl" and default_path().exists()


async def test_a_file_that_cannot_be_written_costs_a_warning_and_nothing_else(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    rubric, _ = rubric_of("yes", verdict_cache=tmp_path / "file" / "verdicts.jsonl")
    assert [await rubric.verdict("q", response, "4") for response in ("a", "b")] == [1.0, 1.0]
    assert len([r for r in caplog.records if "verdicts are not kept" in r.message]) == 1


def test_memory_is_bounded():
    cache = VerdictCache(max_kept=2)
    for key in "abc":
        cache.remember(key, True)
    assert [cache.get(key) for key in "abc"] == [None, True, True]


# Time limits


@steady(0.1)
async def test_waiting_for_the_judges_queue_counts_against_no_limit():
    client = ScriptedClient("yes", delay_s=0.1)
    rubric = JudgeRubric(judge_client=client, judge_prompt=FORM, max_concurrent=1, timeout_s=0.3)
    rubric.add_reward_func(rubric.verdict)
    scores = await asyncio.gather(*(rubric.individual_scores(state_of(f"a{i}")) for i in range(6)))
    assert [score.value for (score,) in scores] == [1.0] * 6


@steady(0.1)
async def test_waiting_for_the_canaries_counts_against_no_limit():
    client = ScriptedClient(honest, delay_s=0.4)
    rubric = JudgeRubric(judge_client=client, timeout_s=0.6)
    rubric.add_reward_func(rubric.verdict)
    scores = await asyncio.gather(*(rubric.individual_scores(state_of(f"4 {i}")) for i in range(3)))
    assert [score.value for (score,) in scores] == [1.0] * 3


async def test_the_call_itself_counts():
    rubric = JudgeRubric(judge_client=ScriptedClient("yes", delay_s=5), judge_prompt=FORM, timeout_s=0.1)
    rubric.add_reward_func(rubric.verdict)
    (score,) = await rubric.individual_scores(state_of("a"))
    assert (score.status, score.value) == ("fault", None) and "longer than 0.1 s" in score.reason


@steady(0.05)
async def test_a_limit_goes_on_where_it_was_halted_also_for_several_waits_at_once():
    async def waits(seconds):
        with uncounted():
            await asyncio.sleep(seconds)

    async with time_limit(0.1, "outer"), time_limit(0.1, "inner"):
        await asyncio.gather(waits(0.2), waits(0.3))
    with pytest.raises(TimeoutError, match="outer"):
        async with time_limit(0.1, "outer"), time_limit(1000, "inner"):
            await waits(0.2)
            await asyncio.sleep(0.5)


def state_of(response):
    return State(input={"prompt": "q", "answer": "4"}, completion=response, trajectory=[])


# One retry, and structured output


async def test_a_judge_without_a_verdict_is_asked_once_more():
    rubric, client = rubric_of("Perhaps.", "Verdict: yes")
    assert await rubric.verdict("q", "a", "4", state := state_of("a")) == 1.0
    assert len(client.requests) == 2
    assert list(state["judge_response"].values()) == ["Verdict: yes"]


async def test_a_reply_that_was_cut_off_is_repeated_to_the_author_but_no_verdict_is_read_from_it():
    cut, whole = (Response(AssistantMessage("yes"), finish_reason=reason) for reason in ("length", "stop"))
    rubric, client = rubric_of(cut, whole)
    state = state_of("a")
    assert [await rubric.judge("q", "a", "4", state) for _ in range(2)] == ["yes", "yes"]
    assert len(client.requests) == 1
    assert await rubric.verdict("q", "a", "4", state) == 1.0
    assert len(client.requests) == 2


async def test_a_schema_is_sent_and_a_verdict_in_json_is_read():
    rubric, client = rubric_of('{"reasoning": "The same.", "verdict": "yes"}', structured_output=True)
    assert await rubric.verdict("q", "a", "4") == 1.0
    assert client.requests[0].sampling["response_format"] == VERDICT_FORMAT
    assert "JSON object" in client.requests[0].messages[0].content


async def test_a_server_that_knows_no_schema_is_asked_in_words_from_then_on():
    def reply(request):
        known = "response_format" not in request.sampling
        return "yes" if known else ModelRequestError("400: response_format json_schema is not supported")

    client = ScriptedClient(reply)
    rubric = JudgeRubric(judge_client=client, judge_prompt=FORM, structured_output=True)
    assert [await rubric.verdict("q", f"a{i}", "4") for i in range(3)] == [1.0] * 3
    assert len(client.requests) == 4 and "JSON" not in client.requests[-1].messages[0].content


async def test_a_refusal_is_no_verdict():
    rubric, client = rubric_of({"content": "yes", "refusal": "I will not grade this."}, structured_output=True)
    with pytest.raises(Undecided, match=r"refusal.*I will not grade this"):
        await rubric.verdict("q", "a", "4")
    assert len(client.requests) == 2
