"""`Intake`: the samples of one request, as they arrive: unpacked, checked, and stored chunk by chunk.

Nothing grows with the request: a line that is too long is refused while it arrives, a bomb of zeros is unpacked piece
by piece. Every whole chunk is committed, and a sample that is there already is passed over, so a client that lost its
connection, or was told of a bad line, sends the same again.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import func, insert, select, tuple_
from sqlalchemy.orm import Session

from hub_server.errors import BadRequest, Conflict, HubError, TooLarge, Unprocessable
from hub_server.hub import Hub
from hub_server.models import Evaluation, Sample, SampleChunk, now
from hub_server.principal import Principal
from hub_server.services.evaluation_access import evaluation_for_writing, locked
from hub_server.services.sample_chunks import CHUNK_BYTES, CHUNK_SAMPLES, store_chunk
from hub_server.services.secrets_in import refuse_hub_secrets
from hub_server.services.stored import hold_stored
from hub_server.services.withholding import has_answers
from verifiers.records import RolloutRecord, decode_record, encode_record, without_answers
from verifiers.refs import normalised
from verifiers.viewer import SampleRow, sample_row

PIECE_BYTES = 1 << 18  # unpacked at a time
MOST_SCORES = 200  # of one rollout
MOST_DEPTH = 64  # brackets inside each other; every reader of JSON can follow that
LONGEST_NAME = 200
LARGEST_ID = (1 << 63) - 1

Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Received:
    """What became of one request's samples."""

    n_received: int
    n_stored: int
    n_repeated: int  # were there already
    n_withheld: int  # stored without the questions and answers that the project keeps at home
    n_samples: int  # of the evaluation, now


@dataclass(frozen=True, slots=True)
class _Sample:
    number: int  # of its line in the request, from 1
    line: bytes
    digest: str
    row: SampleRow

    @property
    def key(self) -> Key:
        return self.row.key


