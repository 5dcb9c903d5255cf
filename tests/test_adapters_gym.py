"""`GymEnv` over real environments of Gymnasium, one of them registered here, and a plain class."""

import string

import pytest

import verifiers as vf

gymnasium = pytest.importorskip("gymnasium", reason="needs the package 'gymnasium' (the extra gym)")

LAKE = {"render_mode": "ansi", "is_slippery": False}
WAY = ["1", "1", "2", "2", "1", "2"]  # down, down, right, right, down, right: to the goal of the 4x4 map


class Echo(gymnasium.Env):
    """Wants its secret word, which it gives away at first."""

    closed = 0

    def __init__(self, length=5):
        self.observation_space = gymnasium.spaces.Text(200, charset=string.printable)
        self.action_space = gymnasium.spaces.Text(length, charset="abcdefghijklmnopqrstuvwxyz")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.word = "".join(self.np_random.choice(list("abc"), 3))
        return f"Say {self.word}.", {}

    def step(self, action):
        is_right = action == self.word
        return ("Right." if is_right else "No."), (1.0 if is_right else -0.25), is_right, False, {"said": action}

    def close(self):
        Echo.closed += 1


class Counter:
    """No Gymnasium at all: the older shapes of reset and step."""

    def reset(self, seed):
        self.count = 0
        return {"count": self.count}

    def step(self, action):
        self.count += 1
        return {"count": self.count}, 1, self.count == 3, {}


@pytest.fixture(scope="module", autouse=True)
def registered():
    gymnasium.register("Echo-v0", entry_point=Echo)
    yield
    del gymnasium.registry["Echo-v0"]


def play(env, replies, n=1):
    return env.evaluate_sync(vf.ScriptedClient(replies), "m", num_examples=n)["outputs"][0]


def texts(output):
    return [m["content"] for m in output["completion"] if m["role"] == "user"]


def test_frozen_lake_is_won_by_the_right_way():
    output = play(vf.GymEnv("FrozenLake-v1", LAKE), WAY)
    assert output["reward"] == 1.0
    assert output["stop_condition"] == "is_done"
    assert output["metrics"]["num_turns"] == 6


def test_frozen_lake_is_lost_in_a_hole():
    output = play(vf.GymEnv("FrozenLake-v1", LAKE), ["2", "1"])
    assert output["reward"] == 0.0
    assert output["stop_condition"] == "is_done"


def test_the_player_is_seen_on_the_map():
    output = play(vf.GymEnv("FrozenLake-v1", LAKE), WAY)
    assert output["prompt"][-1]["content"] == "[S]FFF\nFHFH\nFFFH\nHFFG"
    assert texts(output)[0] == "  (Down)\nSFFF\n[F]HFH\nFFFH\nHFFG"


def test_taxi_shows_its_state_and_counts_the_cost_of_each_step():
    env = vf.GymEnv("Taxi-v4", {"render_mode": "ansi"}, max_episode_steps=4)
    output = play(env, ["0", "1", "0", "1"])
    assert "+---------+" in output["prompt"][-1]["content"]
    assert output["reward"] == -4.0
    assert output["stop_condition"] == "max_turns_reached"


def test_the_last_step_of_an_episode_that_is_cut_is_taken():
    output = play(vf.GymEnv("FrozenLake-v1", LAKE, max_episode_steps=6), WAY)
    assert output["reward"] == 1.0


def test_a_text_environment_is_played_in_words():
    env = vf.GymEnv("Echo-v0")
    word = env.eval_rows(1)[0]["question"].removeprefix("Say ").removesuffix(".")
    output = play(env, ["<think>hm</think>zzz", word])
    assert texts(output) == ["No.", "Right."]
    assert output["reward"] == 0.75


def test_a_reply_that_is_no_action_is_told_to_the_model_and_costs_a_turn():
    output = play(vf.GymEnv("FrozenLake-v1", LAKE, max_episode_steps=3), ["either 1 or 2", "7", "left"])
    assert texts(output) == [
        "That is no action: reply with one number from 0 to 3",
        "That is no action: '7' is not in Discrete(4)",
        "That is no action: reply with one number from 0 to 3",
    ]
    assert output["reward"] == 0.0
    assert output["stop_condition"] == "max_turns_reached"


def test_an_own_action_parser_and_wording_are_used():
    names = {"left": 0, "down": 1, "right": 2, "up": 3}
    env = vf.GymEnv(
        "FrozenLake-v1",
        {"is_slippery": False},
        action_parser=lambda text: names[text],
        obs_to_text=lambda obs: f"You stand on {obs}.",
        parser=vf.XMLParser(["action"], answer_field="action"),
    )
    output = play(env, ["<action>right</action>", "<action>fly</action>", "<action>down</action>"])
    assert output["prompt"][-1]["content"] == "You stand on 0."
    assert texts(output) == ["You stand on 1.", "That is no action: 'fly'", "You stand on 5."]


def test_a_plain_class_of_the_older_shape_is_played():
    output = play(vf.GymEnv(Counter), ["go"])
    assert output["prompt"][-1]["content"] == '{"count": 0}'
    assert texts(output) == ['{"count": 1}', '{"count": 2}', '{"count": 3}']
    assert output["reward"] == 3.0


def test_the_same_seed_gives_the_same_episodes_and_another_one_others():
    questions = [[row["question"] for row in vf.GymEnv("Echo-v0", seed=s).train_rows(20)] for s in (1, 1, 500)]
    assert questions[0] == questions[1]
    assert questions[0] != questions[2]


def test_training_and_evaluation_episodes_have_different_seeds():
    env = vf.GymEnv("Echo-v0", num_train_episodes=5, num_eval_episodes=3)
    seeds = [[row["info"]["seed"] for row in rows] for rows in (env.train_rows(), env.eval_rows())]
    assert seeds == [[0, 1, 2, 3, 4], [5, 6, 7]]


def test_rollouts_of_one_example_play_games_of_their_own():
    env = vf.GymEnv("Echo-v0", num_eval_episodes=1)
    word = env.eval_rows(1)[0]["question"][4:7]
    client = vf.ScriptedClient(lambda request: "zzz" if len(request.messages) == 1 else word)
    outputs = env.evaluate_sync(client, "m", rollouts_per_example=8)["outputs"]
    assert [output["reward"] for output in outputs] == [0.75] * 8


def test_games_are_closed():
    env = vf.GymEnv("Echo-v0", num_eval_episodes=1)
    env.eval_rows()
    before = Echo.closed
    play(env, ["zzz"] * 99 + ["x"])
    assert Echo.closed == before + 1


def test_an_environment_that_raises_is_a_fault_and_no_score():
    class Broken(Counter):
        def step(self, action):
            raise RuntimeError("no power")

    output = play(vf.GymEnv(Broken), ["go"])
    assert output["reward"] is None
    assert "no power" in str(output["error"])


def test_a_rubric_of_the_authors_replaces_the_sum():
    env = vf.GymEnv("FrozenLake-v1", LAKE, rubric=vf.Rubric([lambda state: float(len(state["trajectory"]))]))
    assert play(env, WAY)["reward"] == 6.0


def test_no_episodes_at_all_are_refused():
    with pytest.raises(vf.ConfigError, match="num_train_episodes"):
        vf.GymEnv("FrozenLake-v1", num_train_episodes=0, num_eval_episodes=0)
