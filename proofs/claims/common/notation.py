"""The symbols that several claims share."""

from __future__ import annotations

import sympy as sp

alpha = sp.Symbol("alpha", real=True)
delta_1, delta_2, Delta_1, Delta_2 = sp.symbols("delta_1 delta_2 Delta_1 Delta_2", real=True)
