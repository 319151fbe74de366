"""The fusions of an export: the forms that exporters write, brought to those that fusions know, and a report."""
