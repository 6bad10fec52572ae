"""`fair-tta predict`: the answers of the classifier, whatever the way in and out."""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from checks import picture
from cli_fixtures import NAMES, call
from cli_fixtures import tiny_model as tiny_model
from extending_page import documented
from internals import printable, walk_images

from fair_tta import AssociationCorrection, FairTPTClassifier, Zero
from fair_tta.extend import Adapter, AugMix
from fair_tta.lab.cli import app


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for i, name in enumerate(["b.png", "[bold]ü, 'x'\n\x1b[31m.PNG", "deep/er/a.jpg"]):
        picture(i).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no picture")
    return tmp_path


def options(model: str) -> list[str]:
    return ["--model", model, "--views", "4", *NAMES]


def classifier(
    model: str,
    adapter: Adapter | None = None,
    template: str | list[str] = "a photo {target} {sensitive}.",
) -> FairTPTClassifier:
    """The classifier that the options describe."""
    return FairTPTClassifier(
        model,
        {"cat": "of a cat", "dog": "of a dog, black"},
        {"sensitive": {"water": "on water", "land": "on land"}},
        template,
        adapter=adapter or AssociationCorrection(),
        views=AugMix(4),
    )


def test_several_templates(pictures: Path, tiny_model: str, tmp_path: Path) -> None:
    """Repeated, or in a file: the answers of Python's list."""
    sentences = ["a photo {target} {sensitive}.", "a picture {sensitive} {target}."]
    file = tmp_path / "templates.txt"
    file.write_text("\n".join([sentences[1], "", ""]), "utf-8")
    image = str(pictures / "b.png")
    expected = classifier(tiny_model, template=sentences).predict(image)
    names = NAMES[: NAMES.index("--template")]
    for second in (sentences[1], f"@{file}"):
        templates = ["--template", sentences[0], "--template", second]
        command = ["predict", image, "--model", tiny_model, *names, *templates]
        out = call(*command, "--json")
        probabilities = json.loads(out.stdout)["probabilities"]
        assert probabilities == pytest.approx(expected.probabilities)
    tuned = "--template", sentences[1], "--adapter", "fair-tpt"
    out = call("predict", image, *options(tiny_model), *tuned, code=3)
    assert "FairTPT tunes the words of one template (got 2)" in out.stderr


def test_json_lines_are_the_predictions(pictures: Path, tiny_model: str) -> None:
    out = call("predict", str(pictures), *options(tiny_model), "--json")
    rows = [json.loads(line) for line in out.stdout.splitlines()]
    names = ["[bold]ü, 'x'\n\x1b[31m.PNG", "b.png", "deep/er/a.jpg"]
    assert [row["image"] for row in rows] == [str(pictures / name) for name in names]
    for row in rows:
        expected = classifier(tiny_model).predict(row["image"])
        assert row["error"] is None
        assert row["label"] == expected.label
        for field in ("probabilities", "sensitive_entropy"):
            assert row[field] == pytest.approx(getattr(expected, field), abs=1e-5)


def test_csv_and_the_adapter(pictures: Path, tiny_model: str) -> None:
    """Also a user-defined one, which is the same method in a file."""
    (pictures / "user.py").write_text(documented("SoftVote"))
    command = ["predict", str(pictures), *options(tiny_model), "--csv", "--adapter"]
    paths = {printable(str(path)): str(path) for path in pictures.rglob("*")}
    clf = classifier(tiny_model, Zero(rho=0.5))
    for adapter in ("zero:rho=0.5", f"{pictures}/user.py:SoftVote"):
        out = call(*command, adapter)
        rows = list(csv.DictReader(io.StringIO(out.stdout, newline="")))
        assert len(rows) == 3
        for row in rows:
            expected = clf.predict(paths[row["image"]])
            zero_shot = expected.zero_shot
            assert row["zero-shot label"] == max(zero_shot, key=lambda t: zero_shot[t])
            assert row["error"] == ""
            if adapter.startswith("zero"):
                assert row["label"] == expected.label
                assert float(row["p: dog"]) == pytest.approx(
                    expected.probabilities["dog"]
                )
    out = call(*command, f"{pictures}/user.py:Hard", code=2, columns=300)
    assert "'user.py' has no 'Hard': it has SoftVote." in out.stderr


