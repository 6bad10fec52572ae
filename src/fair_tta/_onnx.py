"""Methods as ONNX files, which other runtimes use."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fair_tta._io import write_atomically
from fair_tta._linalg import unit_features
from fair_tta.errors import FairTTAError, require
from fair_tta.methods._base import Adapter
from fair_tta.methods._cross_fit import CrossFitted
from fair_tta.prompts._task import Task

# Images of the trial that is recorded. A prime, so that any size that it divides counts images.
_TRIAL_IMAGES = 509
# Versions of onnx 1.13, from 2022.
_OPSET_VERSION = 18
_IR_VERSION = 8
_FLOAT32 = 1  # its number in ONNX
_MAX_DIFFERENCE = 1e-5  # of probabilities of a file, from those of the method

_REASONS = {
    "pixels": "it needs the images themselves",
    "views": "it needs further views of an image",
    "prompt_gradient": "it tunes the prompt for each image",
    "values": "it needs the attribute value of each image",
}


def export_head(adapter: Adapter, task: Task, path: str | os.PathLike[str]) -> None:
    """Write a method for the prompts of a task; see `FairTPTClassifier.export`."""
    onnx = require("onnx", "onnx")
    runtime = require("onnxruntime", "onnx")
    refusal = f"{type(adapter).__name__} cannot be exported: "
    reasons = [
        reason for need, reason in _REASONS.items() if getattr(adapter.needs, need)
    ]
    if isinstance(adapter, CrossFitted):
        reasons = ["it answers each image by one of several fits"]
    if reasons:
        raise FairTTAError(f"{refusal}{reasons[0]}, and a file has one feature.")

    def head(features: Tensor) -> Tensor:
        return adapter.adapt(task, unit_features(features).unsqueeze(1)).probabilities

    # What the method computes once for the prompts is computed now, not in the recording.
    trial = _trial_features(task.target_features)
    head(trial[:1])
    recorder = _Recorder(onnx, trial, refusal)
    with torch.no_grad(), recorder:
        probabilities = head(trial)
    model = recorder.model(probabilities)
    properties = {
        "targets": json.dumps(list(task.targets), ensure_ascii=False),
        "method": repr(adapter),
        "model": task.backend.name,
    }
    onnx.helper.set_model_props(model, properties)

    # With another number of images the file must agree with the method.
    session = runtime.InferenceSession(model.SerializeToString())
    (from_file,) = session.run(None, {"features": trial[:3].cpu().numpy()})
    expected = head(trial[:3]).numpy(force=True)
    difference = float(np.abs(from_file - expected).max())
    if not difference <= _MAX_DIFFERENCE:
        raise FairTTAError(
            f"{refusal}its file would have other probabilities, by {difference:.1g}."
        )
    write_atomically(path, model.SerializeToString())


def _trial_features(texts: Tensor) -> Tensor:
    """Return image features ``[_TRIAL_IMAGES, dim]``: those of texts in turn, with noise."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(_TRIAL_IMAGES, texts.shape[1], generator=generator)
    repeated = texts[torch.arange(_TRIAL_IMAGES) % len(texts)].cpu()
    return unit_features(repeated + unit_features(noise)).to(texts)


