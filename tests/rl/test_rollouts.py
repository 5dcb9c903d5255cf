"""`EnvRollouts`: rows found by their prompts, and rollouts in the order that a trainer asked for."""

import pytest

import verifiers as vf
from verifiers.errors import ConfigError, ModelNotFoundError
from verifiers.rl.rollouts import EnvRollouts

ROWS = [{"question": "abc", "answer": "cba"}, {"question": "de", "answer": "ed"}]


def exact(completion, answer):
    return float(completion[-1]["content"] == answer)


def rollouts(*rewards, **given):
    return EnvRollouts(vf.SingleTurnEnv(dataset=ROWS, rubric=vf.Rubric(list(rewards or [exact]))), **given)


async def test_records_are_in_the_order_of_the_rows_that_were_asked_for():
    made = rollouts()
    first, second = made.rows
    client = vf.ScriptedClient(lambda request: request.messages[-1]["content"][::-1])
    records = await made.run([second, first, second], client)
    assert [(record.example_id, record.rollout_index) for record in records] == [(1, 0), (0, 0), (1, 1)]
    assert [record.messages[-1]["content"] for record in records] == ["ed", "cba", "ed"]
    assert [record.reward for record in records] == [1.0, 1.0, 1.0]


async def test_tries_of_a_row_are_one_group_wherever_they_stand():
    def how_many(completions):
        return [float(len(completions))] * len(completions)

    made = rollouts(how_many)
    first, second = made.rows
    records = await made.run([first, second, first, first], vf.ScriptedClient("a"))
    assert [record.reward for record in records] == [3.0, 1.0, 3.0, 3.0]


async def test_no_two_runs_sample_by_the_same_seeds():
    made = rollouts()
    runs = [await made.run([made.rows[0]] * 2, vf.ScriptedClient("a")) for _ in range(2)]
    assert len({record.seed for records in runs for record in records}) == 4


async def test_a_failed_rollout_keeps_its_place():
    said = iter(["cba", vf.ToolError("gone"), "cba"])
    made = rollouts(max_retries=0, max_concurrent=1)
    records = await made.run([made.rows[0]] * 3, vf.ScriptedClient(lambda request: next(said)))
    assert [record.reward for record in records] == [1.0, None, 1.0]
    assert records[1].status == "failed"


async def test_what_concerns_every_rollout_is_raised():
    made = rollouts()
    with pytest.raises(ModelNotFoundError):
        await made.run(made.rows, vf.ScriptedClient(ModelNotFoundError("no model 'm'")))


def test_a_prompt_is_found_though_a_table_added_empty_fields():
    made = rollouts()
    assert made.row_of([{"role": "user", "content": "de", "tool_calls": None}]) is made.rows[1]
    with pytest.raises(ConfigError, match="has no row with the prompt"):
        made.row_of("de")


def test_the_dataset_is_the_prompts():
    made = rollouts()
    assert [made.row_of(row["prompt"])["example_id"] for row in made.dataset()] == [0, 1]


def test_an_environment_is_loaded_by_its_id_and_records_say_which_it_was(tmp_path, monkeypatch):
    (tmp_path / "tiny_words.py").write_text(
        "import verifiers as vf\n"
        "def load_environment(count):\n"
        "    rows = [{'question': f'{n}?', 'answer': ''} for n in range(count)]\n"
        "    return vf.SingleTurnEnv(dataset=rows, eval_dataset=rows[:2], rubric=vf.Rubric([len]))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    made = EnvRollouts("tiny-words", env_args={"count": 5}, n=4)
    assert (len(made.rows), made.origin.env.name) == (4, "tiny-words")
    assert made.origin.args_hash is not None
    assert len(EnvRollouts("tiny-words", env_args={"count": 5}, split="eval").rows) == 2
