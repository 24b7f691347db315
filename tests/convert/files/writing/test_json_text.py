"""JSON that is written is ASCII, without NaN, and says what it was made of."""

from __future__ import annotations

import json
import math
from collections import OrderedDict

import pytest

from conv2attn.convert.files.plain import check_unicode, json_text


def test_numbers_that_json_does_not_have_are_texts_that_float_reads() -> None:
    numbers = [math.nan, math.inf, -math.inf, 0.0, -0.5, 1.5, 5e-324, -1e308, 2**70]
    written = json_text(numbers)
    assert json.loads(written) == ["NaN", "Infinity", "-Infinity", 0.0, -0.5, 1.5, 5e-324, -1e308, 2**70]
    assert [str(float(text)) for text in json.loads(written)[:3]] == ["nan", "inf", "-inf"]


def test_numbers_are_looked_for_in_everything_that_holds_any() -> None:
    data = {"a": [(math.inf, {"b": math.nan})], "c": OrderedDict(d=-math.inf), "e": None, "f": "text", "g": True}
    assert json.loads(json_text(data)) == {
        "a": [["Infinity", {"b": "NaN"}]],
        "c": {"d": "-Infinity"},
        "e": None,
        "f": "text",
        "g": True,
    }


def test_lines_are_indented_by_two_and_letters_are_ascii() -> None:
    assert json_text({"a": [1, "\N{GREEK SMALL LETTER ALPHA}\n"]}) == '{\n  "a": [\n    1,\n    "\\u03b1\\n"\n  ]\n}'


def test_what_is_not_plain_data_is_refused_unless_told_how_to_be() -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        json_text({1, 2})
    assert json.loads(json_text({"a": {2, 1}}, default=sorted)) == {"a": [1, 2]}
    with pytest.raises(ValueError, match="Out of range float values"):
        json_text({3.0}, default=lambda found: math.nan)


def test_half_of_a_surrogate_pair_is_refused_wherever_it_is_and_other_letters_are_not() -> None:
    check_unicode({"a": ["\u00e9\U0001f600", 1, None]})
    for data in ("\ud800", {"\udc80": 1}, [["x\udfff"]]):
        with pytest.raises(UnicodeEncodeError):
            check_unicode(data)
