"""`fair-tta mitigate`: the file is ready to use, and without an effect there is none."""

from __future__ import annotations

import json
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from cli_fixtures import NAMES, call, write_labels

from fair_tta import FairTPTClassifier, LogitBalance
from fair_tta.auditing import Audit
from fair_tta.auditing._mitigate import COMPARED
from fair_tta.lab._cli.audit import audit_command
from fair_tta.miniature import BADGES

DRAWN = BADGES.draw(450)
NAMED = [
    *("--targets", ",".join(BADGES.targets)),
    *("--sensitive", f"colour: {','.join(BADGES.sensitive['colour'])}"),
    *("--template", BADGES.template),
]
COLUMNS = ("--target-column", "animal", "--sensitive-column", "colour")


@pytest.fixture(scope="module")
def badges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("badges")
    (folder / "pics").mkdir()
    rows = []
    for i, one in enumerate(DRAWN):
        one.image.save(folder / "pics" / f"{i}.png")
        rows.append((f"{i}.png", one.target, one.sensitive["colour"]))
    for name, some in ("labels.csv", rows), ("few.csv", rows[:45]):
        write_labels(folder / name, some)
        text = (folder / name).read_text().replace("place", "colour", 1)
        (folder / name).write_text(text)
    return folder


def mitigate(badges: Path, out: str, *more: str, code: int = 0) -> Any:
    where = str(badges / "pics"), "--out", str(badges / out)
    return call("mitigate", *where, *NAMED, *more, code=code, columns=80)


def used(folder: Path, lines: str, monkeypatch: pytest.MonkeyPatch) -> FairTPTClassifier:
    """The classifier that the printed lines make."""
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec("\n".join(lines.splitlines()[-3:]), names)
    clf: FairTPTClassifier = names["clf"]
    return clf


