"""Features that every command shares: JSON output, exit codes, options for opening a checkpoint."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from .options import OPENING, opening_of
from .outcome import Outcome, print_outcome
from .output import results_alone

Run = Callable[..., Outcome]
_JSON = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


class Command(TyperCommand):
    """A command that prints nothing but its result to standard output, even if the user's code prints more."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command."""
        with results_alone():
            return super().invoke(ctx)


def command(
    app: typer.Typer, panel: str, *, result: str | None = None, example: str | None = None
) -> Callable[[Run], Run]:
    """Registers a function as a command that prints the returned outcome and ends with its exit code.

    The command also has the option ``--json``, and the options ``OPENING`` in place of a parameter ``opening``.

    Args:
        app: The program.
        panel: Panel of the help that lists the command.
        result: The command that JSON names, if not this one.
        example: Arguments that work, for the help and after wrong usage.
    """

    def register(run: Run) -> Run:
        types = get_type_hints(run, include_extras=True, localns={"Opening": object})
        opens = "opening" in types

        def called(*, as_json: bool, **given: Any) -> None:
            if opens:
                given["opening"] = opening_of(**{name: given.pop(name) for name in OPENING})
            outcome = run(**given)
            print_outcome(result or run.__name__, outcome, as_json=as_json)
            if outcome.exit_code:
                raise typer.Exit(outcome.exit_code)

        options: dict[str, tuple[Any, Any]] = {}
        for name, parameter in inspect.signature(run).parameters.items():
            options |= OPENING if name == "opening" else {name: (types[name], parameter.default)}
        options["as_json"] = (_JSON, False)
        kind = inspect.Parameter.KEYWORD_ONLY
        called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, kind, annotation=a, default=d) for name, (a, d) in options.items()]
        )
        called.__annotations__ = {name: annotation for name, (annotation, _) in options.items()}
        epilog = example and f"Example: conv2attn {run.__name__} {example}"
        app.command(run.__name__, cls=Command, help=inspect.getdoc(run), epilog=epilog, rich_help_panel=panel)(called)
        return run

    return register
