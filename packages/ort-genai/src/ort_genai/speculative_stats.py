"""Counts of speculative decoding, under onnxruntime-genai's names."""

from __future__ import annotations

_COUNTS = (
    "rounds", "completed_rounds", "interrupted_rounds", "active_rounds", "draft_tokens_proposed",
    "draft_tokens_evaluated", "draft_tokens_accepted", "correction_tokens", "bonus_tokens", "tokens_queued",
    "tokens_emitted", "tokens_discarded", "tokens_buffered", "draft_forward_passes", "target_forward_passes",
    "effective_k", "adaptive_k_increases", "adaptive_k_decreases", "adaptive_k_observations", "adaptive_k_probes",
    "cooldown_entries", "cooldown_steps", "cooldown_remaining", "standard_fallback_steps", "mtp_failures",
    "dflash2_failures", "dflash2_disables", "dflash2_admission_misses", "full_accept_rounds", "partial_accept_rounds",
    "zero_accept_rounds", "target_verify_forward_passes", "target_reanchor_forward_passes",
    "target_reconciliation_forward_passes", "ngram_lookup_hits", "ngram_lookup_misses", "ngram_lookup_tokens_proposed",
    "ngram_chained_tokens_proposed", "ngram_grammar_candidate_rejections", "ngram_history_syncs",
    "ngram_history_tokens_synced",
)  # fmt: skip
_TIMES = (
    "total_draft_ms", "total_target_ms", "total_reconciliation_ms", "total_target_verify_ms",
    "total_target_reanchor_ms", "total_ngram_history_sync_ms", "total_ngram_lookup_ms", "avg_draft_ms_per_token",
    "acceptance_rate", "avg_draft_tokens_per_round", "mean_emitted_tokens_per_round", "expected_tokens_per_round",
    "avg_target_ms_per_round", "target_baseline_ms_per_token", "target_overhead_ratio", "estimated_speedup",
    "observed_speedup", "adaptive_k_throughput",
)  # fmt: skip
_LONGEST = 8  # of the histogram: rounds by the drafts that they kept


class SpeculativeStats:
    """What drafts did: rounds, and how many of their tokens were kept.

    Times, and counts of ways of drafting that are not here, stay 0.
    """

    def __init__(self) -> None:
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._histogram = [0] * _LONGEST

    def count_round(self, drafted: int, accepted: int) -> None:
        """Count a run of the model over drafts."""
        counts = self._counts
        counts["target_forward_passes"] += 1
        if not drafted:
            counts["standard_fallback_steps"] += 1
            return
        for name in ("rounds", "completed_rounds", "target_verify_forward_passes"):
            counts[name] += 1
        counts["draft_tokens_proposed"] += drafted
        counts["draft_tokens_evaluated"] += min(accepted + 1, drafted)
        counts["draft_tokens_accepted"] += accepted
        counts["tokens_emitted"] += accepted + 1
        counts["bonus_tokens" if accepted == drafted else "correction_tokens"] += 1
        kind = "full" if accepted == drafted else "partial" if accepted else "zero"
        counts[f"{kind}_accept_rounds"] += 1
        self._histogram[min(accepted, _LONGEST - 1)] += 1

    def count_lookup(self, drafted: int) -> None:
        """Count a search for what followed the same tokens before."""
        self._counts["ngram_lookup_hits" if drafted else "ngram_lookup_misses"] += 1
        self._counts["ngram_lookup_tokens_proposed"] += drafted

    def as_dict(self) -> dict[str, object]:
        """Return all counts."""
        counts, times = self._counts, dict.fromkeys(_TIMES, 0.0)
        rounds = counts["rounds"]
        if rounds:
            times["acceptance_rate"] = counts["draft_tokens_accepted"] / counts["draft_tokens_proposed"]
            times["avg_draft_tokens_per_round"] = counts["draft_tokens_proposed"] / rounds
            times["mean_emitted_tokens_per_round"] = counts["tokens_emitted"] / rounds
        return {
            **counts, "formula_supported": False, **times, "acceptance_length_histogram": list(self._histogram),
        }  # fmt: skip
