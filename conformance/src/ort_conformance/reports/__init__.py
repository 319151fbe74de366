"""Reports: what a run found, as JSON, JUnit, a summary for the terminal, and the support matrix."""
