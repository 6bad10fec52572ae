"""Groups of options become options of commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer
from internals import reject_ineffective_options, with_shared_options
from typer.testing import CliRunner


@dataclass(frozen=True, kw_only=True)
class Drink:
    drink: Annotated[str, typer.Option(help="What is in the cup.")]
    sugar: int = 0
    with_milk: bool = False
    extras: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.sugar:
            reject_ineffective_options("without sugar", with_milk=self.with_milk)


@dataclass(frozen=True, kw_only=True)
class Tea(Drink):
    drink: Annotated[str, typer.Option(help="What is in the cup.")] = "tea"


def run(command: object, *arguments: str) -> tuple[int, str]:
    app = typer.Typer(rich_markup_mode=None)
    app.command()(command)  # type: ignore[type-var]
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


@with_shared_options
def serve(cup: str, *, order: Drink, hot: bool = False) -> None:
    typer.echo(f"{cup} {order.drink} {order.sugar} {order.extras} {hot}")


@with_shared_options
def serve_tea(*, order: Tea) -> None:
    typer.echo(order.drink)


def test_a_group_becomes_options() -> None:
    options = ("--drink", "coffee", "--sugar", "2", "--extras", "milk", "--hot")
    assert run(serve, "blue", *options) == (0, "blue coffee 2 ['milk'] True\n")
    assert run(serve, "blue", "--drink", "mate") == (0, "blue mate 0 [] False\n")


def test_a_subclass_may_have_a_default() -> None:
    code, output = run(serve, "blue")
    assert (code, "Missing option '--drink'" in output) == (2, True)
    assert run(serve_tea) == (0, "tea\n")


def test_an_option_without_effect_is_refused() -> None:
    code, output = run(serve, "blue", "--drink", "mate", "--with-milk")
    assert code == 2
    assert "Invalid value for --with-milk: it has no effect without sugar." in output
