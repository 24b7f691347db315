"""Language models: tokens, padding, blocks, and the same model served in other ways."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert.errors import ConversionError, OptionError
from conv2attn.convert.sameness.blockwise import same_blocks
from conv2attn.convert.sameness.recorded import record_values
from conv2attn.convert.sameness.same import same
from conv2attn.convert.sameness.serving import decode, left_padded, one_at_a_time, with_attention
from tests.language_models import VOCABULARY, Language, Output, language_model, some_ids
from tests.libraries import imported

HONEST = ("rounding", "same bits")
IDS = some_ids()
SERVED: dict[str, Callable[[Any], Any]] = {
    "decode": decode,
    "decode after a prefill": lambda model: decode(model, prefill=5),
    "one at a time": one_at_a_time,
    "left padding": lambda model: left_padded(model, 3),
    "eager attention": lambda model: with_attention(model, "eager"),
}


def masked() -> dict[str, Tensor]:
    """Rows of 12 and 8 tokens, padded on the left."""
    mask = torch.ones_like(IDS)
    mask[1, :4] = 0
    return {"input_ids": IDS, "attention_mask": mask}


@pytest.mark.parametrize("given", [IDS, masked()], ids=["ids", "padded"])
@pytest.mark.parametrize("way", SERVED)
def test_a_model_that_is_served_otherwise_differs_by_rounding(way: str, given: Any) -> None:
    model = language_model()
    found = same(model, SERVED[way](model), given)
    assert found.verdict in HONEST
    assert found.tokens is None or found.tokens.changed == 0


class LateByOne(Language):
    """Positions are counted from 1 behind a cache."""

    def forward(  # type: ignore[override]
        self, input_ids: Tensor, attention_mask: Any = None, position_ids: Any = None, **rest: Any
    ) -> Output:
        past = rest.get("past_key_values")
        if past is not None:
            position_ids = torch.full_like(input_ids, past[0][0].shape[2] + 1)
        return super().forward(input_ids, attention_mask, position_ids, **rest)


class AbsolutePositions(Language):
    """Positions are counted from the first token, padding or not."""

    def forward(  # type: ignore[override]
        self, input_ids: Tensor, attention_mask: Any = None, position_ids: Any = None, **rest: Any
    ) -> Output:
        return super().forward(input_ids, attention_mask, torch.arange(input_ids.shape[1])[None], **rest)


@pytest.mark.fault
@pytest.mark.parametrize(
    ("kind", "way"), [(LateByOne, "decode"), (AbsolutePositions, "left padding")], ids=["cache", "padding"]
)
def test_positions_that_are_off_by_one_are_found(kind: type[Language], way: str) -> None:
    model = kind().eval()
    model.load_state_dict(language_model().state_dict())
    found = same(model, SERVED[way](model), IDS)
    assert found.verdict == "not rounding"
    assert found.tokens is not None
    assert found.tokens.first is not None


def test_what_cannot_be_served_so_is_refused() -> None:
    with pytest.raises(ConversionError, match="prefill"):
        decode(language_model(), prefill=0)
    with pytest.raises(OptionError, match="no attention 'other'"):
        with_attention(language_model(), "other")
    with pytest.raises(OptionError, match="no choice"):
        with_attention(nn.Linear(1, 1), "eager")

    class Without(Language):
        def forward(self, input_ids: Tensor, **rest: Any) -> Output:  # type: ignore[override]
            return Output(logits=super().forward(input_ids).logits)

    with pytest.raises(ConversionError, match="gives no cache"):
        decode(Without().eval())(IDS)


class Seeing(Language):
    """A model that adds an image's features where its token 3 stands, and gives them, too."""

    def forward(  # type: ignore[override]
        self, input_ids: Tensor, pixel_values: Tensor | None = None, **rest: Any
    ) -> Output:
        places = input_ids == 3
        if (pixel_values is not None) != bool(places.any()):
            raise ValueError("image features and image tokens do not match")
        found = super().forward(input_ids, **rest)
        if pixel_values is not None:
            seen = self.head(pixel_values)
            found.update(logits=found.logits + places[..., None] * seen[:, None], image=seen)
        return found


