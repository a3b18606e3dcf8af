"""What changes tenants and what belongs to them. Every function checks the right, writes the audit entry and
the event, and changes the row, in one transaction. Called by pages, the REST doors and commands."""
