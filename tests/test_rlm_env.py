"""`RLMEnv`: the model reads a long input by code, asks sub-models about pieces, and nothing it does hurts its host."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from rlm_script import Models, answer, bash, call, code, looked_up, made, rolled
from waiting import steady, until

import verifiers as vf
from verifiers.envs.rlm_prompts import OPENING, with_scaffold
from verifiers.envs.sub_model_env import RLMCodeExecutionTimeout

HAY = "nothing here. " * 20_000
NEEDLE = HAY + "The code is 7361. " + HAY


def is_running(pid):
    """A process that is dead and has not been waited for, by whoever adopted it, does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def gone(*pids):
    return await until(lambda: not any(map(is_running, pids)))


def finds_the_needle(request):
    return "7361" if "The code is 7361" in request.messages[-1].content else "none"


async def test_a_needle_is_found_by_asking_about_pieces():
    client = Models(
        [
            code("pieces = [context[i : i + 100_000] for i in range(0, len(context), 100_000)]\nlen(pieces)"),
            code("found = [r for r in llm_batch(['The code?\\n' + p for p in pieces]) if r != 'none']\nfound"),
            answer("found[0]"),
        ],
        finds_the_needle,
    )
    results = await made(NEEDLE).evaluate(client, "root")
    (record,) = results.records
    assert record.reward == 1.0
    assert record.stop_condition == "answer_ready"
    assert [m["content"] for m in record.messages if m["role"] == "tool"] == [
        "Out[1]: 6",
        "Out[2]: ['7361']",
        "(no output)",
    ]
    assert (
        max(len(request.messages[0].content) for request in client.requests if request.messages[0].role == "user")
        < 2_000
    )
    assert record.metrics["sub_llm_call_count"] == record.metrics["sub_llm_max_batch_size"] == 6
    assert record.metrics["root_llm_turns"] == record.metrics["repl_call_count"] == 3
    assert record.metrics["llm_batch_root_calls"] == 1


async def test_what_the_sub_models_used_is_counted():
    client = Models([answer("llm_query('one two three')")], lambda request: "four five")
    (record,) = (await made().evaluate(client, "root")).records
    (sub,) = client.sub_requests
    assert record.metrics["sub_llm_prompt_tokens"] > 3
    assert record.usage.prompt == record.metrics["sub_llm_prompt_tokens"] + record.metrics["root_llm_prompt_tokens"]
    assert record.usage.completion == (
        record.metrics["sub_llm_completion_tokens"] + record.metrics["root_llm_completion_tokens"]
    )
    assert sub.tools is None


async def test_sub_models_are_actors_of_the_record_where_the_trajectory_keeps_them():
    client = Models([code("llm_batch(['a', 'b'])"), answer("'7361'")], lambda request: "reply", with_tokens=True)
    env = made(include_sub_llm_in_trajectory=True, max_turns=3)
    (record,) = (await env.evaluate(client, "root")).records
    assert record.actors == ["assistant", "sub_llm"]
    assert [turn.actor for turn in record.turns] == ["assistant", "sub_llm", "sub_llm", "assistant"]
    assert record.turns[1].prompt[-1]["content"] == "a"
    assert record.turns[1].completion[0]["content"] == "reply"
    assert record.turns[1].tokens.prefix_length == 0
    assert record.turns[3].prompt is None, "the root model's turns are those of the conversation"
    assert record.stop_condition == "answer_ready"


async def test_sub_models_are_not_in_the_trajectory_unless_asked_for():
    state, _ = await rolled(made(), Models([code("llm_query('a')"), answer("'x'")]))
    assert len(state["trajectory"]) == 2
    assert state["sub_llm_total_turns"] == 1


async def test_sub_model_names_another_model():
    client = Models([answer("llm_query('a')")], lambda request: r"Well, \boxed{b}")
    state, _ = await rolled(made(sub_model="small"), client)
    assert client.sub_requests[0].model == "small"
    assert state["final_answer"] == "b"


