"""Records of other people's networks: do they compute the same bits, and what do they cost beside torch.export?

    python benchmarks/records.py [--count 60]

Needs timm, torchvision and transformers. Networks are drawn as ``zoo.py`` draws them; after these come language models
of transformers as they are called, with a cache among their outputs. Prints a line for each library.
"""

from __future__ import annotations

import importlib
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn
from zoo import built, declare_operators, drawn, inputs, taken

from conv2attn.convert.errors import ConversionError
from conv2attn.convert.inputs import named_tensors
from conv2attn.convert.programs.program import Program
from conv2attn.convert.programs.walk import module_of

CAUSAL = ("llama", "mistral", "qwen2", "gpt_neox", "gpt2", "opt", "bloom", "falcon", "phi", "mixtral", "mamba", "t5")
_SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}


@dataclass
class Tally:
    """What was seen of a library's networks."""

    networks: int = 0
    same: int = 0
    exported: int = 0
    read: int = 0
    seconds: list[float] = field(default_factory=list)
    export_seconds: list[float] = field(default_factory=list)
    named: list[float] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


def language_model(kind: str) -> tuple[nn.Module, dict[str, Tensor]]:
    """A small language model with random weights, and its inputs."""
    transformers: Any = importlib.import_module("transformers")
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind)
    for name, value in ({"num_layers": 2} if kind == "t5" else _SMALL).items():
        if hasattr(config, name):
            setattr(config, name, value)
    door = transformers.AutoModelForSeq2SeqLM if kind == "t5" else transformers.AutoModelForCausalLM
    ids = torch.randint(5, 100, (1, 12))
    return door.from_config(config).eval(), {"input_ids": ids} | ({"decoder_input_ids": ids} if kind == "t5" else {})


def networks(count: int) -> Iterator[tuple[str, str, Callable[[], tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]]]:
    """Library, name and what builds a network with its arguments."""
    for index in range(count):
        family, members = drawn(index, 1)

        def build(library: str = family.library, members: list[str] = members) -> Any:
            name = taken(library, members)
            network = built(library, name)
            return network, (inputs(library, name, network),), {}

        yield family.library, family.name, build
    for kind in CAUSAL:

        def speak(kind: str = kind) -> Any:
            network, named = language_model(kind)
            return network, (), named

        yield "language models", kind, speak


@torch.no_grad()
def look(network: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], tally: Tally) -> bool:
    """Records a network and compares bits; whether they are the same."""
    expected = named_tensors(network(*args, **kwargs))
    start = time.process_time()
    program = Program.of_run(network, args, kwargs)
    tally.seconds.append(time.process_time() - start)
    found = program.replayed(args, kwargs)
    tally.read += bool(program.reads)
    tally.named.append(sum(bool(module_of(node)) for node in program.nodes) / max(1, len(program.nodes)))
    start = time.process_time()
    try:
        torch.export.export(network, args, kwargs, strict=False).run_decompositions({})
        tally.exported += 1
        tally.export_seconds.append(time.process_time() - start)
    except Exception:  # whatever the exporter raises
        tally.export_seconds.append(time.process_time() - start)
    return found.keys() == expected.keys() and all(
        torch.equal(one.nan_to_num(), found[name].nan_to_num()) for name, one in expected.items()
    )


def main(count: Annotated[int, typer.Option(help="Networks that are drawn.")] = 60) -> None:
    """Prints what was seen."""
    declare_operators()
    torch.set_num_threads(1)
    tallies: dict[str, Tally] = {}
    for library, name, build in networks(count):
        tally = tallies.setdefault(library, Tally())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                network, args, kwargs = build()
            except Exception as error:  # other people's code: it is left out, and named
                tally.others.append(f"{name} cannot be built: {type(error).__name__}")
                continue
            tally.networks += 1
            try:
                is_same = look(network, args, kwargs, tally)
            except (ConversionError, RuntimeError) as refusal:  # or the network itself does not run
                tally.others.append(f"{name}: {refusal}")
                continue
        tally.same += is_same
        if not is_same:
            tally.others.append(f"{name}: other bits")
    print(f"torch {torch.__version__}, one thread, load {os.getloadavg()[0]:.1f}")
    print("| | networks | same bits | read values | named | seconds | torch.export: accepts | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for library, tally in tallies.items():
        named = sum(tally.named) / max(1, len(tally.named))
        print(
            f"| {library} | {tally.networks} | {tally.same} | {tally.read} | {named:.0%} | {sum(tally.seconds):.0f} | "
            f"{tally.exported} | {sum(tally.export_seconds):.0f} |"
        )
    print("\n".join(f"- {one}" for tally in tallies.values() for one in tally.others))


if __name__ == "__main__":
    typer.run(main)
