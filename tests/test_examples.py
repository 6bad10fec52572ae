"""Examples that need no dataset run, and what they claim is so (lab/bench has the others)."""

from __future__ import annotations

import io
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from fits import fit_on
from internals import TASKS

from fair_tta import FairTPTClassifier, LogitBalance, ZeroShot

EXAMPLES = Path(__file__).parents[1] / "examples"

pytestmark = [
    pytest.mark.usefixtures("loaded_once"),
    pytest.mark.filterwarnings(
        "default"
    ),  # matplotlib, pandas, fairlearn have their own
]


def run(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_every_method_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    run("methods.py")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 + 6 * 4
    assert lines[-1].startswith("FairTPTMO")


def test_pipeline_is_swapped_in_place(capsys: pytest.CaptureFixture[str]) -> None:
    names = run("pipeline.py")
    before, after = names["before"], names["after"]
    assert [[set(entry) for entry in answer] for answer in after] == [
        [set(entry) for entry in answer] for answer in before
    ]
    task = TASKS["birds"]
    clf = FairTPTClassifier(
        "miniature",
        names["LABELS"],
        template="This is a picture {}.",
        adapter=ZeroShot(),
    )
    for image, answer in zip(names["images"], before, strict=True):
        ours = clf.predict(image).to_dict()
        assert [entry["label"] for entry in ours] == [
            entry["label"] for entry in answer
        ]
        for mine, theirs in zip(ours, answer, strict=True):
            assert mine["score"] == pytest.approx(theirs["score"], abs=1e-4)
    assert {p.target for p in names["drawn"]} <= set(task.targets)
    assert "fair-tta, in its place" in capsys.readouterr().out


def test_open_clip_code_gives_the_zero_shot_answers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = run("open_clip_code.py")
    assert names["zero_shot"] == pytest.approx(names["before"].numpy(), abs=1e-4)
    assert "zero-shot differs from open_clip's own code by" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")
def test_balance_on_a_stream() -> None:
    names = runpy.run_path(str(EXAMPLES / "online_balance.py"))
    task = TASKS["birds"]
    clf = FairTPTClassifier("miniature", task.targets, task.sensitive, task.template)
    images = [drawn.image for drawn in task.draw(14, seed=1)]
    streamed = list(names["predict_stream"](clf, iter(images), window=8, least=8))
    assert not any(p.distance for p in streamed[:8])
    expected = clf.with_adapter(fit_on(LogitBalance(), clf, images[:8])).predict(
        images[8:]
    )
    for actual, wanted_answer in zip(streamed[8:], expected, strict=True):
        assert actual.probabilities == pytest.approx(
            wanted_answer.probabilities, abs=1e-5
        )


@pytest.mark.slow
def test_the_stream_of_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    run("online_balance.py")
    assert "of 100 answers differ from zero-shot" in capsys.readouterr().out


@pytest.mark.slow
def test_fairlearn_agrees_with_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fairlearn")
    monkeypatch.chdir(tmp_path)
    names = run("fairlearn_plots.py")
    audit = names["audit"]
    for run_name, document in zip(audit.runs, audit.to_dict()["runs"], strict=True):
        frame = audit.to_metric_frame(run_name, names["metrics"])
        assert frame.overall["accuracy"] == pytest.approx(
            document["metrics"]["accuracy"]["value"]
        )
        for group in document["groups"]:
            value = frame.by_group["accuracy"][group["sensitive"]["background"]]
            assert value == pytest.approx(group["accuracy"]["value"])
        assert (tmp_path / f"{run_name}.png").stat().st_size > 5000
    assert (tmp_path / "comparison.png").stat().st_size > 5000


def test_a_medical_clip_by_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["path,finding,site"]
    for number, drawn in enumerate(TASKS["birds"].draw(40, seed=2)):
        drawn.image.save(tmp_path / f"{number}.png")
        finding = {"water bird": "effusion", "land bird": "none"}[drawn.target]
        site = {"water": "clinic", "land": "hospital"}[drawn.sensitive["background"]]
        rows.append(f"{number}.png,{finding},{site}")
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    arguments = [str(tmp_path), str(tmp_path / "labels.csv"), "--model", "miniature"]
    monkeypatch.setattr("sys.argv", ["medical_sites.py", *arguments])
    names = run("medical_sites.py")
    assert names["mitigation"].audit.runs[0] == "zero-shot"
    printed = capsys.readouterr().out
    assert "worst" in printed
    assert names["mitigation"].reason in printed


@pytest.mark.slow
def test_an_audit_in_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    audit = run("mlflow_logging.py")["audit"]
    logged = {
        run.info.run_name: run for run in mlflow.search_runs(output_format="list")
    }
    assert logged.keys() == set(audit.runs)
    for name, one in logged.items():
        assert (
            one.data.metrics["typical_gap"] == audit.estimate("typical_gap", name).value
        )
    assert len(list(tmp_path.rglob("report.html"))) == 2


@pytest.mark.slow
def test_wrong_answers_of_a_group_in_fiftyone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("fiftyone")
    names = run("fiftyone_view.py")
    rows = zip(names["labels"], names["colours"], names["answers"], strict=True)
    wrong = sum(
        colour == "green" and answer.label != label for label, colour, answer in rows
    )
    assert len(names["view"]) == wrong > 0
    assert f"{wrong} of 30 green badges are answered wrongly" in capsys.readouterr().out


def test_integrations_are_short() -> None:
    for name in (
        "mlflow_logging.py",
        "fiftyone_view.py",
        "medical_sites.py",
        "space/app.py",
    ):
        assert len((EXAMPLES / name).read_text("utf-8").splitlines()) < 40, name


def test_the_notebook_runs_from_top_to_bottom(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cells = json.loads((EXAMPLES / "quickstart.ipynb").read_text("utf-8"))["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec("".join(cell["source"]), names)
    assert len(names["together"].runs) == 3
    assert r"\toprule" in capsys.readouterr().out


def test_the_endpoint_of_the_page_answers_422_to_what_is_no_image() -> None:
    """They were answered with 500, as if the server were at fault."""
    testclient = pytest.importorskip("fastapi.testclient")
    page = (EXAMPLES.parent / "docs" / "serving.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks[
        : 1 + next(i for i, block in enumerate(blocks) if "FastAPI()" in block)
    ]:
        exec(compile(block, "serving.md", "exec", dont_inherit=True), names)
    client = testclient.TestClient(names["app"], raise_server_exceptions=False)
    picture = io.BytesIO()
    names["images"][0].save(picture, "PNG")
    answer = client.post("/classify", content=picture.getvalue())
    assert answer.status_code == 200
    assert sum(entry["score"] for entry in answer.json()) == pytest.approx(1, abs=1e-3)
    for data in (b"no image", b"", picture.getvalue()[:100]):
        answer = client.post("/classify", content=data)
        assert answer.status_code == 422
        assert answer.json()["detail"]
