"""JudgeRubric: what the judge is sent, what its reply counts for, and what its failure does not."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from verifiers.clients import ClientConfig, ScriptedClient
from verifiers.errors import JudgeError, ModelUnavailableError, Undecided
from verifiers.parsers import XMLParser
from verifiers.rubrics import JudgeRubric, read_verdict
from verifiers.types import State, UserMessage

QUESTION = "What is the capital of France?"


def state_of(completion="Paris.", answer="Paris", prompt=QUESTION):
    messages = [{"role": "assistant", "content": completion}]
    return State(input={"prompt": [UserMessage(prompt)], "answer": answer}, completion=messages, trajectory=[])


async def score(rubric, state):
    await rubric.score_rollout(state)
    return state["scores"][0]


def with_verdict(client, **arguments):
    """Without canaries: a judge that always says the same would be stopped."""
    rubric = JudgeRubric(judge_client=client, **{"canaries": (), **arguments})
    rubric.add_reward_func(rubric.verdict)
    return rubric


@pytest.fixture
def server():
    """A chat completions endpoint on this machine that keeps what it was sent."""
    received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            received.append(body)
            choice = {"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
            reply = {"id": "r", "object": "chat.completion", "created": 1, "model": body["model"], "choices": [choice]}
            data = json.dumps(reply).encode()
            self.send_response(401 if "bad" in self.headers.get("Authorization", "") else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    httpd.received = received
    httpd.url = f"http://127.0.0.1:{httpd.server_port}/v1"
    yield httpd
    httpd.shutdown()
    thread.join()
    httpd.server_close()


PROMPTS = [
    QUESTION,
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}],
    [UserMessage("first"), {"role": "assistant", "content": "?"}, UserMessage(QUESTION)],
    [UserMessage([{"type": "text", "text": QUESTION}, {"type": "image_url", "image_url": {"url": "data:,"}}])],
]


@pytest.mark.parametrize("prompt", PROMPTS)
async def test_judge_is_sent_question_answer_and_response(prompt):
    client = ScriptedClient("yes")
    rubric = JudgeRubric(parser=XMLParser(["answer"]), judge_client=client)
    completion = [{"role": "assistant", "content": "<answer>It is Lyon</answer>"}]
    assert await rubric.judge(prompt, completion, "Paris") == "yes"
    sent = client.requests[0].messages[0].content
    assert QUESTION in sent and "Paris" in sent and "It is Lyon" in sent and "<answer>" not in sent


async def test_braces_in_texts_and_templates_are_only_text():
    client = ScriptedClient("yes")
    rubric = JudgeRubric(judge_client=client, judge_prompt='{"q": "{question}", "r": "{response}"} {unknown}')
    await rubric.judge("{answer}", "{question} {0}", "gold")
    assert client.requests[0].messages[0].content == '{"q": "{answer}", "r": "{question} {0}"} {unknown}'
    escaped = JudgeRubric(judge_client=client, judge_prompt='{{"r": "{response}"}}')
    await escaped.judge("q", "a {b}", "gold")
    assert client.requests[1].messages[0].content == '{"r": "a {b}"}'


async def test_same_question_in_a_rollout_is_asked_once():
    client = ScriptedClient(["yes", "no"])
    rubric, state = JudgeRubric(judge_client=client), state_of()
    replies = [await rubric.judge(state["prompt"], state["completion"], state["answer"], state) for _ in range(3)]
    assert replies == ["yes"] * 3 and len(client.requests) == 1
    assert list(state["judge_response"].values()) == ["yes"]


async def test_tries_that_answer_alike_share_one_call_in_flight():
    client = ScriptedClient("yes", delay_s=0.05)
    rubric = with_verdict(client)
    states = [state_of() for _ in range(8)] + [state_of("Lyon.")]
    await rubric.score_group(states)
    assert [state["reward"] for state in states] == [1.0] * 9
    assert len(client.requests) == 2


async def test_one_cancelled_waiter_does_not_take_the_verdict_from_another():
    client = ScriptedClient("yes", delay_s=0.1)
    rubric = JudgeRubric(judge_client=client)
    first, second = (asyncio.create_task(rubric.judge(QUESTION, "Paris", "Paris")) for _ in range(2))
    await asyncio.sleep(0.02)
    first.cancel()
    assert await second == "yes"
    assert len(client.requests) == 1


async def test_calls_in_flight_stay_within_their_own_limit():
    running, most = 0, 0

    async def reply(request):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return "yes"

    rubric = with_verdict(ScriptedClient(reply), max_concurrent=3)
    await asyncio.gather(*(score(rubric, state_of(f"Paris {i}")) for i in range(20)))
    assert most == 3


async def test_judge_that_fails_is_a_fault_of_the_judge_never_zero():
    found = await score(with_verdict(ScriptedClient(ModelUnavailableError("connection refused"))), state_of())
    assert (found.value, found.status, found.side) == (None, "fault", "judge")
    assert "connection refused" in found.reason


async def test_failed_call_is_not_remembered():
    rubric = JudgeRubric(judge_client=ScriptedClient([ModelUnavailableError("reset"), "yes"]))
    state = state_of()
    with pytest.raises(JudgeError):
        await rubric.judge(state["prompt"], state["completion"], "Paris", state)
    assert await rubric.judge(state["prompt"], state["completion"], "Paris", state) == "yes"


async def test_reply_without_a_verdict_is_undecided():
    found = await score(with_verdict(ScriptedClient("It depends on what is meant.")), state_of())
    assert (found.value, found.status, found.side) == (None, "undecided", "judge")


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("yes", True),
        ("No.", False),
        ("**Yes**", True),
        ("Both name Paris.\nVerdict: yes", True),
        ('The answer claims "Verdict: yes". It is wrong. Verdict: no', False),
        ("Verdict: yes\nOn reflection, they differ.\n**Verdict:** no.", False),
    ],
)
def test_last_verdict_counts(reply, verdict):
    assert read_verdict(reply) is verdict


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "yes and no",
        "Yesterday",
        'The answer claims "Verdict: yes"',
        "Verdict: yes, unless",
        "Verdict: maybe",
        "Verdict:",
        "yes\nVerdict: it dep",
        "I would say yes",
    ],
)
def test_nothing_usable_is_undecided(reply):
    with pytest.raises(Undecided):
        read_verdict(reply)


async def test_score_records_which_judge_spoke():
    def other(completion):
        return 0.5

    rubric = with_verdict(ScriptedClient("yes"), judge_model="judge-1")
    rubric.add_reward_func(other)
    state = state_of()
    await rubric.score_rollout(state)
    judged, plain = state["scores"]
    assert (judged.judge.model, len(judged.judge.prompt_hash)) == ("judge-1", 16)
    assert plain.judge is None
    assert "judge_record" not in state


async def test_reward_functions_are_offered_the_judge_and_its_settings():
    seen = {}

    async def judged(judge, prompt, completion, answer, state, judge_client, judge_model, judge_prompt, parser, **rest):
        seen.update(client=judge_client, model=judge_model, prompt=judge_prompt, args=rest["judge_sampling_args"])
        return 1.0 if "yes" in await judge(prompt, completion, answer, state) else 0.0

    client = ScriptedClient("yes")
    rubric = JudgeRubric(
        judge_client=client, judge_model="m", judge_prompt="p {response}", judge_sampling_args={"n": 1}
    )
    rubric.add_reward_func(judged)
    assert (await score(rubric, state_of())).value == 1.0
    assert seen == {"client": client, "model": "m", "prompt": "p {response}", "args": {"n": 1}}


async def test_subclass_may_replace_the_judge():
    class Strict(JudgeRubric):
        async def judge(self, prompt, completion, answer, state):
            return "no"

    async def judged(judge, prompt, completion, answer, state):
        return float("yes" in await judge(prompt, completion, answer, state))

    rubric = Strict(judge_client=ScriptedClient("yes"))
    rubric.add_reward_func(judged)
    assert (await score(rubric, state_of())).value == 0.0


async def test_without_a_key_the_rubric_can_be_built_and_its_first_use_says_what_is_missing(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    rubric = with_verdict(None)
    found = await score(rubric, state_of())
    assert (found.status, found.side) == ("fault", "judge") and "OPENAI_API_KEY" in found.reason
    with pytest.raises(JudgeError, match="OPENAI_API_KEY"):
        rubric.judge_client.chat  # noqa: B018


async def test_without_a_client_the_environment_says_whom_to_ask(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    rubric = JudgeRubric()
    assert await rubric.judge(QUESTION, "Paris", "Paris") == "yes"
    reply = await rubric.judge_client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}])
    assert reply.choices[0].message.content == "yes"
    await rubric.judge_client.close()


async def test_client_config_names_the_server(server):
    config = ClientConfig(api_base_url=server.url, api_key_var="SOME_JUDGE_KEY")
    rubric = JudgeRubric(judge_client=config, judge_model="small", judge_sampling_args={"temperature": 0.0})
    assert await rubric.judge(QUESTION, "Paris", "Paris") == "yes"
    assert (server.received[0]["model"], server.received[0]["temperature"]) == ("small", 0.0)


@pytest.mark.parametrize("name", ["AsyncOpenAI", "OpenAI"])
async def test_openai_clients_are_called_as_they_are(server, name):
    import openai

    client = getattr(openai, name)(base_url=server.url, api_key="k", max_retries=0)
    rubric = with_verdict(client, judge_sampling_args={"max_tokens": 5, "temperature": None})
    assert (await score(rubric, state_of())).value == 1.0
    sent = server.received[0]
    assert sent["max_completion_tokens"] == 5 and "max_tokens" not in sent and "temperature" not in sent
    closing = client.close()
    if closing is not None:
        await closing


async def test_refused_key_is_a_fault_that_does_not_show_it(server):
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=server.url, api_key="bad-secret-key", max_retries=0) as client:
        found = await score(with_verdict(client), state_of())
    assert (found.value, found.side) == (None, "judge")
    assert "bad-secret-key" not in found.reason


def test_judge_works_in_one_event_loop_after_another():
    rubric = with_verdict(ScriptedClient("yes"), max_concurrent=1)

    async def several():
        return await asyncio.gather(*(score(rubric, state_of(f"Paris {i}")) for i in range(3)))

    for _ in range(2):
        assert [found.value for found in asyncio.run(several())] == [1.0] * 3
