"""The command line: parses, calls, prints. Torch is imported inside the commands."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .proofs.show.failure import explain, is_usage
from .proofs.terminal.command import Command, command
from .proofs.terminal.options import (
    AcceleratorOption,
    AlphaOption,
    CheckpointArgument,
    DeviceOption,
    DevicesOption,
    Dtype,
    DtypeOption,
    EngineOption,
    ExcludeOption,
    ForceOption,
    FormOption,
    IncludeOption,
    InputOption,
    MeanOption,
    Picture,
    PictureSizeOption,
    PrecisionOption,
    ProofFormat,
    ResultOption,
    SkipOption,
    StdOption,
    StrategyOption,
    Target,
    all_positive,
    normalization_of,
    pixel_of,
    positive,
    range_of,
    refuse_options,
    size_of,
    torch_device,
    torch_dtype,
)
from .proofs.terminal.outcome import Outcome, Wrote, outcome_json, result_file
from .proofs.terminal.output import prepare_streams, progress, say, say_document
from .proofs.terminal.signals import ended_by_signals

if TYPE_CHECKING:
    from .convert.files.checkpoint import Opening
    from .proofs.evidence.campaign.settings import Settings, Shard

app = typer.Typer(
    name="conv2attn",
    help="Turns trained convolutions into multi-head self-attention that computes the same function.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if sys.stdout is not None and sys.stdout.isatty() else None,  # panels only for people
    context_settings={"help_option_names": ["-h", "--help"]},
)
CONVERT, CHECK, TRAIN, LOOK = "Convert", "Check", "Train", "Look"
"""Panels of the help."""


_DEBUG = "--debug"


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(f"conv2attn {version('conv2attn')}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option(_DEBUG, help="Show the traceback of an error; anywhere in a command.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True)] = False,
) -> None:
    import numpy  # noqa: F401  before torch, which swallows a Ctrl-C that comes while it imports numpy itself


@command(app, CONVERT)
def convert(
    checkpoint: CheckpointArgument,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write.")],
    opening: Opening,
    alpha: AlphaOption = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    device: DeviceOption = "cpu",
    dtype: DtypeOption = None,
    skip_unsupported: SkipOption = False,
    input_range: Annotated[
        str, typer.Option(metavar="LOW,HIGH", help="Values of the images that bounds are for.")
    ] = "-1,1",
    size: Annotated[
        str | None,
        typer.Option(
            metavar="ROWSxCOLUMNS",
            help="Image size of the bound on the outputs of a small network; by default 224x224.",
        ),
    ] = None,
    form: FormOption = None,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Write report.html, a page to look at.")] = True,
    force: ForceOption = False,
) -> Outcome:
    """Convert the checkpoint of a CNN to self-attention; an ONNX file as a whole network, too."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # for torch: no spinning between many small operations
    from .proofs.show.conversion import convert_checkpoint

    return convert_checkpoint(
        checkpoint,
        out,
        opening=opening,
        device=device,
        dtype=torch_dtype(dtype),
        include=include or (),
        exclude=exclude or (),
        alpha=alpha,
        skip_unsupported=skip_unsupported,
        input_range=range_of(input_range),
        size=size_of(size),
        form=form,
        force=force,
        page=page,
    )


@command(app, CONVERT)
def plan(
    checkpoint: CheckpointArgument,
    opening: Opening,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="ROWSxCOLUMNS", help="Image size for which memory is estimated; by default 224x224."),
    ] = None,
) -> Outcome:
    """Show what convert would do, and write nothing."""
    from .proofs.show.plan import plan_checkpoint

    return plan_checkpoint(
        checkpoint,
        opening=opening,
        include=include or (),
        exclude=exclude or (),
        size=size_of(size),
    )


@command(app, CONVERT)
def restore(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR|CHECKPOINT", help="What convert wrote, or the state dict of a converted network, with --arch."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="What to write: .safetensors, .pth or .pt.")],
    opening: Opening,
    force: ForceOption = False,
) -> Outcome:
    """Write the state dict of the CNN that was converted, bit for bit."""
    from .convert.files.restore import restore_file

    restored = restore_file(source, out, opening, force=force)
    what = "convolution weights only" if restored.is_layers else "the state dict of the CNN, bit for bit"
    about = {"tensors": list(restored.state_dict), "content": "layers" if restored.is_layers else "network"}
    return Wrote(out, about, what)


