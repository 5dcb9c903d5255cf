"""Dataset rows: what an author hands over becomes prompts, or one error that says what to change."""

import copy
import logging

import pytest
from datasets import Dataset, DatasetDict

import verifiers as vf
from verifiers.dataset import decoded_info, own_copy
from verifiers.types import AssistantMessage, SystemMessage, UserMessage

ROWS = [{"question": f"{i}+1?", "answer": str(i + 1)} for i in range(5)]


def env_of(dataset=None, **options) -> vf.SingleTurnEnv:
    return vf.SingleTurnEnv(dataset=dataset if dataset is not None or "eval_dataset" in options else ROWS, **options)


def first(dataset, **options) -> dict:
    return env_of(dataset, **options).train_rows()[0]


@pytest.mark.parametrize(
    "dataset", [ROWS, tuple(ROWS), Dataset.from_list(ROWS), lambda: ROWS, lambda: Dataset.from_list(ROWS)],
    ids=["list", "tuple", "Dataset", "builder of a list", "builder of a Dataset"],
)  # fmt: skip
def test_every_kind_of_source_gives_the_same_rows(dataset):
    rows = env_of(dataset).train_rows()
    assert rows == [
        {**row, "prompt": [UserMessage(row["question"])], "example_id": i, "task": "default"}
        for i, row in enumerate(ROWS)
    ]


def test_a_builder_is_called_on_first_use_and_once():
    calls = []

    def build():
        calls.append(1)
        return ROWS

    env = env_of(build)
    assert calls == []
    assert len(env.train_rows()) == len(env.get_dataset()) == len(env.eval_rows()) == 5
    assert calls == [1]


# --- prompts


def test_a_prompt_is_system_then_examples_then_question():
    shots = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
    row = first(ROWS, system_prompt="Add.", few_shot=shots)
    assert row["prompt"] == [SystemMessage("Add."), UserMessage("1+1?"), AssistantMessage("2"), UserMessage("0+1?")]


def test_a_system_prompt_goes_before_a_prompt_unless_it_has_one():
    plain = [{"prompt": [{"role": "user", "content": "q"}]}]
    own = [{"prompt": [{"role": "system", "content": "own"}, {"role": "user", "content": "q"}]}]
    assert first(plain, system_prompt="S")["prompt"] == [SystemMessage("S"), UserMessage("q")]
    assert first(own, system_prompt="S")["prompt"] == [SystemMessage("own"), UserMessage("q")]


def test_few_shot_beside_prompts_is_ignored_and_said(caplog):
    with caplog.at_level(logging.WARNING):
        row = first([{"prompt": [{"role": "user", "content": "q"}]}], few_shot=[{"role": "user", "content": "shot"}])
    assert row["prompt"] == [UserMessage("q")]
    assert "few_shot is ignored" in caplog.text


def test_a_text_prompt_is_the_users_message_in_chat_and_the_text_for_completion():
    rows = [{"prompt": "Once upon"}]
    assert first(rows)["prompt"] == [UserMessage("Once upon")]
    assert first(rows, system_prompt="S")["prompt"] == [SystemMessage("S"), UserMessage("Once upon")]
    assert first(rows, message_type="completion")["prompt"][0].content == "Once upon"
    text = first([{"question": "Q?"}], message_type="completion", system_prompt="S ")["prompt"][0].content
    assert text == "S Q?"


# --- example_id, task, info


def test_missing_ids_are_row_numbers_and_ints_are_kept():
    assert [r["example_id"] for r in env_of(ROWS).train_rows()] == [0, 1, 2, 3, 4]
    assert [r["example_id"] for r in env_of([{"question": "a", "example_id": 7}]).train_rows()] == [7]


@pytest.mark.parametrize("given", ["gsm-7", 7.0, True])
def test_an_id_that_is_no_int_becomes_src_id(given):
    row = first([{"question": "a", "example_id": given}])
    assert row["example_id"] == 0 and row["src_id"] == given


def test_task_defaults_to_the_environments_id():
    assert first(ROWS, env_id="adder")["task"] == "adder"
    assert first([{"question": "a", "task": "mine"}])["task"] == "mine"


def test_info_may_be_json_text():
    assert decoded_info('{"a": [1]}') == {"a": [1]}
    assert decoded_info({"a": 1}) == {"a": 1}
    assert decoded_info(None) == decoded_info("") == {}
    with pytest.raises(vf.DatasetError, match="'info' is text but no JSON"):
        decoded_info("{a: 1}")


async def test_one_row_with_broken_info_fails_alone():
    env = env_of([{"question": "a", "info": "{broken"}, {"question": "b", "info": '{"k": 1}'}],
                 rubric=vf.Rubric(funcs=[lambda info: info["k"]]))  # fmt: skip
    bad, good = (await env.generate(env.train_rows(), vf.ScriptedClient("x"), "m"))["outputs"]
    assert bad["reward"] is None and bad["error"]["side"] == "environment" and "no JSON" in bad["error"]["message"]
    assert good["reward"] == 1.0 and good["info"] == {"k": 1}


