"""A quantized model beside the float model: matched values, ranges, and reports."""
