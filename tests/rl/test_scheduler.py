"""Groups in flight: places, ends, ages, retries. Time is virtual, so none of it depends on the machine."""

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_world import Fate, ScriptedGroups, Servers, source
from rl_world import settings as schedule
from virtual_time import VirtualLoop, virtually

from verifiers.errors import ConfigError, SetupError
from verifiers.rl.curriculum import Curriculum
from verifiers.rl.pools import PoolSettings
from verifiers.rl.samples import samples_of_group
from verifiers.rl.schedule_settings import ScheduleSettings
from verifiers.rl.scheduler import NoProgress, Scheduler
from verifiers.rl.tally import End


class World:
    """A scheduler, and what it talks to."""

    def __init__(self, fate, sources=None, policy=None, **given):
        self.sources = sources or [source()]
        self.policy = policy or Servers()
        self.executor = ScriptedGroups(fate, self.policy)
        self.ends = []
        self.scheduler = Scheduler(
            self.sources,
            curriculum=Curriculum({one.name: one.share for one in self.sources}),
            executor=self.executor,
            policy=self.policy,
            samples_of=samples_of_group,
            settings=schedule(**given),
            on_group=lambda group, end: self.ends.append((group.group_id, end)),
        )

    async def batch(self):
        """Starts what there are places for, and waits until there is a batch."""
        self.scheduler.fill()
        while not self.scheduler.has_batch:
            self.scheduler.check()
            self.scheduler.changed.clear()
            await self.scheduler.changed.wait()
        return self.scheduler.take()

    async def batches(self, n):
        """So many, each with the weights that the batch before makes."""
        found = []
        for _ in range(n):
            found.append(await self.batch())
            self.policy.version = self.scheduler.step
            self.scheduler.sweep()
        return found


def assert_adds_up(scheduler, *, is_over=False):
    tally, waiting = scheduler.tally, len(scheduler.ready)
    assert tally.started == sum(tally.ended.values()) + len(scheduler.flights)
    assert tally.ended["kept"] == tally.shipped + tally.expired + waiting
    if is_over:
        assert len(scheduler.flights) == scheduler.flights.rollouts == 0


def run(world, what):
    async def body():
        try:
            return await what
        finally:
            await world.scheduler.close()
            assert_adds_up(world.scheduler, is_over=True)
            assert world.policy.in_flight == 0

    return virtually(body())


# Places


def test_as_soon_as_a_group_ends_another_one_starts():
    world = World(lambda request: Fate(seconds=100 if request.row["example_id"] == 0 else 10), max_in_flight=8)
    run(world, world.batches(6))
    # 6 batches of 4 at 4 places in parallel, less one that the slow one holds: nobody waited for it
    assert world.executor.most_running == 8


def test_no_more_rollouts_are_in_flight_than_there_are_places():
    sources = [source("two", tries=2), source("five", tries=5)]
    world = World(lambda request: Fate(seconds=1 + request.seed % 7), sources, max_in_flight=11)
    run(world, world.batches(20))
    assert 9 <= world.executor.most_running <= 11


def test_a_group_larger_than_all_places_runs_alone():
    world = World(lambda request: Fate(), [source(tries=9)], max_in_flight=4)
    run(world, world.batches(2))
    assert world.executor.most_running == 9


def test_nothing_starts_while_a_whole_batch_waits():
    world = World(lambda request: Fate(seconds=1), max_in_flight=8, groups_per_step=4)

    async def wait():
        world.scheduler.fill()
        await asyncio.sleep(1000)
        return len(world.executor.requests), len(world.scheduler.ready)

    # three of the first four made room for another one; the fourth made the batch whole
    assert run(world, wait()) == (7, 7)


def test_the_place_of_a_try_is_free_when_it_has_ended_where_tries_are_scored_one_by_one():
    """Of each group one try takes ten times as long: scored together, its sibling's place would stand idle."""

    def batches(together):
        world = World(
            lambda _: Fate(seconds=100, each_s=(10, 100)), [source(scored_together=together)], max_in_flight=8
        )

        async def timed():
            found = await world.batches(6)
            return asyncio.get_running_loop().time(), found

        seconds, found = run(world, timed())
        assert world.executor.most_running == 8
        return seconds, [[record.rollout_id for record in group.samples] for batch in found for group in batch]

    one_by_one, samples = batches(together=False)
    all_together, _ = batches(together=True)
    assert all_together == 600
    assert one_by_one == 420
    assert all(ids == [f"{ids[0][:-2]}/0", f"{ids[0][:-2]}/1"] for ids in samples), "in the order of the tries"


