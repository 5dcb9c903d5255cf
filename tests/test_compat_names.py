"""Names and import paths of classic releases: all of them import; those with nothing behind them raise when used."""
# pyright: reportMissingImports=false
# the old paths have no files: that is what is tested

import asyncio
import importlib
import inspect
import json
import logging
import os
import pickle
import subprocess
import sys

import pytest

import verifiers as vf
from verifiers.clients import ScriptedClient
from verifiers.compat.not_here import INSTEAD
from verifiers.compat.old_paths import HOMES, OLD
from verifiers.types import State, as_message

# What public environments import, `module:name`.
USED = """
    verifiers.types:Messages verifiers.types:State verifiers.types:Info verifiers.types:Message
    verifiers.types:ChatMessage verifiers.types:ClientConfig verifiers.types:Response verifiers.types:UserMessage
    verifiers.types:ChatCompletionMessageToolCall verifiers.types:ProcessedOutputs verifiers.types:RewardFunc
    verifiers.types:RolloutScores verifiers.types:RolloutScore verifiers.types:TrajectoryStep
    verifiers.utils.data_utils:extract_boxed_answer verifiers.utils.data_utils:BOXED_SYSTEM_PROMPT
    verifiers.utils.data_utils:load_example_dataset verifiers.utils.data_utils:THINK_BOXED_SYSTEM_PROMPT
    verifiers.parsers.parser:Parser verifiers.parsers.xml_parser:XMLParser verifiers.parsers.think_parser:ThinkParser
    verifiers.rubrics.judge_rubric:JudgeRubric verifiers.rubrics.rubric:Rubric
    verifiers.rubrics.math_rubric:MathRubric verifiers.rubrics.experimental.hybrid_math_rubric:HybridMathRubric
    verifiers.envs.environment:Environment verifiers.envs.multiturn_env:MultiTurnEnv
    verifiers.envs.singleturn_env:SingleTurnEnv verifiers.envs.stateful_tool_env:StatefulToolEnv
    verifiers.envs.stateful_tool_env:filter_signature verifiers.envs.tool_env:ToolEnv
    verifiers.envs.sandbox_env:SandboxEnv verifiers.envs.sandbox_env:AdvancedConfigs
    verifiers.envs.sandbox_env:SandboxState verifiers.envs.experimental.rlm_env:RLMEnv
    verifiers.envs.experimental.composable:ComposableEnv
    verifiers.envs.experimental.composable.harnesses.opencode:opencode_harness
    verifiers.envs.experimental.composable.harnesses.opencode:DEFAULT_DISABLED_TOOLS
    verifiers.envs.experimental.composable.harnesses.rlm:DEFAULT_RLM_MAX_TURNS
    verifiers.envs.experimental.composable.harnesses.rlm:rlm_harness
    verifiers.envs.experimental.composable.task:SandboxSpec verifiers.envs.experimental.composable.task:SandboxTaskSet
    verifiers.envs.experimental.composable.tasksets.math:MathTaskSet
    verifiers.envs.experimental.composable.tasksets.swe:make_swe_taskset
    verifiers.envs.experimental.composable.tasksets.cp:CPTaskSet
    verifiers.envs.experimental.composable.tasksets.lean:LEAN_SYSTEM_PROMPT
    verifiers.envs.experimental.composable.tasksets.lean:LeanTaskSet
    verifiers.envs.experimental.sandbox_mixin:SandboxMixin
    verifiers.envs.experimental.sandbox_mixin:is_retryable_sandbox_api_error
    verifiers.envs.experimental.sandbox_mixin:is_retryable_sandbox_read_error
    verifiers.envs.experimental.harbor_env:HarborEnv verifiers.envs.experimental.cli_agent_env:CliAgentEnv
    verifiers.envs.experimental.gym_env:EpisodicSumRubric verifiers.envs.experimental.mcp_env:MCPEnv
    verifiers.envs.experimental.opencode_env:OpenCodeEnv verifiers.envs.experimental.opencode_qa_env:OpenCodeQAEnv
    verifiers.envs.integrations.browser_env:BrowserEnv verifiers.envs.integrations.textarena_env:TextArenaEnv
    verifiers.utils.async_utils:maybe_await verifiers.utils.client_utils:load_prime_config
    verifiers.utils.client_utils:setup_openai_client verifiers.utils.error_utils:ErrorChain
    verifiers.utils.tool_utils:convert_func_to_tool_def verifiers.utils.tool_utils:is_valid_tool_content_parts
    verifiers.utils.eval_utils:quiet_datasets verifiers.utils.logging_utils:print_time
    verifiers.utils.message_utils:normalize_messages verifiers.utils.path_utils:write_temp_file
    verifiers.utils.response_utils:parse_response_messages verifiers.utils.response_utils:parse_response_tokens
    verifiers.utils.rlm_data_serialization_utils:DataSerializer
    verifiers.utils.rlm_data_serialization_utils:build_custom_serializer
    verifiers:GRPOTrainer verifiers:grpo_defaults verifiers:get_model_and_tokenizer verifiers:OpenEnvEnv
    verifiers:PythonEnv verifiers:ToolRubric verifiers:GymEnv verifiers:ReasoningGymEnv verifiers:InfraError
    verifiers:SandboxError verifiers:Error verifiers:load_example_dataset verifiers:setup_logging verifiers:log_level
    verifiers:quiet_verifiers verifiers:print_prompt_completions_sample verifiers:get_model verifiers:GRPOConfig
    verifiers:RLTrainer verifiers:RLConfig verifiers:lora_defaults verifiers:AnthropicMessagesClient
"""