class _Recorder(TorchDispatchMode):
    """Records all that is computed from one tensor as ONNX nodes; the rest is constant."""

    def __init__(self, onnx: Any, features: Tensor, refusal: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._onnx = onnx
        self._refusal = refusal
        self._features = features
        self._names = {id(features): "features"}
        # Kept alive, or another tensor could get the same id.
        self._named_tensors = [features]
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        if any(id(leaf) in self._names for leaf in tree_leaves((args, kwargs))):
            self._record(str(function).split(".")[1], result, args, kwargs)
        return result

    def _record(
        self, operator: str, result: Any, args: Any, kwargs: dict[str, Any]
    ) -> None:
        """Add the nodes of an operator of ATen, and name the tensors in its result."""
        tensors = tree_leaves(result)
        try:
            names = _OPERATORS[operator](self, tensors[0], *args, **kwargs)
        except (KeyError, TypeError) as error:
            raise FairTTAError(
                f"{self._refusal}it computes {operator!r} for each image, which ONNX has no "
                "operator for."
            ) from error
        if isinstance(names, str):
            names = [names]
        for tensor, name in zip(tensors, names, strict=True):
            self._names[id(tensor)] = name
            self._named_tensors.append(tensor)

    def model(self, probabilities: Tensor) -> Any:
        """Return the ONNX model after the recording."""
        helper = self._onnx.helper
        output = helper.make_node(
            "Identity", [self.name(probabilities)], ["probabilities"]
        )
        graph = helper.make_graph(
            [*self._nodes, output],
            "fair_tta",
            [self._value_info("features", self._features)],
            [self._value_info("probabilities", probabilities)],
            self._constants,
        )
        opset = helper.make_opsetid("", _OPSET_VERSION)
        return helper.make_model(graph, ir_version=_IR_VERSION, opset_imports=[opset])

    def _value_info(self, name: str, tensor: Tensor) -> Any:
        shape = ["images", tensor.shape[1]]
        return self._onnx.helper.make_tensor_value_info(name, _FLOAT32, shape)

    def nodes(
        self, operator: str, *inputs: Any, outputs: int, **attributes: Any
    ) -> list[str]:
        """Add a node and return the names of its outputs; inputs are names or constants."""
        input_names = [
            part if isinstance(part, str) else self.name(part) for part in inputs
        ]
        output_names = [
            f"{operator}_{len(self._nodes)}_{index}" for index in range(outputs)
        ]
        self._nodes.append(
            self._onnx.helper.make_node(
                operator, input_names, output_names, **attributes
            )
        )
        return output_names

    def node(self, operator: str, *inputs: Any, **attributes: Any) -> str:
        """Add a node with one output and return its name."""
        (name,) = self.nodes(operator, *inputs, outputs=1, **attributes)
        return name

    def name(self, operand: Any, like: Tensor | None = None) -> str:
        """Return the name of a tensor or of a constant, in the dtype of `like`."""
        dtype = None if like is None else like.dtype
        if id(operand) in self._names:
            return self._cast(operand, dtype)
        constant = torch.as_tensor(operand, dtype=dtype)
        # The same for each image, of which a file gets any number.
        if constant.ndim and len(constant) == _TRIAL_IMAGES:
            count = self.node("Slice", self.node("Shape", "features"), [0], [1])
            shape = self.node("Concat", count, list(constant.shape[1:]), axis=0)
            return self.node("Expand", constant[:1], shape)
        name = f"constant_{len(self._constants)}"
        array = constant.numpy(force=True).copy()
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def _cast(self, tensor: Tensor, dtype: torch.dtype | None) -> str:
        name = self._names[id(tensor)]
        if dtype in (None, tensor.dtype):
            return name
        numpy_dtype = torch.empty(0, dtype=dtype).numpy().dtype
        onnx_dtype = self._onnx.helper.np_dtype_to_tensor_dtype(numpy_dtype)
        return self.node("Cast", name, to=onnx_dtype)


_OperatorWriter = Callable[..., str | list[str]]
"""``(recorder, first tensor of the result, *arguments of the operator) -> names of outputs``"""


def _elementwise(onnx_operator: str) -> _OperatorWriter:
    """Return the writer of an operator whose operands all get the dtype of the result."""

    def write(recorder: _Recorder, out: Tensor, *operands: Any) -> str:
        names = [recorder.name(operand, out) for operand in operands]
        return recorder.node(onnx_operator, *names)

    return write


def _reduction(onnx_operator: str) -> _OperatorWriter:
    def write(
        recorder: _Recorder, _out: Tensor, x: Tensor, dims: Any, keep: bool = False
    ) -> str:
        return recorder.node(onnx_operator, x, dims, keepdims=int(keep))

    return write


def _softmax(onnx_operator: str) -> _OperatorWriter:
    def write(
        recorder: _Recorder, _out: Tensor, x: Tensor, dim: int, _half_to_float: bool
    ) -> str:
        return recorder.node(onnx_operator, x, axis=dim)

    return write


def _reverse_subtract(recorder: _Recorder, out: Tensor, x: Any, y: Any) -> str:
    return recorder.node("Sub", recorder.name(y, out), recorder.name(x, out))


def _greater(recorder: _Recorder, _out: Tensor, x: Tensor, y: Any) -> str:
    return recorder.node("Greater", x, recorder.name(y, x))


def _where(recorder: _Recorder, out: Tensor, condition: Tensor, x: Any, y: Any) -> str:
    names = recorder.name(x, out), recorder.name(y, out)
    return recorder.node("Where", condition, *names)


def _vector_norm(
    recorder: _Recorder,
    _out: Tensor,
    x: Tensor,
    _order: int,
    dims: Any,
    keep: bool = False,
) -> str:
    return recorder.node("ReduceL2", x, dims, keepdims=int(keep))


def _argmax(
    recorder: _Recorder, _out: Tensor, x: Tensor, dim: int, keep: bool = False
) -> str:
    return recorder.node("ArgMax", x, axis=dim, keepdims=int(keep))


def _clamp(
    recorder: _Recorder, _out: Tensor, x: Tensor, low: Any = None, high: Any = None
) -> str:
    bounds = ["" if bound is None else recorder.name(bound, x) for bound in (low, high)]
    return recorder.node("Clip", x, *bounds)


def _reshape(recorder: _Recorder, out: Tensor, x: Tensor, *_sizes: Any) -> str:
    shape = [size if size % _TRIAL_IMAGES else -1 for size in out.shape]
    return recorder.node("Reshape", x, shape)


def _expand(recorder: _Recorder, out: Tensor, x: Tensor, *_sizes: Any) -> str:
    shape = [size if size % _TRIAL_IMAGES else 1 for size in out.shape]
    return recorder.node("Expand", x, shape)


def _sort(
    recorder: _Recorder,
    _out: Tensor,
    x: Tensor,
    *,
    dim: int = -1,
    descending: bool = False,
    stable: bool,
) -> list[str]:
    size = [x.shape[dim]]
    return recorder.nodes("TopK", x, size, outputs=2, axis=dim, largest=int(descending))


def _concatenate(
    recorder: _Recorder, _out: Tensor, tensors: list[Tensor], dim: int = 0
) -> str:
    return recorder.node("Concat", *tensors, axis=dim)


def _gather(
    recorder: _Recorder, _out: Tensor, x: Tensor, dim: int, index: Tensor
) -> str:
    return recorder.node("GatherElements", x, index, axis=dim)


def _index(recorder: _Recorder, _out: Tensor, x: Tensor, indices: list[Tensor]) -> str:
    return recorder.node("Gather", x, *indices)


def _select(recorder: _Recorder, _out: Tensor, x: Tensor, dim: int, index: int) -> str:
    return recorder.node("Gather", x, recorder.name(index), axis=dim)


def _slice(
    recorder: _Recorder, _out: Tensor, x: Tensor, dim: int, start: int, end: int
) -> str:
    return recorder.node("Slice", x, [start], [end], [dim])


def _squeeze(recorder: _Recorder, _out: Tensor, x: Tensor, dim: Any) -> str:
    dims = [dim] if isinstance(dim, int) else dim
    return recorder.node("Squeeze", x, dims)


def _unsqueeze(recorder: _Recorder, _out: Tensor, x: Tensor, dim: int) -> str:
    return recorder.node("Unsqueeze", x, [dim])


def _transpose(
    recorder: _Recorder, _out: Tensor, x: Tensor, first: int, second: int
) -> str:
    order = list(range(x.ndim))
    order[first], order[second] = order[second], order[first]
    return recorder.node("Transpose", x, perm=order)


def _convert(recorder: _Recorder, out: Tensor, x: Tensor, **_options: Any) -> str:
    return recorder.name(x, out)


# Writers by operators of ATen.
_OPERATORS: dict[str, _OperatorWriter] = {
    "add": _elementwise("Add"),
    "alias": _elementwise("Identity"),
    "bmm": _elementwise("MatMul"),
    "div": _elementwise("Div"),
    "exp": _elementwise("Exp"),
    "mm": _elementwise("MatMul"),
    "mul": _elementwise("Mul"),
    "pow": _elementwise("Pow"),
    "remainder": _elementwise("Mod"),
    "sqrt": _elementwise("Sqrt"),
    "sub": _elementwise("Sub"),
    "rsub": _reverse_subtract,
    "gt": _greater,
    "where": _where,
    "amax": _reduction("ReduceMax"),
    "amin": _reduction("ReduceMin"),
    "logsumexp": _reduction("ReduceLogSumExp"),
    "mean": _reduction("ReduceMean"),
    "sum": _reduction("ReduceSum"),
    "linalg_vector_norm": _vector_norm,
    "argmax": _argmax,
    "_softmax": _softmax("Softmax"),
    "_log_softmax": _softmax("LogSoftmax"),
    "clamp": _clamp,
    "clamp_min": _clamp,
    "sort": _sort,
    "cat": _concatenate,
    "gather": _gather,
    "index": _index,
    "select": _select,
    "slice": _slice,
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
    "transpose": _transpose,
    "view": _reshape,
    "_unsafe_view": _reshape,
    "expand": _expand,
    "_to_copy": _convert,
}
