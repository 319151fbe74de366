"""SizeProgram: many symbolic sizes evaluated at once by one generated Python function, each distinct term once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ort_core.plugin.ir import Call, KnownDim, Symbol


class SizeProgram:
    """Evaluates a list of sizes; distinct expressions are computed once."""

    def __init__(self, sizes: Sequence[KnownDim]) -> None:
        self._names: dict[str, str] = {}
        distinct: dict[KnownDim, str] = {}
        lines: list[str] = []
        places: list[str] = []
        for size in sizes:
            if isinstance(size, int):
                places.append(str(size))
                continue
            if size not in distinct:
                distinct[size] = f"t{len(distinct)}"
                lines.append(f"    {distinct[size]} = {self._text(size)}")
            places.append(distinct[size])
        parameters = ", ".join(self._names.values())
        source = "\n".join([f"def evaluate({parameters}):", *lines, f"    return [{', '.join(places)}]"])
        scope: dict[str, Callable[..., list[int]]] = {}
        exec(compile(source, "<sizes>", "exec"), {"max": max, "min": min}, scope)
        self._function = scope["evaluate"]

    def evaluate(self, sizes: Mapping[str, int]) -> list[int]:
        """Return all values under an assignment of the named sizes."""
        return self._function(*[sizes[name] for name in self._names])

    def _text(self, size: KnownDim) -> str:
        if isinstance(size, int):
            return str(size)
        terms = []
        for monomial, coefficient in size.terms:
            factors = [str(coefficient)] if coefficient != 1 or not monomial else []
            for atom, power in monomial:
                factors.extend([self._atom(atom)] * power)
            terms.append("*".join(factors))
        return f"({' + '.join(terms)})"

    def _atom(self, atom: Symbol | Call) -> str:
        if isinstance(atom, Symbol):
            return self._names.setdefault(atom.name, f"n{len(self._names)}")
        left, right = (self._text(a) for a in atom.arguments)
        operator = {"floordiv": "//", "mod": "%"}.get(atom.function)
        return f"({left} {operator} {right})" if operator else f"{atom.function}({left}, {right})"
