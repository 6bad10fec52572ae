"""The call of the transformers pipeline, with and without addresses."""

from __future__ import annotations

import http.server
import io
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from internals import FOLDER, _is_public, fetch_image
from torch.utils.data import Dataset
from transformers import pipeline
from transformers.pipelines import PIPELINE_REGISTRY
from transformers.pipelines.pt_utils import KeyDataset

from fair_tta import (
    AssociationCorrection,
    FairPipeline,
    FairTPTClassifier,
    FairTTAError,
    ZeroShot,
    miniature,
)
from fair_tta.errors import ImageError, PromptError

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
        for ours, expected_scores in zip(found, expected, strict=True):
            assert [entry["label"] for entry in ours] == [
                entry["label"] for entry in expected_scores
            ]
            scores = [entry["score"] for entry in expected_scores]
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
    scores = plain(IMAGES[0], LABELS, SENTENCE)
    assert len(plain(IMAGES, LABELS, SENTENCE)) == 3
    stream = plain((image for image in IMAGES), LABELS, SENTENCE)
    assert isinstance(stream, Iterator)
    assert [entry["label"] for entry in next(stream)] == [
        entry["label"] for entry in scores
    ]
    IMAGES[0].save(tmp_path / "bird.png")
    assert (
        plain(str(tmp_path / "bird.png"), LABELS, SENTENCE)[0]["label"]
        == scores[0]["label"]
    )


def test_classifiers_are_kept_for_labels_and_sentences(plain: FairPipeline) -> None:
    plain(IMAGES[0], LABELS, SENTENCE)
    first = plain._classifier(tuple(LABELS), SENTENCE)
    assert plain._classifier(tuple(LABELS), SENTENCE) is first
    assert plain._classifier(tuple(LABELS[::-1]), SENTENCE) is not first


class Pairs(Dataset[dict[str, Any]]):
    """Has a length and items, and cannot be iterated over: indices never end."""

    def __len__(self) -> int:
        return len(IMAGES)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": IMAGES[index % len(IMAGES)]}


@pytest.mark.parametrize(
    ("images", "options"),
    [
        (lambda: IMAGES[0], {}),
        (lambda: IMAGES, {"batch_size": 2}),
        (lambda: IMAGES, {"timeout": 3.0}),
        (lambda: (image for image in IMAGES), {}),
        (lambda: KeyDataset(Pairs(), "image"), {"batch_size": 2}),
    ],
)
@pytest.mark.parametrize("name", ["image", "images", None])
def test_calls_of_the_pipeline_that_it_replaces(
    plain: FairPipeline, images: Any, options: dict[str, Any], name: str | None
) -> None:
    theirs: Any = pipeline("zero-shot-image-classification", model=str(FOLDER))

    def call(classify: Any) -> Any:
        named = {} if name is None else {name: images()}
        if (
            name == "images" and classify is theirs
        ):  # wants `image` too, and takes `images`
            named["image"] = None
        return classify(
            *([images()] if name is None else []), candidate_labels=LABELS,
            hypothesis_template=SENTENCE, **named, **options,
        )  # fmt: skip

    ours, expected = call(plain), call(theirs)
    assert isinstance(ours, list) == isinstance(expected, list)
    ours, expected = list(ours), list(expected)
    if isinstance(ours[0], dict):
        ours, expected = [ours], [expected]
    for ours_of_image, expected_of_image in zip(ours, expected, strict=True):
        assert [set(entry) for entry in ours_of_image] == [
            set(entry) for entry in expected_of_image
        ]
        assert [entry["label"] for entry in ours_of_image] == [
            entry["label"] for entry in expected_of_image
        ]
        scores = [entry["score"] for entry in expected_of_image]
        assert [entry["score"] for entry in ours_of_image] == pytest.approx(
            scores, abs=1e-4
        )


def test_one_label_has_the_score_one(plain: FairPipeline) -> None:
    theirs: Any = pipeline("zero-shot-image-classification", model=str(FOLDER))
    for classify in (plain, theirs):
        assert classify(IMAGES[0], LABELS[:1]) == [{"score": 1.0, "label": LABELS[0]}]
        assert len(classify(IMAGES, LABELS[:1])) == len(IMAGES)
    with pytest.raises(ImageError, match="cannot read"):
        plain(b"not an image", LABELS[:1])


