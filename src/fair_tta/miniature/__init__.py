"""A drawn world and a tiny CLIP trained on it, shipped with the package; no runner, no training.

They show what the methods do without a download: pictures of birds, badges and scenes in which an
attribute that should not matter goes along with the answer, and a model that has learnt to lean on
it. The model knows this world and nothing else.

    >>> from fair_tta import FairTPTClassifier, miniature
    >>> task = miniature.BIRDS
    >>> clf = FairTPTClassifier("miniature", task.targets, task.sensitive, task.template)
    >>> picture = task.draw(1, seed=3)[0]
    >>> clf.predict(picture.image).label in task.targets
    True
"""

from fair_tta.miniature._model import FOLDER, load_open_clip
from fair_tta.miniature._world import (
    BADGES,
    BIRDS,
    SCENES,
    TASKS,
    DrawnPicture,
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
    "DrawnPicture",
    "MiniatureTask",
    "Shade",
    "WorldSplit",
    "load_open_clip",
]
