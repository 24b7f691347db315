"""The command line: parses, calls, prints. Torch is imported inside the commands."""

from __future__ import annotations

import atexit
import gc
import shlex
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .commands.ending import InterruptedRunError, ended_by_signals, explain, is_usage, libraries_quiet
from .commands.machine import prepare
from .commands.options import (
    DTYPE_NAMES,
    ENGINE_NAMES,
    AcceleratorOption,
    AlphaOption,
    CheckpointArgument,
    Command,
    DeviceOption,
    DevicesOption,
    DtypeOption,
    EngineOption,
    ExcludeOption,
    ForceOption,
    FormOption,
    ImageSizeOption,
    IncludeOption,
    InputOption,
    MisuseError,
    Picture,
    PrecisionOption,
    Program,
    ProofFormat,
    RecipeName,
    ResultOption,
    SkipOption,
    alpha_of,
    check_data,
    command,
    named_after,
    one_of,
    pixel_of,
    positive,
    range_of,
    size_of,
    torch_dtype,
)
from .commands.places import check_places
from .commands.terminal import Outcome, prepare_streams, progress, result_file, say, say_document, wrote
from .commands.topics import TOPICS
from .convert.write import CONFIG, WEIGHTS, check_file, check_target

if TYPE_CHECKING:
    from .commands.options import InputOptions
    from .convert.files.opening import Opening
    from .learn.training.recipe import Session

app = typer.Typer(
    name="conv2attn",
    cls=Program,
    help="Change a trained CNN's architecture without changing what it computes, and prove it.",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if sys.stdout is not None and sys.stdout.isatty() else None,  # panels only for people
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"For more: conv2attn help COMMAND, or conv2attn help TOPIC ({', '.join(TOPICS)}).",
)
CONVERT, TRAIN, THEORY, DEVELOPERS = "Convert", "Train", "Theory", "Developers"
"""Panels of the help."""
RESTORED, FROZEN = (".safetensors", ".pth", ".pt"), (".pt2", ".pth", ".pt", ".safetensors")
"""Endings of the files that restore and freeze write."""


_DEBUG = "--debug"


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(f"conv2attn {version('conv2attn')}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[
        bool,
        typer.Option(_DEBUG, help="Show the traceback of an error. Can be given anywhere on the command line."),
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    prepare()


@app.command("help", cls=Command, hidden=True)
def help_on(
    context: typer.Context,
    what: Annotated[str | None, typer.Argument(metavar="COMMAND|TOPIC", help="Command, or one of the topics.")] = None,
) -> None:
    """Show the help of a command, or the text on a topic."""
    program: Any = context.parent
    if what in TOPICS:
        say_document(TOPICS[what])
        return
    found = program.command if what is None else program.command.get_command(program, what)
    if found is None:
        from .convert.errors import close_names

        known = [*program.command.commands, *TOPICS]
        close = close_names(what or "", known) or "; conv2attn --help lists them"
        raise MisuseError(f"{what} is no command and no topic{close}")
    shown = program if what is None else found.make_context(what, ["--help"], parent=program, resilient_parsing=True)
    say_document(found.get_help(shown) + "\n")


@command(app, CONVERT, computes=True, example="weights.pth --arch timm:resnet18")
def plan(
    checkpoint: CheckpointArgument,
    opening: Opening,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    size: Annotated[
        str | None, typer.Option(metavar="ROWSxCOLUMNS", help="Image size for the memory estimate (default 224x224).")
    ] = None,
) -> Outcome:
    """Show what convert would do, without writing anything."""
    grid = size_of(size)
    from .commands.convert import plan_checkpoint

    return plan_checkpoint(checkpoint, opening=opening, include=include or (), exclude=exclude or (), size=grid)


@command(app, CONVERT, computes=True, example="weights.pth --arch timm:resnet18 --out attention")
def convert(
    checkpoint: CheckpointArgument,
    opening: Opening,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Folder to write (default NAME-attention).")
    ] = None,
    alpha: AlphaOption = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    device: DeviceOption = "cpu",
    dtype: DtypeOption = None,
    skip_unsupported: SkipOption = False,
    input_range: Annotated[
        str, typer.Option(metavar="LOW,HIGH", help="Range of image and activation values that the bounds assume.")
    ] = "-1,1",
    size: Annotated[
        str | None,
        typer.Option(metavar="ROWSxCOLUMNS", help="Image size for the bound on the whole network (default 224x224)."),
    ] = None,
    form: FormOption = None,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Write report.html.")] = True,
    force: ForceOption = False,
) -> Outcome:
    """Convert a CNN checkpoint or an ONNX network to self-attention."""
    limits, grid = range_of(input_range), size_of(size)
    target = out or named_after(checkpoint, "-attention")
    check_places(check_target, target, checkpoint, force=force)
    from .commands.convert import convert_checkpoint

    return convert_checkpoint(
        checkpoint,
        target,
        opening=opening,
        device=device,
        dtype=torch_dtype(dtype),
        include=include or (),
        exclude=exclude or (),
        alpha=alpha,
        skip_unsupported=skip_unsupported,
        input_range=limits,
        size=grid,
        form=form,
        force=force,
        page=page,
    )


