"""Arguments that the environment fills in and the model neither sees nor sets."""

import pytest

import verifiers as vf

ROWS = [{"question": "q", "answer": "a"}]


def call(arguments, name="read", id="c1"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls):
    return {"content": None, "tool_calls": list(calls)}


async def roll(env, reply):
    client = vf.ScriptedClient([reply, "done"], cycle=False)
    return await env.rollout(env.train_rows()[0], client, "m"), client


def tool_messages(state):
    return [m for m in state["completion"] if m["role"] == "tool"]


def read(path: str, session: dict, limit: int = 5) -> str:
    """Reads.

    Args:
        path: Where.
        session: Hidden.
    """
    return f"{session['user']}:{path}"


class Sessions(vf.StatefulToolEnv):
    def __init__(self, **kwargs):
        super().__init__(dataset=ROWS, **kwargs)
        self.add_tool(read, args_to_skip=["session"])

    async def setup_state(self, state):
        state["session"] = {"user": "ann"}

    def update_tool_args(self, tool_name, tool_args, messages, state, **kwargs):
        return {**tool_args, "session": state["session"]}


async def test_hidden_arguments_are_not_shown_and_are_filled_in():
    state, client = await roll(Sessions(), calling(call('{"path": "/a"}', "read")))
    assert list(client.requests[0].tools[0]["parameters"]["properties"]) == ["path", "limit"]
    assert tool_messages(state)[0]["content"] == "ann:/a"


async def test_a_model_cannot_set_a_hidden_argument():
    class Careless(Sessions):
        def update_tool_args(self, tool_name, tool_args, messages, state, **kwargs):
            tool_args.setdefault("session", state["session"])
            return tool_args

    state, _ = await roll(Careless(), calling(call('{"path": "/a", "session": {"user": "root"}}', "read")))
    assert tool_messages(state)[0]["content"] == "ann:/a"


@pytest.mark.parametrize("fails", [True, False])
async def test_an_update_of_arguments_that_fails_ends_the_rollout_and_is_the_environments_fault(fails):
    class Broken(Sessions):
        def update_tool_args(self, tool_name, tool_args, messages, state, **kwargs):
            return state["no such key"] if fails else None

    state, client = await roll(Broken(), calling(call('{"path": "/a"}', "read")))
    assert isinstance(state["error"], vf.EnvironmentFault) and len(client.requests) == 1
    assert ("no such key" if fails else "must return the arguments") in str(state["error"])


async def test_a_list_or_an_unknown_name_is_told_to_the_model_here_too():
    state, _ = await roll(Sessions(), calling(call("[1]", "read", "a"), call("{}", "rm", "b")))
    assert state["error"] is None and [m["tool_call_id"] for m in tool_messages(state)] == ["a", "b"]
