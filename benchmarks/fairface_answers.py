"""What real CLIPs answered on the FairFace validation images, audited by race, age and gender.

    python benchmarks/fairface_answers.py --data DIR              prints the tables
    python benchmarks/fairface_answers.py --data DIR --results    and writes them to
                                                                  benchmarks/results/fairface*

DIR has the four CSV files of `ANSWERS`, from the repositories named there, each with the columns
file, age, gender, race and gender_preds or race_preds. No model is needed and none is loaded:
`fair_tta.audit` and `fair_tta.compare` take answers. A few seconds.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from result_files import (
    PAGE,
    RESULTS,
    change,
    level,
    table,
    write_blocks,
    write_results,
)

from fair_tta import audit, compare
from fair_tta.auditing import Audit
from fair_tta.errors import SmallGroupWarning
from fair_tta.metrics import Estimate

AGES = (
    "0-2",
    "3-9",
    "10-19",
    "20-29",
    "30-39",
    "40-49",
    "50-59",
    "60-69",
    "more than 70",
)
METRICS = {  # 1 where more is better
    "accuracy": ("accuracy", 1),
    "worst_group_accuracy": ("WGA", 1),
    "typical_gap": ("typical gap", -1),
    "equalized_odds_difference": ("EOD", -1),
}
LOWEST = 5  # cells of the table of race by age
INTRODUCTION = """# What three CLIPs answered on FairFace

`python benchmarks/fairface_answers.py --data DIR --results` writes this file and `fairface/`.
10,954 validation images; percent, brackets are 95 % intervals; bold is shown to be better,
"(worse)" to be worse. No model was run. Labels: FairFace (Kärkkäinen and Joo 2021), CC BY 4.0. What
it says: docs/real-clip.md."""


class Answers(NamedTuple):
    """A file of answers: what was asked, of which model, with which prompts."""

    file: str
    question: str
    model: str
    prompts: str
    source: str

    @property
    def attributes(self) -> tuple[str, ...]:
        """What the answers are audited by."""
        return ("race", "age") if self.question == "gender" else ("gender", "age")


ANSWERS = (
    Answers("aggregation_ViT-B-16_openai.csv", "gender", "ViT-B/16 OpenAI",
            "mean of 22 sentences that name ages and races",
            "vlms_bias_explore @d7bd519 (no licence)"),
    Answers("raw_gender_ViT-L-14_laion2b_val.csv", "gender", "ViT-L/14 LAION-2B",
            '"a photo of a man", "a photo of a woman"', "clip-face-attribs @33f9abf (MIT)"),
    Answers("vitb16-openai-RP.csv", "race", "ViT-B/16 OpenAI",
            "race alone (RP)", "clip-face-attribs @33f9abf (MIT)"),
    Answers("argp_race_ViT-H-14_laion2b_val.csv", "race", "ViT-H/14 LAION-2B",
            "age, race and gender (ARGP)", "clip-face-attribs @33f9abf (MIT)"),
)  # fmt: skip
"""In pairs: the second of a question is compared with the first."""


def read_rows(path: Path, answers: Answers) -> dict[str, dict[str, str]]:
    """Rows by file name."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    needed = {"file", "age", "gender", "race", f"{answers.question}_preds"}
    if not rows or not needed <= set(rows[0]):
        raise SystemExit(
            f"{path}: a CSV file with the columns {', '.join(sorted(needed))} is due."
        )
    return {row["file"]: row for row in rows}


def audits_of(data: Path) -> dict[str, dict[str, list[Audit]]]:
    """Audits by question and attribute, in the order of `ANSWERS`."""
    audits: dict[str, dict[str, list[Audit]]] = {}
    order: list[str] = []
    for answer_set in ANSWERS:
        rows = read_rows(data / answer_set.file, answer_set)
        order = order or list(rows)
        if set(order) != set(rows):
            raise SystemExit(
                f"{answer_set.file}: other images than in {ANSWERS[0].file}."
            )
        question = answer_set.question
        truth = [rows[name][question] for name in order]
        answers = [rows[name][f"{question}_preds"] for name in order]
        for attribute in answer_set.attributes:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SmallGroupWarning)
                new_audit = audit(
                    truth,
                    answers,
                    {attribute: [rows[name][attribute] for name in order]},
                    name=answer_set.model,
                    values={"age": AGES} if attribute == "age" else None,
                )
            audits.setdefault(answer_set.question, {}).setdefault(attribute, []).append(
                new_audit
            )
    return audits