@command(app, CONVERT, computes=True, example="attention --data pictures")
def verify(
    checkpoint: Annotated[
        Path | None,
        typer.Argument(
            metavar="CHECKPOINT", help="Checkpoint (as for convert). Without one, random layers are verified."
        ),
    ] = None,
    *,
    opening: Opening,
    alpha: AlphaOption = None,
    skip_unsupported: SkipOption = False,
    engine: EngineOption = None,
    device: DeviceOption = "cpu",
    dtype: DtypeOption = None,
    inputs: InputOptions,
    original: Annotated[
        Path | None, typer.Option(metavar="FILE", help="ONNX file that the folder was converted from.")
    ] = None,
    form: FormOption = None,
    whole: Annotated[
        bool,
        typer.Option("--all", help="Compare all elements of outputs, not a sample, and print all measurements."),
    ] = False,
    out: ResultOption = None,
) -> Outcome:
    """Compare a converted network with its CNN. Check each difference against its proved bound.

    Without --arch, an ONNX file is run in ONNX Runtime and compared with its converted form. Without CHECKPOINT,
    --random N verifies N random layers, as soak does. For random images, --size may also give the
    channels: 3x224x224.
    """
    if checkpoint is None and inputs.count is None:
        raise MisuseError(
            "CHECKPOINT is missing: conv2attn verify attention checks what convert wrote, "
            "conv2attn verify --random 100 checks random layers"
        )
    from .commands.verify import verify_chosen

    return verify_chosen(
        checkpoint,
        opening=opening,
        inputs=inputs,
        alpha=alpha,
        skip_unsupported=skip_unsupported,
        engines=engine,
        device=device,
        dtype=dtype,
        original=original,
        form=form,
        whole=whole,
        out=out,
    )


@command(app, CONVERT, computes=True, example="attention --out page.html")
def show(
    opening: Opening,
    source: Annotated[
        Path | None, typer.Argument(metavar="FOLDER|CHECKPOINT", help="Output of convert or learn, or a checkpoint.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Picture (.png, .svg, .pdf) or page (default NAME.html)."),
    ] = None,
    article: Annotated[
        bool, typer.Option("--article", help="Write the interactive article on the theorem. No CHECKPOINT is needed.")
    ] = False,
    layer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Show only this layer. For the output of learn, give the layer's number."),
    ] = None,
    picture: Annotated[
        Picture | None, typer.Option(help="Kind of picture (default maps; contours for the output of learn).")
    ] = None,
    image: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Image to show attention on (default: a generated image).")
    ] = None,
    *,
    pictures: InputOptions,
    query: Annotated[
        str | None, typer.Option(metavar="ROW,COLUMN", help="Query pixel of the image (default: its centre).")
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(parser=alpha_of, metavar="NUMBER", help="Sharpness of attention (default: each layer's own)."),
    ] = None,
    force: ForceOption = False,
) -> Outcome:
    """Draw where heads look, as a picture or a page. With --article, write the interactive article instead."""
    if article:
        chosen = {"FOLDER|CHECKPOINT": source, "--layer": layer, "--picture": picture, "--image": image}
        for name in (name for name, value in chosen.items() if value is not None):
            raise MisuseError(f"{name} has no meaning for the article")
        from .commands.show import show_article

        show_article(out := out or Path("article.html"), force=force)
        return wrote(out)
    if source is None:
        raise MisuseError(
            "FOLDER|CHECKPOINT is missing: conv2attn show attention draws a network, "
            "conv2attn show --article writes the article"
        )

    out = out or named_after(source, ".html")
    pixel = None if query is None else pixel_of(query)
    from .commands.show import View
    from .commands.show import show as show_source

    view = View(layer, image, pictures.size, pixel, alpha, picture, pictures.normalization)
    return wrote(out, layers=show_source(source, out, view, opening, force=force))


