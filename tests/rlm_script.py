"""What a root model and its sub-models say in the tests of `RLMEnv`, and a rollout over them."""

import json

import verifiers as vf
from verifiers.envs.rlm_env import RLMEnv


def code(text, id="c1", name="call_python_repl"):
    return {"content": None, "tool_calls": [call({"code": text}, name, id)]}


def bash(text):
    return code(text, name="call_bash_repl")


def call(arguments, name, id="c1"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def answer(text):
    return code(f"answer['content'] = {text}; answer['ready'] = True")


def exact(state, answer):
    return float(state["final_answer"] == answer)


def made(context=None, kind=RLMEnv, **options):
    row = {"question": "What is the code?", "answer": "7361", "info": {} if context is None else {"context": context}}
    settings = {"dataset": [row], "rubric": vf.Rubric([exact]), "repl_language": "python", **options}
    return kind(**settings)


class Models(vf.ScriptedClient):
    """A root model that says `turns`, and sub-models that `reply(request)` answers for: they have a system message."""

    def __init__(self, turns, reply=lambda request: "none", **options):
        said = iter(turns)
        super().__init__(
            lambda request: reply(request) if request.messages[0].role == "system" else next(said), **options
        )

    @property
    def sub_requests(self):
        return [request for request in self.requests if request.messages[0].role == "system"]


async def rolled(env, client, **row):
    """The state after one rollout, and the messages that the code's output came in."""
    state = await env.rollout({**env.eval_rows()[0], **row}, client, "root")
    return state, [m["content"] for m in state["completion"] if m["role"] == "tool"]


def looked_up(name: str) -> str:
    """Looks up a name."""
    return f"<{name}>"
