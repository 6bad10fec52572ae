"""SEM: class prompts with attribute latents of a sparse autoencoder suppressed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
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
# Sentences about common things in four wordings each, with which prompts are compared.
DIVERSE = tuple(wording.format(noun) for noun in _NOUNS for wording in _WORDINGS)

# Whole sentences that express an attribute value, by value or as pairs.
Wordings: TypeAlias = Mapping[str, Sequence[str]] | Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True)
class SEM(Adapter):
    """Change class prompts where the latents of a sparse autoencoder show the attribute.

    With ``h = relu(W (e - b) + a)`` the latents of a prompt's feature e, not normalised: the
    content score c_j of a class is the share of diverse prompts whose h_j is below the class's; the
    bias score b_j the largest over attribute values of the smaller of two shares below the value's
    h_j, among the diverse prompts and among the prompts of the attribute's other values. Then
    ``m = (1 + c - b)^2``, ``h' = m h + (1 - m) median of the diverse``, and ``e' = D h' + b`` is
    the class's feature. Images are unchanged, so an image costs a plain zero-shot call.

    This is SEM_b. An attribute value may have several `wordings`, as published: its h_j is the
    median over them, and the other values' prompts are all of theirs. With several templates it is
    SEM_bi: the first is the class's prompt, and the content score is that of the median over all.
    The largest bias score over several attributes counts.

    *SEM*, CVPR Findings 2026; public code: mardgui/SEM, whose release has autoencoders.

    Differences from the reference implementation: a value without `wordings` has its prompts in
    your templates, and a class has only those; there both have lists for each dataset. The diverse
    prompts are 340 sentences of ours instead of their 330 or so. SEM_i, which names no
    attribute, is not offered.

    Args:
        autoencoder: a safetensors file with ``bpre`` (b, ``[dim]``), ``encoder.weight`` (W,
            ``[latents, dim]``), ``encoder.bias`` (a), ``decoder.weight`` (D, ``[dim, latents]``),
            the names of the public code: ``save_file(torch.load(theirs), "sae.safetensors")``
            converts a file of it. Required.
        diverse: whole sentences about anything; `DIVERSE` if None.
        wordings: ``{value: sentences}``, whole sentences that express an attribute value, instead
            of its prompts; kept as pairs.

    Example:
        >>> SEM(autoencoder="sae.safetensors").autoencoder
        'sae.safetensors'
    """

    autoencoder: str = ""
    diverse: Sequence[str] | None = None
    wordings: Wordings | None = None

    def __post_init__(self) -> None:
        path = self.autoencoder
        if not isinstance(path, str | os.PathLike):
            raise FairTTAError(
                f"`autoencoder` should be the path of a file (got {path!r:.80}).",
                argument="autoencoder",
            )
        # Fields are frozen; a path is kept as text, so that settings can be written to a file.
        object.__setattr__(self, "autoencoder", os.fspath(path))
        if self.diverse is not None:
            is_text = isinstance(self.diverse, str)
            is_list = isinstance(self.diverse, Sequence) and not is_text
            if not is_list or not self.diverse:
                raise FairTTAError(
                    f"`diverse` should be a list of sentences (got {self.diverse!r}).",
                    argument="diverse",
                )
            object.__setattr__(self, "diverse", tuple(self.diverse))
        if self.wordings is not None:
            object.__setattr__(self, "wordings", _check_wordings(self.wordings))

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        """Sensitive attribute values, and an autoencoder."""
        return Needs(sensitive=True, setting=not self.autoencoder)

    def _identity_settings(self) -> dict[str, Any]:
        """Return settings for `fair_tta._identity.describe`, the file as its digest."""
        digest = ""
        if self.autoencoder:
            digest = sha256(_file_content(self.autoencoder)).hexdigest()
        return {
            "autoencoder": digest,
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
        # The same word for values of two attributes would be ambiguous.
        known = list(chain.from_iterable(task.sensitive.values()))
        for value in dict(self.wordings or ()):
            if known.count(value) != 1:
                raise FairTTAError(
                    f"`wordings` should be of values that exactly one attribute has, among {known} "
                    f"(got {value!r}): use the labels of `sensitive`.",
                    argument="wordings",
                )
        dim = task.target_features.shape[1]
        autoencoder_dim = len(self._weights(task)["bpre"])
        if autoencoder_dim != dim:
            raise FairTTAError(
                f"`autoencoder` should be for features of width {dim}, those of "
                f"{task.backend.name} (got {autoencoder_dim}): {self.autoencoder!r} belongs to "
                "another model.",
                argument="autoencoder",
            )

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        texts = task.remember(
            ("sem", self), lambda: self._class_features(task).to(features)
        )
        return Outcome(probabilities(task, features, texts))

    def _class_features(self, task: Task) -> Tensor:
        """Return new unit features of the classes, ``[targets, dim]``, in float64."""
        weights = self._weights(task)
        diverse = _latents(task, weights, self.diverse or DIVERSE)
        prompts = task.templates._target_prompts(task.targets)
        classes = torch.stack(
            [_latents(task, weights, _all_texts(prompt)) for prompt in prompts]
        )  # [targets, templates, latents]

        # With several templates the content score is that of the median over them (SEM_bi).
        typical_classes = classes.median(1).values
        content = torch.stack(
            [_share_below(diverse, latents) for latents in typical_classes]
        )
        bias = self._bias_scores(task, weights, diverse)
        # Latents of content are enlarged, those of the attribute pulled to the median.
        m = (1 + content - bias).square()
        latents = m * classes[:, 0] + (1 - m) * diverse.median(0).values
        return unit_features(latents @ weights["decoder.weight"].mT + weights["bpre"])

    def _bias_scores(
        self, task: Task, weights: Mapping[str, Tensor], diverse: Tensor
    ) -> Tensor:
        """Return how strongly each latent shows any attribute value, ``[latents]``."""
        bias = torch.zeros_like(diverse[0])
        for names in task.sensitive.values():
            values = [
                _latents(task, weights, sentences)
                for sentences in self._value_sentences(task, names)
            ]
            for index, latents in enumerate(values):
                typical = latents.median(0).values
                others = torch.cat([*values[:index], *values[index + 1 :]])
                # A latent shows a value if it is large beside both kinds of sentences.
                among_diverse = _share_below(diverse, typical)
                among_others = _share_below(others, typical)
                score = torch.minimum(among_diverse, among_others)
                bias = torch.maximum(bias, score)
        return bias

    def _value_sentences(
        self, task: Task, names: Mapping[str, str]
    ) -> list[Sequence[str]]:
        """Return the sentences that express each value of an attribute."""
        wordings = dict(self.wordings or ())
        prompts = task.templates._sensitive_prompts(names)
        return [
            wordings.get(value, _all_texts(prompt))
            for value, prompt in zip(names, prompts, strict=True)
        ]

    def _weights(self, task: Task) -> Mapping[str, Tensor]:
        return task.remember(
            ("autoencoder", self.autoencoder),
            lambda: _read_autoencoder(self.autoencoder),
        )


def _check_wordings(wordings: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return pairs of a value and its sentences, which can be compared and written to a file."""
    pairs = list(wordings.items() if isinstance(wordings, Mapping) else wordings)
    for value, sentences in pairs:
        is_list = isinstance(sentences, Sequence) and not isinstance(sentences, str)
        if (
            not is_list
            or not sentences
            or not all(isinstance(s, str) for s in sentences)
        ):
            raise FairTTAError(
                f"`wordings[{value!r}]` should be a list of sentences (got {sentences!r}).",
                argument="wordings",
            )
    return tuple((value, tuple(sentences)) for value, sentences in pairs)


