"""Rows and reductions: row nests, formulas over any axes, reductions of expressions."""
