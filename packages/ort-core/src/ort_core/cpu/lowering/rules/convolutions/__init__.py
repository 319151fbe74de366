"""What convolutions of images and volumes become, transposed ones too."""
