"""How many labels would settle what is only perceived: plans that take assumptions for the truth.

They rest on `images_for_half_width` and `images_for_change`, as the figures of audits do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fair_tta.auditing.examination_document import ChangeLabels, GroupLabels
from fair_tta.metrics.exact import images_for_change, images_for_half_width
from fair_tta.metrics.rows import Floats

HALF_WIDTH = 0.05
"""A group is called known if its accuracy is known up to so much."""

_PARTS = 1_000_000  # a rate as whole numbers


def group_labels(
    shares: Floats, values: Sequence[str], targets: Sequence[str], level: float
) -> GroupLabels:
    """What it takes to know the accuracy of every class of every value.

    Args:
        shares: ``[values, targets]`` as perceived.
        values: their names.
        targets: the names of the classes.
        level: of the intervals.
    """
    each = images_for_half_width(0.5, HALF_WIDTH, level)  # no accuracy needs more
    rarest, target = divmod(int(shares.argmin()), len(targets))
    share = min(1.0, max(0.0, float(shares[rarest, target])))
    drawn = each / share if share > 0 else math.inf
    return GroupLabels(
        half_width=HALF_WIDTH,
        each=each,
        groups=shares.size,
        rarest_target=targets[target],
        rarest_value=values[rarest],
        rarest_share=share,
        at_random=math.ceil(drawn) if drawn < 2**53 else None,
    )


def change_labels(changed: int, n: int, level: float) -> ChangeLabels:
    """What it takes to tell whether changed answers change for the better.

    If twice as many become right as become wrong, or the other way round, McNemar's test finds it.

    Args:
        changed: answers that differ.
        n: images.
        level: one minus the significance.
    """
    pictures = images_for_change(changed, 2 * changed, 3 * n, level)
    labels = None if pictures is None else math.ceil(pictures * changed / n)
    return ChangeLabels(pictures=pictures, labels=labels)


def gap_labels(change: float | None, changed_share: float, level: float) -> int | None:
    """Images of one group that would show a change of its accuracy as large as that of the gap.

    Its answers are taken to change as often as those of all images, and often enough for that.

    Args:
        change: of pseudo-EOD.
        changed_share: answers that differ.
        level: one minus the significance.
    """
    if change is None:
        return None
    net, either = round(abs(change) * _PARTS), round(changed_share * _PARTS)
    more = (max(net, either) - net) // 2
    return images_for_change(more, more + net, _PARTS, level)