def test_table_shows_every_picture_and_no_markup(
    pictures: Path, tiny_model: str
) -> None:
    for i in range(20):  # more than a batch
        picture(i).save(pictures / f"z{i}.png")
    out = call("predict", str(pictures), *options(tiny_model), "--adapter", "zero-shot",
               columns=300)  # fmt: skip
    assert out.stdout.count("image ") == 1
    assert "\x1b" not in out.stdout
    flat = "".join(out.stdout.split())
    assert r"[bold]ü,'x'\n\x1b[31m.PNG" in flat
    assert all(f"z{i}.png" in flat for i in range(20))


def test_broken_pictures_do_not_stop_the_others(
    pictures: Path, tiny_model: str
) -> None:
    (pictures / "broken.png").write_bytes(b"GIF89a")
    files = [
        str(pictures / n) for n in ("broken.png", "notes.txt", "gone.png", "b.png")
    ]
    for output_format in ("--json", "--csv"):
        out = call("predict", *files, *options(tiny_model), output_format, code=4)
        assert "3 of 4 images could not be used." in out.stderr
        if output_format == "--json":
            rows = [json.loads(line) for line in out.stdout.splitlines()]
        else:
            rows = list(csv.DictReader(io.StringIO(out.stdout)))
        assert [bool(row["error"]) for row in rows] == [True, True, True, False]
        assert "no such file" in rows[2]["error"]
    out = call("predict", *files, *options(tiny_model), code=4)
    assert out.stdout.count("unreadable") == 3
    assert out.stderr.count("cannot read") == 3


def test_paths_from_stdin(pictures: Path, tiny_model: str) -> None:
    lines = f"{pictures / 'b.png'}\r\n\n{pictures / 'deep'}".encode()
    out = call("predict", "-", *options(tiny_model), "--json", stdin=lines)
    assert len(out.stdout.splitlines()) == 2
    null = b"\0".join(os.fsencode(p) for p in pictures.glob("*.[pP][nN][gG]")) + b"\0"
    out = call("predict", "-", "--null", *options(tiny_model), "--json", stdin=null)
    assert len(out.stdout.splitlines()) == 2


