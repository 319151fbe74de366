"""Names that command lines offer, which need no torch."""

PRETRAINED_T5_MODELS = ["t5-small", "t5-base", "t5-large", "t5-3b", "t5-11b"]
PRETRAINED_MT5_MODELS = [f"google/mt5-{size}" for size in ("small", "base", "large", "xl", "xxl")]
