"""A server with LitServe: processes that hold a model each, and micro-batches of requests.

python examples/litserve_app.py 8000
curl localhost:8000/predict --json "{\"image\": \"$(base64 -w0 bird.jpg)\"}"
"""

import base64
import sys
from typing import Any

import litserve

from fair_tta import FairTPTClassifier
from fair_tta.extend import Cache
from fair_tta.miniature import BIRDS  # in place of your names


class Classify(litserve.LitAPI):  # type: ignore[misc]
    def setup(self, device: str) -> None:
        self.classifier = FairTPTClassifier(
            "miniature", BIRDS.targets, BIRDS.sensitive, BIRDS.template,
            adapter="association-correction", device=device, cache=Cache(0),
        )  # fmt: skip

    def decode_request(self, request: dict[str, str]) -> bytes:
        try:
            return base64.b64decode(request["image"])
        except (
            KeyError,
            TypeError,
            ValueError,
        ):  # an error here would fail the whole batch
            return b""

    def predict(self, images: list[bytes]) -> list[Any]:
        return list(self.classifier.predict(images, errors="skip"))

    def encode_response(self, prediction: Any) -> dict[str, Any]:
        return (
            {"error": "not an image"}
            if prediction is None
            else {"scores": prediction.to_dict()}
        )


if __name__ == "__main__":
    api = Classify(max_batch_size=8, batch_timeout=0.01)
    litserve.LitServer(api, accelerator="cpu", workers_per_device=1).run(
        port=int(sys.argv[1]), generate_client_file=False
    )
