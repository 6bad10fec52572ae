"""Nothing goes to the network for models on this machine: every attempt is seen and refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import families
import pytest
import transformers
from checks import picture

WATCHED = """
import sys

tried = []

def watch(event, arguments):
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "urllib.Request"):
        tried.append((event, str(arguments)))
        raise OSError("no network in this test")
    if event == "socket.connect" and arguments[0].family.name != "AF_UNIX":
        tried.append((event, str(arguments[1])))
        raise OSError("no network in this test")

sys.addaudithook(watch)
"""

LOCAL = """
from pathlib import Path
from fair_tta.extend import AugMix
from fair_tta import FairTPTClassifier, FairTTAError, miniature
from fair_tta.errors import ImageError
from fair_tta.lab.cli import app

folder, pictures = sys.argv[1:]
paths = sorted(map(str, Path(pictures).iterdir()))
for given in ("miniature", folder, miniature.load_open_clip()):
    clf = FairTPTClassifier(given, ["cat", "dog"], ["water", "land"], views=AugMix(2))
    assert len(clf.predict(paths)) == len(paths)
    clf.examine(paths)
    try:
        clf.predict("https://example.org/cat.png")
        raise SystemExit("an address was answered")
    except ImageError:
        pass
try:
    FairTPTClassifier("./none-here", ["cat", "dog"])
    raise SystemExit("a folder that is not there was loaded")
except FairTTAError:
    pass
names = ["--model", folder, "--targets", "cat,dog", "--sensitive", "water,land", "--views", "2"]
for line in (
    ["predict", pictures, *names],
    ["fit", "--adapter", "logit-balance", "--images", pictures, "--out", "fitted", *names[:-2]],
    ["examine", pictures, "--out", "examined.html", *names],
):
    app(line, standalone_mode=False)
print("tried:", tried)
"""

ASKS = """
from urllib.request import urlopen
try:
    urlopen("http://127.0.0.1:9/")
except OSError:
    pass
print("tried:", tried)
"""


def run(script: str, tmp_path: Path, *arguments: str) -> str:
    online = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE",)}
    process = subprocess.run(
        [sys.executable, "-c", WATCHED + script, *arguments],
        capture_output=True, text=True, cwd=tmp_path, env=online,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return process.stdout.strip().splitlines()[-1]


@pytest.mark.slow
def test_the_watch_sees_an_attempt(tmp_path: Path) -> None:
    assert "urllib.Request" in run(ASKS, tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_models_on_this_machine_ask_nobody(tmp_path: Path) -> None:
    model, images, tokenizer = families.seeded(families.clip)
    model.save_pretrained(tmp_path / "clip")
    transformers.CLIPProcessor(images, tokenizer).save_pretrained(tmp_path / "clip")
    (tmp_path / "pictures").mkdir()
    for i in range(3):
        picture(i).save(tmp_path / "pictures" / f"{i}.png")
    last = run(LOCAL, tmp_path, str(tmp_path / "clip"), str(tmp_path / "pictures"))
    assert last == "tried: []"
