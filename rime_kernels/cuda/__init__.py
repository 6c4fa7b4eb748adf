"""The GPU's engine: data on the device, and what each call sends, launches and fetches."""
