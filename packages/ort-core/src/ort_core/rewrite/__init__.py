"""The mechanism of change: pattern matcher, rules and checked graph patches."""
