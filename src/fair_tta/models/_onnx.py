"""An image encoder that is an ONNX file, beside the text side of another model."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor, nn

from fair_tta._io import open_file, points_outside_model
from fair_tta.errors import ModelError, check_number, require
from fair_tta.models._loading import load
from fair_tta.models._model_lock import computed_once
from fair_tta.models._stored_text import TextTable

# Types of pixels and of features, as the runtime calls them.
_FLOAT_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


class OnnxBackend:
    """An image encoder that is an ONNX file, with the text side of another model.

    Args:
        images: the file, from pixels ``[images, 3, height, width]`` to features ``[images, dim]``,
            which are its first output with two dimensions.
        preprocess: an image processor of transformers, or a function from an RGB image to its
            pixels ``[3, height, width]``, as open_clip's and torchvision's transforms are.
        text: source of text features: any model that `FairTPTClassifier` takes, a text tower
            alone, or ``{prompt: [dim]}``.
        processor: of `text`, as for `FairTPTClassifier`; for a text tower its tokenizer.
        scale: inverse temperature; that of `text` if None.

    Example:
        >>> backend = OnnxBackend("vision.onnx", preprocess, text=model)  # doctest: +SKIP
        >>> clf = FairTPTClassifier(backend, ["cat", "dog"])  # doctest: +SKIP
    """

    sees_images = True

    def __init__(
        self,
        images: str | os.PathLike[str],
        preprocess: Callable[..., Any],
        text: Any,
        *,
        processor: Any = None,
        scale: float | None = None,
    ) -> None:
        self.path = Path(images)
        self.image_processor = preprocess
        if not self.path.is_file():
            raise ModelError(
                f"`images` should be an ONNX file (got {str(images)!r}).",
                argument="images",
            )
        if scale is not None:
            check_number(
                "scale", scale, "be a positive number", lambda x: 0 < x < math.inf
            )
        self.text: Any
        if isinstance(text, Mapping):
            self.text = TextTable(text, scale or 1.0)
        else:
            self.text = load(text, processor)
        self.scale = float(self.text.scale if scale is None else scale)
        self.name = f"{self.path.name} with the text side of {self.text.name}"

        # The locations of weights are checked before the runtime opens them.
        files = [self.path, *_weight_files(self.path)]
        _ = self._session
        # Text model and digest identify both sides.
        self.model = nn.Module().eval()
        text_model: Any = getattr(self.text, "model", None)
        self.model.text = text_model
        digest = torch.tensor(list(_digest_of_files(files)))
        self.model.register_buffer("images", digest)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the text side."""
        # `text` does not exist yet while a copy is made.
        if name.startswith("__") or name == "text":
            raise AttributeError(name)
        return getattr(self.text, name)

    def __getstate__(self) -> dict[str, Any]:
        # A session cannot be pickled.
        state = dict(vars(self))
        state.pop("_session", None)
        return state

    @property
    def _title(self) -> str:
        return f"`images` {str(self.path)!r}"

    @property
    @computed_once
    def _session(self) -> Any:
        runtime = require("onnxruntime", "onnx")
        try:
            session = runtime.InferenceSession(str(self.path))
        except Exception as error:  # the runtime has error classes of its own
            raise ModelError(
                f"{self._title} cannot be loaded: {error}", argument="images"
            ) from error
        _check_signature(self._title, session.get_inputs(), session.get_outputs())
        return session

    def preprocess(self, images: Sequence[Image]) -> Tensor:
        """Return the input of the file, pixels ``[images, 3, height, width]``."""
        if hasattr(self.image_processor, "preprocess"):
            inputs = self.image_processor(images=list(images), return_tensors="pt")
            return torch.as_tensor(inputs["pixel_values"])
        pixels = [torch.as_tensor(self.image_processor(image)) for image in images]
        return torch.stack(pixels)

    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """Return features ``[images, dim]`` of preprocessed pixels, none of them all zero.

        Raises:
            ModelError: the file does not take these pixels, or its features are unusable.
        """
        (model_input,) = self._session.get_inputs()
        shape = list(pixels.shape)
        if not _fits_shape(shape, model_input.shape):
            raise ModelError(
                f"{self._title} takes pixels {model_input.shape}, and `preprocess` makes {shape}: "
                "choose the preprocessing of the model that was exported."
            )
        # The runtime takes arrays of the exact type only.
        array = pixels.numpy(force=True).astype(_FLOAT_TYPES[model_input.type])
        output_name = _feature_output(self._session.get_outputs()).name
        try:
            (features,) = self._session.run([output_name], {model_input.name: array})
        except Exception as error:  # the runtime has error classes of its own
            raise ModelError(
                f"{self._title} failed on pixels of shape {shape}: {error}"
            ) from error
        if len(features) != len(pixels):
            raise ModelError(
                f"{self._title} should have features of each image (got {len(features)} for "
                f"{len(pixels)} images): export it with a dynamic batch."
            )
        n_zero = int((features == 0).all(1).sum())
        if n_zero:
            raise ModelError(
                f"{self._title} should make features that have a direction (got all zero for "
                f"{n_zero} of {len(pixels)} images): check the file and `preprocess`."
            )
        return torch.from_numpy(features).to(self.device)

    def encode_images(self, images: Sequence[Image]) -> Tensor:
        """Return features ``[images, dim]`` of RGB images."""
        return self.encode_pixels(self.preprocess(images))


