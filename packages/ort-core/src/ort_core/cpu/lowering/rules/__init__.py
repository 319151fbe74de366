"""What single operators become: one file per family; ``lowering.rule_table.RULES`` is the list."""
