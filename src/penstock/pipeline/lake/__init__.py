"""Topics to the lake: lanes read, decode and write; one streaming query keeps them in step."""
