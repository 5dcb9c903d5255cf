"""An environment as they were written for 0.1.3-0.1.7."""

from datasets import Dataset

import verifiers as vf


class NumberHunt(vf.MultiTurnEnv):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seen = []

    async def setup_state(self, state, **kwargs):
        state["target"] = int(state["answer"])
        state["found"] = False
        return state

    async def is_completed(self, messages, state, **kwargs):
        self.seen.append(("is_completed", state["turn"], len(messages), len(state["completion"])))
        if await super().is_completed(messages, state, **kwargs):
            return True
        return state["found"]

    def env_response(self, messages, state, **kwargs):
        self.seen.append(("env_response", state["turn"], len(messages), len(state["responses"])))
        guess = self.parser.parse(messages[-1]["content"]).guess
        if guess is None or not guess.strip().isdigit():
            return [{"role": "user", "content": "Put a number into <guess>."}], state
        state["found"] = int(guess) == state["target"]
        hint = "yes" if state["found"] else "higher" if int(guess) < state["target"] else "lower"
        return [{"role": "user", "content": hint}], state


def found(completion, state, **kwargs) -> float:
    return 1.0 if state["found"] else 0.0


def turns(prompt, completion, answer, state, task, info) -> float:
    assert isinstance(prompt, list) and isinstance(prompt[0], dict) and task == "hunt" and info["range"] == 100
    return float(state["turn"] == len(state["responses"]))


def load_environment(max_turns: int = 5, **kwargs):
    rows = Dataset.from_list([{"question": "Find it.", "answer": "42", "task": "hunt", "info": {"range": 100}}] * 2)
    parser = vf.XMLParser(["guess"], answer_field="guess")
    rubric = vf.Rubric(funcs=[found, turns], weights=[1.0, 0.0], parser=parser)
    rubric.add_reward_func(parser.get_format_reward_func(), weight=0.1)
    return NumberHunt(
        dataset=rows, system_prompt="Answer in tags.", parser=parser, rubric=rubric, max_turns=max_turns, **kwargs
    )
