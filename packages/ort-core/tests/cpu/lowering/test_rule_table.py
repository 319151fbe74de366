"""The table of lowering rules: every name in it is a function, and a session imports the rules of its own operators."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from ort_core.cpu.lowering.rule_table import OPERATORS, RULES, rule


@pytest.mark.parametrize("name", sorted({*OPERATORS, *RULES.values(), "rows.row_formulas.row_formula"}))
def test_name_in_the_table_is_a_rule(name: str) -> None:
    found = rule(name)
    assert callable(found)
    home = found.__module__.removeprefix("ort_core.cpu.lowering.rules.")
    assert f"{home}.{found.__name__}" == name, "named where it is defined"


def test_no_operator_has_two_rules() -> None:
    names = [name for listed in OPERATORS.values() for name in listed.split()]
    assert len(names) == len(set(names))


def test_a_session_imports_the_rules_of_its_own_operators_and_no_others() -> None:
    script = """
        import sys
        import numpy as np
        from onnx import parser
        import ort_core
        text = '''<ir_version: 8, opset_import: ["" : 17]>
            g (float[N, 4] x) => (float[N, 4] y) { a = Exp(x) b = Tanh(a) y = Softmax(b) }'''
        session = ort_core.InferenceSession(parser.parse_model(text).SerializeToString())
        x = np.zeros((2, 4), np.float32)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], np.full((2, 4), 0.25, np.float32), rtol=1e-6)
        rules = "ort_core.cpu.lowering.rules."
        print(sorted(name.removeprefix(rules) for name in sys.modules if name.startswith(rules)))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    imported = done.stdout.strip()
    assert "'rows.rows'" in imported
    for other in ("recurrent", "machine_learning", "convolutions.convolutions", "attention", "images.resizing"):
        assert f"'{other}" not in imported, imported