@command(app, CONVERT, example="attention --out weights.pth")
def restore(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR|CHECKPOINT", help="Output of convert or, with --arch, the state dict of a converted network."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="File to write: .safetensors, .pth or .pt.")],
    opening: Opening,
    ungraft: Annotated[
        bool, typer.Option("--ungraft", help="Remove the heads that graft added, even if they are trained.")
    ] = False,
    force: ForceOption = False,
) -> Outcome:
    """Write the state dict of the original CNN, bit for bit."""
    read = [source / CONFIG, source / WEIGHTS]
    check_places(check_file, out, source, force=force, sources=read, endings=RESTORED)
    from .commands.restore import restore_file

    return restore_file(source, out, opening, ungraft=ungraft, force=force)


@command(app, CONVERT, computes=True, example="attention --out attention.onnx")
def export(
    source: CheckpointArgument,
    opening: Opening,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="File to write (default NAME.onnx).")
    ] = None,
    alpha: AlphaOption = None,
    skip_unsupported: SkipOption = False,
    size: ImageSizeOption = None,
    input_: InputOption = None,
    form: FormOption = None,
    force: ForceOption = False,
) -> Outcome:
    """Export a converted network as an ONNX file. A CNN is converted first."""
    from .convert.input_specs import parse_inputs

    specs, grid = parse_inputs(input_ or ()), size_of(size)
    target = out or named_after(source, ".onnx")
    check_places(check_file, target, source, force=force, endings=[".onnx"])
    from .commands.export import export_network

    return export_network(
        source,
        target,
        opening=opening,
        alpha=alpha,
        skip_unsupported=skip_unsupported,
        size=grid,
        form=form,
        force=force,
        inputs=specs,
    )


@command(app, CONVERT, computes=True, example="weights.pth network.onnx --arch timm:resnet18 --random 4")
def same(
    a: Annotated[
        Path, typer.Argument(metavar="A", help="Checkpoint (as for convert), ONNX file, or values written by record.")
    ],
    b: Annotated[Path, typer.Argument(metavar="B", help="The other network, in any of these forms.")],
    openings: tuple[Opening, ...],
    inputs: InputOptions,
    dtype: DtypeOption = None,
    unit: Annotated[
        list[str] | None,
        typer.Option(metavar="UNIT", help='Rounding to allow, e.g. "bfloat16 products". Repeatable.'),
    ] = None,
    blocks: Annotated[
        bool,
        typer.Option("--blocks", help="Compare block by block, running each block of A on the input of B's block."),
    ] = False,
    prove: Annotated[
        bool,
        typer.Option(
            "--prove", help="Prove a bound on the rounding error. Takes as long as several hundred runs on each image."
        ),
    ] = False,
    out: ResultOption = None,
) -> Outcome:
    """Say whether two networks differ only by rounding.

    From a folder, only the first eight images are used; --data also takes a file of inputs (.npy, .npz or .pt).
    Exit codes: 0: same bits, rounding, or coarser rounding that --unit allows. 1: not rounding, biased rounding,
    other coarser rounding, or quantised. 5: cannot say.
    """
    from .commands.same import same_files

    with result_file(out, "same", sources=[a, b]) as write:
        found = same_files(
            a,
            b,
            openings=openings,
            chosen=inputs,
            dtype=torch_dtype(dtype),
            prove=prove,
            units=unit or (),
            is_by_block=blocks,
        )
        write(found)
    return found


@command(app, CONVERT, computes=True, example="weights.pth --arch timm:resnet18 --out values.safetensors")
def record(
    checkpoint: CheckpointArgument,
    opening: Opening,
    inputs: InputOptions,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="File to write (default NAME-values.safetensors)."),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Modules whose results are written (default: all). Repeatable."),
    ] = None,
    force: ForceOption = False,
) -> Outcome:
    """Record a network's values, to compare them on another machine.

    The file holds inputs, outputs and intermediate values; the command "same" reads it.
    """
    target = out or named_after(checkpoint, "-values.safetensors")
    check_places(check_file, target, checkpoint, force=force, endings=[".safetensors"])
    from .commands.same import record_file

    return record_file(checkpoint, target, opening=opening, chosen=inputs, values=values or (), force=force)


