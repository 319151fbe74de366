"""Hostile chat templates are refused before they take the processor or the memory; honest ones are written as ever."""

from __future__ import annotations

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ort_genai.chat_templates import written
from ort_genai.errors import InvalidGeneration

VALUES = {"messages": [{"role": "user", "content": "hi\nthere"}], "tools": None}
NESTED = (
    "{% set a = [0] * 1000 %}{% set b = [a] * 1000 %}{% set c = [b] * 1000 %}{% set d = [c] * 1000 %}"
    "{% set f = [0] * 1000 %}{% set g = [f] * 1000 %}{% set h = [g] * 1000 %}{% set e = [h] * 1000 %}"
)
TUPLES = NESTED.replace("[", "(").replace("]", ",)")
LOOKS = "{% set a = [0] * 10 ** 5 %}{% for i in range(900) %}{% if 1 in a %}{% endif %}{% endfor %}"
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
    "lists in lists": NESTED + "{{ d }}",
    "lists in lists, joined": NESTED + "{{ 'a' ~ d }}",
    "lists in lists as a text": NESTED + "{{ d|string|length }}",
    "lists in lists as JSON": NESTED + "{{ d|tojson|length }}",
    "lists in lists by percent": NESTED + "{{ '%s' % (d,) }}",
    "lists in lists by format": NESTED + "{{ '{}'.format(d) }}",
    "lists in lists, compared": NESTED + "{{ d == e }}",
    "lists in lists, compared by a test": NESTED + "{{ d is eq(e) }}",
    "lists in lists, looked for": NESTED + "{{ [e].index(d) }}",
    "lists in lists, sorted": NESTED + "{{ [d, e]|sort|length }}",
    "tuples in tuples, hashed": TUPLES + "{{ {d: 1}|length }}",
    "tuples in tuples, as a key": TUPLES + "{{ {1: 1}[d] }}",
    "tuples in tuples, got": TUPLES + "{{ {1: 1}.get(d) }}",
    "tuples in tuples, unique": TUPLES + "{{ [d]|unique|list|length }}",
    "items": NESTED + "{{ {'a': d}.items()|string|length }}",
    "join by a method": "{{ ('x' * 10 ** 6).join(range(10 ** 4)|map('string'))|length }}",
    "join by long texts": "{{ ([1] * 10 ** 4)|join('x' * 10 ** 6)|length }}",
    "join a text": "{{ ('a' * 10 ** 5)|join('x' * 10 ** 6)|length }}",
    "join attributes": "{{ ([{'a': 'x' * 10 ** 6}] * 10 ** 4)|join(attribute='a')|length }}",
    "sums of lists": "{{ ([[0] * 1000] * 10 ** 5)|sum(start=[])|length }}",
    "indent by a text": "{{ ('a\n' * 10 ** 6)|indent('x' * 10 ** 6)|length }}",
    "tabs": "{{ ('\t' * 10 ** 6).expandtabs(10 ** 6)|length }}",
    "places that come again": "{{ ('{0}' * 10 ** 5).format('x' * 10 ** 6)|length }}",
    "names that come again": "{{ (('%(a)s' * 10 ** 5) % {'a': 'x' * 10 ** 6})|length }}",
    "translate": "{{ ('a' * 10 ** 6).translate({97: 'x' * 10 ** 6})|length }}",
    "replace in a list": "{{ ([0] * 10 ** 5)|replace('0', 'x' * 10 ** 6)|length }}",
    "replace by names": "{{ ('a' * 10 ** 6)|replace(new='b' * 10 ** 6, old='a')|length }}",
    "bytes": "{{ ('a'.encode() * 10 ** 10)|length }}",
    "padded bytes": "{{ 'a'.encode().center(10 ** 10)|length }}",
    "bytes of a number": "{{ (5).to_bytes(10 ** 10, 'big')|length }}",
    "a large power": "{{ 10 ** 30000000 > 1 }}",
    "squares": "{% set n = namespace(x=10 ** 999) %}{% for i in range(40) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "rounding": "{{ 1|round(10 ** 10, 'ceil') }}",
    "a long division": "{{ ('f' * 10 ** 6)|int(0, 16) // 7 }}",
    "doubled by a block of set": "{% set n = namespace(x='a' * 9) %}{% for i in range(60) %}"
    "{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}{% endfor %}",
    "doubled by a macro": "{% macro f(x) %}{{ x }}{{ x }}{% endmacro %}{% set n = namespace(x='a' * 9) %}"
    "{% for i in range(60) %}{% set n.x = f(n.x) %}{% endfor %}",
    "blocks that call themselves": "{% set n = namespace(d=0) %}{% block a %}{% if n.d < 40 %}{% set n.d = n.d + 1 %}"
    "{{ self.a() }}{{ self.a() }}{% set n.d = n.d - 1 %}{% endif %}{% endblock %}",
    "looks": LOOKS,
    "looks by a method": LOOKS.replace("1 in a", "a.count(1)"),
    "looks by a filter": LOOKS.replace("1 in a", "a|max"),
    "looks at iterators": LOOKS.replace("1 in a", "a|map('abs')|sum"),
    "parts": "{% set a = 'a' * 10 ** 6 %}{% for i in range(900) %}{% if a[1:] %}{% endif %}{% endfor %}",
    "codings": "{{ ('\u1234\u4321' * 10 ** 5).encode('punycode')|length }}",
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
    "{{ [[1, 2], [3]]|sum(start=[])|join('-') }}{{ messages|join(',', attribute='role') }}{{ 'abc'|join('/') }}",
    "{{ messages[-1].content[1:4] ~ [1, 2, 3][:2] }}{{ 'ab' == 'ab' }}{{ 1 < 2 <= 2 }}{{ 'a' in {'a': 1} }}",
    "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ {'a': [1]}.items()|list }}{{ 2.567|round(1) }}",
    "{{ '{0} {0} {a}'.format('x', a=[1]) }}{{ '%(a)s %(a)s' % {'a': 1} }}{{ '-'.join(['a', 'b']) }}{{ 7 // 2 }}",
    "{{ nothing }}{{ nothing is defined }}{{ messages == [] }}{{ (1, 2) in {(1, 2): 3} }}{{ 'a\nb'|indent('> ') }}",
    "{{ 'é'.encode('utf-8').decode() }}{{ 5 - 7 }}{{ 5 / 2 }}{{ 'x'.replace('x', 'yy') }}{{ [3, 1]|sort }}",
    "{% set n = namespace(x='') %}{% for i in [1, 2] %}{% set n.x %}{{ n.x }}{{ i }}{% endset %}{% endfor %}{{ n.x }}",
    "{% block a %}{{ messages[0].role }}{% endblock %}{{ self.a() }}{{ 'b'|center(5) }}{{ [1, 2, 3]|batch(2)|list }}",
    "{% filter upper %}a{% endfilter %}{% set x %}b{{ 1 ~ 2 }}{% endset %}{{ x }}{{ 1234567890123|int }}",
)  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_takes_too_much_is_refused(name, monkeypatch):
    monkeypatch.setattr("ort_genai.template_budget.STEPS", 1000)
    monkeypatch.setattr("ort_genai.template_budget.READS", 1 << 20)
    with pytest.raises(
        InvalidGeneration,
        match=r"it takes more|it makes|it pads|JSON is indented|writes more|'lipsum' is undefined|it asks for",
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


@pytest.mark.parametrize(
    "template",
    ["{{ 'a'.encode('nope') }}", "{{ [].index(1) }}", "{{ {}.popitem() }}", "{% include 'a' %}", "{{ cycler() }}",
     "{{ ''.join(1) }}", "{{ 1|join }}", "{{ (1).to_bytes(-1) }}", "{{ 'a'|center('x') }}"],
)  # fmt: skip
def test_what_fails_is_refused_in_a_sentence(template):
    with pytest.raises(InvalidGeneration, match="the chat template"):
        written(template, VALUES)
