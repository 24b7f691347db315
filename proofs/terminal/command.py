"""What every command of the program has in common."""

from __future__ import annotations

import os
from typing import Any

from typer.core import TyperCommand

from .output import results_alone


class Command(TyperCommand):
    """A command whose result is all that it prints to standard output, whatever the user's code prints."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command, with its options read and its help, if that is asked for, printed already.

        Raises:
            OSError: The folder that it runs in was deleted; PyTorch's library for matrices ends the process there.
        """
        try:
            os.getcwd()
        except OSError as error:
            raise OSError(error.errno, error.strerror, "the current folder") from error
        with results_alone():
            return super().invoke(ctx)
