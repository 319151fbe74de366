"""Elements gathered, scattered, selected and rearranged, and shapes."""
