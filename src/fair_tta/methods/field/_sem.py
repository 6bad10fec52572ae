"""SEM: prompts of classes in the latents of a sparse autoencoder, without what shows attributes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from fair_tta._linalg import unit_features
from fair_tta.errors import FairTTAError
from fair_tta.methods._base import Adapter, Needs, Outcome, probabilities
from fair_tta.prompts._task import Task
from fair_tta.prompts._templates import Prompt

_NOUNS = """
apple ball bed bee bicycle bird boat book bottle bread bridge bus cake camera candle car castle cat
chair church clock cloud coat cow cup desert dog door drum egg elephant factory farm field fire fish
flag flower forest fox garden glass guitar hammer hat hill horse house island kitchen knife ladder
lake lamp leaf letter lion map market moon mountain office painting phone piano pizza plane pond
river road robot rose school ship shoe shop snake sofa spoon stadium stone street table temple tent
""".split()
_WORDINGS = (
    "a photo of the {}.",
    "a drawing of the {}.",
    "a close-up of the {}.",
    "the {} at night.",
)
DIVERSE = tuple(wording.format(noun) for noun in _NOUNS for wording in _WORDINGS)
"""Sentences about common things in four wordings each: what prompts are compared with."""


Wordings: TypeAlias = Mapping[str, Sequence[str]] | Sequence[tuple[str, Sequence[str]]]
"""Whole sentences that say an attribute value, by value, or as pairs."""


@dataclass(frozen=True)
class SEM(Adapter):
    """Changes the prompts of the classes where the latents of an autoencoder show the attribute.

    With ``h = relu(W (e - b) + a)`` the latents of a prompt's feature e, not normalised: the
    content score c_j of a class is the share of diverse prompts whose h_j is below the class's; the
    bias score b_j the largest over attribute values of the smaller of two shares below the value's
    h_j, among the diverse prompts and among the prompts of the attribute's other values. Then
    ``m = (1 + c - b)^2``, ``h' = m h + (1 - m) median of the diverse``, and ``e' = D h' + b`` is
    the class's feature. Images stay as they are, so that an image costs nothing.

    This is SEM_b. An attribute value may have several `wordings`, as published: its h_j is the
    median over them, and the other values' prompts are all of theirs. With several templates it is
    SEM_bi: the first is the class's prompt, and the content score is that of the median over all.
    Of several attributes the largest bias score counts.

    *SEM*, CVPR Findings 2026; public code: mardgui/SEM, whose release has autoencoders.

    Differences from the reference implementation: a value without `wordings` has its prompts in
    your templates, and a class has only those; there both have lists for each dataset. The diverse
    prompts are 340 sentences of ours, in place of some 330 of theirs. SEM_i, which names no
    attribute, is not offered.

    Args:
        autoencoder: a safetensors file with ``bpre`` (b, ``[dim]``), ``encoder.weight`` (W,
            ``[latents, dim]``), ``encoder.bias`` (a), ``decoder.weight`` (D, ``[dim, latents]``),
            the names of the public code: ``save_file(torch.load(theirs), "sae.safetensors")``
            converts a file of it. Required.
        diverse: whole sentences about anything; `DIVERSE` if None.
        wordings: ``{value: sentences}``, whole sentences that say an attribute value, in place of
            its prompts; kept as pairs.

    Example:
        >>> SEM(autoencoder="sae.safetensors").autoencoder
        'sae.safetensors'
    """

    autoencoder: str = ""
    diverse: Sequence[str] | None = None
    wordings: Wordings | None = None

    def __post_init__(self) -> None:
        path, given = self.autoencoder, self.diverse
        if not isinstance(path, str | os.PathLike):
            raise FairTTAError(
                f"`autoencoder` should be the path of a file (got {path!r:.80}).",
                argument="autoencoder",
            )
        object.__setattr__(self, "autoencoder", os.fspath(path))
        if given is not None:
            if isinstance(given, str) or not isinstance(given, Sequence) or not given:
                raise FairTTAError(
                    f"`diverse` should be a list of sentences (got {given!r}).",
                    argument="diverse",
                )
            object.__setattr__(self, "diverse", tuple(given))
        if self.wordings is not None:
            object.__setattr__(self, "wordings", _checked_wordings(self.wordings))

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        """Sensitive attribute values, and an autoencoder."""
        return Needs(sensitive=True, setting=not self.autoencoder)

    def _identity_settings(self) -> dict[str, Any]:
        """For `fair_tta._identity.describe`: the file is known by its content."""
        content = self.autoencoder and sha256(_content(self.autoencoder)).hexdigest()
        return {
            "autoencoder": content,
            "diverse": self.diverse,
            "wordings": self.wordings,
        }

    def _check_task(self, task: Task) -> None:
        if self.needs.setting:
            raise FairTTAError(
                "SEM needs `autoencoder`, the file of a sparse autoencoder for this model: "
                "SEM(autoencoder='sae.safetensors'), or 'sem:autoencoder=sae.safetensors'.",
                argument="autoencoder",
            )
        every = [value for names in task.sensitive.values() for value in names]
        for value in dict(self.wordings or ()):
            if every.count(value) != 1:
                raise FairTTAError(
                    f"`wordings` should be of values that one attribute has, among {every} (got "
                    f"{value!r}): take the labels of `sensitive`.",
                    argument="wordings",
                )
        dim, width = task.target_features.shape[1], len(self._weights(task)["bpre"])
        if width != dim:
            raise FairTTAError(
                f"`autoencoder` should be for features of width {dim}, those of "
                f"{task.backend.name} (got {width}): {self.autoencoder!r} is of another model.",
                argument="autoencoder",
            )

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        texts = task.remember(
            ("sem", self), lambda: self._class_features(task).to(features)
        )
        return Outcome(probabilities(task, features, texts))

    def _class_features(self, task: Task) -> Tensor:
        """New features of the classes, of length one, in float64: ``[targets, dim]``."""
        weights = self._weights(task)

        def latents(sentences: Sequence[str]) -> Tensor:
            raw = task._raw_features(task.sentence_prompts(sentences)).to(
                "cpu", torch.float64
            )
            inside = (raw - weights["bpre"]) @ weights["encoder.weight"].mT
            return torch.relu(inside + weights["encoder.bias"])

        def of_prompts(
            prompts: Sequence[Prompt],
        ) -> Tensor:  # [prompts, wordings, latents]
            sentences = [
                text
                for prompt in prompts
                for text in (prompt.text, *prompt.further_texts)
            ]
            return torch.stack(latents(sentences).chunk(len(prompts)))

        diverse = latents(self.diverse or DIVERSE)
        classes = of_prompts(task.templates._target_prompts(task.targets))
        bias = torch.zeros_like(diverse[0])
        for names in task.sensitive.values():
            values = [latents(sentences) for sentences in self._sentences(task, names)]
            for place, own in enumerate(values):
                typical = own.median(0).values
                others = torch.cat([*values[:place], *values[place + 1 :]])
                scores = torch.minimum(
                    _share_below(diverse, typical), _share_below(others, typical)
                )
                bias = torch.maximum(bias, scores)
        content = torch.stack(
            [_share_below(diverse, one) for one in classes.median(1).values]
        )
        share = (1 + content - bias).square()
        kept = share * classes[:, 0] + (1 - share) * diverse.median(0).values
        return unit_features(kept @ weights["decoder.weight"].mT + weights["bpre"])

    def _sentences(self, task: Task, names: Mapping[str, str]) -> list[Sequence[str]]:
        """Sentences that say each value of an attribute."""
        wordings = dict(self.wordings or ())
        prompts = task.templates._sensitive_prompts(names)
        return [
            wordings.get(value, (prompt.text, *prompt.further_texts))
            for value, prompt in zip(names, prompts, strict=True)
        ]

    def _weights(self, task: Task) -> Mapping[str, Tensor]:
        return task.remember(
            ("autoencoder", self.autoencoder), lambda: _read(self.autoencoder)
        )


def _checked_wordings(wordings: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return pairs of a value and its sentences, which can be compared and written to a file."""
    pairs = list(wordings.items() if isinstance(wordings, Mapping) else wordings)
    for value, sentences in pairs:
        are_texts = isinstance(sentences, Sequence) and all(
            isinstance(s, str) for s in sentences
        )
        if isinstance(sentences, str) or not are_texts or not sentences:
            raise FairTTAError(
                f"`wordings[{value!r}]` should be a list of sentences (got {sentences!r}).",
                argument="wordings",
            )
    return tuple((value, tuple(sentences)) for value, sentences in pairs)


