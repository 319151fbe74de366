"""Names that command lines offer, which need no torch."""

PRETRAINED_GPT2_MODELS = ["distilgpt2", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"]
MODEL_CLASS_NAMES = ("GPT2LMHeadModel", "GPT2LMHeadModel_NoPadding", "GPT2Model")