@pytest.mark.parametrize("used", USED.split())
def test_what_public_environments_import_is_there(used):
    path, _, name = used.partition(":")
    assert getattr(importlib.import_module(path), name) is not None


@pytest.mark.parametrize("path", OLD)
def test_every_name_of_an_old_module_is_found(path):
    module = importlib.import_module(path)
    for name in OLD[path]:
        assert getattr(module, name) is not None, name


ABSENT = [
    (path, name)
    for path, names in OLD.items()
    for name in sorted(names)
    if name not in HOMES and name not in vf.__all__
]


@pytest.mark.parametrize(("path", "name"), ABSENT)
def test_a_name_with_nothing_behind_it_raises_when_it_is_used(path, name):
    value = getattr(importlib.import_module(path), name)
    with pytest.raises(vf.NotHere, match=rf"{name} can be imported, but not used: \w.+\.$"):
        value("anything", at="all")


def test_those_names_exist_at_all():
    assert len(ABSENT) > 80
    assert set(INSTEAD) - set(vf.__all__) <= {name for _, name in ABSENT}


def test_a_module_that_builds_on_an_absent_class_imports_and_its_environment_says_what_to_use():
    class Mine(vf.BrowserEnv, vf.MultiTurnEnv):
        begun = False

        def __init__(self, **kwargs):
            type(self).begun = True
            super().__init__(**kwargs)

        @vf.stop
        async def done(self, state):
            return True

    with pytest.raises(vf.NotHere, match="StatefulToolEnv"):
        Mine(dataset=[{"question": "?"}])
    assert not Mine.begun


def test_errors_of_absent_parts_can_be_caught():
    from verifiers.envs.experimental.sandbox_mixin import SandboxNotReadyError

    with pytest.raises(SandboxNotReadyError):
        raise SandboxNotReadyError("no container")
    assert issubclass(SandboxNotReadyError, vf.SandboxError)


def test_a_name_that_no_release_had_is_an_import_error():
    with pytest.raises(ImportError, match="cannot import name 'extract_everything'"):
        from verifiers.utils.data_utils import extract_everything  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match=r"verifiers\.utils\.no_such_utils"):
        importlib.import_module("verifiers.utils.no_such_utils")
    with pytest.raises(AttributeError, match="Rubrik"):
        vf.Rubrik  # noqa: B018