def _share_below(others: Tensor, latents: Tensor) -> Tensor:
    """Of each latent the share of others that are smaller: ``[n, latents], [latents]``."""
    return (others < latents).double().mean(0)


def _content(path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise FairTTAError(
            f"`autoencoder` {path!r} could not be read: {error.strerror}.",
            argument="autoencoder",
        ) from None


def _read(path: str) -> dict[str, Tensor]:
    """The weights in float64 on the CPU."""
    try:
        found = load(_content(path))
    except SafetensorError as error:
        raise FairTTAError(
            f"`autoencoder` {path!r} is not a safetensors file: {error}.",
            argument="autoencoder",
        ) from None
    shapes = {name: tuple(tensor.shape) for name, tensor in found.items()}
    n, dim = (*shapes.get("encoder.weight", ()), 0, 0)[:2]
    wanted = {"bpre": (dim,), "encoder.weight": (n, dim), "encoder.bias": (n,)}
    if shapes != {**wanted, "decoder.weight": (dim, n)}:
        raise FairTTAError(
            f"`autoencoder` {path!r} should hold bpre [dim], encoder.weight [latents, dim], "
            f"encoder.bias [latents] and decoder.weight [dim, latents] (got {shapes}).",
            argument="autoencoder",
        )
    return {name: tensor.double() for name, tensor in found.items()}
