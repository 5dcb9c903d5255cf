"""`ReasoningGymEnv` over the real datasets and scorers of Reasoning Gym."""

import importlib.util

import pytest

import verifiers as vf

if importlib.util.find_spec("reasoning_gym") is None:
    pytest.skip("needs the package 'reasoning-gym' (the extra reasoning-gym)", allow_module_level=True)


def outputs(env, say, n=5):
    """Rolls out evaluation rows; `say` gives the reply to a row."""
    rows = env.eval_rows(n)
    replies = {row["prompt"][-1]["content"]: say(row) for row in rows}
    client = vf.ScriptedClient(lambda request: replies[request.messages[-1]["content"]])
    return env.generate_sync(rows, client, "m")["outputs"]


def rewards(env, say, n=5):
    return [output["reward"] for output in outputs(env, say, n)]


def right(row):
    return f"Let me see … <answer>{row['answer']}</answer>"


@pytest.mark.parametrize("gym", ["arc_1d", "leg_counting", "prime_factorization", "countdown"])
def test_the_reference_answer_scores_full(gym):
    assert rewards(vf.ReasoningGymEnv(gym, 5, 5), right) == [1.0] * 5


@pytest.mark.parametrize(
    "reply",
    ["", "<answer></answer>", "<answer>  </answer>", "I cannot tell", "<answer>None</answer>", "<answer>-1</answer>"],
)
def test_a_wrong_or_missing_answer_scores_nothing(reply):
    assert rewards(vf.ReasoningGymEnv("leg_counting", 5, 5), lambda row: reply) == [0.0] * 5


def test_the_datasets_own_scorer_accepts_another_right_answer():
    env = vf.ReasoningGymEnv("prime_factorization", 5, 5)
    turned = [" × ".join(reversed(row["answer"].split(" × "))) for row in env.eval_rows()]
    assert turned != [row["answer"] for row in env.eval_rows()]
    assert rewards(env, lambda row: right({"answer": " × ".join(reversed(row["answer"].split(" × ")))})) == [1.0] * 5


def test_an_answer_that_the_scorer_stumbles_over_is_wrong_with_a_reason_and_no_fault():
    env = vf.ReasoningGymEnv("prime_factorization", 1, 1)
    with pytest.raises(ValueError):
        env.rg_dataset.score_answer("a lot", env.rg_dataset[1])
    (output,) = outputs(env, lambda row: "<answer>a lot</answer>", 1)
    assert output["reward"] == 0.0
    assert output["error"] is None


def test_a_scorer_that_fails_its_own_answer_is_a_fault_and_no_score(monkeypatch):
    env = vf.ReasoningGymEnv("leg_counting", 1, 1)
    monkeypatch.setattr(type(env.rg_dataset), "score_answer", lambda self, answer, entry: 1 / 0)
    assert rewards(env, right, 1) == [None]


def test_the_same_seed_gives_the_same_tasks_and_another_one_others():
    questions = [
        [row["question"] for row in vf.ReasoningGymEnv("leg_counting", 5, seed=s).train_rows()] for s in (1, 1, 2)
    ]
    assert questions[0] == questions[1]
    assert questions[0] != questions[2]


def test_training_and_evaluation_tasks_differ():
    env = vf.ReasoningGymEnv("leg_counting", 20, 10)
    train, evaluation = ({row["question"] for row in rows} for rows in (env.train_rows(), env.eval_rows()))
    assert (len(train), len(evaluation)) == (20, 10)
    assert not train & evaluation


def test_a_row_is_asked_with_the_answers_form_in_the_system_prompt():
    row = vf.ReasoningGymEnv("leg_counting", 1, 1).train_rows()[0]
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]
    assert "<answer>" in row["prompt"][0]["content"]
    assert row["answer"].isdigit()


def test_several_datasets_are_mixed_and_each_is_scored_by_its_own():
    env = vf.ReasoningGymEnv(["leg_counting", "prime_factorization"], 20, 20)
    assert {row["info"]["dataset"] for row in env.eval_rows()} == {"leg_counting", "prime_factorization"}
    assert rewards(env, right, 20) == [1.0] * 20


def test_a_mixture_takes_weights_and_settings():
    parts = [
        {"name": "chain_sum", "weight": 0.001},
        {"name": "leg_counting", "config": {"min_animals": 2, "max_animals": 2}},
    ]
    rows = vf.ReasoningGymEnv(parts, 30).train_rows()
    assert [row["info"]["dataset"] for row in rows].count("leg_counting") >= 28


@pytest.mark.parametrize(
    ("gym", "why"),
    [
        ("leg_countin", "no dataset 'leg_countin'.*leg_counting"),
        ([], "at least one dataset"),
        ([{"name": "leg_counting", "wieght": 1}], "has no 'wieght'"),
        ([{"name": "leg_counting", "config": {"legs": 1}}], "Reasoning Gym refuses.*legs"),
        (["leg_counting", "leg_counting"], "Duplicate"),
    ],
)
def test_what_the_library_does_not_have_is_refused(gym, why):
    with pytest.raises(vf.ConfigError, match=why):
        vf.ReasoningGymEnv(gym, 1, 1).train_rows()


def test_no_tasks_at_all_are_refused():
    with pytest.raises(vf.ConfigError, match="num_train_examples"):
        vf.ReasoningGymEnv("leg_counting", 0, 0)
