"""What is shown of compiled partitions: steps, reasons, generated code, the machine's peaks."""
