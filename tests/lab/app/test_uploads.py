"""Names of visitors are text: no path leads out of the folder that they are staged in."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from internals import (
    PATH_COLUMNS,
    Labels,
    Problem,
    ProblemKind,
    UploadedFile,
    UploadLimits,
    only_images,
    plain_name,
    read_header,
    read_uploaded,
    stage,
    usual_column,
)

from fair_tta.errors import DatasetError, FairTTAError


@given(st.text())
def test_a_plain_name_is_one_part_of_a_path(name: str) -> None:
    plain = plain_name(name)
    assert plain
    assert Path(plain).name == plain
    assert plain not in (".", "..")
    assert not plain.startswith(".")
    assert plain.isprintable()
    assert len(plain.encode("utf-8", "surrogatepass")) <= 160


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("../../etc/passwd", "passwd"),
        ("..\\..\\windows\\a.png", "a.png"),
        ("/", "_"),
        (".htaccess", "_htaccess"),
        ("a\x00b\n.png", "a_b_.png"),
        ("猫.jpg", "猫.jpg"),
        ('a:b?"c".png', "a_b__c_.png"),
    ],
)
def test_plain_names(name: str, plain: str) -> None:
    assert plain_name(name) == plain


def uploads(folder: Path, *names: str) -> list[UploadedFile]:
    folder.mkdir()
    files = []
    for number, name in enumerate(names):
        path = folder / str(number)
        path.write_bytes(str(number).encode())
        files.append(UploadedFile(str(path), name))
    return files


def test_uploads_stay_in_the_folder_they_are_staged_in(tmp_path: Path) -> None:
    files = uploads(
        tmp_path / "up", "../../evil.png", "b/1.png", "c/1.PNG", "/etc/x.png"
    )
    staged = stage(files, tmp_path / "in" / "here")
    assert sorted(staged) == ["1.png", "2-1.PNG", "evil.png", "x.png"]
    assert sorted(p.name for p in (tmp_path / "in" / "here").iterdir()) == sorted(
        staged
    )
    for name, file in staged.items():
        assert (tmp_path / "in" / "here" / name).read_text() == Path(file.path).name
    assert {p.name for p in tmp_path.iterdir()} == {"up", "in"}


def test_no_upload_takes_the_place_of_another(tmp_path: Path) -> None:
    names = [
        "a.jpg",
        "2-a.jpg",
        "a.jpg",
        "A.JPG",
        "3-a.jpg",
        "fr\u00fch.jpg",
        "fru\u0308h.jpg",
    ]
    files = uploads(tmp_path / "up", *names, *["a.jpg"] * 3)
    staged = stage(files, tmp_path / "in")
    assert len(staged) == 10
    for number, (name, file) in enumerate(staged.items()):
        assert (
            (tmp_path / "in" / name).read_text()
            == Path(file.path).read_text()
            == str(number)
        )
    assert list(staged)[:3] == ["a.jpg", "2-a.jpg", "2-2-a.jpg"]


def test_a_disk_that_takes_two_names_for_one_overwrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise FileExistsError(17, "File exists")

    monkeypatch.setattr("os.link", refuse)
    with pytest.raises(FileExistsError):
        stage(uploads(tmp_path / "up", "a.jpg"), tmp_path / "in")


def test_on_another_disk_uploads_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("os.link", refuse)
    stage(uploads(tmp_path / "up", "a.jpg"), tmp_path / "in")
    assert (tmp_path / "in" / "a.jpg").read_text() == "0"


def test_a_path_of_very_many_parts_costs_no_more_than_another(tmp_path: Path) -> None:
    deep = "a/" * 60_000
    tracemalloc.start()
    rows = staged_names(
        tmp_path, f"file,class,place\n{deep}1.png,cat,home\n", (f"{deep}1.png", "2.png")
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == [
        "images without a row: 1 ('2.png'); rows without an image: 0",
        "1.png",
    ]
    assert peak < 20 * 2**20


def test_other_files_of_a_folder_are_not_images() -> None:
    names = ["a.JPG", "labels.csv", ".DS_Store", "b.webp", "c"]
    rows = only_images(UploadedFile("x", name) for name in names)
    assert [file.name for file in rows] == ["a.JPG", "b.webp"]


def staged_names(
    tmp_path: Path, text: str, names: tuple[str, ...], paths: str | None = None
) -> list[str]:
    """The name of each row's upload, or what is wrong with the row."""
    file, folder = tmp_path / "given.csv", tmp_path / "in"
    file.write_text(text, "utf-8")
    staged = stage(uploads(tmp_path / "up", *names), folder)
    values = read_uploaded(Labels(folder, file, "class", ("place",), paths), staged)
    rows = []
    for row in values.records():
        if isinstance(row, Problem):
            rows.append(row.detail)
        else:
            assert row.path == folder / row.key
            assert row.path.is_file()
            rows.append(row.key)
    of_rows = [
        row
        for row in values.records()
        if getattr(row, "kind", None) is not ProblemKind.UNPAIRED
    ]
    assert values.row_count == len(of_rows)
    return rows


