"""Batches, weights, evaluations and the trainer, in virtual time."""

import asyncio
import logging
from functools import partial

import pytest
from rl_world import Fate, ScriptedGroups, Servers, Trainer, packed, source
from rl_world import settings as schedule
from virtual_time import virtually

from verifiers.errors import ConfigError, SetupError
from verifiers.rl.evaluation import Evaluation
from verifiers.rl.inference import UpdateError, UpdateReport
from verifiers.rl.orchestrator import Orchestrator
from verifiers.rl.policy import MemoryFeed
from verifiers.rl.samples import samples_of_group
from verifiers.rl.scheduler import NoProgress
from verifiers.rl.transports.memory import MemoryTransport


class Training:
    """An orchestrator and a trainer that only counts, in one event loop."""

    def __init__(self, fate=lambda request: Fate(), *, world_size=1, step_s=10.0, update_s=0.0, sources=None, **given):
        names = ("evaluations", "evaluation_places", "silence_s", "states", "on_evaluation")
        extra = {name: given.pop(name) for name in names if name in given}
        self.transport, self.feed = MemoryTransport(world_size), MemoryFeed()
        self.policy = Servers(update_s=update_s)
        self.executor = ScriptedGroups(fate, self.policy)
        self.trainers = [Trainer(self.transport.receiver(rank), MemoryFeed(), step_s) for rank in range(world_size)]
        self.trainers[0].feed = self.feed
        self.steps = []
        self.times_s = []
        self.orchestrator = Orchestrator(
            sources or [source()],
            executor=self.executor,
            policy=self.policy,
            feed=self.feed,
            sender=self.transport,
            samples_of=samples_of_group,
            pack=partial(packed, world_size=world_size),
            settings=schedule(**given),
            on_step=self.on_step,
            **extra,
        )

    def on_step(self, step, metrics):
        self.steps.append((step, metrics))
        self.times_s.append(asyncio.get_running_loop().time())

    async def run(self, steps):
        trainers = [asyncio.create_task(trainer.run(steps)) for trainer in self.trainers]
        try:
            await self.orchestrator.run(steps)
            await asyncio.gather(*trainers)
        finally:
            for trainer in trainers:
                trainer.cancel()
            await asyncio.wait(trainers)
            assert asyncio.all_tasks() == {asyncio.current_task()}, "nothing is left running"


def trained(training, steps):
    virtually(training.run(steps))
    return training


def test_every_step_is_shipped_once_and_in_order():
    training = trained(Training(world_size=2), 6)
    assert [step for step, _ in training.steps] == list(range(6))
    for trainer in training.trainers:
        assert [step for step, _, _ in trainer.trained] == list(range(6))


def test_the_batch_is_a_batch_with_its_figures():
    training = trained(Training(sources=[source("a", weight=3), source("b")]), 4)
    _, metrics = training.steps[-1]
    assert metrics["batch/groups"] == metrics["batch/groups/a"] + metrics["batch/groups/b"] == 4
    assert metrics["batch/rollouts"] == 8
    assert metrics["reward/mean"] == metrics["reward/a"] == 0.5
    assert metrics["samples/trained"] == 8
    assert metrics["run/shipped"] == 16
    assert metrics["off_policy/max"] <= 8
    assert metrics["pool/a/normal"] == 20


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_orchestrator_is_never_further_ahead_of_the_trainer_than_it_may(level):
    """The trainer needs 100 s a step and rollouts 10: it would be left behind without a barrier."""
    training = Training(step_s=100.0, max_async_level=level)
    ahead = []
    training.orchestrator._on_step = lambda step, metrics: ahead.append(step - training.trainers[0].step)
    trained(training, 8)
    assert max(ahead) == level


def test_a_synchronous_run_trains_on_nothing_but_its_own_policy():
    training = trained(Training(max_async_level=0, max_off_policy_steps=0, update_s=3.0), 5)
    assert [metrics["off_policy/max"] for _, metrics in training.steps] == [0.0] * 5


def test_an_asynchronous_run_hides_the_trainer_behind_the_rollouts():
    """Rollouts of 30 s and steps of 30 s: one after the other takes 60 s a step, side by side 30."""
    one_by_one = trained(Training(lambda _: Fate(seconds=30), step_s=30, max_async_level=0, max_off_policy_steps=0), 10)
    side_by_side = trained(Training(lambda _: Fate(seconds=30), step_s=30, max_in_flight=8), 10)
    assert one_by_one.times_s[-1] - one_by_one.times_s[0] == pytest.approx(9 * 60)
    assert side_by_side.times_s[-1] - side_by_side.times_s[0] == pytest.approx(9 * 30, abs=1)


def test_rollouts_go_on_while_weights_are_exchanged():
    """Groups take longer than ten steps of the trainer, and are not cut off by new weights."""
    training = trained(Training(lambda _: Fate(seconds=35), step_s=10, groups_per_step=1, max_in_flight=8), 20)
    assert training.executor.cancelled == [id for id in training.executor.cancelled if int(id[6:]) > 70]
    assert max(metrics["off_policy/max"] for _, metrics in training.steps) >= 2


def test_servers_that_cannot_take_weights_now_are_given_newer_ones_later():
    training = Training(step_s=10.0)
    asked = []
    update = training.policy.update

    async def flaky(version, source):
        asked.append(version)
        if len(asked) < 4:
            raise UpdateError(UpdateReport(version, (), {"http://127.0.0.1:1/v1": "connection refused"}, 0.0))
        await update(version, source)

    training.policy.update = flaky
    trained(training, 6)
    assert asked[:4] == [1, 1, 1, 1]
    assert asked == sorted(asked)
    assert training.policy.version >= 4


