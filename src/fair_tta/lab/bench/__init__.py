"""Tables of many methods on many tasks: those of the paper, and user-defined ones.

Names are imported when they are used: ``fair-tta --help`` needs none of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fair_tta.lab._runs.local import Local
    from fair_tta.lab.bench._figures import Figure
    from fair_tta.lab.bench._grids import Grid, Setting
    from fair_tta.lab.bench._printed import paper_tables
    from fair_tta.lab.bench._sources import Table
    from fair_tta.lab.bench._tables import TableResult, run_table

__all__ = [
    "Figure",
    "Grid",
    "Local",
    "Setting",
    "Table",
    "TableResult",
    "paper_tables",
    "run_table",
]

_MODULES = {
    "Figure": "bench._figures",
    "Grid": "bench._grids",
    "Local": "_runs.local",
    "Setting": "bench._grids",
    "Table": "bench._sources",
    "TableResult": "bench._tables",
    "paper_tables": "bench._printed",
    "run_table": "bench._tables",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"fair_tta.lab.{_MODULES[name]}"), name)
