"""Public threads, made again from their description, have the verdict that docs/same.md tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.threads import THREADS, found

VERDICTS = {
    "batches": ("rounding", "same bits"),  # by the processor's kernels
    "layouts": ("rounding", "same bits"),
    "gelus": ("not rounding",),
    "resized": ("not rounding",),
    "inverted": ("cannot say",),
}
SENTENCES = {
    "gelus": "It begins at `gelu` (gelu): approximate none in A, tanh in B.",
    "resized": "Resize with coordinate_transformation_mode=pytorch_half_pixel",
    "inverted": "Cannot say: rounding in the last bit already changes the outputs completely.",
}


@pytest.mark.parametrize("name", THREADS)
def test_a_thread_has_the_verdict_that_the_document_tells(name: str) -> None:
    verdict = found(name)
    assert verdict.verdict in VERDICTS[name]
    assert SENTENCES.get(name, "") in verdict.sentence


def test_the_document_names_every_thread() -> None:
    text = (Path(__file__).parents[3] / "docs" / "same.md").read_text(encoding="utf-8")
    assert [name for name, thread in THREADS.items() if thread.address not in text] == []
