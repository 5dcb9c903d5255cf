"""A run that was interrupted goes on where it was: nothing that was paid for is asked again."""

import asyncio
import json
from pathlib import Path

import pytest
from waiting import until

import verifiers as vf
from verifiers.recording import Origin
from verifiers.records import EnvInfo
from verifiers.results import ResultsStore, RunConfig, load_results, row_hashes
from verifiers.run import Run

INFO = EnvInfo(name="demo")


def rank(states):
    """A group reward that needs the answers, the author's own state and the rows."""
    found = []
    for state in states:
        assert state["mine"] == f"kept {state['answer']}" and state["input"]["extra"] == [state["answer"]]
        assert state["task"] == "ranking" and len(state["trajectory"]) == 1 and state["num"] == 7
        assert state["completion"] == state["trajectory"][0]["completion"] and state["info"] == {"k": 1}
        found.append(float(state["completion"][0]["content"]))
    return [score + 100 * len(found) for score in found]


class Env(vf.SingleTurnEnv):
    async def setup_state(self, state):
        state["mine"], state["num"] = f"kept {state['answer']}", 7


def env_of(count=3, funcs=(rank,)):
    dataset = [
        {"question": f"q{i}", "answer": str(i), "extra": [str(i)], "task": "ranking", "info": '{"k": 1}'}
        for i in range(count)
    ]
    return Env(dataset=dataset, rubric=vf.Rubric(list(funcs)))


def config_of(env, tries):
    return RunConfig(
        env_id="demo", env=INFO, model="m", row_hashes=row_hashes(env.train_rows()), rollouts_per_example=tries
    )


class Script:
    """Answers with the number of the request, until it was asked often enough; then it hangs."""

    def __init__(self, hangs_after=10**9):
        self.asked, self.hangs_after = 0, hangs_after

    async def __call__(self, request):
        self.asked += 1
        if self.hangs:
            await asyncio.sleep(250)
        return str(self.asked)

    @property
    def hangs(self):
        return self.asked > self.hangs_after


async def run_part(folder: Path, env, script, tries, stop_when=None):
    """A run, until its end; or until `stop_when()` is true, when it is stopped."""
    config = config_of(env, tries)
    is_there = (folder / "metadata.json").exists()
    with ResultsStore.resume(folder, config) if is_there else ResultsStore.create(folder, config) as store:
        run = Run(
            env, env.train_rows(), client=vf.ScriptedClient(script), model="m", rollouts_per_example=tries, store=store,
            max_concurrent=1 if script.hangs_after < 100 else -1, origin=Origin(env=INFO),
        )  # fmt: skip
        task = asyncio.create_task(run.execute())
        if stop_when is not None:
            await until(lambda: stop_when() or task.done())
            run.stop()
        records = await asyncio.wait_for(task, 100)
        store.finish({})
    return records


@pytest.mark.parametrize("interrupted_after", range(10))
async def test_exactly_the_missing_rollouts_are_run_and_groups_come_out_whole(tmp_path, interrupted_after):
    first, second = Script(interrupted_after), Script()
    await run_part(tmp_path, env_of(), first, 3, stop_when=lambda: first.hangs)
    records = await run_part(tmp_path, env_of(), second, 3)
    assert second.asked == 9 - interrupted_after
    assert [r.key for r in records] == [(e, i) for e in range(3) for i in range(3)]
    assert all(r.status == "scored" and r.reward > 300 for r in records)
    assert load_results(tmp_path) == records
    lines = (tmp_path / "results.jsonl").read_text().splitlines()
    assert len(lines) == len({(json.loads(x)["example_id"], json.loads(x)["rollout_index"]) for x in lines}) == 9
    assert json.loads((tmp_path / "metadata.json").read_text())["status"] == "done"
    assert not (tmp_path / "journal.jsonl").exists()


async def test_a_group_that_was_being_scored_is_scored_on_resume_without_a_model_call(tmp_path):
    scored = []

    async def endless(states):
        scored.append(states)
        await asyncio.sleep(250)

    await run_part(tmp_path, env_of(2, [endless]), Script(), 2, stop_when=lambda: len(scored) == 2)
    assert load_results(tmp_path) == []
    again = Script()
    records = await run_part(tmp_path, env_of(2), again, 2)
    assert again.asked == 0 and all(r.reward > 200 for r in records) and len(records) == 4


async def test_a_run_that_is_done_asks_nothing(tmp_path):
    await run_part(tmp_path, env_of(), Script(), 2)
    before = (tmp_path / "results.jsonl").read_bytes()
    again = Script()
    assert len(await run_part(tmp_path, env_of(), again, 2)) == 6
    assert again.asked == 0 and (tmp_path / "results.jsonl").read_bytes() == before


async def test_a_failed_rollout_is_run_again_on_resume_and_scored_with_its_group(tmp_path):
    def sometimes(request):
        sometimes.asked += 1
        return vf.ModelUnavailableError("down") if sometimes.asked == 2 else str(sometimes.asked)

    def size(completions, infos):
        return [float(len(completions)) for info in infos if info == {"k": 1}]

    sometimes.asked, sometimes.hangs_after = 0, 10**9
    records = await run_part(tmp_path, env_of(1, [size]), sometimes, 3)
    assert [(r.status, r.reward) for r in records] == [("scored", 2.0), ("failed", None), ("scored", 2.0)]
    again = Script()
    records = await run_part(tmp_path, env_of(1, [size]), again, 3)
    assert again.asked == 1 and [(r.status, r.reward) for r in records] == [
        ("scored", 2.0),
        ("scored", 3.0),
        ("scored", 2.0),
    ]


async def test_the_members_of_an_env_group_are_scored_on_resume_as_they_were(tmp_path):
    def group():
        return vf.EnvGroup([env_of(2), env_of(1)], env_names=["a", "b"])

    first, second = Script(4), Script()
    await run_part(tmp_path, group(), first, 3, stop_when=lambda: first.hangs)
    records = await run_part(tmp_path, group(), second, 3)
    assert second.asked == 5 and all(r.status == "scored" for r in records)
    assert [r.task for r in records] == ["a"] * 6 + ["b"] * 3


async def test_generate_saves_every_rollout_and_continues_its_folder(tmp_path):
    env = env_of(3)
    client = vf.ScriptedClient(Script())
    results = await env.evaluate(client, "m", rollouts_per_example=2, save_results=True, results_path=tmp_path / "run")
    assert results["metadata"]["path_to_save"] == tmp_path / "run"
    assert [r.reward for r in load_results(tmp_path / "run")] == results["reward"]
    assert (
        json.loads((tmp_path / "run" / "metadata.json").read_text())["avg_reward"] == results["metadata"]["avg_reward"]
    )
    again = await env.evaluate(client, "m", rollouts_per_example=2, save_results=True, results_path=tmp_path / "run")
    assert again["reward"] == results["reward"] and len(client.requests) == 6