@command(app, LOOK)
def demo(
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write; ./conv2attn-demo by default.")
    ] = None,
    images: Annotated[int, typer.Option(min=1, max=100_000, help="Held-out images to draw.")] = 1000,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the images.")] = None,
) -> Outcome:
    """Convert three trained CNNs and run both networks side by side."""
    from .convert.examples.images import HELD_OUT_SEED
    from .proofs.show.demo import DEFAULT_FOLDER, PASSES, run_demo

    seed = HELD_OUT_SEED if seed is None else seed
    with progress("Running CNN and attention", total=PASSES * images) as advance:
        return run_demo(out or DEFAULT_FOLDER, count=images, seed=seed, progress=advance)


@command(app, LOOK)
def show(
    source: Annotated[
        Path, typer.Argument(metavar="FOLDER|CHECKPOINT", help="What convert or learn wrote, or a checkpoint.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Ends in .png, .svg, .pdf, or .html for a page.")],
    opening: Opening,
    layer: Annotated[
        str | None, typer.Option(metavar="NAME", help="Show only this layer; for a training run, give its number.")
    ] = None,
    picture: Annotated[
        Picture | None, typer.Option(help="Which picture: by default maps, or contours for what learn wrote.")
    ] = None,
    image: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Image to look at; by default one is drawn.")
    ] = None,
    size: Annotated[
        str | None, typer.Option(metavar="ROWSxCOLUMNS", help="Size to scale or draw the image to.")
    ] = None,
    mean: MeanOption = None,
    std: StdOption = None,
    query: Annotated[
        str | None, typer.Option(metavar="ROW,COLUMN", help="Query: a pixel of the image; by default its middle.")
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(callback=positive, help="Locality strength; by default the layers' own.")
    ] = None,
    force: ForceOption = False,
) -> Outcome:
    """Draw where the heads look, or write a page that one can play with."""
    from .proofs.show.show import View, show

    scaled = size_of(size)
    pixel = None if query is None else pixel_of(query)
    view = View(layer, image, scaled, pixel, alpha, picture, normalization_of(mean, std))
    layers = show(source, out, view, opening, force=force)
    return Wrote(out, {"layers": layers})


@command(app, TRAIN)
def learn(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write.")],
    data: Annotated[
        str, typer.Option(metavar="KIND", help="digits, drawn, drawn:SIDE, cifar10:PATH or folder:PATH.")
    ] = "digits",
    encoding: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="quadratic, gaussian, learned, learned+content, sinusoidal, absolute, resnet10, resnet18; several "
            "with commas between them, or all.",
        ),
    ] = "quadratic",
    recipe: Annotated[
        str,
        typer.Option(metavar="NAME", help="small, for minutes on a CPU, or paper, the widths and 300 epochs of it."),
    ] = "small",
    depth: Annotated[int | None, typer.Option(min=1, help="Blocks of attention; 6 by default.")] = None,
    heads: Annotated[int | None, typer.Option(min=1, help="Heads of each; 9 by default.")] = None,
    padding: Annotated[int, typer.Option(min=0, help="Pixels of zeros around the image that heads see, too.")] = 0,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs, in place of the recipe's.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each encoding, with the seeds 0, 1, ...")] = 1,
    accelerator: Annotated[str, typer.Option(help="Passed to Lightning: auto, cpu, gpu, ...")] = "auto",
    devices: Annotated[int, typer.Option(min=1, help="Processes, a device each.")] = 1,
    strategy: Annotated[str, typer.Option(help="Passed to Lightning: auto, ddp, ...")] = "auto",
    precision: Annotated[str, typer.Option(help="Passed to Lightning: 32-true, bf16-mixed, ...")] = "32-true",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what the folder holds.")] = False,
) -> Outcome:
    """Train networks of attention from nothing, beside residual networks: the paper's experiments."""
    from .learn.experiment.recipes import encodings_of, setting_of
    from .learn.training.recipe import Machine
    from .proofs.show.trained.learn import learn

    return learn(
        data,
        encodings_of(encoding),
        setting_of(recipe, depth=depth, heads=heads, padding=padding, epochs=epochs),
        out,
        seeds=seeds,
        machine=Machine(accelerator=accelerator, devices=devices, strategy=strategy, precision=precision),
        resume=resume,
        progress=sys.stderr.isatty(),
    )


