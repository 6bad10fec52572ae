"""Throughput beside plain transformers code with cached text features, measured in the same run.

    OMP_NUM_THREADS=1 python benchmarks/serving.py                 ViT-B/32's size, random weights
    OMP_NUM_THREADS=1 python benchmarks/serving.py --model small   six layers of width 192

One thread, eight threads, and a FastAPI server (uvicorn) with eight clients classify JPEGs of 500 x
375 pixels that nobody has seen before. Rounds of plain code and of each method take turns; printed
are medians of the rounds: predictions per second of the clock, seconds of CPU per prediction, and
the ratio of a method's throughput to that of the plain round beside it. One processor core and
other work on the machine make the clock noisy; CPU seconds are not affected by that.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

TARGETS, SENSITIVE = ["water bird", "land bird"], ["on water", "on land"]
TEMPLATE = "a photo of a {target} {sensitive}."
THREADS = 8
SIZES = {
    "vit-b-32": {},
    "small": {"hidden_size": 192, "intermediate_size": 768, "num_attention_heads": 3,
              "num_hidden_layers": 6},
}  # fmt: skip
Predict = Callable[[bytes], dict[str, float]]


@lru_cache
def make_model(size: str) -> tuple[Any, Any, Any]:
    """A CLIP with random weights, its image processor and its tokenizer."""
    import families
    import transformers

    torch.manual_seed(0)
    config = transformers.CLIPConfig(vision_config=SIZES[size], text_config={})
    model = transformers.CLIPModel(config).eval()
    return model, transformers.CLIPImageProcessor(), families.clip_tokenizer()


def make_predict(method: str, size: str) -> Predict:
    """From the bytes of an image to probabilities."""
    model, processor, tokenizer = make_model(size)
    if method != "plain":
        from fair_tta import FairTPTClassifier

        clf = FairTPTClassifier(
            (model, (processor, tokenizer)),
            TARGETS,
            SENSITIVE,
            TEMPLATE,
            adapter=method,
        )
        return lambda data: clf.predict(data).probabilities
    sentences = [f"a photo of a {name}." for name in TARGETS]
    with torch.no_grad():
        ids = tokenizer(sentences, padding=True, return_tensors="pt")
        text = _unit(model.get_text_features(**ids))
        scale = model.logit_scale.exp()

    def predict(data: bytes) -> dict[str, float]:
        image = Image.open(io.BytesIO(data)).convert("RGB")
        with torch.no_grad():
            inputs = processor(images=image, return_tensors="pt")
            features = _unit(model.get_image_features(**inputs))
            scores = (scale * features @ text.T).softmax(-1)[0].tolist()
        return dict(zip(TARGETS, scores, strict=True))

    return predict


def _unit(output: Any) -> torch.Tensor:
    features = getattr(output, "pooler_output", output)
    return features / features.norm(dim=-1, keepdim=True)


class Images:
    """JPEGs that differ from all before."""

    def __init__(self) -> None:
        small = np.random.default_rng(0).integers(0, 256, (12, 16, 3), np.uint8)
        self._base = np.asarray(
            Image.fromarray(small).resize((500, 375), Image.Resampling.BICUBIC)
        )
        self._made = 0

    def take(self, count: int) -> list[bytes]:
        images = []
        for _ in range(count):
            self._made += 1
            data = io.BytesIO()
            Image.fromarray(np.roll(self._base, self._made, (0, 1))).save(
                data, "JPEG", quality=90
            )
            images.append(data.getvalue())
        return images


def in_threads(
    predict: Callable[[bytes], object], images: list[bytes], threads: int
) -> float:
    """Seconds of the clock; the threads start together."""
    barrier = threading.Barrier(threads + 1)

    def work(requests: list[bytes]) -> None:
        barrier.wait()
        for image in requests:
            predict(image)

    with ThreadPoolExecutor(threads) as pool:
        jobs = [pool.submit(work, images[i::threads]) for i in range(threads)]
        barrier.wait()
        start = time.perf_counter()
        for job in jobs:
            job.result()
        return time.perf_counter() - start


class Server:
    """A FastAPI server in a process of its own."""

    def __init__(self, names: list[str], size: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, __file__, "--model", size, "--port", str(self.port)]
        self.process = subprocess.Popen([*command, "--serve", *names])
        self._local = threading.local()
        while True:
            try:
                self.cpu()
                return
            except OSError:
                self._local = threading.local()
                if self.process.poll() is not None:
                    raise
                time.sleep(0.2)

    def predict(self, name: str, data: bytes) -> object:
        return self._ask("POST", f"/{name}", data)

    def cpu(self) -> float:
        """Seconds of CPU that it has used."""
        return float(self._ask("GET", "/cpu"))

    def _ask(self, verb: str, path: str, body: bytes | None = None) -> Any:
        if not hasattr(self._local, "connection"):
            self._local.connection = http.client.HTTPConnection(
                "127.0.0.1", self.port, timeout=120
            )
        self._local.connection.request(verb, path, body, {"Content-Type": "image/jpeg"})
        return json.loads(self._local.connection.getresponse().read())


def serve(names: list[str], size: str, port: int) -> None:
    import uvicorn
    from fastapi import Body, FastAPI

    app, calls = FastAPI(), {name: make_predict(name, size) for name in names}

    @app.post("/{name}")
    def post(
        name: str, data: bytes = Body(media_type="image/jpeg")
    ) -> dict[str, float]:
        return calls[name](data)

    @app.get("/cpu")
    def cpu() -> float:
        return time.process_time()

    uvicorn.run(app, port=port, log_level="warning", timeout_keep_alive=3600)


def measure(options: argparse.Namespace) -> None:
    names, images = ["plain", *options.methods], Images()
    local = {name: make_predict(name, options.model) for name in names}
    runs: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
        "one thread": (local, dict.fromkeys(names, time.process_time), 1),
        f"{THREADS} threads": (local, dict.fromkeys(names, time.process_time), THREADS),
    }
    server = Server(names, options.model)
    ask = {name: partial(server.predict, name) for name in names}
    runs[f"server, {THREADS} clients"] = ask, dict.fromkeys(names, server.cpu), THREADS
    print(f"{options.model}, medians of {options.rounds} rounds of {options.images} images, "
          f"torch {torch.__version__} with {torch.get_num_threads()} threads")  # fmt: skip
    print("| | method | predictions per second | CPU ms per prediction | throughput, of plain "
          "| CPU, of plain |\n|---|---|---|---|---|---|")  # fmt: skip
    try:
        for title, (calls, clocks, threads) in runs.items():
            seconds: dict[str, list[float]] = {name: [] for name in names}
            cpu: dict[str, list[float]] = {name: [] for name in names}
            for turn in range(options.rounds + 1):
                for name in names if turn % 2 else names[::-1]:
                    fresh = images.take(options.images)
                    before = clocks[name]()
                    seconds_per_thread = in_threads(calls[name], fresh, threads)
                    used = clocks[name]() - before
                    if turn:  # the first warms up
                        seconds[name].append(seconds_per_thread)
                        cpu[name].append(used)
            for name in names:
                pairs = zip(seconds["plain"], seconds[name], strict=True)
                cpus = zip(cpu["plain"], cpu[name], strict=True)
                print(f"| {title} | {name} | {options.images / median(seconds[name]):.1f} | "
                      f"{1000 * median(cpu[name]) / options.images:.2f} | "
                      f"{median(p / m for p, m in pairs):.3f} | "
                      f"{median(m / p for p, m in cpus):.3f} |", flush=True)  # fmt: skip
    finally:
        server.process.terminate()
        server.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=SIZES, default="vit-b-32")
    parser.add_argument(
        "--methods", nargs="+", default=["zero-shot", "association-correction"]
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--images", type=int, default=64, help="of each round")
    parser.add_argument(
        "--serve", nargs="+", help="be the server, which the others start"
    )
    parser.add_argument("--port", type=int)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.model, options.port)
    else:
        measure(options)


if __name__ == "__main__":
    main()