async def test_the_same_prompt_twice_is_asked_with_two_seeds():
    client = Models([answer("llm_batch(['a', 'a'])")])
    await made().evaluate(client, "root", seed=3)
    seeds = {request.seed for request in client.sub_requests}
    assert None not in seeds and len(seeds) == 2


async def test_no_more_sub_models_are_asked_at_once_than_allowed():
    at_once, most = 0, 0

    async def reply(request):
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1
        return request.messages[-1].content

    text = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "a = llm_batch(list('abcdefgh'))\n"
        "b = list(ThreadPoolExecutor(8).map(llm_query, 'abcdefgh'))\n"
        "a == b"
    )
    _, outputs = await rolled(made(max_sub_llm_parallelism=3), Models([code(text), answer("1")], reply))
    assert outputs[0] == "Out[1]: True"
    assert most == 3


# What goes wrong with sub-models


async def test_a_prompt_too_long_for_a_sub_model_is_told_to_the_code():
    def reply(request):
        raise vf.OverlongPromptError("8192 tokens are the most")

    state, outputs = await rolled(made(), Models([code("llm_query('long')"), answer("1")], reply))
    assert "OverlongPromptError: 8192 tokens are the most" in outputs[0]
    assert state["error"] is None


@pytest.mark.parametrize(
    "error",
    [vf.ModelNotFoundError, vf.AuthenticationError, vf.ModelUnavailableError, vf.InvalidModelResponseError],
)
async def test_a_sub_model_that_cannot_be_reached_is_no_wrong_answer(error):
    def reply(request):
        raise error("no such model")

    state, _ = await rolled(made(sub_model="typo"), Models([code("llm_query('a')"), answer("1")], reply))
    assert type(state["error"]) is error
    assert len(state["trajectory"]) == 1


async def test_an_empty_reply_of_a_sub_model_is_told_to_the_code():
    def reply(request):
        raise vf.EmptyModelResponseError("no text")

    state, outputs = await rolled(made(), Models([code("llm_query('a')"), answer("1")], reply))
    assert "Error: no reply of the sub-model" in outputs[0]
    assert state["error"] is None


async def test_a_sub_model_that_takes_too_long_is_told_to_the_code():
    def reply(request):
        raise vf.ModelTimeoutError("115 s")

    state, outputs = await rolled(made(), Models([code("llm_query('a')"), answer("1")], reply))
    assert outputs[0] == "Out[1]: 'Error: the sub-model took longer than 115 s'"
    assert state["sub_llm_max_turns_reached_frac"] == 1.0


async def test_sub_models_stop_at_their_token_budget():
    client = Models([code("llm_query('a')"), code("llm_query('b')"), answer("1")], lambda request: "one two three")
    _, outputs = await rolled(made(sub_max_completion_tokens=3), client)
    assert outputs[0] == "Out[1]: 'one two three'"
    assert "used up" in outputs[1]
    assert len(client.sub_requests) == 1


# Tools


async def test_a_sub_model_uses_its_tools_and_the_root_model_has_none_of_them():
    def reply(request):
        last = request.messages[-1]
        if last.role == "tool":
            return rf"\boxed{{{last.content}}}"
        return {"content": None, "tool_calls": [call({"name": "x"}, "looked_up")]}

    client = Models([answer("llm_query('look up x')")], reply)
    state, _ = await rolled(made(sub_tools=[looked_up]), client)
    assert state["final_answer"] == "<x>"
    assert state["sub_llm_total_tool_calls"] == 1
    assert [tool["name"] for tool in client.requests[0].tools] == ["call_python_repl"]
    assert "looked_up(name: string)" in client.requests[0].messages[0].content


async def test_a_sub_model_that_never_stops_calling_is_asked_for_its_answer():
    def reply(request):
        if request.tools is None:
            return "that is all"
        return {"content": None, "tool_calls": [call({"nam": "x"}, "looked_up"), call({}, "nope", "c2")]}

    client = Models([answer("llm_query('go')")], reply)
    state, _ = await rolled(made(sub_tools=[looked_up], sub_llm_max_turns=2), client)
    assert state["final_answer"] == "that is all"
    assert len(client.sub_requests) == 3
    told = [m.content for m in client.sub_requests[1].messages if m.role == "tool"]
    assert all(text.startswith("Error: ") for text in told) and len(told) == 2
    assert state["sub_llm_max_turns_reached_frac"] == 1.0


