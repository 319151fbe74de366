"""What attention operators, rotary embeddings and embedding tables become."""
