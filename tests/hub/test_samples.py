"""Samples: sent once however often they arrive, refused by the line, read a page at a time."""

from __future__ import annotations

import gzip
import json
import re
import threading
import tracemalloc
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hub_evaluations import Pusher, broken, lines, pusher, record
from hub_world import World
from sqlalchemy import func, select
from starlette.testclient import TestClient

from hub_server import tokens
from hub_server.errors import BadRequest, TooLarge
from hub_server.models import Evaluation, Project, Sample, SampleChunk
from hub_server.services import sample_intake, samples
from hub_server.services.sample_intake import Intake
from hub_server.settings import Settings
from verifiers.records import JudgeInfo, Score, decode_record, encode_record, without_answers
from verifiers.viewer import ORDERS, SampleRow, group_examples, ordered


@pytest.fixture
def push(world: World, client: TestClient) -> Pusher:
    return pusher(world, client, world.user("ada"), visibility="public")


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_intake, "CHUNK_SAMPLES", 3)


def keys_of(push: Pusher, id: str) -> list[tuple[int, int]]:
    found = push.get(f"/evaluations/{id}/samples", limit=1000)
    return [(row["example_id"], row["rollout_index"]) for row in found["rows"]]


def as_line(**changes: Any) -> bytes:
    return json.dumps({**json.loads(encode_record(record())), **changes}).encode()


# Arriving


@pytest.mark.parametrize("gzipped", [False, True], ids=["plain", "gzip"])
def test_a_rollout_comes_back_as_it_was_sent(push: Pusher, gzipped: bool) -> None:
    id = push.begin()["id"]
    sent = [record(n, n % 2, None if n == 3 else n / 10, wheel=push.wheel, info={"n": n}) for n in range(5)]
    told = push.send(id, lines(sent), gzipped=gzipped)
    assert told == {"n_received": 5, "n_stored": 5, "n_repeated": 0, "n_withheld": 0, "n_samples": 5}
    for made in sent:
        answer = push.client.get(
            f"/api/v1/evaluations/{id}/rollouts/{made.example_id}/{made.rollout_index}", headers=push.person.headers
        )
        assert decode_record(answer.content) == made


@pytest.mark.usefixtures("small_chunks")
def test_batches_that_overlap_or_are_sent_again_never_duplicate(push: Pusher) -> None:
    id = push.begin()["id"]
    made = [record(n // 2, n % 2, wheel=push.wheel) for n in range(10)]
    assert push.send(id, lines(made[:6]))["n_stored"] == 6
    assert push.send(id, lines(made[:6]))["n_repeated"] == 6
    overlapping = push.send(id, lines([*made[4:], made[9], made[0]]), gzipped=True)
    assert (overlapping["n_stored"], overlapping["n_repeated"], overlapping["n_samples"]) == (4, 4, 10)
    assert keys_of(push, id) == [made.key for made in made]
    assert push.complete(id)["n_samples"] == 10


@pytest.mark.usefixtures("small_chunks")
def test_two_requests_at_once_store_each_sample_once(push: Pusher, world: World) -> None:
    id = push.begin()["id"]
    made = [record(n, wheel=push.wheel) for n in range(60)]
    intakes = [Intake(world.hub, push.person.principal, id, is_gzipped=False) for _ in range(3)]
    failed: list[BaseException] = []

    def run(intake: Intake, order: list[Any]) -> None:
        try:
            intake.feed(lines(order))
            intake.finish()
        except BaseException as error:
            failed.append(error)

    threads = [
        threading.Thread(target=run, args=(intake, order))
        for intake, order in zip(intakes, (made, made[::-1], made[30:] + made[:30]), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    with world.hub.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Sample)) == 60
        assert session.get_one(Evaluation, id).n_samples == 60
        assert session.scalar(select(func.sum(SampleChunk.n_samples))) == 60
    for n in (0, 29, 30, 59):
        assert samples.rollout(world.hub, push.person.principal, id, n, 0) == made[n]
    assert push.complete(id)["mean_reward"] == 1.0


def test_another_sample_of_the_same_try_is_refused(push: Pusher) -> None:
    id = push.begin()["id"]
    push.send(id, lines([record(0, wheel=push.wheel)]))
    refused = push.send(id, lines([record(1, wheel=push.wheel), record(0, 0, 0.0, wheel=push.wheel)]), expect=409)
    assert refused["code"] == "sample_differs" and "line 2" in refused["detail"] and "example 0" in refused["detail"]


def test_what_came_before_a_bad_line_may_be_sent_again(push: Pusher) -> None:
    id = push.begin()["id"]
    good = lines([record(n, wheel=push.wheel) for n in range(4)])
    refused = push.send(id, good + b"{}\n", expect=400)
    assert "line 5" in refused["detail"]
    assert push.send(id, good)["n_samples"] == 4


def test_a_last_line_without_its_newline_and_blank_lines_are_fine(push: Pusher) -> None:
    id = push.begin()["id"]
    body = lines([record(0, wheel=push.wheel)]) + b"\n  \r\n" + lines([record(1, wheel=push.wheel)]).rstrip()
    assert push.send(id, body)["n_stored"] == 2


def test_nothing_is_added_to_a_complete_evaluation(push: Pusher) -> None:
    id = push.push([[1.0]])
    assert push.send(id, lines([record(9, wheel=push.wheel)]), expect=409)["code"] == "complete"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"model": "large"}, "other_model"),
        ({"env": "products"}, "other_environment"),
        ({"wheel": "0" * 64}, "other_wheel"),
    ],
)
def test_samples_of_another_run_are_refused(push: Pusher, changes: dict[str, Any], code: str) -> None:
    id = push.begin()["id"]
    assert push.send(id, lines([record(**{"wheel": push.wheel, **changes})]), expect=422)["code"] == code


