"""ONNX: a method as a file that other runtimes use, and an image encoder that is such a file."""

from __future__ import annotations

import json
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
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fair_tta._io import open_file, points_outside, write_atomically
from fair_tta._linalg import unit_features
from fair_tta.errors import FairTTAError, ModelError, check_number, require
from fair_tta.methods._base import Adapter
from fair_tta.methods._cross_fit import CrossFitted
from fair_tta.models._loading import load
from fair_tta.models._model_lock import computed_once
from fair_tta.models._stored_text import TextTable
from fair_tta.prompts._task import Task

_BATCH = 509  # images of a trial: a prime, so that a size it divides counts images
_OPSET, _IR = 18, 8  # of onnx 1.13, from 2022
_MOST = 1e-5  # by which probabilities of a file may differ

_REASONS = {
    "pixels": "it needs the images themselves",
    "views": "it needs further views of an image",
    "prompt_gradient": "it tunes the prompt for each image",
    "values": "it needs the attribute value of each image",
}


def export_head(adapter: Adapter, task: Task, path: str | os.PathLike[str]) -> None:
    """Write a method for the prompts of a task; see `FairTPTClassifier.export`."""
    onnx, runtime = require("onnx", "onnx"), require("onnxruntime", "onnx")
    cannot = f"{type(adapter).__name__} cannot be exported: "
    reasons = [
        reason for need, reason in _REASONS.items() if getattr(adapter.needs, need)
    ]
    if isinstance(adapter, CrossFitted):
        reasons = ["it answers each image by one of several fits"]
    if reasons:
        raise FairTTAError(f"{cannot}{reasons[0]}, and a file has one feature.")

    def head(features: Tensor) -> Tensor:
        return adapter.adapt(task, unit_features(features).unsqueeze(1)).probabilities

    texts = task.target_features
    noise = torch.randn(
        _BATCH, texts.shape[1], generator=torch.Generator().manual_seed(0)
    )
    trial = unit_features(
        texts[torch.arange(_BATCH) % len(texts)].cpu() + unit_features(noise)
    ).to(texts)
    head(trial[:1])  # what is kept of the prompts is made now, not in the recording
    recorder = _Recorder(onnx, trial, cannot)
    with torch.no_grad(), recorder:
        found = head(trial)
    labels = json.dumps(list(task.targets), ensure_ascii=False)
    facts = {"targets": labels, "method": repr(adapter), "model": task.backend.name}
    model = recorder.model(found)
    onnx.helper.set_model_props(model, facts)
    session = runtime.InferenceSession(model.SerializeToString())
    (again,) = session.run(None, {"features": trial[:3].cpu().numpy()})
    difference = float(np.abs(again - head(trial[:3]).numpy(force=True)).max())
    if not difference <= _MOST:
        raise FairTTAError(
            f"{cannot}its file would give other probabilities, by {difference:.1g}."
        )
    write_atomically(path, model.SerializeToString())


