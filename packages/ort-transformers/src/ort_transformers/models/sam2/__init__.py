"""SAM2 for images: an encoder of images, an encoder of prompts and a decoder of masks, each as one file."""
