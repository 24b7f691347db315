"""A side of a comparison: anything that can be called, its graph where it has one, and fair play.

nn.Module               torch runs it; its graph is that of torch.export
compiled module         it runs as compiled; its graph is that of the module that was compiled, which may say the truth
ExportedProgram         its own graph
path                    the network that ``open_network`` opens; ONNX files run in ONNX Runtime; recorded values
callable                a black box

Both sides run twice on clones of the same inputs. A side that gives two results, or changes, cannot be judged. One in
train mode is refused where a module's own code reads its mode, as dropout's does and a convolution's does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from ..errors import ConversionError, InputError, OptionError, first_line, listed, refusing
from ..files.open import open_network
from ..files.opening import Opening
from ..files.readers import kind_of
from ..inputs import bitwise, named_tensors, same_values
from ..layer.checked import passed
from ..onnx import onnx_package
from ..onnx.run import session
from ..programs.program import Program, Taken, left_alone
from .callables import checked_record, networks_of, tensors_of_networks
from .dequantised import dequantised, described, stored_in_few_bits
from .given import Inputs
from .modes import depends_on_mode
from .recorded import Read, Recorded, is_recorded, kept_results
from .serving import PIECES

ONNX = ".onnx"
_QUANTISED_NODES = ("QuantizeLinear", "DequantizeLinear", "QLinear", "ConvInteger", "MatMulInteger")
_QUANTISED_MODULES = "quantized"  # in the name of torch's modules of quantised layers


@dataclass(frozen=True)
class Played:
    """Two runs of a side.

    Attributes:
        outputs: Tensors of the first, by name.
        spread: The largest difference between the two, or None where they are equal bit for bit.
        changed: Names of the side's own tensors that each run changes.
        settled: Names of those that the first run changed, and the second left.
        writes: Whether it writes to its inputs.
    """

    outputs: Mapping[str, Tensor]
    spread: float | None
    changed: tuple[str, ...]
    settled: tuple[str, ...]
    writes: bool


def _counted(names: Sequence[str]) -> str:
    return f"{len(names)} inputs ({', '.join(names)})"


class OnnxCall:
    """A call of an ONNX file by ONNX Runtime.

    Raises:
        ConversionError: It cannot be run.
    """

    def __init__(self, path: Path) -> None:
        with refusing(f"ONNX Runtime cannot run {path}"):
            self._runtime = session(path)
        self.path = path

    def feeds(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
        """Inputs by the names of the file; one alone, whatever the other side calls it.

        Raises:
            InputError: There are more or fewer than it takes, or several under other names.
        """
        names = [port.name for port in self._runtime.get_inputs()]
        if len(args) + len(kwargs) != len(names):
            raise InputError(
                f"{self.path} takes {len(names)} inputs ({', '.join(names)}); got {len(args) + len(kwargs)}"
            )
        if len(names) == 1:
            return dict(zip(names, [*args, *kwargs.values()], strict=True))
        if not kwargs.keys() <= set(names):
            raise InputError(f"{self.path} calls its inputs {', '.join(names)}; got {', '.join(kwargs)}")
        free = [name for name in names if name not in kwargs]
        return {**dict(zip(free, args, strict=False)), **kwargs}

    def __call__(self, *args: Tensor, **kwargs: Tensor) -> dict[str, Tensor]:
        """The outputs, by name."""
        feeds = {name: one.cpu().numpy() for name, one in self.feeds(args, kwargs).items()}
        names = [port.name for port in self._runtime.get_outputs()]
        found = zip(names, self._runtime.run(None, feeds), strict=True)
        return {name: torch.from_numpy(one) for name, one in found if hasattr(one, "dtype")}


class Side:
    """A side of a comparison.

    Args:
        given: A network, a program, a callable, or the path of one.
        name: "A" or "B", for what is said of it.
        opening: Options for opening a path.
        program: Its graph, where it is known; of the outputs that ``taken`` takes.

    Attributes:
        call: Runs it.
        network: What has a graph: a module, a program or a callable, or None.
        networks: The modules that run.
        is_own: Whether what runs is what the graph says, operation by operation; a compiled module's is not, nor a
            model's that runs in other pieces.
        in_pieces: Whether it runs a model in other pieces, and gives some of its outputs.
        taken: Takes the parts of outputs that are compared.
        only: The names of those that are compared, or None for all.
        stored: Sentence on weights in few bits, or "".

    Raises:
        OptionError: It is nothing of these.
        ConversionError: The path cannot be opened.
    """

    def __init__(
        self, given: Any, name: str, opening: Opening | None = None, *, program: Program | None = None
    ) -> None:
        self.name, self.is_own = name, True
        self.network: Callable[..., Any] | ExportedProgram | None = None
        self.networks: list[nn.Module] = []
        self.call: Callable[..., Any]
        self.reason = f"{name} is a callable without a graph"
        self.quantised = False
        self.recorded: Recorded | None = None
        self.in_pieces = bool(getattr(given, PIECES, False))
        self.taken: Taken = dict
        self.only: Collection[str] | None = None
        self._program, self.notes, self.stored = program, list[str](), ""
        self._observed: nn.Module | None = None
        if isinstance(given, str | Path):
            given = self._opened(Path(given), opening)
        if isinstance(given, ExportedProgram):
            self.network, self.call = given, given.module()
            self.networks = [self.call]
        elif isinstance(given, nn.Module):
            self._take(given)
        elif isinstance(given, OnnxCall):
            self.call = given
        elif isinstance(given, Recorded):
            self.recorded, self.call = given, given.all_outputs
            self.reason = f"{name} is recorded values"
        elif callable(given) and not isinstance(given, type):
            self.network, self.call, self.networks = given, given, networks_of(given)
            if self.in_pieces:
                self.network, self.is_own, self.reason = None, False, f"{name} runs the model in other pieces"
        else:
            raise OptionError(f"{name} must be a network, a program, a callable or a path; got {passed(given)}")

    def _take(self, given: nn.Module) -> None:
        own = getattr(given, "_orig_mod", None)
        self.network, self.call = given if own is None else own, given
        self.networks = [given if own is None else own]
        self.is_own = own is None
        stored = stored_in_few_bits(self.networks[0])
        if stored:
            self._stand_for(self.networks[0], stored)
        self.quantised = any(_QUANTISED_MODULES in type(module).__module__ for module in given.modules())

    def _stand_for(self, given: nn.Module, stored: dict[str, str]) -> None:
        """Takes the dequantised weights for the graph, and the network as it is for what runs."""
        self.is_own, self._observed = False, given
        self.reason = f"{self.name} computes with weights in few bits"
        self.network = dequantised(given, stored)
        self.networks = [self.network]
        self.stored = f"{self.name} holds {described(stored)}; what is said of it is beside its dequantised weights."

    def _opened(self, path: Path, opening: Opening | None) -> Any:
        if is_recorded(path):
            return Recorded.open(path)
        if path.suffix == ONNX:
            kind_of(path)  # which says of a file that is not there what files have close names
            self.reason = f"{self.name} is an ONNX file, which ONNX Runtime runs"
            self.quantised = _is_quantised(path)
            return OnnxCall(path)
        return open_network(path, opening).whole().as_saved().eval()

    def graph(self, inputs: Inputs, played: Played) -> Program | None:
        """Its program for these inputs, or None, with the reason in ``reason``.

        Args:
            inputs: The inputs.
            played: Its runs on them.
        """
        if self.network is None or self.quantised:
            if self.quantised:
                self.reason = f"{self.name} is quantised"
            return None
        if self._program is None:
            given = inputs.clone(self.dtype)
            try:
                self._program = self._recorded(given, played)
                self.quantised = self._program.reads_quantised
                self.notes = [*_notes(self.name, self._program, given, played)] if self.is_own else []
            except ConversionError as refusal:
                what = "has no graph" if self.is_network else "is a callable without a graph"
                self.reason, self.network = f"{self.name} {what}: {refusal}", None
        return self._program

    @property
    def is_network(self) -> bool:
        """Whether what has a graph is a network, not a callable that torch recorded."""
        return isinstance(self.network, nn.Module | ExportedProgram)

    @property
    def has_own_operations(self) -> bool:
        """Whether its graph has its operations, one by one; with weights in few bits, those on the dequantised ones."""
        return self.is_own or bool(self.stored)

    def read_file(self, inputs: Inputs, played: Played) -> Program | None:
        """The program of an ONNX file, each node by its row as one of torch's operations, or None.

        Args:
            inputs: The inputs.
            played: Its runs on them, by ONNX Runtime.
        """
        if not isinstance(self.call, OnnxCall) or self.quantised:
            return None
        from ..onnx.as_torch import OnnxNetwork  # imports the package onnx, which is optional

        try:
            feeds = self.call.feeds(inputs.args, inputs.kwargs)
            self.network = OnnxNetwork(self.call.path)
            with torch.no_grad():
                self.network(**feeds)  # whose refusal names the node
            found = Program.of_run(self.network, inputs.args, inputs.kwargs, taken=self._compared)
            self._program = checked_record(found, inputs.args, inputs.kwargs, played.outputs, is_network=True)
        except (ConversionError, RuntimeError, IndexError) as refusal:
            self.reason, self.network = f"{self.name} is an ONNX file, and {first_line(refusal)}", None
        return self._program

    def _recorded(self, given: Inputs, played: Played) -> Program:
        """The operations of a run.

        Raises:
            ConversionError: torch cannot record it, or the record may not stand for it.
        """
        with left_alone(self.own_tensors(), []):
            found = Program.of_run(self.network, given.args, given.kwargs, taken=self._compared)  # type: ignore[arg-type]
        return checked_record(found, given.args, given.kwargs, played.outputs, is_network=self.is_network)

    def own_tensors(self) -> dict[str, Tensor]:
        """The tensors of what runs, by name."""
        return tensors_of_networks(self.networks)

    @property
    def dtype(self) -> torch.dtype | None:
        """The floating type of most of its parameters, or None where it has none."""
        counted: Counter[torch.dtype] = Counter()
        for network in self.networks:
            for one in network.state_dict().values():
                if isinstance(one, Tensor) and one.is_floating_point():
                    counted[one.dtype] += one.numel()
        return counted.most_common(1)[0][0] if counted else None

    def play(self, inputs: Inputs) -> Played:
        """Runs it twice.

        Args:
            inputs: Floating-point tensors follow the dtype of its parameters.

        Raises:
            OptionError: It is in train mode, and that changes an output.
            InputError: It does not run on them.
            ConversionError: It gives no tensor.
        """
        if self.recorded is not None:
            return Played(self._compared(self.recorded.all_outputs()), None, (), (), writes=False)
        given, own = inputs.clone(self.dtype), self.own_tensors()
        self._refuse_train_mode(given, own)
        first, changed = given.clone(), list[str]()
        with torch.random.fork_rng(devices=[]), left_alone(own, changed) as before:
            outputs = self.run(first)
            after = {name: one.detach().clone() for name, one in own.items() if not same_values(one, before[name])}
            again = self.run(given.clone())
            settled = [name for name, one in after.items() if same_values(own[name], one)]
        writes = not all(bitwise(a, b) for a, b in zip(first.tensors, given.tensors, strict=True))
        moving = tuple(name for name in changed if name not in settled)
        return Played(outputs, _spread(outputs, again), moving, tuple(settled), writes)

    def _refuse_train_mode(self, given: Inputs, own: Mapping[str, Tensor]) -> None:
        call = self.call if self.is_own else self.network
        found = depends_on_mode(self.networks, own, lambda: self.run(given.clone(), call))
        if found is not None:
            path, module = found
            where = f"`{path}` ({type(module).__name__})" if path else "the network itself"
            raise OptionError(f"{self.name} is in train mode, which {where} depends on: set that to eval mode first")

    def values(self, inputs: Inputs) -> dict[str, Read]:
        """What reads the results of its modules, or the values that are recorded, by name; none of another callable."""
        if self.recorded is not None:
            return dict(self.recorded.values)
        seen = self._observed or (self.networks[0] if len(self.networks) == 1 and self.is_own else None)
        if seen is None:
            return {}
        names = [name for name, _ in seen.named_modules() if name]
        with kept_results(seen, names) as kept, torch.random.fork_rng(devices=[]):
            self.run(inputs.clone(self.dtype))
        return {name: partial(_same, one) for name, one in kept.items()}

    def has_modules(self, names: Collection[str]) -> bool:
        """Whether a single network runs, as it is written, which has modules of these names."""
        return (
            len(self.networks) == 1 and self.is_own and set(names) <= {n for n, _ in self.networks[0].named_modules()}
        )

    @contextmanager
    def shifted(self, shifts: Mapping[str, Tensor]) -> Iterator[None]:
        """Adds numbers to the results of modules while it runs.

        Raises:
            ConversionError: A module did not run, or gives a result of another shape.
        """
        left = set(shifts)

        def shifting(name: str) -> Callable[..., Tensor]:
            def hook(module: nn.Module, args: Any, output: Any) -> Tensor:
                if not isinstance(output, Tensor) or output.shape != shifts[name].shape or name not in left:
                    raise ConversionError(f"{self.name} gives other results at `{name}`")
                left.discard(name)
                return output + shifts[name].to(output)

            return hook

        handles = [self.networks[0].get_submodule(name).register_forward_hook(shifting(name)) for name in shifts]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
        if left:
            raise ConversionError(f"{self.name} does not run {listed(sorted(left))}")

    def run(self, given: Inputs, call: Callable[..., Any] | None = None) -> dict[str, Tensor]:
        """Its outputs, by name."""
        with torch.no_grad(), refusing(f"{self.name} does not run on these inputs", InputError):
            found = (call or self.call)(*given.args, **given.kwargs)
        return {name: one.detach().clone() for name, one in self._compared(named_tensors(found, self.name)).items()}

    def keep(self, played: Played, names: Collection[str]) -> Played:
        """Its runs with these outputs alone, which its program then has, too."""
        self.only, self._program = names, None
        return replace(played, outputs={name: played.outputs[name] for name in names})

    def _compared(self, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        chosen = {name: one for name, one in outputs.items() if self.only is None or name in self.only}
        return self.taken(chosen)


def _gave(found: Mapping[str, Tensor], played: Played) -> bool:
    """Whether these are the outputs of a run, bit for bit."""
    return all(bitwise(one, played.outputs.get(name)) for name, one in found.items())


def _notes(name: str, program: Program, given: Inputs, played: Played) -> Iterator[str]:
    """Sentences on a side that its record does not say."""
    if program.reads:
        yield f"{name} reads values ({listed(program.reads)}): what is said of it is of these inputs."
    if not (_gave(program.results, played) or _gave(program.replayed(given.args, given.kwargs), played)):
        yield f"{name}'s operations one by one give other last digits than its run, which torch fuses."


def _is_quantised(path: Path) -> bool:
    nodes = onnx_package("reading ONNX files").load(str(path), load_external_data=False).graph.node
    return any(kind in node.op_type for node in nodes for kind in _QUANTISED_NODES)


def _same(value: Tensor) -> Tensor:
    return value


def _spread(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float | None:
    """The largest difference between two runs, or None where there is none."""
    if one.keys() != other.keys():
        return float("inf")
    apart = [(a, other[name]) for name, a in one.items() if not bitwise(a, other[name])]
    if not apart:
        return None
    return max(float((a.double() - b.double()).abs().max()) if a.shape == b.shape else float("inf") for a, b in apart)