async def test_root_tools_are_functions_of_the_code_and_tools_are_the_models():
    def joined(parts: list[str], by: str = "-") -> str:
        """Joins."""
        return by.join(parts)

    def direct(x: int) -> int:
        """Doubles."""
        return 2 * x

    client = Models(
        [
            {"content": None, "tool_calls": [call({"x": 4}, "direct")]},
            code("print(joined(['a', 'b'])); print(joined(['a', 'b'], by='+')); joined(1)"),
            code("direct(1)"),
            answer("7361"),
        ]
    )
    env = made(root_tools=[joined], tools=[direct])
    state, outputs = await rolled(env, client)
    assert outputs[0] == "8"
    assert outputs[1].startswith("a-b\na+b\n") and "TypeError: can only join an iterable" in outputs[1]
    assert "NameError" in outputs[2]
    assert state["root_tool_calls"] == {"joined": 3}
    assert state["final_answer"] == "7361", "the answer is text, whatever the code wrote"


async def test_an_exception_of_stop_errors_in_a_root_tool_ends_the_rollout():
    def paid() -> str:
        """Costs."""
        raise PermissionError("no money left")

    state, _ = await rolled(
        made(root_tools=[paid], stop_errors=[PermissionError]), Models([code("paid()"), answer("1")])
    )
    assert isinstance(state["error"], vf.ToolCallError)
    assert "no money left" in str(state["error"])


# The interpreter


async def test_variables_functions_and_imports_stay_from_turn_to_turn():
    turns = ["import math\nx = [1]\ndef f(n):\n    return n + len(x)", "x.append(2)\nf(math.floor(1.5))", "f(0)"]
    _, outputs = await rolled(made(), Models([*map(code, turns), answer("1")]))
    assert outputs[:3] == ["(no output)", "Out[2]: 3", "Out[3]: 2"]


async def test_an_error_shows_the_line_of_the_code_and_nothing_of_ours():
    _, outputs = await rolled(
        made(), Models([code("def f(x):\n    return 1 / x\nf(0)"), code("llm_batch('ab')"), answer("1")])
    )
    assert "return 1 / x" in outputs[0] and "ZeroDivisionError" in outputs[0]
    assert "interpreter_worker" not in outputs[0] + outputs[1]
    assert "llm_batch takes a list of texts" in outputs[1]


async def test_what_children_of_the_code_print_is_shown_too():
    _, outputs = await rolled(
        made(), Models([code("import os\n_ = os.system('echo from a child; echo err >&2')"), answer("1")])
    )
    assert outputs[0] == "from a child\nstderr:\nerr"


async def test_output_is_shown_again_after_the_code_closed_or_replaced_it():
    turns = ["import sys, io\nsys.stdout = io.StringIO()\nprint('lost')", "sys.stdout.close()", "print('seen')"]
    _, outputs = await rolled(made(), Models([*map(code, turns), answer("1")]))
    assert outputs[:3] == ["(no output)", "(no output)", "seen"]


@steady(0.2)
async def test_code_that_takes_too_long_is_interrupted_and_variables_are_kept():
    turns = [code("x = 1\nimport time\ntime.sleep(60)"), code("x"), answer("x")]
    state, outputs = await rolled(made(code_execution_timeout=1), Models(turns))
    assert "it took longer than 1 s. Variables are kept" in outputs[0]
    assert outputs[1] == "Out[2]: 1"
    assert state["error"] is None


@steady(0.2)
async def test_code_that_will_not_be_interrupted_is_killed_and_files_are_kept():
    deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nopen('kept', 'w').write('1')\nx = 1"
    turns = [code(f"{deaf}\nwhile True: pass"), code("open('kept').read(), 'x' in globals()"), answer("1")]
    _, outputs = await rolled(made(code_execution_timeout=1), Models(turns))
    assert "variables are gone, files are kept" in outputs[0]
    assert outputs[1] == "Out[1]: ('1', False)"


