"""Whose turn it is: within a tenant, and between the tenants of a cohort."""