def test_servers_that_never_take_weights_end_the_run():
    training = Training(step_s=10.0, max_outage_s=300.0)

    async def refuses(version, source):
        raise UpdateError(UpdateReport(version, (), {"http://127.0.0.1:1/v1": "wrong shape"}, 0.0))

    training.policy.update = refuses
    with pytest.raises(UpdateError, match="wrong shape"):
        trained(training, 100)


# Failures


def test_a_failure_that_concerns_every_group_leaves_nothing_running():
    with pytest.raises(SetupError, match="no such environment"):
        trained(Training(lambda request: Fate(raises=SetupError("no such environment"))), 3)


def test_a_run_without_progress_leaves_nothing_running():
    with pytest.raises(NoProgress):
        trained(Training(lambda request: Fate(rewards=(1.0, 1.0))), 3)


def test_samples_that_cannot_be_made_end_the_run():
    training = Training()
    training.orchestrator.scheduler._samples_of = lambda group: 1 / 0
    with pytest.raises(ZeroDivisionError):
        trained(training, 3)


def test_weights_newer_than_the_run_are_refused():
    training = Training()
    training.policy.version = 7
    with pytest.raises(ConfigError, match="weights of version 7, and the run is at step 0"):
        trained(training, 3)


def test_a_cancelled_run_leaves_nothing_running():
    training = Training(lambda request: Fate(seconds=1e6), group_timeout_s=None)

    async def body():
        run = asyncio.create_task(training.orchestrator.run(3))
        await asyncio.sleep(100)
        run.cancel()
        await asyncio.wait([run])
        assert run.cancelled()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    virtually(body())
    assert training.executor.running == training.policy.in_flight == 0
    assert training.orchestrator.scheduler.tally.ended["stopped"] == 8


def test_silence_is_explained(caplog):
    training = Training(lambda request: Fate(seconds=5000), group_timeout_s=None, silence_s=600)
    with caplog.at_level(logging.WARNING):
        trained(training, 1)
    assert training.orchestrator.watchdog.alarms == 8
    assert "nothing has happened for 600 s" in caplog.text
    assert "0 of 4 groups are ready" in caplog.text
    assert "rl_world.py:" in caplog.text


# Evaluations


def evaluated(**given):
    results = []
    held_out = source("held out", rows=6, tries=3, sampling={"temperature": 0.0})
    evaluation = Evaluation(held_out, every=given.pop("every", 2), at_start=given.pop("at_start", True))
    seconds = given.pop("seconds", 5.0)

    def fate(request):
        return Fate(seconds=seconds) if request.spec.env_id == "held out" else Fate()

    training = Training(fate, evaluations=[evaluation], on_evaluation=results.append, **given)
    return training, results


def test_evaluations_run_at_every_nth_version_the_last_one_included():
    training, results = evaluated(evaluation_places=6)
    trained(training, 6)
    assert [result.version for result in results] == [0, 2, 4, 6]
    assert all(len(result.records) == 18 for result in results)
    assert results[0].reward == pytest.approx(1 / 3)


def test_evaluations_do_not_hold_up_training():
    alone = trained(Training(), 6)
    training, _ = evaluated(seconds=500.0, every=6)
    trained(training, 6)
    assert training.times_s == alone.times_s


def test_evaluations_keep_to_their_places():
    training, _ = evaluated(evaluation_places=7)
    most = 0
    original = training.executor.run_group

    async def counting(request):
        nonlocal most
        held_out = [r for r in running if r.spec.env_id == "held out"]
        running.append(request)
        most = max(most, 3 * (len(held_out) + (request.spec.env_id == "held out")))
        try:
            return await original(request)
        finally:
            running.remove(request)

    running = []
    training.executor.run_group = counting
    trained(training, 4)
    assert most == 6


def test_an_evaluation_that_takes_too_long_is_not_started_twice():
    training, results = evaluated(seconds=100.0, every=1, evaluation_places=3)
    trained(training, 8)
    versions = [result.version for result in results]
    assert versions[0] == 0
    assert len(versions) == len(set(versions)) < 9
    assert training.orchestrator.evaluations.skipped > 0
    assert results[0].last_version > results[0].version


def test_tries_of_an_evaluation_have_the_same_seeds_at_every_version_and_no_stale_cache():
    training, _ = evaluated()
    trained(training, 4)
    asked = [request for request in training.executor.requests if request.spec.env_id == "held out"]
    assert len({request.seed for request in asked}) == 1
    assert {request.sampling["temperature"] for request in asked} == {0.0}
    assert {request.sampling["extra_body"]["cache_salt"] for request in asked} == {"0", "2", "4"}


def test_an_evaluation_that_fails_ends_the_run():
    def fate(request):
        return Fate(raises=SetupError("no such row") if request.spec.env_id == "held out" else None)

    training = Training(fate, evaluations=[Evaluation(source("held out"), every=1)])
    with pytest.raises(SetupError, match="no such row"):
        trained(training, 3)


def test_an_evaluation_waits_for_servers_that_are_away():
    training, results = evaluated(seconds=5.0)
    training.policy.is_up = False

    async def body():
        asyncio.get_running_loop().call_later(120, setattr, training.policy, "is_up", True)
        await training.run(2)

    virtually(body())
    assert [result.version for result in results] == [0, 2]
    assert len(results[0].records) == 18


def test_an_evaluation_with_more_tries_than_places_is_refused():
    with pytest.raises(ConfigError, match="there are 2 places"):
        evaluated(evaluation_places=2)
