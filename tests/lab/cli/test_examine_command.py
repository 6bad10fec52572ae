"""`fair-tta examine`: the examination of the classifier, from files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from checks import picture
from cli_fixtures import NAMES, call, flat
from cli_fixtures import tiny_model as tiny_model
from internals import TASKS

from fair_tta import FairTPT, FairTPTClassifier, OrthCali, Zero
from fair_tta.auditing import Examination
from fair_tta.extend import Adapter, AugMix


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pics"
    (folder / "deep").mkdir(parents=True)
    for i in range(9):
        picture(i).save(folder / ("deep" if i % 2 else "") / f"{i}.png")
    return folder


def options(model: str) -> list[str]:
    return ["--model", model, "--views", "4", "--batch-size", "4", *NAMES]


def test_it_is_the_examination_of_the_classifier(
    pictures: Path, tiny_model: str
) -> None:
    out = str(pictures.parent / "out")
    arguments = ["examine", str(pictures), *options(tiny_model), "--json", "--out", out]
    arguments += ["--adapters", "zero,orthcali:lam=0,fair-tpt"]
    actual = Examination.from_json(call(*arguments).stdout).document
    assert Examination.load(pictures.parent / "out" / "examine.json").document == actual
    clf = FairTPTClassifier(
        tiny_model,
        {"cat": "of a cat", "dog": "of a dog, black"},
        {"sensitive": {"water": "on water", "land": "on land"}},
        "a photo {target} {sensitive}.",
        views=AugMix(4),
    )
    adapters: dict[str, Adapter] = {
        "zero": Zero(),
        "orthcali:lam=0": OrthCali(lam=0.0),
        "fair-tpt": FairTPT(),
    }
    expected = clf.examine(sorted(pictures.rglob("*.png")), adapters).document
    assert actual.ranking == expected.ranking
    associations = expected.attributes["sensitive"].associations
    assert actual.attributes["sensitive"].associations == associations
    for ours, theirs in zip(actual.adapters, expected.adapters, strict=True):
        assert (ours.name, ours.adapter) == (theirs.name, theirs.adapter)
        assert ours.changed == theirs.changed
        change = pytest.approx(theirs.pseudo_eod["sensitive"].change.value, abs=1e-4)
        assert ours.pseudo_eod["sensitive"].change.value == change
    from_saved = Examination.from_json(call(*arguments).stdout).document
    assert from_saved.attributes == actual.attributes
    assert from_saved.adapters == actual.adapters


def test_broken_pictures_do_not_stop_the_others(
    pictures: Path, tiny_model: str
) -> None:
    (pictures / "broken.png").write_bytes(b"GIF89a")
    out = call(
        "examine", str(pictures), "gone.png", *options(tiny_model), code=4, columns=80
    )
    assert "2 of 11 images could not be used." in out.stderr
    assert "Note: 2 of 11 images could not be used." in out.stdout
    assert out.stderr.count("cannot read") == 2
    assert "9 images without labels" in out.stdout
    out = call("examine", "gone.png", *options(tiny_model), code=3)
    assert "Error: no image could be used: " in out.stderr
    out = call(
        "examine", str(pictures / "deep" / "nothing"), *options(tiny_model), code=3
    )
    (pictures / "empty").mkdir()
    out = call("examine", str(pictures / "empty"), *options(tiny_model), code=3)
    assert "Error: no image was found: name image files" in out.stderr


def test_limits_samples_and_paths_from_stdin(pictures: Path, tiny_model: str) -> None:
    out = call("examine", str(pictures), *options(tiny_model), "--limit", "3", "--json")
    document = Examination.from_json(out.stdout).document
    assert document.n == 3
    assert "Not all images were used: the first 3." in document.warnings
    out = call(
        "examine", str(pictures), *options(tiny_model), "--sample", "5", "--json"
    )
    assert json.loads(out.stdout)["n"] == 5
    paths = b"\0".join(str(p).encode() for p in pictures.glob("*.png"))
    out = call("examine", "-", "-0", *options(tiny_model), "--json", stdin=paths)
    assert json.loads(out.stdout)["n"] == 5


@pytest.mark.parametrize("columns", [60, 80])
def test_the_miniature_from_end_to_end(tmp_path: Path, columns: int) -> None:
    """A summary that fits, with every section; nothing but pictures goes in."""
    task = TASKS["scenes"]
    for i, drawn in enumerate(task.draw(40, 1, split="validation")):
        drawn.image.save(tmp_path / f"{i:02d}.png")
    names = [f"--targets={label}={phrase}" for label, phrase in task.targets.items()]
    for attribute, values in task.sensitive.items():
        names += [
            f"--sensitive={attribute}: {label}={p}" for label, p in values.items()
        ]
    out = call(
        "examine", str(tmp_path), *names, "--template", task.template, "--adapters",
        "zero,orthcali:lam=0", "--views", "8", columns=columns,
    )  # fmt: skip
    lines = out.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    text = flat(out.stdout)
    assert "no --model: the embedded miniature model" in text
    for words in (
        "40 images without labels; 95% intervals in brackets; percent",
        "time: shares perceived; prompt associations in logits",
        "season: by the model's perception",
        "do not allow for the number of methods: of twenty that change nothing, one seems to",
        "not a measurement on people",
        "rank correlation 0.78",
        "says nothing about accuracy",
        "The most probable value has",
        "What is perceived: The model perceives time:",
        "What to do:",
        "season: images that would show it",
        "label 385 images of each",
    ):
        assert words in text, words
    assert "STOP" not in text
    clf = FairTPTClassifier(
        "miniature", task.targets, task.sensitive, task.template, views=AugMix(8)
    )
    actual = clf.examine(
        sorted(tmp_path.glob("*.png")), [Zero(), OrthCali(lam=0.0)]
    ).document
    for adapter in actual.adapters:
        assert f"{adapter.changed}:" in out.stdout
    for perceived in actual.attributes.values():
        assert f"{100 * (perceived.pseudo_eod.value or 0):.1f}" in out.stdout.split()


def test_the_page_shows_images_if_asked(tmp_path: Path) -> None:
    task = TASKS["badges"]
    pictures = tmp_path / "pics"
    out = tmp_path / "out"
    pictures.mkdir()
    for i, drawn in enumerate(task.draw(30, 1, split="validation")):
        drawn.image.save(pictures / f"{i:02d}.png")
    arguments = ["examine", str(pictures), "--out", str(out)]
    arguments += ["--targets", ",".join(task.targets), "--template", task.template]
    arguments += "--sensitive red,green,blue --views 4".split()
    arguments += "--adapters zero,orthcali:lam=0".split()
    printed = call(*arguments, "--embed-images", columns=80).stdout
    adapters = Examination.load(out / "examine.json").document.adapters
    n_changed = sum(adapter.changed for adapter in adapters)
    assert n_changed > 0
    files = f"examine.json, examine.html ({n_changed} images inside), rows.sqlite"
    assert files in flat(printed)
    page = (out / "examine.html").read_text("utf-8")
    assert page.count("<img ") == n_changed
    assert page.count("data:image/") == n_changed
    assert "pics/" in page
    assert str(pictures) not in page
    call(*arguments, columns=80)
    bare = (out / "examine.html").read_text("utf-8")
    for words in ("<img", "data:image", ".png", "whose answer would change"):
        assert words not in bare
    assert "What each method would change" in bare


def test_plans_are_in_json_and_nothing_is_written_unasked(
    pictures: Path, tiny_model: str
) -> None:
    out = pictures.parent / "out"
    arguments = ["examine", str(pictures), *options(tiny_model), "--adapters", "zero"]
    call(*arguments, columns=80)
    assert not out.exists()
    actual = json.loads(call(*arguments, "--json", "--out", str(out)).stdout)
    assert set(actual["attributes"]["sensitive"]["labels_needed"]) >= {
        "each",
        "at_random",
    }
    assert set(actual["adapters"][0]["labels_needed"]) == {"pictures", "labels"}
    assert "images_needed" in actual["adapters"][0]["pseudo_eod"]["sensitive"]
