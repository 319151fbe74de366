"""When values live and where they lie: liveness, aliases and offsets as pure functions over the IR."""
