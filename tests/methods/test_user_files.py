"""Adapters of files of one's own: what can be written, what comes out, and what is said if not."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from checks import picture
from extending_page import HEAD, documented
from internals import (
    Chained,
    Job,
    describe_adapter,
    parse_adapter,
    parse_adapters,
    short_name,
)

from fair_tta import TPT, FairTPTClassifier, FairTTAError, OrthCali, ZeroShot

MORE = """
class Plain(Adapter):
    def __init__(self, share=0.5):
        self.share = share

    def adapt(self, task, features):
        return ZeroShot().adapt(task, features)

plain, other = Plain(), Plain(0.75)

@dataclass(frozen=True)
class Rich(Plain):
    number: float = 2
    steps: int = 1
    mode: str = "mean"
    sizes: tuple = (1, 2)
    drawn: list = field(default_factory=list)
    kind: type = Plain

    def __post_init__(self):
        if self.steps < 0:
            raise ValueError("steps!")

@dataclass(frozen=True)
class Finds(Rich, FindsTexts):
    def find_texts(self, task, features):
        return TPT().find_texts(task, features)

class Bare(Plain):
    def __init__(self, share, *more):
        pass

class Nothing:
    pass

class Foreign:
    adapt = Plain.adapt

class Fails(Plain):
    def __init__(self):
        raise RuntimeError("no luck")

def tuned(rho=0.3):
    return TPT(rho=rho)

def second(gradients):
    return gradients[1]

def mo():
    return FairTPTMO(aggregator=second)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    (tmp_path / "own").mkdir()
    (tmp_path / "soft_vote.py").write_text(documented("SoftVote", "Sharper"))
    (tmp_path / "own" / "more.py").write_text(HEAD + MORE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_example_of_the_page(folder: Path) -> None:
    clf = FairTPTClassifier(
        "miniature", ["water bird", "land bird"], views=lambda i, g: [i, i]
    )
    vote = parse_adapter("soft_vote.py:SoftVote")
    assert repr(vote) == "SoftVote()"
    p = clf.with_adapter(vote).predict(picture())
    assert p.probabilities == pytest.approx(p.zero_shot, abs=1e-4)
    chained: Any = parse_adapter(f"tpt:steps=2+{folder}/soft_vote.py:Sharper:factor=3")
    assert (chained.first, chained.then.factor) == (TPT(steps=2), 3.0)
    assert clf.with_adapter(chained).predict(picture()).learning_rate is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("own/more.py:Plain", "Plain"),
        ("own/more.py : plain ", "Plain"),
        ("./own/../own/more.py:Rich:number=2.5,steps=3,mode=max", "Rich 2.5 3 max"),
        ("own/more.py:tuned:rho=0.5", "TPT"),
        ("own/more.py:Finds:steps=2 + orthcali:lam=0", "Chained"),
        ("own/more.py:Finds>>./soft_vote.py:Sharper", "Chained"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_can_be_written(text: str, expected: str) -> None:
    method: Any = parse_adapter(text)
    description = [type(method).__name__]
    if description == ["Rich"]:
        description += [str(method.number), str(method.steps), method.mode]
    assert " ".join(description) == expected
    assert parse_adapter(text, Path("elsewhere") / "..") is not None


def test_lists_and_names(folder: Path) -> None:
    path = folder / "own" / "more.py"
    methods = parse_adapters(
        [f"zero-shot,{path}:Rich:steps=2,number=1,tpt+orthcali", f"{path}:tuned"]
    )
    names = [
        "zero-shot",
        "more.py:Rich:steps=2,number=1",
        "tpt+orthcali",
        "more.py:tuned",
    ]
    assert list(methods) == names
    assert methods["more.py:tuned"] == TPT(rho=0.3)
    assert methods["tpt+orthcali"] == Chained(TPT(), OrthCali())
    with pytest.raises(FairTTAError, match=r"\['more.py:plain'\] came twice"):
        parse_adapters(["own/more.py:plain", f"{path}:plain"])


def test_drives_are_no_names() -> None:
    assert short_name(r"C:\me\a b\x.py:A:share=0.2") == "x.py:A:share=0.2"
    assert short_name("tpt+D:/x.py:A >> ../y.py:B") == "tpt+x.py:A >> y.py:B"
    with pytest.raises(FairTTAError, match=r"there is no file .*x\.py"):
        parse_adapter(r"C:\me\x.py:A:share=0.2")


def test_settings_have_the_content_of_the_file(folder: Path) -> None:
    """But not the way to it."""
    path = folder / "own" / "more.py"

    def settings(name: str) -> dict[str, Any]:
        described = describe_adapter(parse_adapter(f"{path}:{name}"))
        assert folder.name not in str(described)
        assert bytes(folder).hex() not in str(described)
        return described

    names = ("Plain", "plain", "other", "Rich", "mo", "tuned")
    before = {name: settings(name) for name in names}
    assert before["Plain"] == before["plain"] != before["other"]
    digest = before["Plain"]["settings"]["more.py"]
    assert re.fullmatch("sha256:[0-9a-f]{64}", digest)
    assert before["mo"]["settings"]["aggregator"] == {
        "name": "second",
        "settings": {"more.py": digest},
    }
    path.write_text(path.read_text() + "\n# changed\n")
    assert {name for name in names if settings(name) == before[name]} == {
        "tuned"
    }  # all is said
    path.write_text(path.read_text().removesuffix("\n# changed\n"))
    assert {name: settings(name) for name in names} == before


def test_other_processes_find_the_class(folder: Path) -> None:
    """A job runs the file again; a file that was changed since is not taken for it."""
    rich = parse_adapter("own/more.py:Rich:steps=7")
    made = pickle.dumps(Job("miniature", (), (rich,), stores_rows=False))
    code = (
        "import pickle, sys; from pathlib import Path\n"
        "made, file = sys.stdin.buffer.read(), Path(sys.argv[1])\n"
        "text = file.read_text(); file.write_text('x = 1')\n"
        "try: pickle.loads(made)\n"
        "except Exception as error: print(error)\n"
        "file.write_text(text); print(pickle.loads(made).adapters[0])"
    )
    command = [sys.executable, "-c", code, str(folder / "own" / "more.py")]
    done = subprocess.run(command, input=made, cwd="/", capture_output=True)
    refused, loaded = done.stdout.splitlines()
    assert b"was changed while it was in use: run the same command again" in refused
    assert loaded.startswith(b"Rich(number=2, steps=7, mode='mean'")
    assert sorted(p.name for p in folder.rglob("*")) == [
        "more.py",
        "own",
        "soft_vote.py",
    ]


@pytest.mark.usefixtures("folder")
def test_a_string_in_python_runs_no_file() -> None:
    clf = FairTPTClassifier(
        "miniature", ["water bird", "land bird"], adapter="tpt:steps=2"
    )
    assert clf.adapter == TPT(steps=2)
    assert clf.with_adapter("zero-shot").adapter == ZeroShot()
    with pytest.raises(FairTTAError, match="import the file and pass the object"):
        clf.with_adapter("tpt+soft_vote.py:Sharper")


def test_names_that_no_file_can_have() -> None:
    for text in (
        "a\0b.py:X",
        "a" * 5000 + ".py:X",
        "logit-balance:reference=" + "a" * 5000,
    ):
        with pytest.raises(FairTTAError, match="there is no file '"):
            parse_adapter(text)
