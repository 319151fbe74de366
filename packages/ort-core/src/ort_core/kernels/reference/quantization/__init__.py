"""Values to few bits and back, and operators that compute on such values."""
