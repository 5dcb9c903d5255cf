"""Stop conditions, clean-up and teardown: found by their mark, in order, once, whatever happens."""

import asyncio
import logging
import time

import pytest
from waiting import until

import verifiers as vf
from verifiers.decorators import marked

ROWS = [{"question": "q"}]


async def roll(env, client=None):
    return await env.rollout(env.train_rows()[0], client or vf.ScriptedClient("x"), "m")


class Quiet(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        return "go on"


class Ordered(Quiet):
    @vf.stop
    async def b_plain(self, state):
        return self.asked(state, "b_plain")

    @vf.stop()
    def a_called_and_sync(self, state, **kwargs):
        return self.asked(state, "a_called_and_sync")

    @vf.stop(priority=5)
    async def late_name_high_priority(self, state):
        return self.asked(state, "late_name_high_priority")

    @vf.stop(priority=-1)
    async def a_low(self, state):
        return self.asked(state, "a_low")

    def asked(self, state, name):
        state.setdefault("asked", []).append(name)
        return bool(state["trajectory"]) and name == "a_low"


async def test_stop_conditions_are_asked_by_priority_then_name():
    state = await roll(Ordered(dataset=ROWS))
    assert state["asked"][:4] == ["late_name_high_priority", "a_called_and_sync", "b_plain", "a_low"]
    assert state["stop_condition"] == "a_low" and state["is_completed"] is True


async def test_the_first_true_condition_is_the_reason():
    class Both(Quiet):
        @vf.stop(priority=1)
        async def z_important(self, state):
            return bool(state["trajectory"])

        @vf.stop
        async def a_other(self, state):
            assert not state["trajectory"], "asked although another one has answered"

    assert (await roll(Both(dataset=ROWS)))["stop_condition"] == "z_important"


async def test_an_inherited_condition_holds_and_an_override_without_mark_is_none():
    class Child(Ordered):
        pass

    class Silenced(Ordered):
        async def late_name_high_priority(self, state):
            raise AssertionError("no stop condition any more")

    assert (await roll(Child(dataset=ROWS)))["stop_condition"] == "a_low"
    assert "late_name_high_priority" not in (await roll(Silenced(dataset=ROWS)))["asked"]


def test_marks_are_found_without_running_properties():
    class Lazy(Quiet):
        @property
        def expensive(self):
            raise AssertionError("a search for marks must not run author code")

    assert "max_turns_reached" in [m.__name__ for m in marked(Lazy(dataset=ROWS), "stop")]


# --- clean-up


class Cleaned(Quiet):
    log: list

    def __init__(self, **kwargs):
        super().__init__(dataset=ROWS, max_turns=2, **kwargs)
        self.log = []

    @vf.cleanup(priority=1)
    async def first(self, state):
        self.log.append(("first", state["completion"] is not None))

    @vf.cleanup
    def second(self, state):
        self.log.append(("second", state["completion"] is not None))


async def test_cleanup_runs_once_in_order_after_the_completion_is_there():
    env = Cleaned()
    await roll(env)
    assert env.log == [("first", True), ("second", True)]


@pytest.mark.parametrize("where", ["model", "setup", "answer", "stop", "render"])
async def test_cleanup_runs_once_when_something_raises(where):
    def fail(here):
        if here == where:
            raise KeyError("broken " + here)

    class Failing(Cleaned):
        async def setup_state(self, state):
            fail("setup")

        async def env_response(self, messages, state, **kwargs):
            fail("answer")
            return "more"

        @vf.stop
        async def broken(self, state):
            fail("stop")

        async def render_completion(self, state):
            fail("render")
            await super().render_completion(state)

    env = Failing()
    state = await roll(env, vf.ScriptedClient(lambda request: fail("model") or "x"))
    assert [name for name, _ in env.log] == ["first", "second"]
    assert isinstance(state["error"], vf.EnvironmentFault) and f"broken {where}" in str(state["error"])
    assert state["is_completed"] is True


async def test_a_cleanup_that_fails_does_not_keep_the_next_from_running(caplog):
    class Failing(Cleaned):
        @vf.cleanup(priority=2)
        async def zeroth(self, state):
            raise RuntimeError("cannot close")

    env = Failing()
    with caplog.at_level(logging.WARNING):
        state = await roll(env)
    assert [name for name, _ in env.log] == ["first", "second"] and state["error"] is None
    assert "clean-up zeroth failed: RuntimeError: cannot close" in caplog.text


class SlowToClean(Cleaned):
    cancelled_cleanup_s = 60.0
    takes_s = 0.05

    @vf.cleanup(priority=2)
    async def zeroth(self, state):
        await asyncio.sleep(self.takes_s)
        self.log.append(("zeroth", True))


async def cancelled_in_a_model_call(env):
    client = vf.ScriptedClient("x", delay_s=250)
    task = asyncio.create_task(roll(env, client))
    await until(lambda: client.requests, by=task)
    task.cancel()
    return task


async def test_a_cancelled_rollout_is_cleaned_up_and_the_cancel_passes_through():
    env = SlowToClean()
    task = await cancelled_in_a_model_call(env)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [name for name, _ in env.log] == ["zeroth", "first", "second"]


async def test_a_second_cancel_does_not_break_off_the_cleanup():
    env = SlowToClean()
    task = await cancelled_in_a_model_call(env)
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [name for name, _ in env.log] == ["zeroth", "first", "second"]


async def test_a_cleanup_that_hangs_after_a_cancel_is_given_up(caplog):
    class Hanging(SlowToClean):
        takes_s = 250
        cancelled_cleanup_s = 0.2

    env, began = Hanging(), time.monotonic()
    task = await cancelled_in_a_model_call(env)
    with caplog.at_level(logging.WARNING), pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 100 and "took longer than 0.2 s" in caplog.text


async def test_a_long_cleanup_of_an_ordinary_rollout_is_waited_for():
    class Long(SlowToClean):
        takes_s = 0.4
        cancelled_cleanup_s = 0.2

    env = Long()
    await roll(env)
    assert len(env.log) == 3


# --- teardown


async def test_teardown_runs_once_by_priority_whatever_one_raises(caplog):
    log = []

    class Torn(Quiet):
        @vf.teardown
        def z_sync(self):
            log.append("z_sync")

        @vf.teardown(priority=1)
        async def a_raises(self):
            log.append("a_raises")
            raise RuntimeError("gone")

    class Holding(vf.Rubric):
        async def teardown(self):
            log.append("rubric")

    env = Torn(dataset=ROWS, rubric=Holding())
    await env.teardown()
    await env.teardown()
    assert log == ["a_raises", "z_sync", "rubric"]
    assert "teardown a_raises failed" in caplog.text