def test_records_of_older_schemas_are_taken_and_of_newer_ones_refused(push: Pusher) -> None:
    id = push.begin(dirty=True, version=None)["id"]
    older = {key: value for key, value in json.loads(as_line()).items() if key not in ("schema_version", "timing")}
    assert push.send(id, json.dumps(older).encode())["n_stored"] == 1
    assert "upgrade" in push.send(id, as_line(schema_version=99, example_id=1), expect=400)["detail"]


# Item 46


@pytest.mark.parametrize(
    "line",
    [
        as_line().replace(b'"reward": 1.0', b'"reward": NaN'),
        as_line().replace(b'"reward": 1.0', b'"reward": Infinity'),
        as_line().replace(b'"reward": 1.0', b'"reward": -Infinity'),
        as_line().replace(b'"reward": 1.0', b'"reward": 1e999'),
        as_line().replace(b'"value": 1.0', b'"value": NaN'),
        as_line(info=float("inf")),
        as_line(reward=None),
        as_line(status="fault"),
        as_line(status="pending", reward=None),
        as_line(example_id=1 << 70),
        as_line(rollout_index=-1),
        as_line(answer="\ud800"),
        as_line(info={"\udfff": 1}),
        as_line(answer="x").replace(b'"x"', b'"\xff\xfe"'),
        b"\xef\xbb\xbf" + as_line(),
        as_line(info="deep").replace(b'"deep"', b"[" * 100_000 + b"]" * 100_000),
        as_line(info="deep").replace(b'"deep"', b'{"a":' * 70 + b"1" + b"}" * 70),
        as_line(ignored="deep").replace(b'"deep"', b"[" * 100_000 + b"]" * 100_000),
        b"[]",
        b"null",
        b"<html>",
        as_line()[:-5],
    ],
    ids=[
        "nan", "infinity", "minus infinity", "too large", "nan score", "infinite info", "no reward", "a fault's reward",
        "pending", "huge id", "negative try", "lone surrogate", "lone surrogate key", "not utf-8", "bom", "deep array",
        "deep object", "deep unknown key", "array", "null", "html", "cut off",
    ],
)  # fmt: skip
def test_item_46_what_is_no_record_is_refused_with_its_line(push: Pusher, world: World, line: bytes) -> None:
    id = push.begin(dirty=True, version=None)["id"]
    refused = push.send(id, lines([record(7)]) + b"\n" + line + b"\n", expect=400)
    assert refused["detail"].startswith("line 3: ")
    with world.hub.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Sample)) == 0


def test_item_46_html_in_a_completion_is_stored_and_given_as_text(push: Pusher) -> None:
    id = push.begin()["id"]
    text = "<script>alert(1)</script><img src=x onerror=alert(1)>\x00\u2028"
    push.send(id, lines([record(0, wheel=push.wheel, text=text, question=text)]))
    answer = push.client.get(f"/api/v1/evaluations/{id}/rollouts/0/0", headers=push.person.headers)
    assert (
        answer.headers["content-type"] == "application/json" and answer.headers["x-content-type-options"] == "nosniff"
    )
    assert answer.json()["messages"][0]["content"] == text
    assert push.get(f"/evaluations/{id}/samples")["rows"][0]["title"].startswith("<script>")


