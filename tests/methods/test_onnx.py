"""Methods as ONNX files, and image encoders that are such files."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import families
import numpy as np
import onnx
import onnxruntime
import pytest
import test_every_adapter as every
import torch
from checks import SENSITIVE, TARGETS, TEMPLATE, picture

from fair_tta import FairTPT, FairTPTClassifier, FairTTAError, Zero, ZeroShot
from fair_tta._identity import fingerprint
from fair_tta.errors import ModelError
from fair_tta.extend import Adapter, OnnxBackend, Outcome
from fair_tta.methods import EpisodicTIE, Tent

pytestmark = [
    pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning"),
    pytest.mark.filterwarnings(
        "ignore::fair_tta.errors.FeatureMismatchWarning"
    ),  # of random features
]

ONE_VIEW = {
    name: method
    for name, method in every.ADAPTERS.items()
    if not any(
        getattr(method.needs, need) for need in "views pixels prompt_gradient values".split()
    )
}


def run(path: Path, features: np.ndarray[Any, Any]) -> Any:
    session = onnxruntime.InferenceSession(str(path))
    return session.run(None, {"features": features})[0]


def classifier_of(name: str) -> FairTPTClassifier:
    if name == "EpisodicTIE":  # of one attribute; see below
        return every.classifier(adapter=EpisodicTIE(), sensitive=["male", "female", "old"])
    return every.classifier(adapter=ONE_VIEW[name])


@pytest.mark.parametrize("name", ONE_VIEW)
def test_one_view_methods_are_exported(name: str, tmp_path: Path) -> None:
    clf = classifier_of(name)
    path = tmp_path / "head.onnx"
    clf.export(path)
    generator = torch.Generator().manual_seed(1)
    for count, length in ((1, 1.0), (40, 7.0)):
        features = length * torch.randn(count, families.DIM, generator=generator)
        expected = [list(p.probabilities.values()) for p in clf._predict_encoded(features)]
        assert run(path, features.numpy()) == pytest.approx(np.array(expected), abs=1e-5)


def test_labels_and_method_are_in_the_file(tmp_path: Path) -> None:
    classifier_of("SAGE").export(tmp_path / "head.onnx")
    model = onnx.load(tmp_path / "head.onnx")
    onnx.checker.check_model(model)
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(facts["targets"]) == every.TARGETS
    assert facts["method"].startswith("SAGE(")


@pytest.mark.parametrize(
    ("adapter", "reason"),
    [
        (Zero(), "Zero cannot be exported: it needs further views of an image"),
        (FairTPT(), "FairTPT cannot be exported: it .*view"),
        (Tent(), "Tent cannot be exported: it needs the images themselves"),
        (EpisodicTIE(), "EpisodicTIE cannot be exported: it computes '_linalg_svd' for each"),
    ],
)
def test_other_methods_report_why_and_leave_the_file(
    adapter: Adapter, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "head.onnx"
    path.write_bytes(b"before")
    with pytest.raises(FairTTAError, match=reason):
        every.classifier(adapter=adapter).export(path)  # of two attributes
    assert path.read_bytes() == b"before"


class Counting(Adapter):
    """What it finds depends on how many images there are, which a file cannot know."""

    def adapt(self, task: Any, features: torch.Tensor) -> Outcome:
        logits = task.logits(features[:, 0], task.target_features)
        return Outcome((logits / len(logits)).softmax(-1))


def test_a_file_that_gives_other_answers_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(FairTTAError, match=r"Counting cannot be exported: .* other probabilities"):
        every.classifier(adapter=Counting()).export(tmp_path / "head.onnx")
    assert not (tmp_path / "head.onnx").exists()


def encoder_file(path: Path, dim: int = families.DIM, only_tokens: bool = False) -> Path:
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
    clf = FairTPTClassifier(backend, TARGETS, SENSITIVE, TEMPLATE)  # FairTPT: views and gradients
    images = [picture(i) for i in range(3)]
    pixels = processor(images=images, return_tensors="pt")["pixel_values"]
    matrix = torch.randn(3, families.DIM, generator=torch.Generator().manual_seed(0))
    features = torch.nn.functional.normalize(pixels.mean((2, 3)) @ matrix, dim=-1)
    assert clf.encode(images, with_views=False)[:, 0] == pytest.approx(features.numpy(), abs=1e-5)
    plain = FairTPTClassifier((model, (processor, tokenizer)), TARGETS, SENSITIVE, TEMPLATE)
    expected = plain.with_adapter(ZeroShot())._predict_encoded(features)
    found = clf.with_adapter(ZeroShot()).predict(images)
    for one, other in zip(found, expected, strict=True):
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-5)
    assert len(clf.predict(images)) == 3
    sent = pickle.loads(pickle.dumps(clf)).with_adapter(ZeroShot())
    assert sent.predict(images) == found


def test_weights_beside_the_file_are_part_of_the_model(tmp_path: Path) -> None:
    """`torch.onnx.export` writes them to a file of their own; answers must not be taken for others.

    An audit in the same folder with other weights would report the answers of the old ones.
    """
    model, processor, tokenizer = families.seeded(families.clip)
    whole, graphs, prints = onnx.load(encoder_file(tmp_path / "vision.onnx")), [], []
    for factor in (1.0, -1.0):
        for weights in whole.graph.initializer:
            if weights.name == "matrix":
                other = factor * onnx.numpy_helper.to_array(weights)
                weights.CopyFrom(onnx.numpy_helper.from_array(other, weights.name))
        (tmp_path / "b.data").unlink(missing_ok=True)
        copied = onnx.ModelProto.FromString(whole.SerializeToString())
        onnx.save(copied, tmp_path / "b.onnx", save_as_external_data=True, location="b.data",
                  size_threshold=64)  # fmt: skip
        backend = OnnxBackend(
            tmp_path / "b.onnx", processor, model, processor=(processor, tokenizer)
        )
        graphs.append((tmp_path / "b.onnx").read_bytes())
        prints.append(fingerprint(backend.model))
    assert graphs[0] == graphs[1]
    assert prints[0] != prints[1]


def test_an_encoder_with_stored_text_features(tmp_path: Path) -> None:
    file = encoder_file(tmp_path / "vision.onnx", 2)
    texts = {"a photo of a cat.": [1.0, 0.0], "a photo of a dog.": [0.0, 1.0]}

    def preprocess(image: Any) -> Any:
        return np.asarray(image.resize((32, 32)), np.float32).transpose(2, 0, 1) / 255

    clf = FairTPTClassifier(OnnxBackend(file, preprocess, texts, scale=10.0), ["cat", "dog"])
    pixels = torch.from_numpy(preprocess(picture(0))).mean((1, 2))
    features = pixels @ torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    expected = (10 * features / features.norm()).softmax(-1)
    assert clf.predict_proba(picture(0)) == pytest.approx(expected.numpy(), abs=1e-5)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "no.onnx").write_bytes(b"no")
    with pytest.raises(ModelError, match=r"`images` .*no\.onnx' cannot be loaded"):
        OnnxBackend(tmp_path / "no.onnx", picture, {"a": [1.0]})
    with pytest.raises(ModelError, match=r"`images` should be an ONNX file \(got .*none\.onnx"):
        OnnxBackend(tmp_path / "none.onnx", picture, {"a": [1.0]})
    with pytest.raises(FairTTAError, match=r"`scale` should be a positive number \(got -3\)"):
        OnnxBackend(tmp_path / "no.onnx", picture, {"a": [1.0]}, scale=-3)
    file = encoder_file(tmp_path / "vision.onnx", only_tokens=True)
    with pytest.raises(ModelError, match=r"and an output \[images, dim\] \(got 1 and outputs of"):
        OnnxBackend(file, picture, {"a": [1.0]})
