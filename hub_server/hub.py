"""`Hub`: the settings, the database and the storage of one running hub, which every route and service is handed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hub_server.db import Database
from hub_server.held import Held
from hub_server.limits import Limiter
from hub_server.migrations import migrate
from hub_server.principal import SignedIn
from hub_server.settings import Settings
from hub_server.storage import FolderStorage, MemoryStorage, Storage


@dataclass(frozen=True, slots=True)
class Hub:
    settings: Settings
    database: Database
    storage: Storage
    signed_in: Held[SignedIn] = field(init=False, repr=False, compare=False)  # by token or session (`credentials.py`)
    limiter: Limiter = field(init=False, repr=False, compare=False)
    catalog: Held[object] = field(init=False, repr=False, compare=False)  # counts that all see (`catalog.py`)

    def __post_init__(self) -> None:
        held = Held[SignedIn](self.database.freshness, max_age_s=self.settings.token_cache_s)
        object.__setattr__(self, "signed_in", held)
        object.__setattr__(self, "limiter", Limiter(self.database))
        object.__setattr__(self, "catalog", Held[object](self.database.freshness, max_age_s=math.inf))

    @classmethod
    def open(cls, settings: Settings) -> Hub:
        """Makes the data folder when it is missing and brings the schema up to date."""
        settings.temporary.mkdir(parents=True, exist_ok=True)
        database = Database(settings.database)
        migrate(database)
        return cls(settings, database, open_storage(settings))

    def close(self) -> None:
        self.database.close()


def open_storage(settings: Settings) -> Storage:
    url = settings.storage_url
    if url is None:
        return FolderStorage(settings.data / "files")
    if url == "memory://":
        return MemoryStorage()
    from hub_server.object_storage import ObjectStorage  # obstore is heavy and only this needs it

    return ObjectStorage(url)
