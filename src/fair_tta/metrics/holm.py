"""Several comparisons at once: errors of Holm's step-down procedure (1979)."""

from __future__ import annotations

from collections.abc import Callable


def holm_errors(is_shown: Callable[[int, float], bool], count: int, error: float) -> list[float]:
    """The error at which each of several comparisons is to be judged.

    With all of them judged so, a comparison without a difference is called different with at most
    the probability `error`, whichever they are. First each has its share of the error; those that
    show a difference leave, and the others share it again, until none is left that does.

    Args:
        is_shown: whether a comparison, by its place, shows a difference at an error.
        count: how many comparisons there are.
        error: of all together, such as 0.05.

    Example:
        >>> p_values = [0.012, 0.2, 0.03]
        >>> holm_errors(lambda i, error: p_values[i] <= error, 3, 0.06)
        [0.02, 0.06, 0.03]
    """
    errors, left = [error] * count, list(range(count))
    while left:
        share = error / len(left)
        shown = [i for i in left if is_shown(i, share)]
        for i in shown or left:
            errors[i] = share
        left = [i for i in left if i not in shown] if shown else []
    return errors
