"""A run that was interrupted goes on as if it had not been: by ids, by counts, and whenever it was killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_world import Fate, Life, by_example, source

from verifiers.errors import ResultsError
from verifiers.rl.evaluation import Evaluation
from verifiers.rl.pools import PoolSettings
from verifiers.rl.state import RunState, StateFolder, decode_state, encode_state
from verifiers.rl.transports.files import steps_of


def test_twenty_steps_are_ten_and_ten_more(tmp_path):
    """By batches to the byte, and by draws: example ids, their order, and their seeds."""
    whole = Life(tmp_path / "whole").live(20)
    first = Life(tmp_path / "parts").live(10)
    second = Life(tmp_path / "parts").live(20)
    one = [encode_payload(batch) for batch in whole.trainer.payloads]
    other = [encode_payload(batch) for batch in first.trainer.payloads + second.trainer.payloads]
    assert other == one
    assert len({r.row["example_id"] for r in whole.executor.requests}) > 20
    assert whole.orchestrator.scheduler.curriculum.sizes() == second.orchestrator.scheduler.curriculum.sizes()
    assert whole.orchestrator.scheduler.tally.shipped == second.orchestrator.scheduler.tally.shipped == 80


def encode_payload(batch):
    """Without the figures, in which times and lags of one part of a run are."""
    return msgspec.msgpack.encode(msgspec.structs.replace(batch, metrics={}))


def test_what_was_drawn_and_not_trained_on_goes_first(tmp_path):
    first = Life(tmp_path)
    first.live(4)
    state = first.states.read()
    left = [draw.group_id for draw in state.schedule.drawn]
    assert left
    second = Life(tmp_path)
    second.live(8)
    asked = [request.group_id for request in second.executor.requests]
    assert asked[: len(left)] == left
    seed_of = {request.group_id: request.seed for request in first.executor.requests}
    for request in second.executor.requests[: len(left)]:
        assert request.seed == seed_of.get(request.group_id, request.seed), "the same rollout as before"


@settings(max_examples=12)
@given(st.lists(st.floats(1.0, 120.0), min_size=1, max_size=4), st.integers(0, 3))
def test_no_draw_is_lost_or_trained_on_twice_whenever_a_run_is_torn_down(tmp_path_factory, lives_s, seed):
    folder = tmp_path_factory.mktemp("run")

    def fate(request):
        return Fate(seconds=1 + request.seed % 40, rewards=(0.0, 1.0) if request.seed % 4 else (1.0, 1.0))

    sources = [source("a", rows=40, pools=PoolSettings(retire_from=None)), source("b", rows=10, tries=3)]
    lives = []
    for until_s in [*lives_s, None]:
        life = Life(folder, fate, sources=sources, step_s=7.0, seed=seed, max_off_policy_steps=3)
        life.live(8, until_s=until_s)
        lives.append(life)
    trained = [step for life in lives for step, _, _ in life.trainer.trained]
    assert sorted(set(trained)) == list(range(8))
    last = lives[-1].orchestrator.scheduler
    tally = last.tally
    assert tally.shipped == 8 * 4
    assert tally.started == sum(tally.ended.values())
    assert tally.ended["kept"] == tally.shipped + tally.expired + len(last.ready)
    # every number that was ever drawn has come to an end, or is known to be waiting
    drawn = last.curriculum.state().drawn
    ended = sum(n for end, n in tally.ended.items() if end != "stopped")
    assert drawn == ended + len(last.waiting)


def test_finished_groups_that_were_not_shipped_are_not_rolled_out_again(tmp_path):
    life = Life(tmp_path, lambda request: Fate(seconds=1 + 9 * (request.seed % 3)), groups_per_step=3)
    life.live(3)
    states = [life.states.read(step) for step in life.states.steps()]
    kept = {group.draw.group_id for state in states[-1:] for group in state.schedule.ready}
    again = Life(tmp_path, lambda request: Fate(seconds=1 + 9 * (request.seed % 3)), groups_per_step=3)
    again.live(6)
    assert not kept & {request.group_id for request in again.executor.requests}


def test_a_batch_that_was_saved_and_not_sent_is_sent(tmp_path):
    life = Life(tmp_path)

    async def dies(step, payloads):
        raise OSError("killed")

    life.orchestrator._sender.send = dies
    with pytest.raises(OSError, match="killed"):
        life.live(3)
    again = Life(tmp_path).live(3)
    assert [step for step, _, _ in again.trainer.trained] == [0, 1, 2]
    assert again.orchestrator.scheduler.tally.shipped == 12


def test_nothing_is_sent_that_no_saved_state_knows_of(tmp_path):
    """A process that dies between the two would train the same groups again in its next life."""
    life = Life(tmp_path)
    write = life.states.write

    def dies(step, data):
        if step == 3:
            raise OSError("killed")
        write(step, data)

    life.states.write = dies
    with pytest.raises(OSError, match="killed"):
        life.live(6)
    assert life.states.steps() == [1, 2]
    assert 2 not in steps_of(tmp_path / "batches")
    again = Life(tmp_path).live(6)
    assert again.trainer.step == 6
    assert again.orchestrator.scheduler.tally.shipped == 24


def test_a_trainer_that_goes_on_from_an_older_checkpoint_takes_the_state_of_its_step(tmp_path):
    life = Life(tmp_path)
    life.live(8)
    assert life.states.read(5).step == 5
    with pytest.raises(ResultsError, match=r"no state of step 20 \(there are: 1, 2, 3"):
        life.states.read(20)


def test_evaluations_that_were_cut_off_are_done_again_and_others_are_not(tmp_path):
    held_out = Evaluation(source("held out", rows=2), every=4)

    def fate(request):
        return Fate(seconds=1) if request.spec.env_id == "held out" else by_example(request)

    first = Life(tmp_path, fate, evaluations=[held_out]).live(6)
    second = Life(tmp_path, fate, evaluations=[held_out]).live(9)
    assert [result.version for result in first.results] == [0, 4]
    assert [result.version for result in second.results] == [8]


# Files


def state_of(tmp_path):
    life = Life(tmp_path)
    life.live(2)
    return life.states.read()


def test_a_state_is_the_same_after_it_was_saved(tmp_path):
    state = state_of(tmp_path)
    assert decode_state(encode_state(state)) == state


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: d[:40] + b"x" + d[41:], lambda d: b"", lambda d: b"{}"])
def test_a_damaged_state_is_refused_and_the_others_are_named(tmp_path, damage):
    state = state_of(tmp_path)
    path = tmp_path / "state" / f"step_{state.step:08}.state"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ResultsError, match="Other steps with a state: 1"):
        StateFolder(tmp_path / "state").read()


def test_a_state_of_a_newer_schema_is_refused(tmp_path):
    newer = msgspec.structs.replace(state_of(tmp_path), schema_version=2)
    with pytest.raises(ValueError, match="schema version 2; this library reads up to 1"):
        decode_state(encode_state(newer))


def test_a_state_of_today_is_read_where_fields_with_a_default_are_missing(tmp_path):
    state = state_of(tmp_path)
    plain = msgspec.to_builtins(state, builtin_types=(bytes,))
    del plain["evaluations"]
    assert msgspec.convert(plain, RunState).evaluations == {}


def test_old_states_are_let_go(tmp_path):
    states = StateFolder(tmp_path, keep=2)
    for step in range(5):
        states.write(step, b"")
    assert states.steps() == [3, 4]


PROGRAM = """
import sys
from pathlib import Path
from verifiers.rl.state import StateFolder
states, step = StateFolder(Path(sys.argv[1]), keep=3), 0
while True:
    states.write(step, step.to_bytes(4, "big") * 300_000)
    step += 1