def test_paths_in_the_code_page_of_a_windows_console(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def oem(name: str) -> codecs.CodecInfo | None:
        return codecs.lookup("cp850") if name == "oem" else None

    monkeypatch.setattr(
        "os.fsdecode", lambda path: path.decode("utf-8", "surrogatepass")
    )
    monkeypatch.setattr(
        "sys.stdin", io.TextIOWrapper(io.BytesIO("a.png\r\n\xfc.png".encode("cp850")))
    )
    codecs.register(oem)
    try:
        assert list(walk_images(["-"])) == ["a.png", "\xfc.png"]
    finally:
        codecs.unregister(oem)


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes")
def test_names_that_are_not_utf8(tmp_path: Path, tiny_model: str) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.png")
    with open(name, "wb") as file:
        picture().save(file, "png")
    out = call("predict", str(tmp_path), *options(tiny_model), "--json")
    assert json.loads(out.stdout)["image"] == name
    out = call("predict", str(tmp_path), *options(tiny_model), "--csv")
    assert r"/\udcff\udcfe.png," in out.stdout  # see fair_tta._io
    call("predict", str(tmp_path), *options(tiny_model))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no such pipes")
def test_a_reader_that_has_enough(pictures: Path, tiny_model: str) -> None:
    arguments = [
        "predict",
        str(pictures),
        *options(tiny_model),
        "--adapter",
        "zero-shot",
    ]
    reading, writing = os.pipe()
    os.close(reading)  # as `head` does
    code = (
        "import os, sys\n"
        "from fair_tta.lab.cli import app\n"
        "closed, codes = os.dup(1), []\n"
        "for way in ([], ['--json']):\n"
        "    os.dup2(closed, 1)\n"
        "    try: app([*sys.argv[1:], *way])\n"
        "    except SystemExit as end: codes.append(end.code)\n"
        "sys.exit(0 if codes == [141, 141] else f'rror: {codes}')"
    )
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            stdout=closed, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "rror" not in done.stderr  # transformers 4 has words of its own there


def test_names_that_a_pipe_cannot_show(
    pictures: Path, tiny_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, where files and pipes are not UTF-8."""
    names = ["--targets", "猫", "--targets", "犬", "--template", "a photo of {target}"]
    arguments = ["predict", str(pictures / "b.png"), "--model", tiny_model, *names]
    pipe = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe, "cp1252"))
    with pytest.raises(SystemExit) as ended:
        app([*arguments, "--adapter", "zero-shot"])
    assert not ended.value.code
    sys.stdout.flush()
    assert b"\\u732b" in pipe.getvalue() or b"\\u72ac" in pipe.getvalue()


def test_the_embedded_model_says_what_it_is(pictures: Path) -> None:
    arguments = [
        "predict",
        str(pictures / "b.png"),
        *NAMES,
        "--adapter",
        "zero-shot",
        "--json",
    ]
    note = "no --model: the embedded miniature model, which knows drawn images only\n"
    assert call(*arguments).stderr == note
    assert call(*arguments, "--model", "miniature").stderr == ""


@pytest.mark.parametrize(
    "workers", [[], pytest.param(["--workers", "2"], marks=pytest.mark.slow)]
)
def test_precision(
    pictures: Path, tiny_model: str, tmp_path: Path, workers: list[str]
) -> None:
    """Workers load the model as the driver does: another precision would be another model."""
    command = ["predict", str(pictures), *options(tiny_model), "--csv"]
    command += ["--adapter", "zero-shot"]
    half_options = ["--dtype", "bfloat16", "--out", str(tmp_path / "half")]
    half = call(*command, *half_options, *workers)
    full = call(*command)
    assert half.stdout.count("\n") == full.stdout.count("\n")
    assert half.stdout != full.stdout


def test_saved_predictions_and_samples(
    pictures: Path, tiny_model: str, tmp_path: Path
) -> None:
    command = ["predict", str(pictures), *options(tiny_model), "--csv"]

    def rows(*more_options: str) -> list[list[str]]:
        printed = call(*command, *more_options).stdout
        return [row[:2] for row in csv.reader(io.StringIO(printed))][1:]

    all_rows = rows()
    for _ in range(2):
        assert rows("--out", str(tmp_path / "out")) == all_rows
    assert rows("--limit", "2") == all_rows[:2]
    assert len(rows("--sample", "2")) == 2
    wrong = [*command, "--targets", os.fsdecode(b"\xff,b")]
    assert "should hold text in Unicode" in call(*wrong, code=2).stderr


def test_folders_are_read_in_order(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{i:02d}.png") for i in range(25)]
    for path in paths:
        Path(path).touch()
    assert list(walk_images([str(tmp_path)])) == paths


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes")
def test_names_in_csv_are_text_and_in_json_as_they_are(
    tmp_path: Path, tiny_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["=1.png", os.fsdecode(b"caf\xe9.png"), "\x1b[2J.png"]
    for name in names:
        with open(name, "wb") as file:
            picture().save(file, "png")
    arguments = ["predict", *names, *options(tiny_model), "--adapter", "zero-shot"]
    rows = csv.DictReader(io.StringIO(call(*arguments, "--csv").stdout, newline=""))
    assert [row["image"] for row in rows] == [
        "'=1.png",
        r"caf\udce9.png",
        r"\x1b[2J.png",
    ]
    lines = call(*arguments, "--json").stdout.splitlines()
    assert [json.loads(line)["image"] for line in lines] == names


def test_progress_has_the_total(pictures: Path, tiny_model: str) -> None:
    words = (
        "predict",
        str(pictures),
        *NAMES,
        "--model",
        tiny_model,
        "--adapter",
        "zero-shot",
    )
    lines = call(*words, "--progress").stderr.splitlines()
    assert lines[0] == "0 of 3 images"
    assert lines[-1] == "3 of 3 images"  # one batch has no rate yet
    assert call(*words, "--progress", "--limit", "2").stderr.startswith(
        "0 of 2 images\n"
    )
    paths = "\n".join(map(str, pictures.rglob("*.jpg"))).encode()
    stdin = call("predict", "-", *words[2:], "--progress", stdin=paths).stderr
    assert stdin.startswith("0 images\n")
