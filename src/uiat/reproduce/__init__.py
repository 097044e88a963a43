"""The paper's tables and figures, from runs that are made once, at a scale of one's choice."""