def figures(audits: dict[str, dict[str, list[Audit]]]) -> str:
    """Every set of answers by every attribute."""
    rows = []
    for question, by in audits.items():
        answer_sets = [
            answer_set for answer_set in ANSWERS if answer_set.question == question
        ]
        for index, answer_set in enumerate(answer_sets):
            for attribute, made in by.items():
                this = made[index]
                worst = this.document.runs[0].worst_group.target_and_sensitive
                assert worst is not None
                name = f"{worst.target}, {next(iter(worst.sensitive.values()))}"
                cells = [level(this.estimate(metric)) for metric in METRICS]
                cells[1] += f": {name}"
                rows.append([question, answer_set.model, attribute, *cells])
    return table(
        ["asked", "model", "by", *(title for title, _ in METRICS.values())], rows
    )


def sources(audits: dict[str, dict[str, list[Audit]]]) -> str:
    """Where the answers come from, and n."""
    n = {
        question: next(iter(by.values()))[0].document.data.n
        for question, by in audits.items()
    }
    rows = [
        [
            one.question,
            one.model,
            one.prompts,
            f"{n[one.question]:,}",
            f"groovy-lizard/{one.source}",
        ]
        for one in ANSWERS
    ]
    return table(["asked", "model", "prompts", "n", "answers from"], rows)


def changes(audits: dict[str, dict[str, list[Audit]]]) -> str:
    """The second model of a question against the first, paired."""
    rows = []
    for question, by in audits.items():
        for attribute, made in by.items():
            both = compare(made)
            before, after = both.runs
            cells = [
                change(both.difference(metric, after), better)
                for metric, (_, better) in METRICS.items()
            ]
            rows.append([f"{question}, by {attribute}", f"{before} to {after}", *cells])
    return table(["asked", "models", *(title for title, _ in METRICS.values())], rows)


def cells_of(one: Audit) -> dict[tuple[str, str], Estimate]:
    """The share of right answers of each class in each group."""
    return {
        (cell.target, next(iter(group.sensitive.values()))): cell.true_positive_rate
        for group in one.document.runs[0].groups
        for cell in group.classes
    }


def groups(audits: Sequence[Audit]) -> str:
    """A row for each class in each group, a column for each model."""
    cells_by_audit = [cells_of(measured) for measured in audits]
    rows = [
        [
            *cell,
            f"{cells_by_audit[0][cell].n:,}",
            *(level(cells[cell]) for cells in cells_by_audit),
        ]
        for cell in cells_by_audit[0]
    ]
    rows.sort(key=lambda row: row[0])
    return table(
        ["true", "group", "n", *(measured.runs[0] for measured in audits)], rows
    )


def lowest(audits: Sequence[Audit]) -> str:
    """The cells of each model with the lowest accuracy, of those with 30 images or more."""
    rows = []
    for measured in audits:
        cells = [
            (cell, rate) for cell, rate in cells_of(measured).items() if rate.n >= 30
        ]
        for (target, group), rate in sorted(cells, key=lambda cell: float(cell[1]))[
            :LOWEST
        ]:
            rows.append([measured.runs[0], target, group, f"{rate.n:,}", level(rate)])
    return table(["model", "true", "group", "n", "accuracy"], rows)


def blocks_of(audits: dict[str, dict[str, list[Audit]]]) -> Iterator[tuple[str, str]]:
    """Tables by the name of their block."""
    yield "sources", sources(audits)
    yield "figures", figures(audits)
    yield "changes", changes(audits)
    for question, by in audits.items():
        for attribute, question_audits in by.items():
            name = f"{question}-by-{attribute}"
            yield (
                name,
                lowest(question_audits)
                if name == "race-by-age"
                else groups(question_audits),
            )


def main() -> None:
    """Read, audit, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--data", type=Path, required=True, help="folder of the four CSV files"
    )
    parser.add_argument(
        "--results",
        type=Path,
        nargs="?",
        const=RESULTS,
        help="write the tables to this folder too",
    )
    options = parser.parse_args()
    blocks = dict(blocks_of(audits_of(options.data)))
    for name, text in blocks.items():
        print(f"## {name}\n\n{text}\n")
    if options.results:
        write_results("fairface", INTRODUCTION, blocks, options.results)
    if options.results == RESULTS:
        write_blocks("fairface", blocks, PAGE)


if __name__ == "__main__":
    main()
