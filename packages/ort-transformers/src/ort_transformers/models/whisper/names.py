"""Names that command lines offer, which need no torch."""

_SIZES = (
    "tiny", "tiny.en", "base", "base.en", "small", "small.en", "medium", "medium.en", "large", "large-v2", "large-v3",
    "large-v3-turbo",
)  # fmt: skip
PRETRAINED_WHISPER_MODELS = [f"whisper-{size}" for size in _SIZES]