# --- splits, order


def test_get_dataset_is_an_arrow_dataset_of_prompts():
    dataset = env_of(ROWS, system_prompt="S").get_dataset(n=2)
    assert isinstance(dataset, Dataset) and len(dataset) == 2
    assert dataset[0]["prompt"][0]["content"] == "S" and dataset[0]["answer"] == "1"
    assert len(env_of(ROWS).get_dataset(n=99)) == 5


@pytest.mark.parametrize("source", [ROWS, Dataset.from_list(ROWS)], ids=["list", "Dataset"])
def test_a_seed_reorders_for_good_and_every_row_keeps_its_id(source):
    env, again = env_of(source), env_of(source)
    shuffled = env.get_dataset(seed=3)
    order = shuffled["example_id"][:]
    assert sorted(order) == list(range(5)) != list(order)
    assert all(answer == str(i + 1) for i, answer in zip(order, shuffled["answer"], strict=True))
    assert env.get_dataset(n=2)["example_id"][:] == order[:2]
    assert [row["example_id"] for row in env.train_rows()] == list(order)
    assert again.get_dataset(seed=3)["example_id"][:] == order
    assert [row["example_id"] for row in again.train_rows(seed=1)] != list(order)


def test_eval_falls_back_to_train_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        dataset = env_of(ROWS).get_eval_dataset()
    assert len(dataset) == 5 and "no eval_dataset" in caplog.text
    caplog.clear()
    both = env_of(ROWS, eval_dataset=ROWS[:2])
    assert len(both.get_eval_dataset()) == 2 and len(both.eval_rows()) == 2 and caplog.text == ""


def test_an_environment_without_any_rows_is_refused():
    with pytest.raises(ValueError, match="needs a dataset or an eval_dataset"):
        vf.SingleTurnEnv()


def streaming():
    return Dataset.from_list(ROWS).to_iterable_dataset()


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        ([], "the dataset is empty"),
        (Dataset.from_list([]), "the dataset is empty"),
        ([{"text": "a"}], r"needs a column 'question' \(text\) or 'prompt' \(messages\); it has \['text'\]"),
        (Dataset.from_list([{"text": "a"}]), "needs a column 'question'"),
        (["a"], "a row is a dict with 'question' or 'prompt', got str"),
        ([{"question": 3}], "row 0: 'question' must be text, it is a int"),
        ([{"question": None}], "row 0: 'question' must be text, it is missing"),
        ([{"prompt": [1]}], "row 0: 'prompt' is no list of messages"),
        ([{"prompt": [{"content": "no role"}]}], "needs a 'role'"),
        ([{"prompt": 3}], "row 0: 'prompt' is no list of messages"),
        (DatasetDict(train=Dataset.from_list(ROWS)), r"DatasetDict with splits \['train'\]: pass one of them"),
        ({"question": ["a"]}, r"got a dict with \['question'\]"),
        ("gsm8k", "got str"),
        (7, "got int"),
        (streaming(), "a streaming dataset has no length"),
    ],
)
def test_what_is_no_dataset_gets_one_clear_error(dataset, says):
    with pytest.raises(vf.DatasetError, match=says):
        env_of(dataset)
    with pytest.raises(vf.DatasetError, match=says):
        env_of(lambda: dataset).train_rows()


def test_a_later_row_that_is_wrong_is_named():
    with pytest.raises(vf.DatasetError, match="row 1: a row is a dict, got str"):
        env_of([{"question": "a"}, "b"]).train_rows()
    with pytest.raises(vf.DatasetError, match="row 1: 'question' must be text"):
        env_of([{"question": "a"}, {"prompt": None}]).train_rows()


# --- isolation


async def test_rollouts_never_see_each_others_changes():
    class Scribbler(vf.SingleTurnEnv):
        async def setup_state(self, state):
            assert state["info"] == {"seen": []} and len(state["prompt"]) == 1
            state["info"]["seen"].append(1)
            state["prompt"].append(UserMessage("more"))
            state["input"]["deep"][0]["x"] = 1
            return state

    env = Scribbler(dataset=[{"question": "a", "info": {"seen": []}, "deep": [{"x": 0}]}])
    results = await env.evaluate(vf.ScriptedClient("x"), "m", rollouts_per_example=3)
    assert [o["error"] for o in results["outputs"]] == [None] * 3
    assert env.train_rows()[0]["info"] == {"seen": []} and env.train_rows()[0]["deep"] == [{"x": 0}]


def test_an_own_copy_is_equal_and_deep():
    value = {
        "m": [AssistantMessage("x", tool_calls=[{"id": "1", "name": "f", "arguments": "{}"}])],
        "t": ({"a": [1]},),
        "s": {1},
    }
    made = own_copy(value)
    assert made == value and type(made["m"][0]) is AssistantMessage
    made["m"][0].tool_calls[0]["function"]["name"] = "g"
    made["t"][0]["a"].append(2)
    assert value == copy.deepcopy(value) and value["m"][0].tool_calls[0].name == "f" and value["t"][0]["a"] == [1]