def _all_texts(prompt: Prompt) -> Sequence[str]:
    """Return a prompt in all templates of an ensemble."""
    return (prompt.text, *prompt.further_texts)


def _latents(
    task: Task, weights: Mapping[str, Tensor], sentences: Sequence[str]
) -> Tensor:
    """Return ``h`` of sentences, ``[sentences, latents]``, in float64 on the CPU."""
    # The autoencoder was trained on features that are not normalised.
    raw = task._raw_features(task.sentence_prompts(sentences)).to("cpu", torch.float64)
    activations = (raw - weights["bpre"]) @ weights["encoder.weight"].mT
    return torch.relu(activations + weights["encoder.bias"])


def _share_below(others: Tensor, latents: Tensor) -> Tensor:
    """Return for each latent the share of others that are smaller.

    ``[n, latents], [latents] -> [latents]``
    """
    return (others < latents).double().mean(0)


def _file_content(path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise FairTTAError(
            f"`autoencoder` {path!r} could not be read: {error.strerror}.",
            argument="autoencoder",
        ) from None


def _read_autoencoder(path: str) -> dict[str, Tensor]:
    """Return the weights in float64 on the CPU."""
    try:
        weights = load(_file_content(path))
    except SafetensorError as error:
        raise FairTTAError(
            f"`autoencoder` {path!r} is not a safetensors file: {error}.",
            argument="autoencoder",
        ) from None
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    encoder_shape = shapes.get("encoder.weight", ())
    n_latents, dim = encoder_shape if len(encoder_shape) == 2 else (0, 0)
    expected = {
        "bpre": (dim,),
        "encoder.weight": (n_latents, dim),
        "encoder.bias": (n_latents,),
        "decoder.weight": (dim, n_latents),
    }
    if shapes != expected:
        raise FairTTAError(
            f"`autoencoder` {path!r} should hold bpre [dim], encoder.weight [latents, dim], "
            f"encoder.bias [latents] and decoder.weight [dim, latents] (got {shapes}).",
            argument="autoencoder",
        )
    return {name: tensor.double() for name, tensor in weights.items()}
