"""`MCPEnv` over real servers: started over standard input and output, and reached over streamable HTTP."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress

import pytest
from waiting import is_running, steady

import verifiers as vf

pytest.importorskip("mcp", reason="needs the package 'mcp' (the extra mcp)")

SERVER = '''
import base64, os, sys, time
from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("arithmetic")

@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

@server.tool()
def whoami() -> str:
    """Say which process this is, and what it was told."""
    return f"{os.getpid()} {os.environ.get('GREETING', '')}"

@server.tool()
def dot() -> list:
    """Draw a dot."""
    return ["a dot:", Image(data=base64.b64decode("iVBORw0KGgo="), format="png")]

@server.tool()
def crash() -> str:
    """End the server."""
    os._exit(3)

@server.tool()
async def sleep() -> str:
    """Take long."""
    import asyncio
    await asyncio.sleep(250)
    return "slept"

if len(sys.argv) > 1:
    server.run("streamable-http", port=int(sys.argv[1]))
else:
    server.run("stdio")
'''


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("mcp") / "server.py"
    path.write_text(SERVER)
    return path


@pytest.fixture(scope="module")
def over_stdio(script):
    return {"name": "maths", "command": sys.executable, "args": [str(script)], "env": {"GREETING": "hello"}}


@pytest.fixture
def over_http(script):
    process, port = listening(script)
    yield {"name": "maths", "url": f"http://127.0.0.1:{port}/mcp"}
    process.terminate()
    process.wait(100)


def listening(script):
    for _ in range(5):
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            port = free.getsockname()[1]
        process = subprocess.Popen([sys.executable, str(script), str(port)], stderr=subprocess.DEVNULL)
        while process.poll() is None:
            if is_listening(port):
                return process, port
            time.sleep(0.05)
    raise AssertionError("the server ended five times: not because another program was given its port")


def is_listening(port):
    with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), 60)):
        return True
    return False


def wait_until(is_so, limit_s=60):
    end = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.05)


@pytest.fixture
def make():
    made = []

    def make(*servers, **options):
        made.append(vf.MCPEnv(mcp_servers=servers, dataset=[{"question": "q"}] * 4, **options))
        return made[-1]

    yield make
    for env in made:
        asyncio.run(env.teardown())


@pytest.fixture(scope="module")
def arithmetic(over_stdio):
    """An environment that only asks its server, for tests that leave it as it is."""
    env = vf.MCPEnv(mcp_servers=[over_stdio], dataset=[{"question": "q"}] * 4)
    yield env
    asyncio.run(env.teardown())


def call(name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"content": "", "tool_calls": [{"id": "c", "type": "function", "function": function}]}


def said_to(env, *calls):
    """What the model is told for each call, and the output."""
    client = vf.ScriptedClient([*calls, "done"], cycle=False)
    (output,) = env.evaluate_sync(client, "m", num_examples=1)["outputs"]
    return [m["content"] for m in output["completion"] if m["role"] == "tool"], output


def test_a_tool_of_a_stdio_server_answers_and_is_counted(arithmetic):
    said, output = said_to(arithmetic, call("add", a=1, b=2))
    assert said == ["3"]
    assert output["metrics"]["add_calls"] == 1.0


def test_a_tool_of_an_http_server_answers(make, over_http):
    said, _ = said_to(make(over_http), call("add", a=20, b=22))
    assert said == ["42"]


def test_the_server_gets_its_environment(arithmetic):
    said, _ = said_to(arithmetic, call("whoami"))
    assert said[0].endswith(" hello")


def test_the_model_is_offered_the_servers_tools_with_their_schemas(arithmetic):
    env = arithmetic
    env.connect()
    tools = {tool.name: tool for tool in env.tool_defs}
    assert set(tools) == {"add", "whoami", "dot", "crash", "sleep"}
    assert tools["add"].description == "Add two numbers."
    assert tools["add"].parameters["properties"]["a"]["type"] == "integer"


def test_an_image_in_a_result_reaches_the_model_as_an_image_part(arithmetic):
    said, _ = said_to(arithmetic, call("dot"))
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    assert said == [[{"type": "text", "text": "a dot:"}, image]]


def test_a_refused_call_is_told_to_the_model(arithmetic):
    said, output = said_to(arithmetic, call("add", a="x", b=2), call("add", a=1, b=1))
    assert said[0].startswith("Error: ") and "valid integer" in said[0]
    assert said[1] == "2"
    assert output["error"] is None


def test_a_server_that_stops_is_told_to_the_model_and_started_again(make, over_stdio):
    said, output = said_to(make(over_stdio), call("crash"), call("add", a=2, b=2))
    assert said == ["Error: the server 'maths' has stopped; the next call starts it again", "4"]
    assert output["error"] is None


def test_a_server_that_cannot_be_started_ends_the_rollout_before_the_model_is_asked(make):
    broken = {"name": "broken", "command": sys.executable, "args": ["-c", "import sys; sys.exit('no licence')"]}
    client = vf.ScriptedClient("done")
    (output,) = make(broken).evaluate_sync(client, "m", num_examples=1)["outputs"]
    assert client.requests == []
    assert output["reward"] is None
    assert "no licence" in str(output["error"])
    assert "MCP server 'broken'" in str(output["error"])


def test_an_unreachable_http_server_is_named(make):
    with closing(socket.socket()) as held:  # nobody listens there, and nobody else is given it meanwhile
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}/mcp"
        with pytest.raises(vf.InfraError, match=f"MCP server 'gone' \\({url}\\) does not start"):
            make({"name": "gone", "url": url}).connect()


def test_a_server_that_never_speaks_is_given_up(make):
    silent = {"name": "silent", "command": sys.executable, "args": ["-c", "import time; time.sleep(250)"]}
    with pytest.raises(vf.InfraError, match=r"its start took longer than 0\.5 s"):
        make(silent, start_timeout_s=0.5).connect()


@steady(0.3)
def test_a_call_that_takes_too_long_is_told_to_the_model(make, over_stdio):
    said, _ = said_to(make(over_stdio, tool_timeout_s=1.5), call("sleep"), call("add", a=1, b=1))
    assert "longer than 1.5 s" in said[0]
    assert said[1] == "2"


def test_one_process_serves_every_event_loop(arithmetic):
    env = arithmetic
    processes = []

    def evaluate():
        said, _ = said_to(env, call("whoami"))
        processes.append(said[0].split()[0])

    threads = [threading.Thread(target=evaluate) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    evaluate()
    assert len(processes) == 4
    assert len(set(processes)) == 1


def test_many_rollouts_at_once_share_the_servers(arithmetic):
    env = arithmetic

    def reply(request):
        return "done" if request.messages[-1]["role"] == "tool" else call("add", a=len(request.messages), b=1)

    outputs = env.evaluate_sync(vf.ScriptedClient(reply), "m", rollouts_per_example=25)["outputs"]
    assert len(outputs) == 100
    assert all(output["completion"][1]["content"] == "2" for output in outputs)


def test_teardown_ends_the_server(make, over_stdio):
    env = make(over_stdio)
    said, _ = said_to(env, call("whoami"))
    process_id = int(said[0].split()[0])
    assert is_running(process_id)
    asyncio.run(env.teardown())
    wait_until(lambda: not is_running(process_id))
    with pytest.raises(vf.InfraError, match="teardown"):
        env._is_connected = False
        env.connect()


def test_a_server_that_was_killed_between_rollouts_is_started_again(make, over_stdio):
    env = make(over_stdio)
    said, _ = said_to(env, call("whoami"))
    os.kill(int(said[0].split()[0]), signal.SIGKILL)
    said, output = said_to(env, call("add", a=1, b=1), call("add", a=1, b=1))
    assert said[-1] == "2"
    assert output["error"] is None


def test_two_servers_with_a_tool_of_one_name_are_told_apart(make, over_stdio):
    env = make(over_stdio, {**over_stdio, "name": "again", "env": {"GREETING": "again"}})
    said, _ = said_to(env, call("whoami"), call("again_whoami"))
    assert said[0].endswith(" hello")
    assert said[1].endswith(" again")


def test_functions_are_offered_beside_the_servers_tools(make, over_stdio):
    def shout(text: str) -> str:
        return text.upper()

    said, _ = said_to(make(over_stdio, tools=[shout]), call("shout", text="a"), call("add", a=1, b=1))
    assert said == ["A", "2"]


@pytest.mark.parametrize(
    ("server", "why"),
    [
        ({"command": "x"}, "needs a 'name'"),
        ({"name": "x"}, "either a 'command'"),
        ({"name": "x", "command": "x", "url": "http://x"}, "either a 'command'"),
        ({"name": "x", "comand": "x"}, "has no 'comand'"),
    ],
)
def test_a_wrong_description_is_refused(make, server, why):
    with pytest.raises(vf.ConfigError, match=why):
        make(server)


def test_two_servers_of_one_name_are_refused(make, over_stdio):
    with pytest.raises(vf.ConfigError, match="two MCP servers are called 'maths'"):
        make(over_stdio, over_stdio)
