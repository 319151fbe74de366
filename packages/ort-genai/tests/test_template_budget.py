"""Hostile chat templates are refused before they take the processor or the memory; honest ones are written as ever."""

from __future__ import annotations

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ort_genai.chat_templates import written
from ort_genai.errors import InvalidGeneration

VALUES = {"messages": [{"role": "user", "content": "hi\nthere"}], "tools": None}
HOSTILE = {
    "loops in loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "loops that call themselves": "{% for x in range(20) recursive %}{{ loop(range(x)) }}{% endfor %}" * 3,
    "macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    "times": "{{ 'a' * 10 ** 10 }}",
    "times from the left": "{{ 10 ** 10 * 'a' }}",
    "lists": "{{ [0] * 10 ** 10 }}",
    "powers": "{{ 10 ** (10 ** 9) }}",
    "doubled by ~": "{% set n = namespace(x='a' * 9) %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "doubled by +": "{% set n = namespace(x='a' * 9) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "doubled lists": "{% set n = namespace(x=[0]) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "doubled by join": "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x=[n.x,n.x]|join %}{% endfor %}",
    "percent": "{{ '%999999999d' % 1 }}",
    "percent of a width": "{{ '%*d' % (10 ** 10, 1) }}",
    "format": "{{ '{:>9999999999}'.format('a') }}",
    "format of a width": "{{ '{:{}}'.format('a', 10 ** 10) }}",
    "format_map": "{{ '{a:>9999999999}'.format_map({'a': 1}) }}",
    "the filter format": "{{ '%999999999d'|format(1) }}",
    "center": "{{ 'a'|center(10 ** 10) }}",
    "ljust": "{{ 'a'.ljust(10 ** 10) }}",
    "expandtabs": "{{ '\t'.expandtabs(10 ** 9) }}",
    "indent": "{{ ('a\n' * 10 ** 5)|indent(10 ** 6) }}",
    "replace": "{{ ('a' * 10 ** 6).replace('a', 'b' * 10 ** 6) }}",
    "the filter replace": "{{ ('a' * 10 ** 6)|replace('a', 'b' * 10 ** 6) }}",
    "join": "{{ (['a' * 1000] * 10 ** 6)|join }}",
    "lipsum": "{{ lipsum(n=10 ** 7) }}",
    "tojson": "{{ messages|tojson(indent=10 ** 9) }}",
}
HONEST = (
    "{% for m in messages %}{{ m['role'] ~ ': ' ~ m.content|trim }}{{ loop.index0 }}{{ loop.last }}{% endfor %}",
    "{% for c in 'abc' %}{{ c }}{% if not loop.last %},{% endif %}{{ loop.length }}{% else %}none{% endfor %}",
    "{% for c in [] %}{{ c }}{% else %}none{% endfor %}{% for c in nothing %}{{ c }}{% endfor %}",
    "{% macro f(a, b=2) %}{{ a ~ b }}{{ caller() if caller }}{% endmacro %}{{ f(1) }}{% call f(3) %}x{% endcall %}",
    "{{ '{} {:>5}'.format(1234567890, 2) }}{{ '%05d' % 7 }}{{ '%s-%s'|format(1, none) }}{{ 'a' ~ 1 ~ none }}",
    "{{ 2 ** 10 }}{{ 7 % 4 }}{{ 1 + 2.5 }}{{ [1] + [2] }}{{ 'ab' * 2 }}{{ (1, 2) + (3,) }}",
    "{{ messages|map(attribute='role')|join('/') }}{{ 'a,b'.split(',')|last }}{{ 'x'|indent(3, true) }}",
    "{{ messages[0].content.replace('\n', '\\n').upper()|replace('H', 'J') }}{{ 'é'.encode()|length }}",
    "{% for k, v in {'b': 1, 'a': 2}|dictsort %}{{ k }}={{ v }}{{ loop.cycle(';', '.') }}{% endfor %}",
    "{% for x in [1, [2, 3]] recursive %}{% if x is iterable %}{{ loop(x) }}{% else %}{{ x }}{% endif %}{% endfor %}",
    "{% for x in range(9) if x is odd %}{% if x > 5 %}{% break %}{% endif %}{{ x }}{% endfor %}{{ 'a b'|wordcount }}",
    "{% filter upper %}a{% endfilter %}{% set x %}b{{ 1 ~ 2 }}{% endset %}{{ x }}{{ 1234567890123|int }}",
)  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_takes_too_much_is_refused(name, monkeypatch):
    monkeypatch.setattr("ort_genai.template_budget.STEPS", 1000)
    with pytest.raises(
        InvalidGeneration, match=r"it takes more|it makes|it pads|JSON is indented|writes more|'lipsum' is undefined"
    ):
        written(HOSTILE[name], VALUES)


@pytest.mark.parametrize("template", HONEST)
def test_honest_templates_are_written_as_by_jinja_alone(template):
    plain = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    ).from_string(template)
    assert written(template, VALUES) == plain.render(**VALUES)


def test_marks_of_what_is_trained_on_change_nothing():
    """Names that are set between them stay there, as in transformers."""
    marked = "{% set a = 1 %}{% for m in messages %}{% generation %}{% set a = 2 %}{{ m.role ~ a }}{% endgeneration %}"
    assert written(marked + "{% endfor %}{{ a }}", VALUES) == "user21"
    with pytest.raises(InvalidGeneration, match="the chat template refuses"):
        written("{% generation %}{{ 1 }}", VALUES)
