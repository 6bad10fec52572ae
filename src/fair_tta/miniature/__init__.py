"""A drawn world and a tiny CLIP trained on it, both shipped with the package.

They show what the methods do without a download: images of birds, badges and scenes in which an
attribute that should not matter is correlated with the answer, and a model that has learned to rely
on it. The model knows this world and nothing else.

    >>> from fair_tta import FairTPTClassifier, miniature
    >>> task = miniature.BIRDS
    >>> clf = FairTPTClassifier("miniature", task.targets, task.sensitive, task.template)
    >>> drawn = task.draw(1, seed=3)[0]
    >>> clf.predict(drawn.image).label in task.targets
    True

``task.draw(n, seed, split="test", mix=None)`` returns a list of drawn images, each with its
`image`, `target` and `sensitive` labels, and ``task.stream(seed)`` yields the same images without
an end. With ``split="train"`` attribute and target are correlated; in ``"validation"`` and
``"test"`` all groups have equal size, and ``mix={(target, value): weight}`` draws other shares.
"""

from fair_tta.miniature._model import FOLDER, load_open_clip
from fair_tta.miniature._world import BADGES, BIRDS, SCENES

__all__ = [
    "BADGES",
    "BIRDS",
    "FOLDER",
    "SCENES",
    "load_open_clip",
]