def test_item_46_a_line_of_a_gigabyte_is_refused_while_it_arrives(push: Pusher, world: World) -> None:
    id = push.begin(dirty=True, version=None)["id"]
    piece = b"x" * (1 << 20)
    fed = 0
    intake = Intake(world.hub, push.person.principal, id, is_gzipped=False)
    tracemalloc.start()
    with pytest.raises(BadRequest, match="line 1: longer than"):
        for _ in range(1024):
            intake.feed(piece)
            fed += 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert fed * len(piece) <= world.hub.settings.max_sample_bytes
    assert peak < 1.2 * world.hub.settings.max_sample_bytes


def test_item_46_a_gzipped_gigabyte_is_refused_in_bounded_memory(push: Pusher) -> None:
    id = push.begin(dirty=True, version=None)["id"]
    bomb = _bomb()
    tracemalloc.start()
    answer = push.client.post(
        f"/api/v1/evaluations/{id}/samples",
        content=bomb,
        headers={**push.person.headers, "Content-Encoding": "gzip"},
    )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert answer.status_code == 400 and "line 1: longer than" in answer.json()["detail"]
    assert peak < 80 << 20


def _bomb() -> bytes:

    packer, zeros = zlib.compressobj(9, wbits=31), bytes(1 << 20)
    return b"".join([*(packer.compress(zeros) for _ in range(1024)), packer.flush()])


class TestSmallHub:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(
            update={"max_samples": 10, "max_evaluation_bytes": 20_000, "max_sample_bytes": 5_000}
        )

    @pytest.mark.usefixtures("small_chunks")
    def test_item_46_more_samples_than_the_limit_are_refused(self, push: Pusher) -> None:
        """The same count as that of a hub whose limit is a million."""
        id = push.begin()["id"]
        made = [record(n, wheel=push.wheel) for n in range(12)]
        push.send(id, lines(made[:9]))
        refused = push.send(id, lines(made), expect=413)
        assert refused["code"] == "too_many_samples"
        assert push.complete(id)["n_samples"] == 9

    @pytest.mark.usefixtures("small_chunks")
    def test_more_bytes_than_the_limit_are_refused(self, push: Pusher) -> None:
        id = push.begin()["id"]
        made = [record(n, wheel=push.wheel, text="y" * 4_000) for n in range(6)]
        for part in (made[:3], made[3:]):
            answer = push.client.post(
                f"/api/v1/evaluations/{id}/samples", content=lines(part), headers=push.person.headers
            )
        assert answer.status_code == 413 and answer.json()["code"] == "too_many_bytes"
        assert push.send(id, lines(made), expect=413)["code"] == "too_many_bytes"

    def test_empty_lines_without_end_are_refused(self, push: Pusher) -> None:
        id = push.begin()["id"]
        assert push.send(id, b"\n" * 5_000, gzipped=True, expect=413)["detail"].endswith("too many empty lines")


@pytest.mark.parametrize(
    "body", [b"", b"no gzip at all", gzip.compress(b"x")[:-3], gzip.compress(as_line()) + b"tail"], ids=range(4)
)
def test_a_body_that_is_not_gzipped_as_it_says_is_refused(push: Pusher, body: bytes) -> None:
    id = push.begin(dirty=True, version=None)["id"]
    answer = push.client.post(
        f"/api/v1/evaluations/{id}/samples", content=body, headers={**push.person.headers, "Content-Encoding": "gzip"}
    )
    assert answer.status_code == (200 if not body else 400), answer.text


def test_gzip_in_several_members_is_read_as_one(push: Pusher) -> None:
    id = push.begin()["id"]
    members = [gzip.compress(lines([record(n, wheel=push.wheel)])) for n in range(3)]
    answer = push.client.post(
        f"/api/v1/evaluations/{id}/samples",
        content=b"".join(members),
        headers={**push.person.headers, "Content-Encoding": "gzip"},
    )
    assert answer.json()["n_stored"] == 3


def test_another_encoding_is_refused(push: Pusher) -> None:
    id = push.begin()["id"]
    answer = push.client.post(
        f"/api/v1/evaluations/{id}/samples", content=b"x", headers={**push.person.headers, "Content-Encoding": "br"}
    )
    assert answer.status_code == 400 and answer.json()["code"] == "bad_encoding"


# Secrets, and what stays at home


