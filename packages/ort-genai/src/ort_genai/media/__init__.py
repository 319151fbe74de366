"""Images and sounds: files, and what models see and hear of them."""