"""


def test_killed_at_any_moment_a_writer_leaves_whole_files(tmp_path):
    for _ in range(8):
        writer = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)])
        deadline = time.monotonic() + 60
        while not StateFolder(tmp_path).steps() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.02)
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        steps = StateFolder(tmp_path).steps()
        assert steps
        for step in steps:
            data = (tmp_path / f"step_{step:08}.state").read_bytes()
            assert data == step.to_bytes(4, "big") * 300_000


RUN = """
import asyncio, sys
from pathlib import Path
from rl_world import Fate, Life
def fate(request):
    return Fate(seconds=0.001 * (request.seed % 30), rewards=(1.0, 1.0) if request.seed % 12 == 0 else (0.0, 1.0))
asyncio.run(Life(Path(sys.argv[1]), fate, step_s=0.02).run(int(sys.argv[2])))
"""


def test_a_whole_run_that_is_killed_again_and_again_trains_every_step_once(tmp_path):
    trained = tmp_path / "trained"
    command = [sys.executable, "-c", RUN, str(tmp_path), "40"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    for life in range(4):
        run = subprocess.Popen(command, env=environment)
        wanted, deadline = 7 * (life + 1), time.monotonic() + 120
        while not trained.exists() or len(trained.read_text().split()) < wanted:
            assert run.poll() is None, "it ended by itself"
            assert time.monotonic() < deadline
            time.sleep(0.003 + 0.002 * life)
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
    subprocess.run(command, env=environment, check=True, timeout=120)
    assert trained.read_text().split() == [str(step) for step in range(40)]
    tally = StateFolder(tmp_path / "state").read().schedule.tally
    assert tally.shipped == 160
    assert tally.started == sum(tally.ended.values())