def test_the_best_few(plain: FairPipeline) -> None:
    all_scores = plain(IMAGES, LABELS, SENTENCE)
    assert plain(IMAGES, LABELS, SENTENCE, top_k=1) == [
        scores[:1] for scores in all_scores
    ]


def test_parts_of_a_pipeline_are_there(plain: FairPipeline) -> None:
    theirs: Any = pipeline("zero-shot-image-classification", model=str(FOLDER))
    ours = FairPipeline(theirs, PLACES)
    assert ours.model is theirs.model
    assert ours.device == theirs.device
    assert ours.tokenizer is theirs.tokenizer
    assert ours.image_processor is theirs.image_processor


def test_transformers_makes_one_under_a_name_of_ours_if_asked_to(
    plain: FairPipeline,
) -> None:
    supported = set(PIPELINE_REGISTRY.get_supported_tasks())
    FairPipeline.register("fair-test")
    try:
        registered: Any = pipeline(
            "fair-test", model=str(FOLDER), sensitive=PLACES, adapter="zero-shot"
        )  # type: ignore[call-overload]
        assert isinstance(registered, FairPipeline)
        expected = plain(IMAGES, LABELS, SENTENCE)
        assert registered(IMAGES, LABELS, SENTENCE, num_workers=2) == expected
    finally:
        del PIPELINE_REGISTRY.supported_tasks["fair-test"]
    assert set(PIPELINE_REGISTRY.get_supported_tasks()) == supported


def test_an_image_is_needed_and_batches_are_counted(plain: FairPipeline) -> None:
    images: Any
    for images in ({}, {"image": IMAGES[0], "images": IMAGES[0]}):
        with pytest.raises(ImageError, match="either `image` or `images`"):
            plain(candidate_labels=LABELS, **images)
    with pytest.raises(FairTTAError, match="`batch_size` should"):
        plain(IMAGES, LABELS, batch_size=0)
    with pytest.raises(FairTTAError, match="`timeout` should"):
        plain(IMAGES, LABELS, timeout=-1)


class _Handler(http.server.BaseHTTPRequestHandler):
    """Has one image, and several ways to keep a client waiting."""

    stop = threading.Event()

    def do_GET(self) -> None:
        data = io.BytesIO()
        IMAGES[0].save(data, "PNG")
        if self.path in ("/ftp", "/file"):
            self.send_response(302)
            self.send_header(
                "Location",
                {"/ftp": "ftp://127.0.0.1/a", "/file": "file:///a"}[self.path],
            )
            self.end_headers()
            return
        slow = {
            "/status.png": b"",
            "/continue.png": b"",
            "/header.png": b"HTTP/1.1 200 OK\r\nX: ",
            "/chunk.png": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "/body.png": b"HTTP/1.1 200 OK\r\n\r\n",
        }
        if self.path in slow:
            self.wfile.write(slow[self.path])
            drop = (
                b"HTTP/1.1 100 Continue\r\n\r\n"
                if self.path == "/continue.png"
                else b"0"
            )
            with suppress(OSError):  # the client has left
                while not self.stop.wait(0.02):
                    self.wfile.write(drop)
            return
        is_there = self.path in ("/bird.png", "/V%C3%B6gel.png")
        self.send_response(200 if is_there else 404)
        self.end_headers()
        self.wfile.write(data.getvalue() if is_there else b"")

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server on this machine."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(
            target=partial(server.serve_forever, 0.05), daemon=True
        )
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        _Handler.stop.set()
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def fetching() -> FairPipeline:
    return FairPipeline(
        "miniature", PLACES, adapter=ZeroShot(), urls=True, private_urls=True
    )


def test_addresses_are_fetched_only_if_asked_for(
    plain: FairPipeline, fetching: FairPipeline, address: str
) -> None:
    with pytest.raises(
        ImageError, match=r"is a URL: FairPipeline\(\.\.\., urls=True\) fetches it"
    ):
        plain(f"{address}/bird.png", LABELS, SENTENCE)
    scores = fetching([f"{address}/bird.png", IMAGES[0]], LABELS, SENTENCE)
    assert scores[0][0]["label"] == scores[1][0]["label"]
    assert (
        fetching(f"{address}/Vögel.png", LABELS, SENTENCE)[0]["label"]
        == scores[0][0]["label"]
    )
    with pytest.raises(ImageError, match=r"cannot fetch .*404"):
        fetching(f"{address}/none.png", LABELS, SENTENCE)
    with pytest.raises(
        ImageError, match=r"cannot fetch 'http://a b': URL can't contain control"
    ):
        fetching("http://a b", LABELS, SENTENCE)


