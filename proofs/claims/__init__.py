r"""Self-attention computes convolution: the proofs.

A convolution is a multi-head self-attention layer with one head for each tap of its kernel. This is what the
construction, its certificate and its engines rely on: statements, each with its scope, a derivation, and a word on what
stands behind it.

- *proved*: Coq's kernel accepts a proof of the statement (`conv2attn formal`), which is printed last, as Coq has it.
  Definitions and axioms are in `proofs/formal/README.md`.
- *proved by algebra*: the derivation's formulas are decided by sympy for all values of their symbols, or in exact
  arithmetic.
- *tested*: the derivation is an argument for all cases; those that are named beside a check are computed.

No verdict is written by hand: `conv2attn prove` runs every check, and for each a false variant is planted in the tests.
What a formula prints is the expression that its check decides. The paper is Cordonnier, Loukas and Jaggi, ICLR 2020
(arXiv 1911.03584); the draft, the article and the talk are the texts of it that this project started from.

| symbol | meaning |
| --- | --- |
| $q, k$ | positions of a query and of a key on the padded input, a number for each axis |
| $\delta = k - q$ | relative position |
| $\Delta_h$ | centre of attention of head $h$: the offset of the kernel tap that it plays |
| $\alpha_h$ | sharpness of head $h$; the index is left out where one head is meant |
| $r_\delta \in \mathbb{R}^{D_p}$ | relative positional encoding |
| $v_h \in \mathbb{R}^{D_p}$ | the vector that head $h$ compares $r_\delta$ with |
| $W_\Delta$ | slice of the kernel at tap $\Delta$, of size $C_{out} \times C_{in}$ |
"""
