"""Small agents: programs with nothing but the standard library that ask a model at the address they are given."""

PRELUDE = '''
import json, os, sys, threading, time, urllib.error, urllib.request

BASE = os.environ["OPENAI_BASE_URL"]


def post(path, body, key=os.environ["OPENAI_API_KEY"], timeout=250):
    """The status and what was answered, decoded."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
    request = urllib.request.Request(BASE[: -len("/v1")] + path, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def ask(messages, path="/v1/chat/completions", **more):
    """The reply's message; prints a refusal and ends."""
    status, answer = post(path, {"model": os.environ["OPENAI_MODEL"], "messages": messages, **more})
    if status != 200:
        print(status, answer["error"]["code"], flush=True)
        sys.exit(0)
    return answer["choices"][0]["message"]


def user(text):
    return {"role": "user", "content": text}


task = open(os.environ["VF_PROMPT_FILE"]).read()
'''

# A conversation that goes on until it is refused.
ENDLESS = """
messages = [user(task)]
while True:
    messages.append(ask(messages))
    open("said.txt", "a").write("x")
    messages.append(user("go on"))
"""

# What a program that was written for a real server does, by the openai package.
OPENAI = """
import json, os
from openai import OpenAI

client, model = OpenAI(), os.environ["OPENAI_MODEL"]
names = [found.id for found in client.models.list()]
function = {"name": "add", "parameters": {"type": "object", "properties": {"a": {}, "b": {}}}}
tools = [{"type": "function", "function": function}]
task = open(os.environ["VF_PROMPT_FILE"]).read()
messages = [{"role": "system", "content": "Add."}, {"role": "user", "content": task}]
reply = client.chat.completions.create(model=model, messages=messages, tools=tools, temperature=0)
message = reply.choices[0].message
(call,) = message.tool_calls
numbers = json.loads(call.function.arguments)
messages += [message, {"role": "tool", "tool_call_id": call.id, "content": str(numbers["a"] + numbers["b"])}]
text, total = "", None
options = {"stream": True, "stream_options": {"include_usage": True}}
for chunk in client.chat.completions.create(model=model, messages=messages, tools=tools, **options):
    text += "".join(choice.delta.content or "" for choice in chunk.choices)
    total = chunk.usage.total_tokens if chunk.usage else total
calls = []
for chunk in client.chat.completions.create(model=model, messages=messages[:2], tools=tools, stream=True):
    calls += [call for choice in chunk.choices for call in choice.delta.tool_calls or ()]
found = {"models": names, "text": text, "finish": reply.choices[0].finish_reason, "total": total}
found["streamed"] = [[call.index, call.function.name, call.function.arguments] for call in calls]
open("found.json", "w").write(json.dumps(found))
"""


def agent(body: str) -> str:
    return PRELUDE + body
