"""Code generation for the CPU: LLVM IR as text, compiled by llvmlite; the only importer of llvmlite."""
