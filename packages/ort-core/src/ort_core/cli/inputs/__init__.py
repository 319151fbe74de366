"""What commands feed to models: values from files, and made-up ones."""
