"""Elements that are moved: gathered, scattered, sorted, resized, sampled; and random ones."""
