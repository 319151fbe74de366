"""Lowering: which nodes OpenVINO computes as the specification says, by family, and how a claim is handed to it."""
