"""The changes that commands make: quotas, resizes, settlement and the take-over of HAMi."""
