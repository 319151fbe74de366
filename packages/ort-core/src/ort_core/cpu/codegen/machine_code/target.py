"""Target: what code is generated for. To know it takes no compiler."""

from __future__ import annotations

from ort_core.plugin import frozen

SCALAR_CHAINS = "; scalar chains\n"
"""First line of a module whose parallel scalar chains are to stay so: LLVM would join their loads into gathers."""

_SMALL_SECOND_LEVEL_NBYTES = {
    **dict.fromkeys(("haswell", "broadwell", "skylake"), 1 << 18),
    **dict.fromkeys(("znver1", "znver2", "znver3"), 1 << 19),
}  # by LLVM's names


@frozen
class Target:
    """What code is generated for: triple, CPU, features, and the vector unit that follows from them.

    ``vector_nbytes`` is the width of a vector register, ``vector_registers`` how many there are.
    ``compiler`` is the version of LLVM.
    """

    triple: str
    cpu: str
    features: str
    vector_nbytes: int
    vector_registers: int
    compiler: str

    @property
    def lanes(self) -> int:
        """How many float32 fit a vector register."""
        return self.vector_nbytes // 4

    @property
    def second_level_nbytes(self) -> int:
        """The second-level cache of a core: of processors known to have a small one, else what is usual."""
        return _SMALL_SECOND_LEVEL_NBYTES.get(self.cpu, 1 << 21)

    def has(self, feature: str) -> bool:
        """Return whether the CPU has a feature, by LLVM's name."""
        return f"+{feature}" in self.features.split(",")

    @property
    def key(self) -> str:
        """What compiled code depends on."""
        return f"{self.triple}|{self.cpu}|{self.features}|{self.compiler}"


def target_of(triple: str, cpu: str, features: str, compiler: str) -> Target:
    """Return a target; the vector unit is read off the features."""
    names = set(features.split(","))
    arch = triple.split("-")[0]
    if arch in ("aarch64", "arm64"):
        return Target(triple, cpu, features, 16, 32, compiler)
    if "+avx512f" in names:
        return Target(triple, cpu, features, 64, 32, compiler)
    if "+avx2" in names and "+fma" in names:
        return Target(triple, cpu, features, 32, 16, compiler)
    return Target(triple, cpu, features, 16, 16, compiler)
