"""A drawn world and a tiny CLIP trained on it, shipped with the package; no runner, no training.

They show what the methods do without a download: images of birds, badges and scenes in which an
attribute that should not matter goes along with the answer, and a model that has learned to rely on
it. The model knows this world and nothing else.

    >>> from fair_tta import FairTPTClassifier, miniature
    >>> task = miniature.BIRDS
    >>> clf = FairTPTClassifier("miniature", task.targets, task.sensitive, task.template)
    >>> drawn = task.draw(1, seed=3)[0]
    >>> clf.predict(drawn.image).label in task.targets
    True
"""

from fair_tta.miniature._model import FOLDER, load_open_clip
from fair_tta.miniature._world import (
    BADGES,
    BIRDS,
    SCENES,
    TASKS,
    DrawnImage,
    MiniatureTask,
    Shade,
    WorldSplit,
)

__all__ = [
    "BADGES",
    "BIRDS",
    "FOLDER",
    "SCENES",
    "TASKS",
    "DrawnImage",
    "MiniatureTask",
    "Shade",
    "WorldSplit",
    "load_open_clip",
]
