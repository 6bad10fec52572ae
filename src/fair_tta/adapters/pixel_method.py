"""What methods that work on the pictures themselves have in common."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from fair_tta.adapters.contract import Outcome, features_will_not_do
from fair_tta.text.task import Task


class PixelMethod:
    """The part of `AdaptsPixels` that is the same for all; a subclass says `adapt_pixels`."""

    needs_sensitive: ClassVar[bool] = False
    needs_views: ClassVar[bool] = True
    needs_pixels: ClassVar[bool] = True
    needs_prompt_gradient: ClassVar[bool]

    def check_task(self, task: Task) -> None:
        """See `AdaptsPixels.check_task`: any model will do."""

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """Raises an error: see `AdaptsPixels`."""
        raise features_will_not_do(self)
