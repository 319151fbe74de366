"""What operators become that move elements, or say where they lie."""
