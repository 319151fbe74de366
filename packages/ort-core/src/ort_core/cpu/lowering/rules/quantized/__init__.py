"""What operators on integers and on quantized tensors become."""