@app.command(cls=Command, rich_help_panel=CHECK)
def prove(
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Prove this claim; repeatable.")] = None,
    show: Annotated[str | None, typer.Option(metavar="NAME", help="Prove this claim and print its derivation.")] = None,
    form: Annotated[ProofFormat, typer.Option("--format", help="Form of the printed derivations.")] = ProofFormat.text,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the derivations to a file.")] = None,
    limit: Annotated[
        float | None, typer.Option(callback=positive, help="Seconds that a check may take, 20 by default.")
    ] = None,
) -> None:
    """Prove what the construction relies on, by machine."""
    from .proofs.prover.document import document_file, for_terminal, render_markdown, sections
    from .proofs.prover.outcome import Proved, describe
    from .proofs.prover.registry import all_claims, select
    from .proofs.prover.run import DEFAULT_LIMIT, iter_results

    chosen = select(all_claims(), [*(only or ()), *([] if show is None else [show])] or None)
    printed = out is None and (show is not None or form is not ProofFormat.text)
    results = []
    with document_file(out) as write:
        for result in iter_results(chosen, limit=limit or DEFAULT_LIMIT):
            say(*describe(result), err=printed)
            results.append(result)
        proved = Proved(results)
        say(proved.summary, err=printed)
        if out is not None or form is not ProofFormat.text:
            text = outcome_json("prove", proved) if form is ProofFormat.json else render_markdown(results)
        else:
            text = for_terminal("\n\n".join(sections(results)) + "\n")
        if out is not None:
            write(text)
            say(f"Wrote {out}")
    if printed:
        say_document(text)
    if proved.exit_code:
        raise typer.Exit(proved.exit_code)


@command(app, CHECK)
def claims() -> Outcome:
    """List what prove proves."""
    from .proofs.prover.outcome import Listing
    from .proofs.prover.registry import all_claims

    return Listing(all_claims())


@command(app, CHECK)
def formal(
    limit: Annotated[
        float | None, typer.Option(callback=positive, help="Seconds that a file may take, 300 by default.")
    ] = None,
) -> Outcome:
    """Have Coq check the theorems of proofs/formal."""
    from .proofs.formal.coq.ask import DEFAULT_LIMIT, check_formal, count_steps

    with progress("Coq checks the theorems", total=count_steps()) as advance:
        return check_formal(limit=limit or DEFAULT_LIMIT, progress=advance)


@command(app, CHECK)
def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What convert wrote.")],
) -> Outcome:
    """Check each layer's certificate with a program that Coq proves right; make checker builds it."""
    from .proofs.formal.checker.folder import check_folder

    with progress("Checking certificates", total=None) as advance:
        return check_folder(folder, progress=advance)