def test_an_old_path_gives_the_class_itself_and_not_a_copy():
    from verifiers.envs.experimental import mcp_env  # noqa: F401
    from verifiers.legacy.envs.multiturn_env import MultiTurnEnv as legacy
    from verifiers.rubrics.experimental.hybrid_math_rubric import HybridMathRubric
    from verifiers.utils.env_utils import load_environment

    assert legacy is vf.MultiTurnEnv
    assert HybridMathRubric is vf.HybridMathRubric
    assert load_environment is vf.load_environment
    assert vf.utils.data_utils.extract_boxed_answer is vf.extract_boxed_answer
    assert vf.types.State is State


def test_a_module_that_got_old_names_is_still_the_file():
    from verifiers import types

    assert inspect.getsource(types.as_message).startswith("def as_message")
    assert pickle.loads(pickle.dumps(State(a=1))) == {"a": 1}


def test_a_star_import_of_an_old_module_gives_its_names():
    namespace = {}
    exec("from verifiers.utils.error_utils import *", namespace)
    assert {"ErrorChain", "get_error_chain", "get_vf_error_chain"} <= namespace.keys()


def test_importing_the_package_loads_no_table_of_things_but_the_finder():
    code = "import sys, verifiers; print(*sorted(n for n in sys.modules if n.startswith('verifiers')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "verifiers",
        "verifiers.compat",
        "verifiers.compat.old_paths",
        "verifiers.compat.paths",
    ]


def test_the_finder_is_registered_once_and_leaves_other_imports_alone():
    from verifiers.compat.paths import OldPaths, install

    install()
    (finder,) = [f for f in sys.meta_path if isinstance(f, OldPaths)]
    assert finder.find_spec("json") is None
    assert finder.find_spec("verifiersx.types") is None


# What is behind the names


def test_the_error_chain_knows_the_causes():
    try:
        try:
            raise ValueError("inner")
        except ValueError as inner:
            raise vf.InfraError("outer") from inner
    except vf.InfraError as outer:
        chain = vf.ErrorChain(outer)
    assert (str(chain), ValueError in chain, KeyError in chain) == ("InfraError -> ValueError", True, False)
    assert chain == vf.ErrorChain(chain.root_error)


def test_messages_of_any_kind_become_ours():
    assert vf.normalize_messages("text")[0] == {"role": "text", "content": "text"}
    (message,) = vf.normalize_messages([{"role": "user", "content": "hi"}])
    assert (message.role, message["content"]) == ("user", "hi")
    with pytest.raises(TypeError, match="prompt: a message"):
        vf.normalize_messages([1], field_name="prompt")


async def test_replies_of_ours_and_of_the_openai_package_are_read_alike():
    from openai.types.chat import ChatCompletion
    from verifiers.utils.response_utils import parse_response_message, parse_response_messages, parse_response_tokens

    theirs = ChatCompletion.model_validate(
        {
            "id": "1", "object": "chat.completion", "created": 1, "model": "m", "prompt_token_ids": [1, 2, 3],
            "choices": [
                {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"},
                 "token_ids": [4, 5],
                 "logprobs": {"content": [{"token": "h", "logprob": -0.5, "top_logprobs": []},
                                          {"token": "i", "logprob": -0.25, "top_logprobs": []}]}}
            ],
        }
    )  # fmt: skip
    ours = vf.Response(vf.AssistantMessage("hi"))
    assert await parse_response_messages(theirs, "chat") == await parse_response_messages(ours, "chat")
    assert await parse_response_message(ours) == [{"role": "assistant", "content": "hi"}]
    assert await parse_response_tokens(ours, "chat") is None
    whole = await parse_response_tokens(theirs, "chat")
    assert (whole["completion_ids"], whole["completion_logprobs"]) == ([4, 5], [-0.5, -0.25])
    cut = await parse_response_tokens(theirs, 4)
    assert (cut["completion_ids"], cut["completion_mask"], cut["is_truncated"]) == ([4], [1], True)
    overlong = await parse_response_tokens(theirs, max_seq_len=2)
    assert (overlong["prompt_ids"], overlong["completion_ids"], overlong["overlong_prompt"]) == ([1, 2], [], True)


