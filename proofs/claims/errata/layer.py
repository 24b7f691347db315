"""Errata of the draft's section 2.2: the attention layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy
from sympy.matrices.exceptions import ShapeError

from ...prover.decide import Expr
from ...prover.old.claim import Claim, Formula, Kind
from .erratum import Erratum, Finding, Source, claim_of, words

T, D, D_HEAD, HEADS = 7, 5, 2, 3  # different numbers, so that a mix-up shows

Alternative = tuple[tuple[int, int], Callable[[list[Expr]], Expr]]


def name_failures(lists: tuple[Sequence[str], Sequence[str]]) -> list[str]:
    """Whether every parameter is declared once, and exactly the declared ones are used."""
    declared, used = lists
    failures = [
        f"{name} is declared {declared.count(name)} times" for name in set(declared) if declared.count(name) > 1
    ]
    failures += [f"{name} is used and not declared" for name in set(used) - set(declared)]
    return failures + [f"{name} is declared and not used" for name in set(declared) - set(used)]


def shape_failures(alternatives: Sequence[Alternative]) -> list[str]:
    """Whether Y = combine(A_k X W_k) W^O has the shape of X for one of the declared shapes of W_k."""
    failures = []
    for shape, combine in alternatives:
        try:
            X, W_O = sympy.MatrixSymbol("X", T, D), sympy.MatrixSymbol("W_O", HEADS * D_HEAD, D)
            heads = [sympy.MatrixSymbol(f"A{k}", T, T) * X * sympy.MatrixSymbol(f"W{k}", *shape) for k in range(HEADS)]
            output = combine(heads) * W_O
        except ShapeError as error:
            failures.append(f"W_k of shape {shape}: {error}")
        else:
            return [] if output.shape == (T, D) else [f"the output has shape {output.shape}"]
    return failures


def concatenated(heads: list[Expr]) -> Expr:
    """The heads side by side."""
    return sympy.BlockMatrix([heads])


def added(heads: list[Expr]) -> Expr:
    """The sum of the heads."""
    return sympy.MatAdd(*heads)


def output_failures(layer: Callable[[Expr, Expr, Expr], Expr]) -> list[str]:
    """Whether some v and c make layer(x, v, c) the 1 x 1 convolution w x + b, whatever w and b."""
    x, v, c, w, b = sympy.symbols("x v c w b")
    equations = sympy.Poly(layer(x, v, c) - (w * x + b), x).all_coeffs()
    solutions = sympy.solve(equations, [v, c], dict=True)
    solved = any(all(sympy.expand(equation.subs(s)) == 0 for equation in equations) for s in solutions)
    return [] if solved else [f"{layer(x, v, c)} = w x + b for all x has no solution in v and c"]


AUTHORS_NOTE = 'The author\'s note beside these equations asks to "check dimensions and readability".'


def claims() -> list[Claim]:
    """The entries, as claims."""
    return [claim_of(erratum) for erratum in entries()]


def entries() -> list[Erratum]:
    """The entries, in the order of the text."""
    return [_names(), _shapes(), _bias()]


def _names() -> Erratum:
    return Erratum(
        name="parameter-names",
        title="Parameters declared twice, or never",
        source=Source.DRAFT,
        place="section 2.2, before and in eq. (2)-(4)",
        quotation=Formula(
            r"W^Q \text{ query layer}, W^V \text{ key layer}, W^V \text{ value layer, a projection layer } W^Q"
            r" \text{ and output layer } W^O;\quad W^K_k, W^Q_k, W^P_k, W^O",
            '"W^Q query layer, W^V key layer, W^V value layer, a projection layer W^Q and output layer W^O"; W^K_k, '
            "W^Q_k, W^P_k, W^O",
        ),
        premise="The sentence declares the parameters of the layer, the equations use them.",
        finding=Finding.MISPRINT,
        corrected=Formula(
            r"W^Q, W^K, W^V \in \mathbb{R}^{K \times d \times d_h},\ W^O \in \mathbb{R}^{(K d_h) \times d}",
            "W^Q, W^K, W^V in R^(K x d x d_h) and W^O in R^((K d_h) x d), each used once in eq. (2)-(4)",
        ),
        reason="$W^V$ and $W^Q$ are declared twice, $W^K$ and $W^P$ never; the value layer is not used.",
        consequence="Eq. (3) uses $W^V$; no further projection is needed beside $W^O$. The article has these names.",
        holds=name_failures,
        as_printed=(("W^Q", "W^V", "W^V", "W^Q", "W^O"), ("W^K", "W^Q", "W^P", "W^O")),
        as_corrected=(("W^Q", "W^K", "W^V", "W^O"), ("W^Q", "W^K", "W^V", "W^O")),
        credit=AUTHORS_NOTE,
        kind=Kind.EXACT,
    )


def _shapes() -> Erratum:
    return Erratum(
        name="shapes",
        title="Heads are concatenated, not added",
        source=Source.DRAFT,
        place="section 2.2, eq. (3)-(4)",
        quotation=Formula(
            r"H_{t, :} = \sum_{k \in 1, \dots, K} A_k X W^P_k,\quad Y_{t, :} = H_{t, :} W^O + X_{t, :}",
            "H_{t,:} = sum_{k in 1,...,K} A_k X W^P_k, Y_{t,:} = H_{t,:} W^O + X_{t,:}",
        ),
        premise=(
            "$W^O$ is in $R^((K d_h) x d)$; the value layer is in $R^(K x d x d_h)$, the projection layer in "
            "$R^(K x d_h x d)$."
        ),
        finding=Finding.MISPRINT,
        corrected=Formula(
            r"H = \bigl[ A_1 X W^V_1 \ \cdots \ A_K X W^V_K \bigr] \in \mathbb{R}^{T \times K d_h},\quad Y = H W^O + X",
            "H = [A_1 X W^V_1 ... A_K X W^V_K] in R^(T x K d_h), Y = H W^O + X",
        ),
        reason=(
            "A sum of heads has $d_h$ columns if $W^P_k$ is $d x d_h$, and $X W^P_k$ does not exist if it is $d_h x d$."
        ),
        consequence=(
            "With $W^O$ cut into $K$ blocks, $Y = sum_k A_k X W^V_k W^O_k + X$: the sum of eq. (3), behind $W^O$."
        ),
        holds=shape_failures,
        as_printed=(((D, D_HEAD), added), ((D_HEAD, D), added)),
        as_corrected=(((D, D_HEAD), concatenated),),
        credit=AUTHORS_NOTE,
        kind=Kind.INSTANCES,
        cases=(f"$T = {T}$, $d = {D}$, $d_h = {D_HEAD}$, $K = {HEADS}$",),
    )


def _bias() -> Erratum:
    return Erratum(
        name="bias",
        title="The output needs a bias",
        source=Source.ARTICLE,
        place="section Multi-Head Self-Attention Layer; so does the draft's eq. (4)",
        quotation=words(
            "along with a projection matrix W_out used to assemble all heads together",
            r"\text{``along with a projection matrix } W_{out} \text{ used to assemble all heads together''}",
        ),
        premise="The layer has a key, a query and a value matrix for each head and this projection; the convolution "
        "has a bias vector.",
        finding=Finding.OPEN,
        corrected=Formula(
            r"Y = \operatorname{concat}_h (A_h X W^{(h)}_{val}) W_{out} + b_{out}",
            "Y = concat_h (A_h X W^(h)_val) W_out + b_out",
        ),
        reason="Without a bias $X = 0$ gives $Y = 0$, but a convolution gives its bias.",
        consequence=(
            "The bias of the output projection is the convolution's. A residual as in the draft's eq. (4) does no "
            "harm if $C_in = C_out$: the head at $Delta = 0$ takes $W_0$ minus the identity."
        ),
        holds=output_failures,
        as_printed=lambda x, v, c: v * x,
        as_corrected=lambda x, v, c: v * x + c,
        kind=Kind.INSTANCES,
        cases=("one pixel, one channel, symbolic $w$ and $b$",),
    )