@command(app, LOOK)
def bench(
    table: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="resnet50, mobilenetv2, ladder, positions, content or network; repeatable; all by default.",
        ),
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
        typer.Option(callback=positive, metavar="FLOPS", help="Leave out quadratic attention that takes more."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights, inputs and free heads.")] = 0,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Draw the ladder: time against pixels.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE.md", help="Append the results, as benchmarks/RESULTS.md keeps them.")
    ] = None,
) -> Outcome:
    """Measure the attention beside the convolution: time, memory, error."""
    from .proofs.benchmark.measure import ROUNDS, Settings
    from .proofs.benchmark.run import check_outputs, measurements, run_benchmark, write_outputs

    settings = Settings(
        device=torch_device(device),
        dtype=torch_dtype(dtype),
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
    with progress("Measuring", total=len(measurements(table or (), settings))) as advance:
        benchmark = run_benchmark(table or (), settings, progress=advance)
    write_outputs(benchmark, plot=plot, markdown=markdown)
    return benchmark


@command(app, CHECK)
def verify(
    checkpoint: Annotated[
        Path | None, typer.Argument(metavar="CHECKPOINT", help="As for convert; without it, random layers.")
    ] = None,
    *,
    opening: Opening,
    alpha: AlphaOption = None,
    skip_unsupported: SkipOption = False,
    engine: EngineOption = None,
    device: DeviceOption = "cpu",
    dtype: DtypeOption = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Run the network on its images (.npy, .pt, .png, .jpg, ...), in it, in a folder for each class, or "
            "in train, val and test.",
        ),
    ] = None,
    random: Annotated[
        int | None,
        typer.Option(min=1, help="Run the network on so many random inputs, 8 by default; or so many random layers."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the random inputs or layers, 0 by default.")] = None,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="ROWSxCOLUMNS",
            help="Size of random inputs and of pictures, with channels before it where the first layer sees others; by "
            "default what the network was trained on, or 224x224.",
        ),
    ] = None,
    input_: InputOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    original: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The ONNX file that the folder CHECKPOINT was converted from: run both."),
    ] = None,
    form: FormOption = None,
    out: ResultOption = None,
) -> Outcome:
    """Run a network beside its CNN, and hold each layer and the whole against their bounds.

    An ONNX file without --arch is run by ONNX Runtime, beside the same file with attention. Without CHECKPOINT,
    --random N verifies the theorem, the engines and the certificate on N random layers, as soak does.
    """
    from .convert.inputs import parse_inputs
    from .proofs.evidence.campaign.settings import Settings, Shard
    from .proofs.evidence.network import verify_checkpoint
    from .proofs.evidence.onnx_network import verify_onnx_file
    from .proofs.show.program import is_onnx

    images: dict[str, object] = {
        "--arch": opening.architecture,
        "--data": data,
        "--mean": mean,
        "--std": std,
        "--input": input_,
    }
    if checkpoint is None:
        if random is None:
            raise typer.BadParameter("is missing: give it, or --random N for random layers", param_hint="CHECKPOINT")
        refuse_options(
            "random layers", images | {"--alpha": alpha, "--size": size, "--original": original, "--form": form}
        )
        settings = Settings.of(engine, [] if dtype is None else [dtype], device=device)
        return _campaign("verify", settings, Shard(), random, seed=seed or 0, out=out)
    scaled = size_of(size)
    with result_file(out, "verify", sources=[checkpoint]) as write:
        found: Outcome
        if original is not None or form is not None or (opening.architecture is None and is_onnx(checkpoint)):
            weighed = {"--engine": engine, "--dtype": dtype, "--ema": opening.ema, "--weights": opening.weights}
            refuse_options("an ONNX file that ONNX Runtime runs", images | weighed)
            found = verify_onnx_file(
                checkpoint,
                original=original,
                form=form,
                alpha=alpha,
                skip_unsupported=skip_unsupported,
                count=random,
                size=scaled,
                seed=seed,
            )
        else:
            found = verify_checkpoint(
                checkpoint,
                opening=opening,
                alpha=alpha,
                skip_unsupported=skip_unsupported,
                device=device,
                dtype=torch_dtype(dtype),
                engines=engine,
                folder=data,
                count=random,
                size=scaled,
                seed=seed,
                normalization=normalization_of(mean, std),
                specs=parse_inputs(input_ or ()),
                progress=partial(progress, "Running CNN and attention"),
            )
        write(found)
    return found


@command(app, CONVERT)
def export(
    source: CheckpointArgument,
    to: Annotated[
        Target,
        typer.Option(help="What to write: ONNX, or the tensors of nn.MultiheadAttention (mha) or ConViT's GPSA."),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write: .onnx, or .safetensors.")],
    opening: Opening,
    alpha: AlphaOption = None,
    skip_unsupported: SkipOption = False,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="ROWSxCOLUMNS", help="Size of the images; by default what the network was trained on, or 224x224."
        ),
    ] = None,
    input_: InputOption = None,
    form: FormOption = None,
    force: ForceOption = False,
) -> Outcome:
    """Write a network's attention for other people's tools, converting it first where it is a CNN."""
    from .convert.inputs import parse_inputs
    from .proofs.show.export import export_network

    return export_network(
        source,
        out,
        to=to,
        opening=opening,
        alpha=alpha,
        skip_unsupported=skip_unsupported,
        size=size_of(size),
        form=form,
        force=force,
        inputs=parse_inputs(input_ or ()),
    )


