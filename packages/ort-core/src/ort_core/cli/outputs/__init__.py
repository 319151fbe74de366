"""What commands write of results: files, and summaries in a few words."""
