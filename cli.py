"""The command line: parses, calls the library, prints. Torch is imported inside the commands."""

from __future__ import annotations

import atexit
import gc
import math
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from .proofs.show.terminal.output import explain, print_table, progress, say, say_document, take_any_text

if TYPE_CHECKING:
    from .convert.files.architecture import Architecture
    from .convert.files.certified import CertifiedReport
    from .convert.spec import Size
    from .proofs.benchmark.run import Benchmark
    from .proofs.evidence.agreement import Agreement
    from .proofs.evidence.campaign.counterexample import Counterexample
    from .proofs.evidence.campaign.result import Campaign
    from .proofs.evidence.campaign.settings import Settings
    from .proofs.evidence.network import NetworkCheck, Pair
    from .proofs.prover.runner import Result
    from .proofs.show.demo import DemoResult

JSON_VERSION = 1
TERMINATED = 128 + signal.SIGTERM

app = typer.Typer(
    name="conv2attn",
    help="Turns trained convolutions into multi-head self-attention that computes the same function.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_debug = False


class Dtype(StrEnum):
    """Precisions that a model can be converted in."""

    float64 = "float64"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class Picture(StrEnum):
    """Pictures of a converted network."""

    maps = "maps"
    contours = "contours"
    error = "error"
    kernel = "kernel"


class ProofFormat(StrEnum):
    """Forms of the document that holds the proofs."""

    text = "text"
    markdown = "markdown"
    latex = "latex"
    json = "json"


def _positive(value: float | None) -> float | None:
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise typer.BadParameter(f"must be positive and finite; got {value}")
    return value


CheckpointArgument = Annotated[
    Path,
    typer.Argument(
        metavar="CHECKPOINT",
        help="A file of PyTorch's, safetensors, .pt2 or ONNX, a Hugging Face folder, or what convert wrote.",
    ),
]
ArchOption = Annotated[
    str | None,
    typer.Option(
        "--arch",
        metavar="SPEC",
        help="package.module:factory, path/to/file.py:factory or timm:NAME. Runs that code. Not needed where the "
        "checkpoint describes its convolutions: .pt2, ONNX, whole pickled modules.",
    ),
]
ArchArgOption = Annotated[
    list[str] | None, typer.Option("--arch-arg", metavar="NAME=JSON", help="Argument of the factory; repeatable.")
]
AlphaOption = Annotated[
    float | None,
    typer.Option(callback=_positive, help="Locality strength; by default so large that attention is exactly one-hot."),
]
IncludeOption = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help='Layer name, glob, or "re:" and a regular expression.')
]
ExcludeOption = Annotated[list[str] | None, typer.Option(metavar="PATTERN", help="Leave these layers alone.")]
EmaOption = Annotated[bool, typer.Option("--ema", help="Take the moving average of the weights.")]
DeviceOption = Annotated[str, typer.Option(help="Where to convert: cpu, cuda, ...")]
DtypeOption = Annotated[Dtype | None, typer.Option(help="Precision to convert in; by default the architecture's.")]
SkipOption = Annotated[
    bool, typer.Option("--skip-unsupported", help="Leave layers that cannot be converted as they are.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(f"conv2attn {version('conv2attn')}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True)] = False,
) -> None:
    global _debug
    _debug = debug
    import numpy  # noqa: F401  before torch, which swallows a Ctrl-C that comes while it imports numpy itself


