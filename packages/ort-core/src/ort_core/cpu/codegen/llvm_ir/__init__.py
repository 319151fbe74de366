"""LLVM IR as text: the emitter, vectors, scalar expressions, and texts that are written on demand."""