@steady(0.2)
async def test_a_wait_for_a_sub_model_counts_and_is_interrupted():
    async def reply(request):
        await asyncio.sleep(60)

    turns = [code("x = 1\nllm_query('a')"), code("x"), answer("x")]
    _, outputs = await rolled(made(code_execution_timeout=1), Models(turns, reply))
    assert "Variables are kept" in outputs[0]
    assert outputs[1] == "Out[2]: 1"


@steady(0.2)
async def test_abort_on_code_timeout_ends_the_rollout_on_the_side_of_the_tool():
    env = made(code_execution_timeout=1, abort_on_code_timeout=True)
    (record,) = (await env.evaluate(Models([code("while True: pass")]), "root")).records
    assert [(error.side, error.type) for error in record.errors] == [("tool", RLMCodeExecutionTimeout.__name__)]
    assert record.reward is None


async def test_a_crash_of_the_interpreter_is_told_and_the_next_code_runs():
    turns = [
        code("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"),
        code("1 + 1"),
        code("import sys; sys.exit(3)"),
        answer("1"),
    ]
    state, outputs = await rolled(made(), Models(turns))
    assert "the interpreter died" in outputs[0]
    assert outputs[1] == "Out[1]: 2"
    assert outputs[2].endswith("SystemExit: 3"), "leaving does not end the interpreter"
    assert state["error"] is None


async def test_output_without_end_is_cut_and_told():
    turns = [code("for _ in range(300): print('x' * 100_000)"), code("'y' * 100_000_000"), answer("'z' * 100_000_000")]
    state, outputs = await rolled(made(max_output_length=100), Models(turns))
    assert all(len(output) < 250 and "more characters" in output for output in outputs[:2])
    assert outputs[0].startswith("x" * 100) and outputs[1].startswith("Out[2]: 'yyy")
    assert state["final_answer"].endswith("z… (96,000,000 more characters)")


async def test_values_that_cannot_be_sent_are_refused_or_told_as_text():
    def taken(value: dict) -> str:
        """Takes."""
        return "taken"

    def given(key: str) -> object:
        """Gives."""
        return {1, 2} if key == "set" else {(1, 2): 3}

    turns = [
        code("taken({'a': {1}})"),
        code("given('set')"),
        code("given('pair')"),
        code("print('\\ud800'); '\\udfff'"),
        answer("object"),
    ]
    state, outputs = await rolled(made(root_tools=[taken, given]), Models(turns))
    assert "TypeError: taken: its arguments must be values such as texts" in outputs[0]
    assert outputs[1] == "Out[2]: '{1, 2}'"
    assert "what given returned cannot be sent: keys must be str" in outputs[2]
    assert "udfff" in outputs[3]
    assert state["final_answer"] == "<class 'object'>"


async def test_memory_is_bounded():
    turns = [code("b = bytearray(1 << 30)"), code("1"), answer("1")]
    _, outputs = await rolled(made(sandbox_memory_gb=0.5), Models(turns))
    assert outputs[0].endswith("MemoryError")
    assert outputs[1] == "Out[2]: 1"