def test_hosts_that_are_not_public_are_refused(address: str) -> None:
    public = FairPipeline("miniature", PLACES, adapter=ZeroShot(), urls=True)
    with pytest.raises(
        ImageError, match=r"127\.0\.0\.1 is not a public address; private_urls=True"
    ):
        public(f"{address}/bird.png", LABELS, SENTENCE)


@pytest.mark.parametrize(
    "host",
    [
        "::ffff:127.0.0.1",
        "::7f00:1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::1",
        "2002:a9fe:a9fe::",
    ],
)
def test_private_hosts_in_other_clothes_are_refused(host: str) -> None:
    with pytest.raises(ImageError, match="is not a public address"):
        fetch_image(f"http://[{host}]/a.png", 1)


def test_what_python_takes_for_public_may_hold_a_private_host() -> None:
    """`is_global` of Python 3.11 is true for these, each around 169.254.169.254 or 127.0.0.1."""
    for host in ("64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "::7f00:1"):
        assert not _is_public(host)
    for host in ("8.8.8.8", "2606:4700:4700::1111", "64:ff9b::808:808"):
        assert _is_public(host)


@pytest.mark.parametrize("path", ["ftp", "file"])
def test_redirects_lead_to_http_only(
    fetching: FairPipeline, address: str, path: str
) -> None:
    with pytest.raises(
        ImageError, match=r"cannot fetch .*(unknown url type|not allowed)"
    ):
        fetching(f"{address}/{path}", LABELS, SENTENCE)


@pytest.mark.parametrize("slow", ["status", "continue", "header", "chunk", "body"])
def test_one_deadline_for_everything(
    fetching: FairPipeline, address: str, slow: str
) -> None:
    with pytest.raises(
        ImageError, match=r"cannot fetch .*it takes longer than `timeout`"
    ):
        fetching(f"{address}/{slow}.png", LABELS, SENTENCE, timeout=0.3)


def test_what_is_wrong_is_told(plain: FairPipeline) -> None:
    labels_and_words: list[tuple[Any, str]] = [
        ("a,b", "be a list of names (got 'a,b')"),
        (None, "be a list of names (got None)"),
        ([["a"], "b"], "hold non-empty strings (got ['a'])"),
    ]
    for labels, should in labels_and_words:
        with pytest.raises(
            PromptError, match=re.escape(f"`candidate_labels` should {should}.")
        ):
            plain(IMAGES[0], labels, SENTENCE)
    wrong: Any
    for wrong in ("a photo.", ["{}"]):
        with pytest.raises(
            PromptError, match=r"`hypothesis_template` should have \{\} in place"
        ):
            plain(IMAGES[0], LABELS, wrong)
    for wrong in ("{target}", 5):
        with pytest.raises(PromptError, match="`slot` should have both"):
            FairPipeline("miniature", PLACES, slot=wrong)
    for wrong in ("nowhere", "meta", []):
        with pytest.raises(FairTTAError, match=r"`device` '.*' cannot be used"):
            FairPipeline("miniature", PLACES, device=wrong)
    for wrong in ("soon", 0, float("nan")):
        with pytest.raises(
            FairTTAError, match="`timeout` should be a positive number of seconds"
        ):
            FairPipeline("miniature", PLACES, timeout=wrong)
    with pytest.raises(
        ImageError, match=r"dict with the columns \['image', 'label'\] is not an"
    ):
        plain([{"image": IMAGES[0], "label": 1}], LABELS, SENTENCE)


def test_labels_may_be_a_set(plain: FairPipeline) -> None:
    scores: Any = plain(IMAGES[0], set(LABELS), SENTENCE)  # type: ignore[arg-type]
    expected = plain(IMAGES[0], LABELS, SENTENCE)
    assert [score["label"] for score in scores] == [
        score["label"] for score in expected
    ]