@command(app, CONVERT, example="--out demo")
def demo(
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Folder to write (default ./conv2attn-demo).")
    ] = None,
    images: Annotated[int, typer.Option(min=1, max=100_000, help="Number of held-out images to generate.")] = 300,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the images.")] = None,
) -> Outcome:
    """Convert three trained CNNs, and compare each with its attention."""
    from .commands.demo import DEFAULT_FOLDER, PASSES, run_demo
    from .convert.examples.images import HELD_OUT_SEED

    seed = HELD_OUT_SEED if seed is None else seed
    with progress("Running CNN and attention", total=PASSES * images) as advance:
        return run_demo(out or DEFAULT_FOLDER, count=images, seed=seed, progress=advance)


@command(app, TRAIN, computes=True, example="net.pth --arch net.py:Net --out grafted")
def graft(
    checkpoint: Annotated[
        Path | None,
        typer.Argument(metavar="CHECKPOINT", help="The CNN (default with --data: a newly trained small CNN)."),
    ] = None,
    *,
    opening: Opening,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Folder to write (default NAME-grafted).")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help='Layers to graft: a name, a pattern or "last" (default: chosen by number of pixels). Repeatable.',
        ),
    ] = None,
    heads: Annotated[int, typer.Option(metavar="N", min=1, help="Heads to add to each layer.")] = 1,
    key_dim: Annotated[int | None, typer.Option(metavar="N", min=1, help="Width of a head's queries and keys.")] = None,
    value_dim: Annotated[int | None, typer.Option(metavar="N", min=1, help="Width of a head's values.")] = None,
    beside: Annotated[
        bool, typer.Option("--beside", help="Place heads beside the convolution, not before it.")
    ] = False,
    positions: Annotated[
        bool, typer.Option("--positions", help="Let attention depend on relative positions, too.")
    ] = False,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="Data to compare on: digits, drawn (generated), cifar10:PATH or folder:PATH (needs conv2attn[learn]).",
        ),
    ] = None,
    pictures: InputOptions,
    epochs: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Epochs (default: 10, more for few images).")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Global batch size (default: at most 64).")
    ] = None,
    lr: Annotated[
        list[float] | None,
        typer.Option(
            callback=positive,
            metavar="RATE",
            help="Learning rate. Repeatable: the best is used (default: up to five).",
        ),
    ] = None,
    weight_decay: Annotated[float, typer.Option(metavar="NUMBER", min=0, help="Weight decay.")] = 0.01,
    seeds: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Seeds (default: 5; 3 with few images)."),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="First seed.")] = 0,
    accelerator: AcceleratorOption = "auto",
    devices: DevicesOption = 1,
    precision: PrecisionOption = "32-true",
    resume: Annotated[bool, typer.Option("--resume", help="Continue the runs in the folder.")] = False,
    force: ForceOption = False,
) -> Outcome:
    """Add attention heads to a CNN; they output 0 until trained. With --data, find out whether they pay off."""
    options = {"heads": heads, "key_dim": key_dim, "value_dim": value_dim, "beside": beside, "positions": positions}
    chosen: dict[str, Any] = {"opening": opening, "where": where or (), "options": options, "size": pictures.size}
    if data is None:
        if checkpoint is None:
            raise MisuseError(
                "CHECKPOINT is missing: conv2attn graft weights.pth --arch timm:resnet18 grafts a CNN, "
                "conv2attn graft --data digits --out compared trains a small one"
            )
        target = out or named_after(checkpoint, "-grafted")
        check_places(check_target, target, checkpoint, force=force)
        from .commands.graft import graft_checkpoint

        return graft_checkpoint(checkpoint, target, force=force, **chosen)
    check_data(data, pictures.size)
    if out is None:
        command = shlex.join(["conv2attn", *_arguments(), "--out", "compared"])
        raise MisuseError(f"--out is missing, the folder of the runs that --data makes: {command}")
    if force:
        raise MisuseError("--force has no meaning with --data, whose runs --resume continues")
    from dataclasses import replace

    from .commands.graft import compare_on_data
    from .learn.grafting import GRAFTING

    recipe = replace(GRAFTING, weight_decay=weight_decay, seed=seed)
    recipe = replace(recipe, lr=lr[0]) if lr else recipe
    return compare_on_data(
        checkpoint,
        out,
        data=data,
        normalization=pictures.normalization,
        recipe=recipe,
        epochs=epochs,
        batch_size=batch,
        rates=tuple(lr or ()),
        seeds=seeds,
        session=_session(accelerator, devices, precision, resume=resume),
        **chosen,
    )


