"""Where a rollout's seconds and tokens went, and what it was made of."""

from __future__ import annotations

from verifiers.records import RolloutRecord
from verifiers.viewer.html import Child, Html, tag
from verifiers.viewer.messages import fold
from verifiers.viewer.texts import Texts
from verifiers.viewer.values import as_json
from verifiers.viewer.wording import number, seconds


def render_time(record: RolloutRecord) -> Html | None:
    spans = record.timing.parts()
    total = sum(spans.values())
    if total <= 0:
        return None
    bars: list[Child] = []
    at = 0.0
    for name, value in spans.items():
        width = 100 * value / total
        if value > 0:
            bars.append(tag("rect", x=f"{at:.2f}", y=0, width=f"{width:.2f}", height=6, class_=f"rv-span-{name}"))
        at += width
    names: list[Child] = []
    for name, value in spans.items():
        if value > 0:
            key = tag("span", class_=f"rv-key rv-span-{name}", aria_hidden="true")
            names += [tag("dt", key, name), tag("dd", seconds(value))]
    bar = tag("svg", *bars, viewBox="0 0 100 6", preserveAspectRatio="none", class_="rv-bar", aria_hidden="true")
    heading = tag("h3", "Time ", tag("span", seconds(total), class_="rv-muted"))
    return tag("section", heading, bar, tag("dl", *names, class_="rv-dl"), class_="rv-box")


def render_tokens(record: RolloutRecord) -> Html | None:
    usage = record.usage
    counts = {"in": usage.prompt, "out": usage.completion, "of these reasoning": usage.reasoning}
    rows: list[Child] = []
    for name, value in counts.items():
        if value is not None:
            rows += [tag("dt", name), tag("dd", f"{value:,}")]
    if usage.cost is not None:
        rows += [tag("dt", "cost"), tag("dd", number(usage.cost, 6))]
    return tag("section", tag("h3", "Tokens"), tag("dl", *rows, class_="rv-dl"), class_="rv-box") if rows else None


def render_facts(record: RolloutRecord, texts: Texts) -> Html:
    env, model = record.env, record.model
    name = f"{env.owner}/{env.name}" if env.owner else env.name
    facts: dict[str, Child] = {
        "environment": f"{name} {env.version}" if env.version else name,
        "edited": "yes: the working tree differed from its commit" if env.dirty else None,
        "task": record.task,
        "model": model.name,
        "served as": model.served_as,
        "weights": model.weight_version,
        "started": record.timing.started and f"{record.timing.started[:19].replace('T', ' ')} UTC",
        "seed": record.seed,
        "started again": record.attempt or None,
        "data": record.data.name,
        "library": record.library_version or None,
        "wheel": env.wheel_sha256 and env.wheel_sha256[:16],
    }
    rows: list[Child] = []
    for label, value in facts.items():
        if value is not None:
            rows += [tag("dt", label), tag("dd", value)]
    sampling = fold("sampling", texts.block(as_json(record.sampling), "sampling")) if record.sampling else None
    return tag("section", tag("h3", "Origin"), tag("dl", *rows, class_="rv-dl"), sampling, class_="rv-box")