@command(app, CHECK)
def soak(
    layers: Annotated[
        int | None, typer.Option(min=1, max=10**12, help="Random layers; 1000 by default, or what --minutes allow.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(callback=positive, help="Start no layer after this time.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the layers.")] = 0,
    engine: EngineOption = None,
    dtype: Annotated[
        list[Dtype] | None, typer.Option(help="Precision of the layers; repeatable; all by default.")
    ] = None,
    device: DeviceOption = "cpu",
    max_size: Annotated[int, typer.Option(help="Longest side of the layers' inputs, in pixels.")] = 64,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Layers I, I + N, ...; by default RANK/WORLD_SIZE, if these are set."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the result as JSON, too; {shard} in the name stands for the shard."),
    ] = None,
) -> Outcome:
    """Try to break the theorem, the code and the certificate on random layers."""
    from .proofs.evidence.campaign.run import DEFAULT_LAYERS, ENDLESS
    from .proofs.evidence.campaign.settings import Settings, Shard

    settings = Settings.of(engine, dtype, device=device, max_size=max_size)
    part = Shard.parse(shard)
    own = out if out is None or (shard is not None and "{shard}" not in out.name) else part.own_file(out)
    count = layers or (DEFAULT_LAYERS if minutes is None else ENDLESS)
    return _campaign("soak", settings, part, count, seed=seed, out=own, minutes=minutes)


def _campaign(
    name: str,
    settings: Settings,
    shard: Shard,
    layers: int,
    *,
    seed: int,
    out: Path | None,
    minutes: float | None = None,
) -> Outcome:
    """Checks random layers, for ``soak`` and ``verify --random``."""
    from .proofs.evidence.campaign.run import run_campaign

    with result_file(out, name) as write:
        with progress("Checking layers", total=len(shard.indices(layers))) as advance:
            found = run_campaign(settings, layers=layers, seed=seed, shard=shard, minutes=minutes, progress=advance)
        write(found)
    return found


@command(app, CHECK, result="soak")
def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Results that soak wrote.")],
    out: ResultOption = None,
) -> Outcome:
    """Add up the results of soaks: shards of one, or several seeds."""
    from .proofs.evidence.campaign.result import merge

    with result_file(out, "soak", sources=files) as write:
        found = merge(files)
        write(found)
    return found


