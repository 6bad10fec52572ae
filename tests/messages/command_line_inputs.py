"""Commands that cannot be run, each in a folder with images, labels and predictions."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

from PIL import Image
from typer.testing import CliRunner

from fair_tta.lab.cli import app

DEFAULTS = {
    "predict": "pics --targets cat,dog",
    "examine": "pics --targets cat,dog --sensitive sea,land",
    "audit": "--images pics --labels labels.csv --target-column animal --sensitive-column place "
    "--out out",
    "compare": "before.csv after.csv --labels labels.csv --target-column animal "
    "--sensitive-column place",
    "fit": "--images pics --targets cat,dog --sensitive sea,land --out fitted",
}
"""Arguments that ``...`` stands for."""

COMMANDS = """
predict pics
predict pics --targets cat
predict pics --targets cat,dog,cat
predict pics --targets "cat=of a cat,dog=of a dog"
predict pics --targets cat= --targets dog
predict --targets cat,dog
predict ... --sensitive sea
predict ... --sensitive place:sea
predict ... --sensitive ":sea,land"
predict ... --template "a photo"
predict ... --template {}
predict ... --template "a {}" --sensitive sea,land
predict ... --template @none.txt
predict ... --adapter none
predict ... --adapter fair-ttp
predict ... --adapter tpt:roh=1
predict ... --adapter fair-tpt
predict ... --adapter tpt+orthcali
predict ... --adapter logit-balance
predict ... --adapter zero --reference pics
predict ... --adapter logit-balance --sensitive sea,land --reference none
predict ... --adapter logit-balance --sensitive sea,land --reference labels.csv
predict ... --adapter logit-balance --sensitive sea,land --reference empty
predict ... --reference-is-data
predict ... --json --csv
predict ... --restart
predict ... --null
predict ... --device none
predict ... --dtype int8
predict ... --text-features text.npz
predict ... --scale 1
predict ... --id-column id
predict ... --features features.npy
predict empty --targets cat,dog
predict --targets cat,dog --features features.npy --views 8
predict --targets cat,dog --features features.npy --adapter tpt
predict --targets cat,dog --features features.npy --text-features text.npz --model miniature
examine pics --targets cat,dog
examine ... --adapters none
examine ... --embed-images
examine ... --restart
audit ... --images none
audit ... --labels none.csv
audit ... --labels odd.csv
audit ... --target-column animals
audit ... --path-column none
audit ... --sensitive-column animal
audit ... --cluster-column none
audit ... --cluster-column place
audit ... --rename none
audit ... --rename none:a=b
audit ... --rename animal:7=b
audit ... --rename animal:cat=a --rename animal:cat=b
audit ... --targets cat,cow
audit ... --sensitive weather:sun,rain
audit ... --template "a {}"
audit ... --harmful "crime: "
audit ... --harmful "crime: thief,burglar=a burglar"
audit ... --adapters zero-shot,bend-vlm
audit ... --fail-if "wga <= 60"
audit ... --fail-if "wga < 600"
audit ... --fail-if "luck > 10"
audit ... --fail-if "wga < 6" --fail-on none
audit ... --fail-on zero-shot
audit ... --by-position
audit ... --out labels.csv
audit --images pics --sensitive-column place --out out --path-column file
audit --labels same.csv --images pics --target-column animal --sensitive-column place --out out
audit --features features.npy --sensitive-column place --out out
compare ... --labels none.csv
compare ... --target-column none
compare ... --answer-column none
compare ... --answer-column a --answer-column b --answer-column c
compare ... --labels other.csv
compare ... --fail-if "luck > 1"
compare ... --fail-if "wga < 1" --fail-on zero-shot
compare ... --rename place
mitigate pics --out out
mitigate pics --out out --labels labels.csv
mitigate none --out out --labels labels.csv --sensitive-column place
fit ... --adapter tpt
fit ... --adapter logit-balance --images none
fit ... --adapter logit-balance --out none/fitted
fit ... --adapter logit-balance --out pics
fit ... --adapter logit-balance --out labels.csv
fit --images pics --targets cat,dog --adapter logit-balance --out fitted
demo --out pics
demo --out none/demo.html
report labels.csv
report none.json
"""
TABLES = {
    "labels.csv": "file,animal,place\n0.png,cat,sea\n1.png,dog,land\n",
    "same.csv": "file,animal,place\n0.png,cat,sea\n1.png,cat,land\n",
    "odd.csv": "x,animal,place\na,cat,sea\nb,dog,land\n",
    "other.csv": "file,animal,place\n7.png,cat,sea\n8.png,dog,land\n",
    "before.csv": "image,label\n0.png,cat\n1.png,dog\n",
    "after.csv": "image,label\n0.png,dog\n1.png,dog\n",
}


def error_of(command: str) -> Callable[[Path], str]:
    """Return a case that runs a command and returns its exit code and error."""

    def case(folder: Path) -> str:
        (folder / "pics").mkdir()
        (folder / "empty").mkdir()
        for index in range(2):
            Image.new("RGB", (8, 8)).save(folder / "pics" / f"{index}.png")
        for name, text in TABLES.items():
            (folder / name).write_text(text)
        with chdir(folder):
            name = command.split()[0]
            arguments = shlex.split(command.replace("...", DEFAULTS.get(name, "")))
            result = CliRunner().invoke(app, arguments, env={"COLUMNS": "1000"})
        _, _, error = result.stderr.partition("Error: ")
        assert error, (command, result.output)
        return f"{result.exit_code}: {error}"

    return case


CASES = {f"fair-tta {line}": error_of(line) for line in COMMANDS.split("\n") if line}
