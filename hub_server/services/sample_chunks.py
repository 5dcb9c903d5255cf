"""Chunks: runs of samples as gzipped lines in the storage. A sample's row names its chunk and its line there."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator, Sequence

from sqlalchemy import delete, select

from hub_server.errors import CorruptFile, NotFound
from hub_server.hub import Hub
from hub_server.models import ExampleRate, Rescoring, Sample, SampleChunk

CHUNK_BYTES = 1 << 20  # unpacked: what is unpacked to show one rollout
CHUNK_SAMPLES = 1_000
DELETED_AT_ONCE = 5_000


def store_chunk(hub: Hub, evaluation_id: str, lines: Sequence[bytes]) -> str:
    """The key of the stored chunk. Equal lines make an equal key, so a repeated one is stored once."""
    packed = gzip.compress(b"\n".join(lines) + b"\n", compresslevel=4, mtime=0)
    key = f"samples/{evaluation_id}/{hashlib.sha256(packed).hexdigest()}"
    hub.storage.put(key, packed)
    return key


def read_chunk(hub: Hub, key: str) -> list[bytes]:
    """Its lines. Raises NotFound when the evaluation was deleted meanwhile, CorruptFile for flipped bits."""
    try:
        packed = b"".join(hub.storage.read(key))
    except FileNotFoundError:
        raise NotFound("these samples are gone: the evaluation was deleted") from None
    if hashlib.sha256(packed).hexdigest() != key.rpartition("/")[2]:
        raise CorruptFile(f"the stored samples {key} are damaged: the hub's operator may restore them from a backup")
    return gzip.decompress(packed).split(b"\n")[:-1]


def current_lines(hub: Hub, evaluation_id: str) -> Iterator[bytes]:
    """Every sample, one chunk in memory at a time. A line that no row names lost a race and is left out."""
    with hub.database.read() as session:
        chunks = session.execute(
            select(SampleChunk.ordinal, SampleChunk.key, SampleChunk.n_samples)
            .where(SampleChunk.evaluation_id == evaluation_id)
            .order_by(SampleChunk.ordinal)
        ).all()
    for ordinal, key, n_samples in chunks:
        lines = read_chunk(hub, key)
        if len(lines) == n_samples:
            yield from lines
            continue
        of_chunk = select(Sample.line).where(Sample.evaluation_id == evaluation_id, Sample.chunk == ordinal)
        with hub.database.read() as session:
            live = session.scalars(of_chunk.order_by(Sample.line)).all()
        for line in live:
            yield lines[line]


def delete_samples(hub: Hub, evaluation_id: str) -> None:
    """Slice by slice: a million rows in one transaction would keep everybody else waiting."""
    with hub.database.write(seen=False) as session:
        session.execute(delete(ExampleRate).where(ExampleRate.evaluation_id == evaluation_id))
        session.execute(delete(Rescoring).where(Rescoring.evaluation_id == evaluation_id))
        keys = session.scalars(select(SampleChunk.key).where(SampleChunk.evaluation_id == evaluation_id)).all()
        session.execute(delete(SampleChunk).where(SampleChunk.evaluation_id == evaluation_id))
    of_evaluation = select(Sample.example_id).where(Sample.evaluation_id == evaluation_id)
    bound: int | None = -1
    while bound is not None:
        with hub.database.write(seen=False) as session:
            bound = session.scalar(of_evaluation.order_by(Sample.example_id).offset(DELETED_AT_ONCE).limit(1))
            gone = delete(Sample).where(Sample.evaluation_id == evaluation_id)
            session.execute(gone if bound is None else gone.where(Sample.example_id <= bound))
    for key in keys:  # what a crash leaves here is swept
        hub.storage.delete(key)
