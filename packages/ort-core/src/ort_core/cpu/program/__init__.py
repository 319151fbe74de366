"""Native programs: the steps of one lowered group, their memory, sizes and order."""
