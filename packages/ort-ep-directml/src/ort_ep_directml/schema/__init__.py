"""What DirectML has: its operators, their fields, the element types that they take. Needs no library."""
