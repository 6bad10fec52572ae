"""The benchmark of serving compares like with like, and the server of the page answers."""

from __future__ import annotations

import base64
import io
import json
import runpy
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import families
import pytest

from fair_tta.miniature import BIRDS

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "litserve_app.py"


def test_plain_code_and_zero_shot_give_the_same_answers() -> None:
    serving: dict[str, Any] = runpy.run_path(str(ROOT / "benchmarks" / "serving.py"))
    make: Callable[..., Any] = serving["make_predict"]
    make.__globals__["make_model"] = lambda _size: families.seeded(families.clip)
    images = serving["Images"]().take(8)
    assert len(set(images)) == 8
    times: dict[str, list[Any]] = {"plain": [], "zero-shot": []}
    for name, answers in times.items():
        predict = make(name, "tiny")

        def keep(data: bytes, predict: Any = predict, answers: Any = answers) -> None:
            answers.append((data, predict(data)))

        assert serving["in_threads"](keep, images, 4) > 0
    plain, ours = (dict(answers) for answers in times.values())
    assert plain.keys() == ours.keys() == set(images)
    for image, expected in plain.items():
        assert ours[image] == pytest.approx(expected, abs=1e-5)


def encoded(image: Any) -> dict[str, str]:
    data = io.BytesIO()
    image.save(data, "PNG")
    return {"image": base64.b64encode(data.getvalue()).decode()}


def test_the_server_of_the_page_answers_a_batch() -> None:
    api = runpy.run_path(str(EXAMPLE))["Classify"](max_batch_size=8, batch_timeout=0.01)
    api.setup("cpu")
    requests = [
        encoded(BIRDS.draw(1)[0].image),
        {"image": base64.b64encode(b"no").decode()},
    ]
    with pytest.warns(UserWarning, match="image 1: cannot read"):
        answers_of_batch = api.predict(
            [api.decode_request(request) for request in requests]
        )
    answers = [api.encode_response(answer) for answer in answers_of_batch]
    assert {score["label"] for score in answers[0]["scores"]} == set(BIRDS.targets)
    assert answers[1] == {"error": "not an image"}


@pytest.mark.parametrize("request_", [{"image": "a"}, {}])
def test_a_request_that_cannot_be_decoded_does_not_fail_the_batch(
    request_: dict[str, str],
) -> None:
    """LitServe decodes a batch at once: an error there is one for all of it."""
    api = runpy.run_path(str(EXAMPLE))["Classify"](max_batch_size=8, batch_timeout=0.01)
    api.setup("cpu")
    requests = [encoded(BIRDS.draw(1)[0].image), request_]
    with pytest.warns(UserWarning, match="image 1: cannot read|image 1: "):
        answers_of_batch = api.predict(
            [api.decode_request(request) for request in requests]
        )
    assert [answer is None for answer in answers_of_batch] == [False, True]


@pytest.mark.slow
def test_the_server_of_the_page_runs() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, str(EXAMPLE), str(port)])
    try:
        body = json.dumps(encoded(BIRDS.draw(1)[0].image)).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/predict", body, headers
        )
        while True:
            try:
                answer = json.load(urllib.request.urlopen(request, timeout=120))
                break
            except OSError:  # not ready yet
                assert server.poll() is None
                time.sleep(0.5)
        assert {score["label"] for score in answer["scores"]} == set(BIRDS.targets)
    finally:
        server.terminate()
        server.wait(30)
