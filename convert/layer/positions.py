"""Where the heads of a layer look, and how sharply: numbers of Python, or two parameters.

Positions at rest are numbers that the layer holds beside its parameters. They are no parameters and no buffers, which
would be inputs of every graph and could be written to in vain. ``alpha`` and ``centers`` are properties that make new
tensors of them, which are only looked at, and state dicts hold these tensors.

Trained positions are two parameters: ``log_alpha``, whose exponential is alpha, positive whatever a step of training
does, and ``centers``. No call reads their values, so a GPU never waits for them. A state dict holds these two; a layer
of either kind takes the positions of the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..arguments import as_number
from ..errors import ConversionError
from ..heads.regime import EXACT_ALPHA, Positions, Regime, compute_dtype
from ..heads.sharpness import ONE_PIXEL
from ..heads.values import constant
from ..listed import ListedModule
from ..spec import ConvSpec

_UNCHANGED: Any = object()
_POSITIONS, TRAINED = ("alpha", "centers"), "log_alpha"
_INSTEAD = (
    "layer.set_positions(alpha=..., centers=...) sets them, and melt(layer) or layer.train_positions() makes them train"
)
_ASSIGNED = f"alpha and centers at rest are numbers, not parameters: {_INSTEAD}"
_WRITES = ("__setitem__", "__set__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__")


class Shown(Tensor):
    """A tensor made of a layer's numbers, which to write to, or to ask for a gradient of, would change nothing.

    Raises:
        ConversionError: By whatever writes to it. What is computed of it is an ordinary tensor.
    """

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs what only reads."""
        name = getattr(func, "__name__", "")
        if name in _WRITES or (name.endswith("_") and not name.endswith("__") and isinstance(args[0], Shown)):
            raise ConversionError(
                f"alpha and centers are copies of a layer's numbers, so writing to them changes nothing: {_INSTEAD}"
            )
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copies and pickles it as an ordinary tensor."""
        return self.as_subclass(Tensor).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Tensor:
        """Likewise."""
        return self.as_subclass(Tensor).clone()


class HeadPositions(ListedModule):
    """A module with a geometry whose heads look at places that are numbers, or trained.

    Attributes:
        spec: The geometry.
        alpha_follows_dtype: Whether alpha is the one with which attention is one-hot in whatever precision.
        log_alpha: Logarithm of the sharpness of each head, [num_heads], where positions are trained.
    """

    spec: ConvSpec
    alpha_follows_dtype: bool

    def _rest_at_taps(self, alpha: float | None, dtype: torch.dtype) -> None:
        self.alpha_follows_dtype = alpha is None
        self._hold(Regime.of(self.spec, alpha=check_alpha(alpha, dtype), centers=self.spec.tap_offsets, dtype=dtype))

    @property
    def trains_positions(self) -> bool:
        """Whether alpha and centers are parameters."""
        return TRAINED in self._parameters

    @property
    def regime(self) -> Regime:
        """The positions as numbers, and what they allow; reads them where they are trained."""
        if not self.trains_positions:
            return self._regime
        limits = torch.finfo(self._regime.dtype)
        alpha = self._alpha().detach().clamp(limits.tiny, limits.max)  # which an exponential may leave
        return Regime.of(self.spec, alpha=alpha, centers=self.centers.detach(), dtype=self._regime.dtype)

    @property
    def positions(self) -> Positions:
        """Where the heads look, and how sharply, as numbers; ``set_positions`` changes them."""
        return Positions(self.regime.alpha, self.regime.centers)

    def set_positions(self, *, alpha: Any = _UNCHANGED, centers: Any = _UNCHANGED) -> None:
        """Sets where the heads look, and how sharply.

        Positions are numbers about the grid, not about the channels: they are kept in double precision in a layer of
        float64, and in single precision in any other.

        Args:
            alpha: Sharpness of all heads, or of each: [num_heads]. None means so large that attention is
                exactly one-hot, in whatever precision the layer is converted to later.
            centers: Centre of each head, its offset from the query in pixels (row, column): [num_heads, axes].

        Raises:
            ConversionError: A strength is not positive and finite, or a shape is wrong. Nothing is changed then.
        """
        regime, follows = self.regime, self.alpha_follows_dtype
        if alpha is _UNCHANGED:
            alpha = regime.alpha
        else:
            follows = alpha is None
            alpha = EXACT_ALPHA[regime.dtype] if alpha is None else alpha
        places = regime.centers if centers is _UNCHANGED else centers
        self._hold(Regime.of(self.spec, alpha=alpha, centers=places, dtype=regime.dtype))
        self.alpha_follows_dtype = follows

    def train_positions(self) -> None:
        """Makes alpha and centers parameters, in place.

        The function of the layer stays what it was. From the exact regime on (alpha 104 in single precision) positions
        have no gradient: ``set_positions`` before, or ``melt``, makes attention soft.
        """
        if self.trains_positions:
            return
        device, regime = next(self.parameters()).device, self._regime
        alpha = constant(regime.alpha, torch.float64, device)
        centers = constant(regime.centers, regime.dtype, device)
        self._parameters[TRAINED] = nn.Parameter(alpha.log().to(regime.dtype))
        self._parameters["centers"] = nn.Parameter(centers)

    def rest_positions(self) -> None:
        """Makes positions that were trained numbers again, which the fastest engines need."""
        if self.trains_positions:
            self._regime, self.alpha_follows_dtype = self.regime, False
            del self._parameters[TRAINED], self._parameters["centers"]

    def _hold(self, regime: Regime) -> None:
        self._regime = regime
        if self.trains_positions:
            with torch.no_grad():
                self.get_parameter(TRAINED).copy_(torch.tensor(regime.alpha, dtype=torch.float64, device="cpu").log())
                self.get_parameter("centers").copy_(torch.tensor(regime.centers, dtype=regime.dtype, device="cpu"))

    @property
    def alpha(self) -> Tensor:
        """Sharpness of each head, positive, [num_heads]: a new tensor at each access, in at least float32."""
        found = self._alpha()
        return found.as_subclass(Shown) if type(found) is Tensor else found  # which a sharded one cannot be

    @alpha.setter
    def alpha(self, value: Any) -> None:
        raise ConversionError(_ASSIGNED)

    @property
    def centers(self) -> Tensor:
        """Centre of each head, its offset from the query in pixels (row, column), [num_heads, axes].

        A new tensor at each access where positions rest, the parameter where they are trained.
        """
        trained = self._parameters.get("centers")
        return self._shown(self._regime.centers) if trained is None else trained

    @centers.setter
    def centers(self, value: Any) -> None:
        raise ConversionError(_ASSIGNED)

    def _alpha(self) -> Tensor:
        trained = self._parameters.get(TRAINED)
        return self._shown(self._regime.alpha) if trained is None else trained.exp()

    def _shown(self, values: Any) -> Tensor:
        device = next((p.device for p in self._parameters.values() if p is not None), torch.device("cpu"))
        device = torch.device("cpu") if device.type == "meta" else device  # numbers have values everywhere
        return constant(values, self._regime.dtype, device).as_subclass(Shown)

    def _trained(self) -> tuple[Tensor, Tensor]:
        """Alpha and centers where they are parameters, as a call takes them."""
        alpha, centers = self._alpha(), self.centers
        if alpha.dtype != compute_dtype(alpha.dtype):
            raise ConversionError(f"positions must be at least float32; got {alpha.dtype}")
        return alpha, centers

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """As ``nn.Module``'s, which assigning a parameter calls; positions at rest are none."""
        if name in _POSITIONS and name not in self._parameters:
            raise ConversionError(_ASSIGNED)
        super().register_parameter(name, param)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if not self.trains_positions:
            for name in _POSITIONS:
                destination[prefix + name] = getattr(self, name).as_subclass(Tensor)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        state, rest = dict(state_dict), (local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        if self.trains_positions:
            alpha = state.pop(prefix + "alpha", None)  # of a layer whose positions rest
            if alpha is not None:
                state.setdefault(prefix + TRAINED, alpha.double().log().to(self._regime.dtype))
            return super()._load_from_state_dict(state, prefix, *rest)
        own = (*_POSITIONS, TRAINED)
        found = {name: state.pop(prefix + name) for name in own if prefix + name in state}
        super()._load_from_state_dict(state, prefix, *rest)
        if TRAINED in found:  # of a layer whose positions were trained
            found["alpha"] = found.pop(TRAINED).double().exp()
        missing_keys += [prefix + name for name in _POSITIONS if name not in found and strict]
        try:
            self._load_positions(found)
        except ConversionError as error:
            error_msgs.append(f"positions of {prefix.removesuffix('.') or 'the layer'}: {error}")
        return None

    def _load_positions(self, found: Mapping[str, Any]) -> None:
        """Sets positions of a state dict; an alpha that followed the precision it was saved in follows this layer's."""
        found = {name: value for name, value in found.items() if not value.is_meta}
        alpha = found.get("alpha")
        follows = self.alpha_follows_dtype
        if follows and alpha is not None and bool((alpha == EXACT_ALPHA.get(alpha.dtype, 0.0)).all()):
            found["alpha"] = None
        self.set_positions(**found)
        self.alpha_follows_dtype = follows

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """As ``nn.Module``'s; positions never get less than float32, whether they are numbers or parameters."""
        precise = [p for p in map(self._parameters.get, (TRAINED, "centers", "spare_position")) if p is not None]
        kept = {id(tensor) for one in precise for tensor in (one, one.grad) if tensor is not None}

        def apply(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            dtype = compute_dtype(moved.dtype)
            if id(tensor) not in kept or moved.dtype == dtype:
                return moved
            return tensor.to(device=moved.device, dtype=dtype)

        super()._apply(apply, recurse)  # type: ignore[no-untyped-call]
        dtype = compute_dtype(fn(torch.empty(0, dtype=self._regime.dtype, device="cpu")).dtype)
        if dtype != self._regime.dtype:
            alpha: Any = self._regime.alpha
            if self.alpha_follows_dtype and set(alpha) == {EXACT_ALPHA[self._regime.dtype]}:
                alpha = EXACT_ALPHA[dtype]  # stays one-hot
            self._regime = Regime.of(self.spec, alpha=alpha, centers=self._regime.centers, dtype=dtype)
        return self


def check_alpha(alpha: float | None, dtype: torch.dtype) -> float:
    """The sharpness for a layer of this dtype; None means the exact regime.

    Raises:
        ConversionError: alpha is not positive and finite in this dtype.
    """
    precise = compute_dtype(dtype)
    if alpha is None:
        return EXACT_ALPHA[precise]
    alpha = as_number(alpha, "alpha")
    if not 0 < torch.tensor(alpha, dtype=precise, device="cpu").item() < math.inf:
        raise ConversionError(f"alpha must be positive and finite in {precise} ({ONE_PIXEL}); got {alpha:g}")
    return alpha