def test_paths_in_labels_stand_for_uploads_only(tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"secret")
    rows = staged_names(
        tmp_path,
        "file,other,class,place\n"
        "/home/me/data/cat/1.png,x,cat,home\n"
        "C:\\data\\2.png,x,dog,home\n"
        f"{secret},x,cat,street\n"
        "../secret.png,x,cat,street\n"
        "../../../etc/passwd,x,cat,street\n"
        "3.png,x,cat\n"
        ",x,cat,street\n",
        ("1.png", "2.png", "3.png"),
    )
    assert rows.pop(0) == "images without a row: 1 ('3.png'); rows without an image: 2"
    assert rows == [
        "1.png",
        "2.png",
        "not uploaded: secret.png",
        "not uploaded: secret.png",
        "not uploaded: passwd",
        rows[5],
        "given.csv line 8 (file)",
    ]
    assert "line 7" in rows[5]


def test_uploads_of_the_same_name_are_not_told_apart(tmp_path: Path) -> None:
    """Browsers do not transmit their folders."""
    text = "path;class;place\na/1.png;cat;home\nx/b/1.png;dog;home\n2.png;cat;home\n"
    first, *rows = staged_names(tmp_path, text, ("1.png", "1.png", "2.png"))
    assert first.startswith("images without a row: 2")
    assert rows == [*["several uploads are called 1.png"] * 2, "2.png"]


def test_the_column_of_paths_is_known_or_chosen(tmp_path: Path) -> None:
    text = "photo,class,place\nno name of an image,cat,home\n"
    with pytest.raises(DatasetError, match="looks like a column of paths"):
        staged_names(tmp_path, text, ("1.png",))
    (tmp_path / "again").mkdir()
    text = text.replace("no name of an image", "1.png")
    assert staged_names(tmp_path / "again", text, ("1.png",), "photo") == ["1.png"]
    (tmp_path / "by its values").mkdir()
    assert staged_names(tmp_path / "by its values", text, ("1.png",)) == ["1.png"]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_header_is_found_with_any_separator(separator: str, tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text(
        separator.join(["Class", "File"]) + "\n" + separator.join("ab") + "\n"
    )
    assert read_header(file, UploadLimits()) == ["Class", "File"]
    assert usual_column(read_header(file, UploadLimits()), PATH_COLUMNS) == "File"
    assert usual_column(["class"], PATH_COLUMNS) is None


def test_a_table_may_be_as_long_and_as_wide_as_the_limits(tmp_path: Path) -> None:
    limits = UploadLimits(rows=3, columns=2)
    file = tmp_path / "labels.csv"
    file.write_text("file,class\na.png,x\nb.png,y\nc.png,x\n")
    assert read_header(file, limits) == ["file", "class"]
    for text in ("file,class\n" + "a.png,x\n" * 4, "file,class,place\n"):
        file.write_text(text)
        with pytest.raises(FairTTAError, match="should have at most"):
            read_header(file, limits)