async def test_no_key_of_the_caller_reaches_the_code(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("HF_TOKEN", "hf-secret")
    turns = [code("import os\nprint(dict(os.environ))"), answer("1")]
    _, outputs = await rolled(made(sandbox_environment_vars={"GIVEN": "yes"}), Models(turns))
    assert "secret" not in outputs[0]
    assert "'GIVEN': 'yes'" in outputs[0]


async def test_a_rollout_leaves_no_process_and_no_folder():
    turns = [
        code("import os, subprocess\nchild = subprocess.Popen(['sleep', '60'])\nprint(os.getpid(), child.pid)"),
        answer("1"),
    ]
    state, outputs = await rolled(made(), Models(turns))
    assert await gone(*outputs[0].split())
    assert not Path(state["rlm_rollout_dir"]).exists()


async def test_a_cancelled_rollout_leaves_no_process_and_no_folder(tmp_path):
    note = tmp_path / "pids"
    text = (
        "import os, subprocess, time\nchild = subprocess.Popen(['sleep', '60'])\n"
        f"with open({str(note)!r} + '_', 'w') as file: file.write(f'{{os.getpid()}} {{child.pid}} {{os.getcwd()}}')\n"
        f"os.rename({str(note)!r} + '_', {str(note)!r})\ntime.sleep(60)"
    )
    env = made()
    task = asyncio.create_task(env.rollout(env.eval_rows()[0], Models([code(text)]), "root"))
    await until(note.exists, by=task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    own, child, folder = note.read_text().split()
    assert await gone(own, child)
    assert not Path(folder).exists()


async def test_the_interpreter_ends_when_its_caller_is_killed(tmp_path):
    program = (
        "import asyncio, os, pathlib\nfrom verifiers.envs.interpreter import Interpreter, Settings\n"
        "async def main():\n"
        f"    folder = pathlib.Path({str(tmp_path)!r})\n"
        "    interpreter = Interpreter(Settings(folder, folder))\n"
        "    await interpreter.start()\n"
        "    print(interpreter.pid, flush=True)\n"
        "    os._exit(0)\n"
        "asyncio.run(main())"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200)
    assert await gone(int(run.stdout))


# Beginning and end


async def test_the_scaffold_is_in_the_prompt_as_it_was_sent_and_as_it_is_recorded():
    client = Models([answer("1")])
    env = made({"a": [1, 2]}, root_max_completion_tokens=500)
    results = await env.evaluate(client, "root", state_columns=["raw_prompt"])
    (record,) = results.records
    sent = client.requests[0].messages[0].content
    assert sent.startswith(OPENING) and sent.endswith("What is the code?")
    assert record.prompt[0]["content"] == sent
    assert record.state_columns["raw_prompt"][0]["content"] == "What is the code?"
    assert "`context.json`" in sent and "500" in sent


def test_the_scaffold_stands_once_before_the_first_user_message():
    system = {"role": "system", "content": "s"}
    text = f"{OPENING} …"
    (kept, first) = with_scaffold([system, {"role": "user", "content": "q"}], text)
    assert kept == system and first["content"] == text + "q"
    assert with_scaffold([kept, first], text) == [kept, first]
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    (parts,) = with_scaffold([{"role": "user", "content": [image]}], text)
    assert parts["content"] == [{"type": "text", "text": text}, image]
    assert with_scaffold([parts], text) == [parts]
    assert [m["role"] for m in with_scaffold([system], text)] == ["system", "user"]


async def test_the_context_is_a_file_and_a_variable():
    text = "one\r\ntwo\n"
    turns = [code("context, open('context.txt', newline='').read() == context"), answer("1")]
    _, outputs = await rolled(made(text), Models(turns))
    assert outputs[0] == f"Out[1]: ({text!r}, True)"
    _, outputs = await rolled(made({"a": [1]}), Models([code("context['a'][0]"), answer("1")]))
    assert outputs[0] == "Out[1]: 1"


async def test_a_folder_of_context_is_copied(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("kept")
    row = {"info": {"context_dir": str(tmp_path)}}
    turns = [code("open('in/a.txt').read()"), code("import shutil\nshutil.rmtree('in')"), answer("1")]
    _, outputs = await rolled(made(), Models(turns), **row)
    assert outputs[0] == "Out[1]: 'kept'"
    assert (tmp_path / "in" / "a.txt").exists()


async def test_a_folder_with_a_link_is_refused(tmp_path):
    (tmp_path / "a").symlink_to("/etc")
    state, _ = await rolled(made(), Models([answer("1")]), info={"context_dir": str(tmp_path)})
    assert "holds a link" in str(state["error"])
    assert state["trajectory"] == []
    assert not Path(state["rlm_rollout_dir"]).exists()


async def test_the_conversation_lies_beside_the_data():
    turns = [code("import json\n[json.loads(line)['role'] for line in open('.messages')]"), answer("1")]
    _, outputs = await rolled(made(), Models(turns))
    assert outputs[0] == "Out[1]: ['user', 'assistant']"


async def test_without_a_final_mark_the_answer_is_the_last_one_written():
    state, _ = await rolled(made(max_turns=2), Models([code("answer['content'] = 'draft'"), code("never run")]))
    assert state["final_answer"] == "draft"
    assert state["stop_condition"] == "max_turns_reached"
    state, _ = await rolled(made(), Models([code("answer['content'] = 'draft'"), "I am done."]))
    assert state["final_answer"] == "draft"
    assert state["stop_condition"] == "no_tools_called"
    state, _ = await rolled(made(), Models(["I am done."]))
    assert state["final_answer"] == ""


async def test_the_root_models_token_budget_ends_the_rollout_with_what_there_is():
    state, _ = await rolled(
        made(root_max_completion_tokens=1), Models([code("answer['content'] = 'draft'"), answer("1")])
    )
    assert state["final_answer"] == "draft"
    assert len(state["trajectory"]) == 1


async def test_max_turns_in_context_ends_the_rollout():
    state, _ = await rolled(made(max_turns_in_context=2), Models([code("1")] * 5))
    assert len(state["trajectory"]) == 2
    assert state["max_turns_in_context_stopped"] is True


async def test_the_model_is_warned_once_when_its_context_is_nearly_full():
    env = made(max_seq_len=1000, context_warning_threshold=0.1)
    _, outputs = await rolled(env, Models([code("1"), code("2"), answer("1")]))
    assert "of 1,000 tokens. Set answer['ready'] = True soon." in outputs[0]
    assert outputs[1] == "Out[2]: 2"


async def test_a_package_that_is_not_installed_is_the_sandboxs_failure():
    env = made(pip_install_packages="pytest no-such-package-anywhere>=1")
    (record,) = (await env.evaluate(Models([answer("1")]), "root")).records
    assert record.errors[0].side == "sandbox"
    assert "uv pip install no-such-package-anywhere>=1" in record.errors[0].message
    assert record.reward is None


# bash


async def test_bash_keeps_variables_and_folder_and_calls_tools():
    def added(a: int, b: int) -> int:
        """Adds."""
        return a + b

    client = Models(
        [
            bash("x=3; mkdir -p sub; cd sub; echo in $(basename $PWD)"),
            bash('echo $x $(basename $PWD); added 1 2; added --json \'{"a": 1, "b": 5}\'; added 1'),
            bash("llm_batch 'one thing' two; printf 'three\\nfour\\n' | llm_batch --lines"),
            bash("cat; exit 3"),
            bash('echo "[$x]"; false'),
            bash("export ANSWER_CONTENT=7361\nANSWER_READY=1"),
        ],
        lambda request: request.messages[-1].content.upper(),
    )
    state, outputs = await rolled(made("text", repl_language="bash", root_tools=[added]), client)
    assert outputs[0] == "in sub"
    assert outputs[1].startswith("3 sub\n3\n6\n") and "TypeError" in outputs[1]
    assert outputs[2] == '["ONE THING", "TWO"]\n["THREE", "FOUR"]'
    assert "the shell ended with status 3" in outputs[3]
    assert outputs[4] == "[]\n(exit status 1)"
    assert state["final_answer"] == "7361"
    assert state["stop_condition"] == "answer_ready"


@steady(0.2)
async def test_a_command_that_takes_too_long_is_killed_and_the_shell_started_again():
    turns = [bash("x=1; sleep 60 & sleep 60"), bash("echo [$x]"), bash("RLM_CONTENT=a; RLM_READY=1")]
    state, outputs = await rolled(made(repl_language="bash", code_execution_timeout=1), Models(turns))
    assert "The interpreter was started again" in outputs[0]
    assert outputs[1] == "[]"
    assert state["final_answer"] == "a", "the names before 0.1.12"
