"""Webhook configurations and their match conditions."""
