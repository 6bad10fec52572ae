"""Groups of options become options of commands."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from internals import is_on_command_line, reject_unused_options, with_shared_options
from typer.testing import CliRunner

import fair_tta.lab.cli


@dataclass(frozen=True, kw_only=True)
class Drink:
    drink: Annotated[str, typer.Option(help="What is in the cup.")]
    sugar: int = 0
    extras: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Tea(Drink):
    drink: Annotated[str, typer.Option(help="What is in the cup.")] = "tea"


def run(command: object, *arguments: str) -> tuple[int, str]:
    app = typer.Typer(rich_markup_mode=None)
    app.command()(command)  # type: ignore[type-var]
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


@with_shared_options
def serve(context: typer.Context, cup: str, *, order: Drink, hot: bool = False) -> None:
    reject_unused_options(
        context, {} if order.sugar else {"extras": "there is no sugar."}
    )
    typer.echo(f"{cup} {order.drink} {order.sugar} {order.extras} {hot}")
    typer.echo(f"{is_on_command_line(context, 'sugar')}")


@with_shared_options
def serve_tea(*, order: Tea) -> None:
    typer.echo(order.drink)


def test_a_group_becomes_options() -> None:
    text = "blue coffee 2 ['milk'] True\nTrue\n"
    options = ("--drink", "coffee", "--sugar", "2", "--extras", "milk", "--hot")
    assert run(serve, "blue", *options) == (0, text)
    assert run(serve, "blue", "--drink", "mate") == (0, "blue mate 0 [] False\nFalse\n")


def test_a_subclass_may_have_a_default() -> None:
    code, output = run(serve, "blue")
    assert (code, "Missing option '--drink'" in output) == (2, True)
    assert run(serve_tea) == (0, "tea\n")


def test_an_option_without_effect_is_refused() -> None:
    code, output = run(serve, "blue", "--drink", "mate", "--extras", "milk")
    assert (code, "Invalid value for --extras: there is no sugar." in output) == (
        2,
        True,
    )


def test_no_option_is_read_by_a_name_in_quotes() -> None:
    for path in Path(fair_tta.lab.cli.__file__).parent.glob("*.py"):
        assert not re.search(
            r"context\.params|context\.meta", path.read_text("utf-8")
        ), path