def test_tries_that_are_run_one_by_one_are_those_of_the_group():
    def asked(together):
        world = World(lambda _: Fate(), [source(scored_together=together, tries=3)], max_in_flight=12)
        run(world, world.batch())
        return {
            (request.group_id, request.seed, request.first_try + number)
            for request in world.executor.requests[: 4 if together else 12]
            for number in range(request.tries)
        }

    assert asked(True) == asked(False)


def test_a_try_that_cannot_be_run_ends_its_group_and_leaves_no_sibling_running():
    def fate(request):
        return Fate(each_s=(5, 500), raises=SetupError("no such row") if request.first_try == 0 else None)

    world = World(fate, [source(scored_together=False)])
    with pytest.raises(SetupError, match="no such row"):
        run(world, world.batch())
    assert world.executor.running == 0


def test_a_batch_holds_the_groups_of_the_oldest_policies_first():
    world = World(lambda request: Fate(seconds=31 if request.group_id == "group-0" else 10), max_in_flight=16)
    batches = run(world, world.batches(4))
    versions = [[group.version for group in batch] for batch in batches]
    assert all(row == sorted(row) for row in versions)
    assert 0 in versions[3]


def test_every_group_of_a_run_has_seeds_of_its_own_and_they_repeat_with_the_run():
    def seeds(seed):
        world = World(lambda request: Fate(), [source(rows=2)], seed=seed)
        run(world, world.batches(3))
        return [request.seed for request in world.executor.requests]

    assert len(set(seeds(1))) == len(seeds(1))
    assert seeds(1) == seeds(1) != seeds(2)


def test_the_policy_is_told_which_problem_it_is():
    world = World(lambda request: Fate(), [source(rows=1)])
    run(world, world.batch())
    assert set(world.policy.problems) == {"sums/0"}


# Ends


def test_a_group_in_which_all_earn_the_same_is_not_trained_on():
    world = World(lambda request: Fate(rewards=(0.3, 0.3) if request.row["example_id"] < 15 else (0.2, 0.3)))
    batch = run(world, world.batch())
    assert {group.draw.example_id for group in batch} <= set(range(15, 20))
    assert world.scheduler.tally.ended["trivial"] > 0


def test_a_rollout_without_a_reward_is_left_out_and_never_made_up():
    world = World(lambda request: Fate(rewards=(0.0, None, 1.0)), [source(tries=3)])
    (group, *_) = run(world, world.batch())
    assert group.rewards == [0.0, 1.0]
    assert len(group.samples) == 2
    assert group.tries == 3


def test_a_group_with_too_few_survivors_is_dropped_and_its_example_comes_again():
    failed = set()

    def fate(request):
        first = request.row["example_id"] not in failed
        failed.add(request.row["example_id"])
        return Fate(rewards=(1.0, None) if first else (0.0, 1.0), failure="ToolCallError", side="tool")

    world = World(fate, [source(rows=5)])
    batch = run(world, world.batch())
    assert len(batch) == 4
    assert world.scheduler.tally.ended["broken"] == world.scheduler.tally.returned == 5


def test_an_example_that_always_fails_is_set_aside():
    def fate(request):
        if request.row["example_id"] < 3:
            return Fate(rewards=(None,), failure="EnvironmentFault", side="environment")
        return Fate()

    world = World(fate, [source(rows=6, pools=PoolSettings(max_returns=1))], max_in_flight=4)
    run(world, world.batches(10))
    asked = Counter(request.row["example_id"] for request in world.executor.requests)
    assert [asked[n] for n in range(3)] == [2, 2, 2]
    assert world.scheduler.tally.set_aside == 3


def test_what_concerns_every_group_ends_the_run():
    world = World(lambda request: Fate(raises=SetupError("no such model")))
    with pytest.raises(SetupError, match="no such model"):
        run(world, world.batch())


def test_an_executor_that_loses_rollouts_is_found_out():
    world = World(lambda request: Fate())
    original = world.executor.run_group

    async def loses_one(request):
        return (await original(request))[:-1]

    world.executor.run_group = loses_one
    with pytest.raises(RuntimeError, match="1 records came back of 2 tries"):
        run(world, world.batch())


def test_an_executor_that_cancels_groups_itself_does_not_make_them_start_for_ever():
    world = World(lambda request: Fate(raises=asyncio.CancelledError()))
    with pytest.raises(RuntimeError, match="was cancelled by whoever ran it"):
        run(world, world.batch())


