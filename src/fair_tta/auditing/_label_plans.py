"""The labels that would turn what is perceived without labels into a measurement."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fair_tta.auditing import _examination as doc
from fair_tta.metrics._types import Floats
from fair_tta.metrics.intervals._closed_forms import (
    images_for_change,
    images_for_half_width,
)

HALF_WIDTH = 0.05
"""The accuracy of a group counts as known if its interval reaches no further each way."""

# McNemar's test takes counts of images: shares are given to it as so many of a million
_MILLION = 1_000_000

# Many readers of JSON hold numbers as floats, in which larger integers are not exact
_LARGEST_EXACT_FLOAT = 2**53


def group_labels(
    shares: Floats, values: Sequence[str], targets: Sequence[str], level: float
) -> doc.GroupLabels:
    """Return the labels that show the accuracy of every class of every value.

    Args:
        shares: ``[values, classes]`` perceived share of the images.
        values: names of the values.
        targets: names of the classes.
        level: of the intervals.
    """
    # No accuracy has a wider interval than 0.5
    images_per_group = images_for_half_width(0.5, HALF_WIDTH, level)
    value, target = divmod(int(shares.argmin()), len(targets))
    rarest_share = min(1.0, max(0.0, float(shares[value, target])))
    images = images_per_group / rarest_share if rarest_share > 0 else math.inf
    return doc.GroupLabels(
        half_width=HALF_WIDTH,
        each=images_per_group,
        groups=shares.size,
        rarest_target=targets[target],
        rarest_value=values[value],
        rarest_share=rarest_share,
        at_random=math.ceil(images) if images < _LARGEST_EXACT_FLOAT else None,
    )


def change_labels(changed: int, n: int, level: float) -> doc.ChangeLabels:
    """Return the labels that show whether changed answers change for the better.

    They are enough for McNemar's test if twice as many become right as become wrong, or the other
    way round.
    """
    # A third of the changed answers goes one way; all counts times 3 keeps them whole
    images = images_for_change(changed, 2 * changed, 3 * n, level)
    labels = None if images is None else math.ceil(images * changed / n)
    return doc.ChangeLabels(pictures=images, labels=labels)


def gap_labels(change: float | None, changed_share: float, level: float) -> int | None:
    """Return the images of one group that show a change of its accuracy as large as the gap's.

    Its answers are assumed to change as often as those of all images, and at least as often as such
    a change needs.
    """
    if change is None:
        return None
    net_change = round(abs(change) * _MILLION)
    all_changes = max(net_change, round(changed_share * _MILLION))
    one_way = (all_changes - net_change) // 2
    return images_for_change(one_way, one_way + net_change, _MILLION, level)
