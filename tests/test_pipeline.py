"""The call of the transformers pipeline, with and without addresses."""

from __future__ import annotations

import http.server
import io
import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from transformers import pipeline

from fair_tta import (
    AssociationCorrection,
    FairPipeline,
    FairTPTClassifier,
    FairTTAError,
    ImageError,
    PromptError,
    ZeroShot,
    miniature,
)
from fair_tta.miniature._model import FOLDER

LABELS = ["of a water bird", "of a land bird"]
PLACES = ["on water", "on land"]
SENTENCE = "This is a picture {}."
IMAGES = [drawn.image for drawn in miniature.BIRDS.draw(3)]


@pytest.fixture(scope="module")
def plain() -> FairPipeline:
    return FairPipeline("miniature", PLACES, adapter=ZeroShot())


def test_zero_shot_equals_the_pipeline_that_it_replaces(plain: FairPipeline) -> None:
    theirs: Any = pipeline("zero-shot-image-classification", model=str(FOLDER))
    for classify in (plain, FairPipeline(theirs, PLACES, adapter=ZeroShot())):
        found = classify(IMAGES, candidate_labels=LABELS, hypothesis_template=SENTENCE)
        expected = theirs(IMAGES, candidate_labels=LABELS, hypothesis_template=SENTENCE)
        for ours, other in zip(found, expected, strict=True):
            assert [entry["label"] for entry in ours] == [entry["label"] for entry in other]
            scores = [entry["score"] for entry in other]
            assert [entry["score"] for entry in ours] == pytest.approx(scores, abs=1e-4)


def test_a_method_answers_as_the_classifier_does() -> None:
    classify = FairPipeline("miniature", PLACES)
    clf = FairTPTClassifier(
        "miniature", LABELS, PLACES, "This is a picture {target} {sensitive}.",
        adapter=AssociationCorrection(),
    )  # fmt: skip
    expected = clf.predict(IMAGES[0]).to_dict()
    assert classify(IMAGES[0], LABELS, SENTENCE) == expected
    slots = "This is a picture {target} {sensitive}."
    assert classify(IMAGES[0], LABELS, slots) == expected


def test_one_a_list_and_a_stream(plain: FairPipeline, tmp_path: Path) -> None:
    one = plain(IMAGES[0], LABELS, SENTENCE)
    assert len(plain(IMAGES, LABELS, SENTENCE)) == 3
    stream = plain((image for image in IMAGES), LABELS, SENTENCE)
    assert isinstance(stream, Iterator)
    assert [entry["label"] for entry in next(stream)] == [entry["label"] for entry in one]
    IMAGES[0].save(tmp_path / "bird.png")
    assert plain(str(tmp_path / "bird.png"), LABELS, SENTENCE)[0]["label"] == one[0]["label"]


def test_classifiers_are_kept_for_labels_and_sentences(plain: FairPipeline) -> None:
    plain(IMAGES[0], LABELS, SENTENCE)
    first = plain._classifier(tuple(LABELS), SENTENCE)
    assert plain._classifier(tuple(LABELS), SENTENCE) is first
    assert plain._classifier(tuple(LABELS[::-1]), SENTENCE) is not first


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server on this machine that has one picture."""
    data, stop = io.BytesIO(), threading.Event()
    IMAGES[0].save(data, "PNG")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404 if self.path == "/none.png" else 200)
            self.end_headers()
            self.wfile.write(data.getvalue() if self.path == "/bird.png" else b"")
            while self.path == "/slow.png" and not stop.wait(0.02):
                self.wfile.write(b"\0")

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=partial(server.serve_forever, 0.05), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        stop.set()
        server.shutdown()
        thread.join()


def test_addresses_are_fetched_only_if_asked_for(plain: FairPipeline, address: str) -> None:
    with pytest.raises(ImageError, match="is a URL: download it first"):
        plain(f"{address}/bird.png", LABELS, SENTENCE)
    asked = FairPipeline("miniature", PLACES, adapter=ZeroShot(), urls=True)
    found = asked([f"{address}/bird.png", IMAGES[0]], LABELS, SENTENCE)
    assert found[0][0]["label"] == found[1][0]["label"]
    with pytest.raises(ImageError, match=r"cannot fetch .*404"):
        asked(f"{address}/none.png", LABELS, SENTENCE)
    with pytest.raises(ImageError, match=r"cannot fetch 'http://a b': URL can't contain control"):
        asked("http://a b", LABELS, SENTENCE)
    asked.timeout = 0.1
    with pytest.raises(ImageError, match=r"cannot fetch .*it takes longer than `timeout`"):
        asked(f"{address}/slow.png", LABELS, SENTENCE)


def test_what_is_wrong_is_told(plain: FairPipeline) -> None:
    labels_and_words: list[tuple[Any, str]] = [
        ("a,b", "be a list of names (got 'a,b')"),
        (None, "be a list of names (got None)"),
        ([["a"], "b"], "hold non-empty strings (got ['a'])"),
        (["a"], "name at least two values (got ['a'])"),
    ]
    for labels, should in labels_and_words:
        with pytest.raises(PromptError, match=re.escape(f"`candidate_labels` should {should}.")):
            plain(IMAGES[0], labels, SENTENCE)
    wrong: Any
    for wrong in ("a photo.", ["{}"]):
        with pytest.raises(PromptError, match=r"`hypothesis_template` should have \{\} in place"):
            plain(IMAGES[0], LABELS, wrong)
    for wrong in ("{target}", 5):
        with pytest.raises(PromptError, match="`slot` should have both"):
            FairPipeline("miniature", PLACES, slot=wrong)
    for wrong in ("nowhere", "meta", []):
        with pytest.raises(FairTTAError, match=r"`device` '.*' cannot be used"):
            FairPipeline("miniature", PLACES, device=wrong)
    for wrong in ("soon", 0, float("nan")):
        with pytest.raises(FairTTAError, match="`timeout` should be a positive number of seconds"):
            FairPipeline("miniature", PLACES, timeout=wrong)
    with pytest.raises(ImageError, match=r"dict with the columns \['image', 'label'\] is not an"):
        plain([{"image": IMAGES[0], "label": 1}], LABELS, SENTENCE)


def test_labels_may_be_a_set(plain: FairPipeline) -> None:
    found: Any = plain(IMAGES[0], set(LABELS), SENTENCE)  # type: ignore[arg-type]
    expected = plain(IMAGES[0], LABELS, SENTENCE)
    assert [score["label"] for score in found] == [score["label"] for score in expected]
