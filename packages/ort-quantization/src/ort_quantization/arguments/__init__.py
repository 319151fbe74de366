"""What callers give: options, configurations, and advice where they do not fit."""
