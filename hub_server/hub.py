"""`Hub`: the settings, the database and the storage of one running hub, which every route and service is handed."""

from __future__ import annotations

from dataclasses import dataclass

from hub_server.db import Database
from hub_server.migrations import migrate
from hub_server.settings import Settings
from hub_server.storage import FolderStorage, MemoryStorage, Storage


@dataclass(frozen=True, slots=True)
class Hub:
    settings: Settings
    database: Database
    storage: Storage

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