def seen() -> dict[str, Tensor]:
    """Ids with an image for each row."""
    ids = IDS.where(IDS != 3, 4)
    ids[:, 2] = 3
    return {"input_ids": ids, "pixel_values": torch.rand(2, 16)}


@pytest.mark.parametrize("way", ["decode after a prefill", "one at a time"])
def test_logits_of_a_model_that_gives_more_are_compared_where_it_is_served_otherwise(way: str) -> None:
    model, call = Seeing().eval(), seen()
    found = same(model, SERVED[way](model), call)
    assert found.verdict in HONEST
    assert [one.name for one in found.outputs] == ["logits"]
    assert any("image" in note for note in found.notes)


def test_outputs_that_were_not_recorded_are_left_out(tmp_path: Path) -> None:
    model, call = Seeing().eval(), seen()
    record_values(lambda **given: {"logits": model(**given).logits + 1e-7}, call, tmp_path / "run.safetensors")
    found = same(model, tmp_path / "run.safetensors")
    assert found.verdict == "rounding"
    assert [one.name for one in found.outputs] == ["logits"]


# Tokens


def moved(row: int, place: int, by: float) -> Callable[[Tensor], Output]:
    """The model with the most probable token of a place put behind the next one, by this much."""

    def run(ids: Tensor) -> Output:
        with torch.no_grad():
            logits = language_model()(ids).logits.clone()
        first, second = logits[row, place].topk(2).indices
        logits[row, place, first] = logits[row, place, second] - by
        return Output(logits=logits)

    return run


def test_the_first_token_that_changes_is_told_with_its_margin() -> None:
    found = same(language_model(), moved(1, 7, 0.01), IDS)
    tokens = found.tokens
    assert tokens is not None
    assert (tokens.count, tokens.changed, found.changed) == (IDS.numel(), 1, None)
    assert tokens.first is not None
    assert (tokens.first.row, tokens.first.place) == (1, 7)
    top = language_model()(IDS).logits[1, 7].detach().topk(2).values
    assert tokens.first.margin == pytest.approx(float(top[0] - top[1]), rel=1e-3)
    assert "token 7 of row 1" in str(found).replace("\n", " ")
    assert json.loads(json.dumps(found.to_dict()))["tokens"]["first"]["place"] == 7


def test_tokens_of_rows_that_are_padded_keep_their_places() -> None:
    def call(input_ids: Tensor, attention_mask: Tensor) -> Output:
        with torch.no_grad():
            logits = language_model()(input_ids, attention_mask).logits.clone()
        logits[1, 7] = -logits[1, 7]
        return Output(logits=logits)

    tokens = same(language_model(), call, masked()).tokens
    assert tokens is not None
    assert (tokens.count, tokens.changed) == (20, 1)
    assert tokens.first is not None
    assert (tokens.first.row, tokens.first.place) == (1, 7)
    assert tokens.log_probability is not None
    assert tokens.log_probability > 0.1


def test_of_token_ids_alone_count_and_first_flip_are_told_and_no_verdict_is_given() -> None:
    def generate(ids: Tensor, shift: int = 0, length: int = 4) -> Tensor:
        new = (ids[:, :length] * 3) % VOCABULARY
        new[1, 2:] = (new[1, 2:] + shift) % VOCABULARY
        return torch.cat([ids, new], 1)

    assert same(generate, lambda ids: generate(ids), IDS).verdict == "same bits"
    found = same(generate, lambda ids: generate(ids, 1), IDS)
    assert (found.verdict, found.exit_code) == ("cannot say", 5)
    assert "2 of 32 tokens differ, first token 14 of row 1" in found.sentence
    assert "logits" in found.remedy
    longer = same(generate, lambda ids: generate(ids, length=6), IDS)
    assert (longer.verdict, "first 16 are equal" in longer.sentence) == ("cannot say", True)