def test_a_token_of_a_hub_in_a_sample_is_refused_and_not_repeated(push: Pusher, world: World) -> None:
    id = push.begin()["id"]
    secret = tokens.make().text
    refused = push.send(id, lines([record(0, wheel=push.wheel, text=f"my key is {secret}.")]), expect=422)
    assert refused["code"] == "hub_secret" and secret not in json.dumps(refused) and "line 1" in refused["detail"]
    spoken_of = record(0, wheel=push.wheel, text="a token looks like vfh_" + "x" * 49)
    assert push.send(id, lines([spoken_of]))["n_stored"] == 1


def quoting(n: int, wheel: str | None) -> Any:
    judge = JudgeInfo(model="j", prompt_hash="0", response="the answer is 42", reply="42, so yes")
    return record(
        n,
        wheel=wheel,
        question="What is 6 times 7?",
        answer="42",
        info={"hint": "42"},
        messages=[
            {"role": "assistant", "content": "It is forty-one."},
            {"role": "tool", "content": "42", "tool_call_id": "1"},
        ],
        scores=[Score(name="judged", weight=1.0, value=1.0, reason="expected 42", judge=judge)],
        state_columns={"gold": "42"},
    )


def withhold(world: World) -> None:
    with world.hub.database.write() as session:
        session.scalars(select(Project)).one().publish_answers = False


def test_questions_and_answers_that_stay_at_home_are_not_stored(push: Pusher, world: World) -> None:
    withhold(world)
    id = push.begin()["id"]
    assert push.send(id, lines([quoting(0, push.wheel)]))["n_withheld"] == 1
    for stored in world.hub.storage.list("samples/"):
        text = gzip.decompress(b"".join(world.hub.storage.read(stored.key))).decode()
        assert "42" not in text.replace(str(push.wheel), "") and "6 times 7" not in text and "forty-one" in text
    with world.hub.database.read() as session:
        assert "6 times" not in session.scalars(select(Sample.row)).one()
    assert push.send(id, lines([quoting(0, push.wheel)]))["n_repeated"] == 1


def test_a_client_that_left_them_out_itself_is_told_of_nothing(push: Pusher, world: World) -> None:
    withhold(world)
    id = push.begin()["id"]
    assert push.send(id, lines([without_answers(quoting(0, push.wheel))]))["n_withheld"] == 0


def test_what_was_stored_before_stays_at_home_from_then_on(push: Pusher, world: World) -> None:
    id = push.begin()["id"]
    push.send(id, lines([quoting(0, push.wheel)]))
    withhold(world)
    told = json.dumps(push.get(f"/evaluations/{id}/rollouts/0/0"))
    assert "42" not in told.replace(str(push.wheel), "") and "6 times 7" not in told
    assert push.get(f"/evaluations/{id}/samples")["rows"][0].get("title", "") == ""
    for guess in ('title~"6 times"', '"6 times"', '"expected 42"'):  # a filter tells nothing either
        assert push.get(f"/evaluations/{id}/samples", filter=guess)["rows"] == []


# Reading


