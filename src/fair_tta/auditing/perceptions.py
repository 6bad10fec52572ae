"""What passes by of each picture, and the figures that are made of it without labels."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import convert

from fair_tta.adapters import Adapter
from fair_tta.auditing.associations import Associations
from fair_tta.auditing.document import AdapterFields, Difference, Measured
from fair_tta.auditing.examination import Examination
from fair_tta.auditing.examination_document import (
    EXAMINATION_ID,
    ExaminationDocument,
    ExaminedAdapter,
    PerceivedAttribute,
    PseudoChange,
    ResamplingSettings,
)
from fair_tta.auditing.label_plans import change_labels, gap_labels, group_labels
from fair_tta.errors import FairTTAError
from fair_tta.metrics.bootstrap import Bootstrap
from fair_tta.metrics.certainty import average_sensitive_indifference, mean
from fair_tta.metrics.estimate import SMALL, listed
from fair_tta.metrics.exact import wilson
from fair_tta.metrics.perceived import r_squared
from fair_tta.metrics.perceived_bootstrap import PseudoOdds, pseudo_odds
from fair_tta.metrics.rows import Floats, Ints
from fair_tta.prediction import Prediction
from fair_tta.runs.plain_form import adapter_settings
from fair_tta.runs.provenance import ORIGIN, environment

MOST_ENTROPY, MOST_R_SQUARED = 0.8, 0.7
"""Above these an attribute has a stop sign."""

NOTICE = (
    "The ranking is by the change of pseudo-EOD: the model's own perception, not a measurement on "
    "people. Over 58 tasks of four small models it tracked the true change with rank correlation "
    "0.78. It says nothing about accuracy: answers given at random close every gap."
)

_LEAST = float(np.finfo(np.float32).tiny)  # of a probability, for its logarithm


class Perceptions:
    """A few numbers of each picture.

    Args:
        associations: of the prompts; it has the names of values and classes.
        adapters: ``{name: adapter}``
    """

    def __init__(self, associations: Associations, adapters: Mapping[str, Adapter]) -> None:
        self._logits = associations.to_dict()
        self._adapters = adapters
        first = next(iter(self._logits.values()))
        self._targets = tuple(next(iter(first.values())))
        self._place = {name: place for place, name in enumerate(self._targets)}
        self._target = array("d")
        self._sensitive = {attribute: array("d") for attribute in self._logits}
        self._answers = [array("q") for _ in range(1 + len(adapters))]
        self._warnings: dict[str, Counter[str]] = {name: Counter() for name in adapters}

    def __len__(self) -> int:
        return len(self._answers[0])

    def add(self, predictions: Sequence[Prediction]) -> None:
        """One more picture: the prediction of `ZeroShot`, and that of each adapter."""
        own = predictions[0]
        self._target.extend(own.zero_shot.values())
        for attribute, column in self._sensitive.items():
            column.extend(own.sensitive_zero_shot[attribute].values())
        for answers, prediction in zip(self._answers, predictions, strict=True):
            answers.append(self._place[prediction.label])
        for counter, prediction in zip(self._warnings.values(), predictions[1:], strict=True):
            counter.update(prediction.warnings)

    def examine(
        self, interval: Bootstrap, provenance: Mapping[str, Any], notes: Sequence[str] = ()
    ) -> Examination:
        """All figures.

        Args:
            interval: how intervals are made.
            provenance: model, prompts and whatever else is to be written down.
            notes: sentences to begin the warnings with.

        Raises:
            FairTTAError: there are no pictures.
        """
        n = len(self)
        if not n:
            raise FairTTAError("`images` should be at least one image (got none).")
        target = np.array(self._target).reshape(n, -1)
        answers = [np.array(column) for column in self._answers]
        perceived = {a: np.array(of).reshape(n, -1) for a, of in self._sensitive.items()}
        odds = {a: pseudo_odds(answers, target, w, interval) for a, w in perceived.items()}
        attributes = {
            a: self._attribute(a, w, target, odds[a], interval.level) for a, w in perceived.items()
        }
        adapters = tuple(
            self._adapter(place, answers, odds, interval.level)
            for place in range(len(self._adapters))
        )
        few = [f"Fewer than {SMALL} images, so figures are uncertain."] if n < SMALL else []
        few += [text for a, w in perceived.items() for text in self._rare(a, w, target)]
        return Examination(
            ExaminationDocument(
                EXAMINATION_ID,
                n,
                self._targets,
                ResamplingSettings(interval.level, interval.resamples, interval.seed),
                attributes,
                adapters,
                {a: _ranking(adapters, a) for a in attributes},
                NOTICE,
                {**environment(), **dict.fromkeys(ORIGIN), **provenance},
                (*notes, *few),
            )
        )

    def _attribute(
        self, attribute: str, w: Floats, target: Floats, odds: PseudoOdds, level: float
    ) -> PerceivedAttribute:
        entropy = average_sensitive_indifference(probabilities=w, level=level)
        explained = r_squared(np.log(np.maximum(target, _LEAST)), w)
        table = self._logits[attribute]
        return PerceivedAttribute(
            {v: Measured.of(mean(w[:, k], level)) for k, v in enumerate(table)},
            Measured.of(entropy),
            Measured.of(mean(w.max(1), level)),
            None if np.isnan(explained) else explained,
            table,
            Measured.of(odds.runs[0]),
            tuple(stop_signs(attribute, entropy.value, explained)),
            group_labels(
                np.einsum("ns,ny->sy", w, target) / len(w), list(table), self._targets, level
            ),
        )

    def _adapter(
        self, place: int, answers: list[Ints], odds: Mapping[str, PseudoOdds], level: float
    ) -> ExaminedAdapter:
        name, adapter = list(self._adapters.items())[place]
        n, changed = len(self), int((answers[place + 1] != answers[0]).sum())
        low, high = wilson(changed, n, level)
        return ExaminedAdapter(
            name,
            convert(adapter_settings(adapter), AdapterFields),
            changed,
            Measured(changed / n, low, high, n, None),
            {a: _pseudo_change(of, place, changed / n, level) for a, of in odds.items()},
            change_labels(changed, n, level),
            dict(self._warnings[name]),
        )

    def _rare(self, attribute: str, w: Floats, target: Floats) -> list[str]:
        """A sentence on groups that are perceived on few images."""
        sums = np.einsum("ns,ny->sy", w, target)
        few = [
            f"{y} / {s} ({sums[k, c]:.1f})"
            for k, s in enumerate(self._logits[attribute])
            for c, y in enumerate(self._targets)
            if sums[k, c] < SMALL
        ]
        text = f"{attribute}: fewer than {SMALL} images each are perceived as {listed(few)}."
        return [text] if few and len(self) >= SMALL else []


def stop_signs(attribute: str, entropy: float, explained: float) -> list[str]:
    """Why an attribute should not be corrected by.

    Args:
        attribute: its name.
        entropy: mean normalised entropy of what is perceived.
        explained: R^2 of the target's logits on what is perceived, NaN if it is not defined.
    """
    signs = []
    if entropy > MOST_ENTROPY:
        signs.append(
            f"the model does not perceive {attribute!r} (mean normalised entropy {entropy:.2f}, "
            f"above {MOST_ENTROPY}): do not correct by it."
        )
    if explained > MOST_R_SQUARED:
        signs.append(
            f"the model cannot tell {attribute!r} and the target apart (R^2 {explained:.2f}, above "
            f"{MOST_R_SQUARED}): what corrects by one takes away the other."
        )
    return signs


def _pseudo_change(odds: PseudoOdds, place: int, changed: float, level: float) -> PseudoChange:
    change = Difference.of(odds.changes[place])
    needed = gap_labels(change.value, changed, level)
    return PseudoChange(Measured.of(odds.runs[place + 1]), change, needed)


def _ranking(adapters: Sequence[ExaminedAdapter], attribute: str) -> tuple[str, ...]:
    """The largest fall first; what has no figure comes last."""

    def change(adapter: ExaminedAdapter) -> float:
        value = adapter.pseudo_eod[attribute].change.value
        return np.inf if value is None else value

    return tuple(adapter.name for adapter in sorted(adapters, key=change))