@command(app, TRAIN)
def melt(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to make; it keeps every run, and can be resumed.")],
    checkpoint: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FOLDER|CHECKPOINT]",
            help="A CNN, or what convert made of one; without it a small CNN learns the data first.",
        ),
    ] = None,
    *,
    opening: Opening,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="digits, drawn, drawn:SIDE, cifar10:PATH or folder:PATH; required with a checkpoint, digits without.",
        ),
    ] = None,
    size: PictureSizeOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    tolerance: Annotated[
        float | None,
        typer.Option(callback=positive, help="Start each layer this near to its convolution, for inputs on [-1, 1]."),
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(callback=positive, help="Locality strength at the start, 4 by default.")
    ] = None,
    content: Annotated[
        int | None, typer.Option(min=1, metavar="DIM", help="Add content attention behind gates, of this dimension.")
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(min=1, help="Melt so many layers, the last ones; with --content the last stage by default."),
    ] = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of fine-tuning.")] = 10,
    batch: Annotated[int, typer.Option(min=1, help="Images of a step, over all processes.")] = 64,
    lr: Annotated[
        list[float] | None,
        typer.Option(
            callback=all_positive,
            help="Highest learning rate; of positions and gates, ten times it. Repeatable: each side tries each, and "
            "validation images choose. By default 1e-4, with --content 3e-4 and 1e-3.",
        ),
    ] = None,
    weight_decay: Annotated[
        float, typer.Option(min=0, help="Weight decay of the weights; positions and gates have none.")
    ] = 0.01,
    seeds: Annotated[int, typer.Option(min=1, help="How many runs, whose spread the table has.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    accelerator: AcceleratorOption = "auto",
    devices: DevicesOption = 1,
    strategy: StrategyOption = "auto",
    precision: PrecisionOption = "32-true",
    example: Annotated[
        str | None,
        typer.Option(metavar="stamps|photographs", help="Run an example that cleans images, with tables and pictures."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="The example with every control, rates swept for each: about an hour.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what a killed run left in DIR.")] = False,
) -> Outcome:
    """Fine-tune a CNN as attention, and equally as a CNN, and say which is better."""
    from dataclasses import replace

    from .learn.melting.compare import FINE_TUNING, Melting
    from .learn.training.recipe import Machine
    from .proofs.show.melting import melt_checkpoint

    if example is not None:
        return _example(example, checkpoint, out, full=full, seeds=seeds, resume=resume)
    if data is None and checkpoint is not None:
        wanted = "is required with a checkpoint: the images it is fine-tuned on, such as folder:PATH"
        raise typer.BadParameter(wanted, param_hint="--data")
    recipe = replace(FINE_TUNING, epochs=epochs, batch_size=batch, weight_decay=weight_decay, seed=seed)
    return melt_checkpoint(
        checkpoint,
        out,
        opening=opening,
        data=data or "digits",
        size=size_of(size),
        normalization=normalization_of(mean, std),
        melting=Melting(tolerance, alpha, content, last),
        include=include or (),
        exclude=exclude or (),
        recipe=recipe,
        rates=tuple(lr or ()),
        seeds=seeds,
        machine=Machine(accelerator, devices, strategy, precision),
        resume=resume,
        progress=sys.stderr.isatty(),
        say=lambda line: say(line, err=True),
    )


def _example(name: str, checkpoint: Path | None, out: Path, *, full: bool, seeds: int, resume: bool) -> Outcome:
    """Runs an example of melting."""
    from .learn.examples.examples import EXAMPLES
    from .proofs.show.examples import show_example

    if name not in EXAMPLES:
        raise typer.BadParameter(f"there are {' and '.join(EXAMPLES)}; got {name!r}", param_hint="--example")
    if checkpoint is not None:
        raise typer.BadParameter("trains a network of its own, and takes no checkpoint", param_hint="--example")
    progress, lines = sys.stderr.isatty(), partial(say, err=True)
    return show_example(EXAMPLES[name], out, full=full, seeds=seeds, resume=resume, progress=progress, say=lines)


@command(app, TRAIN)
def freeze(
    checkpoint: CheckpointArgument,
    out: Annotated[Path, typer.Option(metavar="FILE.pt2", help="Program to write, which torch.export loads.")],
    tolerance: Annotated[
        float, typer.Option(callback=positive, help="Largest difference of a layer's outputs, away from borders.")
    ],
    opening: Opening,
    input_range: Annotated[
        str, typer.Option(metavar="LOW,HIGH", help="Values of each layer's input that bounds are for.")
    ] = "-1,1",
    size: Annotated[
        str | None,
        typer.Option(
            metavar="ROWSxCOLUMNS",
            help="Image size of the program; by default what the network was trained on, or 224x224.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Say how many test images are right before and after; as for melt."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw kernel size against tolerance: .png, .svg, .pdf.")
    ] = None,
    force: ForceOption = False,
) -> Outcome:
    """Make convolutions of attention that was trained: the smallest within a tolerance."""
    from .proofs.show.freezing import freeze_checkpoint

    return freeze_checkpoint(
        checkpoint,
        out,
        opening=opening,
        tolerance=tolerance,
        input_range=range_of(input_range),
        size=size_of(size),
        data=data,
        plot=plot,
        force=force,
    )


def main() -> None:
    """Runs the command line; every outcome becomes an exit code."""
    gc.set_threshold(50_000, 20, 100)  # torch is a million objects: looking through them takes long
    atexit.register(gc.freeze)  # or the interpreter looks through all of torch once more, for a second, before it ends
    with ended_by_signals():
        prepare_streams()
        arguments = [argument for argument in sys.argv[1:] if argument != _DEBUG]
        try:
            sys.exit(app(arguments, standalone_mode=False) or 0)
        except Exception as error:
            if _DEBUG in sys.argv and not is_usage(error):
                say(*"".join(traceback.format_exception(error)).splitlines(), err=True)
            sys.exit(explain(error))


if __name__ == "__main__":
    main()
