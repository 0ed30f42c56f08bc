"""Data: sources and checksums, digits on the device, one stream of batches a task."""