# Outages


def test_a_server_that_comes_back_after_minutes_costs_no_example():
    world = World(lambda request: Fate(seconds=1), [source(rows=8, pools=PoolSettings(max_returns=1))])
    world.policy.is_up = False

    async def later():
        asyncio.get_running_loop().call_later(300, setattr, world.policy, "is_up", True)
        return await world.batches(3)

    run(world, later())
    assert world.scheduler.tally.set_aside == 0
    # it was asked now and then, not all the time
    assert 3 <= world.scheduler.tally.ended["unlucky"] < 200


def test_failing_sandboxes_make_a_run_wait_not_burn_through_its_examples():
    is_down = True

    def fate(request):
        return Fate(seconds=1, rewards=(None,) if is_down else (0.0, 1.0), failure="SandboxError", side="sandbox")

    world = World(fate, [source(rows=100)])

    async def later():
        nonlocal is_down
        world.scheduler.fill()
        await asyncio.sleep(200)
        before = len(world.executor.requests)
        is_down = False
        batch = await world.batch()
        return before, batch

    before, batch = run(world, later())
    assert before < 200
    assert len(batch) == 4


def test_an_outage_that_does_not_end_ends_the_run():
    world = World(lambda request: Fate(seconds=1), max_outage_s=600.0)
    world.policy.is_up = False
    with pytest.raises(NoProgress, match="every group failed at a model server, a sandbox or a judge"):
        run(world, world.batch())


def test_one_example_that_fails_among_many_is_no_outage():
    def fate(request):
        return Fate(seconds=1, rewards=(None,) if request.row["example_id"] == 0 else (0.0, 1.0), side="sandbox")

    world = World(fate, [source(rows=6, pools=PoolSettings(max_returns=2))])
    run(world, world.batches(12))
    assert world.scheduler.tally.ended["unlucky"] == 3
    assert world.scheduler.tally.set_aside == 1


# No progress


def test_a_run_in_which_nothing_can_be_learnt_ends_with_its_counts():
    world = World(lambda request: Fate(rewards=(0.0, 0.0)), no_progress_batches=3)
    with pytest.raises(NoProgress, match=r"groups in a row gave nothing .* trivial.* hard"):
        run(world, world.batch())
    assert 12 <= world.scheduler.tally.ended["trivial"] < 12 + 8


def test_a_run_whose_problems_are_all_solved_ends():
    world = World(lambda request: Fate(rewards=(1.0, 1.0)), [source(rows=5)])
    with pytest.raises(NoProgress, match=r"no example is left to train on .* 5 retired"):
        run(world, world.batch())


# Ages


def test_nothing_is_shipped_that_is_older_than_allowed_and_none_is_lost():
    def fate(request):
        return Fate(seconds=200 if request.row["example_id"] % 5 == 0 else 10)

    world = World(fate, max_off_policy_steps=2, max_in_flight=32)
    batches = run(world, world.batches(30))
    ages = [step - group.version for step, batch in enumerate(batches) for group in batch]
    assert max(ages) <= 2
    assert world.scheduler.tally.ended["stale"] > 0
    assert world.executor.cancelled, "places are not held by what will not be trained on"


def test_the_time_in_the_queue_counts_too():
    """Seven of eight groups wait for a place in a batch of one; those that waited too long are let go."""
    world = World(lambda request: Fate(seconds=1), groups_per_step=1, max_in_flight=16, max_off_policy_steps=2)
    batches = run(world, world.batches(12))
    assert max(step - batch[0].version for step, batch in enumerate(batches)) <= 2
    assert world.scheduler.tally.expired > 0
    assert world.scheduler.tally.expired_tokens > 0


def test_no_group_starts_that_would_be_too_old_from_the_start():
    world = World(lambda request: Fate(seconds=1), max_off_policy_steps=0, max_async_level=0)

    async def wait():
        await world.batch()
        started = world.scheduler.tally.started
        await asyncio.sleep(100)
        assert world.scheduler.tally.started == started
        assert not world.scheduler.flights
        world.policy.version = 1
        world.scheduler.sweep()
        return await world.batch()

    batch = run(world, wait())
    assert {group.version for group in batch} == {1}


def test_a_cancelled_example_comes_back_but_not_at_once():
    def fate(request):
        slow = request.row["example_id"] == 0 and request.group_id in first
        return Fate(seconds=1e5 if slow else 10)

    first = {f"group-{n}" for n in range(30)}
    world = World(fate, [source(rows=12)], max_off_policy_steps=1, max_async_level=1)
    run(world, world.batches(25))
    groups = [int(r.group_id.removeprefix("group-")) for r in world.executor.requests if r.row["example_id"] == 0]
    assert len(groups) >= 2
    assert all(later - sooner > 1 for sooner, later in pairwise(groups))