def test_tools_from_functions_and_signatures_without_arguments():
    def search(query: str, session: object) -> str:
        """Search."""
        return query + str(session)

    shown = vf.filter_signature(search, ["session"])
    assert list(inspect.signature(shown).parameters) == ["query"]
    assert shown("a", session=1) == "a1"
    tool = vf.convert_func_to_tool_def(shown)
    assert (tool.name, tool.description, list(tool.parameters["properties"])) == ("search", "Search.", ["query"])


async def test_an_openai_client_is_made_of_a_description(monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret-key")
    config = vf.ClientConfig(
        api_key_var="MY_KEY",
        api_base_url="http://127.0.0.1:1/v1",
        client_idx=1,
        endpoint_configs=[{"api_base_url": f"http://127.0.0.1:{port}/v1"} for port in (2, 3)],
    )
    async with vf.setup_openai_client(config) as client:
        assert (str(client.base_url), client.api_key) == ("http://127.0.0.1:3/v1/", "secret-key")


def test_the_log_level_is_changed_for_a_while_and_handlers_are_replaced(capsys):
    logger = logging.getLogger("verifiers")
    before = logger.level, list(logger.handlers), logger.propagate
    try:
        vf.setup_logging("INFO")
        vf.setup_logging("INFO", json_logging=True)
        logger.info("heard")
        with vf.quiet_verifiers():
            logger.info("not heard")
        with vf.log_level("DEBUG"):
            logger.debug("heard too")
        lines = capsys.readouterr().err.splitlines()
        assert [json.loads(line)["message"] for line in lines] == ["heard", "heard too"]
        with pytest.raises(ValueError, match="no log level 'LOUD'"):
            vf.setup_logging("LOUD")
    finally:
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.handlers, logger.propagate = before[1], before[2]


def test_a_sample_shows_what_is_unscored_as_unscored(capsys):
    prompts = [[{"role": "user", "content": "2 + 2?"}]] * 2
    completions = [[{"role": "assistant", "content": "4"}], "5"]
    vf.print_prompt_completions_sample(prompts, completions, [None, vf.InfraError("down")], [1.0, None], 3, 2)
    shown = capsys.readouterr().out
    assert "assistant: 4" in shown and "reward: 1.00" in shown
    assert "error: down" in shown and "reward: unscored" in shown


ROWS = {
    "gsm8k": ({"question": "How many?", "answer": "3 + 4 = 7\n#### 7"}, "How many?", "7"),
    "math": ({"problem": "x?", "solution": r"So \boxed{\frac{1}{2}}."}, "x?", r"\frac{1}{2}"),
    "math500": ({"problem": "x?", "answer": "2"}, "x?", "2"),
    "aime2024": ({"problem": "x?", "answer": "033"}, "x?", "33"),
    "aime2025": ({"question": "x?", "answer": "$70$"}, "x?", "70"),
    "mmlu": ({"question": "q", "choices": ["a", "b"], "answer": 1}, "Question: q\n\nA: a\nB: b", "B"),
    "mmlu_pro": ({"question": "q", "options": ["a", "b"], "answer": "A"}, "Question: q\n\nA: a\nB: b", "A"),
    "openbookqa": (
        {"question_stem": "q", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "B"},
        "Question: q\n\nChoices:\nA. x\nB. y",
        "B",
    ),
    "prime_code": ({"prompt": "p", "verification_info": "{}"}, "p", "{}"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_an_example_dataset_becomes_question_and_answer(name):
    from verifiers.utils.data_utils import get_preprocess_fn

    raw, question, answer = ROWS[name]
    assert get_preprocess_fn(name)(raw) == {"question": question, "answer": answer}


def test_the_options_of_a_question_are_in_the_same_order_in_every_run_and_the_right_one_is_not_always_first():
    from verifiers.utils.data_utils import get_preprocess_fn

    read = get_preprocess_fn("gpqa_diamond")
    answers = set()
    for number in range(20):
        wrong = {f"Incorrect Answer {n}": f"wrong {n}" for n in (1, 2, 3)}
        row = {"Question": f"q{number}", "Correct Answer": "right", **wrong}
        assert read(row) == read(row)
        answers.add(read(row)["answer"])
        assert f"{read(row)['answer']}: right" in read(row)["question"]
    assert len(answers) > 1


def test_an_example_dataset_is_loaded_and_one_that_cannot_be_says_why(tmp_path):
    """A folder of the dataset's name in the working folder is what `datasets` loads, so no network is needed."""
    folder = tmp_path / "openai" / "gsm8k"
    folder.mkdir(parents=True)
    rows = [{"question": f"{n} + 1?", "answer": f"#### {n + 1}"} for n in range(5)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: main\n  data_files:\n  - split: test\n    path: rows.jsonl\n---\n"
    )
    code = (
        "import verifiers as vf\n"
        "rows = vf.load_example_dataset('gsm8k', n=3)\n"
        "print(rows.column_names, len(rows), all(int(r['answer']) == int(r['question'][0]) + 1 for r in rows))\n"
        "for name in ('math500', 'no-such'):\n"
        "    try:\n"
        "        vf.load_example_dataset(name)\n"
        "    except vf.DatasetError as error:\n"
        "        print(error)\n"
    )
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded, offline, unknown = done.stdout.splitlines()
    assert loaded == "['question', 'answer'] 3 True"
    assert offline.startswith("example dataset 'math500' (HuggingFaceH4/MATH-500, split 'test') cannot be loaded")
    assert unknown.startswith("no example dataset 'no-such' (there are: aime2024,")


# HybridMathRubric


def scored(rubric, text, answer="4"):
    state = State(
        input={"prompt": "2 + 2?", "answer": answer}, completion=[as_message({"role": "assistant", "content": text})]
    )
    asyncio.run(rubric.score_rollout(state))
    return state


def test_without_a_judge_the_rules_decide():
    rubric = vf.HybridMathRubric()
    assert scored(rubric, r"\boxed{8/2}")["reward"] == 1.0
    assert scored(rubric, r"\boxed{5}")["reward"] == 0.0


def test_the_judge_is_not_asked_what_the_rules_accepted_nor_about_no_answer():
    judge = ScriptedClient("no")
    rubric = vf.HybridMathRubric(use_judge_fallback=True, judge_client=judge)
    assert scored(rubric, r"\boxed{4}")["reward"] == 1.0
    assert scored(rubric, "I do not know")["reward"] == 0.0
    assert judge.requests == []


@pytest.mark.parametrize(("reply", "reward"), [("yes", 1.0), ("No.", 0.0), ("A", 1.0), (r"So \boxed{B}", 0.0)])
def test_the_judge_decides_what_the_rules_refused(reply, reward):
    rubric = vf.HybridMathRubric(use_judge_fallback=True, judge_client=ScriptedClient(reply), canaries=())
    state = scored(rubric, r"\boxed{\text{four}}")
    assert state["reward"] == reward
    assert (state["metrics"]["math_verify_score"], state["metrics"]["judge_score"]) == (0.0, reward)


def test_a_judge_that_says_neither_leaves_the_rollout_unscored():
    rubric = vf.HybridMathRubric(use_judge_fallback=True, judge_client=ScriptedClient("Perhaps."), canaries=())
    state = scored(rubric, r"\boxed{\text{four}}")
    assert state["reward"] is None
    assert {score.status for score in state["scores"][1:]} == {"undecided"}


# ToolRubric


def test_a_tool_rubric_of_the_author_counts_each_call_once():
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    env = vf.ToolEnv(dataset=[{"question": "1 + 2?", "answer": "3"}], tools=[add], rubric=vf.ToolRubric(tools=[add]))
    call = vf.ToolCall("c1", "add", '{"a": 1, "b": 2}')
    results = env.evaluate_sync(ScriptedClient([vf.AssistantMessage(tool_calls=[call]), "3"]), model="m")
    metrics = results["outputs"][0]["metrics"]
    assert (metrics["total_tool_calls"], metrics["add_calls"]) == (1.0, 1.0)


async def test_an_episodic_sum_adds_what_the_turns_earned():
    from verifiers.envs.experimental.gym_env import EpisodicSumRubric

    state = State(
        input={"prompt": "go"}, completion=[], trajectory=[{"reward": 1.0}, {"reward": None}, {"reward": 0.5}]
    )
    await EpisodicSumRubric(weight=2.0).score_rollout(state)
    assert state["reward"] == 3.0


BORROWED = """
    verifiers.envs.multiturn_env:Messages verifiers.envs.tool_env:convert_func_to_tool_def
    verifiers.envs.stateful_tool_env:ChatCompletionMessageToolCall verifiers.envs.environment:GenerateOutputs
    verifiers.rubrics.rubric:RolloutScores verifiers.rubrics.judge_rubric:Parser verifiers.parsers.parser:ChatMessage
    verifiers.parsers.xml_parser:Messages verifiers.utils.decorators:stop verifiers.types:ChatMessages
    verifiers.utils.response_utils:parse_is_truncated verifiers.utils.tools:python
"""


@pytest.mark.parametrize("used", BORROWED.split())
def test_a_name_that_one_old_module_took_from_another_is_found_there_too(used):
    path, _, name = used.partition(":")
    assert getattr(importlib.import_module(path), name) is not None


def test_modules_are_reached_as_attributes_without_importing_them():
    program = (
        "import verifiers as vf; print(vf.envs.multiturn_env.MultiTurnEnv.__name__, "
        "vf.rubrics.judge_rubric.JudgeRubric.__name__, vf.parsers.think_parser.ThinkParser.__name__, "
        "vf.utils.data_utils.extract_boxed_answer(r'\\boxed{4}'), hasattr(vf.envs, 'no_such_env'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["MultiTurnEnv", "JudgeRubric", "ThinkParser", "4", "False"]


async def test_a_function_is_tried_again_after_an_error_that_may_pass():
    from verifiers.utils.async_utils import maybe_retry

    tries = []

    async def rollout(number):
        tries.append(number)
        if len(tries) == 1:
            raise vf.InfraError("down")
        return {"error": vf.InfraError("still down") if len(tries) == 2 else None}

    assert await maybe_retry(rollout, max_retries=3, initial=0.001)(7) == {"error": None}
    assert tries == [7, 7, 7]
    tries.clear()
    with pytest.raises(vf.InfraError):
        await maybe_retry(rollout)(7)
    tries.clear()
    last = await maybe_retry(rollout, max_retries=1, initial=0.001)(7)
    assert isinstance(last["error"], vf.InfraError)


async def test_an_error_that_will_not_pass_is_not_tried_again():
    from verifiers.utils.async_utils import maybe_retry

    async def broken():
        tries.append(1)
        raise ValueError("broken")

    tries = []
    with pytest.raises(ValueError, match="broken"):
        await maybe_retry(broken, max_retries=3)()
    assert tries == [1]


def test_the_example_tools_work_and_say_what_went_wrong():
    from verifiers.utils.tools import calculator, python, search

    assert calculator("3 * (17 + 4)") == "63"
    assert calculator("__import__('os')").startswith("Error") and calculator("1 / 0").startswith("Error")
    assert calculator("9**9**9**9**9**9**9").startswith("Error")
    assert python("print(sum(range(5)))") == "10"
    assert "NameError" in python("print(nothing)")
    assert len(python("print('x' * 5000)")) == 1001
    with pytest.raises(vf.NotHere):
        search("anything")


async def test_parts_lose_their_empty_fields_and_a_reply_tells_whether_it_was_cut():
    from verifiers.utils.message_utils import strip_nones_from_content
    from verifiers.utils.response_utils import parse_is_truncated

    [kept] = strip_nones_from_content([{"role": "user", "content": [{"type": "text", "text": "a", "image_url": None}]}])
    assert kept["content"] == [{"type": "text", "text": "a"}] and strip_nones_from_content("a") == "a"
    env = vf.SingleTurnEnv(dataset=[{"question": "q"}])
    state = await env.rollout(env.train_rows()[0], ScriptedClient(["a"]), "m")
    assert await parse_is_truncated(state["trajectory"][0]["response"]) is False


def test_settings_of_a_hosted_sandbox_can_be_filled_in():
    from verifiers.envs.sandbox_env import AdvancedConfigs

    assert AdvancedConfigs(user_id=3).user_id == 3
