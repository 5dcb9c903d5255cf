"""The table in docs/environments.md is what the packages declare."""

from __future__ import annotations

import runpy

from loopback import ROOT


def test_the_table_of_environments_is_made_from_their_packages():
    script = runpy.run_path(str(ROOT / "scripts" / "environment_table.py"))
    written = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
    assert written == script["page"](), "run: python scripts/environment_table.py --write"