class Intake:
    """`feed` the body as it comes, then `finish`. Both block; neither is called by two threads at once.

    Raises BadRequest, Unprocessable or TooLarge naming the line, Conflict when the evaluation takes no more samples or
    has another sample of the same example and try.
    """

    def __init__(self, hub: Hub, who: Principal, evaluation_id: str, *, is_gzipped: bool) -> None:
        """Raises NotFound, Forbidden, NotSignedIn, and Conflict for an evaluation that is complete."""
        self._hub = hub
        with hub.database.read() as session:
            evaluation = evaluation_for_writing(session, who, evaluation_id)
            _check_open(evaluation)
            self._expected = _Expected.of(evaluation)
            self._n_samples = evaluation.n_samples
        self._id = evaluation_id
        self._unpacker = _Unpacker() if is_gzipped else None
        self._rest: list[bytes] = []  # of a line whose end has not come yet
        self._rest_bytes = self._n_bytes = self._number = 0
        self._batch: dict[Key, _Sample] = {}
        self._batch_bytes = 0
        self._received = self._stored = self._repeated = self._withheld = 0

    def feed(self, piece: bytes) -> None:
        if self._unpacker is None:
            self._take(piece)
            return
        for unpacked in self._unpacker.pieces(piece):
            self._take(unpacked)

    def finish(self) -> Received:
        if self._unpacker is not None and not self._unpacker.is_whole:
            raise BadRequest("the gzipped body ends in the middle: send it again", code="truncated")
        last = b"".join(self._rest)
        self._rest = []
        self._line(last)
        self._store()
        return Received(self._received, self._stored, self._repeated, self._withheld, self._n_samples)

    def _take(self, data: bytes) -> None:
        self._n_bytes += len(data)
        if self._n_bytes > self._hub.settings.max_evaluation_bytes:
            raise TooLarge(
                f"more than {self._hub.settings.max_evaluation_bytes} bytes of samples", code="too_many_bytes"
            )
        head, newline, tail = data.rpartition(b"\n")
        if newline:
            lines = b"".join([*self._rest, head]).split(b"\n")
            self._rest, self._rest_bytes = [tail], len(tail)
            for line in lines:
                self._line(line)
        else:
            self._rest.append(data)
            self._rest_bytes += len(data)
        if self._rest_bytes > self._hub.settings.max_sample_bytes:
            raise self._too_long(self._number + 1)

    def _line(self, line: bytes) -> None:
        self._number += 1
        if not line.strip():
            if self._number > 2 * self._hub.settings.max_samples + 1_000:  # a gzipped megabyte may hold 10^9 of them
                raise TooLarge(f"line {self._number}: too many empty lines", code="too_many_samples")
            return
        if len(line) > self._hub.settings.max_sample_bytes:
            raise self._too_long(self._number)
        try:
            sample = self._sample(line)
        except HubError as error:
            raise type(error)(f"line {self._number}: {error.message}", code=error.code) from error
        self._received += 1
        earlier = self._batch.get(sample.key)
        if earlier is not None:
            _check_equal(sample, earlier.digest)
            self._repeated += 1
            return
        self._batch[sample.key] = sample
        self._batch_bytes += len(sample.line)
        if self._batch_bytes >= CHUNK_BYTES or len(self._batch) >= CHUNK_SAMPLES:
            self._store()

    def _too_long(self, number: int) -> BadRequest:
        limit = self._hub.settings.max_sample_bytes
        return BadRequest(
            f"line {number}: longer than {limit} bytes, which is the limit of one sample", code="long_line"
        )

    def _sample(self, line: bytes) -> _Sample:
        record = read_record(line)
        refuse_hub_secrets(line, "it")
        self._expected.check(record)
        if not self._expected.publish_answers and has_answers(record):
            record = without_answers(record)
            self._withheld += 1
        kept = encode_record(record)
        return _Sample(self._number, kept, hashlib.sha256(kept).hexdigest()[:32], sample_row(record))

    def _store(self) -> None:
        samples = list(self._batch.values())
        self._batch, self._batch_bytes = {}, 0
        if not samples:
            return
        with self._hub.database.read() as session:
            seen = session.scalar(select(Evaluation.n_samples).where(Evaluation.id == self._id)) or 0
            new = self._new_of(session, samples)
        if not new:
            return
        packed = [sample.line for sample in new]
        key = store_chunk(self._hub, self._id, packed)
        with self._hub.database.write(seen=False) as session:
            evaluation = locked(session, self._id)
            _check_open(evaluation)
            lines = list(enumerate(new))
            if evaluation.n_samples != seen:  # another request of the same evaluation was quicker
                fresh = {sample.key for sample in self._new_of(session, new)}
                lines = [(number, sample) for number, sample in lines if sample.key in fresh]
            hold_stored(session)
            if self._hub.storage.size(key) is None:  # it lay there since a crash, and was swept just now
                store_chunk(self._hub, self._id, packed)
            if lines:
                self._insert(session, evaluation, key, lines)
            self._n_samples = evaluation.n_samples

    def _new_of(self, session: Session, samples: Sequence[_Sample]) -> list[_Sample]:
        """Those that are not there yet; the others are counted. Raises Conflict when what is there is another one."""
        keys = [sample.key for sample in samples]
        known: dict[Key, str] = {
            (example_id, index): digest
            for example_id, index, digest in session.execute(
                select(Sample.example_id, Sample.rollout_index, Sample.digest).where(
                    Sample.evaluation_id == self._id, tuple_(Sample.example_id, Sample.rollout_index).in_(keys)
                )
            )
        }
        for sample in samples:
            if sample.key in known:
                _check_equal(sample, known[sample.key])
        new = [sample for sample in samples if sample.key not in known]
        self._repeated += len(samples) - len(new)
        return new

    def _insert(self, session: Session, evaluation: Evaluation, key: str, lines: list[tuple[int, _Sample]]) -> None:
        ordinal, n_bytes = session.execute(
            select(
                func.coalesce(func.max(SampleChunk.ordinal) + 1, 0), func.coalesce(func.sum(SampleChunk.size_bytes), 0)
            ).where(SampleChunk.evaluation_id == self._id)
        ).one()
        size = sum(len(sample.line) + 1 for _, sample in lines)
        settings = self._hub.settings
        if evaluation.n_samples + len(lines) > settings.max_samples:
            raise TooLarge(f"an evaluation holds at most {settings.max_samples} samples", code="too_many_samples")
        if n_bytes + size > settings.max_evaluation_bytes:
            raise TooLarge(f"an evaluation holds at most {settings.max_evaluation_bytes} bytes", code="too_many_bytes")
        session.add(
            SampleChunk(evaluation_id=self._id, ordinal=ordinal, key=key, n_samples=len(lines), size_bytes=size)
        )
        session.execute(
            insert(Sample),
            [
                {
                    "evaluation_id": self._id,
                    "example_id": sample.row.example_id,
                    "rollout_index": sample.row.rollout_index,
                    "chunk": ordinal,
                    "line": number,
                    "reward": sample.row.reward,
                    "status": sample.row.status,
                    "digest": sample.digest,
                    "row": msgspec.json.encode(sample.row).decode(),
                }
                for number, sample in lines
            ],
        )
        evaluation.n_samples += len(lines)
        evaluation.arrived_at = now()
        self._stored += len(lines)


