"""Image encoders that are ONNX files."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import families
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from checks import SENSITIVE, TARGETS, TEMPLATE, picture
from internals import fingerprint
from PIL import Image

from fair_tta import FairTPTClassifier, FairTTAError, ZeroShot
from fair_tta.errors import ModelError
from fair_tta.extend import OnnxBackend


def encoder_file(
    path: Path, dim: int = families.DIM, only_tokens: bool = False
) -> Path:
    """Features are the channel means times a matrix; a second output has three dimensions."""
    helper = onnx.helper
    matrix = torch.randn(3, dim, generator=torch.Generator().manual_seed(0)).numpy()
    nodes = [
        helper.make_node("ReduceMean", ["pixel_values", "axes"], ["means"], keepdims=0),
        helper.make_node("MatMul", ["means", "matrix"], ["image_embeds"]),
        helper.make_node("Unsqueeze", ["means", "one"], ["tokens"]),
    ]
    value = helper.make_tensor_value_info
    outputs = [value("tokens", 1, ["n", 1, 3]), value("image_embeds", 1, ["n", dim])]
    graph = helper.make_graph(
        nodes,
        "encoder",
        [value("pixel_values", 1, ["n", 3, 32, 32])],
        outputs[:1] if only_tokens else outputs,
        [
            onnx.numpy_helper.from_array(np.array(numbers, dtype), name)
            for name, numbers, dtype in (
                ("axes", [2, 3], np.int64), ("one", [1], np.int64), ("matrix", matrix, np.float32)
            )
        ],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=opset), path)
    return path


def test_an_encoder_that_is_an_onnx_file(tmp_path: Path) -> None:
    model, processor, tokenizer = families.seeded(families.clip)
    file = encoder_file(tmp_path / "vision.onnx")
    backend = OnnxBackend(file, processor, model, processor=(processor, tokenizer))
    clf = FairTPTClassifier(
        backend, TARGETS, SENSITIVE, TEMPLATE
    )  # FairTPT: views and gradients
    images = [picture(i) for i in range(3)]
    pixels = processor(images=images, return_tensors="pt")["pixel_values"]
    matrix = torch.randn(3, families.DIM, generator=torch.Generator().manual_seed(0))
    features = torch.nn.functional.normalize(pixels.mean((2, 3)) @ matrix, dim=-1)
    assert clf.encode(images, with_views=False)[:, 0] == pytest.approx(
        features.numpy(), abs=1e-5
    )
    plain = FairTPTClassifier(
        (model, (processor, tokenizer)), TARGETS, SENSITIVE, TEMPLATE
    )
    expected = plain.with_adapter(ZeroShot())._predict_encoded(features)
    predictions = clf.with_adapter(ZeroShot()).predict(images)
    for prediction, expected_prediction in zip(predictions, expected, strict=True):
        assert prediction.probabilities == pytest.approx(
            expected_prediction.probabilities, abs=1e-5
        )
    assert len(clf.predict(images)) == 3
    sent = pickle.loads(pickle.dumps(clf)).with_adapter(ZeroShot())
    assert sent.predict(images) == predictions


def test_weights_beside_the_file_are_part_of_the_model(tmp_path: Path) -> None:
    """`torch.onnx.export` writes them to a file of their own; answers must not be taken for others.

    An audit in the same folder with other weights would report the answers of the old ones.
    """
    model, processor, tokenizer = families.seeded(families.clip)
    model_file, graphs, fingerprints = (
        onnx.load(encoder_file(tmp_path / "vision.onnx")),
        [],
        [],
    )
    for factor in (1.0, -1.0):
        for weights in model_file.graph.initializer:
            if weights.name == "matrix":
                changed = factor * onnx.numpy_helper.to_array(weights)
                weights.CopyFrom(onnx.numpy_helper.from_array(changed, weights.name))
        (tmp_path / "b.data").unlink(missing_ok=True)
        copied = onnx.ModelProto.FromString(model_file.SerializeToString())
        onnx.save(copied, tmp_path / "b.onnx", save_as_external_data=True, location="b.data",
                  size_threshold=64)  # fmt: skip
        backend = OnnxBackend(
            tmp_path / "b.onnx", processor, model, processor=(processor, tokenizer)
        )
        graphs.append((tmp_path / "b.onnx").read_bytes())
        fingerprints.append(fingerprint(backend.model))
    assert graphs[0] == graphs[1]
    assert fingerprints[0] != fingerprints[1]


def test_an_encoder_with_stored_text_features(tmp_path: Path) -> None:
    file = encoder_file(tmp_path / "vision.onnx", 2)
    texts = {"a photo of a cat.": [1.0, 0.0], "a photo of a dog.": [0.0, 1.0]}

    def preprocess(image: Any) -> Any:
        return np.asarray(image.resize((32, 32)), np.float32).transpose(2, 0, 1) / 255

    clf = FairTPTClassifier(
        OnnxBackend(file, preprocess, texts, scale=10.0), ["cat", "dog"]
    )
    pixels = torch.from_numpy(preprocess(picture(0))).mean((1, 2))
    features = pixels @ torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    expected = (10 * features / features.norm()).softmax(-1)
    assert clf.predict_proba(picture(0)) == pytest.approx(expected.numpy(), abs=1e-5)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "no.onnx").write_bytes(b"no")
    with pytest.raises(ModelError, match=r"`images` .*no\.onnx' cannot be loaded"):
        OnnxBackend(tmp_path / "no.onnx", picture, {"a": [1.0]})
    with pytest.raises(
        FairTTAError, match=r"`scale` should be a positive number \(got -3\)"
    ):
        OnnxBackend(tmp_path / "no.onnx", picture, {"a": [1.0]}, scale=-3)
    file = encoder_file(tmp_path / "vision.onnx", only_tokens=True)
    with pytest.raises(
        ModelError, match=r"and an output \[images, dim\] \(got 1 and outputs of"
    ):
        OnnxBackend(file, picture, {"a": [1.0]})


# --- a file of a stranger ----------------------------------------------------------------------


def with_weights_at(path: Path, location: str) -> Path:
    """An encoder with a further initialiser, which no node uses, whose numbers lie elsewhere."""
    model = onnx.load(encoder_file(path))
    unused = model.graph.initializer.add()
    unused.name, unused.data_type = "unused", onnx.TensorProto.FLOAT
    unused.dims.append(1)
    unused.data_location = onnx.TensorProto.EXTERNAL
    unused.external_data.add(key="location", value=location)
    path.write_bytes(
        model.SerializeToString()
    )  # `onnx.save` would look at the location
    return path


def refusal(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The error about a file, before anything but the file itself is opened."""

    def open_nothing(*_: Any, **__: Any) -> Any:
        raise AssertionError("the runtime must not see the file")

    monkeypatch.setattr(onnxruntime, "InferenceSession", open_nothing)
    with pytest.raises(ModelError) as error:
        OnnxBackend(path, picture, {"a": [1.0]})
    return str(error.value)


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("/etc/passwd", "outside its folder"),
        ("../secret.bin", "outside its folder"),
        ("inner/../../secret.bin", "outside its folder"),
        ("link.bin", "outside its folder"),
        ("linked/secret.bin", "outside its folder"),
        ("inner", "not a file"),
        ("pipe", "not a file"),
        ("missing.bin", "not a file"),
        ("", "not a file"),
        ("a\0b", "not a file"),
    ],
)
def test_weights_outside_the_folder_are_refused(
    location: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any file that the user may read was opened, and a device was read for ever."""
    folder = tmp_path / "model"
    (folder / "inner").mkdir(parents=True)
    (tmp_path / "secret.bin").write_bytes(b"1234")
    (folder / "link.bin").symlink_to("../secret.bin")
    (folder / "linked").symlink_to("..")
    os.mkfifo(folder / "pipe")
    message = refusal(with_weights_at(folder / "vision.onnx", location), monkeypatch)
    assert f"`images` {str(folder / 'vision.onnx')!r} is not loaded" in message
    assert repr(location) in message
    assert reason in message


def test_a_file_of_the_hub_has_its_weights_among_the_blobs(tmp_path: Path) -> None:
    """There the folder of a revision has links, which lead to the files of the same model."""
    model = tmp_path / "models--somebody--encoder"
    folder = model / "snapshots" / "0123" / "onnx"
    folder.mkdir(parents=True)
    (model / "blobs").mkdir()
    (model / "blobs" / "abc").write_bytes(np.ones(1, np.float32).tobytes())
    (folder / "vision.data").symlink_to("../../../blobs/abc")
    file = with_weights_at(folder / "vision.onnx", "vision.data")
    assert OnnxBackend(file, picture, {"a": [1.0]}).path == file


def identity_file(
    path: Path, shape: Any, input_type: int = 1, output_type: int = 1
) -> Path:
    """Pixels in, their means over height and width out."""
    helper = onnx.helper
    axes = onnx.numpy_helper.from_array(np.arange(2, len(shape)), "axes")
    nodes = [
        helper.make_node("Cast", ["pixel_values"], ["numbers"], to=output_type),
        helper.make_node(
            "ReduceMean", ["numbers", "axes"], ["image_embeds"], keepdims=0
        ),
    ]
    value = helper.make_tensor_value_info
    pixels = value("pixel_values", input_type, shape)
    output = value("image_embeds", output_type, [shape[0], 3])
    graph = helper.make_graph(nodes, "encoder", [pixels], [output], [axes])
    opset = [helper.make_opsetid("", 18)]
    path.write_bytes(
        helper.make_model(graph, ir_version=8, opset_imports=opset).SerializeToString()
    )
    return path


@pytest.mark.parametrize(
    ("shape", "input_type", "output_type", "reason"),
    [
        ([1, 3, 32, 32], 1, 1, r"any number of images.*is fixed at 1"),
        (
            ["n", 3, 32, 32],
            onnx.TensorProto.UINT8,
            1,
            r"float32 or float16.*tensor\(uint8\)",
        ),
        (
            ["n", 3, 32, 32],
            onnx.TensorProto.DOUBLE,
            1,
            r"float32 or float16.*tensor\(double\)",
        ),
        (
            ["n", 3, 32, 32],
            1,
            onnx.TensorProto.DOUBLE,
            r"float32 or float16.*tensor\(double\)",
        ),
        (
            ["n", 3, 32, 32, 1],
            1,
            1,
            r"\[images, 3, height, width\].*\['n', 3, 32, 32, 1\]",
        ),
    ],
)
def test_files_that_take_something_else(
    shape: Any, input_type: int, output_type: int, reason: str, tmp_path: Path
) -> None:
    file = identity_file(tmp_path / "vision.onnx", shape, input_type, output_type)
    with pytest.raises(ModelError, match=reason):
        OnnxBackend(file, picture, {"a": [1.0]})


def resized(size: int) -> Any:
    """Return a preprocessing that makes images of a size."""

    def preprocess(image: Any) -> Any:
        return (
            np.asarray(image.resize((size, size)), np.float32).transpose(2, 0, 1) / 255
        )

    return preprocess


def onnx_classifier(folder: Path, shape: Any, size: int, dim: int) -> FairTPTClassifier:
    vectors = torch.eye(2, dim)
    texts = {"a photo of a cat.": vectors[0], "a photo of a dog.": vectors[1]}
    file = identity_file(folder / "vision.onnx", shape)
    return FairTPTClassifier(
        OnnxBackend(file, resized(size), texts, scale=10.0), ["cat", "dog"]
    )


def test_pixels_of_another_size(tmp_path: Path) -> None:
    clf = onnx_classifier(tmp_path, ["n", 3, 32, 32], size=24, dim=3)
    message = r"takes pixels \['n', 3, 32, 32\].*`preprocess` makes \[1, 3, 24, 24\]"
    with pytest.raises(ModelError, match=message):
        clf.predict(picture())


def test_what_the_runtime_refuses(tmp_path: Path) -> None:
    file = encoder_file(tmp_path / "vision.onnx", 2)
    model = onnx.load(file)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "channels"
    onnx.save(model, file)
    texts = {"a photo of a cat.": [1.0, 0.0], "a photo of a dog.": [0.0, 1.0]}

    def grey(image: Any) -> Any:
        return resized(32)(image)[:1]

    clf = FairTPTClassifier(OnnxBackend(file, grey, texts, scale=10.0), ["cat", "dog"])
    with pytest.raises(ModelError, match=r"failed on pixels of shape \[1, 1, 32, 32\]"):
        clf.predict(picture())


def test_features_of_another_dimension(tmp_path: Path) -> None:
    clf = onnx_classifier(tmp_path, ["n", 3, 32, 32], size=32, dim=4)
    message = r"image features of 3 numbers.*text features of 4"
    with pytest.raises(ModelError, match=message):
        clf.predict(picture())
    with pytest.raises(ModelError, match=message):
        clf.encode([picture()])


def test_features_that_are_all_zero(tmp_path: Path) -> None:
    """They have no direction; the answer was the class that rounding chose."""
    clf = onnx_classifier(tmp_path, ["n", 3, 32, 32], size=32, dim=3)
    black = Image.new("RGB", (40, 40))
    with pytest.raises(ModelError, match=r"all zero for 1 of 2 images"):
        clf.predict([picture(), black])
