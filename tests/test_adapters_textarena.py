"""`TextArenaEnv` over real games of TextArena, one of them registered here."""

import importlib.util
import random
import re
import time

import pytest

import verifiers as vf
from verifiers.adapters.textarena import Played, Prototype

if importlib.util.find_spec("textarena") is None:
    pytest.skip("needs the package 'textarena' (the extra textarena)", allow_module_level=True)

NUMBERS = "GuessTheNumber-v0"


def halving(request):
    """Guesses a number by what the game said so far."""
    low, high = 0, 21
    for asked, told in zip(request.messages, request.messages[1:], strict=False):
        if asked["role"] == "assistant" and told["role"] == "user":
            guess = int(re.search(r"<guess>(\d+)", asked["content"])[1])
            low, high = (guess, high) if "higher" in told["content"] else (low, guess)
    return f"<think>between</think><guess>{(low + high) // 2}</guess>"


def play(env, replies, **options):
    return env.evaluate_sync(vf.ScriptedClient(replies), "m", num_examples=1, **options)["outputs"]


def texts(output):
    return [m["content"] for m in output["completion"] if m["role"] == "user"]


def test_a_game_is_won_and_its_reward_is_the_games():
    (output,) = play(vf.TextArenaEnv(NUMBERS, 1), halving)
    assert output["reward"] == 1.0
    assert output["stop_condition"] == "has_final_env_response"
    assert texts(output)[-1] == "Congratulations! You guessed the correct number."


def test_the_game_tells_only_what_is_new():
    (output,) = play(vf.TextArenaEnv(NUMBERS, 1), halving)
    assert "Enter your guess." in output["prompt"][-1]["content"]
    assert re.fullmatch(r"The target number is (higher|lower)\.", texts(output)[0])


def test_a_reply_without_a_move_is_judged_by_the_game():
    (output,) = play(vf.TextArenaEnv(NUMBERS, 1), "I do not know")
    assert "invalid move" in texts(output)[0]
    assert output["reward"] == 0.0
    assert output["stop_condition"] == "has_final_env_response"


def test_a_move_outside_the_tags_counts_and_one_in_the_reasoning_does_not():
    (output,) = play(vf.TextArenaEnv(NUMBERS, 1), "<think>[99] or [98]?</think> [10]", max_retries=0)
    assert "outside the range" not in texts(output)[0]


def test_the_same_seed_gives_the_same_games_and_another_one_others():
    prompts = [[r["question"] for r in vf.TextArenaEnv("2048-v0", 5, seed=s).train_rows()] for s in (1, 1, 50)]
    assert prompts[0] == prompts[1]
    assert prompts[0] != prompts[2]


def test_training_and_evaluation_games_differ():
    env = vf.TextArenaEnv("2048-v0", 3, 2)
    seeds = [[row["info"]["seed"] for row in rows] for rows in (env.train_rows(), env.eval_rows())]
    assert seeds == [[0, 1, 2], [3, 4]]


def test_chance_is_the_same_for_every_rollout_of_an_example_however_they_interleave():
    async def left_or_up(request):
        return ["<guess>[Left]</guess>", "<guess>[Up]</guess>"][len(request.messages) // 2 % 2]

    env = vf.TextArenaEnv("2048-v0", 1, max_turns=12)
    outputs = play(env, left_or_up, rollouts_per_example=8)
    assert len(texts(outputs[0])) > 3
    assert all(texts(output) == texts(outputs[0]) for output in outputs)


def test_games_leave_the_random_numbers_of_others_alone():
    import textarena

    random.seed(7)
    expected = [random.random() for _ in range(2)]
    random.seed(7)
    found = [random.random()]
    vf.TextArenaEnv("2048-v0", 3).train_rows()
    Played(Prototype(textarena.make("2048-v0")).copy(), 1, "2048-v0").move("[Left]")
    assert [*found, random.random()] == expected


def test_the_last_move_of_a_game_that_is_cut_is_made():
    (output,) = play(vf.TextArenaEnv(NUMBERS, 1, max_turns=1), "<guess>20</guess>")
    assert output["stop_condition"] == "max_turns_reached"
    assert len(texts(output)) == 1


def test_feedback_may_be_rewritten():
    (output,) = play(vf.TextArenaEnv(NUMBERS, 1, feedback_fn=str.upper), halving)
    assert texts(output)[0].startswith("THE TARGET NUMBER IS")


@pytest.fixture(scope="module")
def words():
    """A game with a long list of words, as those have that need a download."""
    import textarena
    from textarena.envs.registration import ENV_REGISTRY

    class Words(textarena.Env):
        def __init__(self):
            self.words = [f"w{i}" for i in range(200_000)]
            self.known = set(self.words)

        def reset(self, num_players, seed=None):
            self.state = textarena.SinglePlayerState(num_players=num_players, seed=seed)
            random.shuffle(self.words)
            self.state.reset({"secret_word": self.words[0]}, lambda player_id, game_state: "Which word?")

        def step(self, action):
            is_right = action == self.state.game_state["secret_word"]
            self.state.set_outcome(float(is_right), "right" if is_right else "wrong")
            return self.state.step()

    textarena.register("Words-v0", Words)
    yield Words
    del ENV_REGISTRY["Words-v0"]


def test_a_secret_word_is_the_rows_answer_and_wins(words):
    env = vf.TextArenaEnv("Words-v0", 2, parser=vf.Parser())
    row = env.train_rows()[1]
    client = vf.ScriptedClient(row["answer"])
    (output,) = env.generate_sync([row], client, "m")["outputs"]
    assert output["reward"] == 1.0
    assert texts(output) == ["right"]


def test_a_copy_of_a_game_shares_its_words_and_shuffles_its_own(words):
    prototype = Prototype(words())
    began = time.process_time()
    one, other = prototype.copy(), prototype.copy()
    assert time.process_time() - began < 0.5, "a deep copy of the words takes longer"
    assert one.known is other.known
    one.reset(1, seed=1)
    assert other.words[:3] == ["w0", "w1", "w2"]


def test_an_unknown_game_is_refused_with_a_likely_one():
    with pytest.raises(vf.ConfigError, match=r"no game 'GuesTheNumber-v0'.*GuessTheNumber-v0"):
        vf.TextArenaEnv("GuesTheNumber-v0").train_rows(1)


def test_a_game_for_two_is_refused():
    with pytest.raises(vf.ConfigError, match="'TicTacToe-v0' is not for a single player"):
        vf.TextArenaEnv("TicTacToe-v0").train_rows(1)


def test_no_games_at_all_are_refused():
    with pytest.raises(vf.ConfigError, match="num_train_examples"):
        vf.TextArenaEnv(NUMBERS, num_train_examples=0)
