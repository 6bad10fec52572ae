"""Settings of methods as text, and the runs that differ in one of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from fair_tta.auditing._document import AuditDocument, RunFigures

# Infinity is a valid setting (`FairTPT(lam=inf)`), but no position on an axis
_MAX_POSITION = 1e12


class Sweep(NamedTuple):
    """Runs of one method by the value of the setting that differs, such as ``rate.beta``."""

    method: str
    setting: str
    runs: Mapping[float, RunFigures]


def sweeps(document: AuditDocument) -> list[Sweep]:
    """Return runs that differ in one number only, at least two of them; the longest first."""
    # Runs of one method that share all other settings, by the setting that is left out
    series: dict[tuple[str, str, str], dict[float, RunFigures]] = {}
    for run in document.runs:
        # A run with a provenance of its own differs in more than its settings
        if run.adapter is None or run.provenance is not None:
            continue
        settings = dict(_setting_items(run.adapter.settings))
        for name, value in settings.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and abs(value) < _MAX_POSITION:
                other_settings = settings.copy()
                del other_settings[name]
                shared = json.dumps(other_settings, sort_keys=True)
                runs = series.setdefault((run.adapter.name, name, shared), {})
                runs.setdefault(float(value), run)
    all_sweeps = []
    for (method, setting, _), runs in series.items():
        if len(runs) > 1:
            all_sweeps.append(Sweep(method, setting, dict(sorted(runs.items()))))
    return sorted(all_sweeps, key=lambda sweep: -len(sweep.runs))


def flat_settings(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested settings as ``("rate.beta", "0.01")``, without an adapter's own nesting."""
    for key, leaf in _setting_items(value, name):
        if isinstance(leaf, list | tuple):
            texts = []
            for element in leaf:
                element_settings = flat_settings(element, key)
                texts.append(", ".join(text for _, text in element_settings))
            yield key, "; ".join(texts) or "none"
        else:
            yield key, "none" if leaf is None or leaf == {} else str(leaf)


def _setting_items(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested mappings with their paths: ``("rate.beta", 0.01)``."""
    if isinstance(value, Struct):
        value = asdict(value)
    is_mapping = isinstance(value, Mapping) and bool(value)
    # An adapter inside the settings of another has its name and its own settings
    if is_mapping and set(value) <= {"name", "settings", "repr"}:
        yield name, value.get("name")
        yield from _setting_items(value.get("settings", {}), name)
    elif is_mapping:
        for key, nested in value.items():
            yield from _setting_items(nested, f"{name}.{key}" if name else str(key))
    elif name:
        yield name, value