@command(app, TRAIN, computes=True, example="trained --tolerance 0.05 --out frozen.pt2")
def freeze(
    checkpoint: CheckpointArgument,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FILE", help="File to write: a program (.pt2), or weights (.pth, .safetensors)."
        ),
    ],
    tolerance: Annotated[
        float,
        typer.Option(callback=positive, help="Largest allowed change in a layer's outputs, borders excluded."),
    ],
    opening: Opening,
    input_range: Annotated[
        str, typer.Option(metavar="LOW,HIGH", help="Range of each layer's input that the bounds assume.")
    ] = "-1,1",
    size: ImageSizeOption = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="Data on which to measure test accuracy before and after freezing (same KINDs as for graft).",
        ),
    ] = None,
    force: ForceOption = False,
) -> Outcome:
    """Turn trained attention back into convolutions. Kernels are as small as the tolerance allows."""
    limits, grid = range_of(input_range), size_of(size, axes=2)
    check_places(check_file, out, checkpoint, force=force, endings=FROZEN)
    if data is not None:
        check_data(data, None)
    from .commands.freeze import freeze_checkpoint

    return freeze_checkpoint(
        checkpoint,
        out,
        opening=opening,
        tolerance=tolerance,
        input_range=limits,
        size=grid,
        data=data,
        force=force,
    )


@command(app, TRAIN, computes=True, example="--data digits --out learned")
def learn(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to write.")] = Path("learned"),
    data: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="digits or drawn (a generated set), optionally with a side length (digits:16); cifar10:PATH; or "
            "folder:PATH.",
        ),
    ] = "digits",
    encoding: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Encodings, separated by commas: quadratic, gaussian, learned, learned+content, sinusoidal, absolute, "
            "or all; resnet10 and resnet18 train a residual network.",
        ),
    ] = "quadratic",
    recipe: Annotated[
        RecipeName,
        typer.Option(
            metavar="NAME",
            help="small (minutes on a CPU), medium (for inputs of 16x16 tokens) or paper (the paper's widths, and 300 "
            "epochs).",
        ),
    ] = "small",
    depth: Annotated[int | None, typer.Option(min=1, help="Number of attention blocks (default 6).")] = None,
    heads: Annotated[int | None, typer.Option(min=1, help="Number of heads in each block (default 9).")] = None,
    padding: Annotated[int, typer.Option(min=0, help="Width in pixels of the zero border that heads also see.")] = 0,
    epochs: Annotated[int | None, typer.Option(min=1, help="Number of epochs (default: the recipe's).")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs of each encoding, with seeds 0, 1, ...")] = 1,
    accelerator: AcceleratorOption = "auto",
    devices: DevicesOption = 1,
    precision: PrecisionOption = "32-true",
    resume: Annotated[bool, typer.Option("--resume", help="Continue the runs in the folder.")] = False,
) -> Outcome:
    """Train attention networks from scratch (Cordonnier et al., 2020)."""
    from .learn.kinds import encodings_of

    check_data(data, None)
    encodings = encodings_of(encoding)
    from .commands.learn import learn
    from .learn.experiment.recipes import setting_of

    return learn(
        data,
        encodings,
        setting_of(recipe, depth=depth, heads=heads, padding=padding, epochs=epochs),
        out,
        seeds=seeds,
        session=_session(accelerator, devices, precision, resume=resume),
    )


def _session(accelerator: str, devices: int, precision: str, *, resume: bool) -> Session:
    """How a command's runs are made: bars on a terminal, lines on standard error."""
    from .learn.training.recipe import Machine, Session

    return Session(Machine(accelerator, devices, precision), resume, sys.stderr.isatty(), partial(say, err=True))


@app.command(cls=Command, epilog="Example: conv2attn prove --show head-assembly", rich_help_panel=THEORY)
def prove(
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Check only this claim. Repeatable.")] = None,
    show: Annotated[
        str | None, typer.Option(metavar="NAME", help="Like --only, but also print the derivation.")
    ] = None,
    form: Annotated[ProofFormat, typer.Option("--format", help="Format of the printed derivations.")] = "text",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the derivations to a file.")
    ] = None,
    limit: Annotated[
        float | None, typer.Option(callback=positive, help="Processor seconds that each check may take (default 20).")
    ] = None,
) -> None:
    """Check, by proof or test, the claims behind the construction.

    Each claim is proved in Coq (see the command "formal"), proved by algebra, or tested on instances. Exit codes:
    1: a claim does not hold. 5: a check ran out of time.
    """
    from .commands.prove import prove_claims

    if code := prove_claims(only or (), show=show, form=form, out=out, limit=limit):
        raise typer.Exit(code)


