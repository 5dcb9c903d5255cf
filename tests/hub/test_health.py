"""`/healthz`: whether a worker runs, and whether it should be sent requests."""

import shutil

import pytest


def test_a_running_hub_is_alive_and_ready(client):
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/healthz/ready").json() == {"status": "ok", "failing": []}


def test_a_hub_without_its_database_is_alive_and_not_ready(client, hub):
    if not hub.database.is_sqlite:
        pytest.skip("takes SQLite's file away")
    hub.database.close()
    (hub.settings.data / "hub.db").unlink()
    (hub.settings.data / "hub.db").mkdir()
    answer = client.get("/healthz/ready")
    assert answer.status_code == 503 and answer.json()["failing"] == ["database"]
    assert client.get("/healthz").is_success


def test_a_hub_that_cannot_take_uploads_is_not_ready(client, hub):
    shutil.rmtree(hub.settings.temporary)
    answer = client.get("/healthz/ready")
    assert answer.status_code == 503 and answer.json()["failing"] == ["temporary folder"]
