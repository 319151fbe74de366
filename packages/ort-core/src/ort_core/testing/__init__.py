"""What tests of this project and of plugin packages share: models from text, comparisons, and fake providers."""
