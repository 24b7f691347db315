"""Makes the mutants of a session and asks the server about each. Cosmic-ray's own Python runs this file.

    python -m tests.mutation.mutants SESSION MODULE SOCKET        in the mutated tree

An outcome is kept in the session as soon as it is known. What was killed is not run again; what survived is, since
there may be new tests.
"""

from __future__ import annotations

import difflib
import json
import sys
from multiprocessing.connection import Client
from pathlib import Path

from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkResult

from tests.mutation.choose import key


def run(session: str, module: str, socket: str) -> None:
    """Runs what is left of a session.

    Raises:
        SystemExit: The module's tests fail without a mutation.
    """
    pristine = Path(module).read_text(encoding="utf-8")
    with use_db(session) as database, Client(socket, family="AF_UNIX") as server:
        survived = {job for job, result in database.results if result.test_outcome == TestOutcome.SURVIVED}
        items = [*database.pending_work_items, *(item for item in database.work_items if item.job_id in survived)]
        items.sort(key=lambda item: key(item.mutations[0]))
        if not items:
            return
        server.send(module)
        if (failing := server.recv()) is not None:
            sys.exit(f"of the tests of {module} fails without a mutation: {failing}")
        for item in items:
            text = _mutate(pristine, item.mutations[0])
            if text is None:
                database.set_result(item.job_id, WorkResult(worker_outcome=WorkerOutcome.NO_TEST))
                continue
            server.send(text)
            noticed = server.recv()
            outcome = TestOutcome.KILLED if noticed else TestOutcome.SURVIVED
            lines = difflib.unified_diff(pristine.splitlines(), text.splitlines(), module, module, lineterm="")
            result = WorkResult(
                worker_outcome=WorkerOutcome.NORMAL,
                test_outcome=outcome,
                diff="\n".join(lines),
                output=json.dumps(noticed),
            )
            database.set_result(item.job_id, result)
            place = f"{module}:{item.mutations[0].start_pos[0]}"
            print(place, outcome.value, *(noticed or []), flush=True)


def _mutate(text: str, mutation: MutationSpec) -> str | None:
    operator = get_operator(mutation.operator_name)(**mutation.operator_args)
    mutant: str | None = mutate_code(text, operator, mutation.occurrence)
    return mutant


if __name__ == "__main__":
    run(*sys.argv[1:])
