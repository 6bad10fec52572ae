"""Fork again and again while another thread predicts: ``fork_run.py METHOD VIEWS FORKS``.

Each child has to give the parent's answer within a deadline, with a model that is as it was, or to
raise the error that it was forked in the middle of a call; and some have to give the answer.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings

import numpy as np
import torch
from PIL import Image

from fair_tta import FairTPTClassifier
from fair_tta.errors import ModelError
from fair_tta.extend import AugMix
from fair_tta.methods._registry import parse_adapter

warnings.filterwarnings("ignore", message=".*multi-threaded.*", category=DeprecationWarning)
DEADLINE = 60.0  # seconds for a child


FORKED_IN_A_CALL = 7


def child(clf: FairTPTClassifier, image: Image.Image, wanted: dict[str, float]) -> int:
    try:
        found = clf.predict(image).probabilities
    except ModelError as error:
        return FORKED_IN_A_CALL if "when this process was forked" in str(error) else 6
    model = clf._backend.model  # type: ignore[attr-defined]
    hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    if hooks or not model.training:
        return 3
    near = all(abs(found[name] - wanted[name]) < 1e-5 for name in wanted)
    return 0 if near else 4


def main(method: str, views: int, forks: int) -> None:
    clf = FairTPTClassifier(
        "miniature", ["circle", "square"], ["red", "blue"], "a {sensitive} {target}.",
        adapter=parse_adapter(method), views=AugMix(views),
    )  # fmt: skip
    clf._backend.model.train()  # type: ignore[attr-defined]
    noise = np.random.default_rng(0)
    images = [Image.fromarray(noise.integers(0, 255, (40, 40, 3), np.uint8)) for _ in range(8)]
    wanted = clf.predict(images[0]).probabilities
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            clf._vision.forget()
            clf.predict(images[1:])
            time.sleep(0.05)

    thread = threading.Thread(target=loop)
    thread.start()
    codes = set()
    for i in range(forks):
        time.sleep(0.01 * (i % 7))
        pid = os.fork()
        if pid == 0:
            signal.alarm(int(DEADLINE))  # ends a child that hangs, with a signal as its status
            try:
                os._exit(child(clf, images[0], wanted))
            finally:
                os._exit(5)
        codes.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    stop.set()
    thread.join()
    assert codes <= {0, FORKED_IN_A_CALL}, codes
    assert 0 in codes, codes


if __name__ == "__main__":
    torch.set_num_threads(1)  # the pools of OpenMP do not survive a fork
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
