"""`Database`: transactions on SQLite or PostgreSQL, and `Freshness`, which tells each worker when what it holds is old.

Reads and writes are separate roads. On SQLite a write takes the lock at its start (`BEGIN IMMEDIATE`), so that two
writers wait for each other instead of failing in the middle; readers never wait (WAL).
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Engine, create_engine, event, text, update
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError
from sqlalchemy.orm import Session, sessionmaker

from hub_server.errors import BadRequest, StorageFull, Unavailable
from hub_server.models import Generation

LOCK_WAIT_S = 5.0
CHANNEL = "vf_hub_generation"


class Database:
    """One per process. `read()` and `write()` give a session; a write commits when its block ends without an error.

    Raises Unavailable when the database is locked for longer than 5 s or cannot be reached, StorageFull when its disk
    is full or read-only. An IntegrityError passes through: the caller knows which name was taken.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_sqlite = url.startswith("sqlite")
        options: dict[str, Any] = {"pool_pre_ping": not self.is_sqlite}
        if self.is_sqlite:
            options["connect_args"] = {"timeout": LOCK_WAIT_S, "check_same_thread": False}
        self.engine = create_engine(url, **options)
        if self.is_sqlite:
            _prepare_sqlite(self.engine)
        self._sessions = sessionmaker(self.engine, expire_on_commit=False)
        self.freshness = Freshness(self)

    @contextlib.contextmanager
    def read(self) -> Iterator[Session]:
        with _faults_named(), self._sessions() as session:
            yield session

    @contextlib.contextmanager
    def write(self, *, seen: bool = True) -> Iterator[Session]:
        """`seen=False`: nothing that a page, an index or a token says is changed (counters, samples)."""
        with _faults_named(), self._sessions() as session:
            session.connection(execution_options={"vf_hub_write": True})  # begins, on SQLite with the lock
            with _finished(session):
                yield session
                session.flush()
                if seen:
                    # Last, because the row stays locked until the commit: publishes would wait for each other.
                    session.execute(update(Generation).values(value=Generation.value + 1))
                    if not self.is_sqlite:
                        session.execute(text(f"NOTIFY {CHANNEL}"))
        if seen:
            self.freshness.note_commit()

    def close(self) -> None:
        self.freshness.close()
        self.engine.dispose()


@contextlib.contextmanager
def _finished(session: Session) -> Iterator[None]:
    try:
        yield
    except BaseException:
        session.rollback()
        raise
    session.commit()


@contextlib.contextmanager
def _faults_named() -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        raise
    except DataError as error:  # PostgreSQL's, for a NUL in a text and a number that no column holds
        raise BadRequest(f"a value that cannot be stored: {error.orig}", code="bad_value") from error
    except (OperationalError, DBAPIError) as error:
        said = str(error.orig).lower()
        if "full" in said or "readonly" in said or "read-only" in said or "no space" in said:
            raise StorageFull(f"the hub's database takes no more: {error.orig}") from error
        if isinstance(error, OperationalError) or error.connection_invalidated:
            raise Unavailable("the hub's database does not answer just now: try again", retry_after_s=2) from error
        raise


def _prepare_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def _connected(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None  # transactions are begun below, not by the driver
        for pragma in (
            "journal_mode = WAL",
            "synchronous = FULL",  # a release that was confirmed survives a power cut
            "foreign_keys = ON",
            f"busy_timeout = {int(LOCK_WAIT_S * 1000)}",
            "journal_size_limit = 67108864",
            "cache_size = -1000",  # KiB of each connection; searches of 10,000 environments are no faster with more
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begun(connection: Any) -> None:
        is_write = connection.get_execution_options().get("vf_hub_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")


class Freshness:
    """`current()` is a number that has grown if anything was committed that pages, indexes or tokens show.

    It costs microseconds, so that a worker can hold finished pages and still never show an old one: on SQLite
    `PRAGMA data_version` tells of other connections' commits; on PostgreSQL a connection listens. While that
    connection is down the number grows with every question: nothing is held.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()  # guards the SQLite connection, which several threads may ask
        self._connection: sqlite3.Connection | None = None
        self._data_version: int | None = None
        self._value = 0
        self._listener: _Listener | None = None

    def current(self) -> int:
        if self._database.is_sqlite:
            with self._lock:
                return self._of_sqlite()
        if self._listener is None:
            with self._lock:
                if self._listener is None:
                    self._listener = _Listener(self._database.engine)
        return self._listener.current()

    def note_commit(self) -> None:
        """This process committed: PostgreSQL's notice of it comes a moment later, and the next request is now."""
        if self._listener is not None:
            self._listener.note()

    def _of_sqlite(self) -> int:
        if self._connection is None:
            path = self._database.engine.url.database or ":memory:"
            self._connection = sqlite3.connect(path, timeout=LOCK_WAIT_S, check_same_thread=False, isolation_level=None)
        version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._data_version:
            row = self._connection.execute("SELECT value FROM generation").fetchone()
            self._data_version, self._value = version, row[0] if row else 0
        return self._value

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            if self._listener is not None:
                self._listener.stop()
                self._listener = None


class _Listener:
    """Counts PostgreSQL's notices in a thread of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._count = 0
        self._lock = threading.Lock()  # guards the count: two threads that add at once must both be seen
        self._is_listening = False
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hub-freshness", daemon=True)
        self._thread.start()

    def current(self) -> int:
        if not self._is_listening:
            self.note()
        return self._count

    def note(self) -> None:
        with self._lock:
            self._count += 1

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join(timeout=3)

    def _run(self) -> None:
        import psycopg

        address = self._engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        while not self._is_stopped.is_set():
            try:
                with psycopg.connect(address, autocommit=True) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    self.note()
                    self._is_listening = True
                    while not self._is_stopped.is_set():
                        for _notice in connection.notifies(timeout=1.0, stop_after=1):
                            self.note()
            except psycopg.Error:
                pass
            finally:
                self._is_listening = False
            self._is_stopped.wait(1.0)


def retried(action: Callable[[], Any], taken: type[Exception] = IntegrityError, tries: int = 2) -> Any:
    """Runs `action`, and once more when another writer was first: the second look sees what that one wrote."""
    for left in reversed(range(tries)):
        try:
            return action()
        except taken:
            if not left:
                raise