class _Unpacker:
    """Gunzips in bounded pieces, one member of the stream after the other."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)
        self._is_begun = False

    @property
    def is_whole(self) -> bool:
        return not self._is_begun

    def pieces(self, data: bytes) -> Any:
        try:
            while data:
                self._is_begun = True
                unpacked = self._member.decompress(data, PIECE_BYTES)
                data = self._member.unconsumed_tail
                if unpacked:
                    yield unpacked
                if self._member.eof:
                    data = self._member.unused_data
                    self._member = zlib.decompressobj(wbits=31)
                    self._is_begun = False
        except zlib.error as error:
            raise BadRequest(f"the body is not gzipped as Content-Encoding says: {error}", code="bad_gzip") from None


def read_record(line: bytes) -> RolloutRecord:
    """A line as a record. Raises BadRequest for what is none, or holds what no reader could make sense of."""
    try:
        record = decode_record(line)
    except RecursionError:
        raise BadRequest(f"nested deeper than {MOST_DEPTH} levels", code="too_deep") from None
    except msgspec.DecodeError as error:  # NaN, infinities and halves of surrogate pairs are no JSON either
        raise BadRequest(f"no rollout record: {error}", code="bad_record") from None
    if abs(record.example_id) > LARGEST_ID or not 0 <= record.rollout_index <= LARGEST_ID:
        raise BadRequest(
            "example_id and rollout_index fit into 64 bits, and tries are counted from 0", code="bad_record"
        )
    if (record.reward is not None) != (record.status == "scored"):
        raise BadRequest(
            f"a reward of {record.reward} with status '{record.status}': a number goes with 'scored', and only with it",
            code="bad_record",
        )
    if record.status == "pending":
        raise BadRequest("a rollout that waits for its group to be scored is no result yet", code="bad_record")
    if len(record.scores) > MOST_SCORES or any(len(score.name) > LONGEST_NAME for score in record.scores):
        raise BadRequest(
            f"at most {MOST_SCORES} scores, with names of up to {LONGEST_NAME} characters", code="bad_record"
        )
    for score in record.scores:
        if (score.value is not None) != (score.status == "scored"):
            raise BadRequest(
                f"score '{score.name}' has status '{score.status}' and value {score.value}", code="bad_record"
            )
    if _is_deep(record):
        raise BadRequest(f"nested deeper than {MOST_DEPTH} levels", code="too_deep")
    return record


def _is_deep(record: RolloutRecord) -> bool:
    level: list[Any] = [
        record.prompt, record.messages, record.answer, record.info, record.sampling, record.state_columns,
        *(turn.prompt for turn in record.turns), *(turn.completion for turn in record.turns),
    ]  # fmt: skip
    for _ in range(MOST_DEPTH):
        level = [inner for value in level if isinstance(value, dict | list) and value for inner in _inner(value)]
        if not level:
            return False
    return True


def _inner(value: dict[str, Any] | list[Any]) -> Any:
    return value.values() if isinstance(value, dict) else value


@dataclass(frozen=True, slots=True)
class _Expected:
    """What the evaluation was begun as: samples of anything else are refused."""

    environment: str
    version: str | None
    wheel_sha256: str | None
    model: str
    publish_answers: bool

    @classmethod
    def of(cls, evaluation: Evaluation) -> _Expected:
        project, release = evaluation.project, evaluation.release
        return cls(
            normalised(project.name),
            None if release is None else release.version,
            evaluation.wheel_sha256,
            evaluation.model,
            project.publish_answers,
        )

    def check(self, record: RolloutRecord) -> None:
        env = record.env
        if normalised(env.name.rpartition("/")[2]) != self.environment:
            raise Unprocessable(
                f"a rollout of '{env.name[:100]}', not of '{self.environment}'", code="other_environment"
            )
        if record.model.name != self.model:
            raise Unprocessable(
                f"a rollout of the model '{record.model.name[:100]}', not of '{self.model}'", code="other_model"
            )
        if self.version is None:
            return
        if env.wheel_sha256 != self.wheel_sha256:
            raise Unprocessable(
                f"made by another wheel of the environment than the evaluation's: {str(env.wheel_sha256)[:20]}…",
                code="other_wheel",
            )
        if env.dirty:
            raise Unprocessable("made by an edited copy of the environment: push the run as dirty", code="dirty")


def _check_open(evaluation: Evaluation) -> None:
    if evaluation.state != "open":
        raise Conflict(f"evaluation {evaluation.id} is complete and takes no more samples", code="complete")


def _check_equal(sample: _Sample, digest: str) -> None:
    if sample.digest != digest:
        example_id, index = sample.key
        raise Conflict(
            f"line {sample.number}: another sample of example {example_id}, try {index} is there already. Samples are "
            "not replaced: push the run as a new evaluation",
            code="sample_differs",
        )
