"""Pictures of results, drawn without a display; matplotlib is imported only when one is drawn."""
