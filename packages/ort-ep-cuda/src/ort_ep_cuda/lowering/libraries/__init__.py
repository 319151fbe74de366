"""Steps that a vendor's library runs, what it fuses behind them, and where the generated kernel stays."""
