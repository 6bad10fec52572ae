"""Readers of the paper's four datasets, of any folder with a file of labels, and of text features.

Nothing is downloaded and no image is opened: label files and folders are read, what is wrong
with them is counted, and what remains are records.

Example:
    >>> from fair_tta.datasets import BenchmarkTask, read_dataset
    >>> task = BenchmarkTask.find("CelebA", "hair color", "gender")
    >>> faces = read_dataset(task, "data").sample(1000, seed=0)  # doctest: +SKIP
    >>> print(faces.problems)  # doctest: +SKIP
    no problems
"""

from typing import TYPE_CHECKING

from fair_tta.datasets._labels import Labels, read_folder
from fair_tta.datasets._read import read_dataset
from fair_tta.datasets._tasks import BenchmarkTask

if TYPE_CHECKING:
    from fair_tta.datasets._feature_files import read_text_features

__all__ = [
    "BenchmarkTask",
    "Labels",
    "read_dataset",
    "read_folder",
    "read_text_features",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import what needs PyTorch on first use: reading labels does not."""
        if name != "read_text_features":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from fair_tta.datasets._feature_files import read_text_features

        return read_text_features
