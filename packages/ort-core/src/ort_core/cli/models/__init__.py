"""What commands show of a model: facts, passes and steps."""
