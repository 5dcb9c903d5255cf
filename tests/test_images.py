"""Images in prompts, in answers of the environment and in tool results: made text once, sent whole, kept once."""

import base64
import json

import pytest
from loopback import Loopback

import verifiers as vf
from verifiers.images import as_part, data_url

Image = pytest.importorskip("PIL.Image", reason="needs the package 'pillow'")


def dot(colour="red", mode="RGB"):
    return Image.new(mode, (2, 2), colour)


def opened(url):
    import io

    head, _, data = url.partition(";base64,")
    return head, Image.open(io.BytesIO(base64.b64decode(data)))


def url_of(part):
    assert part["type"] == "image_url"
    return part["image_url"]["url"]


RED = data_url(dot())
SHOWN = {"type": "image_url", "image_url": {"url": RED}}


@pytest.mark.parametrize(
    "part",
    [
        dot(),
        {"type": "image", "image": dot()},
        {"type": "image_url", "image_url": dot()},
        {"type": "image_url", "image_url": {"url": dot()}},
        {"type": "image_url", "image_url": RED},
        {"type": "image_url", "image_url": {"url": RED, "detail": None}, "text": None},
        {"type": "image", "image": {"bytes": base64.b64decode(RED.partition(",")[2]), "path": None}},
    ],
    ids=["alone", "image", "image_url", "url", "short", "arrow", "undecoded"],
)
def test_every_usual_shape_of_an_image_becomes_one(part):
    assert as_part(part) == SHOWN


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "hi"},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    ],
)
def test_other_parts_stay_as_they_are(part):
    assert as_part(part) == part


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "1", "P", "CMYK", "F"])
def test_a_picture_of_any_mode_can_be_opened_again(mode):
    head, image = opened(data_url(dot(0, mode)))
    assert head == "data:image/png"
    assert image.size == (2, 2)


def test_a_photograph_stays_one():
    import io

    file = io.BytesIO()
    dot().save(file, format="JPEG")
    head, image = opened(data_url(Image.open(file)))
    assert head == "data:image/jpeg"
    assert image.size == (2, 2)


def test_pixels_survive():
    _, image = opened(RED)
    assert image.convert("RGB").getpixel((1, 1)) == (255, 0, 0)


@pytest.mark.parametrize("column", ["prompt", "question"])
def test_a_picture_in_a_row_is_text_in_the_formatted_row(column):
    content = [{"type": "text", "text": "Which colour?"}, {"type": "image", "image": dot()}]
    row = {"question": content} if column == "question" else {"prompt": [{"role": "user", "content": content}]}
    (made,) = vf.SingleTurnEnv(dataset=[row], rubric=vf.Rubric()).train_rows()
    assert made["prompt"][0]["content"] == [content[0], SHOWN]
    json.dumps(made)


def test_a_message_object_with_a_picture_is_understood():
    prompt = [vf.UserMessage([dot(), {"type": "text", "text": "?"}])]
    (made,) = vf.SingleTurnEnv(dataset=[{"prompt": prompt}], rubric=vf.Rubric()).train_rows()
    assert made["prompt"][0]["content"] == [SHOWN, {"type": "text", "text": "?"}]


def test_rollouts_share_the_text_of_a_picture():
    env = vf.SingleTurnEnv(dataset=[{"question": [dot()]}], rubric=vf.Rubric())
    client = vf.ScriptedClient("red")
    env.generate_sync(env.train_rows() * 3, client, "m")
    first, second, third = (url_of(request.messages[0]["content"][0]) for request in client.requests)
    assert first is second is third


class Looks(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        return {"role": "user", "content": [{"type": "text", "text": "And now?"}, dot("blue")]}


def test_an_image_reaches_the_server_whole_and_stands_once_in_the_saved_line(tmp_path):
    env = Looks(dataset=[{"question": [{"type": "text", "text": "?"}, dot()]}], rubric=vf.Rubric(), max_turns=4)
    bodies = []
    with Loopback(lambda body: bodies.append(body) or "red") as server:
        client = vf.ClientConfig(api_base_url=server.url, api_key_var="NONE")
        env.evaluate_sync(client, "m", save_results=True, results_path=tmp_path)
    assert bodies[0]["messages"] == [{"role": "user", "content": [{"type": "text", "text": "?"}, SHOWN]}]
    blue = data_url(dot("blue"))
    assert [url_of(m["content"][1]) for m in bodies[3]["messages"] if m["role"] == "user"] == [RED, blue, blue, blue]
    line = (tmp_path / "results.jsonl").read_text()
    assert line.count(RED) == 1
    assert line.count(blue) == 3


def test_a_tool_may_return_a_picture():
    def draw(what: str) -> object:
        return dot() if what == "picture" else ["a dot:", dot()]

    def call(what):
        function = {"name": "draw", "arguments": json.dumps({"what": what})}
        return {"content": "", "tool_calls": [{"id": what, "type": "function", "function": function}]}

    env = vf.ToolEnv(tools=[draw], dataset=[{"question": "q"}], rubric=vf.Rubric())
    (output,) = env.evaluate_sync(vf.ScriptedClient([call("picture"), call("both"), "done"]), "m")["outputs"]
    said = [m["content"] for m in output["completion"] if m["role"] == "tool"]
    assert said == [[SHOWN], [{"type": "text", "text": "a dot:"}, SHOWN]]