class _Recorder(TorchDispatchMode):
    """Writes down what is computed from one tensor as ONNX nodes; all else is constant."""

    def __init__(self, onnx: Any, features: Tensor, cannot: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._onnx, self._cannot = onnx, cannot
        self._names = {id(features): "features"}
        self._alive = [features]  # or another tensor could get the same id
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if any(id(leaf) in self._names for leaf in tree_leaves((args, kwargs))):
            operator, first = str(function).split(".")[1], tree_leaves(result)[0]
            try:
                made = _OPERATORS[operator](self, first, *args, **(kwargs or {}))
            except (KeyError, TypeError) as error:
                what = f"it computes {operator!r} for each image, which ONNX has no operator for."
                raise FairTTAError(self._cannot + what) from error
            for tensor, name in zip(tree_leaves(result), made.split(), strict=True):
                self._names[id(tensor)] = name
                self._alive.append(tensor)
        return result

    def model(self, result: Tensor) -> Any:
        """The whole file, when all is recorded."""
        helper = self._onnx.helper
        self._nodes.append(
            helper.make_node("Identity", [self.name(result)], ["probabilities"])
        )
        given, found = (
            [
                helper.make_tensor_value_info(name, 1, ["images", tensor.shape[1]])
            ]  # 1 is float32
            for name, tensor in (
                ("features", self._alive[0]),
                ("probabilities", result),
            )
        )
        graph = helper.make_graph(
            self._nodes, "fair_tta", given, found, self._constants
        )
        opset = helper.make_opsetid("", _OPSET)
        return helper.make_model(graph, ir_version=_IR, opset_imports=[opset])

    def node(
        self, operator: str, *inputs: Any, outputs: int = 1, **attributes: Any
    ) -> str:
        """Its outputs, by names with spaces between them; inputs are names, tensors or numbers."""
        names = [f"{operator}_{len(self._nodes)}_{i}" for i in range(outputs)]
        given = [each if isinstance(each, str) else self.name(each) for each in inputs]
        self._nodes.append(
            self._onnx.helper.make_node(operator, given, names, **attributes)
        )
        return " ".join(names)

    def name(self, value: Any, like: Tensor | None = None) -> str:
        """The name of a tensor or of a constant, as the dtype of `like`."""
        dtype = None if like is None else like.dtype
        if id(value) in self._names:
            name = self._names[id(value)]
            kind = torch.empty(0, dtype=dtype or value.dtype).numpy().dtype
            to = self._onnx.helper.np_dtype_to_tensor_dtype(kind)
            return (
                name if dtype in (None, value.dtype) else self.node("Cast", name, to=to)
            )
        tensor = torch.as_tensor(value, dtype=dtype)
        if tensor.ndim and len(tensor) == _BATCH:  # the same for each image
            count = self.node("Slice", self.node("Shape", "features"), [0], [1])
            shape = self.node("Concat", count, list(tensor.shape[1:]), axis=0)
            return self.node("Expand", tensor[:1], shape)
        name, array = (
            f"constant_{len(self._constants)}",
            tensor.numpy(force=True).copy(),
        )
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name


def _alike(operator: str) -> Callable[..., str]:
    """Of numbers or tensors of one dtype, that of the result."""
    return lambda r, out, *args: r.node(operator, *(r.name(each, out) for each in args))


def _reduced(operator: str) -> Callable[..., str]:
    return lambda r, _, x, dims, keep=False: r.node(
        operator, x, dims, keepdims=int(keep)
    )


def _clip(r: _Recorder, _: Tensor, x: Tensor, low: Any = None, high: Any = None) -> str:
    return r.node(
        "Clip", x, *("" if end is None else r.name(end, x) for end in (low, high))
    )


def _shaped(r: _Recorder, out: Tensor, x: Tensor, *_: Any) -> str:
    return r.node("Reshape", x, [n if n % _BATCH else -1 for n in out.shape])


def _expanded(r: _Recorder, out: Tensor, x: Tensor, *_: Any) -> str:
    return r.node("Expand", x, [n if n % _BATCH else 1 for n in out.shape])


def _sorted(
    r: _Recorder,
    _: Tensor,
    x: Tensor,
    *,
    dim: int = -1,
    descending: bool = False,
    stable: bool,
) -> str:
    return r.node(
        "TopK", x, [x.shape[dim]], outputs=2, axis=dim, largest=int(descending)
    )


def _transposed(r: _Recorder, out: Tensor, x: Tensor, first: int, second: int) -> str:
    order = list(range(x.ndim))
    order[first], order[second] = order[second], order[first]
    return r.node("Transpose", x, perm=order)


_OPERATORS: dict[str, Callable[..., str]] = {
    **{
        name: _alike(name.title())
        for name in "add div exp log mul pow sqrt sub".split()
    },
    "alias": _alike("Identity"),
    "rsub": lambda r, out, x, y: _alike("Sub")(r, out, y, x),
    "remainder": _alike("Mod"),
    "mm": _alike("MatMul"),
    "bmm": _alike("MatMul"),
    "gt": lambda r, _, x, y: r.node("Greater", x, r.name(y, x)),
    "where": lambda r, out, which, x, y: r.node(
        "Where", which, r.name(x, out), r.name(y, out)
    ),
    "mean": _reduced("ReduceMean"),
    "sum": _reduced("ReduceSum"),
    "amax": _reduced("ReduceMax"),
    "amin": _reduced("ReduceMin"),
    "logsumexp": _reduced("ReduceLogSumExp"),
    "linalg_vector_norm": lambda r, out, x, _, *how: _reduced("ReduceL2")(
        r, out, x, *how
    ),
    "argmax": lambda r, _, x, dim, keep=False: r.node(
        "ArgMax", x, axis=dim, keepdims=int(keep)
    ),
    "_softmax": lambda r, _, x, dim, __: r.node("Softmax", x, axis=dim),
    "_log_softmax": lambda r, _, x, dim, __: r.node("LogSoftmax", x, axis=dim),
    "clamp": _clip,
    "clamp_min": _clip,
    "sort": _sorted,
    "cat": lambda r, _, tensors, dim=0: r.node("Concat", *tensors, axis=dim),
    "gather": lambda r, _, x, dim, index: r.node("GatherElements", x, index, axis=dim),
    "index": lambda r, _, x, places: r.node("Gather", x, *places),
    "select": lambda r, _, x, dim, place: r.node("Gather", x, r.name(place), axis=dim),
    "slice": lambda r, _, x, dim, start, end: r.node("Slice", x, [start], [end], [dim]),
    "squeeze": lambda r, _, x, dim: r.node(
        "Squeeze", x, [dim] if isinstance(dim, int) else dim
    ),
    "unsqueeze": lambda r, _, x, dim: r.node("Unsqueeze", x, [dim]),
    "transpose": _transposed,
    "view": _shaped,
    "_unsafe_view": _shaped,
    "expand": _expanded,
    "_to_copy": lambda r, out, x, **_: r.name(x, out),
}
"""How an operator of ATen is written, by recorder, result and arguments."""


def _files_beside(path: Path) -> list[Path]:
    """Return the files beside a model that hold its weights, without opening them.

    Raises:
        ModelError: the model cannot be read, or one is not a regular file below its folder.
    """
    try:
        model = require("onnx", "onnx").load(path, load_external_data=False)
    except ImportError:
        raise
    except Exception as error:  # of its own kinds
        raise ModelError(
            f"`images` {str(path)!r} cannot be loaded: {error}.", argument="images"
        ) from error
    entries = (entry for tensor in _tensors(model) for entry in tensor.external_data)
    locations = sorted({entry.value for entry in entries if entry.key == "location"})
    for location in locations:
        reason = _why_not_beside(path.parent, location)
        if reason:
            raise ModelError(
                f"`images` {str(path)!r} is not loaded: its weights should be regular files in its "
                f"own folder (got the location {location!r}, which is {reason}); take a file of "
                "somebody whom you trust, or export the model again.",
                argument="images",
            )
    return [path.parent / location for location in locations]


def _why_not_beside(folder: Path, location: str) -> str:
    """Return why a location is not a file below a folder; empty if it is one."""
    if "\0" in location:
        return "not a file"
    place = folder / location
    if points_outside(place, folder):
        return "outside its folder"
    return "" if place.is_file() else "not a file"


def _digest(files: Sequence[Path]) -> bytes:
    """Return the digest of what several files hold, one after the other."""
    digest = sha256()
    for path in files:
        with open_file(path) as file:
            while part := file.read(2**20):
                digest.update(part)
    return digest.digest()


def _tensors(message: Any) -> Iterator[Any]:
    """All tensors in a model, those of its nodes and their graphs too."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for one in [value] if hasattr(value, "ListFields") else value:
                yield from _tensors(one)


_NUMBERS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
"""Types of pixels and of features, as the runtime calls them."""


def _feature_output(outputs: Sequence[Any]) -> Any:
    """Return the first output with two dimensions."""
    return next(output for output in outputs if len(output.shape) == 2)


def _fits(shape: Sequence[int], allowed: Sequence[Any]) -> bool:
    """Return whether a shape has the sizes that are allowed, of which those in words are free."""
    if len(shape) != len(allowed):
        return not allowed  # a file may leave its shape open
    pairs = zip(shape, allowed, strict=True)
    return all(size == other for size, other in pairs if isinstance(other, int))


def _check_ends(named: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Raise `ModelError` unless a file takes pixels of any number of images and has features."""
    shapes = [output.shape for output in outputs]
    if 2 not in map(len, shapes) or len(inputs) != 1:
        raise ModelError(
            f"{named} should have one input and an output [images, dim] "
            f"(got {len(inputs)} and outputs of shapes {shapes})."
        )
    pixels, features = inputs[0], _feature_output(outputs)
    for end, what in ((pixels, "take pixels"), (features, "have features")):
        if end.type not in _NUMBERS:
            raise ModelError(
                f"{named} should {what} in float32 or float16 (got {end.type}): export it without "
                "quantised inputs and outputs, as torch.onnx.export does of a model in float32."
            )
    if len(pixels.shape) not in (0, 4):  # none if the file leaves it open
        raise ModelError(
            f"{named} should take pixels [images, 3, height, width] (got {pixels.shape}): export "
            "the vision tower of the model."
        )
    if pixels.shape and isinstance(pixels.shape[0], int):
        raise ModelError(
            f"{named} should take any number of images at once (got {pixels.shape}, whose first "
            f"dimension is fixed at {pixels.shape[0]}): export it with a dynamic batch, as "
            "`dynamic_axes` of torch.onnx.export does."
        )


class OnnxBackend:
    """An image encoder that is an ONNX file, beside the text side of another model.

    Args:
        images: the file, from pixels ``[images, 3, height, width]`` to features ``[images, dim]``,
            which are its first output with two dimensions.
        preprocess: an image processor of transformers, or a function from an RGB image to its
            pixels ``[3, height, width]``, as open_clip's and torchvision's transforms are.
        text: where features of sentences come from: whatever `FairTPTClassifier` takes as a model,
            a text tower alone too, or ``{prompt: [dim]}``.
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
        self.path, self.image_processor = Path(images), preprocess
        if not self.path.is_file():
            raise ModelError(
                f"`images` should be an ONNX file (got {str(images)!r}).",
                argument="images",
            )
        if scale is not None:
            check_number(
                "scale", scale, "be a positive number", lambda x: 0 < x < math.inf
            )
        is_table = isinstance(text, Mapping)
        self.text: Any = (
            TextTable(text, scale or 1.0) if is_table else load(text, processor)
        )
        self.scale = float(self.text.scale if scale is None else scale)
        self.name = f"{self.path.name} with the text side of {self.text.name}"
        self.model = nn.Module().eval()  # by which both sides are known
        text_model: Any = getattr(self.text, "model", None)
        self.model.text = text_model
        # where the weights lie is checked before the runtime opens them
        files = [self.path, *_files_beside(self.path)]
        _ = self._session
        self.model.register_buffer("images", torch.tensor(list(_digest(files))))

    def __getattr__(self, name: str) -> Any:
        """What the text side has."""
        if name.startswith("__") or name == "text":  # not there yet, in a copy
            raise AttributeError(name)
        return getattr(self.text, name)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_session"}

    @property
    @computed_once
    def _session(self) -> Any:
        runtime = require("onnxruntime", "onnx")
        try:
            session = runtime.InferenceSession(str(self.path))
        except Exception as error:  # of its own kinds
            raise ModelError(
                f"`images` {str(self.path)!r} cannot be loaded: {error}",
                argument="images",
            ) from error
        _check_ends(
            f"`images` {str(self.path)!r}", session.get_inputs(), session.get_outputs()
        )
        return session

    def preprocess(self, images: Sequence[Image]) -> Tensor:
        """Pixels ``[images, 3, height, width]`` as the file wants them."""
        if hasattr(self.image_processor, "preprocess"):
            found = self.image_processor(images=list(images), return_tensors="pt")[
                "pixel_values"
            ]
            return torch.as_tensor(found)
        return torch.stack(
            [torch.as_tensor(self.image_processor(image)) for image in images]
        )

    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """Return the features of preprocessed pixels, which are not all zero.

        Raises:
            ModelError: the pixels are not those that the file takes, or its features are unusable.
        """
        (taken,) = self._session.get_inputs()
        shape = list(pixels.shape)
        named = f"`images` {str(self.path)!r}"
        if not _fits(shape, taken.shape):
            raise ModelError(
                f"{named} takes pixels {taken.shape}, and `preprocess` makes {shape}: choose the "
                "preprocessing of the model that was exported."
            )
        array = pixels.numpy(force=True).astype(_NUMBERS[taken.type])
        name = _feature_output(self._session.get_outputs()).name
        try:
            (features,) = self._session.run([name], {taken.name: array})
        except Exception as error:  # of its own kinds
            raise ModelError(
                f"{named} failed on pixels of shape {shape}: {error}"
            ) from error
        if len(features) != len(pixels):
            raise ModelError(
                f"{named} should have features of each image (got {len(features)} for "
                f"{len(pixels)} images): export it with a dynamic batch."
            )
        without_direction = int((features == 0).all(1).sum())
        if without_direction:
            raise ModelError(
                f"{named} should make features that have a direction (got all zero for "
                f"{without_direction} of {len(pixels)} images): check the file and `preprocess`."
            )
        return torch.from_numpy(features).to(self.device)

    def encode_images(self, images: Sequence[Image]) -> Tensor:
        """Features of RGB images."""
        return self.encode_pixels(self.preprocess(images))
