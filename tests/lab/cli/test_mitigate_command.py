"""`fair-tta mitigate`: the file is ready to use, and without an effect there is none."""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_fixtures import call, flat, load_audit, write_labels
from fits import fit_on
from internals import DEFAULT_CANDIDATES, audit_command

from fair_tta import FairTPTClassifier, Features, LogitBalance
from fair_tta.auditing import Audit
from fair_tta.miniature import BIRDS

DRAWN = BIRDS.draw(450)


BACKGROUNDS = BIRDS.sensitive["background"]
NAMED = ["--template", BIRDS.template]
for label, phrase in BIRDS.targets.items():
    NAMED += ["--targets", f"{label}={phrase}"]
for label, phrase in BACKGROUNDS.items():
    NAMED += ["--sensitive", f"background: {label}={phrase}"]
COLUMNS = ("--target-column", "animal", "--sensitive-column", "background")


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("birds")
    (folder / "pics").mkdir()
    rows = []
    for i, drawn in enumerate(DRAWN):
        drawn.image.save(folder / "pics" / f"{i}.png")
        rows.append((f"{i}.png", drawn.target, drawn.sensitive["background"]))
    for name, part in ("labels.csv", rows), ("few.csv", rows[:45]):
        write_labels(folder / name, part)
        text = (folder / name).read_text().replace("place", "background", 1)
        (folder / name).write_text(text)
    return folder


def mitigate(birds: Path, out: str, *options: str, code: int = 0) -> Any:
    folders = str(birds / "pics"), "--out", str(birds / out)
    return call("mitigate", *folders, *NAMED, *options, code=code, columns=80)


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
    labels = "--labels", str(birds / "labels.csv"), *COLUMNS
    out = mitigate(birds, "with", *labels)
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
    mitigate(birds, "with", *labels)
    assert (folder / "adapter.safetensors").read_bytes() == before


def test_stored_features(birds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = BIRDS.targets, {"background": BIRDS.sensitive["background"]}, BIRDS.template
    clf = FairTPTClassifier("miniature", *names)
    vectors = clf.encode([drawn.image for drawn in DRAWN], with_views=False)[
        :, 0
    ].numpy()
    np.savez(
        birds / "images.npz", features=vectors, ids=[f"{i}.png" for i in range(450)]
    )
    sets = [clf._task.target_prompts, *clf._task.sensitive_prompts.values()]
    tables = [clf._task.target_features, *clf._task.sensitive_features.values()]
    prompts = [text for prompt_set in sets for text in prompt_set.texts]
    texts = np.concatenate([table.numpy(force=True) for table in tables])
    np.savez(birds / "text.npz", prompts=prompts, features=texts, scale=clf._task.scale)
    stored = (
        "--features",
        str(birds / "images.npz"),
        "--text-features",
        str(birds / "text.npz"),
    )
    labels = "--labels", str(birds / "labels.csv"), *COLUMNS
    out = call("mitigate", *stored, *NAMED, *labels, "--out", str(birds / "stored"))
    by_features = used(birds / "stored", out.stdout, monkeypatch, lines=4)
    assert isinstance(by_features.adapter, LogitBalance)
    by_images = fit_on(LogitBalance(), clf, [drawn.image for drawn in DRAWN])
    np.testing.assert_allclose(
        by_features.predict_proba(Features(vectors)),
        clf.with_adapter(by_images).predict_proba(Features(vectors)),
        atol=1e-4,
    )


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")
def test_after_a_kill_nothing_is_encoded_again_for_the_fits(
    birds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, out = ("--labels", str(birds / "few.csv"), *COLUMNS), "killed"
    encode, calls = FairTPTClassifier.encode, list[int]()

    def counted(self: FairTPTClassifier, images: Any, **arguments: Any) -> Any:
        calls.append(len(images))
        return encode(self, images, **arguments)

    def killed(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(FairTPTClassifier, "encode", counted)
    with monkeypatch.context() as patched:
        patched.setattr("fair_tta.lab._folder.Runner.stream", killed)
        mitigate(birds, out, *labels, code=130)
    assert sum(calls) >= 45
    calls.clear()
    mitigate(birds, out, *labels)
    assert not (birds / out / "fits").exists()
    continued = sum(calls)
    calls.clear()
    mitigate(birds, f"{out}-again", *labels)
    assert sum(calls) == continued + 45


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")
def test_without_an_effect_no_method_is_written(birds: Path) -> None:
    folder = birds / "few"
    folder.mkdir()
    unrelated = FairTPTClassifier(
        "miniature", ["a", "b"], ["c", "d"], adapter="logit-balance"
    )
    unrelated.fit([drawn.image for drawn in DRAWN]).save(
        folder / "adapter.safetensors"
    )  # earlier
    out = mitigate(birds, "few", "--labels", str(birds / "few.csv"), *COLUMNS)
    assert not (folder / "adapter.safetensors").exists()
    assert "No method is chosen: association-correction does not" in flat(out.stdout)
    assert "No method is chosen: association-" in (folder / "report.html").read_text(
        "utf-8"
    )


@pytest.mark.filterwarnings("always::fair_tta.errors.SmallReferenceWarning")
def test_images_that_cannot_be_used_are_counted(birds: Path) -> None:
    (birds / "pics" / "broken.png").write_bytes(b"nonsense")
    rows = (birds / "few.csv").read_text()
    (birds / "one-broken.csv").write_text(f"{rows}broken.png,{DRAWN[0].target},water\n")
    labels = "--labels", str(birds / "one-broken.csv"), *COLUMNS
    out = mitigate(birds, "broken", *labels, code=4)
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
    out = mitigate(
        birds, "foreign", "--labels", str(birds / "few.csv"), *COLUMNS, code=3
    )
    assert "was not written by fair-tta: choose another folder (--out)" in out.stderr
