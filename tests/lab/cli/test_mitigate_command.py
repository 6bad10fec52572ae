"""`fair-tta mitigate`: the file is ready to use, and without an effect there is none."""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_fixtures import call, flat, load_audit, store_prompts
from fits import fit_on
from internals import DEFAULT_CANDIDATES, audit_command

from fair_tta import FairTPTClassifier, Features, LogitBalance
from fair_tta.auditing import Audit
from fair_tta.miniature import BIRDS

DRAWN = BIRDS.draw(450)
IMAGES = [drawn.image for drawn in DRAWN]
NAMED = ["--template", BIRDS.template]
for label, phrase in BIRDS.targets.items():
    NAMED += ["--targets", f"{label}={phrase}"]
for label, phrase in BIRDS.sensitive["background"].items():
    NAMED += ["--sensitive", f"background: {label}={phrase}"]


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("birds")
    (folder / "pics").mkdir()
    lines = ["file,animal,background"]
    for i, drawn in enumerate(DRAWN):
        drawn.image.save(folder / "pics" / f"{i}.png")
        lines.append(f"{i}.png,{drawn.target},{drawn.sensitive['background']}")
    (folder / "labels.csv").write_text("\n".join(lines))
    (folder / "few.csv").write_text("\n".join(lines[:46]))
    return folder


def mitigate(birds: Path, out: str, labels: str, *source: str, code: int = 0) -> Any:
    command = "mitigate --target-column animal --sensitive-column background".split()
    command += ["--labels", str(birds / labels), "--out", str(birds / out), *NAMED]
    return call(*command, *(source or [str(birds / "pics")]), code=code, columns=80)


def used(
    folder: Path, printed: str, monkeypatch: pytest.MonkeyPatch, lines: int = 3
) -> FairTPTClassifier:
    """The classifier that the printed lines make."""
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec("\n".join(printed.splitlines()[-lines:]), names)
    clf: FairTPTClassifier = names["clf"]
    return clf


def test_with_labels(birds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = mitigate(birds, "with", "labels.csv")
    folder = birds / "with"
    clf = used(folder, out.stdout, monkeypatch)
    assert isinstance(clf.adapter, LogitBalance)
    assert clf.adapter._checked_reference().images == 450
    assert clf.predict(folder / "../pics/0.png").label
    audit = Audit.load(folder / "audit.json").document
    change = audit.comparisons[1].adjusted.typical_gap
    assert change.high is not None
    sentence = f"{100 * change.high:+.1f}] points (95 % CI, allowing for 2 candidates)"
    assert sentence in flat(out.stdout)
    assert audit.provenance["mitigation"]["python"] in out.stdout
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "logit-balance is chosen: it changes the typical gap by" in page
    assert "adapter.safetensors&#39;)" in page

    def no_answer(*_: Any, **__: Any) -> None:
        raise AssertionError("an answer was computed again")

    before = (folder / "adapter.safetensors").read_bytes()
    monkeypatch.setattr(FairTPTClassifier, "_predict_encoded", no_answer)
    mitigate(birds, "with", "labels.csv")
    assert (folder / "adapter.safetensors").read_bytes() == before


def test_stored_features(birds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clf = FairTPTClassifier("miniature", BIRDS.targets, BIRDS.sensitive, BIRDS.template)
    vectors = clf.encode(IMAGES, with_views=False)[:, 0].numpy()
    ids = [f"{i}.png" for i in range(450)]
    np.savez(birds / "images.npz", features=vectors, ids=ids)
    store_prompts(birds / "text.npz", clf, scale=clf._task.scale)
    source = ["--features", str(birds / "images.npz")]
    source += ["--text-features", str(birds / "text.npz")]
    out = mitigate(birds, "stored", "labels.csv", *source)
    by_features = used(birds / "stored", out.stdout, monkeypatch, lines=4)
    assert isinstance(by_features.adapter, LogitBalance)
    by_images = clf.with_adapter(fit_on(LogitBalance(), clf, IMAGES))
    features = Features(vectors)
    actual = by_features.predict_proba(features)
    np.testing.assert_allclose(actual, by_images.predict_proba(features), atol=1e-4)


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")
def test_after_a_kill_nothing_is_encoded_again_for_the_fits(
    birds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = FairTPTClassifier.encode
    calls: list[int] = []

    def counted(self: FairTPTClassifier, images: Any, **arguments: Any) -> Any:
        calls.append(len(images))
        return encode(self, images, **arguments)

    def killed(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(FairTPTClassifier, "encode", counted)
    with monkeypatch.context() as patched:
        patched.setattr("fair_tta.lab._folder.Runner.stream", killed)
        mitigate(birds, "killed", "few.csv", code=130)
    assert sum(calls) >= 45
    calls.clear()
    mitigate(birds, "killed", "few.csv")
    assert not (birds / "killed" / "fits").exists()
    continued = sum(calls)
    calls.clear()
    mitigate(birds, "killed-again", "few.csv")
    assert sum(calls) == continued + 45


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")
def test_without_an_effect_no_method_is_written(birds: Path) -> None:
    file = birds / "few" / "adapter.safetensors"
    file.parent.mkdir()
    names = (["a", "b"], ["c", "d"])
    earlier = FairTPTClassifier("miniature", *names, adapter="logit-balance")
    earlier.fit(IMAGES).save(file)
    out = mitigate(birds, "few", "few.csv")
    assert not file.exists()
    assert "No method is chosen: association-correction does not" in flat(out.stdout)
    page = (birds / "few" / "report.html").read_text("utf-8")
    assert "No method is chosen: association-" in page


@pytest.mark.filterwarnings("always::fair_tta.errors.SmallReferenceWarning")
def test_images_that_cannot_be_used_are_counted(birds: Path) -> None:
    (birds / "pics" / "broken.png").write_bytes(b"nonsense")
    rows = (birds / "few.csv").read_text()
    (birds / "one-broken.csv").write_text(
        f"{rows}\nbroken.png,{DRAWN[0].target},water\n"
    )
    out = mitigate(birds, "broken", "one-broken.csv", code=4)
    assert out.stderr.count("cross-fitting on 45 images") == 1
    assert "fitted on 45 images" not in out.stderr
    audit = load_audit(birds, "broken").document
    assert audit.runs[0].metrics.accuracy.n == 45


def test_an_audit_compares_the_same_methods() -> None:
    default = signature(audit_command).parameters["adapters"].default
    assert default == list(DEFAULT_CANDIDATES)


def test_a_foreign_file_is_not_replaced(birds: Path) -> None:
    (birds / "foreign").mkdir()
    (birds / "foreign" / "adapter.safetensors").write_text("mine")
    out = mitigate(birds, "foreign", "few.csv", code=3)
    assert "was not written by fair-tta: choose another folder (--out)" in out.stderr
