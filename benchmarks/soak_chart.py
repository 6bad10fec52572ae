"""The picture of docs/reliability.md, from docs/soak.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from effect_charts import LINES, STYLE
from matplotlib import style
from matplotlib.figure import Figure


def draw(record: dict[str, Any], path: Path) -> None:
    """Memory of the process and of the cache against the number of predictions."""
    with style.context(["default", STYLE]):
        figure = Figure(figsize=(6.4, 3.2), layout="constrained")
        axes = figure.subplots()
        curve = record["curve"]
        counted = [point["predictions"] for point in curve]
        for colour, (name, label) in zip(LINES, _SHOWN.items(), strict=False):
            axes.plot(
                counted,
                [p[name] for p in curve],
                color=colour,
                linewidth=1.4,
                label=label,
            )
        axes.set_ylim(0, 1.25 * max(point["resident_mib"] for point in curve))
        axes.set_xlim(0, counted[-1])
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel("predictions in one process")
        axes.set_ylabel("MiB")
        axes.legend(loc="upper right", ncols=2)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    path.write_text(
        "\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n"
    )


_SHOWN = {"resident_mib": "resident memory", "cache_mib": "what the cache holds"}
