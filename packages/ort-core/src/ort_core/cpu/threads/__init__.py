"""Native worker threads, one file per operating system: how a thread starts, sleeps and is woken."""