def _weight_files(path: Path) -> list[Path]:
    """Return the files beside a model that hold its weights, without opening them.

    Raises:
        ModelError: the model cannot be read, or one is not a regular file below its folder.
    """
    try:
        model = require("onnx", "onnx").load(path, load_external_data=False)
    except ImportError:
        raise
    except Exception as error:  # onnx has error classes of its own
        raise ModelError(
            f"`images` {str(path)!r} cannot be loaded: {error}.", argument="images"
        ) from error
    # A tensor outside the file has its location among other entries.
    locations = set()
    for tensor in _tensors(model):
        for entry in tensor.external_data:
            if entry.key == "location":
                locations.add(entry.value)
    for location in sorted(locations):
        problem = _location_problem(path.parent, location)
        if problem:
            raise ModelError(
                f"`images` {str(path)!r} is not loaded: its weights should be regular files in its "
                f"own folder (got the location {location!r}, which is {problem}); take a file from "
                "someone whom you trust, or export the model again.",
                argument="images",
            )
    return [path.parent / location for location in sorted(locations)]


def _location_problem(folder: Path, location: str) -> str:
    """Return why a location is not a file below a folder; empty if it is one."""
    if "\0" in location:
        return "not a file"
    path = folder / location
    if points_outside_model(path, folder):
        return "outside its folder"
    return "" if path.is_file() else "not a file"


def _digest_of_files(files: Sequence[Path]) -> bytes:
    """Return the digest of the contents of several files, one after the other."""
    digest = sha256()
    for path in files:
        with open_file(path) as file:
            while part := file.read(2**20):
                digest.update(part)
    return digest.digest()


def _tensors(message: Any) -> Iterator[Any]:
    """Yield all tensors in a protobuf message, also those of nodes and of their graphs."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield message
        return
    for field, content in message.ListFields():
        if field.message_type is not None:
            is_single = hasattr(content, "ListFields")
            for part in [content] if is_single else content:
                yield from _tensors(part)


def _feature_output(outputs: Sequence[Any]) -> Any:
    """Return the first output with two dimensions."""
    return next(output for output in outputs if len(output.shape) == 2)


def _fits_shape(shape: Sequence[int], allowed: Sequence[Any]) -> bool:
    """Return whether a shape has the sizes that are allowed, of which names may be any size."""
    if not allowed:  # a file may leave its shape open
        return True
    if len(shape) != len(allowed):
        return False
    pairs = zip(shape, allowed, strict=True)
    return all(size == other for size, other in pairs if isinstance(other, int))


def _check_signature(name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Raise `ModelError` unless a file maps pixels of any number of images to features."""
    shapes = [output.shape for output in outputs]
    has_features = any(len(shape) == 2 for shape in shapes)
    if not has_features or len(inputs) != 1:
        raise ModelError(
            f"{name} should have one input and an output [images, dim] "
            f"(got {len(inputs)} and outputs of shapes {shapes})."
        )
    pixels = inputs[0]
    features = _feature_output(outputs)
    for tensor, duty in ((pixels, "take pixels"), (features, "have features")):
        if tensor.type not in _FLOAT_TYPES:
            raise ModelError(
                f"{name} should {duty} in float32 or float16 (got {tensor.type}): export it "
                "without quantised inputs and outputs, as torch.onnx.export does of a model in "
                "float32."
            )
    if not pixels.shape:  # the file leaves it open
        return
    if len(pixels.shape) != 4:
        raise ModelError(
            f"{name} should take pixels [images, 3, height, width] (got {pixels.shape}): export "
            "the vision tower of the model."
        )
    if isinstance(pixels.shape[0], int):
        raise ModelError(
            f"{name} should take any number of images at once (got {pixels.shape}, whose first "
            f"dimension is fixed at {pixels.shape[0]}): export it with a dynamic batch, as "
            "`dynamic_axes` of torch.onnx.export does."
        )