@app.command()
def convert(
    checkpoint: CheckpointArgument,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write.")],
    arch: ArchOption = None,
    arch_arg: ArchArgOption = None,
    alpha: AlphaOption = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    ema: EmaOption = False,
    device: DeviceOption = "cpu",
    dtype: DtypeOption = None,
    skip_unsupported: SkipOption = False,
    input_range: Annotated[
        str, typer.Option(metavar="LOW,HIGH", help="Values of the images that bounds are for.")
    ] = "-1,1",
    size: Annotated[
        str, typer.Option(metavar="ROWSxCOLUMNS", help="Image size that the whole network's bound is for.")
    ] = "224x224",
    force: Annotated[bool, typer.Option("--force", help="Replace a folder that conv2attn wrote.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Convert the checkpoint of a CNN to self-attention."""
    from .convert.files.certified import CertifiedReport
    from .convert.files.checkpoint import size_on_disk
    from .convert.files.network import open_network
    from .convert.files.save import save_converted
    from .convert.files.writing.atomic import check_target
    from .convert.files.writing.ownership import PAGE
    from .convert.model.convert import convert_model
    from .convert.model.selection import name_filter
    from .proofs.show.page.write import QUICK, make_page

    images = _range(input_range), _size(size)
    check_target(out, force=force, sources=[checkpoint])
    with (
        progress("Reading", total=size_on_disk(checkpoint)) as advance,
        redirect_stdout(sys.stderr),  # what the architecture's code prints is not the result
    ):
        network = open_network(
            checkpoint,
            architecture=_architecture(arch, arch_arg),
            ema=ema,
            device=device,
            dtype=_torch_dtype(dtype),
            progress=advance,
        )
    _warn_non_finite(network.non_finite)
    cnn = network.cnn()
    model, report = convert_model(
        cnn,
        filter_fn=name_filter(cnn, include=include or (), exclude=exclude or ()),
        alpha=alpha,
        inplace=True,
        skip_unsupported=skip_unsupported,
    )
    report, (values, image_size) = report.noted(network.notes), images
    with progress("Certifying", total=len(report.layers)) as advance:
        certified = CertifiedReport.of(model, report, input_range=values, size=image_size, progress=advance)
    with redirect_stdout(sys.stderr):
        page, left_out = make_page(model, report, title=checkpoint.name, limit=QUICK)
    certified = certified.noted(left_out)
    source = network.checkpoint
    with progress("Writing", total=None):
        save_converted(
            model, out, report=certified, architecture=network.architecture, source=source, page=page, force=force
        )
    if as_json:
        _print_json("convert", {"folder": str(out), "page": str(out / PAGE), "report": certified.to_json()})
    else:
        _print_report(certified)
        say(f"Wrote {out}; open {out / PAGE} to look at it")


@app.command()
def plan(
    checkpoint: CheckpointArgument,
    arch: ArchOption = None,
    arch_arg: ArchArgOption = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    ema: EmaOption = False,
    size: Annotated[str, typer.Option(metavar="ROWSxCOLUMNS", help="Image size that the memory is for.")] = "224x224",
    as_json: JsonOption = False,
) -> None:
    """Show what convert would do, and write nothing."""
    from .convert.files.network import open_network
    from .convert.model.convert import plan_conversion
    from .convert.model.plan import plan_layers
    from .convert.model.selection import name_filter
    from .proofs.show.tables import plan_table

    image_size = _size(size)
    with redirect_stdout(sys.stderr):  # what the architecture's code prints is not the result
        network = open_network(checkpoint, architecture=_architecture(arch, arch_arg), ema=ema)
        _warn_non_finite(network.non_finite)
        cnn = network.cnn()
        chosen = name_filter(cnn, include=include or (), exclude=exclude or ())
        found = plan_conversion(cnn, filter_fn=chosen)
        layers = plan_layers(cnn, [names[0] for names in found.chosen], size=image_size, notes=network.notes)
    if as_json:
        unsupported, skipped = ([vars(problem) for problem in part] for part in (found.unsupported, found.skipped))
        data = {"size": list(image_size), "layers": [layer.to_json() for layer in layers]}
        _print_json("plan", data | {"unsupported": unsupported, "skipped": skipped})
        return
    if not layers:
        say("Nothing would be converted.")
    print_table(*plan_table(layers, image_size))
    _print_notes([(layer.name, layer.note) for layer in layers])
    _print_problems("cannot be converted", found.unsupported)
    _print_problems("left alone", found.skipped)


@app.command()
def restore(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR|CHECKPOINT", help="What convert wrote, or the state dict of a converted network, with --arch."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="What to write: .safetensors, .pth or .pt.")],
    arch: ArchOption = None,
    arch_arg: ArchArgOption = None,
    ema: EmaOption = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write the state dict of the CNN that was converted, bit for bit."""
    from .convert.files.restore import check_state_dict_file, restored_state, write_state_dict
    from .convert.files.writing.ownership import CONFIG, WEIGHTS

    check_state_dict_file(out, force=force, sources=[source, source / CONFIG, source / WEIGHTS])
    with redirect_stdout(sys.stderr):  # what the architecture's code prints is not the result
        restored = restored_state(source, architecture=_architecture(arch, arch_arg), ema=ema)
    write_state_dict(restored.state_dict, out, force=force, sources=restored.files)
    if as_json:
        _print_json("restore", {"file": str(out), "tensors": list(restored.state_dict)})
    else:
        say(f"Wrote {out}")


@app.command()
def demo(
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write; ./conv2attn-demo by default.")
    ] = None,
    images: Annotated[int, typer.Option(min=1, max=100_000, help="Held-out images to draw.")] = 1000,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the images.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Convert three trained CNNs and run both networks side by side."""
    from .convert.examples.images import HELD_OUT_SEED
    from .proofs.show.demo import DEFAULT_FOLDER, PASSES, run_demo

    seed = HELD_OUT_SEED if seed is None else seed
    with progress("Running CNN and attention", total=PASSES * images) as advance:
        results = run_demo(out or DEFAULT_FOLDER, count=images, seed=seed, progress=advance)
    if as_json:
        _print_json("demo", {"seed": seed, "networks": [result.to_json() for result in results]})
        return
    for result in results:
        _print_demo(result)
    say(f"Seed of the images: {seed}")


@app.command()
def show(
    source: Annotated[Path, typer.Argument(metavar="FOLDER|CHECKPOINT", help="What convert wrote, or a checkpoint.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Ends in .png, .svg, .pdf, or .html for a page.")],
    arch: ArchOption = None,
    arch_arg: ArchArgOption = None,
    ema: EmaOption = False,
    layer: Annotated[str | None, typer.Option(metavar="NAME", help="Show this layer only.")] = None,
    picture: Annotated[Picture | None, typer.Option(help="Which picture; by default maps.")] = None,
    image: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Image to look at; by default one is drawn.")
    ] = None,
    size: Annotated[
        str | None, typer.Option(metavar="ROWSxCOLUMNS", help="Size to scale or draw the image to.")
    ] = None,
    query: Annotated[
        str | None, typer.Option(metavar="ROW,COLUMN", help="Query: a pixel of the image; by default its middle.")
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(callback=_positive, help="Locality strength; by default the layers' own.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Draw where the heads look, or write a page that one can play with."""
    from .proofs.show.show import View, show

    architecture = _architecture(arch, arch_arg)
    wanted_size = None if size is None else _size(size)
    view = View(layer, image, wanted_size, None if query is None else _pixel(query), alpha, picture)
    with redirect_stdout(sys.stderr):  # what the architecture's code prints is not the result
        layers = show(source, out, view, architecture=architecture, ema=ema, force=force)
    if as_json:
        _print_json("show", {"file": str(out), "layers": layers})
    else:
        say(f"Wrote {out}")


@app.command()
def prove(
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Prove this claim; repeatable.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the claims, and prove nothing.")] = False,
    show: Annotated[str | None, typer.Option(metavar="NAME", help="Prove this claim and print its derivation.")] = None,
    form: Annotated[ProofFormat, typer.Option("--format", help="Form of the printed derivations.")] = ProofFormat.text,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the derivations to a file.")] = None,
    formal: Annotated[bool, typer.Option("--formal", help="Have Coq check the theorems of proofs/formal.")] = False,
    limit: Annotated[
        float | None,
        typer.Option(
            callback=_positive, help="Seconds that a claim may take, 20 by default; with --formal a file, 300."
        ),
    ] = None,
) -> None:
    """Prove what the construction relies on, by machine."""
    if formal:
        if only or listed or show or out or form not in (ProofFormat.text, ProofFormat.json):
            raise typer.BadParameter("takes --limit and --format text or json, and nothing else", param_hint="--formal")
        _prove_formal(limit=limit, as_json=form is ProofFormat.json)
        return
    from .proofs.prover.document import render
    from .proofs.prover.document.document import check_document, write_document
    from .proofs.prover.document.wording import summary
    from .proofs.prover.prose import plain
    from .proofs.prover.registry import entries, select
    from .proofs.prover.runner import DEFAULT_LIMIT, iter_results

    chosen = select(entries(), [*(only or ()), *([] if show is None else [show])] or None)
    if listed:
        _refuse("with --list", {"--show": show, "--out": out, "--limit": limit})
        claims = [{"name": entry.claim.name, "title": plain(entry.claim.title)} for entry in chosen]
        _print_claims(claims, as_json=form is ProofFormat.json)
        return
    if out is not None:
        check_document(out)
    printed = out is None and (show is not None or form is not ProofFormat.text)
    results = []
    for result in iter_results(chosen, limit=limit or DEFAULT_LIMIT):
        _print_result(result, err=printed)
        results.append(result)
    say(summary(results), err=printed)
    if out is not None:
        write_document(out, render(results, form))
        say(f"Wrote {out}")
    elif printed:
        say_document(render(results, form))
    if not all(result.is_proved for result in results):
        raise typer.Exit(1)


@app.command()
def bench(
    table: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="resnet50, mobilenetv2, ladder or network; repeatable; all by default."),
    ] = None,
    device: Annotated[str, typer.Option(help="Where to measure: cpu, cuda, ...")] = "cpu",
    dtype: Annotated[Dtype, typer.Option(help="Precision of weights and inputs.")] = Dtype.float32,
    backward: Annotated[bool, typer.Option("--backward", help="Measure forward + backward too.")] = False,
    compiled: Annotated[bool, typer.Option("--compile", help="Measure what torch.compile makes of it.")] = False,
    batch: Annotated[int | None, typer.Option(min=1, help="Images in a call; 8 for layers, 4 for the network.")] = None,
    rounds: Annotated[int | None, typer.Option(min=5, help="Samples of each call, whose median counts.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads for torch; by default its own choice.")] = None,
    tf32: Annotated[bool, typer.Option("--tf32", help="Let a GPU round float32 factors to TF32.")] = False,
    limit: Annotated[
        float | None,
        typer.Option(callback=_positive, metavar="FLOPS", help="Leave out quadratic attention that takes more."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights, inputs and free heads.")] = 0,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Draw the ladder: time against pixels.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE.md", help="Append the results, as benchmarks/RESULTS.md keeps them.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure the attention beside the convolution: time, memory, error."""
    from .proofs.benchmark.measuring.measure import ROUNDS, Settings
    from .proofs.benchmark.outputs import check_outputs, write_outputs
    from .proofs.benchmark.run import run_benchmark, steps

    settings = Settings(
        device=_device(device),
        dtype=_torch_dtype(dtype),
        backward=backward,
        compile=compiled,
        batch=batch,
        rounds=rounds or ROUNDS,
        threads=threads,
        tf32=tf32,
        seed=seed,
        limit_flops=limit,
    )
    check_outputs(table or (), plot=plot, markdown=markdown)
    with progress("Measuring", total=steps(table or (), settings)) as advance:
        benchmark = run_benchmark(table or (), settings, progress=advance)
    write_outputs(benchmark, plot=plot, markdown=markdown)
    if as_json:
        _print_json("bench", {"seed": seed, **benchmark.to_json()})
    else:
        _print_benchmark(benchmark)


@app.command()
def verify(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[CHECKPOINT | FILE...]", help="A checkpoint or converted folder to verify; or results to merge."
        ),
    ] = None,
    layers: Annotated[
        int | None, typer.Option(min=1, help="Random layers; 1000 by default, or what --minutes allow.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the random layers or inputs, 0 by default.")] = None,
    engine: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Verify this engine; repeatable; all by default.")
    ] = None,
    dtype: Annotated[
        list[Dtype] | None, typer.Option(help="Precision of random layers, repeatable, or of the network.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Where to compute: cpu, by default, cuda, ...")] = None,
    max_size: Annotated[
        int | None, typer.Option(help="Largest rows and columns of random layers' inputs, 10 by default.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(callback=_positive, help="Start no random layer after this time.")
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Layers I, I + N, ...; by default RANK/WORLD_SIZE, if these are set."),
    ] = None,
    merge: Annotated[bool, typer.Option("--merge", help="Add up the results in FILE...")] = False,
    arch: ArchOption = None,
    arch_arg: ArchArgOption = None,
    ema: EmaOption = False,
    alpha: AlphaOption = None,
    skip_unsupported: SkipOption = False,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Run the network on its images: .npy, .pt, .png, .jpg, ...")
    ] = None,
    random: Annotated[int | None, typer.Option(min=1, help="Run the network on random inputs, 8 by default.")] = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="ROWSxCOLUMNS", help="Size of random inputs, 224x224 by default, and of pictures."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the result as JSON, too; {shard} in the name stands for the shard."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Try to break the theorem, the code and the certificate: on random layers, or on a network."""
    from .proofs.evidence.campaign.outputs import check_stdout, result_file
    from .proofs.evidence.campaign.shard import Shard

    of_layers: dict[str, object] = {"--layers": layers, "--max-size": max_size, "--minutes": minutes, "--shard": shard}
    of_network: dict[str, object] = {
        "--arch": arch,
        "--arch-arg": arch_arg,
        "--ema": ema,
        "--alpha": alpha,
        "--data": data,
    }
    of_network |= {"--random": random, "--size": size, "--skip-unsupported": skip_unsupported}
    _check_files(files or [], merge=merge)
    if merge:
        others: dict[str, object] = {"--engine": engine, "--dtype": dtype, "--seed": seed, "--device": device}
        _refuse("with --merge", of_layers | of_network | others)
    else:
        _refuse(*(("with a CHECKPOINT", of_layers) if files else ("without a CHECKPOINT", of_network)))
    if data is not None:
        _refuse("with --data", {"--random": random, "--seed": seed})
    seed, device = seed or 0, device or "cpu"
    if as_json:
        check_stdout()
    with result_file(out if files else Shard.own_file(out, shard), sources=files or ()) as write:
        if merge:
            outcome = _merged(files or [])
        elif files:
            pair = _pair(files[0], arch, arch_arg, ema, alpha, skip_unsupported, device, dtype)
            outcome = _verified_network(pair, engine, data=data, random=random, size=size, seed=seed)
        else:
            settings = _campaign_settings(engine, dtype, device, max_size)
            outcome = _verified_layers(settings, layers=layers, seed=seed, shard=shard, minutes=minutes)
        write(_versioned("verify", outcome.data))
    if as_json:
        _print_json("verify", outcome.data)
    else:
        outcome.show()
    if outcome.code:
        raise typer.Exit(outcome.code)


class _Outcome(NamedTuple):
    """What a verification found: as data, as a text, and as an exit code."""

    data: dict[str, Any]
    show: Callable[[], None]
    code: int


def _check_files(files: Sequence[Path], *, merge: bool) -> None:
    if merge and not files:
        raise typer.BadParameter("needs the files to add up", param_hint="--merge")
    if len(files) > 1 and not merge:
        raise typer.BadParameter("takes one checkpoint; --merge adds up several results", param_hint="CHECKPOINT")


def _refuse(when: str, options: dict[str, object]) -> None:
    """Refuses options that have no meaning in the mode that the arguments choose."""
    given = [name for name, value in options.items() if value is not None and value is not False and value != []]
    if given:
        raise typer.BadParameter(f"has no meaning {when}", param_hint=", ".join(given))


def _merged(files: Sequence[Path]) -> _Outcome:
    from .proofs.evidence.campaign.merge import merge

    campaign = merge(files, version=JSON_VERSION)
    data = {"campaign": campaign.to_json(), "counterexample": None}
    return _Outcome(data, lambda: _print_campaign(campaign, None), campaign.exit_code)


def _campaign_settings(
    engine: list[str] | None, dtype: list[Dtype] | None, device: str, max_size: int | None
) -> Settings:
    from .proofs.evidence.campaign.settings import Settings

    return Settings.of(engine, [str(name) for name in dtype or ()], device=device, max_size=max_size)


def _verified_layers(
    settings: Settings, *, layers: int | None, seed: int, shard: str | None, minutes: float | None
) -> _Outcome:
    from .proofs.evidence.campaign.counterexample import counterexample
    from .proofs.evidence.campaign.run import layer_count, run_campaign
    from .proofs.evidence.campaign.shard import Shard

    count, part = layer_count(layers, minutes), Shard.choose(shard)
    with progress("Checking layers", total=len(part.indices(count))) as advance:
        campaign = run_campaign(settings, layers=count, seed=seed, shard=part, minutes=minutes, progress=advance)
    example = counterexample(campaign)
    data = {"campaign": campaign.to_json(), "counterexample": None if example is None else example.snippet}
    return _Outcome(data, lambda: _print_campaign(campaign, example), campaign.exit_code)


def _pair(
    path: Path,
    arch: str | None,
    arch_arg: list[str] | None,
    ema: bool,
    alpha: float | None,
    skip_unsupported: bool,
    device: str,
    dtype: list[Dtype] | None,
) -> Pair:
    from .proofs.evidence.network import load_pair

    if dtype is not None and len(dtype) > 1:
        raise typer.BadParameter("takes one precision with a CHECKPOINT", param_hint="--dtype")
    with redirect_stdout(sys.stderr):  # what the architecture's code prints is not the result
        return load_pair(
            path,
            architecture=_architecture(arch, arch_arg),
            ema=ema,
            alpha=alpha,
            skip_unsupported=skip_unsupported,
            device=device,
            dtype=_torch_dtype(dtype[0] if dtype else None),
        )


def _verified_network(
    pair: Pair, engine: list[str] | None, *, data: Path | None, random: int | None, size: str | None, seed: int
) -> _Outcome:
    from .proofs.evidence.network import DEFAULT_ENGINES, choose_inputs, verify_network

    images = choose_inputs(pair, folder=data, count=random, size=None if size is None else _size(size), seed=seed)
    engines = engine or DEFAULT_ENGINES
    with progress("Running CNN and attention", total=(1 + len(engines)) * len(images)) as advance:
        check = verify_network(pair, images, engines=engines, progress=advance)
    return _Outcome(
        {"seed": seed, "network": check.to_json()}, lambda: _print_network(check, seed), 0 if check.passed else 1
    )


def _architecture(spec: str | None, arguments: list[str] | None) -> Architecture | None:
    from .convert.files.architecture import Architecture, parse_arguments

    if spec is None:
        if arguments:
            raise typer.BadParameter("goes with --arch", param_hint="--arch-arg")
        return None
    return Architecture(spec, parse_arguments(arguments or ()))


def _torch_dtype(dtype: Dtype | None) -> Any:
    import torch

    return None if dtype is None else getattr(torch, dtype.value)


def _device(name: str) -> Any:
    import torch

    try:
        return torch.device(name)
    except RuntimeError as error:
        raise typer.BadParameter(f"there is no device {name!r}", param_hint="--device") from error


def _size(text: str) -> Size:
    from .convert.spec import Size

    rows, _, columns = text.lower().partition("x")
    if not (rows.isdecimal() and columns.isdecimal() and int(rows) and int(columns)):
        raise typer.BadParameter(f"must be ROWSxCOLUMNS, like 224x224; got {text}", param_hint="--size")
    return Size(int(rows), int(columns))


def _range(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        low, high = math.nan, math.nan
    if not -math.inf < low <= high < math.inf:
        raise typer.BadParameter(f"must be LOW,HIGH, like -1,1; got {text}", param_hint="--input-range")
    return low, high


def _pixel(text: str) -> tuple[int, int]:
    row, _, column = text.partition(",")
    if not (row.isdecimal() and column.isdecimal()):
        raise typer.BadParameter(f"must be ROW,COLUMN, like 12,40; got {text}", param_hint="--query")
    return int(row), int(column)


def _warn_non_finite(names: Sequence[str]) -> None:
    if names:
        shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        say(f"warning: NaN or infinity in {shown}; these layers are not certified", err=True)


def _versioned(command: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"version": JSON_VERSION, "command": command, **data}


def _print_json(command: str, data: dict[str, Any]) -> None:
    from .convert.files.writing.json_text import json_text

    say_document(json_text(_versioned(command, data), default=str) + "\n")


def _print_report(certified: CertifiedReport) -> None:
    from .convert.certificate.wording import WHY, is_useful
    from .proofs.show.tables import report_table

    report = certified.report
    print_table(*report_table(certified))
    _print_notes([(layer.name, layer.note) for layer in report.layers])
    _print_problems("left alone", report.skipped)
    network, (low, high) = certified.network, certified.input_range
    useful = is_useful(network.bound, network.outputs)
    bound = f"at most {network.in_words} apart" if useful else network.in_words
    bound += "" if useful or network.bound is None else f": {WHY}"
    say(f"Outputs of the whole network, images of {network.size} on [{low:g}, {high:g}]: {bound}")
    _print_problems("without a known bound", network.unbounded)


def _print_notes(notes: Sequence[tuple[str, str | None]]) -> None:
    from .proofs.show.tables import note_lines

    for line in note_lines(notes):
        say(line)


def _print_problems(what: str, problems: Sequence[Any]) -> None:
    from .proofs.show.tables import layer_name

    if problems:
        say(f"{len(problems)} {what}:")
    for problem in problems:
        say(f"  {layer_name(problem.name)}: {problem.reason}")


def _print_demo(result: DemoResult) -> None:
    _print_agreement(result.network, result.agreement)
    say(f"Wrote {result.folder}; open {result.page} to look at it", "")


def _print_network(check: NetworkCheck, seed: int) -> None:
    _print_agreement("layer", check.agreement)
    say(*check.verdict)
    say(f"Seed: {seed}")


def _print_agreement(title: str, agreement: Agreement) -> None:
    from .proofs.show.tables import layer_agreement_table, network_agreement_table, note_lines

    print_table(*layer_agreement_table(title, agreement))
    for line in note_lines((layer.name, layer.note) for layer in agreement.engines[0].layers):
        typer.echo(line)
    print_table(*network_agreement_table(agreement))


def _print_claims(claims: Sequence[dict[str, str]], *, as_json: bool) -> None:
    if as_json:
        _print_json("prove", {"claims": claims})
    else:
        print_table(("claim", "title"), [tuple(claim.values()) for claim in claims])


def _print_result(result: Result, *, err: bool) -> None:
    from .proofs.prover.prose import plain

    say(f"{result.status:9} {result.seconds:6.2f} s  {result.claim.name}: {plain(result.claim.title)}", err=err)
    for failure in result.failures:
        say(f"    {failure}", err=err)


def _prove_formal(*, limit: float | None, as_json: bool) -> None:
    from .proofs.formal.coq.ask import DEFAULT_LIMIT, check_formal, count_steps
    from .proofs.prover.document.formal import AXIOMS, rows, summary, to_json

    with progress("Coq checks the theorems", total=count_steps()) as advance:
        result = check_formal(limit=limit or DEFAULT_LIMIT, progress=advance)
    if as_json:
        _print_json("prove", to_json(result))
    else:
        print_table(("theorem", "rests on"), rows(result))
        for line in (*(AXIOMS if result.theorems else ()), *result.failures, summary(result)):
            say(line)
    if not result.is_proved:
        raise typer.Exit(1)


def _print_benchmark(benchmark: Benchmark) -> None:
    from .proofs.benchmark.report import criteria_table, layer_tables, summary_table

    for table in layer_tables(benchmark.rows):
        print_table(table.header, table.rows)
    for table in (summary_table(benchmark.summaries), criteria_table(benchmark.criteria)):
        print_table(table.header, table.rows)
    say(f"Machine: {benchmark.machine}")
    say(f"Seed: {benchmark.settings.seed}")


def _print_campaign(campaign: Campaign, example: Counterexample | None) -> None:
    from .proofs.evidence.campaign.report import check_table, failure_lines, option_table, verdict

    for table in (option_table(campaign), check_table(campaign)):
        print_table(*table)
    for line in failure_lines(campaign, example):
        say(line)
    say(*verdict(campaign))


def _explain(error: Exception) -> int:
    """Says on stderr what went wrong, and gives the exit code."""
    from .convert.errors import (
        ArchitectureNeededError,
        ConversionError,
        OptionError,
        SelectionError,
        ToolError,
        UnsupportedLayerError,
    )

    if _debug:
        say(*"".join(traceback.format_exception(error)).splitlines(), err=True)
    if (code := explain(error)) is not None:
        return code
    if not isinstance(error, ConversionError):
        say(f"conv2attn: internal error: {type(error).__name__}: {error}", err=True)
        say("This is a bug in conv2attn; please report it with the output of --debug.", err=True)
        return 70
    say(f"conv2attn: {error}{_hint(error)}", err=True)
    if isinstance(error, SelectionError | OptionError | ArchitectureNeededError | ToolError):
        return 2
    return 4 if isinstance(error, UnsupportedLayerError) else 3


def _hint(error: Exception) -> str:
    """Which option helps, as the end of an error's sentence: the library does not know how it is called."""
    from .convert.errors import ArchitectureNeededError, OutputExistsError
    from .proofs.evidence.images import ImageSizesError

    hints = {
        ArchitectureNeededError: "--arch names the code that builds it",
        OutputExistsError: "--force replaces it",
        ImageSizesError: "--size makes pictures one size",
    }
    found = next((hint for kind, hint in hints.items() if isinstance(error, kind)), None)
    return "" if found is None else f" ({found})"


def main() -> None:
    """Runs the command line; every outcome becomes an exit code."""
    atexit.register(gc.freeze)  # or the interpreter looks through all of torch once more, for a second, before it ends
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # so that nothing is left behind
    take_any_text()
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except Exception as error:
        sys.exit(_explain(error))
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    main()