def test_with_labels(badges: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = "--labels", str(badges / "labels.csv"), *COLUMNS
    out = mitigate(badges, "with", *labels)
    folder = badges / "with"
    clf = used(folder, out.stdout, monkeypatch)
    assert isinstance(clf.adapter, LogitBalance)
    assert clf.adapter.checked_reference().images == 450
    assert clf.predict(folder / "../pics/0.png").label
    audit = Audit.load(folder / "audit.json").document
    change = audit.comparisons[1].adjusted.typical_gap
    assert change.high is not None
    found = f"{100 * change.high:+.1f}] points (95 % CI, allowing for 2 candidates)"
    assert found in " ".join(out.stdout.split())
    assert audit.provenance["mitigation"]["python"] in out.stdout
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "logit-balance is chosen: it changes the typical gap by" in page
    assert "adapter.safetensors&#39;)" in page

    def no_answer(*_: Any, **__: Any) -> None:
        raise AssertionError("an answer was computed again")

    before = (folder / "adapter.safetensors").read_bytes()
    monkeypatch.setattr(FairTPTClassifier, "predict_encoded", no_answer)
    mitigate(badges, "with", *labels)
    assert (folder / "adapter.safetensors").read_bytes() == before


@pytest.mark.filterwarnings("ignore::fair_tta.SmallReferenceWarning")
@pytest.mark.parametrize("labelled", [True, False])
def test_after_a_kill_nothing_is_encoded_again_for_the_fits(
    labelled: bool, badges: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = ("--labels", str(badges / "few.csv"), *COLUMNS) if labelled else ()
    out = f"killed-{labelled}"
    encode, calls = FairTPTClassifier.encode, list[int]()

    def counted(self: FairTPTClassifier, images: Any, **how: Any) -> Any:
        calls.append(len(images))
        return encode(self, images, **how)

    def killed(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(FairTPTClassifier, "encode", counted)
    with monkeypatch.context() as patched:
        patched.setattr("fair_tta.lab.folder.Runner.stream", killed)
        mitigate(badges, out, *labels, code=130)
    assert sum(calls) >= 45
    calls.clear()
    mitigate(badges, out, *labels)
    assert not (badges / out / "fits").exists()
    continued = sum(calls)
    calls.clear()
    mitigate(badges, f"{out}-again", *labels)
    assert sum(calls) == continued + (45 if labelled else len(DRAWN))


@pytest.mark.filterwarnings("ignore::fair_tta.SmallReferenceWarning")
def test_pages_of_an_earlier_run_of_the_other_kind_go(badges: Path) -> None:
    (badges / "forty").mkdir()
    for i in range(45):
        DRAWN[i].image.save(badges / "forty" / f"{i}.png")
    folder = badges / "both"
    where = "mitigate", str(badges / "forty"), "--out", str(folder), *NAMED
    labels = "--labels", str(badges / "few.csv"), *COLUMNS
    audited = {"audit.json", "report.html", "card.md", "predictions.csv", "problems.csv"}
    examined = {"examine.json", "examine.html", "adapter.safetensors"}
    call(*where, *labels)
    rows = {path.name for path in folder.iterdir()} - audited
    call(*where)
    assert {path.name for path in folder.iterdir()} - rows == examined
    call(*where, *labels)
    assert {path.name for path in folder.iterdir()} - rows == audited
    document = json.loads((folder / "audit.json").read_text("utf-8"))
    del document["provenance"]["mitigation"]  # as `fair-tta audit` writes it
    (folder / "audit.json").write_text(json.dumps(document), "utf-8")
    call(*where)
    assert {path.name for path in folder.iterdir()} - rows == audited | examined


@pytest.mark.filterwarnings("ignore::fair_tta.SmallReferenceWarning")
def test_without_an_effect_no_method_is_written(badges: Path) -> None:
    folder = badges / "few"
    folder.mkdir()
    LogitBalance().fit(
        FairTPTClassifier("miniature", ["a", "b"], ["c", "d"]), [one.image for one in DRAWN]
    ).save(folder / "adapter.safetensors")  # of an earlier run
    out = mitigate(badges, "few", "--labels", str(badges / "few.csv"), *COLUMNS)
    assert not (folder / "adapter.safetensors").exists()
    assert "No method is chosen: association-correction does not" in " ".join(out.stdout.split())
    assert "No method is chosen: association-" in (folder / "report.html").read_text("utf-8")


@pytest.mark.filterwarnings("always::fair_tta.SmallReferenceWarning")
def test_without_labels(badges: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (badges / "some").mkdir()
    for i in range(60):
        DRAWN[i].image.save(badges / "some" / f"{i}.png")
    (badges / "some" / "broken.png").write_bytes(b"nonsense")
    where = str(badges / "some"), "--out", str(badges / "none")
    out = call("mitigate", *where, *NAMED, code=4)
    assert out.stderr.count("cross-fitting on 60 images") == 1
    assert "fitted on 60 images" not in out.stderr
    clf = used(badges / "none", out.stdout, monkeypatch)
    assert isinstance(clf.adapter, LogitBalance)
    assert clf.adapter.checked_reference().images == 60
    examined = json.loads((badges / "none" / "examine.json").read_text("utf-8"))
    assert examined["adapters"][0]["adapter"]["name"] == "CrossFitted"
    page = (badges / "none" / "examine.html").read_text("utf-8")
    assert "Without labels nothing shows that it helps." in page
    assert "adapter.safetensors&#39;)" in page


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (NAMES[:2], 2, "Invalid value for --sensitive: it is needed without --labels."),
        (("--labels", "l.csv"), 2, "--sensitive-column: it is needed with --labels."),
        ((*NAMES, "--rename", "a: b=c"), 2, "--rename: there is no --labels."),
        (NAMES, 2, "'nowhere' does not exist."),
    ],
)
def test_bad_input_is_refused(more: list[str], code: int, message: str, tmp_path: Path) -> None:
    where = "nowhere" if more is NAMES else str(tmp_path)
    out = call("mitigate", where, "--out", str(tmp_path), *more, code=code)
    assert message in " ".join(out.stderr.replace("'--", "--").replace("':", ":").split())


def test_an_audit_compares_the_same_methods() -> None:
    default = signature(audit_command).parameters["adapters"].default
    assert default == list(COMPARED)


def test_a_foreign_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "adapter.safetensors").write_text("mine")
    out = call("mitigate", str(tmp_path), "--out", str(tmp_path), *NAMES, code=3)
    assert "is not a file of fair-tta: choose another place (--out)" in out.stderr