# Limits


def test_a_group_that_never_ends_is_cancelled_at_its_limit_and_named(caplog):
    def fate(request):
        return Fate(seconds=1e9 if request.group_id == "group-1" else 10)

    world = World(fate, group_timeout_s=50.0)
    with caplog.at_level(logging.WARNING):
        run(world, world.batches(20))
    assert world.scheduler.tally.ended["stalled"] == 1
    assert "group-1 (example" in caplog.text
    assert "rl_world.py:" in caplog.text, "where it waits"


def test_a_group_that_ignores_its_cancellation_gives_its_place_away(caplog):
    def fate(request):
        stuck = request.group_id == "group-1"
        return Fate(seconds=1e9 if stuck else 10, ignores_cancel=stuck)

    world = World(fate, group_timeout_s=50.0, cancel_grace_s=5.0)

    async def body():
        await world.batches(20)
        await world.scheduler.close()

    with caplog.at_level(logging.ERROR):
        without_clean_up(body())
    assert world.scheduler.flights.abandoned == 1
    assert_adds_up(world.scheduler, is_over=True)
    assert "has not ended 5 s after it was cancelled" in caplog.text


def without_clean_up(body):
    """`virtually` would wait for what ignores its cancellation."""
    loop = VirtualLoop()
    loop.run_until_complete(body)
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # asyncio would tell of them, rightly
    loop.close()


# Laws


FATES = st.lists(
    st.builds(
        Fate,
        seconds=st.sampled_from([0.0, 1.0, 10.0, 55.0, 300.0]),
        rewards=st.sampled_from([(0.0, 1.0), (0.5, 0.5), (1.0, 1.0), (None, 1.0), (None, None)]),
        failure=st.sampled_from(["ModelUnavailableError", "ToolCallError"]),
        side=st.sampled_from(["model", "sandbox", "tool"]),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60)
@given(FATES, st.integers(1, 5), st.integers(2, 20), st.integers(1, 3), st.booleans())
def test_every_start_has_exactly_one_end_whatever_happens(fates, groups_per_step, max_in_flight, max_age, slow_trainer):
    def fate(request):
        return fates[int(request.group_id.removeprefix("group-")) % len(fates)]

    world = World(
        fate,
        [source("a", rows=9, tries=2, weight=2), source("b", rows=4, tries=3, scored_together=False)],
        groups_per_step=groups_per_step,
        max_in_flight=max_in_flight,
        max_off_policy_steps=max_age,
        group_timeout_s=100.0,
        no_progress_batches=20,
    )

    async def body():
        shipped = []
        for step in range(8):
            batch = await world.batch()
            shipped += [(step, group) for group in batch]
            assert_adds_up(world.scheduler)
            if not (slow_trainer and step % 2):
                world.policy.version = world.scheduler.step
            world.scheduler.sweep()
            assert_adds_up(world.scheduler)
        return shipped

    try:
        shipped = run(world, body())
    except NoProgress:
        return
    assert all(0 <= step - group.version <= max_age for step, group in shipped)
    numbers = [group.draw.number for _, group in shipped]
    assert len(numbers) == len(set(numbers)), "no group is shipped twice"
    ran_to_their_end = [id for id, _ in world.ends]
    assert len(ran_to_their_end) == len(set(ran_to_their_end))
    ended = Counter(end for _, end in world.ends)
    for end in (End.KEPT, End.TRIVIAL, End.BROKEN, End.UNLUCKY):
        assert ended[end] == world.scheduler.tally.ended[end.value]


@pytest.mark.parametrize(
    "given",
    [
        {"groups_per_step": 0},
        {"max_in_flight": 0},
        {"group_timeout_s": 0},
        {"max_off_policy_steps": -1},
        {"max_async_level": 9},
        {"no_progress_batches": 0},
        {"max_outage_s": -1},
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(given):
    with pytest.raises(ConfigError, match=next(iter(given))):
        ScheduleSettings(**{"groups_per_step": 1, "max_in_flight": 1, **given})


def test_two_environments_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="two environments are called 'sums'"):
        World(lambda request: Fate(), [source(), source()])


def test_rows_without_an_id_are_refused():
    with pytest.raises(ConfigError, match="example_id"):
        replace(source(), rows=[{"prompt": []}])