# Padding


@pytest.mark.fault
def test_what_a_side_gives_at_padding_does_not_matter_and_beside_it_does() -> None:
    def call(input_ids: Tensor, attention_mask: Tensor, place: int = 0) -> Output:
        with torch.no_grad():
            logits = language_model()(input_ids, attention_mask).logits.clone()
        logits[1, place] = float("nan") if place == 0 else 0.0
        return Output(logits=logits)

    found = same(language_model(), call, masked())
    assert found.verdict in HONEST
    assert found.outputs[0].shape == (20, VOCABULARY)
    assert any("4 of 24 tokens are padding" in note for note in found.notes)
    last = same(language_model(), lambda **given: call(**given, place=4), masked())
    assert last.verdict == "not rounding"


# Blocks


@pytest.mark.fault
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_wrong_block_is_named_and_no_other_is_blamed(dtype: torch.dtype) -> None:
    model = language_model().to(dtype)
    wrong = with_attention(copy.deepcopy(model), "eager")
    wrong.layers[1].norm.eps = 1e-1  # type: ignore[index,union-attr]
    found = same_blocks(model, wrong, IDS)
    verdicts = {one.name: one.found.verdict for one in found.blocks}
    assert [name for name, verdict in verdicts.items() if verdict not in HONEST] == ["layers.1"]
    assert (found.verdict, found.exit_code) == ("not rounding", 1)
    assert found.sentence.startswith("In `layers.1`: ")
    assert found.blocks[-1].apart > 0
    assert json.loads(json.dumps(found.to_dict()))["blocks"][3]["name"] == "layers.1"


def test_blocks_of_an_honest_pair_are_all_rounding() -> None:
    found = same_blocks(language_model(), with_attention(language_model(), "eager"), masked())
    assert {one.name for one in found.blocks} >= {"layers.0", "layers.1", "layers.2", "head"}
    assert (found.verdict, found.exit_code) == ("rounding", 0)


def test_what_has_no_blocks_is_refused() -> None:
    with pytest.raises(OptionError, match="no blocks"):
        same_blocks(nn.Linear(2, 2), nn.Linear(2, 2), torch.rand(1, 2))
    with pytest.raises(OptionError, match="must be a network"):
        same_blocks(language_model(), decode(language_model()), IDS)  # type: ignore[arg-type]
    shorter = language_model()
    del shorter.layers[2]
    with pytest.raises(OptionError, match=r"no module layers\.2"):
        same_blocks(language_model(), shorter, IDS)


# transformers' own models

_SIZES: dict[str, Any] = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2}
_HEADS: dict[str, Any] = {**_SIZES, "intermediate_size": 48, "num_attention_heads": 2}
TRANSFORMERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Llama": ("LlamaForCausalLM", "LlamaConfig", _HEADS),
    "GPT-2": ("GPT2LMHeadModel", "GPT2Config", {"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 2}),
    "Mixtral": (
        "MixtralForCausalLM",
        "MixtralConfig",
        {**_HEADS, "num_key_value_heads": 2, "num_local_experts": 4},
    ),
    "Mamba": ("MambaForCausalLM", "MambaConfig", {**_SIZES, "state_size": 4}),
}


@pytest.mark.libraries
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_model_of_transformers_is_the_same_however_it_is_served(name: str, dtype: torch.dtype) -> None:
    library = imported("transformers")
    kind, config, options = TRANSFORMERS[name]
    torch.manual_seed(0)
    model = getattr(library, kind)(getattr(library, config)(**options)).eval().to(dtype)
    ids = torch.randint(0, 100, (2, 12), generator=torch.Generator().manual_seed(0))
    for way in ("decode after a prefill", "one at a time", *(("left padding", "eager attention") * (name != "Mamba"))):
        found = same(model, SERVED[way](model), ids)
        assert found.verdict in HONEST, (way, found.sentence)