def filled(push: Pusher, n: int = 40) -> str:
    id = push.begin()["id"]
    made = [
        broken(e, t, wheel=push.wheel) if (e + t) % 10 == 9 else
        record(e, t, ((e * 7 + t) % 5) / 4, wheel=push.wheel, text="word " * (e % 4 + 1))
        for e in range(n // 4) for t in range(4)
    ]  # fmt: skip
    push.send(id, lines(made))
    return id


def walk(push: Pusher, id: str, **query: Any) -> Iterator[dict[str, Any]]:
    after: str | None = None
    while True:
        found = push.get(f"/evaluations/{id}/samples", **query, **({"after": after} if after else {}))
        yield from found["rows"]
        after = found["next_after"]
        if after is None:
            return


def test_pages_of_a_filtered_list_are_the_filtered_list(push: Pusher) -> None:
    id = filled(push)
    everything = list(walk(push, id, limit=1000))
    assert len(everything) == 40
    for text, fits in {
        "reward<0.5": lambda row: row["reward"] is not None and row["reward"] < 0.5,
        "status=failed": lambda row: row["status"] == "failed",
        "error:tool or reward=1": lambda row: row["status"] == "failed" or row["reward"] == 1,
    }.items():
        assert list(walk(push, id, filter=text, limit=3)) == [row for row in everything if fits(row)]


def test_a_phrase_is_looked_for_in_the_conversations(push: Pusher) -> None:
    id = filled(push)
    found = list(walk(push, id, filter='"word word word word"', limit=1000))
    assert found and all(row["example_id"] % 4 == 3 for row in found)


def test_a_page_that_takes_too_long_is_given_as_it_is(push: Pusher, world: World) -> None:
    id = filled(push)
    page = samples.page(world.hub, push.person.principal, id, filter_text="reward>9", look_s=0.0)
    assert page.rows == [] and page.n_looked_at == 1 and page.next_after == "0.0"


def test_a_filter_that_errs_is_told_where(push: Pusher) -> None:
    id = filled(push)
    refused = push.get(f"/evaluations/{id}/samples", filter="reward <", expect=400)
    assert refused["code"] == "bad_filter" and "character" in refused["detail"]
    assert push.get(f"/evaluations/{id}/samples", after="1; drop table", expect=400)["code"] == "bad_cursor"
    assert push.get(f"/evaluations/{id}/samples", after=f"{1 << 63}.0", expect=400)["code"] == "bad_cursor"


def test_examples_come_with_their_tries_in_every_order_of_the_viewer(push: Pusher, world: World) -> None:
    id = filled(push)
    push.complete(id)
    whole = msgspec.convert(push.get(f"/evaluations/{id}/samples", limit=1000)["rows"], list[SampleRow])
    for order in ORDERS:
        expected = [example.example_id for example in ordered(group_examples(whole), order)]
        seen: list[int] = []
        offset: int | None = 0
        while offset is not None:
            found = push.get(f"/evaluations/{id}/examples", order=order, offset=offset, limit=3)
            seen += [example["example_id"] for example in found["examples"]]
            offset = found["next_offset"]
            assert found["n_examples"] == 10
        assert seen == expected
    assert len(push.get(f"/evaluations/{id}/examples", filter="try=0")["examples"][0]["tries"]) == 1
    assert push.get(f"/evaluations/{id}/examples", order="luck", expect=400)["code"] == "bad_order"


def test_a_rollout_that_is_not_there_is_not_found(push: Pusher) -> None:
    id = push.push([[1.0]])
    push.get(f"/evaluations/{id}/rollouts/0/1", expect=404)
    push.get(f"/evaluations/{id}/rollouts/{1 << 70}/0", expect=400)
    push.get("/evaluations/nothing/rollouts/0/0", expect=404)


def test_a_flipped_bit_in_stored_samples_is_told_and_never_shown(push: Pusher, world: World) -> None:
    id = push.push([[1.0]])
    (stored,) = world.hub.storage.list("samples/")
    path = world.hub.storage.local_path(stored.key)
    assert path is not None
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    assert push.get(f"/evaluations/{id}/rollouts/0/0", expect=500)["code"] == "corrupt_file"


class Crashing(Intake):
    def _insert(self, *_: Any) -> None:
        raise KeyboardInterrupt


def test_a_chunk_is_stored_before_its_rows(push: Pusher, world: World) -> None:
    """A crash in between leaves a file that nothing names, and the same batch again is whole."""
    id = push.begin()["id"]
    body = lines([record(0, wheel=push.wheel)])
    intake = Crashing(world.hub, push.person.principal, id, is_gzipped=False)
    intake.feed(body)
    with pytest.raises(KeyboardInterrupt):
        intake.finish()
    assert len(list(world.hub.storage.list("samples/"))) == 1
    with world.hub.database.read() as session:
        assert session.scalars(select(Sample)).all() == session.scalars(select(SampleChunk)).all() == []
    assert push.send(id, body)["n_stored"] == 1
    assert len(list(world.hub.storage.list("samples/"))) == 1


def test_the_message_of_a_long_line_names_the_limit(world: World, push: Pusher) -> None:
    id = push.begin()["id"]
    intake = Intake(world.hub, push.person.principal, id, is_gzipped=False)
    intake.feed(b"\n\n")
    with pytest.raises(BadRequest, match=re.escape(f"line 3: longer than {25 << 20} bytes")):
        intake.feed(b"x" * ((25 << 20) + 1))


def test_a_request_is_bounded_even_if_all_of_it_is_there_already(push: Pusher, world: World) -> None:
    small = world.hub.settings.model_copy(update={"max_evaluation_bytes": 10_000})
    hub = type(world.hub)(small, world.hub.database, world.hub.storage)
    id = push.begin()["id"]
    push.send(id, lines([record(0, wheel=push.wheel)]))
    intake = Intake(hub, push.person.principal, id, is_gzipped=False)
    with pytest.raises(TooLarge):
        for _ in range(100):
            intake.feed(lines([record(0, wheel=push.wheel)]))