@command(app, THEORY)
def claims() -> Outcome:
    """List the claims that the command "prove" checks."""
    from .commands.prove import list_claims

    return list_claims()


@command(app, THEORY)
def formal(
    limit: Annotated[
        float | None, typer.Option(callback=positive, help="Time limit for each file, in seconds (default 300).")
    ] = None,
) -> Outcome:
    """Have Coq check the theorems (needs Coq)."""
    from .proofs.formal.coq import DEFAULT_LIMIT, check_formal, sources

    with progress("Coq checks the theorems", total=len(sources())) as advance:
        return check_formal(limit=limit or DEFAULT_LIMIT, progress=advance)


@command(app, THEORY, example="attention")
def check(folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that convert wrote.")]) -> Outcome:
    """Check certificates with a verified program (needs a git clone).

    The program checks each layer's certificate (its proved bound). It was extracted from a Coq proof of its own
    correctness. To build it, run "make checker" in a clone of https://github.com/conv2attn/conv2attn.
    """
    from .proofs.formal.certificates import check_folder

    with progress("Checking certificates", total=None) as advance:
        return check_folder(folder, progress=advance)


@command(app, DEVELOPERS, example="--layers 1000")
def soak(
    layers: Annotated[
        int | None,
        typer.Option(min=1, max=10**12, help="Number of random layers (default 1000, or as many as --minutes allows)."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(callback=positive, help="Start no new layer after this time, in minutes.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed for the layers.")] = 0,
    engine: Annotated[
        list[str] | None,
        typer.Option(callback=one_of(ENGINE_NAMES), metavar="NAME", help="Engine to check. Repeatable (default: all)."),
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option(
            callback=one_of(DTYPE_NAMES),
            metavar="NAME",
            help="Precision of the layers. Repeatable (default: all).",
        ),
    ] = None,
    device: DeviceOption = "cpu",
    max_size: Annotated[int, typer.Option(min=1, max=64, help="Longest side of the layers' inputs, in pixels.")] = 64,
    first: Annotated[int, typer.Option(min=0, help="Index of the first layer.")] = 0,
    out: ResultOption = None,
) -> Outcome:
    """Try to break the theorem and the code with random layers."""
    from .commands.soak import soak_layers
    from .proofs.campaign.results import Settings

    settings = Settings.of(engine, dtype, device=device, max_size=max_size)
    return soak_layers(settings, layers, seed=seed, first=first, minutes=minutes, out=out)


def _arguments() -> list[str]:
    return [argument for argument in sys.argv[1:] if argument != _DEBUG]


def main() -> None:
    """Runs the command line, and turns every outcome into an exit code."""
    _run(_arguments() or ["--help"], lambda arguments: app(arguments, standalone_mode=False))


def main_same() -> None:
    """``c2a-same A B`` is ``conv2attn same A B``."""

    def run(arguments: list[str]) -> Any:
        program: Any = typer.main.get_command(app)
        alone, name = program.commands["same"], "c2a-same"
        alone.epilog = alone.epilog.replace("conv2attn same", name)
        prepare()
        return alone.main(arguments[1:], prog_name=name, standalone_mode=False, **program.context_settings)

    _run(["same", *(_arguments() or ["--help"])], run)


def _run(arguments: list[str], program: Callable[[list[str]], Any]) -> None:
    gc.set_threshold(50_000, 20, 100)  # torch is a million objects, which take long to scan
    atexit.register(gc.freeze)  # otherwise the interpreter scans all of torch once more at exit, for a second
    with ended_by_signals(arguments), nullcontext() if _DEBUG in sys.argv else libraries_quiet():
        prepare_streams()
        try:
            sys.exit(program(arguments) or 0)
        except Exception as error:
            if _DEBUG in sys.argv and not is_usage(error):
                say(*"".join(traceback.format_exception(error)).splitlines(), err=True)
            sys.exit(explain(error, arguments))
        except KeyboardInterrupt:  # before or after typer
            sys.exit(explain(InterruptedRunError(), arguments))


if __name__ == "__main__":
    main()
