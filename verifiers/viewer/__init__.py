"""The rollout viewer: rows, filters and pages of saved rollouts, for `vf view` and for whoever serves them.

Everything here is pure: rows and records go in, HTML fragments come out. A page that shows them links `viewer.css`
and `viewer.js` (`asset_path`) and needs no other script or style: the strictest Content-Security-Policy will do.
The fragments are `Html`, a `str` that Jinja prints as it is.
"""

from __future__ import annotations

from pathlib import Path

from verifiers.viewer.comparing import ComparisonState, render_comparison, render_pair, verdict
from verifiers.viewer.comparison import Comparison, ExamplePair, compare_rows
from verifiers.viewer.filters import Filter, parse_filter
from verifiers.viewer.html import Html
from verifiers.viewer.links import Links
from verifiers.viewer.listing import ListState, render_examples, render_filter
from verifiers.viewer.overview import render_overview
from verifiers.viewer.rollout import Place, place_of, render_rollout, whole_text
from verifiers.viewer.rows import ORDERS, Example, SampleRow, group_examples, ordered, sample_row, searchable_text
from verifiers.viewer.selection import Selection

__all__ = [
    "ORDERS",
    "Comparison",
    "ComparisonState",
    "Example",
    "ExamplePair",
    "Filter",
    "Html",
    "Links",
    "ListState",
    "Place",
    "SampleRow",
    "Selection",
    "asset_path",
    "compare_rows",
    "group_examples",
    "ordered",
    "parse_filter",
    "place_of",
    "render_comparison",
    "render_examples",
    "render_filter",
    "render_overview",
    "render_pair",
    "render_rollout",
    "sample_row",
    "searchable_text",
    "verdict",
    "whole_text",
]

ASSETS = {"viewer.css": "text/css; charset=utf-8", "viewer.js": "text/javascript; charset=utf-8"}


def asset_path(name: str) -> Path:
    """The file `viewer.css` or `viewer.js`. Raises LookupError for another name."""
    if name not in ASSETS:
        raise LookupError(f"the viewer has no asset '{name}' (there are: {', '.join(ASSETS)})")
    return Path(__file__).with_name("assets") / name
